"""RaggedArray: sets of token vectors in one flat array."""

import dataclasses
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, train_test_split
from sklearn.utils import _safe_indexing, indexable, resample, shuffle

from skattn import RaggedArray, as_ragged


@pytest.fixture(params=["plain", "weighted"])
def ragged(request, awkward_sets):
    """Sets of 4, 0, 1, 4, 23, 2 and 0 tokens, with token weights and without."""
    if request.param == "plain":
        return RaggedArray.from_list(awkward_sets)
    rng = np.random.default_rng(2)
    weights = [rng.integers(0, 4, size=len(tokens)) for tokens in awkward_sets]
    return RaggedArray.from_list(awkward_sets, weights)


def weights_of(ragged, i):
    """Token weights of set i, ones where there are none."""
    rows = slice(ragged.offsets[i], ragged.offsets[i + 1])
    return np.ones(ragged.lengths[i]) if ragged.weights is None else ragged.weights[rows]


def assert_takes(taken, ragged, positions):
    """Check that `taken` holds the sets of `ragged` at these positions, weights with them."""
    assert isinstance(taken, RaggedArray)
    assert taken.n_samples == len(positions)
    assert taken.n_features == ragged.n_features
    assert (taken.weights is None) == (ragged.weights is None)
    for k, i in enumerate(positions):
        assert_array_equal(taken[k], ragged[int(i)])
        assert_array_equal(weights_of(taken, k), weights_of(ragged, int(i)))


# Building


def test_parts_are_what_they_are_called(awkward_sets):
    ragged = RaggedArray.from_list(awkward_sets)
    assert_array_equal(ragged.lengths, [4, 0, 1, 4, 23, 2, 0])
    assert_array_equal(ragged.offsets, [0, 4, 4, 5, 9, 32, 34, 34])
    assert (len(ragged), ragged.n_samples, ragged.n_tokens, ragged.n_features) == (7, 7, 34, 3)
    assert ragged.shape == (7, None, 3)
    assert ragged.ndim == len(ragged.shape)
    assert ragged.dtype == ragged.values.dtype == np.float64
    assert repr(ragged) == "RaggedArray(7 sets, 34 tokens, 3 features, float64)"


def test_repr_names_weights():
    ragged = RaggedArray.from_list([[[1.0]]], weights=[[2.0]])
    assert repr(ragged) == "RaggedArray(1 sets, 1 tokens, 1 features, float64, weighted)"


def test_from_list_undoes_to_list(awkward_sets):
    ragged = RaggedArray.from_list(awkward_sets)
    assert len(ragged.to_list()) == len(awkward_sets)
    for got, expected in zip(ragged.to_list(), awkward_sets, strict=True):
        assert_array_equal(got, expected)
        assert got.shape == expected.shape
    again = RaggedArray.from_list(ragged.to_list())
    assert_array_equal(again.values, ragged.values)
    assert_array_equal(again.offsets, ragged.offsets)


@pytest.mark.parametrize("empty", [[], np.empty((0, 2)), np.empty(0)], ids=["[]", "(0, 2)", "(0,)"])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_an_empty_set_in_any_notation_has_the_width_of_the_others(empty, position):
    sets = [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]]
    sets.insert(position, empty)
    ragged = RaggedArray.from_list(sets)
    assert ragged.lengths[position] == 0
    assert ragged[position].shape == (0, 2)
    assert_array_equal(ragged.values, [[1, 2], [3, 4], [5, 6]])


def test_a_list_of_nothing_has_no_sets():
    ragged = RaggedArray.from_list([])
    assert (ragged.n_samples, ragged.n_tokens) == (0, 0)
    assert ragged.to_list() == []


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (("f4", "f4"), "f4"),
        (("f4", "f8"), "f8"),
        (("f8", "f8"), "f8"),
        (("f2", "f2"), "f8"),
        (("f2", "f4"), "f8"),
        (("i8", "i8"), "f8"),
        (("u1", "f4"), "f8"),
        (("?", "?"), "f8"),
    ],
)
def test_from_list_keeps_float32_and_makes_all_else_float64(dtypes, expected):
    sets = [np.ones((n, 2), dtype) for n, dtype in zip((2, 1), dtypes, strict=True)]
    ragged = RaggedArray.from_list(sets)
    assert ragged.dtype == np.dtype(expected)
    assert_array_equal(ragged.values, np.ones((3, 2)))


