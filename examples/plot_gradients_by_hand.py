"""
The gradient of attention, by hand
==================================

Libraries differentiate for us. What do they do, and could we? This example walks backwards through
the attention formula, one line at a time, in forty lines of NumPy. It then checks every number
twice: against central differences, which know nothing of calculus, and against the gradient by
which `skattn` fits. On the way it shows what the transposes in those formulas are for: they bring
messages home to the token that was used.
"""

# %%
# Forward
# -------
# One set of five words, three numbers each, one head. Each line of the formula is one line here::
#
#     Q = X W_Q          what each token asks for         (n, d_k)
#     K = X W_K          what each token can be found by  (n, d_k)
#     V = X W_V          what each token hands on         (n, d_v)
#     S = Q K^T c        scores, c = 1 / sqrt(d_k)        (n, n)
#     A = softmax(S)     weights, row by row              (n, n)
#     Z = A V            tokens in context                (n, d_v)
#
# Some target T says what Z should have been, and the loss is half the squared distance.

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from skattn import scaled_dot_product_attention
from skattn.attention import Attention

words = "she sat by the bank".split()
n, d, d_k, d_v = 5, 3, 2, 2
c = 1 / np.sqrt(d_k)

rng = np.random.default_rng(1298)  # of many draws one whose figure is not too crowded
X = rng.normal(size=(n, d))
T = rng.normal(size=(n, d_v))
params = {
    "W_Q": rng.normal(size=(d, d_k)),
    "W_K": rng.normal(size=(d, d_k)),
    "W_V": rng.normal(size=(d, d_v)),
}


def forward(X, W_Q, W_K, W_V):
    """The loss, and what the way back will need."""
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V
    S = Q @ K.T * c
    E = np.exp(S - S.max(axis=1, keepdims=True))  # the shift cancels in the next line
    A = E / E.sum(axis=1, keepdims=True)
    Z = A @ V
    return np.sum((Z - T) ** 2) / 2, (Q, K, V, A, Z)


loss, (Q, K, V, A, Z) = forward(X, **params)
np.testing.assert_allclose(Z, scaled_dot_product_attention(Q, K, V), rtol=1e-12)

# %%
# Backward, line by line
# ----------------------
# Write dM for the gradient of the loss with respect to a matrix M: it has M's shape, and its entry
# says by how much the loss grows as that entry of M does.
#
# **The loss.** The derivative of a half square is what stands in it: dZ = Z - T.
#
# **Z = A V.** In full, Z_i = sum_j A_ij V_j. The value V_j is used by *every* row i, each time by
# the factor A_ij, and each row that used it has something to say about it: dZ_i. So the messages
# sum, and a sum over the *rows* of A is what a transpose writes::
#
#     dV_j  = sum_i A_ij dZ_i           dV = A^T dZ
#     dA_ij = dZ_i . V_j                dA = dZ V^T
#
# **A = softmax(S).** Rows do not mix, so take one, p = softmax(s), p_i = e^(s_i) / sum_k e^(s_k).
# The quotient rule gives two terms: from the numerator, where i = j only, and from the denominator,
# in which all scores meet. That is the softmax Jacobian::
#
#     dp_i / ds_j = p_i (delta_ij - p_j) = p_j (delta_ij - p_i)
#
# Summed with the messages g_i = dA of the row: ds_j = sum_i g_i p_j (delta_ij - p_i), which is
# p_j (g_j - sum_i p_i g_i). A score is pushed by how much its token is better than the average of
# those attended to, and in proportion to the weight it has already. Each row of dS sums to zero,
# as adding a constant to all scores of a row changes nothing::
#
#     dS = A o (dA - rowsum(A o dA))
#
# **S = Q K^T c.** A product, like Z = A V, so again each side gets the other, and the key, used by
# all rows, gets a transpose::
#
#     dQ = c dS K                       dK = c dS^T Q
#
# **Q = X W_Q**, and the same for K and V. All tokens used the one matrix, so it sums over tokens,
# and the token was used three times, so it sums over those::
#
#     dW_Q = X^T dQ      dW_K = X^T dK      dW_V = X^T dV
#     dX   = dQ W_Q^T  + dK W_K^T         + dV W_V^T


