"""The formula as slow, obvious loops, and the estimator set to it: what tests are held against."""

import math

import numpy as np
from numpy.testing import assert_allclose

from skattn import AttentionContextualizer
from skattn._network import LinearHead, Network
from skattn._objective import Objective
from skattn._sets import Sets
from skattn.losses import LOSSES
from skattn.masks import MASKS, mask_of

LENGTHS = (4, 0, 1, 4, 9, 2, 0, 3, 1, 5, 2, 3)  # of the sets of the fixture `sets`
MASK_NAMES = [None, *MASKS]
COUNTING_MASKS = [name for name in MASK_NAMES if mask_of(name).weights_are_copies]
NUMBER_LOSSES = [name for name, kind in LOSSES.items() if not kind.is_classifier]


def attention_loop(Q, K, V, mask=None, scale=None):
    """Weights and outputs of one set, entry by entry: softmax(Q K^T * scale) V."""
    n, m = len(Q), len(K)
    scale = 1 / math.sqrt(Q.shape[1]) if scale is None else scale
    A, Z = np.zeros((n, m)), np.zeros((n, V.shape[1]))
    for i in range(n):
        keys = [j for j in range(m) if mask is None or mask[i][j]]
        scores = {j: scale * sum(q * k for q, k in zip(Q[i], K[j], strict=True)) for j in keys}
        top = max(scores.values(), default=0.0)
        total = sum(math.exp(s - top) for s in scores.values())
        for j in keys:
            A[i, j] = math.exp(scores[j] - top) / total
            for c in range(V.shape[1]):
                Z[i, c] += A[i, j] * V[j, c]
    return A, Z


def layer(
    params, X, weights=None, C=None, *, n_heads, mask=None, score_statistics=True, scale=None
):
    """Token outputs (n, k) and weights (n_heads, n, m) of one set X (n, d), plainly.

    It attends to C (m, d_c), or to itself; `weights` (m,) are of the tokens attended to.
    """
    is_self = C is None
    C = X if is_self else C
    n, m = len(X), len(C)
    mask = mask_of(mask)
    w = np.ones(m) if weights is None or mask.only_self else weights
    allowed = mask.allowed(np.arange(n)[:, None], np.arange(m))
    allowed = np.ones((n, m), bool) if allowed is None else allowed
    split = [np.split(params[name], n_heads, axis=-1) for name in ("W_Q", "W_K", "W_V", "b_V")]
    Zs, lses, selves, As = [], [], [], []
    for W_Q, W_K, W_V, b_V in zip(*split, strict=True):
        Q, K, V = X @ W_Q, C @ W_K, C @ W_V + b_V
        S = Q @ K.T * (1 / math.sqrt(W_Q.shape[1]) if scale is None else scale)
        A, lse = np.zeros((n, m)), np.zeros(n)
        for i in range(n):
            seen = np.flatnonzero(allowed[i])
            if len(seen):
                s = S[i, seen] + np.log(w[seen])
                lse[i] = s.max() + math.log(np.sum(np.exp(s - s.max())))
                A[i, seen] = np.exp(s - lse[i])
        Zs.append(A @ V)
        lses.append(lse)
        if is_self:
            selves.append(np.diag(A) / w)
        As.append(A)
    columns = Zs
    if score_statistics:
        columns = [*Zs, *(column[:, None] for column in (*lses, *selves))]
    return np.hstack(columns), np.array(As).reshape(n_heads, n, m)


def layers(attention, params, X, w=None, C=None):
    """Token outputs (b, n, k) and weights (b, n_heads, n, m) of an attention, set by set."""
    results = [
        layer(
            params,
            X[k].astype(float),
            None if w is None else w[k],
            None if C is None else C[k].astype(float),
            n_heads=attention.n_heads,
            mask=attention.mask,
            score_statistics=attention.score_statistics,
            scale=attention.scale,
        )
        for k in range(len(X))
    ]
    return tuple(np.stack(arrays) for arrays in zip(*results, strict=True))


def attend_and_pool(params, X, *, n_heads):
    """Mean of the token outputs of one set X (n, d), all heads at once, and a cache."""
    n = len(X)
    Q, K, V = (
        (X @ params[name]).reshape(n, n_heads, -1).swapaxes(0, 1) for name in ("W_Q", "W_K", "W_V")
    )  # (H, n, d_k) twice, (H, n, d_v)
    S = Q @ K.swapaxes(1, 2) / math.sqrt(Q.shape[-1])  # (H, n, n)
    A = np.exp(S - S.max(axis=-1, keepdims=True))
    A /= A.sum(axis=-1, keepdims=True)
    Z = A @ V  # (H, n, d_v)
    return Z.mean(axis=1).reshape(-1), (Q, K, V, A)