def test_from_block_is_from_list_of_equal_lengths(rng):
    block, weights = rng.normal(size=(4, 3, 2)), rng.uniform(1, 2, size=(4, 3))
    ragged, expected = RaggedArray.from_block(block, weights), RaggedArray.from_list(block, weights)
    assert_array_equal(ragged.values, expected.values)
    assert_array_equal(ragged.offsets, expected.offsets)
    assert_array_equal(ragged.weights, expected.weights)
    assert RaggedArray.from_block(block).weights is None


@pytest.mark.parametrize("n", [0, 1])
def test_from_block_takes_degenerate_lengths(rng, n):
    ragged = RaggedArray.from_block(rng.normal(size=(3, n, 2)))
    assert_array_equal(ragged.lengths, [n, n, n])
    assert ragged.n_features == 2


VALUES, OFFSETS = np.zeros((3, 2)), np.array([0, 1, 3])


@pytest.mark.parametrize(
    ("error", "match", "parts"),
    [
        (TypeError, r"values has shape \(3,\)", (np.zeros(3), OFFSETS)),
        (TypeError, r"values has shape \(3, 2, 1\)", (np.zeros((3, 2, 1)), OFFSETS)),
        (TypeError, "dtype object", (np.full((3, 2), None), OFFSETS)),
        (TypeError, "dtype <U1", (np.full((3, 2), "a"), OFFSETS)),
        (TypeError, "dtype complex128", (np.zeros((3, 2), complex), OFFSETS)),
        (ValueError, "1-D integer array of n_samples", (VALUES, np.array([0.0, 3.0]))),
        (ValueError, "1-D integer array of n_samples", (VALUES, np.array([[0, 3]]))),
        (ValueError, "1-D integer array of n_samples", (VALUES, np.array([], int))),
        (ValueError, "run from 1 to 3, but must rise from 0", (VALUES, np.array([1, 3]))),
        (ValueError, "run from 0 to 2, .* number of tokens, 3", (VALUES, np.array([0, 2]))),
        (ValueError, "without a step back", (VALUES, np.array([0, 2, 1, 3]))),
        (ValueError, r"shape \(2,\) .*but there are 3 tokens", (VALUES, OFFSETS, [1, 2])),
        (ValueError, r"shape \(3, 1\)", (VALUES, OFFSETS, [[1], [1], [1]])),
        (ValueError, "0 or more", (VALUES, OFFSETS, [1, -1, 1])),
        (ValueError, "finite numbers", (VALUES, OFFSETS, [1, np.nan, 1])),
        (ValueError, "finite numbers", (VALUES, OFFSETS, [1, np.inf, 1])),
        (ValueError, "finite numbers", (VALUES, OFFSETS, ["a", "b", "c"])),
    ],
)
def test_parts_that_do_not_fit_are_refused(error, match, parts):
    with pytest.raises(error, match=match):
        RaggedArray(*parts)


@pytest.mark.parametrize(
    ("error", "match", "sets"),
    [
        (TypeError, "Set 1 has dtype <U1", [[[1, 2]], [["a", "b"]]]),
        (TypeError, "Set 0 has dtype complex128", [[[1j, 2]]]),
        (ValueError, r"Set 1 has shape \(2,\)", [[[1, 2]], [1, 2]]),
        (ValueError, r"Set 1 has shape \(1, 1, 2\)", [[[1, 2]], [[[1, 2]]]]),
        (ValueError, "Set 2 has tokens of 3 features, but .* have 2", [[[1, 2]], [], [[1, 2, 3]]]),
        (
            ValueError,
            "Set 1 has tokens of 3 features, but .* have 2",
            [np.ones((0, 2)), [[1, 2, 3]]],
        ),
    ],
)
def test_from_list_names_the_set_that_does_not_fit(error, match, sets):
    with pytest.raises(error, match=match):
        RaggedArray.from_list(sets)


