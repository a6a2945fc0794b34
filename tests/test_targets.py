"""Targets of sets: what y may be, and what a loss makes of it."""

import numpy as np
import pytest
from models import (
    Y,
    assert_same_fit,
    raw_prediction,
    small,
    unfinished,
)
from numpy.testing import assert_allclose, assert_array_equal
from reference import NUMBER_LOSSES, penalised_loss
from sklearn.exceptions import DataConversionWarning

from skattn.losses import LOSSES
from skattn.pooling import POOLINGS


@pytest.mark.parametrize(
    ("params", "y", "match"),
    [
        (
            {"loss": "log_loss"},
            None,
            "requires y to be passed, but the target y is None.*max_iter=0",
        ),
        ({}, [0, 1], r"inconsistent numbers of samples: \[12, 2\]"),
        ({}, np.zeros(12, int), "at least two classes, but y holds one class, .*0"),
        ({}, ["a"] * 12, "one class, .*'a'"),
        ({}, np.r_[np.nan, np.arange(11)], "Input y contains NaN"),
        ({}, np.r_[np.inf, np.arange(11)], "Input y contains infinity"),
        ({}, np.zeros((12, 2), int), "1d array"),
        ({}, np.zeros((12, 2, 2)), "1 or 2 axes|dim 3"),
        ({"loss": "log_loss"}, Y["squared_error"] + 0.5, "[Uu]nknown label type"),
        ({"loss": "poisson"}, Y["poisson"] - 1, "loss='poisson' needs .* from -1.0 to 3.0"),
        ({"loss": "poisson"}, np.zeros(12), "not all of them 0"),
        ({"loss": "gamma"}, Y["poisson"], "loss='gamma' needs targets above 0"),
        (
            {"loss": "squared_error"},
            ["a"] * 12,
            "y holds text, for instance 'a', but loss='squared_error' needs numbers",
        ),
        (
            {"class_weight": "balanced"},
            Y["squared_error"],
            "class_weight goes with loss='log_loss', but the loss is 'squared_error'",
        ),
    ],
)
def test_targets_that_do_not_fit_are_refused(sets, params, y, match):
    with pytest.raises(ValueError, match=match):
        small(**params).fit(sets, y)


@pytest.mark.parametrize(
    ("y", "classifies"),
    [
        (Y["log_loss"].astype(float), False),
        (Y["log_loss"].astype(np.float32), False),
        (Y["log_loss"].astype(np.float16), False),
        (Y["log_loss"], True),
        (Y["log_loss"].astype(np.uint8), True),
        (Y["log_loss"].astype(bool), True),
        (np.array(["no", "yes"])[Y["log_loss"]], True),
        (np.array(["no", "yes"], dtype=object)[Y["log_loss"]], True),
        (np.arange(12), True),
        (list(range(12)), True),
        ([float(i) for i in range(12)], False),
    ],
    ids=str,
)
@unfinished
def test_the_loss_goes_by_the_type_of_y_not_by_its_values(sets, y, classifies):
    model = small(max_iter=2).fit(sets, y)
    assert hasattr(model, "classes_") == classifies
    explicit = small(max_iter=2, loss="log_loss" if classifies else "squared_error").fit(sets, y)
    assert_same_fit(model, explicit)
    if classifies:
        assert_array_equal(model.classes_, np.unique(y))
        n_outputs = len(model.classes_) if len(model.classes_) > 2 else 1
        assert model.coef_.shape == (n_outputs, model.transform(sets).shape[1])


@pytest.mark.parametrize(
    "dtype", ["int64", "bool", "category", "string", "Int64", "float64", "Float64"]
)
@unfinished
def test_targets_may_be_a_series_of_any_index(sets, dtype):
    pd = pytest.importorskip("pandas")
    series = pd.Series(Y["log_loss"], index=np.arange(12)[::-1]).astype(dtype)
    expected = small(max_iter=2).fit(sets, Y["log_loss"] * (1.0 if "loat" in dtype else 1))
    model = small(max_iter=2).fit(sets, series)
    assert hasattr(model, "classes_") == ("loat" not in dtype)
    assert_same_fit(model, expected)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], dtype=object),
        np.array([False, True]),
        np.array([-1, 1]),
        np.array([3, 700], dtype=np.int16),
    ],
    ids=str,
)
@unfinished
def test_names_of_classes_do_not_matter(sets, labels):
    model = small(max_iter=3).fit(sets, labels[Y["log_loss"]])
    assert_array_equal(model.classes_, labels)
    assert_same_fit(model, small(max_iter=3).fit(sets, Y["log_loss"]))


