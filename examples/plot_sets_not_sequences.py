"""
Sets, not sequences
===================

The rows of a sample often come in an order that means nothing: the one in which a database handed
them out, or a detector fired. A model that is given them as one long row learns from that order
all the same. What happens to it when the order changes, and what happens to attention?

The answer for attention is a law, which this example checks to the last bits: **permute the
tokens, and the outputs are permuted**, in the same way and otherwise unchanged. The price of the
law comes at the end.
"""

# %%
# The law
# -------
# Let P be a permutation matrix, so that P X are the tokens X in another order. Every step of the
# formula passes it on::
#
#     (P X) W_Q = P Q                   a projection looks at one token at a time
#     (P Q)(P K)^T = P (Q K^T) P^T      the scores: rows and columns change places together
#     softmax(P S P^T) = P A P^T        a row's sum does not depend on the order of its terms
#     (P A P^T)(P V) = P (A V)          P^T P = I
#
# This is called equivariance. A pooling such as the mean forgets the order of its terms, and what
# comes out does not change at all: that is invariance.

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
# Put the seven tokens of a set side by side, and any classifier of tables takes it. Each column is
# then "the third feature of whoever came fourth". Say that the training sets come from a database
# that has looked up the question: the question first, then the item of its key, then the others.
# The answer stands in one column, and is learned in no time. Then the sets come in another order.


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
# If the order *is* the message, a set has lost it. Here the label says whether the question came
# before the middle of the set or after it. In the test, each set comes as it is and in reverse,
# which has the other label and the same tokens. To attention they are one set, so it gives one
# answer, and that is right for one of the two. No training helps. It is no fault, it is the law.
#
# The way out is to write the order into the tokens, with a `PositionalEncoder`: then they are not
# the same tokens. With it, attention can go wrong by order again, like any other model.
# ``plot_word_order.py`` tells that story.


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
# Left and middle: the weights of one head for a test set, and for the same set in another order.
# Nothing but the places of rows and columns has changed: “?” still attends to a*, the item of its
# own key. Right: what came of the three tests.
#
# What the figure does not show: that real orders are this treacherous, or this useful. It shows the
# two ends. In between, try both: it is one step in a pipeline.

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

colours = ["0.75", "0.5", "#D55E00", "#0072B2"]  # told apart with any colour vision
for k, ((name, values), colour) in enumerate(zip(scores.items(), colours, strict=True)):
    bars = right.bar(np.arange(3) + 0.2 * (k - 1.5), values, 0.19, color=colour, label=name)
    right.bar_label(bars, [f"{value:.2f}" for value in values], padding=1, fontsize=7.5)
right.axhline(0.5, color="black", linestyle="--", linewidth=1)
right.set_xticks(range(3), ["trained in this order", "another order", "order is the label"])
right.set(ylim=(0.4, 1.25), yticks=np.arange(0.4, 1.01, 0.1), ylabel="test accuracy")
right.set_title("What order does; dashed: chance", fontsize=11)
right.legend(loc="upper left", frameon=False, fontsize=8.5, ncols=2)
right.spines[["top", "right"]].set_visible(False)

path = Path(__file__).parent / "_output" / "sets_not_sequences.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"\nFigure: {path.relative_to(Path(__file__).parent.parent)}")
