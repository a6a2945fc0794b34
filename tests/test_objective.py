"""The whole objective against central differences and against its own definition."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import COUNTING_MASKS, MASK_NAMES, check_gradient, layer, make_objective, targets_of

from skattn import RaggedArray
from skattn._objective import ParameterLayout
from skattn.attention import Attention
from skattn.losses import LOSSES
from skattn.pooling import POOLINGS

SIZES = (4, 0, 1, 3, 3, 6, 1, 2)  # an empty set and sets of one token among them


def make(
    loss="squared_error",
    pooling="mean",
    weighted=False,
    n_outputs=2,
    d=3,
    seed=0,
    **kwargs,
):
    rng = np.random.default_rng(seed)
    sets = [rng.normal(size=(n, d)) for n in SIZES]
    weights = [rng.integers(1, 4, size=n).astype(float) for n in SIZES] if weighted else None
    X = RaggedArray.from_list(sets, weights)
    y = targets_of(LOSSES[loss](), len(SIZES), n_outputs, rng)
    objective = make_objective(
        X,
        y,
        rng.uniform(0.5, 2, size=len(SIZES)),
        n_outputs,
        Attention(d_k=2, d_v=2, **{"n_heads": 2} | kwargs),
        POOLINGS[pooling](),
        LOSSES[loss](),
        alpha=0.1,
    )
    return objective, 0.5 * rng.normal(size=objective.layout.size), rng


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_gradient_for_every_loss_and_pooling(loss, pooling, n_outputs):
    check_gradient(*make(loss, pooling, n_outputs=n_outputs))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("score_statistics", [True, False])
def test_gradient_for_every_mask_and_head_count(pooling, mask, n_heads, score_statistics):
    check_gradient(
        *make(
            pooling=pooling,
            mask=mask,
            n_heads=n_heads,
            score_statistics=score_statistics,
            d=5,
        )
    )


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("mask", COUNTING_MASKS)
def test_gradient_with_token_weights(pooling, mask):
    check_gradient(*make(pooling=pooling, mask=mask, weighted=True))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("n_outputs", [1, 2])  # 1: forward and backward in one sweep
def test_gradient_by_row_blocks(pooling, n_outputs, monkeypatch):
    monkeypatch.setattr("skattn.attention.LONG_FACTOR", 1)
    objective, theta, rng = make(pooling=pooling, n_outputs=n_outputs, chunk_bytes=200)
    assert len(objective.network.attention._row_blocks(1, 6, 6, 8)) == 3
    value, grad = make(pooling=pooling, n_outputs=n_outputs)[0].value_and_grad(theta)
    blocked = objective.value_and_grad(theta)
    assert_allclose(blocked[0], value, rtol=1e-12)
    assert_allclose(blocked[1], grad, rtol=1e-10, atol=1e-12)
    check_gradient(objective, theta, rng)


def test_value_is_weighted_mean_loss_plus_penalty():
    objective, theta, _ = make()
    params = objective.layout.unpack(theta) | objective.held
    rng = np.random.default_rng(0)
    total = 0.0
    sets = [rng.normal(size=(n, 3)) for n in SIZES]
    for i, X in enumerate(sorted(sets, key=len)):  # the order in which the objective holds them
        out = layer(params, X, n_heads=2)[0]
        pooled = out.mean(axis=0) if len(X) else np.zeros(8)
        raw = params["coef"] @ pooled + params["intercept"]
        total += objective.sample_weight[i] * np.sum((raw - objective.y[i]) ** 2) / 2
    penalised = [params[name] for name in ("W_Q", "W_K", "W_V", "coef")]
    expected = total / objective.sample_weight.sum()
    expected += 0.1 / 2 * sum(np.sum(array**2) for array in penalised)
    assert_allclose(objective.value_and_grad(theta)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_integer_weights_equal_repeated_sets_and_tokens(pooling):
    rng = np.random.default_rng(0)
    A, B, C = (rng.normal(size=(n, 3)) for n in (2, 4, 3))
    parts = Attention(2, 2, 2), POOLINGS[pooling](), LOSSES["squared_error"](), 0.1
    y = np.array([[1.0], [2.0], [3.0]])
    repeats = np.array([2, 1, 3])
    one = make_objective(
        RaggedArray.from_list([A, B, C], [[1, 1], [1] * 4, repeats]), y, np.array([1.0, 1, 2]), 1,
        *parts,
    )  # fmt: skip
    two = make_objective(
        RaggedArray.from_list([A, B, *[np.repeat(C, repeats, axis=0)] * 2]), y[[0, 1, 2, 2]],
        np.ones(4), 1, *parts,
    )  # fmt: skip
    theta = 0.5 * rng.normal(size=one.layout.size)
    for mine, other in zip(one.value_and_grad(theta), two.value_and_grad(theta), strict=True):
        assert_allclose(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("score_statistics", [True, False])
@pytest.mark.parametrize("chunk_bytes", [2**19, 200])  # 200: by row blocks
def test_held_projections_of_scores_cost_nothing_and_change_nothing(
    pooling, mask, score_statistics, chunk_bytes, monkeypatch
):
    monkeypatch.setattr("skattn.attention.LONG_FACTOR", 1)
    rng = np.random.default_rng(0)
    X = RaggedArray.from_list([rng.normal(size=(n, 3)) for n in SIZES])
    layer = Attention(
        2, 2, 2, mask=mask, score_statistics=score_statistics, chunk_bytes=chunk_bytes
    )
    rows = np.arange(0, X.n_tokens, 2) if pooling is None else None
    n_targets = len(SIZES) if rows is None else len(rows)
    y, weight = rng.normal(size=(n_targets, 1)), rng.uniform(0.5, 2, size=n_targets)
    kind = POOLINGS["mean" if pooling is None else pooling]()

    def objective(held):
        loss = LOSSES["squared_error"]()
        return make_objective(X, y, weight, 1, layer, kind, loss, 0.0, held=held, rows=rows)

    learned = objective(None)
    theta = 0.5 * rng.normal(size=learned.layout.size)
    params = learned.layout.unpack(theta) | learned.held
    held = objective({name: params[name] for name in ("W_Q", "W_K", "b_V")})
    value, grad = learned.value_and_grad(theta)
    expected = learned.layout.unpack(grad)

    def refuse(*args):
        raise AssertionError("a gradient of scores that nobody asked for")

    monkeypatch.setattr(Attention, "_score_gradient", refuse)
    held_value, held_grad = held.value_and_grad(held.layout.pack(params))
    assert held_value == value
    assert not {"W_Q", "W_K"} & held.layout.shapes.keys()
    for name, array in held.layout.unpack(held_grad).items():
        assert_array_equal(array, expected[name], err_msg=name)


def test_layout_packs_what_it_unpacks():
    layout = ParameterLayout({"a": (2, 3), "b": (), "c": (0, 4), "d": (5,)})
    theta = np.arange(12.0)
    assert layout.size == 12
    assert_allclose(layout.pack(layout.unpack(theta)), theta)
