"""Small models on the twelve sets of the fixture `sets`, and what compares them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import takes

from skattn import (
    AttentionContextualizer,
    AttentionRegressor,
    RaggedArray,
    RaggedPair,
)
from skattn.losses import LOSSES

unfinished = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
lone_tokens = pytest.mark.filterwarnings("ignore:No training set has more:UserWarning")

LABELS = np.array([0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0])


def numbers(loss):
    """Twelve numbers that a loss takes: of any size where it scales its targets, else counts."""
    if loss.scales_target:
        return np.linspace(-3, 8, 12) ** 2
    counts = np.arange(12.0) % 5
    return counts if takes(loss, counts[:, None]) else 0.5 + counts


Y = {
    "three classes": np.arange(12) % 3,
    **{name: LABELS if kind.is_classifier else numbers(kind()) for name, kind in LOSSES.items()},
}


def small(**params):
    """A small estimator that is quick to fit."""
    start = {"n_heads": 2, "d_k": 2, "d_v": 2, "alpha": 0.1, "random_state": 0}
    return AttentionContextualizer(**(start | params))


def raw_prediction(model, X):
    """What the fitted head says."""
    return model.transform(X) @ model.coef_.T + model.intercept_


def stored(model):
    """Every array that a fit has learned, by name."""
    names = ("W_Q_", "W_K_", "W_V_", "b_V_", "coef_", "intercept_", "token_mean_", "token_scale_")
    return {name: getattr(model, name) for name in names} | model.pooling_params_


def assert_same_fit(model, other, rtol=0.0, atol=0.0):
    """Check that two fits have learned the same."""
    assert stored(model).keys() == stored(other).keys()
    for name, array in stored(model).items():
        assert_allclose(stored(other)[name], array, rtol=rtol, atol=atol, err_msg=name)
    assert_allclose(other.loss_, model.loss_, rtol=max(rtol, 1e-14))


def moved(model, rng):
    """The fitted model with its learned arrays pushed about, so that no symmetry is left."""
    for name in ("W_Q_", "W_K_", "W_V_", "b_V_"):
        value = getattr(model, name)
        setattr(model, name, value + 0.3 * rng.normal(size=value.shape))
    for name, value in model.pooling_params_.items():
        model.pooling_params_[name] = value + rng.normal(size=value.shape)
    return model


def fitted(sets, rng, **params):
    """A model that is fitted without learning, at parameters of no symmetry."""
    return moved(small(max_iter=0, **params).fit(sets, Y["log_loss"]), rng)


def assert_rows_equal(got, expected, atol=1e-12):
    """Check two outputs set by set."""
    for a, b in zip(got, expected, strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=atol)


# Sets in a context

Y7 = np.array([0.3, -1.2, 0.5, 2.0, -0.4, 0.0, 1.1])


def pair_of(rng, sizes=((2, 3), (1, 5), (0, 2), (2, 3), (3, 0), (1, 1), (4, 5)), weighted=False):
    """Sets of 4 features, contexts of 3."""

    def side(lengths, d):
        sets = [rng.normal(size=(n, d)) for n in lengths]
        weights = [rng.uniform(0.5, 2, size=n) for n in lengths] if weighted else None
        return RaggedArray.from_list(sets, weights)

    n, m = zip(*sizes, strict=True)
    return RaggedPair(side(n, 4), side(m, 3))


def regressor(**params):
    """A small regressor that converges soon."""
    settings = {"n_heads": 2, "d_k": 2, "d_v": 2, "alpha": 0.1, "tol": 1e-3, "random_state": 0}
    return AttentionRegressor(**settings | params)
