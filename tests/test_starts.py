"""Where a fit starts: names, arrays, seeds, and the fit before."""

import pickle
import random

import numpy as np
import pytest
from models import (
    Y,
    assert_same_fit,
    raw_prediction,
    small,
    stored,
    unfinished,
)
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skattn.losses import LOSSES


@pytest.mark.parametrize("init", ["tied", "identity", "glorot"])
@pytest.mark.parametrize("max_iter", [0, 3])
@unfinished
def test_every_start_is_finite_and_goes_downhill(sets, init, max_iter):
    model = small(init=init, max_iter=max_iter).fit(sets, Y["log_loss"])
    assert all(np.all(np.isfinite(array)) for array in stored(model).values())
    assert (model.loss_ < model.loss_curve_[0]) == (max_iter > 0)


def test_tied_queries_are_keys_at_four_scales(sets):
    model = small(n_heads=5, d_k=2, max_iter=0).fit(sets, Y["log_loss"])
    assert_array_equal(model.W_Q_, model.W_K_)
    for h, scale in enumerate((0.3, 1, 2, 4, 0.3)):
        W = model.W_Q_[:, 2 * h : 2 * h + 2]
        assert_allclose(W.T @ W, scale**2 * np.eye(2), atol=1e-12)


def test_identity_projections_pick_features_in_turn(sets):
    model = small(init="identity", d_k=2, d_v=1, max_iter=0).fit(sets, Y["log_loss"])
    assert_array_equal(model.W_Q_, np.eye(3)[:, [0, 1, 2, 0]])
    assert_array_equal(model.W_V_, np.eye(3)[:, [0, 1]])
    assert_array_equal(model.b_V_, np.zeros(2))


def test_a_dict_of_arrays_is_a_start_and_is_left_alone(sets, rng):
    init = {"W_Q": rng.normal(size=(3, 4)), "b_V": np.arange(4)}
    before = {name: array.copy() for name, array in init.items()}
    model = small(init=init, max_iter=0).fit(sets, Y["log_loss"])
    assert_array_equal(model.W_Q_, init["W_Q"])
    assert_array_equal(model.b_V_, init["b_V"])
    assert_array_equal(model.W_K_, small(max_iter=0).fit(sets, Y["log_loss"]).W_K_)
    model.W_Q_[...] = 0
    for name, array in init.items():
        assert_array_equal(array, before[name])
    assert clone(model).init is not None


def test_no_iterations_leave_the_start_and_no_warning(sets):
    model = small(max_iter=0).fit(sets, Y["log_loss"])
    assert (model.n_iter_, len(model.loss_curve_)) == (0, 1)
    assert model.loss_ == model.loss_curve_[0]
    unsupervised = small(max_iter=0).fit(sets)
    assert_array_equal(unsupervised.transform(sets), model.transform(sets))
    for name in ("coef_", "loss_", "loss_curve_", "classes_", "n_iter_", "converged_"):
        assert not hasattr(unsupervised, name)


@pytest.mark.parametrize("seed", [0, 1, 2**31])
@unfinished
def test_the_same_seed_gives_the_same_bits(sets, seed):
    first, second = (small(max_iter=3, random_state=seed).fit(sets, Y["log_loss"]) for _ in "ab")
    assert_same_fit(first, second)
    assert not np.array_equal(
        first.W_Q_, small(max_iter=3, random_state=77).fit(sets, Y["log_loss"]).W_Q_
    )


@pytest.mark.parametrize("kind", [np.random.RandomState, np.random.default_rng])
def test_a_generator_seeds_and_moves_on(sets, kind):
    def start(seed):
        return small(max_iter=0, random_state=seed).fit(sets, Y["log_loss"]).W_Q_

    assert_array_equal(start(kind(5)), start(kind(5)))
    shared = kind(5)
    first, second = start(shared), start(shared)
    assert not np.array_equal(first, second)


