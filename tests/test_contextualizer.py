"""AttentionContextualizer: parameters, targets, weights, and what must change nothing."""

import functools
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from reference import LENGTHS
from scipy.special import expit, softmax
from sklearn import metrics
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError

import skattn.contextualizer
from skattn import (
    AttentionContextualizer,
    RaggedArray,
    RaggedPair,
    as_ragged,
    scaled_dot_product_attention,
)
from skattn.attention import ATTENTIONS, MASKS, Attention
from skattn.losses import LOSSES
from skattn.pooling import POOLINGS, MeanPooling, StatsPooling
from skattn.solvers import SOLVERS

MASK_NAMES = [None, *MASKS]
unfinished = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
lone_tokens = pytest.mark.filterwarnings("ignore:No training set has more:UserWarning")


Y = {
    "log_loss": np.array([0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0]),
    "three classes": np.arange(12) % 3,
    "squared_error": np.linspace(-3, 8, 12) ** 2,
    "huber": np.linspace(-3, 8, 12) ** 2,
    "poisson": np.arange(12.0) % 5,
    "gamma": 0.5 + np.arange(12.0) % 5,
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


# Parameters are looked at in fit


@pytest.mark.parametrize(
    ("name", "value", "error", "match"),
    [
        ("n_heads", 0, ValueError, "n_heads must be 1 or more, but is 0"),
        ("n_heads", 2.0, TypeError, "n_heads must be an integer, but is 2.0"),
        ("n_heads", True, TypeError, "n_heads must be an integer"),
        ("d_k", -1, ValueError, "d_k must be 1 or more"),
        ("d_k", "8", TypeError, "d_k must be an integer, but is '8'"),
        ("d_v", None, TypeError, "d_v must be an integer, but is None"),
        ("d_v", 0, ValueError, "d_v must be 1 or more"),
        ("pooling", "median", ValueError, "pooling must be one of .*'mean'.*'median'"),
        (
            "pooling",
            3,
            TypeError,
            "pooling must be one of .*, but is 3, which lacks shapes",
        ),
        ("mask", "upper", ValueError, "mask must be one of .*'causal'.*'upper'"),
        ("mask", np.eye(2), TypeError, "which lacks allowed"),
        ("scale", "big", TypeError, "scale must be a number"),
        ("scale", np.inf, ValueError, "scale must be finite"),
        ("loss", "hinge", ValueError, "loss must be one of .*'auto'.*'hinge'"),
        ("loss", None, ValueError, "loss must be one of"),
        ("alpha", -1e-3, ValueError, "alpha must be finite and 0 or more, but is -0.001"),
        ("alpha", np.nan, ValueError, "alpha must be finite"),
        ("alpha", None, TypeError, "alpha must be a number, but is None"),
        ("alpha", [0.1], TypeError, "alpha must be a number"),
        ("class_weight", "even", ValueError, "class_weight"),
        ("class_weight", {5: 1.0}, ValueError, "class"),
        ("init", "zeros", ValueError, "init must be one of .*'tied'.*'zeros'"),
        ("init", np.eye(3), TypeError, "init must be one of .* dict of arrays.*ndarray"),
        ("init", {"W_X": np.eye(3)}, ValueError, "init has an array 'W_X'.*'W_Q'"),
        (
            "init",
            {"W_Q": np.eye(3)},
            ValueError,
            r"W_Q to start from has shape \(3, 3\), but must have \(3, 4\): 3 features, 2 heads",
        ),
        ("solver", "adam", ValueError, "solver must be one of .*'lbfgs'.*'adam'"),
        ("solver", None, ValueError, "solver must be one of"),
        ("max_iter", -1, ValueError, "max_iter must be 0 or more"),
        ("max_iter", 10.0, TypeError, "max_iter must be an integer"),
        ("tol", -1.0, ValueError, "tol must be finite and 0 or more"),
        ("tol", "small", ValueError, "tol must be one of .*'auto'"),
        ("empty", "skip", ValueError, "empty must be one of .*'zeros'.*'skip'"),
        ("empty", None, ValueError, "empty must be one of"),
        ("random_state", "seed", (TypeError, ValueError), "seed|random_state"),
        ("random_state", -1, ValueError, "non-negative|random_state"),
    ],
)
def test_a_parameter_that_means_nothing_is_refused_in_fit(sets, name, value, error, match):
    model = small(**{name: value})  # the constructor takes anything
    assert getattr(model, name) is value
    with pytest.raises(error, match=match):
        model.fit(sets, Y["log_loss"])
    assert not hasattr(model, "W_Q_")


@pytest.mark.parametrize("value", [np.int64(2), np.int8(2)])
def test_numpy_numbers_are_numbers(sets, value):
    model = small(n_heads=value, max_iter=value, alpha=np.float32(0.1), tol=np.float64(10))
    assert model.fit(sets, Y["log_loss"]).transform(sets).shape == (12, 8)


def test_every_parameter_has_a_default_and_a_docstring():
    names = AttentionContextualizer().get_params()
    for name in names:
        assert f"{name} : " in AttentionContextualizer.__doc__
    assert clone(AttentionContextualizer(n_heads=3)).n_heads == 3
    with pytest.raises(TypeError):
        AttentionContextualizer(4)


# What fit takes


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
    ("weight", "match"),
    [
        (np.ones(3), r"sample_weight has shape \(3,\).* 12 sets"),
        (np.ones((12, 1)), r"sample_weight has shape \(12, 1\)"),
        (np.zeros(12), "sample_weight .*all are zero|sample_weight .*not 0 throughout"),
        (np.r_[-1.0, np.ones(11)], "sample_weight .*0 or more.*from -1.0"),
        (np.r_[np.nan, np.ones(11)], "sample_weight contains NaN"),
        (np.r_[np.inf, np.ones(11)], "sample_weight contains infinity"),
    ],
)
def test_sample_weights_that_do_not_fit_are_refused(sets, weight, match):
    with pytest.raises(ValueError, match=match):
        small().fit(sets, Y["log_loss"], sample_weight=weight)