def backward(X, W_Q, W_K, W_V, cache):
    """The gradient of the loss with respect to all that went in."""
    Q, K, V, A, Z = cache
    dZ = Z - T
    dV = A.T @ dZ
    dA = dZ @ V.T
    dS = A * (dA - np.sum(A * dA, axis=1, keepdims=True))
    dQ = c * dS @ K
    dK = c * dS.T @ Q
    grads = {
        "W_Q": X.T @ dQ,
        "W_K": X.T @ dK,
        "W_V": X.T @ dV,
        "X": dQ @ W_Q.T + dK @ W_K.T + dV @ W_V.T,
    }
    return grads, (dZ, dV, dA, dS)


grads, (dZ, dV, dA, dS) = backward(X, **params, cache=(Q, K, V, A, Z))

# %%
# The Jacobian for itself
# -----------------------
# The one line that is not a matrix product is worth a check of its own: row 0, as a matrix.

p = A[0]
jacobian = np.diag(p) - np.outer(p, p)  # p_j (delta_ij - p_i)
np.testing.assert_allclose(jacobian @ dA[0], dS[0], atol=1e-14)
np.testing.assert_allclose(dS.sum(axis=1), 0, atol=1e-14)

# %%
# Check against central differences
# ---------------------------------
# Move one entry a little up and down, and see what the loss does. No calculus, 2 evaluations for
# each entry, and an error of the order of the step squared. This is how one tests a gradient; it is
# not how one fits, since a model of a million entries would take two million evaluations a step.

given = {"X": X} | params
numeric = {}
step = 1e-5
for name, matrix in given.items():
    numeric[name] = np.empty(matrix.shape)
    for entry in np.ndindex(matrix.shape):
        at = {}
        for sign in (1, -1):
            moved = {key: array.copy() for key, array in given.items()}
            moved[name][entry] += sign * step
            at[sign] = forward(**moved)[0]
        numeric[name][entry] = (at[1] - at[-1]) / (2 * step)

# %%
# Check against skattn
# --------------------
# :class:`skattn.attention.Attention` is the layer inside the estimators: it takes a block of sets,
# here of one, and has its backward beside its forward. It goes another way about it (scores have
# base 2, weights are never divided by their sums, and X is data, so that it gets no gradient), and
# must arrive at the same numbers.

layer = Attention(n_heads=1, d_k=d_k, d_v=d_v, score_statistics=False)
all_params = params | {"b_V": np.zeros(d_v)}
folded = layer.fold(all_params, X.dtype)
out, cache = layer.forward(folded, layer.block(X[None]))
np.testing.assert_allclose(out[0], Z, rtol=1e-12)
theirs = layer.unfold(all_params, layer.backward(folded, cache, out - T[None]))

print(f"{'gradient of':<13}{'shape':<10}{'largest':>9}{'from differences':>19}{'from skattn':>14}")
for name in given:
    off = np.abs(grads[name] - numeric[name]).max()
    assert off < 1e-8
    beside = "-"
    if name in theirs:
        beside = f"{np.abs(grads[name] - theirs[name]).max():.0e}"
        np.testing.assert_allclose(grads[name], theirs[name], rtol=1e-10, atol=1e-13)
    print(
        f"{name:<13}{grads[name].shape!s:<10}{np.abs(grads[name]).max():>9.4f}{off:>19.0e}"
        f"{beside:>14}"
    )

# %%
# And it goes downhill: a small step against the gradient lowers the loss by the step times the
# squared length of the gradient, as long as the step is small.

rate = 1e-4
lower, _ = forward(X, **{name: array - rate * grads[name] for name, array in params.items()})
expected = rate * sum(np.sum(grads[name] ** 2) for name in params)
print(f"\na step of {rate} lowers the loss by {loss - lower:.6f}; the gradient says {expected:.6f}")
assert abs((loss - lower) / expected - 1) < 0.01

