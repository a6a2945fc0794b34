"""
Seven questions about attention
===============================

Seven exercises of a first course on attention, of the kind that one answers with pencil and paper.
Here each one is answered by an experiment: a prediction, some lines of code, an assertion that
would fail if the answer were wrong, and a small picture.
"""

# %%

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import entr, softmax

from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionRegressor,
    PositionalEncoder,
    scaled_dot_product_attention,
)
from skattn.datasets import make_lookup

words = ["cat", "dog", "phone"]
X = np.array([[1, 0.5], [0.8, 0.6], [-0.5, 1]])
rng = np.random.default_rng(0)


def attend(Q, K=None, V=None, **parameters):
    """Outputs and weights; with Q alone the tokens are queries, keys and values themselves."""
    K = Q if K is None else K
    V = K if V is None else V
    return scaled_dot_product_attention(Q, K, V, return_weights=True, **parameters)


def entropy(A):
    """Entropy of each row of weights: 0 is one-hot, log n is even."""
    return entr(A).sum(axis=-1)


count = 0


def answer(question, finding):
    """Print a question with what came out."""
    global count
    count += 1
    print(f"{count}. {question}\n   {finding}")


# %%
# 1. Does training lower the diagonal?
# ------------------------------------
# Where queries and keys are the tokens themselves, the score of a token with itself is its squared
# length, and the diagonal of A is heavy. What training makes of it is up to the task. Sets of four
# tokens have four kinds and a number each. From one start (identity projections) we train two
# fits: each token is to say its own number, or that of the next kind.

kinds = rng.permuted(np.tile(np.arange(4), (300, 1)), axis=1)
numbers = rng.normal(size=kinds.shape)
sets = np.concatenate([np.eye(4)[kinds], numbers[..., None]], axis=-1)  # (300, 4, 5)
of_next = np.take_along_axis(
    numbers, np.take_along_axis(np.argsort(kinds, axis=1), (kinds + 1) % 4, axis=1), axis=1
)


def diagonal(target, max_iter):
    """The mean weight of tokens for themselves after a fit."""
    model = AttentionRegressor(
        n_heads=1,
        d_k=5,
        d_v=5,
        init="identity",
        standardize=False,
        score_statistics=False,
        pooling=None,
        alpha=1e-4,
        max_iter=max_iter,
        tol=None,
        random_state=0,
    ).fit(sets, list(target))
    return np.mean([A[0].diagonal() for A in model.attention_weights(sets)])


budgets = [0, 1, 2, 4, 8, 16, 32, 64]
own, nexts = ([diagonal(target, k) for k in budgets] for target in (numbers, of_next))
answer(
    "Does training lower the diagonal?",
    f"It does what the task pays for: from {own[0]:.2f} up to {own[-1]:.2f} where a token needs "
    f"itself,\n   and down to {nexts[-1]:.2f} where it needs another.",
)
assert nexts[-1] < 0.1 < own[0] == nexts[0] < 0.6 < 0.9 < own[-1]

# %%
# 2. What if all embeddings are doubled?
# --------------------------------------
# Both queries and keys double, so scores grow by four, not by two. Ratios of weights are taken to
# the fourth power, and each row gets sharper. An estimator that standardises its tokens does not
# notice.

factors = np.array([0.25, 0.5, 1, 2, 4])
rows = np.array([attend(f * X)[1][0] for f in factors])  # cat's
np.testing.assert_allclose((2 * X) @ (2 * X).T, 4 * (X @ X.T))
A_once, A_doubled = attend(X)[1], attend(2 * X)[1]
np.testing.assert_allclose(  # of cat's weights for dog and phone
    A_doubled[0, 1] / A_doubled[0, 2], (A_once[0, 1] / A_once[0, 2]) ** 4
)
assert np.all(entropy(A_doubled) < entropy(A_once))
assert np.all(A_doubled.max(axis=1) > A_once.max(axis=1))
standardised = AttentionContextualizer(max_iter=0, random_state=0)
np.testing.assert_allclose(
    standardised.fit(sets).transform(sets), standardised.fit(2 * sets).transform(2 * sets)
)
answer(
    "What if all embeddings are doubled?",
    f"Scores grow by 4, rows get sharper: cat's largest weight goes from {A_once[0].max():.2f} to "
    f"{A_doubled[0].max():.2f}.",
)