@pytest.mark.parametrize("weights", [[[1]], [[1, 1], [1], []], [[1], [1, 1]]])
def test_from_list_wants_a_weight_per_token(weights):
    with pytest.raises(ValueError, match="one weight per token"):
        RaggedArray.from_list([[[1.0], [2.0]], [[3.0]]], weights=weights)


# Being an array, or rather not


def test_it_does_not_turn_into_an_array_in_silence(ragged):
    for convert in (np.asarray, np.array, lambda X: np.concatenate([X, X]), np.isnan):
        with pytest.raises(TypeError, match=r"to_list\(\).*to_padded\(\)"):
            convert(ragged)


def test_equal_lengths_do_not_turn_three_dimensional_either(rng):
    with pytest.raises(TypeError, match="to_padded"):
        np.asarray(RaggedArray.from_block(rng.normal(size=(2, 3, 4))))


def test_it_is_frozen_and_neither_compared_nor_hashed(ragged):
    with pytest.raises(dataclasses.FrozenInstanceError):
        ragged.values = np.zeros((1, 1))
    with pytest.raises(TypeError, match="compare .values and .offsets"):
        _ = ragged == ragged
    with pytest.raises(TypeError, match="unhashable"):
        hash(ragged)


def test_it_survives_pickle(ragged):
    again = pickle.loads(pickle.dumps(ragged))
    assert_takes(again, ragged, range(7))


# Taking sets


@pytest.mark.parametrize("make", [int, np.int64, np.int8, np.uint16])
@pytest.mark.parametrize("position", range(7))
def test_an_integer_gives_the_tokens_of_one_set(ragged, awkward_sets, position, make):
    assert_array_equal(ragged[make(position)], awkward_sets[position])


@pytest.mark.parametrize("position", range(-7, 0))
def test_a_negative_integer_counts_from_the_end(ragged, awkward_sets, position):
    assert_array_equal(ragged[position], awkward_sets[position])


@pytest.mark.parametrize("position", [7, -8, 100])
def test_an_integer_out_of_range_is_an_index_error(ragged, position):
    with pytest.raises(IndexError, match=f"Set {position} is out of range: there are 7 sets"):
        ragged[position]


def test_iteration_gives_the_tokens_of_each_set(ragged, awkward_sets):
    for got, expected in zip(ragged, awkward_sets, strict=True):
        assert_array_equal(got, expected)