def log_loss_gradient(params, sets, y, *, n_heads):
    """Mean log loss of mean pooling and a linear head over sets, and its gradient, set by set.

    The textbook's formulas in NumPy as one would write them: this is what the fast objective has
    to agree with, and to beat.
    """
    value, grads = 0.0, {name: np.zeros_like(params[name]) for name in params}
    for X, target in zip(sets, y, strict=True):
        n = len(X)
        pooled, (Q, K, V, A) = attend_and_pool(params, X, n_heads=n_heads)
        raw = params["coef"] @ pooled + params["intercept"]  # (1,)
        value += float(np.logaddexp(0, raw[0]) - target * raw[0])
        d_raw = 1 / (1 + np.exp(-raw)) - target
        grads["coef"] += d_raw[:, None] * pooled
        grads["intercept"] += d_raw
        d_pooled = (d_raw @ params["coef"]).reshape(n_heads, 1, -1)
        dZ = np.broadcast_to(d_pooled / n, V.shape)
        dV = A.swapaxes(1, 2) @ dZ  # Z = A V
        dA = dZ @ V.swapaxes(1, 2)
        dS = A * (dA - np.sum(A * dA, axis=-1, keepdims=True))
        dS /= math.sqrt(Q.shape[-1])
        dQ, dK = dS @ K, dS.swapaxes(1, 2) @ Q  # S = Q K^T / sqrt(d_k)
        for name, d in (("W_Q", dQ), ("W_K", dK), ("W_V", dV)):
            grads[name] += X.T @ d.swapaxes(0, 1).reshape(n, -1)
    return value / len(sets), {name: grad / len(sets) for name, grad in grads.items()}


def make_objective(X, y, sample_weight, n_outputs, attention, pooling, loss, alpha, **kwargs):
    """The objective of a network of these layers on a RaggedArray or a RaggedPair."""
    network = Network(attention, pooling, LinearHead(n_outputs))
    return Objective(Sets.of(X), y, sample_weight, network, loss, alpha, **kwargs)


def central(f, params, direction, step=1e-6):
    """Derivative of f along a direction, by central differences."""
    ahead = f({name: params[name] + step * direction[name] for name in params})
    behind = f({name: params[name] - step * direction[name] for name in params})
    return (ahead - behind) / (2 * step)


def takes(loss, y):
    """Whether targets (n, n_outputs) are in the domain of a loss of numbers."""
    try:
        loss.check(y)
    except ValueError:
        return False
    return True


def targets_of(loss, n, n_outputs, rng):
    """Targets of a loss: indices of classes, or the first (n, n_outputs) numbers that it takes."""
    if loss.is_classifier:
        return np.arange(n) % max(2, n_outputs)
    counts = rng.poisson(2.0, size=(n, n_outputs)).astype(float)
    counts[0] = 0
    drawn = rng.normal(size=(n, n_outputs)), counts, rng.gamma(2.0, size=(n, n_outputs))
    return next(y for y in drawn if takes(loss, y))


def penalised_loss(model, loss, raw, y, weight):
    """What a fitted model has minimised, from its raw predictions (n, n_outputs) in units of y.

    y are indices of classes (n,), or numbers (n, n_outputs).
    """
    spread = np.ones(1)
    if loss.scales_target:
        mean = np.average(y, axis=0, weights=weight)
        spread = np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weight))
        y, raw = (y - mean) / spread, (raw - mean) / spread
    learned = model.W_Q_, model.W_K_, model.W_V_, model.coef_ / spread[:, None]
    penalty = sum(np.sum(W**2) for W in (*learned, *model.pooling_params_.values()))
    mean_loss = loss.loss_gradient(y, raw, weight)[0].sum() / np.sum(weight)
    return mean_loss + model.alpha / 2 * penalty


def check_gradient(objective, theta, rng, step=1e-6, atol=1e-9):
    """Check the gradient of an objective against central differences, parameter by parameter."""
    value, grad = objective.value_and_grad(theta)
    assert np.isfinite(value)
    for name, part in objective.layout.slices.items():
        direction = np.zeros_like(theta)
        direction[part] = rng.normal(size=part.stop - part.start)
        ahead = objective.value_and_grad(theta + step * direction)[0]
        behind = objective.value_and_grad(theta - step * direction)[0]
        assert_allclose(
            grad @ direction,
            (ahead - behind) / (2 * step),
            rtol=1e-6,
            atol=atol,
            err_msg=name,
        )


def identity(d, **params):
    """The textbook formula on raw tokens, as an estimator."""
    settings = {
        "n_heads": 1,
        "d_k": d,
        "d_v": d,
        "init": "identity",
        "standardize": False,
        "score_statistics": False,
        "max_iter": 0,
        "pooling": None,
    }
    return AttentionContextualizer(**{**settings, **params})