@pytest.mark.parametrize(
    ("X", "match"),
    [
        ([np.empty((0, 3))] * 12, "no tokens in 12 sets"),
        (np.full((12, 2, 3), np.nan), "no tokens in 12 sets"),
        ([np.empty((2, 0))] * 12, r"0 feature\(s\)"),
    ],
)
def test_sets_with_nothing_in_them_cannot_be_learned_from(X, match):
    with pytest.raises(ValueError, match=match):
        small().fit(X, Y["log_loss"])


def test_sets_that_are_left_out_may_be_all_that_had_tokens(sets):
    weight = [float(n == 0) for n in LENGTHS]
    with pytest.raises(ValueError, match="no tokens in 2 sets"):
        small().fit(sets, Y["log_loss"], sample_weight=weight)


def test_sets_of_one_token_each_are_warned_about(rng):
    X, y = rng.normal(size=(12, 3)), Y["log_loss"]
    with pytest.warns(UserWarning, match=r"more than one token.*identity.*pass it as \[X\]"):
        small(max_iter=0).fit(X, y)


@pytest.mark.parametrize("method", ["transform", "contextualize", "attention_weights"])
def test_nothing_is_transformed_before_fit(sets, method):
    with pytest.raises(NotFittedError):
        getattr(small(), method)(sets)
    with pytest.raises(NotFittedError):
        small().get_feature_names_out()


@pytest.mark.parametrize("method", ["transform", "contextualize", "attention_weights"])
@pytest.mark.parametrize("form", [list, lambda X: X[0], RaggedArray.from_list])
def test_sets_of_another_width_are_refused(sets, method, form, rng):
    model = fitted(sets, rng)
    X = form([rng.normal(size=(2, 5)), rng.normal(size=(3, 5))])
    with pytest.raises(ValueError, match="5 features, but AttentionContextualizer is expecting 3"):
        getattr(model, method)(X)


# Targets


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


@pytest.mark.parametrize("loss", ["squared_error", "huber", "poisson", "gamma"])
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


@pytest.mark.parametrize("loss", ["squared_error", "huber", "poisson", "gamma"])
@unfinished
def test_several_outputs_have_a_row_of_the_head_each(sets, loss):
    y = np.column_stack([Y[loss], Y[loss][::-1], Y[loss] + 1])
    model = small(loss=loss, max_iter=3).fit(sets, y)
    assert model.coef_.shape == (3, model.transform(sets).shape[1])
    assert model.intercept_.shape == (3,)
    assert raw_prediction(model, sets).shape == y.shape


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
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
    raw, coef = raw_prediction(model, sets), model.coef_
    mean = np.average(y, weights=weight)
    spread = np.sqrt(np.average((y - mean) ** 2, weights=weight))
    if loss == "log_loss":
        value = metrics.log_loss(y, expit(raw[:, 0]), sample_weight=weight)
    elif loss == "three classes":
        value = metrics.log_loss(y, softmax(raw, axis=1), sample_weight=weight)
    elif loss == "poisson":
        value = metrics.mean_poisson_deviance(y, np.exp(raw[:, 0]), sample_weight=weight) / 2
    elif loss == "gamma":
        value = metrics.mean_gamma_deviance(y, np.exp(raw[:, 0]), sample_weight=weight) / 2
    else:
        coef = coef / spread
        error = np.abs(raw[:, 0] - y) / spread
        bend = 1.35 if loss == "huber" else np.inf
        elements = np.where(error < bend, error**2 / 2, 0)
        if loss == "huber":
            elements = np.where(error < bend, elements, bend * (error - bend / 2))
        value = np.average(elements, weights=weight)
    weights = [model.W_Q_, model.W_K_, model.W_V_, coef, *model.pooling_params_.values()]
    value += model.alpha / 2 * sum(np.sum(W**2) for W in weights)
    assert_allclose(model.loss_, value, rtol=1e-10)
    assert model.loss_ == min(model.loss_curve_) < model.loss_curve_[0]


# Weights of classes and of sets


@pytest.mark.parametrize("labels", [np.array([0, 1, 2]), np.array(["a", "b", "c"])], ids=str)
@unfinished
def test_class_weights_are_sample_weights(sets, labels):
    y = labels[Y["three classes"]]
    factors = np.array([0.5, 2.0, 3.0])
    model = small(max_iter=4, class_weight=dict(zip(labels.tolist(), factors, strict=True)))
    expected = small(max_iter=4).fit(sets, y, sample_weight=factors[Y["three classes"]])
    assert_same_fit(model.fit(sets, y), expected, rtol=1e-12)


@unfinished
def test_class_weights_multiply_sample_weights(sets):
    y, weight = Y["log_loss"], np.linspace(0.5, 2, 12)
    model = small(max_iter=4, class_weight={0: 3.0, 1: 0.5}).fit(sets, y, sample_weight=weight)
    product = weight * np.where(y == 0, 3.0, 0.5)
    assert_same_fit(model, small(max_iter=4).fit(sets, y, sample_weight=product), rtol=1e-12)


@unfinished
def test_balanced_class_weights_even_out_the_classes(sets):
    y = np.array([0] * 9 + [1] * 3)
    model = small(max_iter=4, class_weight="balanced").fit(sets, y)
    expected = small(max_iter=4).fit(sets, y, sample_weight=np.where(y == 0, 12 / 18, 2.0))
    assert_same_fit(model, expected, rtol=1e-12)


