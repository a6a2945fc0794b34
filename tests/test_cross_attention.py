"""Sets that attend to a context: the kernels, then the estimators."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import layer
from test_attention import central

from skattn.attention import INITS, Attention

SHAPES = [  # (b, n, m, d, d_c): one query, one key, no key, no query, either side the wider
    (3, 1, 5, 4, 2),
    (2, 4, 1, 3, 9),
    (4, 3, 0, 3, 2),
    (2, 0, 3, 2, 3),
    (5, 7, 4, 5, 5),
    (1, 6, 12, 20, 3),
]


def make(rng, shape, dtype=np.float64, weighted=False, **kwargs):
    """A layer, parameters, X (b, n, d), C (b, m, d_c) and token weights of C, or None."""
    b, n, m, d, d_c = shape
    attention = Attention(**{"n_heads": 2, "d_k": 3, "d_v": 4, "n_context_features": d_c} | kwargs)
    params = {name: 0.7 * rng.normal(size=s) for name, s in attention.shapes(d).items()}
    X, C = rng.normal(size=(b, n, d)).astype(dtype), rng.normal(size=(b, m, d_c)).astype(dtype)
    return attention, params, X, C, rng.uniform(0.3, 4, size=(b, m)) if weighted else None


def reference(attention, params, X, C, w=None):
    """Token outputs (b, n, k) and weights (b, n_heads, n, m), set by set."""
    pairs = [
        layer(
            params,
            X[k],
            None if w is None else w[k],
            C[k],
            n_heads=attention.n_heads,
            score_statistics=attention.score_statistics,
            scale=attention.scale,
        )
        for k in range(len(X))
    ]
    return tuple(np.stack(arrays) for arrays in zip(*pairs, strict=True))


# The layer


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d_k", [2, 6])  # both sides of the choice between M and Q, K
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("score_statistics", [False, True])
def test_outputs_equal_the_formula(shape, d_k, weighted, score_statistics):
    rng = np.random.default_rng(0)
    attention, params, X, C, w = make(
        rng, shape, weighted=weighted, d_k=d_k, score_statistics=score_statistics
    )
    folded, block = attention.fold(params, X.dtype), attention.block(X, w, C)
    expected, A = reference(attention, params, X, C, w)
    assert expected.shape[2] == attention.n_features_out == 2 * (4 + score_statistics)
    assert_allclose(attention.forward(folded, block)[0], expected, atol=1e-12)
    assert_allclose(attention.weights(folded, block), A, atol=1e-13)
    p = rng.uniform(size=X.shape[:2])
    pooled, _ = attention.attend_pool(folded, block, p)
    assert_allclose(pooled, np.einsum("bn,bnk->bk", p, expected), atol=1e-12)


def test_a_set_as_its_own_context_is_self_attention():
    rng = np.random.default_rng(1)
    shape = (3, 5, 5, 4, 4)
    attention, params, X, _, _ = make(rng, shape)
    own = replace(attention, n_context_features=None)
    w, p = rng.uniform(0.3, 4, size=X.shape[:2]), rng.uniform(size=X.shape[:2])
    folded = own.fold(params, X.dtype)
    k = attention.n_features_out
    assert own.n_features_out == k + own.n_heads  # the self-weights, last
    block, own_block = attention.block(X, w, X.copy()), own.block(X, w)
    out, cache = attention.forward(folded, block)
    own_out, own_cache = own.forward(folded, own_block)
    assert_array_equal(out, own_out[..., :k])
    d_out = rng.normal(size=out.shape)
    grads = attention.backward(folded, cache, d_out)
    no_d_self = np.zeros((*X.shape[:2], own.n_heads))
    own_grads = own.backward(folded, own_cache, np.concatenate([d_out, no_d_self], axis=2))
    pooled, cache = attention.attend_pool(folded, block, p)
    own_pooled, own_cache = own.attend_pool(folded, own_block, p)
    assert_array_equal(pooled, own_pooled[:, :k])
    d_pooled, no_d_self = rng.normal(size=pooled.shape), np.zeros((len(X), own.n_heads))
    pooled_grads = attention.attend_pool_backward(folded, cache, d_pooled)
    own_pooled_grads = own.attend_pool_backward(
        folded, own_cache, np.concatenate([d_pooled, no_d_self], axis=1)
    )
    for ours, theirs in ((grads, own_grads), (pooled_grads, own_pooled_grads)):
        for name, expected in attention.unfold(params, theirs).items():
            assert_allclose(attention.unfold(params, ours)[name], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if 0 not in shape])
@pytest.mark.parametrize("d_k", [2, 6])
def test_outputs_and_gradients_equal_pytorch(shape, d_k):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rng = np.random.default_rng(2)
    attention, params, X, C, _ = make(rng, shape, d_k=d_k, score_statistics=False)
    theirs = {name: torch.tensor(array, requires_grad=True) for name, array in params.items()}

    def by_head(tokens, name, bias=0):
        projected = torch.tensor(tokens) @ theirs[name] + bias
        return projected.reshape(*tokens.shape[:2], attention.n_heads, -1).transpose(1, 2)

    Z = torch.nn.functional.scaled_dot_product_attention(
        by_head(X, "W_Q"), by_head(C, "W_K"), by_head(C, "W_V", theirs["b_V"])
    )
    expected = Z.transpose(1, 2).reshape(*X.shape[:2], -1)
    folded, block = attention.fold(params, X.dtype), attention.block(X, None, C)
    out, cache = attention.forward(folded, block)
    assert_allclose(out, expected.detach(), rtol=0, atol=1e-12)
    d_out = rng.normal(size=out.shape)
    expected.backward(torch.tensor(d_out))
    grads = attention.unfold(params, attention.backward(folded, cache, d_out))
    for name, tensor in theirs.items():
        assert_allclose(grads[name], tensor.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d_k", [2, 6])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("score_statistics", [False, True])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("chunk_bytes", [2**19, 200])  # 200: row by row blocks
def test_backward_is_the_derivative_of_forward(
    shape, d_k, weighted, score_statistics, fused, chunk_bytes, monkeypatch
):
    monkeypatch.setattr("skattn.attention.LONG_FACTOR", 1)
    rng = np.random.default_rng(3)
    b = shape[0] if chunk_bytes > 200 else 1
    attention, params, X, C, w = make(
        rng,
        (b, *shape[1:]),
        weighted=weighted,
        d_k=d_k,
        score_statistics=score_statistics,
        chunk_bytes=chunk_bytes,
    )
    p, block = rng.uniform(size=X.shape[:2]), attention.block(X, w, C)

    def run(params):
        folded = attention.fold(params, X.dtype)
        if fused:
            return attention.attend_pool(folded, block, p)
        return attention.forward(folded, block)

    out, cache = run(params)
    d_out = rng.normal(size=out.shape)
    back = attention.attend_pool_backward if fused else attention.backward
    grads = attention.unfold(params, back(attention.fold(params, X.dtype), cache, d_out))
    assert set(grads) == set(params)
    for name in params:
        assert grads[name].shape == params[name].shape
        direction = {k: np.zeros_like(v) for k, v in params.items()}
        direction[name] = rng.normal(size=params[name].shape)
        numeric = central(lambda q: np.sum(d_out * run(q)[0]), params, direction)
        analytic = np.sum(grads[name] * direction[name])
        assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("toward", [True, False])
def test_a_long_set_is_swept_by_rows(toward, monkeypatch):
    monkeypatch.setattr("skattn.attention.LONG_FACTOR", 1)
    rng = np.random.default_rng(4)
    attention, params, X, C, w = make(rng, (1, 50, 30, 5, 4), weighted=True)
    small = replace(attention, chunk_bytes=2**12)
    assert len(small._row_blocks(1, 50, 30, 8)) > 3
    folded, p = attention.fold(params, X.dtype), np.full((1, 50), 0.02)
    direction = rng.normal(size=attention.n_features_out) if toward else None
    d_pooled = rng.normal(size=(1, attention.n_features_out)) if direction is None else [direction]
    results = []
    for one in (attention, small):
        pooled, cache = one.attend_pool(folded, one.block(X, w, C), p, direction)
        grads = one.attend_pool_backward(folded, cache, 3 * np.array(d_pooled))
        results.append([pooled, *(grads[name] for name in sorted(grads))])
    for whole, parts in zip(*results, strict=True):
        assert_allclose(parts, whole, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("factor", [1, 30, 1e4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_any_finite_scores_are_safe(factor, dtype):
    rng = np.random.default_rng(5)
    attention, params, X, C, _ = make(rng, (3, 6, 4, 4, 3), dtype)
    C *= np.array([0.1, 1, factor], dtype)[:, None, None]
    C[1] = C[1, :1] * 10
    folded, block = attention.fold(params, dtype), attention.block(X, None, C)
    out, cache = attention.forward(folded, block)
    expected, _ = reference(attention, params, X.astype(float), C.astype(float))
    if dtype is np.float64:
        assert_allclose(out, expected, rtol=1e-10 + 1e-16 * factor**2, atol=1e-10)
    else:
        assert_allclose(out[:2], expected[:2], rtol=1e-3, atol=1e-3)
    pooled, pooled_cache = attention.attend_pool(folded, block, np.ones((3, 6), dtype))
    for part in (
        attention.backward(folded, cache, np.ones_like(out)),
        attention.attend_pool_backward(folded, pooled_cache, np.ones_like(pooled)),
    ):
        assert all(np.all(np.isfinite(array)) for array in part.values())


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("widths", [(3, 20), (20, 3), (5, 5), (1, 2)])
def test_starts_have_the_shapes_of_the_parameters(init, widths):
    d, d_c = widths
    attention = Attention(n_heads=5, d_k=8, d_v=4, n_context_features=d_c)
    params = attention.init_params(d, np.random.default_rng(0), init)
    assert {name: array.shape for name, array in params.items()} == attention.shapes(d)


def test_tied_start_of_equal_widths_is_that_of_self_attention():
    starts = [
        Attention(n_context_features=d_c).init_params(7, np.random.default_rng(0))
        for d_c in (None, 7)
    ]
    for name, array in starts[0].items():
        assert_array_equal(array, starts[1][name])


@pytest.mark.parametrize("widths", [(4, 9), (9, 4)])
def test_tied_start_ties_the_features_that_both_sides_have(widths):
    d, d_c = widths
    attention = Attention(n_heads=5, d_k=4, d_v=2, n_context_features=d_c)
    params = attention.init_params(d, np.random.default_rng(0))
    W_Q, W_K = params["W_Q"], params["W_K"]
    assert_array_equal(W_Q[:4], W_K[:4])
    wide = W_Q if d > d_c else W_K
    for h, scale in enumerate((0.3, 1, 2, 4, 0.3)):
        for part in (W_Q[:4], wide[4:]):
            W = part[:, 4 * h : 4 * h + 4]
            assert_allclose(W.T @ W, scale**2 * np.eye(4), atol=1e-12)
