"""Sets without tokens."""

import numpy as np
import pytest
from models import (
    Y7,
    Y,
    assert_same_fit,
    fitted,
    pair_of,
    regressor,
    small,
    unfinished,
)
from numpy.testing import assert_allclose, assert_array_equal
from reference import LENGTHS, MASK_NAMES

from skattn import (
    RaggedArray,
    RaggedPair,
)


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


@unfinished
def test_none_is_no_empty_set(sets):
    with pytest.raises(TypeError, match="Set 2 is None. Use an empty list"):
        small(max_iter=6).fit([*sets[:2], None, *sets[3:]], Y["log_loss"])


# In a context


@pytest.mark.parametrize("side", [0, 1])
def test_empty_sides_follow_the_rule(side, rng):
    sizes = [[(2, 3), (0, 2), (1, 1)], [(2, 3), (2, 0), (1, 1)]][side]
    X, y = pair_of(rng, sizes), Y7[:3]
    model = regressor(empty="nan").fit(X, y)
    assert np.isfinite(model.loss_)
    out = model.transform(X)
    assert np.all(np.isnan(out[1]))
    assert np.all(np.isfinite(out[[0, 2]]))
    assert_allclose(model.predict(X)[1], model.intercept_[0])
    what = ["Sets", "The contexts of sets"][side]
    with pytest.raises(ValueError, match=rf"{what} \[1\] have no tokens"):
        regressor(empty="error").fit(X, y)


def test_samples_without_any_tokens_on_a_side_are_refused(rng):
    with pytest.raises(ValueError, match="Found no tokens in 2 contexts"):
        regressor().fit(
            RaggedPair(np.ones((2, 3)), RaggedArray(np.empty((0, 2)), [0, 0, 0])), [0, 1]
        )
    with pytest.raises(ValueError, match="Found no tokens in 2 sets"):
        regressor().fit(
            RaggedPair(RaggedArray(np.empty((0, 2)), [0, 0, 0]), np.ones((2, 3))), [0, 1]
        )
