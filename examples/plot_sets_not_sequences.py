"""
Sets, not sequences
===================

The rows of a sample often have an order without meaning, for example the order in which a database
returned them or a detector fired. A model that reads the rows as one long row learns from this
order anyway. What happens to the model when the order changes, and what happens to attention?

Attention follows a law, which this example checks to the last bits: **if the tokens are permuted,
the outputs are permuted** in the same way and otherwise unchanged. The end shows the price of the
law.
"""

# %%
# The law
# -------
# Let P be a permutation matrix. Then P X are the tokens X in another order, and every step of the
# formula keeps this order::
#
#     (P X) W_Q = P Q                   a projection reads one token at a time
#     (P Q)(P K)^T = P (Q K^T) P^T      the scores: rows and columns are permuted together
#     softmax(P S P^T) = P A P^T        a row's sum does not depend on the order of its terms
#     (P A P^T)(P V) = P (A V)          P^T P = I
#
# This is called equivariance. A pooling, for example the mean, does not depend on the order of its
# terms, so its output does not change at all. This is called invariance.

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skattn import AttentionClassifier, PositionalEncoder
from skattn.datasets import make_lookup
from skattn.display import AttentionDisplay

X, y = make_lookup(500, random_state=0)
X_test, y_test = make_lookup(1000, random_state=1)
model = AttentionClassifier(random_state=0, max_iter=400, tol=1e-3).fit(X, y)

rng = np.random.default_rng(0)
orders = [rng.permutation(len(tokens)) for tokens in X_test]
shuffled = [tokens[order] for tokens, order in zip(X_test, orders, strict=True)]

A, A_shuffled = model.attention_weights(X_test), model.attention_weights(shuffled)
Z, Z_shuffled = model.contextualize(X_test), model.contextualize(shuffled)
differences = {
    "weights: P A P^T": max(
        np.abs(a[:, order][:, :, order] - b).max()
        for a, b, order in zip(A, A_shuffled, orders, strict=True)
    ),
    "tokens: P Z": max(
        np.abs(a[order] - b).max() for a, b, order in zip(Z, Z_shuffled, orders, strict=True)
    ),
    "pooled: unchanged": np.abs(model.transform(X_test) - model.transform(shuffled)).max(),
    "log-odds: unchanged": np.abs(
        model.decision_function(X_test) - model.decision_function(shuffled)
    ).max(),
}
print(f"{'law':<22}largest difference over {len(X_test)} sets")
for law, difference in differences.items():
    print(f"{law:<22}{difference:.0e}")
    assert difference < 1e-11  # round-off: sums are taken in another order
moved = max(np.abs(a - b).max() for a, b in zip(A, A_shuffled, strict=True))
print(f"without P, the weights differ by up to {moved:.2f}")
assert moved > 0.1

# %%
# One long row
# ------------
# If we put the seven tokens of a set side by side, any classifier of tables can read them. A column
# is then "the third feature of the fourth token". Assume that the training sets come from a
# database that has looked up the question: the question comes first, then the item with its key,
# then the others. The answer is in one column, which is easy to learn. Then the order of the sets
# changes.


def looked_up(tokens):
    """The question first, then the item of its key, then the others."""
    is_question = tokens[:, 7] == 1
    is_match = np.all(tokens[:, :6] == tokens[is_question, :6], axis=1)
    return tokens[np.lexsort((~is_match, ~is_question))]


def side_by_side(X):
    """One row per set: its tokens, one after the other."""
    return np.stack(X).reshape(len(X), -1)


def flattened(classifier):
    """A classifier of sets that reads them as one long row."""
    return make_pipeline(FunctionTransformer(side_by_side), StandardScaler(), classifier)


models = {
    "boosted trees, one long row": flattened(HistGradientBoostingClassifier(random_state=0)),
    "neural network, one long row": flattened(
        MLPClassifier((100,), alpha=1.0, max_iter=500, random_state=0)
    ),
    "attention to a set": AttentionClassifier(random_state=0, max_iter=400, tol=1e-3),
    "attention with positions": make_pipeline(
        PositionalEncoder(mode="append", n_features=8, max_period=10),
        AttentionClassifier(random_state=0, max_iter=400, tol=1e-3),
    ),
}
train = [looked_up(tokens) for tokens in X]
tests = {"same order": [looked_up(tokens) for tokens in X_test], "other order": shuffled}
scores = {name: [] for name in models}
for name, fitted in models.items():
    fitted.fit(train, y)
    scores[name] += [fitted.score(test, y_test) for test in tests.values()]