def test_without_a_seed_two_fits_differ(sets):
    first, second = (small(max_iter=0, random_state=None).fit(sets).W_Q_ for _ in "ab")
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("seed", [None, 0, np.random.RandomState(3)], ids=str)
@unfinished
def test_global_generators_are_left_alone(sets, seed):
    def states():
        return pickle.dumps((np.random.get_state(), random.getstate()))  # noqa: NPY002

    before = states()
    small(max_iter=2, random_state=seed).fit(sets, Y["log_loss"]).transform(sets)
    assert states() == before


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"init": {"W_Q": np.full((3, 4), np.nan)}}, "W_Q to start from must hold finite"),
        ({"init": {"W_K": np.full((3, 4), 1j)}}, "W_K to start from must hold finite"),
        (
            {"init": dict.fromkeys(("W_Q", "W_K"), np.full((3, 4), 1e200))},
            "not finite at the start",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@unfinished
def test_projections_that_are_not_finite_are_reported(sets, settings, error):
    with pytest.raises(ValueError, match=error):
        small(max_iter=6, **settings).fit(sets, Y["log_loss"])


def test_the_head_does_not_repeat_the_random_numbers_of_the_projections(sets):
    model = small(max_iter=0).fit(sets, Y["log_loss"])
    repeated = 0.01 * np.random.default_rng(0).normal(size=model.coef_.shape)
    assert not np.any(np.isclose(model.coef_, repeated))


# Warm starts


@pytest.mark.parametrize("pooling", ["mean", "attention", "stats"])
@pytest.mark.parametrize("loss", [*LOSSES, "three classes"])
@unfinished
def test_a_warm_start_goes_on_where_the_last_fit_ended(sets, loss, pooling):
    name = "log_loss" if loss == "three classes" else loss
    model = small(loss=name, pooling=pooling, max_iter=3, warm_start=True).fit(sets, Y[loss])
    before = model.loss_
    model.fit(sets, Y[loss])
    assert_allclose(model.loss_curve_[0], before, rtol=1e-10)
    assert model.loss_ < before


@unfinished
def test_a_warm_start_takes_other_units_of_y_along(sets):
    y = Y["squared_error"]
    model = small(max_iter=4, warm_start=True).fit(sets, y)
    raw = raw_prediction(model, sets)
    model.set_params(max_iter=0).fit(sets, 10 * y)
    assert_allclose(raw_prediction(model, sets), raw, rtol=1e-10)


@unfinished
def test_a_cold_start_forgets(sets):
    model = small(max_iter=4).fit(sets, Y["log_loss"])
    first = stored(model)
    again = stored(model.fit(sets, Y["log_loss"]))
    for name, array in first.items():
        assert_array_equal(again[name], array)


@unfinished
def test_a_warm_start_with_a_new_alpha_follows_the_path(sets):
    model = small(alpha=1.0, warm_start=True, max_iter=4).fit(sets, Y["log_loss"])
    W = model.W_Q_.copy()
    model.set_params(alpha=0.1, max_iter=0).fit(sets, Y["log_loss"])
    assert_array_equal(model.W_Q_, W)


@pytest.mark.parametrize(
    ("params", "y", "match"),
    [
        ({"n_heads": 3}, Y["log_loss"], r"W_Q to start from has shape \(3, 4\), but must have"),
        ({"d_v": 5}, Y["log_loss"], "W_V to start from has shape"),
        ({}, Y["three classes"], r"warm_start=True needs the classes of the last fit, \[0 1\]"),
        ({"score_statistics": False}, Y["log_loss"], "q to start from has shape"),
    ],
)
@unfinished
def test_a_warm_start_that_does_not_fit_is_refused(sets, params, y, match):
    model = small(pooling="attention", max_iter=2, warm_start=True).fit(sets, Y["log_loss"])
    model.set_params(**params)
    with pytest.raises(ValueError, match=match):
        model.fit(sets, y)