# %%
# 3. When is a row uniform, and is that a place to start from?
# -------------------------------------------------------------
# When all its scores are equal: the query is zero, or the keys are all the same. Then attention is
# the mean. A fit that starts with W_Q = W_K = 0 never leaves it: dQ = c dS K is zero as K is, and
# dK is zero as Q is. With only one of them zero it gets away.

Z, A = attend(np.zeros((1, 2)), X)
assert np.all(A == 1 / 3)
np.testing.assert_allclose(Z[0], X.mean(axis=0))
np.testing.assert_allclose(attend(X, np.ones((3, 2)), X)[1], 1 / 3)

lookup, labels = make_lookup(300, random_state=0)
zero, random = np.zeros((8, 8)), 0.5 * rng.normal(size=(8, 8))
curves = {}
for start, W_K in (("both zero", zero), ("W_Q zero", random)):
    model = AttentionClassifier(
        n_heads=1, init={"W_Q": zero, "W_K": W_K}, alpha=1e-4, max_iter=60, tol=None, random_state=0
    ).fit(lookup, labels)
    curves[start] = model.loss_curve_
    if start == "both zero":
        assert not model.W_Q_.any() and not model.W_K_.any()  # not once moved
answer(
    "When is a row uniform, and is that a place to start from?",
    f"With equal scores. From W_Q = W_K = 0 the loss stays at {curves['both zero'][-1]:.2f}, from "
    f"W_Q = 0 it falls to {curves['W_Q zero'][-1]:.2f}.",
)
assert curves["both zero"][-1] > 0.6 and curves["W_Q zero"][-1] < 0.5

# %%
# 4. Softmax over rows, or over columns?
# --------------------------------------
# Over a row, a query divides one unit of attention among the keys. Over a column, a key divides
# one unit of itself among the queries. Then what cat gets depends on who else is asking, rows sum
# to anything, and the output is no average of values. We add readers, and look at cat's row.

readers = rng.normal(size=(20, 2))
row_sums, column_sums, outputs = [], [], []
for n_readers in range(21):
    Q = np.vstack([X[:1], readers[:n_readers]])
    S = Q @ X.T / np.sqrt(2)
    by_row, by_column = softmax(S, axis=1), softmax(S, axis=0)
    row_sums.append(by_row[0].sum())
    column_sums.append(by_column[0].sum())
    outputs.append(by_row[0] @ X)
np.testing.assert_allclose(row_sums, 1)
np.testing.assert_allclose(outputs, np.tile(outputs[0], (21, 1)))  # whoever else is asking
assert column_sums[0] == 3 and column_sums[-1] < 0.5
answer(
    "Softmax over rows, or over columns?",
    f"Over columns, cat's weights sum to {column_sums[0]:.0f} when it asks alone, and to "
    f"{column_sums[-1]:.2f} among 20 others.",
)

# %%
# 5. Is attention a dictionary?
# -----------------------------
# A soft one: all values, weighted by how well their keys fit. As scores are divided by a smaller
# and smaller temperature, it becomes the hard one, which hands out the value of the nearest key.
# And its gradient dies on the way: between jumps a hard look-up is constant, so that nothing says
# in which direction a query should have gone.

angles = np.linspace(0, 2 * np.pi, 5, endpoint=False)
keys, values = np.column_stack([np.cos(angles), np.sin(angles)]), np.array([3.0, 1, 4, 1.5, 5])
asked = np.linspace(0, 2 * np.pi, 500, endpoint=False) + 0.003
queries = np.column_stack([np.cos(asked), np.sin(asked)])
turned = np.column_stack([-np.sin(asked), np.cos(asked)])  # d query / d angle
hard = values[(queries @ keys.T).argmax(axis=1)]