# %%
# What the law costs
# ------------------
# If the order matters, a set has lost it. Here the label is 1 if the question comes before the
# middle of the set, else 0. In the test, each set occurs once as it is and once in reverse, with
# the other label and the same tokens. For attention they are the same set, so it gives both the
# same answer, which is right for one of them. No training helps. This follows from the law.
#
# A `PositionalEncoder` writes the order into the tokens, so they are no longer the same tokens.
# With positions, attention can fail in another order, like any other model. ``plot_word_order.py``
# shows more of this.


def question_aside(tokens, rng):
    """The set with its question in one of the places 0, 1, 2, 4, 5 and 6; whether it came early."""
    place = rng.choice([0, 1, 2, 4, 5, 6])
    is_question = tokens[:, 7] == 1
    return np.insert(tokens[~is_question], place, tokens[is_question], axis=0), int(place < 3)


early = [question_aside(tokens, rng) for tokens in X]
pairs = [question_aside(tokens, rng) for tokens in X_test]
both = [tokens for tokens, _ in pairs] + [tokens[::-1] for tokens, _ in pairs]
y_both = np.concatenate([[label for _, label in pairs], [1 - label for _, label in pairs]])
for name, fitted in models.items():
    fitted.fit([tokens for tokens, _ in early], [label for _, label in early])
    scores[name].append(fitted.score(both, y_both))

columns = [*tests, "order is the label"]
print(f"\n{'test accuracy':<30}" + "".join(f"{column:>20}" for column in columns))
for name, values in scores.items():
    print(f"{name:<30}" + "".join(f"{value:>20.3f}" for value in values))

for name in list(models)[:2]:
    assert scores[name][0] > 0.95 and scores[name][1] < 0.6 and scores[name][2] > 0.95
assert scores["attention to a set"][0] == scores["attention to a set"][1] > 0.95
assert scores["attention to a set"][2] == 0.5  # exactly
assert scores["attention with positions"][2] > 0.95

# %%
# The picture
# -----------
# The left and middle panels show the weights of one head for a test set and for the same set in
# another order. Only the positions of rows and columns change: “?” still attends to a*, the item
# with its key. The right panel shows the results of the three tests.
#
# The figure shows two extremes; real orders are rarely this misleading or this useful. In between,
# try both: positions are one step in a pipeline.

A_shown, order = A[0], orders[0]
is_question = X_test[0][:, 7] == 1
is_match = np.all(X_test[0][:, :6] == X_test[0][is_question, :6], axis=1)
match = np.flatnonzero(is_match & ~is_question)[0]
head = int(A_shown[:, np.flatnonzero(is_question)[0], match].argmax())
letters = iter("abcdef")
labels = np.array(["?" if q else next(letters) for q in is_question], dtype=object)
labels[match] += "*"

fig, (left, middle, right) = plt.subplots(
    1, 3, figsize=(12, 4.1), width_ratios=[1, 1, 1.35], layout="constrained"
)
for ax, weights, names, title in (
    (left, A_shown[head], labels, "A set"),
    (middle, A_shuffled[0][head], labels[order], "The same set in another order"),
):
    AttentionDisplay.from_weights(weights, names, ax=ax, colorbar=False, vmax=1)
    ax.set_title(title, fontsize=11)

colours = ["0.75", "0.5", "#D55E00", "#0072B2"]  # they differ for any colour vision
for k, ((name, values), colour) in enumerate(zip(scores.items(), colours, strict=True)):
    bars = right.bar(np.arange(3) + 0.2 * (k - 1.5), values, 0.19, color=colour, label=name)
    right.bar_label(bars, [f"{value:.2f}" for value in values], padding=1, fontsize=7.5)
right.axhline(0.5, color="black", linestyle="--", linewidth=1)
right.set_xticks(range(3), ["trained in this order", "another order", "order is the label"])
right.set(ylim=(0.4, 1.25), yticks=np.arange(0.4, 1.01, 0.1), ylabel="test accuracy")
right.set_title("Accuracy in three tests; dashed: chance", fontsize=11)
right.legend(loc="upper left", frameon=False, fontsize=8.5, ncols=2)
right.spines[["top", "right"]].set_visible(False)

path = Path(__file__).parent / "_output" / "sets_not_sequences.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"\nFigure: {path.relative_to(Path(__file__).parent.parent)}")
