"""
Why queries and keys are two things
===================================

A pronoun must find its noun, but the noun does not need the pronoun. So relevance has a direction.
Would it not be enough if tokens that belong together were *similar*? Then queries and keys could
share one projection, and scores would be symmetric, S_ij = S_ji.

This example shows a task that symmetric scores cannot solve. It proves this in four lines and fits
the best symmetric scores anyway.
"""

# %%
# Who needs whom
# --------------
# A sentence has a pronoun, a noun and a verb, in any order, and three other words. Each word has
# a random number. The pronoun needs the noun's number (whom do I stand for?), the noun needs the
# verb's number (what do I do?), and the verb needs the pronoun's number (who does it?). The other
# words need nothing: their target is NaN, so they are not scored.

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from scipy.optimize import minimize
from sklearn.metrics import r2_score

from skattn import AttentionRegressor
from skattn.attention import Attention

ROLES = ["pronoun", "noun", "verb"]
PRONOUN, NOUN, VERB, OTHER = range(4)
NEEDS = {PRONOUN: NOUN, NOUN: VERB, VERB: PRONOUN}


def make_sentences(n_sentences, random_state):
    """Tokens (n_sentences, 6, 5), one-hot kind and number; targets; places of the three roles."""
    rng = np.random.default_rng(random_state)
    kinds = rng.permuted(np.tile([0, 1, 2, 3, 3, 3], (n_sentences, 1)), axis=1)
    numbers = rng.normal(size=kinds.shape)
    X = np.concatenate([np.eye(4)[kinds], numbers[..., None]], axis=-1)
    place = np.argsort(kinds, axis=1)[:, :3]  # of pronoun, noun and verb
    y = np.full(kinds.shape, np.nan)
    rows = np.arange(n_sentences)
    for role, needed in NEEDS.items():
        y[rows, place[:, role]] = numbers[rows, place[:, needed]]
    return X, y, place


X, y, _ = make_sentences(400, random_state=0)
X_test, y_test, place = make_sentences(1000, random_state=1)
is_scored = ~np.isnan(y_test)

# %%
# No symmetric score can do it
# ----------------------------
# Write p, n and v for the pronoun, noun and verb of one sentence. Each of the three prefers the
# word that it needs to the third word, if and only if ::
#
#     S_pn > S_pv        the pronoun prefers the noun to the verb
#     S_nv > S_np        the noun prefers the verb to the pronoun
#     S_vp > S_vn        the verb prefers the pronoun to the noun
#
# If S is symmetric, the right side of each line is the left side of another: S_pn > S_pv = S_vp >
# S_vn = S_nv > S_np = S_pn, so S_pn would be greater than itself. Therefore at least one of the
# three looks the wrong way in *every* sentence, whatever the projection has learned, and however
# wide it is. QED
#
# With two projections, S_ij = (x_i W_Q) . (x_j W_K). The query of the pronoun can match the key of
# the noun, and S_ji is free to differ.

# %%
# Two projections
# ---------------
# One head, the bare formula.

SHAPE = {"n_heads": 1, "d_k": 10, "d_v": 4, "score_statistics": False}
ALPHA = 1e-3
model = AttentionRegressor(
    **SHAPE, pooling=None, standardize=False, alpha=ALPHA, max_iter=1000, random_state=0
).fit(X, list(y))

# %%
# One projection
# --------------
# `AttentionRegressor` always has two projections, so we fit the model with one projection here, on
# the same layer and objective: the mean of half the squared error plus the penalty. Scores are
# (x_i W) D (x_j W)^T, and D has a sign for each column. Without the signs, at least one of any two
# tokens would prefer itself to the other. With five columns of each sign, as many as a token has
# features, W D W^T can be any symmetric matrix. With W_Q = W and W_K = W D, the gradient of W is
# the sum of the gradients of its two uses.

