"""Types of numbers: float32 stays, all else is float64."""

import numpy as np
import pytest
from models import (
    Y7,
    Y,
    assert_same_fit,
    pair_of,
    regressor,
    small,
    stored,
    unfinished,
)
from numpy.testing import assert_allclose, assert_array_equal
from reference import LENGTHS

from skattn import (
    RaggedPair,
)
from skattn.pooling import POOLINGS


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


@pytest.mark.parametrize("offset", [1e3, 1e6])
@unfinished
def test_float32_tokens_are_standardised_alike_in_fit_and_transform(sets, offset):
    single = [(tokens + offset).astype(np.float32) for tokens in sets]
    double = [tokens.astype(np.float64) for tokens in single]
    model = small(max_iter=6).fit(single, Y["log_loss"])
    assert_allclose(model.transform(single), model.transform(double), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("kind", [">f4", "<f4", ">f8"])
@unfinished
def test_byte_order_changes_nothing(sets, kind):
    model = small(max_iter=6).fit(sets, Y["log_loss"])
    native = [tokens.astype(kind[1:]) for tokens in sets]
    foreign = [tokens.astype(kind) for tokens in sets]
    for taken in (slice(0, 1), slice(None)):
        expected, out = model.transform(native[taken]), model.transform(foreign[taken])
        assert_array_equal(out, expected)
        assert out.dtype == expected.dtype
        assert out.dtype.isnative


def test_float32_stays(rng):
    X = pair_of(rng)
    single = RaggedPair(X.queries.astype(np.float32), X.context.astype(np.float32))
    model = regressor().fit(X, Y7)
    assert model.transform(single).dtype == model.contextualize(single).dtype == np.float32
    assert_allclose(model.transform(single), model.transform(X), rtol=1e-4, atol=1e-5)
    mixed = RaggedPair(X.queries.astype(np.float32), X.context)
    assert model.transform(mixed).dtype == np.float64