def look_up(temperature):
    """What comes out for each query, and its derivative as the query turns."""
    A = softmax(queries @ keys.T / temperature, axis=1)
    dS = A * (values - (A @ values)[:, None])  # the softmax Jacobian times the values
    return A @ values, np.sum(dS * (turned @ keys.T), axis=1) / temperature


temperatures = np.logspace(0.5, -3.5, 33)
slopes = [np.median(np.abs(look_up(t)[1])) for t in temperatures]
off = np.median(np.abs(look_up(temperatures[-1])[0] - hard))
answer(
    "Is attention a dictionary?",
    f"At a temperature of {temperatures[-1]:.4f} it is off a hard one by {off:.0e}; the slope, "
    f"{max(slopes):.1f} at its best, is {slopes[-1]:.0e}.",
)
assert off < 1e-12 and slopes[-1] < 1e-12 < 1 < max(slopes)

# %%
# 6. Does attention see order?
# ----------------------------
# No: see ``plot_sets_not_sequences.py``. Positions in the tokens change that, and so does a causal
# mask, since who stands before whom decides who may attend to whom.

sentence = {"dog": [1, 0, 0], "bites": [0, 1, 0], "man": [0, 0, 1]}
there = np.array([sentence[word] for word in "dog bites man".split()], dtype=float)
back = there[::-1]  # man bites dog
add_positions = PositionalEncoder(mode="append", n_features=4, max_period=10)
with_positions = add_positions.fit_transform([there, back])
causal = np.tril(np.ones((3, 3), dtype=bool))
seen = {  # how far "dog" is from "dog": it stands first in one sentence, last in the other
    "nothing": np.abs(attend(there)[0][0] - attend(back)[0][2]).max(),
    "positions": np.abs(attend(with_positions[0])[0][0] - attend(with_positions[1])[0][2]).max(),
    "causal mask": np.abs(attend(there, mask=causal)[0][0] - attend(back, mask=causal)[0][2]).max(),
}
answer(
    "Does attention see order?",
    f"“dog” in “dog bites man” and in its reverse differ by {seen['nothing']:.0e}, with positions\n"
    f"   by {seen['positions']:.2f}, with a causal mask by {seen['causal mask']:.2f}.",
)
assert seen["nothing"] < 1e-15 and seen["positions"] > 0.01 and seen["causal mask"] > 0.01

# %%
# 7. Is attention a similarity?
# -----------------------------
# A similarity is symmetric, S_ij = S_ji, as with one projection for both sides. With W_Q and W_K
# it need not be: that is what ``plot_three_roles.py`` is about. The weights are symmetric in
# neither case, since each row is divided by a sum of its own.

tokens = rng.normal(size=(12, 4))
W_Q, W_K = rng.normal(size=(2, 4, 4)) / 2
S_one, S_two = (tokens @ W_Q) @ (tokens @ W_Q).T, (tokens @ W_Q) @ (tokens @ W_K).T
A_one = softmax(S_one / 2, axis=1)
asymmetry = [np.abs(M - M.T).max() for M in (S_one, S_two, A_one)]
answer(
    "Is attention a similarity?",
    f"Scores are off their mirror image by up to {asymmetry[0]:.0e} with one projection, and "
    f"{asymmetry[1]:.1f} with two;\n   weights by {asymmetry[2]:.2f} even with one.",
)
assert asymmetry[0] < 1e-12 and asymmetry[1] > 1 and asymmetry[2] > 0.1

# %%
# The picture
# -----------
# One panel per question, two for the dictionary.
#
# What the figure does not show: trained models of many layers, where tokens are mixtures before
# the last attention looks at them. The algebra holds there too; what is good for a task need not.

