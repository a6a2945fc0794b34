"""The kernels against slow loops, PyTorch and central differences."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import COUNTING_MASKS, MASK_NAMES, attention_loop, central, layers

from skattn import scaled_dot_product_attention
from skattn.attention import INITS, Attention

WEIGHTED_MASKS = [(mask, False) for mask in MASK_NAMES] + [(m, True) for m in COUNTING_MASKS]
SHAPES = [
    (3, 1, 4),
    (2, 2, 3),
    (5, 7, 5),
    (1, 12, 20),
]  # (b, n, d): one token among them


def make(rng, d, dtype=np.float64, spread=0.7, **kwargs):
    attention = Attention(**kwargs)
    params = {name: spread * rng.normal(size=shape) for name, shape in attention.shapes(d).items()}
    return attention, params


# The public function


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("masked", [False, True])
def test_function_equals_a_triple_loop(masked, scale):
    rng = np.random.default_rng(0)
    Q, K, V = rng.normal(size=(5, 3)), rng.normal(size=(7, 3)), rng.normal(size=(7, 4))
    mask = rng.random((5, 7)) < 0.5 if masked else None
    if masked:
        mask[2] = False
    Z, A = scaled_dot_product_attention(Q, K, V, mask=mask, scale=scale, return_weights=True)
    A_loop, Z_loop = attention_loop(Q, K, V, mask, scale)
    assert_allclose(A, A_loop, atol=1e-14)
    assert_allclose(Z, Z_loop, atol=1e-13)
    assert_array_equal(scaled_dot_product_attention(Q, K, V, mask=mask, scale=scale), Z)


def test_function_equals_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rng = np.random.default_rng(0)
    Q, K, V = (rng.normal(size=(2, 3, 6, 4)) for _ in range(3))
    mask = rng.random((2, 1, 6, 6)) < 0.7
    mask[..., 0] = True
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, (Q, K, V)), attn_mask=torch.tensor(mask)
    )
    assert_allclose(scaled_dot_product_attention(Q, K, V, mask=mask), theirs, atol=1e-12)


def test_function_never_uses_a_masked_slot():
    X = np.array([[1, 0.5], [0.8, 0.6], [np.nan, np.inf]])
    mask = np.array([True, True, False])
    Z = scaled_dot_product_attention(X[:2], X, X, mask=mask)
    assert_array_equal(Z, scaled_dot_product_attention(X[:2], X[:2], X[:2]))


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"Q": np.ones(3)}, ValueError, "Q has shape"),
        ({"K": np.ones((2, 4))}, ValueError, "same number of features"),
        ({"V": np.ones((3, 2))}, ValueError, "same number of tokens"),
        ({"V": np.array([["a"], ["b"]])}, TypeError, "V has dtype"),
        ({"mask": np.ones((3, 2))}, TypeError, "must be boolean"),
        ({"mask": np.ones((4, 5), bool)}, ValueError, "must broadcast"),
    ],
)
def test_function_refuses_what_does_not_fit(change, error, match):
    arrays = {"Q": np.ones((3, 2)), "K": np.ones((2, 2)), "V": np.ones((2, 2))} | change
    with pytest.raises(error, match=match):
        scaled_dot_product_attention(**arrays)


# The layer, forward


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("d_k", [2, 6])  # both sides of the choice between M and Q, K
def test_token_outputs_equal_the_formula(shape, mask, n_heads, d_k):
    rng = np.random.default_rng(1)
    attention, params = make(rng, shape[2], n_heads=n_heads, d_k=d_k, d_v=3, mask=mask)
    X = rng.normal(size=shape)
    out, _ = attention.forward(attention.fold(params, X.dtype), attention.block(X))
    assert_allclose(out, layers(attention, params, X)[0], atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask", COUNTING_MASKS)
def test_token_weights_equal_the_formula(shape, mask):
    rng = np.random.default_rng(1)
    attention, params = make(rng, shape[2], n_heads=2, d_k=3, d_v=3, mask=mask)
    X, w = rng.normal(size=shape), rng.uniform(0.1, 4, size=shape[:2])
    out, _ = attention.forward(attention.fold(params, X.dtype), attention.block(X, w))
    assert_allclose(out, layers(attention, params, X, w)[0], atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("mask", "weighted"), WEIGHTED_MASKS)
@pytest.mark.parametrize("score_statistics", [True, False])
def test_pooled_outputs_are_sums_of_token_outputs(shape, mask, score_statistics, weighted):
    rng = np.random.default_rng(2)
    attention, params = make(
        rng,
        shape[2],
        n_heads=2,
        d_k=3,
        d_v=4,
        mask=mask,
        score_statistics=score_statistics,
    )
    X, p = rng.normal(size=shape), rng.uniform(size=shape[:2])
    w = rng.uniform(0.1, 4, size=shape[:2]) if weighted else None
    block, folded = attention.block(X, w), attention.fold(params, X.dtype)
    pooled, _ = attention.attend_pool(folded, block, p)
    expected = np.einsum("bn,bnk->bk", p, layers(attention, params, X, w)[0])
    assert_allclose(pooled, expected, atol=1e-12)


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("factor", [1, 30, 1e4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_any_finite_scores_are_safe(mask, factor, dtype):
    """Bounded, close and wide sets of scores, in one block, equal the formula."""
    rng = np.random.default_rng(3)
    attention, params = make(rng, 4, n_heads=2, d_k=3, d_v=3, mask=mask)
    X = rng.normal(size=(3, 6, 4))
    X *= np.array([0.1, 1, factor])[:, None, None]
    X[1] = X[1, :1] * 10  # equal tokens far out: large scores within no distance
    X = X.astype(dtype)
    folded, block = attention.fold(params, dtype), attention.block(X)
    out, cache = attention.forward(folded, block)
    expected = layers(attention, params, X)[0]
    if dtype is np.float64:  # scores of 1e8 carry an error of 1e-8 into the exponential
        assert_allclose(out, expected, rtol=1e-10 + 1e-16 * factor**2, atol=1e-10)
    else:
        assert_allclose(out[:2], expected[:2], rtol=1e-3, atol=1e-3)
    grads = attention.backward(folded, cache, np.ones_like(out))
    pooled, cache = attention.attend_pool(folded, block, np.ones((3, 6), dtype))
    assert np.all(np.isfinite(pooled))
    for part in (
        grads,
        attention.attend_pool_backward(folded, cache, np.ones_like(pooled)),
    ):
        assert all(np.all(np.isfinite(array)) for array in part.values())


@pytest.mark.parametrize("spread", [0.7, 20])
def test_bits_of_a_set_do_not_depend_on_its_neighbours(spread):
    rng = np.random.default_rng(4)
    attention, params = make(rng, 5, spread=spread, n_heads=2, d_k=3, d_v=3)
    X = rng.normal(size=(6, 7, 5)) * np.logspace(-2, 2, 6)[:, None, None]
    folded = attention.fold(params, X.dtype)
    together = attention.forward(folded, attention.block(X))[0]
    for k in range(6):
        alone = attention.forward(folded, attention.block(X[k : k + 1].copy()))[0][0]
        assert_allclose(alone, together[k], rtol=1e-12, atol=1e-14)


# The layer, backward


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("mask", "weighted"), WEIGHTED_MASKS)
@pytest.mark.parametrize("score_statistics", [True, False])
@pytest.mark.parametrize("d_k", [2, 6])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("chunk_bytes", [2**19, 400])  # 400: row by row blocks
def test_backward_is_the_derivative_of_forward(
    shape, mask, score_statistics, d_k, weighted, fused, chunk_bytes, monkeypatch
):
    monkeypatch.setattr("skattn.attention.LONG_FACTOR", 1)
    rng = np.random.default_rng(5)
    attention, params = make(
        rng,
        shape[2],
        n_heads=2,
        d_k=d_k,
        d_v=3,
        mask=mask,
        score_statistics=score_statistics,
        chunk_bytes=chunk_bytes,
    )
    b = shape[0] if chunk_bytes > 400 else 1
    X, p = rng.normal(size=shape)[:b], rng.uniform(size=shape[:2])[:b]
    w = rng.uniform(0.5, 3, size=shape[:2])[:b] if weighted else None
    block = attention.block(X, w)

    def run(params):
        folded = attention.fold(params, X.dtype)
        return (
            attention.attend_pool(folded, block, p) if fused else attention.forward(folded, block)
        )

    out, cache = run(params)
    d_out = rng.normal(size=out.shape)
    back = attention.attend_pool_backward if fused else attention.backward
    grads = attention.unfold(params, back(attention.fold(params, X.dtype), cache, d_out))
    assert set(grads) == set(params)
    for name in params:
        direction = {k: np.zeros_like(v) for k, v in params.items()}
        direction[name] = rng.normal(size=params[name].shape)
        numeric = central(lambda q: np.sum(d_out * run(q)[0]), params, direction)
        analytic = np.sum(grads[name] * direction[name])
        assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-8)


def test_chunks_and_row_blocks_change_nothing(monkeypatch):
    monkeypatch.setattr("skattn.attention.LONG_FACTOR", 1)
    rng = np.random.default_rng(6)
    attention, params = make(rng, 5, n_heads=2, d_k=3, d_v=4)
    X = rng.normal(size=(1, 50, 5))
    folded, block = attention.fold(params, X.dtype), attention.block(X)
    small = replace(attention, chunk_bytes=2**12)
    assert len(small._row_blocks(1, 50, 50, 8)) > 3
    whole, cache = attention.forward(folded, block)
    parts, cache_2 = small.forward(folded, block)
    assert_allclose(parts, whole, rtol=1e-12, atol=1e-13)
    d_out = rng.normal(size=whole.shape)
    for layer_, c in ((attention, cache), (small, cache_2)):
        grads = layer_.backward(folded, c, d_out)
        if layer_ is attention:
            expected = grads
    for name in grads:
        assert_allclose(grads[name], expected[name], rtol=1e-11, atol=1e-11)


def test_float32_keeps_to_float64():
    rng = np.random.default_rng(7)
    attention, params = make(rng, 6, n_heads=2, d_k=4, d_v=4)
    X, p = (
        rng.normal(size=(4, 9, 6)).astype(np.float32),
        np.full((4, 9), 1 / 9, np.float32),
    )
    results = []
    for dtype in (np.float32, np.float64):
        folded, block = attention.fold(params, dtype), attention.block(X.astype(dtype))
        pooled, cache = attention.attend_pool(folded, block, p.astype(dtype))
        grads = attention.attend_pool_backward(folded, cache, np.ones_like(pooled))
        assert pooled.dtype == dtype
        results.append([pooled, *attention.unfold(params, grads).values()])
    for single, double in zip(*results, strict=True):
        assert_allclose(single, double, rtol=1e-5, atol=1e-5 * np.abs(double).max())


# Where it starts


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("d", [3, 20])
def test_starts_have_the_shapes_of_the_parameters(init, d):
    attention = Attention(n_heads=5, d_k=8, d_v=4)
    params = attention.init_params(d, np.random.default_rng(0), init)
    assert {name: array.shape for name, array in params.items()} == attention.shapes(d)


def test_tied_start_is_semi_orthogonal_at_the_scales_of_the_heads():
    attention = Attention(n_heads=5, d_k=3, d_v=2)
    params = attention.init_params(7, np.random.default_rng(0), "tied")
    assert_array_equal(params["W_Q"], params["W_K"])
    for scale, W in zip((0.3, 1, 2, 4, 0.3), np.split(params["W_Q"], 5, axis=1), strict=True):
        assert_allclose(W.T @ W, scale**2 * np.eye(3), atol=1e-12)


def test_identity_start_deals_the_features_out():
    params = Attention(n_heads=2, d_k=2, d_v=2).init_params(4, None, "identity")
    assert_array_equal(params["W_Q"], np.eye(4))