@unfinished
def test_class_weights_of_zero_leave_a_class_without_a_say(sets):
    y = np.where(Y["log_loss"] == 0, "a", np.where(Y["three classes"] == 0, "b", "c"))
    model = small(max_iter=4, class_weight={"a": 0.0}).fit(sets, y)
    assert_array_equal(model.classes_, ["a", "b", "c"])
    assert all(np.all(np.isfinite(array)) for array in stored(model).values())


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "huber", "poisson", "gamma"])
@unfinished
def test_integer_weights_equal_repeated_sets(sets, loss, pooling):
    y, counts = Y[loss], np.array([1, 2, 0, 3, 1, 1, 0, 1, 2, 1, 1, 1])
    rows = np.repeat(np.arange(12), counts)
    model = small(loss=loss, pooling=pooling, max_iter=3)
    weighted = clone(model).fit(sets, y, sample_weight=counts)
    repeated = clone(model).fit([sets[i] for i in rows], y[rows])
    assert_same_fit(weighted, repeated, rtol=1e-7, atol=1e-9)
    assert_allclose(weighted.token_mean_, repeated.token_mean_, rtol=1e-12)
    assert_allclose(weighted.token_scale_, repeated.token_scale_, rtol=1e-12)
    assert_allclose(weighted.loss_curve_[0], repeated.loss_curve_[0], rtol=1e-12)


@unfinished
def test_a_set_of_weight_zero_is_not_there(sets):
    y = np.where(np.arange(12) == 5, 7, Y["log_loss"])
    X = [1e6 * tokens if i == 5 else tokens for i, tokens in enumerate(sets)]
    rest = np.arange(12) != 5
    model = small(max_iter=3).fit(X, y, sample_weight=rest)
    assert_array_equal(model.classes_, [0, 1])
    alone = small(max_iter=3).fit([tokens for i, tokens in enumerate(X) if i != 5], y[rest])
    assert_same_fit(model, alone)


@unfinished
def test_a_common_factor_of_weights_changes_nothing(sets):
    weight = np.linspace(0.5, 2, 12)
    model = small(max_iter=3).fit(sets, Y["log_loss"], sample_weight=weight)
    other = small(max_iter=3).fit(sets, Y["log_loss"], sample_weight=8 * weight)
    assert_same_fit(model, other, rtol=1e-9)


# Standardisation


@unfinished
def test_tokens_are_standardised_over_all_training_tokens(sets):
    model = small(max_iter=0).fit(sets, Y["log_loss"])
    tokens = np.vstack(sets)
    assert_allclose(model.token_mean_, tokens.mean(axis=0), rtol=1e-12)
    assert_allclose(model.token_scale_, tokens.std(axis=0), rtol=1e-12)
    bare = small(max_iter=0, standardize=False).fit(sets, Y["log_loss"])
    assert_array_equal(bare.token_mean_, np.zeros(3))
    assert_array_equal(bare.token_scale_, np.ones(3))


@unfinished
def test_standardisation_does_not_depend_on_its_batches(sets, monkeypatch):
    whole = small(max_iter=2).fit(sets, Y["log_loss"])
    monkeypatch.setattr("skattn._network.SCALER_BATCH", 3)
    assert_same_fit(whole, small(max_iter=2).fit(sets, Y["log_loss"]), rtol=1e-9)


@pytest.mark.parametrize("order", [1, -1])
@unfinished
def test_a_batch_of_tokens_without_weight_does_no_harm(sets, monkeypatch, order):
    monkeypatch.setattr("skattn._network.SCALER_BATCH", 4)
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2][::order])
    model = small(max_iter=2, class_weight={0: 0.0}).fit(sets, y)
    tokens = np.vstack([tokens for tokens, label in zip(sets, y, strict=True) if label])
    assert_allclose(model.token_mean_, tokens.mean(axis=0), rtol=1e-10)
    assert_allclose(model.token_scale_, tokens.std(axis=0), rtol=1e-10)


@unfinished
def test_units_of_the_features_do_not_matter(sets):
    model = small(max_iter=5).fit(sets, Y["log_loss"])
    units, shift = np.array([1e3, 1e-4, 2.0]), np.array([5.0, -1.0, 100.0])
    other_sets = [tokens * units + shift for tokens in sets]
    other = small(max_iter=5).fit(other_sets, Y["log_loss"])
    assert_allclose(other.transform(other_sets), model.transform(sets), rtol=1e-6, atol=1e-8)


@unfinished
def test_a_constant_feature_does_no_harm(sets):
    X = [np.column_stack([tokens, np.full(len(tokens), 3.0)]) for tokens in sets]
    model = small(max_iter=3).fit(X, Y["log_loss"])
    assert np.all(np.isfinite(model.transform(X)))
    assert model.token_scale_[3] == 1


# The formula


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_token_outputs_are_the_formula_head_by_head(sets, rng, mask, scale):
    model = fitted(sets, rng, mask=mask, scale=scale, pooling=None)
    tokens, weights = model.transform(sets), model.attention_weights(sets)
    for X, out, A in zip(sets, tokens, weights, strict=True):
        X = (X - model.token_mean_) / model.token_scale_
        n = len(X)
        i, j = np.indices((n, n))
        allowed = None if mask is None else MASKS[mask]().allowed(i, j)
        assert A.shape == (2, n, n)
        for h in range(2):
            columns = slice(2 * h, 2 * h + 2)
            Q, K = X @ model.W_Q_[:, columns], X @ model.W_K_[:, columns]
            V = X @ model.W_V_[:, columns] + model.b_V_[columns]
            Z, expected = scaled_dot_product_attention(
                Q, K, V, mask=allowed, scale=scale, return_weights=True
            )
            seen = np.ones(n, bool) if mask != "exclude_self" or n > 1 else np.zeros(n, bool)
            assert_allclose(A[h], expected, rtol=1e-10, atol=1e-14)
            assert_allclose(out[:, columns], Z * seen[:, None], rtol=1e-10, atol=1e-12)
            S = Q @ K.T * (2**-0.5 if scale is None else scale)
            S = S if allowed is None else np.where(allowed, S, -np.inf)
            total = np.exp(S).sum(axis=1)
            lse = np.log(np.where(seen, total, 1))
            assert_allclose(out[:, 4 + h], lse, rtol=1e-9, atol=1e-10)
            assert_allclose(out[:, 6 + h], np.diag(expected), rtol=1e-10, atol=1e-14)


