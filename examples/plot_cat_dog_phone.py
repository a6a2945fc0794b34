"""
The attention formula, one matrix at a time
===========================================

What does attention do to three word vectors? This example computes the formula ::

    Z = softmax(X W_Q (X W_K)^T / sqrt(d_k)) X W_V

step by step on a very small set: *cat*, *dog* and *phone*, two numbers each. The projections are
identity matrices. Nothing is learned, and you can check every number with a pocket calculator.
"""

# %%
# The set
# -------
# Cat and dog point in a similar direction, phone points elsewhere.

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from skattn import AttentionContextualizer, scaled_dot_product_attention

words = ["cat", "dog", "phone"]
X = np.array([[1, 0.5], [0.8, 0.6], [-0.5, 1]])


def show(title, matrix, columns):
    """Print a matrix with one row per word."""
    print(title)
    print("       " + "".join(f"{name:>10}" for name in columns))
    for word, row in zip(words, matrix, strict=True):
        print(f"{word:<7}" + "".join(f"{value:10.6f}" for value in row))
    print()


show("X, the tokens", X, ["x0", "x1"])

# %%
# Queries, keys and values
# ------------------------
# Each token is projected three times. Its query is what it looks for, its key is what other tokens
# find it by, and its value is what it passes on. With identity projections all three are the token.

W_Q = W_K = W_V = np.eye(2)
Q, K, V = X @ W_Q, X @ W_K, X @ W_V
show("Q = X W_Q, the queries (K and V are the same here)", Q, ["q0", "q1"])

# %%
# Scores
# ------
# The score of two tokens is the dot product of the query of one and the key of the other. It is
# divided by sqrt(d_k) = sqrt(2), so that scores do not grow with the width of the projections.

scores = Q @ K.T
show("Q K^T, the scores", scores, words)

S = scores / np.sqrt(2)
show("S = Q K^T / sqrt(2), the scaled scores", S, words)

# %%
# Weights
# -------
# Softmax turns each row into shares that sum to one: the exponentials divided by their sum.

E = np.exp(S)
show("exp(S)", E, words)

A = E / E.sum(axis=1, keepdims=True)
show("A = softmax(S), row by row: the attention weights", A, words)

# %%
# Output
# ------
# Every token becomes an average of all values, weighted by its row of A.

Z = A @ V
show("Z = A V, the tokens in context", Z, ["z0", "z1"])

print("cat attends to  ", dict(zip(words, A[0].round(2).tolist(), strict=True)))
print("cat in context  ", A[0].round(2).tolist(), "@ V =", Z[0].round(2).tolist(), "\n")

np.testing.assert_allclose(A[0], [0.432425, 0.388908, 0.178667], atol=5e-7)
np.testing.assert_allclose(Z[0], [0.654218, 0.628224], atol=5e-7)

# %%
# The same with one function
# --------------------------

Z_function, A_function = scaled_dot_product_attention(Q, K, V, return_weights=True)
np.testing.assert_allclose(A_function, A, rtol=1e-12)
np.testing.assert_allclose(Z_function, Z, rtol=1e-12)
print("scaled_dot_product_attention:", Z_function[0].round(6).tolist())

# %%
# The same with the estimator
# ---------------------------
# `AttentionContextualizer` learns its projections, standardises tokens and adds two statistics
# of the scores. We switch all of that off, which leaves the formula. Note ``[X]``: the estimator
# takes a collection of sets, and this is a collection of one set.

formula = AttentionContextualizer(
    n_heads=1,
    d_k=2,
    d_v=2,
    init="identity",
    standardize=False,
    score_statistics=False,
    max_iter=0,
    pooling=None,
).fit([X])
Z_estimator = formula.transform([X])[0]
A_estimator = formula.attention_weights([X])[0][0]  # first set, first head
np.testing.assert_allclose(A_estimator, A, rtol=1e-12)
np.testing.assert_allclose(Z_estimator, Z, rtol=1e-12)
print("AttentionContextualizer:     ", Z_estimator[0].round(6).tolist())

# %%
# The picture
# -----------
# The left panel shows the weights, row by row. The right panel shows where each token moves. All
# three move to the inside of their triangle, because they become averages. Cat and dog end up side
# by side, because both attend to each other and little to phone.
#
# The figure does not show learning: the weights follow from the tokens alone. `fit` learns
# projections with which a token attends to the *useful* tokens (see ``plot_quickstart.py``).

blue, orange = "#0072B2", "#D55E00"  # these differ for any colour vision
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained")

left.imshow(A, cmap="Blues", vmin=0, vmax=1)
for i, j in np.ndindex(A.shape):
    left.text(j, i, f"{A[i, j]:.2f}", ha="center", va="center", fontsize=13)
left.set_xticks(range(3), words)
left.set_yticks(range(3), words)
left.set_xlabel("attended to")
left.set_ylabel("attending")
left.set_title("Attention weights A; each row sums to 1")

right.scatter(*X.T, s=70, facecolors="white", edgecolors=blue, linewidths=1.8, label="X, before")
right.scatter(*Z.T, s=110, color=orange, alpha=0.85, label="Z, after", zorder=3)
for before, after in zip(X, Z, strict=True):
    right.annotate(
        "",
        after,
        before,
        arrowprops={"arrowstyle": "-|>", "color": "0.2", "shrinkA": 5, "shrinkB": 1},
        zorder=4,
    )
labels = [((10, -4), "left"), ((0, 10), "center"), ((0, 10), "center")]
for word, point, (offset, side) in zip(words, X, labels, strict=True):
    right.annotate(word, point, offset, textcoords="offset points", ha=side, fontsize=12)
right.set_xlim(-0.75, 1.3)
right.set_ylim(0.35, 1.15)
right.set_xlabel("feature 0")
right.set_ylabel("feature 1")
right.set_title("Each token moves to a weighted average")
right.legend(loc="upper right", frameon=False)
right.spines[["top", "right"]].set_visible(False)

path = Path(__file__).parent / "_output" / "cat_dog_phone.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"\nFigure: {path.relative_to(Path(__file__).parent.parent)}")