KEYS = {
    "slice": slice(1, 5),
    "slice with a step": slice(None, None, 2),
    "slice backwards": slice(None, None, -1),
    "slice of nothing": slice(3, 3),
    "slice beyond the end": slice(5, 50),
    "integers": np.array([4, 0, 4, 6]),
    "negative integers": np.array([-1, -3]),
    "unsigned integers": np.array([2, 1], np.uint8),
    "list of integers": [3, 1],
    "no integers": np.array([], int),
    "boolean": np.array([True, False, False, True, True, False, True]),
    "list of booleans": [False] * 6 + [True],
    "all false": np.zeros(7, bool),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize(
    "wrap",
    [lambda k: k, lambda k: (k,), lambda k: (k, ...), lambda k: (k, slice(None), slice(None))],
    ids=["key", "(key,)", "(key, ...)", "(key, :, :)"],
)
def test_a_key_takes_the_sets_it_takes_from_an_array(ragged, key, wrap):
    assert_takes(ragged[wrap(key)], ragged, np.arange(7)[key])


@pytest.mark.parametrize("position", [0, np.int64(4), -1])
def test_an_integer_in_a_tuple_gives_one_set(ragged, position):
    assert_array_equal(ragged[position, ...], ragged[position])


def test_an_ellipsis_is_everything(ragged):
    assert_takes(ragged[...], ragged, range(7))


@pytest.mark.parametrize("key", [(0, 1), (slice(None), 0), (..., 0), ()], ids=str)
def test_a_second_index_is_refused(ragged, key):
    with pytest.raises(IndexError, match="one index, over sets"):
        ragged[key]


@pytest.mark.parametrize("key", [[7], [-8], np.ones(6, bool), "a", 1.0], ids=str)
def test_keys_that_no_array_takes_are_index_errors(ragged, key):
    with pytest.raises(IndexError):
        ragged[key]


@pytest.mark.parametrize("indices", [[4, 0, 4, 1], [], [6], range(7)], ids=str)
def test_take_gives_the_sets_in_that_order(ragged, indices):
    assert_takes(ragged.take(indices), ragged, list(indices))


def test_what_is_taken_is_a_copy(ragged):
    before = ragged.values.copy()
    ragged.take([0, 3]).values[...] = 0
    assert_array_equal(ragged.values, before)


def test_with_values_keeps_sets_and_weights(ragged):
    other = ragged.with_values(ragged.values[:, :1] * 2)
    assert_array_equal(other.offsets, ragged.offsets)
    assert other.weights is ragged.weights
    assert_array_equal(other[4], ragged[4][:, :1] * 2)
    with pytest.raises(ValueError, match="number of tokens"):
        ragged.with_values(ragged.values[1:])


def test_astype_changes_the_values_alone(ragged):
    single = ragged.astype(np.float32)
    assert single.dtype == np.float32
    assert single.weights is ragged.weights
    assert_array_equal(single.offsets, ragged.offsets)
    assert ragged.astype(np.float64).values is ragged.values


# Token weights


def test_tokens_of_weight_zero_are_dropped():
    ragged = RaggedArray.from_list(
        [[[1.0], [2.0]], [[3.0]], [], [[4.0], [5.0]]], weights=[[0, 2], [0], [], [0.5, 1]]
    ).drop_zero_weights()
    assert_array_equal(ragged.values, [[2], [4], [5]])
    assert_array_equal(ragged.lengths, [1, 0, 0, 2])
    assert_array_equal(ragged.weights, [2, 0.5, 1])


def test_weights_of_zero_and_one_are_no_weights_at_all():
    ragged = RaggedArray.from_list([[[1.0], [2.0]], [[3.0]]], weights=[[0, 1], [1]])
    assert ragged.drop_zero_weights().weights is None
    assert_array_equal(ragged.drop_zero_weights().lengths, [1, 1])


def test_nothing_is_copied_where_no_weight_is_zero(awkward_sets):
    plain = RaggedArray.from_list(awkward_sets)
    assert plain.drop_zero_weights() is plain
    ones = RaggedArray(plain.values, plain.offsets, np.ones(plain.n_tokens))
    assert ones.drop_zero_weights().values is plain.values
    halves = RaggedArray(plain.values, plain.offsets, np.full(plain.n_tokens, 0.5))
    assert halves.drop_zero_weights() is halves


# Sums and maxima


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize(
    "lengths",
    [(4, 0, 1, 4, 23, 2, 0), (0, 0, 3), (3, 3, 3), (1, 1), (0, 0), (2, 0), (5,), ()],
    ids=str,
)
def test_segments_are_reduced_as_by_a_loop(rng, lengths, reduce, dtype):
    sets = [rng.normal(size=(n, 3)).astype(dtype) - 5 for n in lengths]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(int)
    ragged = RaggedArray(np.concatenate([np.empty((0, 3), dtype), *sets]), offsets)
    got = getattr(ragged, f"segment_{reduce}")()
    expected = [getattr(tokens, reduce)(axis=0) if len(tokens) else np.zeros(3) for tokens in sets]
    assert got.shape == (len(lengths), 3)
    assert got.dtype == dtype
    expected = np.reshape(expected, (-1, 3))
    assert_allclose(got, expected, rtol=1e-6 if dtype == np.float32 else 1e-14)


def test_repeat_gives_each_token_the_row_of_its_set(ragged):
    rows = ragged.repeat(np.arange(7))
    assert_array_equal(rows, [0] * 4 + [2] + [3] * 4 + [4] * 23 + [5] * 2)
    assert ragged.repeat(np.zeros((7, 2, 3))).shape == (34, 2, 3)


# Other forms


def test_padding_is_undone_by_reading(awkward_sets):
    ragged = RaggedArray.from_list(awkward_sets)
    padded = ragged.to_padded()
    assert padded.shape == (7, 23, 3)
    assert np.isnan(padded).sum() == 3 * (7 * 23 - 34)
    again = as_ragged(padded)
    assert_array_equal(again.values, ragged.values)
    assert_array_equal(again.offsets, ragged.offsets)


def test_padding_can_be_filled_with_anything(awkward_sets):
    padded = RaggedArray.from_list(awkward_sets).to_padded(fill=-1)
    assert_array_equal(padded[2, 1:], np.full((22, 3), -1))
    assert_array_equal(padded[4], awkward_sets[4])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_padding_keeps_the_type(dtype):
    assert RaggedArray(np.ones((2, 1), dtype), [0, 2, 2]).to_padded().dtype == dtype


@pytest.mark.parametrize("offsets", [[0], [0, 0], [0, 0, 0]], ids=str)
def test_nothing_pads_to_nothing(offsets):
    assert RaggedArray(np.empty((0, 3)), offsets).to_padded().shape == (len(offsets) - 1, 0, 3)


def test_a_frame_has_a_row_per_token_named_by_set_and_position(awkward_sets):
    pytest.importorskip("pandas")
    frame = RaggedArray.from_list(awkward_sets).to_frame()
    assert list(frame.columns) == ["x0", "x1", "x2"]
    assert frame.index.names == ["set", "token"]
    for i, tokens in enumerate(awkward_sets):
        if len(tokens):
            assert_array_equal(frame.loc[i].to_numpy(), tokens)
            assert_array_equal(frame.loc[i].index, np.arange(len(tokens)))
        else:
            assert i not in frame.index.get_level_values("set")


def test_a_frame_takes_column_names():
    pytest.importorskip("pandas")
    frame = RaggedArray.from_list([[[1.0, 2.0]]]).to_frame(columns=["price", "size"])
    assert frame.loc[(0, 0), "size"] == 2
    with pytest.raises(ValueError):
        RaggedArray.from_list([[[1.0, 2.0]]]).to_frame(columns=["price"])


# Blocks for the kernels


# scikit-learn


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_scikit_learn_indexes_it_as_it_indexes_arrays(ragged, key):
    assert_takes(_safe_indexing(ragged, key), ragged, np.arange(7)[key])


def test_scikit_learn_splits_it_beside_its_targets(ragged):
    X_train, X_test, i_train, i_test = train_test_split(ragged, np.arange(7), random_state=0)
    assert_takes(X_train, ragged, i_train)
    assert_takes(X_test, ragged, i_test)


@pytest.mark.parametrize(
    "splitter", [KFold(3), StratifiedKFold(2), GroupKFold(2)], ids=lambda s: type(s).__name__
)
def test_scikit_learn_splitters_take_it(ragged, splitter):
    y, groups = np.array([0, 1, 0, 1, 0, 1, 0]), np.array([0, 0, 1, 1, 2, 2, 2])
    seen = []
    grouped = isinstance(splitter, GroupKFold)
    for train, test in splitter.split(ragged, y, groups if grouped else None):
        assert_takes(_safe_indexing(ragged, train), ragged, train)
        seen.extend(test)
    assert sorted(seen) == list(range(7))


def test_scikit_learn_shuffles_and_resamples_it(ragged):
    shuffled, order = shuffle(ragged, np.arange(7), random_state=0)
    assert_takes(shuffled, ragged, order)
    drawn, order = resample(ragged, np.arange(7), n_samples=10, random_state=0)
    assert_takes(drawn, ragged, order)
    (same,) = indexable(ragged)
    assert_takes(same, ragged, range(7))