layer = Attention(**SHAPE)
D = np.tile([1.0, -1.0], SHAPE["d_k"] // 2)
d, d_v = X.shape[-1], SHAPE["d_v"]
block = layer.block(X)
scored = ~np.isnan(y)
y_mean, y_scale = y[scored].mean(), y[scored].std()  # fit standardises its targets too
target = np.where(scored, (y - y_mean) / y_scale, 0)


def projections(W_Q, W_K, W_V):
    """The parameters as the layer expects them."""
    return {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "b_V": np.zeros(d_v)}


def objective(params, coef, intercept):
    """The objective of the fit above, and its gradients."""
    folded = layer.fold(params, X.dtype)
    Z, cache = layer.forward(folded, block)  # (n_sentences, 6, d_v)
    residual = (Z @ coef + intercept - target) * scored
    penalised = [params["W_Q"], params["W_K"], params["W_V"], coef]
    value = np.sum(residual**2) / 2 / scored.sum()
    value += ALPHA / 2 * sum(np.sum(array**2) for array in penalised)
    d_raw = residual / scored.sum()
    grads = layer.unfold(params, layer.backward(folded, cache, d_raw[..., None] * coef))
    grads = {name: grads[name] + ALPHA * params[name] for name in ("W_Q", "W_K", "W_V")}
    d_coef = np.einsum("sn,snv->v", d_raw, Z) + ALPHA * coef
    return value, grads, d_coef, d_raw.sum()


def unpack(theta):
    """W, W_V, coef and intercept."""
    W, W_V, coef, intercept = np.split(theta, np.cumsum([d * len(D), d * d_v, d_v]))
    return W.reshape(d, -1), W_V.reshape(d, -1), coef, intercept[0]


def symmetric(theta):
    """The same objective with one projection, for SciPy."""
    W, W_V, coef, intercept = unpack(theta)
    value, grads, d_coef, d_intercept = objective(projections(W, W * D, W_V), coef, intercept)
    d_W = grads["W_Q"] + grads["W_K"] * D
    return value, np.concatenate([d_W.ravel(), grads["W_V"].ravel(), d_coef, [d_intercept]])


# This is the objective of the estimator: both give the same number at its fitted parameters.
theirs = objective(
    projections(model.W_Q_, model.W_K_, model.W_V_),
    model.coef_[0] / y_scale,
    (model.intercept_[0] - y_mean) / y_scale,
)[0]
np.testing.assert_allclose(theirs, model.loss_, rtol=1e-10)

rng = np.random.default_rng(0)
starts = 0.5 * rng.normal(size=(6, d * len(D) + d * d_v + d_v + 1))
fits = [minimize(symmetric, start, jac=True, options={"maxiter": 1500}) for start in starts]
best = min(fits, key=lambda fit: fit.fun)  # the objective has several minima
W, W_V, coef, intercept = unpack(best.x)
tied = projections(W, W * D, W_V)
folded = layer.fold(tied, X.dtype)

# %%
# The result
# ----------
# For each fit we print how well it predicts, the share of a role's attention to the other two roles
# that goes to the right one, and the share of test sentences in which all three look the right way.

A = {
    "two projections": np.stack(model.attention_weights(X_test))[:, 0],
    "one projection": layer.weights(folded, layer.block(X_test))[:, 0],
}
prediction = {
    "two projections": np.stack(model.predict(X_test)),
    "one projection": (layer.forward(folded, layer.block(X_test))[0] @ coef + intercept) * y_scale
    + y_mean,
}
rows = np.arange(len(X_test))[:, None, None]
between = {  # weights of the three roles for each other, (n_sentences, 3, 3)
    name: weights[rows, place[:, :, None], place[:, None, :]] for name, weights in A.items()
}
needed = np.array([NEEDS[role] for role in range(3)])
other = np.array([3 - role - NEEDS[role] for role in range(3)])
print(f"{'':<17}{'objective':>10}{'R2':>7}{'pronoun':>10}{'noun':>7}{'verb':>7}   all three")
all_right, r2 = {}, {}
for name, value in (("two projections", model.loss_), ("one projection", best.fun)):
    right, wrong = (between[name][:, range(3), columns] for columns in (needed, other))
    share = np.mean(right / (right + wrong), axis=0)
    all_right[name] = np.mean(np.all(right > wrong, axis=1))
    r2[name] = r2_score(y_test[is_scored], prediction[name][is_scored])
    print(
        f"{name:<17}{value:>10.3f}{r2[name]:>7.3f}{share[0]:>10.2f}{share[1]:>7.2f}{share[2]:>7.2f}"
        f"{all_right[name]:>12.1%}"
    )

assert all_right["one projection"] == 0  # as proved, in every one of 1000 sentences
assert all_right["two projections"] > 0.99
assert r2["two projections"] > 0.98
assert r2["one projection"] < 0.95
assert model.loss_ < best.fun / 2

# %%
# The picture
# -----------
# The upper row shows the learned scores between kinds of words, W_Q W_K^T / sqrt(d_k): orange
# scores attract attention, blue scores repel it, and white is 0. With two projections each role
# has its highest score for the word that it needs (framed). With one projection the matrix is its
# own mirror image. The lower row shows the average weights that the roles give to each other.
#
# The figure does not show that symmetric scores are a bad start. Every fit in skattn starts from
# W_Q = W_K, which is a good start, and W_Q and W_K can then move apart. The figure does not show
# that symmetric scores are useless either. Two heads with symmetric scores reach an R² of .98 on
# this task, because the difference of two averages can remove the excess in each. The proof is
# about one head.

signed = LinearSegmentedColormap.from_list("signed", ["#0072B2", "white", "#D55E00"])
names = [*ROLES, "other"]
learned = {
    "two projections": model.W_Q_ @ model.W_K_.T / np.sqrt(SHAPE["d_k"]),
    "one projection": (W * D) @ W.T / np.sqrt(SHAPE["d_k"]),
}
np.testing.assert_allclose(learned["one projection"], learned["one projection"].T, atol=1e-12)

fig, axes = plt.subplots(2, 3, figsize=(11.5, 7), width_ratios=[0.75, 1, 1], layout="constrained")
bars = axes[0, 0].bar(
    ["two", "one"], [r2[name] for name in learned], color=["0.35", "0.65"], width=0.6
)
axes[0, 0].bar_label(bars, [f"{r2[name]:.2f}" for name in learned], padding=2)
axes[0, 0].set(ylim=(0, 1.12), ylabel="R² on test sentences", xlabel="projections")
axes[0, 0].set_title("Predictions", fontsize=11)
axes[0, 0].spines[["top", "right"]].set_visible(False)


def show(ax, matrix, labels, title, **look):
    """A matrix with its numbers, and frames around the words that the roles need."""
    ax.imshow(matrix, **look)
    cmap, norm = ax.images[0].cmap, ax.images[0].norm
    for i, j in np.ndindex(matrix.shape):
        is_dark = np.dot(cmap(norm(matrix[i, j]))[:3], [0.3, 0.6, 0.1]) < 0.5
        text = f"{matrix[i, j].round(1) + 0.0:.1f}" if len(labels) > 3 else f"{matrix[i, j]:.2f}"
        colour = "white" if is_dark else "black"
        ax.text(j, i, text, ha="center", va="center", fontsize=10, color=colour)
    for role, wanted in NEEDS.items():
        ax.add_patch(
            plt.Rectangle((wanted - 0.46, role - 0.46), 0.92, 0.92, fill=False, linewidth=2.2)
        )
    ax.set_xticks(range(len(labels)), labels, rotation=30, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(labels)), labels)
    ax.set_title(title, fontsize=11)


show(axes[1, 0], np.eye(3)[needed], ROLES, "Who needs whom", cmap="Greys", vmin=0, vmax=2)
for column, name in zip((1, 2), learned, strict=True):
    matrix = learned[name][:4, :4]
    limit = max(np.abs(m[:4, :4]).max() for m in learned.values())
    title = f"Scores: {name}"
    show(axes[0, column], matrix, names, title, cmap=signed, vmin=-limit, vmax=limit)
    label = "score: orange attracts, blue repels"
    fig.colorbar(axes[0, column].images[0], ax=axes[0, column], shrink=0.8, label=label)
    title = f"Weights: {name}"
    weights = between[name].mean(axis=0)
    show(axes[1, column], weights, ROLES, title, cmap="Blues", vmin=0, vmax=1)
    label = "mean attention weight"
    fig.colorbar(axes[1, column].images[0], ax=axes[1, column], shrink=0.8, label=label)
axes[1, 0].set(xlabel="needed word", ylabel="word that needs it")

path = Path(__file__).parent / "_output" / "three_roles.png"
path.parent.mkdir(exist_ok=True)
fig.savefig(path, dpi=150)
print(f"\nFigure: {path.relative_to(Path(__file__).parent.parent)}")
