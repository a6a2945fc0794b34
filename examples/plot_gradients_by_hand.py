"""
The gradient of attention, by hand
==================================

Libraries compute gradients for us. How do they do it, and could we? This example goes backwards
through the attention formula, one line at a time, in forty lines of NumPy. It then checks every
number twice: against central differences, which need no calculus, and against the gradient that
`skattn` uses in a fit. It also explains the transposes in these formulas: they collect the
contributions of all rows that used a token.
"""

# %%
# Forward
# -------
# We take one set of five words, three numbers each, and one head. Each line of the formula is one
# line here::
#
#     Q = X W_Q          what each token looks for        (n, d_k)
#     K = X W_K          what others find it by      (n, d_k)
#     V = X W_V          what each token passes on        (n, d_v)
#     S = Q K^T c        scores, c = 1 / sqrt(d_k)        (n, n)
#     A = softmax(S)     weights, row by row              (n, n)
#     Z = A V            tokens in context                (n, d_v)
#
# A target T is what Z should be, and the loss is half the squared distance.

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
    """The loss, and what the backward pass needs."""
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
# Write dM for the gradient of the loss with respect to a matrix M. It has the shape of M, and each
# entry is the derivative of the loss with respect to this entry of M.
#
# **The loss.** The derivative of half a square is its base: dZ = Z - T.
#
# **Z = A V.** In full, Z_i = sum_j A_ij V_j. *Every* row i uses the value V_j with the factor A_ij,
# so every row contributes A_ij dZ_i to its gradient. We call these contributions messages. Their
# sum runs over the *rows* of A, which a matrix product writes as a transpose::
#
#     dV_j  = sum_i A_ij dZ_i           dV = A^T dZ
#     dA_ij = dZ_i . V_j                dA = dZ V^T
#
# **A = softmax(S).** Rows do not mix, so take one, p = softmax(s), p_i = e^(s_i) / sum_k e^(s_k).
# The quotient rule gives two terms: one from the numerator, only if i = j, and one from the
# denominator, which has all scores. Together they are the softmax Jacobian::
#
#     dp_i / ds_j = p_i (delta_ij - p_j) = p_j (delta_ij - p_i)
#
# With the row's gradient g_i = dA this gives ds_j = sum_i g_i p_j (delta_ij - p_i), which is
# p_j (g_j - sum_i p_i g_i). The gradient of a score is its weight times the difference of its g to
# the weighted average. Each row of dS sums to zero, because a constant added to all scores of a row
# changes nothing::
#
#     dS = A o (dA - rowsum(A o dA))
#
# **S = Q K^T c.** This is a product like Z = A V. Again the gradient of each factor has the other
# factor. All rows use a key, so dK has a transpose::
#
#     dQ = c dS K                       dK = c dS^T Q
#
# **Q = X W_Q**, and the same for K and V. All tokens use the same matrix, so its gradient is a sum
# over tokens. Each token is used three times, so its gradient is a sum of three terms::
#
#     dW_Q = X^T dQ      dW_K = X^T dK      dW_V = X^T dV
#     dX   = dQ W_Q^T  + dK W_K^T         + dV W_V^T


def backward(X, W_Q, W_K, W_V, cache):
    """The gradient of the loss with respect to all inputs."""
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
# The Jacobian alone
# ------------------
# Softmax is the only line that is not a matrix product. We check it separately: row 0, as a matrix.

p = A[0]
jacobian = np.diag(p) - np.outer(p, p)  # p_j (delta_ij - p_i)
np.testing.assert_allclose(jacobian @ dA[0], dS[0], atol=1e-14)
np.testing.assert_allclose(dS.sum(axis=1), 0, atol=1e-14)

# %%
# Check against central differences
# ---------------------------------
# Move one entry a little up and down, and measure the change of the loss. This needs no calculus
# but 2 evaluations per entry, and its error is of the order of the step squared. It is a good test
# of a gradient but too slow for a fit: a million entries would take two million evaluations per
# step.

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
# :class:`skattn.attention.Attention` is the layer inside the estimators. It takes a block of sets,
# here one set, and has a forward and a backward pass. Its computation is different: scores have
# base 2, weights are never divided by their sums, and X gets no gradient because it is data. The
# numbers must be the same.

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
# The gradient points uphill: a small step against it lowers the loss by the step times the squared
# length of the gradient.

rate = 1e-4
lower, _ = forward(X, **{name: array - rate * grads[name] for name, array in params.items()})
expected = rate * sum(np.sum(grads[name] ** 2) for name in params)
print(f"\na step of {rate} lowers the loss by {loss - lower:.6f}; predicted: {expected:.6f}")
assert abs((loss - lower) / expected - 1) < 0.01

# %%
# Sums of messages
# ----------------
# The upper row shows A, how much each row uses each token, and -dS, the direction in which scores
# lower the loss: orange scores should grow, blue scores should shrink, and each row sums to zero.
# The lower row shows the gradient of two values as a sum of messages. An arrow is the message
# A_ij dZ_i of row i; it is long if the error of the row is large and its weight for the token is
# large. Put head to tail, the arrows end at dV_j. A token that gets little attention gets a small
# gradient.
#
# The figure does not show whether a fit will succeed. A gradient is exact only for infinitely small
# steps, and the loss of attention has many minima.

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

# Five colours that differ for any colour vision
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
        "-dS: grow (orange) or shrink (blue)",
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