def test_without_learning_it_is_the_textbook_formula(seed_tokens):
    formula = AttentionContextualizer(
        n_heads=1,
        d_k=2,
        d_v=2,
        init="identity",
        standardize=False,
        score_statistics=False,
        max_iter=0,
        pooling=None,
    ).fit([seed_tokens])
    expected = [[0.654218, 0.628224], [0.601719, 0.645381], [0.155590, 0.789868]]
    assert_allclose(formula.transform([seed_tokens])[0], expected, atol=5e-7)
    cat = formula.attention_weights([seed_tokens])[0][0, 0]
    assert_allclose(cat, [0.432425, 0.388908, 0.178667], atol=5e-7)


@pytest.mark.parametrize("name", POOLINGS)
def test_pooled_outputs_are_the_pooling_of_token_outputs(sets, rng, name):
    model = fitted(sets, rng, pooling=name)
    tokens = model.contextualize(sets)
    assert isinstance(tokens, RaggedArray)
    expected, _ = POOLINGS[name]().forward(model.pooling_params_, tokens)
    assert_allclose(model.transform(sets), expected, rtol=1e-12, atol=1e-12)


def test_score_statistics_are_extra_columns(sets, rng):
    full = fitted(sets, np.random.default_rng(0), pooling=None)
    bare = fitted(sets, np.random.default_rng(0), pooling=None, score_statistics=False)
    assert full.transform(sets).n_features == 2 * (2 + 2)
    assert bare.transform(sets).n_features == 2 * 2
    assert_allclose(bare.transform(sets).values, full.transform(sets).values[:, :4], rtol=1e-12)


def test_asking_for_weights_changes_nothing(sets, rng):
    model = fitted(sets, rng)
    before, state = model.transform(sets), pickle.dumps(model)
    weights = model.attention_weights(sets)
    model.contextualize(sets)
    assert_array_equal(model.transform(sets), before)
    assert pickle.dumps(model) == state
    assert [A.shape for A in weights] == [(2, n, n) for n in LENGTHS]
    for A in weights:
        assert_allclose(A.sum(axis=-1), 1, rtol=1e-12)


def test_weights_that_take_too_much_memory_are_refused(sets, rng, monkeypatch):
    model = fitted(sets, rng)
    n_bytes = 2 * 8 * sum(n * n for n in LENGTHS)
    monkeypatch.setattr("skattn._network.WEIGHTS_LIMIT", n_bytes)
    assert len(model.attention_weights(sets)) == 12
    monkeypatch.setattr("skattn._network.WEIGHTS_LIMIT", n_bytes - 1)
    with pytest.raises(ValueError, match="12 sets, the longest of 9 tokens.*fewer sets at a time"):
        model.attention_weights(sets)


@unfinished
def test_a_pooling_may_be_an_instance_or_one_of_your_own(sets):
    class Mean:  # not of the table, and without the shortcut of linear poolings
        def n_features_out(self, n_features):
            return n_features

        def shapes(self, n_features):
            return {}

        def init_params(self, n_features, rng):
            return {}

        def forward(self, params, tokens):
            pooled, (tokens, p) = MeanPooling().forward(params, tokens)
            return pooled, (tokens, p)

        def backward(self, params, cache, d_pooled):
            return MeanPooling().backward(params, cache, d_pooled)

    named = small(max_iter=5).fit(sets, Y["log_loss"])
    assert_same_fit(named, small(max_iter=5, pooling=MeanPooling()).fit(sets, Y["log_loss"]))
    own = small(max_iter=5, pooling=Mean()).fit(sets, Y["log_loss"])
    assert_allclose(own.transform(sets), named.transform(sets), rtol=1e-7, atol=1e-9)
    assert_allclose(own.loss_curve_[0], named.loss_curve_[0], rtol=1e-12)


# Where fit starts


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


# Refitting


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


# Words on the way