@pytest.mark.parametrize("loss", NUMBER_LOSSES)
@unfinished
def test_a_column_of_numbers_is_a_vector(sets, loss):
    flat = small(loss=loss, max_iter=3).fit(sets, Y[loss])
    column = small(loss=loss, max_iter=3).fit(sets, Y[loss][:, None])
    assert_same_fit(column, flat)


@unfinished
def test_a_column_of_labels_is_a_vector_with_a_warning(sets):
    with pytest.warns(DataConversionWarning):
        column = small(max_iter=3).fit(sets, Y["log_loss"][:, None])
    assert_same_fit(column, small(max_iter=3).fit(sets, Y["log_loss"]))


@pytest.mark.parametrize("loss", NUMBER_LOSSES)
@unfinished
def test_several_outputs_have_a_row_of_the_head_each(sets, loss):
    y = np.column_stack([Y[loss], Y[loss][::-1], Y[loss] + 1])
    model = small(loss=loss, max_iter=3).fit(sets, y)
    assert model.coef_.shape == (3, model.transform(sets).shape[1])
    assert model.intercept_.shape == (3,)
    assert raw_prediction(model, sets).shape == y.shape


@pytest.mark.parametrize("loss", [name for name in LOSSES if LOSSES[name].scales_target])
@pytest.mark.parametrize(("factor", "shift"), [(1000.0, 0.0), (1e-6, 0.0), (-3.0, 0.0), (2.0, 1e3)])
@unfinished
def test_predictions_are_in_the_units_of_y(sets, loss, factor, shift):
    y = Y[loss]
    plain = small(loss=loss, max_iter=8).fit(sets, y)
    other = small(loss=loss, max_iter=8).fit(sets, factor * y + shift)
    if factor > 0:  # where the start of the head is not turned round with y
        expected = factor * raw_prediction(plain, sets) + shift
        assert_allclose(raw_prediction(other, sets), expected, rtol=1e-6)
        assert_allclose(other.loss_, plain.loss_, rtol=1e-9)
        assert_allclose(other.coef_, factor * plain.coef_, rtol=1e-5)
    start, residue = np.mean((y - y.mean()) ** 2), y[:, None] - raw_prediction(plain, sets)
    assert np.mean(residue**2) < start


def test_a_constant_target_is_predicted_as_it_is(sets):
    model = small(tol=1e-6).fit(sets, np.full(12, 7.5))
    assert_allclose(raw_prediction(model, sets), 7.5, rtol=1e-6)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_a_log_link_starts_at_the_mean(sets, loss):
    model = small(loss=loss, max_iter=0).fit(sets, Y[loss])
    assert_allclose(np.exp(model.intercept_), Y[loss].mean())


@pytest.mark.parametrize("pooling", [*POOLINGS, POOLINGS["stats"]()], ids=str)
@pytest.mark.parametrize("loss", [*LOSSES, "three classes"])
@unfinished
def test_the_loss_is_the_objective_at_the_stored_parameters(sets, loss, pooling):
    y, weight = Y[loss], np.linspace(0.5, 2, 12)
    name = "log_loss" if loss == "three classes" else loss
    model = small(loss=name, pooling=pooling, max_iter=4).fit(sets, y, sample_weight=weight)
    targets = y if LOSSES[name].is_classifier else y[:, None]
    value = penalised_loss(model, LOSSES[name](), raw_prediction(model, sets), targets, weight)
    assert_allclose(model.loss_, value, rtol=1e-10)
    assert model.loss_ == min(model.loss_curve_) < model.loss_curve_[0]