# %%
# Messages come home
# ------------------
# Top: A, how much each row used each token, and -dS, what the scores are told: orange to grow,
# blue to shrink, nothing in sum over a row. Below: the gradient of two values, put together from
# messages. An arrow is A_ij dZ_i, what row i has to say about the token, as long as its error is
# large and its use of the token was heavy. Put head to tail they end where dV_j does. A token that
# nobody attends to hears little, and learns little.
#
# What the figure does not show: whether a fit will get anywhere. A gradient is right about the
# smallest of steps only, and the loss of attention has many valleys.

messages = A[:, :, None] * dZ[:, None, :]  # (row i, token j, d_v)
np.testing.assert_allclose(messages.sum(axis=0), dV, rtol=1e-12, atol=1e-14)
most, least = A.sum(axis=0).argmax(), A.sum(axis=0).argmin()
print(
    f"\n{words[most]!r} gets weights of {A[:, most].sum():.2f} in all, and messages of length "
    f"{np.linalg.norm(messages[:, most], axis=1).sum():.2f};\n{words[least]!r} gets "
    f"{A[:, least].sum():.2f}, and {np.linalg.norm(messages[:, least], axis=1).sum():.2f}."
)
assert (
    np.linalg.norm(messages[:, least], axis=1).sum()
    < np.linalg.norm(messages[:, most], axis=1).sum()
)

# Five colours told apart with any colour vision
colours = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"]
signed = LinearSegmentedColormap.from_list("signed", ["#0072B2", "white", "#D55E00"])
fig, axes = plt.subplots(2, 2, figsize=(9, 8.2), layout="constrained")

limit = np.abs(dS).max()
for ax, matrix, look, title in (
    (axes[0, 0], A, {"cmap": "cividis", "vmin": 0, "vmax": 1}, "A, the weights; rows sum to 1"),
    (
        axes[0, 1],
        -dS,
        {"cmap": signed, "vmin": -limit, "vmax": limit},
        "-dS, where scores should go; rows sum to 0",
    ),
):
    ax.imshow(matrix, **look)
    for i, j in np.ndindex(matrix.shape):
        dark = matrix is A and matrix[i, j] < 0.5
        ax.text(
            j,
            i,
            f"{matrix[i, j]:.2f}",
            ha="center",
            va="center",
            color="white" if dark else "black",
        )
    ax.set_xticks(range(n), words)
    ax.set_yticks(range(n), words)
    for label, colour in zip(ax.get_yticklabels(), colours, strict=True):
        label.set_color(colour)
        label.set_fontweight("bold")
    ax.set_xlabel("token used, j")
    ax.set_ylabel("row that uses it, i")
    ax.set_title(title, fontsize=11)

tips = {j: np.vstack([np.zeros(2), messages[:, j].cumsum(axis=0)]) for j in (most, least)}
low, high = (f(np.vstack(list(tips.values())), axis=0) for f in (np.min, np.max))
arrow = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 13}
for ax, j, amount in ((axes[1, 0], most, "most"), (axes[1, 1], least, "least")):
    for i in range(n):
        look = arrow | {"color": colours[i], "linewidth": 2.4}
        ax.annotate("", tips[j][i + 1], tips[j][i], arrowprops=look)
    look = arrow | {"color": "black", "linewidth": 1.2, "linestyle": "--"}
    ax.annotate("", dV[j], (0, 0), arrowprops=look)
    ax.axhline(0, color="0.85", zorder=0)
    ax.axvline(0, color="0.85", zorder=0)
    ax.set(
        xlim=(low[0] - 0.2, high[0] + 0.2),
        ylim=(low[1] - 0.2, high[1] + 0.2),
        aspect="equal",
        xlabel="first number of the value",
    )
    ax.set_title(f"Messages to “{words[j]}”, used {amount}; dashed: dV", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
axes[1, 0].set_ylabel("second number of the value")
handles = [plt.Line2D([], [], color=colour, linewidth=2.5) for colour in colours]
axes[1, 1].legend(handles, words, title="from row", loc="best", frameon=False)

path = Path(__file__).parent / "_output" / "gradients_by_hand.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"\nFigure: {path.relative_to(Path(__file__).parent.parent)}")
