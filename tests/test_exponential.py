"""Powers of two: each way agrees with exp2, over the whole range, in place and in threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skattn import _exponential
from skattn._exponential import PIECE, _by_exp, _by_exp2, _by_table, exp2_in_place

# Each way with its type, the largest |S| of the kernels, and the relative error it may have.
WAYS = [
    (exp2_in_place, np.float64, 200, 1e-15),
    (exp2_in_place, np.float32, 60, 4e-6),
    (_by_table, np.float64, 200, 1e-15),
    (_by_table, np.float64, 1000, 1e-15),
    (_by_exp, np.float32, 60, 4e-6),
    (_by_exp2, np.float64, 200, 1e-15),
    (_by_exp2, np.float32, 60, 4e-7),
]


def powers(way, S):
    out = S.copy()
    assert way(out) is None
    return out


@pytest.mark.parametrize(("way", "dtype", "limit", "tolerance"), WAYS)
def test_every_way_is_exp2_over_its_range(way, dtype, limit, tolerance, rng):
    near_edges = (
        np.arange(-8 * limit, 8 * limit + 1) / 8 + rng.choice([0, 1, -1], 16 * limit + 1) / 4096
    )
    S = np.concatenate([rng.uniform(-limit, limit, 100_000), rng.normal(size=100_000), near_edges])
    S = np.clip(S, -limit, limit).astype(dtype)
    expected = np.exp2(S.astype(np.longdouble))
    out = powers(way, S)
    assert out.dtype == dtype
    assert np.max(np.abs(out / expected - 1)) <= tolerance


@pytest.mark.parametrize(("way", "dtype", "limit", "tolerance"), WAYS)
def test_whole_numbers_give_their_power(way, dtype, limit, tolerance):
    S = np.arange(-limit, limit + 1).astype(dtype)
    np.testing.assert_allclose(powers(way, S), np.exp2(S), rtol=tolerance)


@pytest.mark.parametrize(("way", "dtype", "limit", "tolerance"), WAYS)
def test_a_value_has_the_same_bits_wherever_it_stands(way, dtype, limit, tolerance, rng):
    S = rng.uniform(-limit, limit, 2 * PIECE + 37).astype(dtype)
    whole = powers(way, S)
    for size in (0, 1, 2, 7, 100, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE):
        assert_array_equal(powers(way, S[:size]), whole[:size])
        assert_array_equal(powers(way, S[-size - 1 :]), whole[-size - 1 :])
    assert_array_equal(powers(way, S[1::2]), whole[1::2])
    shaped = S[: 2 * PIECE].reshape(4, 8, 2, -1)
    assert_array_equal(powers(way, shaped), whole[: 2 * PIECE].reshape(shaped.shape))


@pytest.mark.parametrize(("way", "dtype", "limit", "tolerance"), WAYS)
def test_nan_stays_nan_and_spoils_no_neighbour(way, dtype, limit, tolerance, rng):
    S = rng.uniform(-limit, limit, PIECE + 100).astype(dtype)
    whole, bad = powers(way, S), [0, 5, PIECE - 1, PIECE + 99]
    S[bad] = np.nan
    out = powers(way, S)
    assert np.isnan(out[bad]).all()
    assert_array_equal(np.delete(out, bad), np.delete(whole, bad))


@pytest.mark.parametrize(("way", "dtype", "limit", "tolerance"), WAYS)
def test_infinite_values_give_no_finite_number_but_0(way, dtype, limit, tolerance):
    S = np.array([np.inf, -np.inf, 1], dtype)
    with np.errstate(invalid="ignore"):
        up, down, two = powers(way, S)
    assert not np.isfinite(up)
    assert down == 0 or np.isnan(down)
    assert abs(two - 2) <= 2 * tolerance


@pytest.mark.parametrize(("way", "dtype", "limit", "tolerance"), WAYS)
def test_threads_do_not_disturb_each_other(way, dtype, limit, tolerance, rng):
    arrays = [rng.uniform(-limit, limit, 3 * PIECE + i).astype(dtype) for i in range(16)]
    expected = [powers(way, S) for S in arrays]
    with ThreadPoolExecutor(4) as pool:
        for out, alone in zip(pool.map(lambda S: powers(way, S), arrays), expected, strict=True):
            assert_array_equal(out, alone)


@pytest.mark.parametrize(
    ("platform", "baseline", "found", "single", "double"),
    [
        ("linux", ["X86_V2"], ["X86_V3", "X86_V4"], _by_exp2, _by_exp2),
        ("linux", ["SSE2"], ["AVX2", "AVX512_SKX"], _by_exp2, _by_exp2),
        ("linux", ["X86_V2"], ["X86_V3"], _by_exp, _by_table),
        ("linux", ["SSE2"], ["AVX2"], _by_exp, _by_table),
        ("linux", ["X86_V2"], [], _by_exp2, _by_table),
        ("win32", ["X86_V2"], ["X86_V3", "X86_V4"], _by_exp, _by_table),
        ("darwin", ["NEON", "ASIMD"], ["ASIMDHP"], _by_exp2, _by_table),
    ],
)
def test_the_processor_decides(platform, baseline, found, single, double, monkeypatch):
    config = {"SIMD Extensions": {"baseline": baseline, "found": found}}
    monkeypatch.setattr(_exponential.sys, "platform", platform)
    monkeypatch.setattr(_exponential.np, "show_config", lambda mode: config)
    chosen = _exponential._choose()
    assert chosen == {np.dtype(np.float32): single, np.dtype(np.float64): double}
