"""Poolings: from the tokens of a set to one vector, forward and backward."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn import RaggedArray
from skattn.pooling import POOLINGS

LINEAR = [name for name, kind in POOLINGS.items() if hasattr(kind, "token_weights")]


@pytest.fixture(params=POOLINGS)
def layer(request):
    """Each pooling of the table."""
    return POOLINGS[request.param]()


@pytest.fixture(params=["plain", "weighted", "integer weights", "equal lengths", "one set"])
def tokens(request, awkward_sets, rng):
    """Sets with empty and one-token sets among them, with and without token weights."""
    if request.param == "one set":
        return RaggedArray.from_list([rng.normal(size=(6, 3))])
    if request.param == "equal lengths":
        return RaggedArray.from_list([rng.normal(size=(4, 3)) for _ in range(5)])
    plain = RaggedArray.from_list(awkward_sets)
    weights = {
        "weighted": rng.uniform(0.2, 3, size=plain.n_tokens),
        "integer weights": rng.integers(1, 4, size=plain.n_tokens),
    }.get(request.param)
    return RaggedArray(plain.values, plain.offsets, weights)


def parameters(layer, n_features, rng):
    """Parameters somewhere, not where the layer starts."""
    start = layer.init_params(n_features, rng)
    return {name: value + rng.normal(size=value.shape) for name, value in start.items()}


def pool(layer, params, tokens):
    """The pooled vectors alone."""
    return layer.forward(params, tokens)[0]


# The definitions, by a loop


def stats(Z, w, params):
    mean = np.average(Z, axis=0, weights=w)
    std = np.sqrt(np.average((Z - mean) ** 2, axis=0, weights=w))
    return np.concatenate([mean, std, Z.min(axis=0), Z.max(axis=0)])


def attended(Z, w, params):
    e = w * np.exp(Z @ params["q"])
    return e @ Z / e.sum()


# What a pooling is of one set's tokens Z (n, k) with weights w (n,).
DEFINITIONS = {
    "mean": lambda Z, w, params: np.average(Z, axis=0, weights=w),
    "sum": lambda Z, w, params: w @ Z,
    "max": lambda Z, w, params: Z.max(axis=0),
    "stats": stats,
    "attention": attended,
}


def by_loop(name, params, tokens):
    """A pooling set by set; zeros for a set without tokens."""
    weights = np.ones(tokens.n_tokens) if tokens.weights is None else tokens.weights
    rows = np.zeros((tokens.n_samples, POOLINGS[name]().n_features_out(tokens.n_features)))
    for i, (start, stop) in enumerate(zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)):
        if stop > start:
            Z, w = tokens.values[start:stop], weights[start:stop]
            rows[i] = DEFINITIONS[name](Z, w, params)
    return rows


@pytest.mark.parametrize("name", DEFINITIONS)
def test_forward_is_its_definition(name, tokens, rng):
    layer = POOLINGS[name]()
    params = parameters(layer, tokens.n_features, rng)
    out = pool(layer, params, tokens)
    assert_allclose(out, by_loop(name, params, tokens), rtol=1e-12, atol=1e-14)
    assert out.shape == (tokens.n_samples, layer.n_features_out(tokens.n_features))


def test_it_is_a_frozen_value(layer):
    assert dataclasses.is_dataclass(layer)
    assert layer == type(layer)()
    assert hash(layer) == hash(type(layer)())
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer.anything = 1


def test_parameters_have_the_shapes_that_are_announced(layer, rng):
    shapes, params = layer.shapes(5), layer.init_params(5, rng)
    assert {name: value.shape for name, value in params.items()} == shapes


def test_a_learned_query_starts_at_the_mean(tokens, rng):
    layer = POOLINGS["attention"]()
    start = pool(layer, layer.init_params(tokens.n_features, rng), tokens)
    assert_allclose(start, pool(POOLINGS["mean"](), {}, tokens), rtol=1e-12)


# Derivatives


def test_backward_is_the_derivative_of_forward(layer, tokens, rng):
    params, step = parameters(layer, tokens.n_features, rng), 1e-6
    out, cache = layer.forward(params, tokens)
    d_out, direction = rng.normal(size=out.shape), rng.normal(size=tokens.values.shape)

    def along(t):
        moved = tokens.with_values(tokens.values + t * direction)
        return np.sum(d_out * pool(layer, params, moved))

    d_tokens, _ = layer.backward(params, cache, d_out)
    assert d_tokens.shape == tokens.values.shape
    numeric = (along(step) - along(-step)) / (2 * step)
    assert_allclose(np.sum(d_tokens * direction), numeric, rtol=1e-6)


def test_backward_is_the_derivative_in_every_entry(layer, tokens, rng):
    params, step = parameters(layer, tokens.n_features, rng), 1e-5
    out, cache = layer.forward(params, tokens)
    d_out = rng.normal(size=out.shape)
    d_tokens, _ = layer.backward(params, cache, d_out)
    for entry in [(0, 0), (1, 2), (3, 1), (len(d_tokens) - 1, 0)]:
        nudge = np.zeros_like(tokens.values)
        nudge[entry] = step
        up = pool(layer, params, tokens.with_values(tokens.values + nudge))
        down = pool(layer, params, tokens.with_values(tokens.values - nudge))
        numeric = np.sum(d_out * (up - down)) / (2 * step)
        assert_allclose(d_tokens[entry], numeric, rtol=1e-6, atol=1e-8)


def test_backward_is_the_derivative_by_every_parameter(layer, tokens, rng):
    params, step = parameters(layer, tokens.n_features, rng), 1e-6
    out, cache = layer.forward(params, tokens)
    d_out = rng.normal(size=out.shape)
    _, d_params = layer.backward(params, cache, d_out)
    assert d_params.keys() == params.keys()
    for name, value in params.items():
        assert d_params[name].shape == value.shape
        direction = rng.normal(size=value.shape)
        up = pool(layer, params | {name: value + step * direction}, tokens)
        down = pool(layer, params | {name: value - step * direction}, tokens)
        numeric = np.sum(d_out * (up - down)) / (2 * step)
        assert_allclose(np.sum(d_params[name] * direction), numeric, rtol=1e-6)


@pytest.mark.parametrize("copies", [2, 3, 7])
@pytest.mark.parametrize("value", [0.1, 0.7, 1e3 + 0.1])
def test_tokens_that_are_all_equal_have_no_slope_of_spread(value, copies):
    tokens = RaggedArray.from_list([np.full((copies, 1), value)])
    out, cache = POOLINGS["stats"]().forward({}, tokens)
    assert_allclose(out[0, 1], 0, atol=1e-12 * value)
    d_tokens, _ = POOLINGS["stats"]().backward({}, cache, np.array([[0.0, 1.0, 0.0, 0.0]]))
    assert_allclose(d_tokens.sum(), 0, atol=1e-6)  # a shift of them all changes no spread


def test_equal_largest_tokens_share_the_gradient():
    tokens = RaggedArray.from_list([[[1.0], [3.0], [3.0]], [], [[3.0], [3.0]], []])
    _, cache = POOLINGS["max"]().forward({}, tokens)
    d_tokens, _ = POOLINGS["max"]().backward({}, cache, np.array([[1.0], [5.0], [2.0], [5.0]]))
    assert_array_equal(d_tokens.ravel(), [0, 0.5, 0.5, 1, 1])


# Laws


def test_integer_weights_equal_repeated_tokens(layer, awkward_sets, rng):
    counts = [rng.integers(1, 4, size=len(tokens)) for tokens in awkward_sets]
    counted = RaggedArray.from_list(awkward_sets, counts)
    repeated = RaggedArray.from_list(
        [
            np.repeat(tokens, count, axis=0)
            for tokens, count in zip(awkward_sets, counts, strict=True)
        ]
    )
    params = parameters(layer, 3, rng)
    out, cache = layer.forward(params, counted)
    expected, expected_cache = layer.forward(params, repeated)
    assert_allclose(out, expected, rtol=1e-12, atol=1e-14)
    d_out = rng.normal(size=out.shape)
    d_counted, d_params = layer.backward(params, cache, d_out)
    d_repeated, d_expected = layer.backward(params, expected_cache, d_out)
    starts = np.concatenate([[0], np.cumsum(counted.weights)])[:-1].astype(int)
    summed = np.add.reduceat(d_repeated, starts, axis=0)  # of all copies
    assert_allclose(d_counted, summed, rtol=1e-9, atol=1e-12)
    for name in params:
        assert_allclose(d_params[name], d_expected[name], rtol=1e-10)


def test_weights_of_one_are_no_weights(layer, awkward_sets, rng):
    plain = RaggedArray.from_list(awkward_sets)
    ones = RaggedArray(plain.values, plain.offsets, np.ones(plain.n_tokens))
    params = parameters(layer, 3, rng)
    assert_allclose(pool(layer, params, ones), pool(layer, params, plain), rtol=1e-14, atol=1e-15)


def test_the_order_of_tokens_does_not_matter(layer, tokens, rng):
    params = parameters(layer, tokens.n_features, rng)
    order = np.concatenate(
        [
            rng.permutation(np.arange(a, b))
            for a, b in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)
        ]
    ).astype(int)
    weights = None if tokens.weights is None else tokens.weights[order]
    shuffled = RaggedArray(tokens.values[order], tokens.offsets, weights)
    out, cache = layer.forward(params, tokens)
    moved, moved_cache = layer.forward(params, shuffled)
    assert_allclose(moved, out, rtol=1e-12, atol=1e-14)
    d_out = rng.normal(size=out.shape)
    d_tokens, d_moved = (layer.backward(params, c, d_out)[0] for c in (cache, moved_cache))
    assert_allclose(d_moved, d_tokens[order], rtol=1e-10, atol=1e-14)


def test_an_empty_set_pools_to_zeros_and_hands_nothing_back(layer, rng):
    tokens = RaggedArray.from_list([[], rng.normal(size=(2, 3)), [], []])
    params = parameters(layer, 3, rng)
    out, cache = layer.forward(params, tokens)
    assert_array_equal(out[[0, 2, 3]], np.zeros_like(out[[0, 2, 3]]))
    assert_array_equal(out[1], pool(layer, params, tokens.take([1]))[0])
    everywhere, alone = np.ones_like(out), np.zeros_like(out)
    alone[1] = 1
    d_tokens, d_params = layer.backward(params, cache, everywhere)
    expected, d_expected = layer.backward(params, cache, alone)
    assert_array_equal(d_tokens, expected)
    for name in params:
        assert_array_equal(d_params[name], d_expected[name])


@pytest.mark.parametrize("n_samples", [0, 1, 3])
def test_nothing_but_empty_sets_pools_to_zeros(layer, n_samples, rng):
    tokens = RaggedArray(np.empty((0, 3)), np.zeros(n_samples + 1, int))
    params = parameters(layer, 3, rng)
    out, cache = layer.forward(params, tokens)
    assert_array_equal(out, np.zeros((n_samples, layer.n_features_out(3))))
    d_tokens, d_params = layer.backward(params, cache, np.ones_like(out))
    assert d_tokens.shape == (0, 3)
    for name, value in params.items():
        assert_array_equal(d_params[name], np.zeros_like(value))


@pytest.mark.parametrize("weight", [1.0, 0.3, 5])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_lone_token_is_its_own_summary(name, weight, rng):
    layer, token = POOLINGS[name](), rng.normal(size=(1, 3))
    tokens = RaggedArray.from_list([token], weights=[[weight]])
    out = pool(layer, parameters(layer, 3, rng), tokens)
    summaries = {"sum": weight * token, "stats": np.hstack([token, 0 * token, token, token])}
    assert_allclose(out, summaries.get(name, token), rtol=1e-14)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_fast_path_of_equal_lengths_is_the_general_path(layer, weighted, rng):
    block = rng.normal(size=(5, 4, 3))
    weights = rng.uniform(0.5, 2, size=(5, 4)) if weighted else None
    params = parameters(layer, 3, rng)
    fast = RaggedArray.from_block(block, weights)
    longer = [*fast.to_list(), rng.normal(size=(7, 3))]  # makes the lengths differ
    general = RaggedArray.from_list(longer, None if weights is None else [*weights, np.ones(7)])
    out, cache = layer.forward(params, fast)
    expected, general_cache = layer.forward(params, general)
    assert_allclose(out, expected[:5], rtol=1e-13, atol=1e-15)
    d_out = rng.normal(size=expected.shape)
    d_fast, _ = layer.backward(params, cache, d_out[:5])
    d_general, _ = layer.backward(params, general_cache, d_out)
    assert_allclose(d_fast, d_general[:20], rtol=1e-12, atol=1e-15)


def test_other_sets_change_nothing(layer, tokens, rng):
    params = parameters(layer, tokens.n_features, rng)
    out = pool(layer, params, tokens)
    for i in range(tokens.n_samples):
        assert_allclose(pool(layer, params, tokens.take([i]))[0], out[i], rtol=1e-13, atol=1e-15)


def test_tokens_and_weights_are_left_as_they_are(layer, tokens, rng):
    params = parameters(layer, tokens.n_features, rng)
    tokens.values.flags.writeable = False
    if tokens.weights is not None:
        tokens.weights.flags.writeable = False
    out, cache = layer.forward(params, tokens)
    d_out = np.ones_like(out)
    d_out.flags.writeable = False
    first, second = (layer.backward(params, cache, d_out) for _ in range(2))
    assert_array_equal(first[0], second[0])


@pytest.mark.parametrize("weights", [None, "integers", "floats"])
def test_float32_stays_float32(layer, awkward_sets, weights, rng):
    exact = RaggedArray.from_list(awkward_sets)
    if weights is not None:
        w = rng.integers(1, 4, size=exact.n_tokens)
        w = w if weights == "integers" else w.astype(float)
        exact = RaggedArray(exact.values, exact.offsets, w)
    single = exact.astype(np.float32)
    params = parameters(layer, 3, rng)
    out, cache = layer.forward(params, single)
    assert out.dtype == np.float32
    assert_allclose(out, pool(layer, params, exact), rtol=1e-4, atol=1e-5)
    d_tokens, _ = layer.backward(params, cache, np.ones_like(out))
    assert d_tokens.dtype == np.float32


def test_large_tokens_do_not_overflow(rng):
    tokens = RaggedArray.from_list([[[1e3, 0.0], [-1e3, 1.0], [1e3, 2.0]]])
    layer, params = POOLINGS["attention"](), {"q": np.array([10.0, 0.0])}
    out, cache = layer.forward(params, tokens)
    assert_allclose(out, [[1e3, 1.0]])
    d_tokens, d_params = layer.backward(params, cache, np.ones((1, 2)))
    assert np.all(np.isfinite(d_tokens))
    assert np.all(np.isfinite(d_params["q"]))


# Linear poolings


@pytest.mark.parametrize("name", LINEAR)
def test_the_weights_of_a_linear_pooling_are_its_derivative(name, tokens, rng):
    layer = POOLINGS[name]()
    p = layer.token_weights(tokens)
    assert p.shape == (tokens.n_tokens,)
    assert p.dtype == tokens.dtype
    out, cache = layer.forward({}, tokens)
    summed = RaggedArray(tokens.values * p[:, None], tokens.offsets).segment_sum()
    assert_allclose(out, summed, rtol=1e-14, atol=1e-15)
    d_tokens, _ = layer.backward({}, cache, np.ones_like(out))
    assert_allclose(d_tokens, np.repeat(p[:, None], tokens.n_features, axis=1), rtol=1e-14)


def test_shares_in_a_mean_sum_to_one(tokens):
    p = POOLINGS["mean"]().token_weights(tokens)
    sums = tokens.with_values(p[:, None]).segment_sum()[:, 0]
    assert_allclose(sums, tokens.lengths > 0, rtol=1e-14)


def test_mean_and_sum_are_the_linear_poolings():
    assert LINEAR == ["mean", "sum"]