blue, orange, green = "#0072B2", "#D55E00", "#009E73"  # told apart with any colour vision
fig, axes = plt.subplots(2, 4, figsize=(13, 6.6), layout="constrained")
for ax, title in zip(
    axes.flat,
    [
        "1. The diagonal in training",
        "2. Scaled embeddings, cat's row",
        "3. Leaving the uniform row",
        "4. Sum of cat's weights",
        "5. A dictionary, soft to hard",
        "5. Its slope dies",
        "6. “dog” in both sentences",
        "7. Scores and their mirror images",
    ],
    strict=True,
):
    ax.set_title(title, fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)

ax = axes[0, 0]
ax.plot(budgets, own, "o-", color=blue, label="needs itself")
ax.plot(budgets, nexts, "s-", color=orange, label="needs another")
ax.set_xscale("symlog", base=2, linthresh=1)
ax.set_xticks(budgets, budgets)
ax.set(xlabel="iterations", ylabel="mean self-weight", ylim=(0, 1.05))
ax.legend(frameon=False, loc="upper left")

ax = axes[0, 1]
for word, weights, colour, marker in zip(words, rows.T, (blue, orange, green), "os^", strict=True):
    ax.plot(factors, weights, marker=marker, color=colour, label=word)
ax.set_xscale("log", base=2)
ax.set_xticks(factors, [f"{f:g}" for f in factors])
ax.set(xlabel="embeddings times", ylabel="weight", ylim=(0, 1.05))
ax.legend(frameon=False)

ax = axes[0, 2]
for (start, curve), colour, line in zip(curves.items(), (orange, blue), ("--", "-"), strict=True):
    ax.plot(curve, color=colour, linestyle=line, linewidth=2, label=start)
ax.set(xlabel="iterations", ylabel="objective", ylim=(0, 0.75))
ax.legend(frameon=False, loc="lower left")

ax = axes[0, 3]
ax.plot(row_sums, color=blue, linewidth=2, label="softmax over rows")
ax.plot(column_sums, color=orange, linestyle="--", linewidth=2, label="over columns")
ax.set(xlabel="others that ask", ylim=(0, 3.1))
ax.legend(frameon=False)

ax = axes[1, 0]
shades = plt.get_cmap("viridis")([0.8, 0.5, 0.2])
for temperature, colour in zip((1, 0.2, 0.03), shades, strict=True):
    ax.plot(asked, look_up(temperature)[0], color=colour, label=f"temperature {temperature}")
ax.plot(asked, hard, color="black", linestyle=":", linewidth=1.2, label="hard")
ax.set_xticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
ax.set(xlabel="direction of the query", ylabel="what comes out", ylim=(0, 7.8), yticks=range(6))
ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", handlelength=1.2)

ax = axes[1, 1]
ax.loglog(temperatures, np.maximum(slopes, 1e-16), color=blue, linewidth=2)
ax.set(xlabel="temperature", ylabel="median slope", ylim=(1e-14, 10))
ax.invert_xaxis()

ax = axes[1, 2]
bars = ax.bar(list(seen), list(seen.values()), color=["0.65", blue, blue], width=0.6)
ax.bar_label(bars, ["0" if v < 1e-15 else f"{v:.2f}" for v in seen.values()], padding=2)
ax.set(ylabel="largest difference", ylim=(0, 1.2 * max(seen.values())))

ax = axes[1, 3]
above = np.triu_indices(12, 1)
limit = 1.1 * max(np.abs(S_one).max(), np.abs(S_two).max())
ax.plot([-limit, limit], [-limit, limit], color="0.8", zorder=0)
ax.scatter(S_two[above], S_two.T[above], s=18, color=orange, label="W_Q, W_K")
ax.scatter(S_one[above], S_one.T[above], s=18, color=blue, marker="s", label="W_Q for both")
ax.set(xlabel="$S_{ij}$", ylabel="$S_{ji}$", xlim=(-limit, limit), ylim=(-limit, limit))
ax.legend(frameon=False, fontsize=9, loc="upper left")

path = Path(__file__).parent / "_output" / "seven_questions.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"\nFigure: {path.relative_to(Path(__file__).parent.parent)}")
