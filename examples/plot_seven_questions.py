"""
Seven questions about attention
===============================

These are seven exercises of a first course on attention, usually answered with pencil and paper.
Here an experiment answers each one: a prediction, some lines of code, an assertion that would fail
if the answer were wrong, and a small picture.
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
    """Entropy of each row of weights: 0 for one-hot weights, log n for equal weights."""
    return entr(A).sum(axis=-1)


count = 0


def answer(question, finding):
    """Print a question with the result."""
    global count
    count += 1
    print(f"{count}. {question}\n   {finding}")


# %%
# 1. Does training lower the diagonal?
# ------------------------------------
# If queries and keys are the tokens themselves, the score of a token with itself is its squared
# length, and the diagonal of A is large. The task decides how training changes it. Sets have four
# tokens, one of each kind, with a number each. From the same start (identity projections) we fit
# two models: in one a token predicts its own number, in the other the number of the next kind.

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
    f"That depends on the task: from {own[0]:.2f} up to {own[-1]:.2f} if a token needs itself,\n"
    f"   and down to {nexts[-1]:.2f} if it needs another token.",
)
assert nexts[-1] < 0.1 < own[0] == nexts[0] < 0.6 < 0.9 < own[-1]

# %%
# 2. What if all embeddings are doubled?
# --------------------------------------
# Queries and keys both double, so scores grow by a factor of four, not two. Ratios of weights are
# raised to the fourth power, and each row becomes sharper. An estimator that standardises its
# tokens gives the same result as before.

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
# A row is uniform if all its scores are equal: the query is zero, or all keys are the same. Then
# attention is the mean. A fit that starts with W_Q = W_K = 0 never leaves this point: dQ = c dS K
# is zero because K is zero, and dK is zero because Q is zero. If only one of them is zero, the fit
# leaves it.

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
    "If its scores are equal. From W_Q = W_K = 0 the loss stays at "
    f"{curves['both zero'][-1]:.2f},\n   from W_Q = 0 it falls to {curves['W_Q zero'][-1]:.2f}.",
)
assert curves["both zero"][-1] > 0.6 and curves["W_Q zero"][-1] < 0.5

# %%
# 4. Softmax over rows, or over columns?
# --------------------------------------
# With softmax over a row, a query divides one unit of attention among the keys. With softmax over a
# column, a key divides one unit among the queries. Then cat's weights depend on the other queries,
# a row can have any sum, and the output is not an average of values. We add queries and look at
# cat's row.

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
# Attention is a soft dictionary: it returns all values, weighted by how well their keys match. If
# scores are divided by a smaller and smaller temperature, it becomes a hard dictionary, which
# returns the value of the nearest key. Its gradient vanishes on the way: a hard look-up is constant
# between jumps, so no gradient shows a query where to move.

angles = np.linspace(0, 2 * np.pi, 5, endpoint=False)
keys, values = np.column_stack([np.cos(angles), np.sin(angles)]), np.array([3.0, 1, 4, 1.5, 5])
asked = np.linspace(0, 2 * np.pi, 500, endpoint=False) + 0.003
queries = np.column_stack([np.cos(asked), np.sin(asked)])
turned = np.column_stack([-np.sin(asked), np.cos(asked)])  # d query / d angle
hard = values[(queries @ keys.T).argmax(axis=1)]


def look_up(temperature):
    """The output for each query, and its derivative with respect to the query's angle."""
    A = softmax(queries @ keys.T / temperature, axis=1)
    dS = A * (values - (A @ values)[:, None])  # the softmax Jacobian times the values
    return A @ values, np.sum(dS * (turned @ keys.T), axis=1) / temperature


temperatures = np.logspace(0.5, -3.5, 33)
slopes = [np.median(np.abs(look_up(t)[1])) for t in temperatures]
off = np.median(np.abs(look_up(temperatures[-1])[0] - hard))
answer(
    "Is attention a dictionary?",
    f"At a temperature of {temperatures[-1]:.4f} it differs from a hard one by {off:.0e}; its\n"
    f"   slope is {slopes[-1]:.0e}, and {max(slopes):.1f} at most.",
)
assert off < 1e-12 and slopes[-1] < 1e-12 < 1 < max(slopes)

# %%
# 6. Does attention see order?
# ----------------------------
# No: see ``plot_sets_not_sequences.py``. Positions in the tokens change that. A causal mask changes
# it too, because a token may then attend only to itself and the tokens before it.

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
# A similarity is symmetric, S_ij = S_ji. Scores with one projection for both sides are symmetric;
# scores with W_Q and W_K need not be (see ``plot_three_roles.py``). The weights are symmetric in
# neither case, because each row is divided by its own sum.

tokens = rng.normal(size=(12, 4))
W_Q, W_K = rng.normal(size=(2, 4, 4)) / 2
S_one, S_two = (tokens @ W_Q) @ (tokens @ W_Q).T, (tokens @ W_Q) @ (tokens @ W_K).T
A_one = softmax(S_one / 2, axis=1)
asymmetry = [np.abs(M - M.T).max() for M in (S_one, S_two, A_one)]
answer(
    "Is attention a similarity?",
    f"S_ij and S_ji differ by up to {asymmetry[0]:.0e} with one projection, and by up to "
    f"{asymmetry[1]:.1f} with two;\n   weights differ by {asymmetry[2]:.2f} even with one.",
)
assert asymmetry[0] < 1e-12 and asymmetry[1] > 1 and asymmetry[2] > 0.1

# %%
# The picture
# -----------
# There is one panel per question, and two for the dictionary.
#
# The figure does not show trained models of many layers, in which the last attention reads tokens
# that are already mixtures. The algebra holds there too; the conclusions about tasks may not.

blue, orange, green = "#0072B2", "#D55E00", "#009E73"  # they differ for any colour vision
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
ax.set(xlabel="factor of the embeddings", ylabel="weight", ylim=(0, 1.05))
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
ax.set(xlabel="direction of the query", ylabel="output", ylim=(0, 7.8), yticks=range(6))
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
