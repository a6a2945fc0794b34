"""The formula as slow, obvious loops: what the fast kernels are held against."""

import math

import numpy as np


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


def layer(params, X, weights=None, *, n_heads, mask=None, score_statistics=True, scale=None):
    """Token outputs (n, k) and weights (n_heads, n, n) of one set X (n, d), plainly."""
    n = len(X)
    w = np.ones(n) if weights is None or mask == "diagonal" else weights
    allowed = {
        None: np.ones((n, n), bool),
        "causal": np.tri(n, dtype=bool),
        "exclude_self": ~np.eye(n, dtype=bool),
        "diagonal": np.eye(n, dtype=bool),
    }[mask]
    split = [np.split(params[name], n_heads, axis=-1) for name in ("W_Q", "W_K", "W_V", "b_V")]
    Zs, lses, selves, As = [], [], [], []
    for W_Q, W_K, W_V, b_V in zip(*split, strict=True):
        Q, K, V = X @ W_Q, X @ W_K, X @ W_V + b_V
        S = Q @ K.T * (1 / math.sqrt(W_Q.shape[1]) if scale is None else scale)
        A, lse = np.zeros((n, n)), np.zeros(n)
        for i in range(n):
            seen = np.flatnonzero(allowed[i])
            if len(seen):
                s = S[i, seen] + np.log(w[seen])
                lse[i] = s.max() + math.log(np.sum(np.exp(s - s.max())))
                A[i, seen] = np.exp(s - lse[i])
        Zs.append(A @ V)
        lses.append(lse)
        selves.append(np.diag(A) / w)
        As.append(A)
    columns = Zs
    if score_statistics:
        columns = [*Zs, np.column_stack(lses), np.column_stack(selves)]
    return np.hstack(columns), np.array(As).reshape(n_heads, n, n)
