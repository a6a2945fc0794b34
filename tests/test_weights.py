"""Weights of classes, of sets and of tokens."""

import numpy as np
import pytest
from models import (
    Y,
    assert_rows_equal,
    assert_same_fit,
    fitted,
    small,
    stored,
    unfinished,
)
from numpy.testing import assert_allclose, assert_array_equal
from reference import COUNTING_MASKS, LENGTHS, MASK_NAMES
from sklearn.base import clone

from skattn import (
    RaggedArray,
)
from skattn.losses import LOSSES
from skattn.pooling import POOLINGS


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


def test_sets_that_are_left_out_may_be_all_that_had_tokens(sets):
    weight = [float(n == 0) for n in LENGTHS]
    with pytest.raises(ValueError, match="no tokens in 2 sets"):
        small().fit(sets, Y["log_loss"], sample_weight=weight)


# Of classes and of sets


@pytest.mark.parametrize("class_weight", [{0: -1, 1: 3}, {0: 0, 1: 0}, {0: np.nan, 1: 1}, "x", 3])
def test_class_weights_are_checked(sets, class_weight):
    with pytest.raises(ValueError, match="class_weight must"):
        small(class_weight=class_weight).fit(sets, Y["log_loss"])


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
@pytest.mark.parametrize("loss", LOSSES)
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


# Of tokens


def counted_and_repeated(sets, rng):
    """Sets with integer token weights, and with their tokens repeated as often."""
    counts = [rng.integers(1, 4, size=len(tokens)) for tokens in sets]
    repeated = [
        np.repeat(tokens, count, axis=0) for tokens, count in zip(sets, counts, strict=True)
    ]
    return RaggedArray.from_list(sets, counts), repeated, counts


@pytest.mark.parametrize("mask", COUNTING_MASKS)
def test_integer_token_weights_equal_repeated_tokens(sets, pooling, mask, rng):
    model = fitted(sets, rng, pooling=pooling, mask=mask)
    counted, repeated, counts = counted_and_repeated(sets, rng)
    got, expected = model.transform(counted), model.transform(repeated)
    if pooling is None:  # a token's copies all give the same
        got = [np.repeat(t, c, axis=0) for t, c in zip(got, counts, strict=True)]
    assert_rows_equal(got, expected)


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
@pytest.mark.parametrize("mask", COUNTING_MASKS)
@unfinished
def test_integer_token_weights_equal_repeated_tokens_in_fit(sets, pooling, mask, loss, rng):
    counted, repeated, _ = counted_and_repeated(sets, rng)
    model = small(pooling=pooling, mask=mask, max_iter=2)
    one, two = (clone(model).fit(X, Y[loss]) for X in (counted, repeated))
    assert_allclose(one.token_mean_, two.token_mean_, rtol=1e-12)
    assert_allclose(one.token_scale_, two.token_scale_, rtol=1e-12)
    assert_allclose(one.loss_curve_[0], two.loss_curve_[0], rtol=1e-12)
    assert_same_fit(one, two, rtol=1e-7, atol=1e-9)


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