@pytest.mark.parametrize("solver", SOLVERS)
@unfinished
def test_verbose_prints_a_line_per_iteration(sets, solver, capsys):
    quiet = small(solver=solver, max_iter=3).fit(sets, Y["log_loss"])
    assert capsys.readouterr().out == ""
    loud = small(solver=solver, max_iter=3, verbose=1).fit(sets, Y["log_loss"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == loud.n_iter_ + 1
    for i, line in enumerate(lines):
        assert line.startswith(f"[AttentionContextualizer] iteration {i:4d}   objective ")
        assert f"{loud.loss_curve_[i]:.6e}" in line
    assert_same_fit(loud, quiet)


def test_a_fit_that_is_cut_short_says_so(sets):
    match = r"after 1 iterations: .*max \|gradient\| is .*Increase max_iter"
    with pytest.warns(ConvergenceWarning, match=match):
        model = small(max_iter=1).fit(sets, Y["log_loss"])
    assert not model.converged_


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_fit_that_converges_says_nothing(sets, solver):
    model = small(solver=solver, max_iter=500, tol=1e-3).fit(sets, Y["log_loss"])
    assert model.converged_


def test_the_warning_points_at_the_line_that_called_fit(sets):
    with pytest.warns(ConvergenceWarning) as record:
        small(max_iter=1).fit(sets, Y["log_loss"])
    assert record[0].filename == __file__


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_objective_that_is_not_finite_is_never_a_success(sets, monkeypatch, bad):
    calls = fail_after(monkeypatch, 4, lambda: (bad, np.zeros(1)))
    with pytest.warns(ConvergenceWarning, match="infinite or NaN.*standardize=True"):
        model = small().fit(sets, Y["log_loss"])
    assert len(calls) == 6  # a restart from the best point tries once more
    assert not model.converged_
    assert np.isfinite(model.loss_)
    assert np.all(np.isfinite(model.transform(sets)))


def test_an_objective_that_is_not_finite_at_the_start_is_an_error(sets, monkeypatch):
    fail_after(monkeypatch, 0, lambda: (np.nan, np.zeros(1)))
    with pytest.raises(ValueError, match="not finite at the start"):
        small().fit(sets, Y["log_loss"])


# Interrupts


def fail_after(monkeypatch, n_calls, then):
    """Let the objective work for some calls, then do something else; the list of calls grows."""
    objective = skattn.contextualizer.Objective
    works, calls = objective.value_and_grad, []

    def value_and_grad(self, theta):
        calls.append(1)
        return then() if len(calls) > n_calls else works(self, theta)

    monkeypatch.setattr(objective, "value_and_grad", value_and_grad)
    return calls


def interrupt(*args, **kwargs):
    """What control-C does."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("pooling", ["mean", "attention", None])
@pytest.mark.parametrize("n_calls", [0, 1, 5])
@unfinished
def test_an_interrupt_leaves_the_best_point_and_is_raised_again(
    sets, monkeypatch, n_calls, pooling
):
    model = small(pooling=pooling, warm_start=True, max_iter=6, tol=1e-8)
    with monkeypatch.context() as patch:
        fail_after(patch, n_calls, interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.fit(sets, Y["log_loss"])
    out = model.transform(sets)
    assert np.all(np.isfinite(out.values if pooling is None else out))
    assert len(model.get_feature_names_out()) == 8
    assert not model.converged_
    reached = model.loss_
    model.fit(sets, Y["log_loss"])  # goes on from there
    if n_calls:
        assert_allclose(model.loss_curve_[0], reached, rtol=1e-10)
    if n_calls == 5:
        uninterrupted = small(pooling=pooling, max_iter=0).fit(sets, Y["log_loss"])
        assert reached < uninterrupted.loss_


@unfinished
def test_an_interrupt_while_printing_is_one_too(sets, monkeypatch):
    model = small(verbose=1, max_iter=30)
    monkeypatch.setattr("builtins.print", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(sets, Y["log_loss"])
    assert np.all(np.isfinite(model.transform(sets)))
    assert model.n_iter_ == 0


# Manners of a scikit-learn estimator


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@unfinished
def test_fit_transform_is_fit_and_transform(sets, pooling):
    weight = np.linspace(0.5, 2, 12)
    one = small(pooling=pooling, max_iter=3).fit_transform(
        sets, Y["log_loss"], sample_weight=weight
    )
    model = small(pooling=pooling, max_iter=3).fit(sets, Y["log_loss"], sample_weight=weight)
    two = model.transform(sets)
    if pooling is None:
        assert_array_equal(one.offsets, two.offsets)
        one, two = one.values, two.values
    assert_array_equal(one, two)


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("score_statistics", [True, False])
def test_feature_names_are_as_many_as_columns(sets, pooling, score_statistics):
    model = small(pooling=pooling, score_statistics=score_statistics, max_iter=0).fit(sets)
    names, out = model.get_feature_names_out(), model.transform(sets)
    assert len(set(names)) == len(names) == out.shape[-1]
    assert names[0] == "attentioncontextualizer0"


@pytest.mark.parametrize("how", ["set_output", "config_context"])
@pytest.mark.parametrize("transform", ["pandas", "default"])
def test_pooled_outputs_are_wrapped_as_asked(sets, rng, how, transform):
    pd = pytest.importorskip("pandas")
    model = fitted(sets, rng)
    plain = model.transform(sets)
    if how == "set_output":
        out = model.set_output(transform=transform).transform(sets)
    else:
        with sklearn.config_context(transform_output=transform):
            out = model.transform(sets)
    assert isinstance(out, pd.DataFrame if transform == "pandas" else np.ndarray)
    assert_array_equal(np.asarray(out), plain)
    if transform == "pandas":
        assert list(out.columns) == list(model.get_feature_names_out())


@pytest.mark.parametrize("how", ["set_output", "config_context"])
@pytest.mark.parametrize("method", ["transform", "fit_transform"])
@pytest.mark.parametrize("transform", ["pandas", "polars", "default"])
def test_token_outputs_are_never_wrapped(sets, how, method, transform):
    model = small(pooling=None, max_iter=0)
    if how == "set_output":
        model.set_output(transform=transform)
    setting = {} if how == "set_output" else {"transform_output": transform}
    with sklearn.config_context(**setting):
        if method == "transform":
            out = model.fit(sets, Y["log_loss"]).transform(sets)
        else:
            out = model.fit_transform(sets, Y["log_loss"])
    assert isinstance(out, RaggedArray)
    assert_array_equal(out.lengths, LENGTHS)


def test_a_subclass_keeps_these_manners(sets, rng):
    pytest.importorskip("pandas")

    class Doubled(AttentionContextualizer):
        def transform(self, X):
            out = super().transform(X)
            return out.with_values(2 * out.values) if self.pooling is None else 2 * out

    for pooling in ("mean", None):
        params = {"pooling": pooling, "max_iter": 0, "random_state": 0}
        plain = AttentionContextualizer(**params).fit(sets).transform(sets)
        out = Doubled(**params).set_output(transform="pandas").fit(sets).transform(sets)
        if pooling is None:
            assert_array_equal(out.values, 2 * plain.values)
        else:
            assert_array_equal(out.to_numpy(), 2 * plain)
            assert out.columns[0] == "doubled0"


@pytest.mark.parametrize("pooling", ["mean", "attention", None, StatsPooling()], ids=str)
@unfinished
def test_it_survives_pickle_and_clone(sets, pooling):
    model = small(pooling=pooling, max_iter=3, init={"b_V": np.ones(4)}).fit(sets, Y["log_loss"])
    again = pickle.loads(pickle.dumps(model))
    assert_same_fit(model, again)
    outs = [m.transform(sets) for m in (model, again)]
    assert_array_equal(*[out.values if pooling is None else out for out in outs])
    fresh = clone(model)
    assert not hasattr(fresh, "W_Q_")
    assert fresh.get_params().keys() == model.get_params().keys()
    assert_same_fit(model, fresh.fit(sets, Y["log_loss"]))


@unfinished
def test_fit_changes_no_parameter(sets):
    init = {"W_V": np.ones((3, 4))}
    model = small(init=init, pooling="attention", max_iter=2, class_weight={0: 1.0, 1: 2.0})
    before = model.get_params()
    model.fit(sets, Y["log_loss"]).transform(sets)
    assert all(model.get_params()[name] is value for name, value in before.items())


@lone_tokens
def test_a_frame_of_numbers_has_named_features(rng):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(rng.normal(size=(12, 3)), columns=["a", "b", "c"])
    model = small(max_iter=0).fit(frame, Y["log_loss"])
    assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
    assert model.n_features_in_ == 3
    assert_array_equal(model.transform(frame), model.transform(frame.to_numpy().tolist()))
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(frame[["b", "a", "c"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.transform(frame.to_numpy())
    model.fit(frame.to_numpy(), Y["log_loss"])
    assert not hasattr(model, "feature_names_in_")
    model.fit(frame, Y["log_loss"]).fit([frame.to_numpy()] * 12, Y["log_loss"])
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("n_features", [1, 2])
def test_the_name_of_a_column_of_sets_is_no_name_of_a_feature(n_features, rng):
    pd = pytest.importorskip("pandas")
    cells = [rng.normal(size=(n + 1, n_features)) for n in LENGTHS]
    frame = pd.DataFrame({"bag": pd.Series(cells)})
    model = small(max_iter=0).fit(frame, Y["log_loss"])
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == n_features
    for X in (cells, frame["bag"], frame, frame.rename(columns={"bag": "basket"})):
        assert_array_equal(model.transform(X), model.transform(frame))


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("standardize", [True, False])
@unfinished
def test_float32_in_is_float32_out(sets, pooling, standardize):
    single = [tokens.astype(np.float32) for tokens in sets]
    model = small(pooling=pooling, standardize=standardize, max_iter=2).fit(single, Y["log_loss"])
    out = model.transform(single)
    assert out.dtype == np.float32
    assert model.contextualize(single).dtype == np.float32
    assert all(A.dtype == np.float32 for A in model.attention_weights(single))
    assert all(array.dtype == np.float64 for array in stored(model).values())
    double = model.transform([tokens.astype(float) for tokens in single])
    assert double.dtype == np.float64
    if pooling is None:
        out, double = out.values, double.values
    assert_allclose(out, double, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float16, bool])
@unfinished
def test_other_numbers_count_as_float64(dtype, rng):
    sets = [rng.integers(0, 2, size=(n, 3)).astype(dtype) for n in LENGTHS]
    model = small(max_iter=2).fit(sets, Y["log_loss"])
    expected = [tokens.astype(float) for tokens in sets]
    assert_same_fit(model, small(max_iter=2).fit(expected, Y["log_loss"]))
    assert_array_equal(model.transform(sets), model.transform(expected))


# What must change nothing


@pytest.fixture(params=[*POOLINGS, "None"])
def pooling(request):
    """Each pooling by name, and none."""
    return None if request.param == "None" else request.param


@pytest.fixture(params=MASK_NAMES, ids=str)
def model(request, sets, pooling, rng):
    """A model of every pooling and mask, at parameters of no symmetry."""
    return fitted(sets, rng, pooling=pooling, mask=request.param)


def row_by_row(out):
    """What transform gives, as one array per set."""
    return list(out)


def assert_rows_equal(got, expected, atol=1e-12):
    """Check two outputs set by set."""
    for a, b in zip(row_by_row(got), row_by_row(expected), strict=True):
        assert_allclose(a, b, rtol=1e-12, atol=atol)


def test_the_order_of_sets_does_not_matter(model, sets, rng):
    order = rng.permutation(12)
    got, expected = model.transform([sets[i] for i in order]), model.transform(sets)
    assert_rows_equal(got, [row_by_row(expected)[i] for i in order])


def test_a_set_does_not_depend_on_the_others(model, sets):
    together = row_by_row(model.transform(sets))
    for i, tokens in enumerate(sets):
        assert_rows_equal(model.transform([tokens]), [together[i]])


def test_a_set_may_come_twice(model, sets):
    got = row_by_row(model.transform([*sets, *sets]))
    assert_rows_equal(got[:12], got[12:])


def test_padding_does_not_matter(model, sets):
    expected = model.transform(sets)
    padded = RaggedArray.from_list(sets).to_padded()
    assert_rows_equal(model.transform(padded), expected, atol=0)
    backwards = [tokens[::-1] for tokens in sets]
    assert_rows_equal(model.transform(padded[:, ::-1]), model.transform(backwards), atol=0)
    ghosts = np.concatenate([padded, np.full((12, 50, 3), np.nan)], axis=1)
    assert_rows_equal(model.transform(ghosts), expected, atol=0)


@pytest.mark.parametrize("chunk_bytes", [1, 200, 3000, 2**30])
def test_the_size_of_chunks_does_not_matter(model, sets, monkeypatch, chunk_bytes, rng):
    sets = [*sets, rng.normal(size=(150, 3))]  # longer than a block of rows
    expected, tokens = model.transform(sets), model.contextualize(sets)
    chunked = functools.partial(Attention, chunk_bytes=chunk_bytes)
    monkeypatch.setitem(ATTENTIONS, "scaled_dot_product", chunked)
    assert_rows_equal(model.transform(sets), expected)
    assert_rows_equal(model.contextualize(sets), tokens)


@pytest.mark.parametrize("chunk_bytes", [1, 200, 3000])
@unfinished
def test_the_size_of_chunks_does_not_matter_in_fit(sets, pooling, monkeypatch, chunk_bytes):
    whole = small(pooling=pooling, max_iter=2).fit(sets, Y["log_loss"])
    chunked = functools.partial(Attention, chunk_bytes=chunk_bytes)
    monkeypatch.setitem(ATTENTIONS, "scaled_dot_product", chunked)
    parts = small(pooling=pooling, max_iter=2).fit(sets, Y["log_loss"])
    assert_same_fit(whole, parts, rtol=1e-8, atol=1e-10)


@unfinished
def test_the_order_of_sets_does_not_matter_in_fit(sets, pooling, rng):
    order = rng.permutation(12)
    straight = small(pooling=pooling, max_iter=2).fit(sets, Y["log_loss"])
    mixed = small(pooling=pooling, max_iter=2).fit([sets[i] for i in order], Y["log_loss"][order])
    assert_same_fit(straight, mixed, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mask", [None, "exclude_self", "diagonal"])
def test_the_order_of_tokens_does_not_matter_unless_masked_causally(sets, pooling, mask, rng):
    model = fitted(sets, rng, pooling=pooling, mask=mask)
    orders = [rng.permutation(len(tokens)) for tokens in sets]
    got = model.transform([tokens[order] for tokens, order in zip(sets, orders, strict=True)])
    expected = row_by_row(model.transform(sets))
    if pooling is None:
        expected = [tokens[order] for tokens, order in zip(expected, orders, strict=True)]
    assert_rows_equal(got, expected)


def objects(cells):
    """An object array of shape (n,)."""
    out = np.empty(len(cells), dtype=object)
    out[:] = cells
    return out


CONTAINERS = {
    "tuple": tuple,
    "nested lists": lambda sets: [tokens.tolist() for tokens in sets],
    "object array": objects,
    "RaggedArray": RaggedArray.from_list,
    "as_ragged": as_ragged,
    "3-D": lambda sets: RaggedArray.from_list(sets).to_padded(),
    "masked": lambda sets: np.ma.masked_invalid(RaggedArray.from_list(sets).to_padded()),
    "series": lambda sets: pytest.importorskip("pandas").Series(sets),
    "Fortran": lambda sets: [np.asfortranarray(tokens) for tokens in sets],
}


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
@unfinished
def test_the_container_does_not_matter(sets, pooling, container):
    expected = small(pooling=pooling, max_iter=2).fit(sets, Y["log_loss"])
    got = small(pooling=pooling, max_iter=2).fit(container(sets), Y["log_loss"])
    assert_same_fit(expected, got)
    assert_rows_equal(got.transform(container(sets)), expected.transform(sets), atol=0)


def test_many_threads_may_transform_at_once(model, sets):
    expected = model.transform(sets)
    with ThreadPoolExecutor(20) as pool:
        for out in pool.map(model.transform, [sets] * 20):
            assert_rows_equal(out, expected, atol=0)


def test_inputs_are_left_as_they_are(model, sets):
    before = pickle.dumps(sets)
    for tokens in sets:
        tokens.flags.writeable = False
    out = model.transform(sets)
    model.contextualize(sets).values[...] = 0
    (out.values if model.pooling is None else out)[...] = 0
    assert pickle.dumps([tokens.copy() for tokens in sets]) == before


# Token weights


def counted_and_repeated(sets, rng):
    """Sets with integer token weights, and with their tokens repeated as often."""
    counts = [rng.integers(1, 4, size=len(tokens)) for tokens in sets]
    repeated = [
        np.repeat(tokens, count, axis=0) for tokens, count in zip(sets, counts, strict=True)
    ]
    return RaggedArray.from_list(sets, counts), repeated, counts


@pytest.mark.parametrize("mask", [None, "diagonal"])
def test_integer_token_weights_equal_repeated_tokens(sets, pooling, mask, rng):
    model = fitted(sets, rng, pooling=pooling, mask=mask)
    counted, repeated, counts = counted_and_repeated(sets, rng)
    got, expected = model.transform(counted), model.transform(repeated)
    if pooling is None:  # a token's copies all give the same
        got = [np.repeat(t, c, axis=0) for t, c in zip(got, counts, strict=True)]
    assert_rows_equal(got, expected)


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
@pytest.mark.parametrize("mask", [None, "diagonal"])
@unfinished
def test_integer_token_weights_equal_repeated_tokens_in_fit(sets, pooling, mask, loss, rng):
    counted, repeated, _ = counted_and_repeated(sets, rng)
    model = small(pooling=pooling, mask=mask, max_iter=2)
    one, two = (clone(model).fit(X, Y[loss]) for X in (counted, repeated))
    assert_allclose(one.token_mean_, two.token_mean_, rtol=1e-12)
    assert_allclose(one.token_scale_, two.token_scale_, rtol=1e-12)
    assert_allclose(one.loss_curve_[0], two.loss_curve_[0], rtol=1e-12)
    assert_same_fit(one, two, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("mask", ["causal", "exclude_self"])
@pytest.mark.parametrize("weights", [2.0, 0.5])
def test_token_weights_that_a_mask_cannot_count_are_refused(sets, mask, weights, rng):
    X = RaggedArray.from_list(sets, [np.full(len(tokens), weights) for tokens in sets])
    with pytest.raises(ValueError, match=f"no meaning with mask='{mask}'.*Repeat the tokens"):
        small(mask=mask).fit(X, Y["log_loss"])
    with pytest.raises(ValueError, match="no meaning"):
        fitted(sets, rng, mask=mask).transform(X)


@pytest.mark.parametrize("mask", MASK_NAMES)
def test_tokens_of_weight_zero_are_not_there(sets, pooling, mask, rng):
    model = fitted(sets, rng, pooling=pooling, mask=mask)
    ghosts = [np.insert(tokens, len(tokens) // 2, 1e9, axis=0) for tokens in sets]
    weights = [np.insert(np.ones(len(tokens)), len(tokens) // 2, 0) for tokens in sets]
    X = RaggedArray.from_list(ghosts, weights)
    assert_rows_equal(model.transform(X), model.transform(sets), atol=0)
    again = fitted(X, np.random.default_rng(0), pooling=pooling, mask=mask)
    assert_allclose(again.token_mean_, model.token_mean_)
    assert [A.shape[-1] for A in model.attention_weights(X)] == list(LENGTHS)


def test_a_common_token_weight_changes_no_average(sets, rng):
    for pooling in ("mean", "max", "stats", "attention"):
        model = fitted(sets, rng, pooling=pooling, score_statistics=False)
        X = RaggedArray.from_list(sets, [np.full(len(tokens), 3.7) for tokens in sets])
        assert_allclose(model.transform(X), model.transform(sets), rtol=1e-10, atol=1e-12)


# Sets without tokens


@pytest.mark.parametrize("mask", MASK_NAMES)
def test_empty_sets_are_zeros_nan_or_an_error(sets, pooling, mask, rng):
    model = fitted(sets, rng, pooling=pooling, mask=mask)
    plain = model.transform(sets)
    empty = np.array(LENGTHS) == 0
    if pooling is None:
        assert_array_equal(plain.lengths, LENGTHS)
    else:
        assert_array_equal(plain[empty], np.zeros((2, plain.shape[1])))
    model.set_params(empty="nan")
    if pooling is not None:
        out = model.transform(sets)
        assert np.isnan(out[empty]).all()
        assert_array_equal(out[~empty], plain[~empty])
    model.set_params(empty="error")
    for method in (model.transform, model.contextualize, model.attention_weights):
        with pytest.raises(ValueError, match=r"Sets \[1, 6\] have no tokens.*empty='zeros'"):
            method(sets)
    assert len(model.transform([tokens for tokens in sets if len(tokens)])) == 10


@pytest.mark.parametrize("empty", ["zeros", "nan"])
@unfinished
def test_fit_takes_empty_sets_as_zeros(sets, pooling, empty):
    model = small(pooling=pooling, empty=empty, max_iter=2).fit(sets, Y["log_loss"])
    assert np.isfinite(model.loss_)
    assert_same_fit(model, small(pooling=pooling, max_iter=2).fit(sets, Y["log_loss"]))


def test_empty_sets_are_refused_in_fit_where_they_are_an_error(sets):
    with pytest.raises(ValueError, match=r"Sets \[1, 6\] have no tokens"):
        small(empty="error").fit(sets, Y["log_loss"])


@pytest.mark.parametrize(
    "X",
    [
        [[], []],
        [np.empty((0, 3))] * 2,
        np.full((2, 4, 3), np.nan),
        RaggedArray.from_list([[], []]),
        RaggedArray(np.ones((2, 3)), [0, 1, 2], weights=[0, 0]),
    ],
    ids=["lists", "arrays", "padding", "RaggedArray", "weights of zero"],
)
def test_nothing_but_empty_sets_can_be_transformed(model, X):
    out = model.transform(X)
    if model.pooling is None:
        assert (out.shape, out.n_tokens) == ((2, None, 8), 0)
    else:
        assert_array_equal(out, np.zeros((2, len(model.get_feature_names_out()))))
    assert [A.shape for A in model.attention_weights(X)] == [(2, 0, 0)] * 2


# Real use, in small


def test_it_learns_what_averages_cannot_say():
    rng = np.random.default_rng(0)
    X = [rng.choice([-1.0, 1.0], size=(2, 1)) for _ in range(120)]
    y = np.array([int(tokens[0, 0] == tokens[1, 0]) for tokens in X])
    X = [np.column_stack([tokens, 0.1 * rng.normal(size=(2, 2))]) for tokens in X]
    model = small(alpha=1e-3, max_iter=300, tol=1e-3).fit(X[:80], y[:80])
    assert model.converged_
    assert np.mean((raw_prediction(model, X[80:])[:, 0] > 0) == y[80:]) > 0.95


def test_without_tol_a_fit_is_a_budget_of_iterations(sets):
    budget = small(max_iter=3, tol=None).fit(sets, np.arange(12.0))  # warnings are errors
    assert budget.n_iter_ == 3
    assert not budget.converged_
    with pytest.warns(ConvergenceWarning):
        strict = small(max_iter=3, tol=0.0).fit(sets, np.arange(12.0))
    assert_same_fit(budget, strict)


def test_without_tol_a_fit_says_that_its_objective_is_no_longer_finite(sets):
    far = [1e4 * tokens for tokens in sets]  # exp of the first trial step overflows
    broken = small(n_heads=1, alpha=1e-3, tol=None, standardize=False, loss="poisson")
    with pytest.warns(ConvergenceWarning, match=r"infinite or NaN; max \|gradient\| is \S+ Check"):
        broken.fit(far, np.arange(12.0))
    assert broken.n_iter_ < broken.max_iter
