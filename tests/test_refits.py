"""A second fit forgets the first."""

import numpy as np
import pandas as pd
import pytest
from models import (
    Y,
    assert_same_fit,
    lone_tokens,
    small,
    stored,
    unfinished,
)
from numpy.testing import assert_array_equal

from skattn import (
    RaggedPair,
)


@unfinished
def test_a_refit_on_numbers_forgets_the_classes(sets):
    model = small(max_iter=2).fit(sets, Y["log_loss"])
    assert hasattr(model, "classes_")
    model.fit(sets, Y["squared_error"])
    assert not hasattr(model, "classes_")
    assert_same_fit(model, small(max_iter=2).fit(sets, Y["squared_error"]))
    model.fit(sets, Y["three classes"])
    assert_array_equal(model.classes_, [0, 1, 2])
    assert_same_fit(model, small(max_iter=2).fit(sets, Y["three classes"]))


@unfinished
def test_a_refit_without_targets_forgets_the_head(sets):
    model = small(max_iter=2).fit(sets, Y["log_loss"])
    model.set_params(max_iter=0).fit(sets)
    for name in (
        "coef_",
        "intercept_",
        "loss_",
        "loss_curve_",
        "classes_",
        "n_iter_",
        "converged_",
    ):
        assert not hasattr(model, name), name


# Data, targets and parameters of one fit, given the sets.
FITS = {
    "labels": lambda sets: (sets, Y["log_loss"], {}),
    "three classes": lambda sets: (sets, Y["three classes"], {}),
    "numbers": lambda sets: (sets, Y["squared_error"], {}),
    "counts": lambda sets: (sets, Y["poisson"], {"loss": "poisson"}),
    "a column": lambda sets: (sets, Y["huber"][:, None], {"pooling": "attention"}),
    "two outputs": lambda sets: (sets, np.column_stack([Y["huber"], Y["gamma"]]), {}),
    "no targets": lambda sets: (sets, None, {"max_iter": 0}),
    "reconstruction": lambda sets: (sets, None, {"pooling": "stats"}),
    "numbers of tokens": lambda sets: (sets, [x[:, 0] for x in sets], {"pooling": None}),
    "labels of tokens": lambda sets: (sets, [x[:, 0] > 0 for x in sets], {"pooling": None}),
    "pairs": lambda sets: (RaggedPair(sets, sets[::-1]), Y["log_loss"], {}),
    "a table": lambda sets: (pd.DataFrame(np.eye(12, 2), columns=["a", "b"]), Y["huber"], {}),
}


@pytest.mark.parametrize("name", FITS)
@unfinished
@lone_tokens
def test_a_refit_leaves_no_trace_of_the_fit_before(sets, name):
    X, y, params = FITS[name](sets)
    fresh = small(max_iter=1).set_params(**params).fit(X, y)
    for former in FITS:
        former_X, former_y, former_params = FITS[former](sets)
        model = small(max_iter=1).set_params(**former_params).fit(former_X, former_y)
        model.set_params(**fresh.get_params()).fit(X, y)
        assert vars(model).keys() == vars(fresh).keys(), former
        for part in stored(fresh) if y is not None else ():
            assert_array_equal(stored(model)[part], stored(fresh)[part], err_msg=former)
        outs = (m.transform(X) for m in (model, fresh))
        assert_array_equal(*(getattr(out, "values", out) for out in outs), err_msg=former)


@unfinished
def test_a_refit_takes_another_width_and_pooling(sets, rng):
    model = small(max_iter=2, pooling="attention").fit(sets, Y["log_loss"])
    assert model.pooling_params_.keys() == {"q"}
    wider = [np.column_stack([tokens, tokens[:, 0] ** 2]) for tokens in sets]
    model.set_params(pooling="stats").fit(wider, Y["log_loss"])
    assert (model.n_features_in_, model.pooling_params_) == (4, {})
    assert model.transform(wider).shape == (12, 4 * 8)
    assert len(model.get_feature_names_out()) == 4 * 8
