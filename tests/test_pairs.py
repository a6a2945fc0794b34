"""RaggedPair: two sides of equal length, taken together."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, train_test_split
from sklearn.utils import resample, shuffle

from skattn import RaggedArray, RaggedPair, SetPooler, as_ragged

QUERIES = [np.arange(6.0).reshape(3, 2), np.empty((0, 2)), np.ones((1, 2)), np.full((2, 2), 7.0)]
CONTEXT = [np.ones((1, 3)), np.arange(6.0).reshape(2, 3), np.empty((0, 3)), np.zeros((4, 3))]


@pytest.fixture
def pair():
    return RaggedPair(QUERIES, CONTEXT)


def same(pair, positions):
    """Whether a pair holds the samples at the given positions."""
    for side, sets in ((pair.queries, QUERIES), (pair.context, CONTEXT)):
        assert len(side) == len(positions)
        for tokens, i in zip(side, positions, strict=True):
            assert_array_equal(tokens, sets[i])


def test_a_pair_is_its_two_sides(pair):
    same(pair, range(4))
    assert (len(pair), pair.shape, pair.ndim) == (4, (4, 2), 2)
    assert (pair.n_samples, pair.n_tokens, pair.n_features) == (4, 6, 2)
    assert_array_equal(pair.lengths, [3, 0, 1, 2])
    for (tokens, around), q, c in zip(pair, QUERIES, CONTEXT, strict=True):
        assert_array_equal(tokens, q)
        assert_array_equal(around, c)


@pytest.mark.parametrize("key", [0, -1, np.int64(2), (1, ...)])
def test_one_position_gives_the_two_sets_of_a_sample(pair, key):
    i = key[0] if isinstance(key, tuple) else key
    tokens, around = pair[key]
    assert_array_equal(tokens, QUERIES[i])
    assert_array_equal(around, CONTEXT[i])


@pytest.mark.parametrize(
    ("key", "positions"),
    [
        (slice(1, 3), [1, 2]),
        (slice(None, None, -1), [3, 2, 1, 0]),
        ([2, 0, 2], [2, 0, 2]),
        (np.array([3, -4]), [3, 0]),
        (np.array([True, False, False, True]), [0, 3]),
        ((np.array([1]), ...), [1]),
        (..., [0, 1, 2, 3]),
        (np.empty(0, int), []),
    ],
)
def test_several_positions_give_a_pair(pair, key, positions):
    same(pair[key], positions)


def test_take_takes_both_sides(pair):
    same(pair.take([3, 3, 1]), [3, 3, 1])


@pytest.mark.parametrize("key", [9, None, True, (0, 0)])
def test_what_is_no_index_is_refused(pair, key):
    with pytest.raises(IndexError):
        pair[key]


@pytest.mark.parametrize("splitter", [KFold(2), StratifiedKFold(2), GroupKFold(2)])
def test_splitters_split_it(pair, splitter):
    groups = [0, 0, 1, 1] if isinstance(splitter, GroupKFold) else None
    for train, test in splitter.split(pair, [0, 1, 0, 1], groups):
        same(pair[train], train)
        same(pair[test], test)


def test_scikit_learn_indexes_it(pair):
    train, test, i_train, i_test = train_test_split(pair, np.arange(4), random_state=0)
    same(train, i_train)
    same(test, i_test)
    shuffled, order = shuffle(pair, np.arange(4), random_state=0)
    same(shuffled, order)
    drawn, order = resample(pair, np.arange(4), random_state=0)
    same(drawn, order)


PADDED = np.full((2, 3, 2), np.nan)
PADDED[0, :2], PADDED[1, 1] = [[1, 2], [3, 4]], [5, 6]


@pytest.mark.parametrize(
    "sets",
    [
        [[[1, 2], [3, 4]], [[5, 6]]],
        ([[1, 2], [3, 4]], [[5, 6]]),
        RaggedArray.from_list([[[1, 2], [3, 4]], [[5, 6]]]),
        PADDED,
        np.ma.masked_invalid(PADDED),
    ],
    ids=["list", "tuple", "ragged", "3-D", "masked"],
)
def test_each_side_is_read_from_any_container(sets):
    for pair in (RaggedPair(sets, [[[0.0]], []]), RaggedPair([[[0.0]], []], sets)):
        side = pair.queries if pair.n_features == 2 else pair.context
        assert_array_equal(side.values, [[1, 2], [3, 4], [5, 6]])
        assert_array_equal(side.lengths, [2, 1])


def test_columns_of_a_frame_are_read():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame({"query": QUERIES, "context": CONTEXT})
    same(RaggedPair(frame["query"], frame["context"]), range(4))


def test_indices_of_integers_and_floats_are_compared_exactly():
    queries = pd.Series([np.ones((1, 1))], index=[2**53 + 1])
    context = pd.Series([np.ones((1, 1))], index=[float(2**53)])
    with pytest.raises(ValueError, match="not that of the queries"):
        RaggedPair(queries, context)
    assert len(RaggedPair(queries.set_axis([1]), context.set_axis([1.0]))) == 1


def test_sides_with_different_indices_are_refused():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    queries = pd.Series(QUERIES, index=list("dcba"))
    context = pd.Series(CONTEXT, index=list("abcd"))
    with pytest.raises(ValueError, match="The index of the context is not that of the queries"):
        RaggedPair(queries, context)
    with pytest.raises(ValueError, match="The index of the context"):
        RaggedPair(RaggedArray.from_list(QUERIES)._with(index=np.arange(4)), context)
    pair = RaggedPair(queries, context.loc[queries.index])
    assert_array_equal(pair.context[0], CONTEXT[3])
    assert list(pair[[1, 0]].queries.index) == list("cd")
    same(RaggedPair(queries, CONTEXT), range(4))


def test_child_tables_are_paired_by_their_key():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    lines = pd.DataFrame({"order": ["b", "a", "b"], "x": [1.0, 2.0, 3.0]})
    offers = pd.DataFrame({"order": ["a", "c", "a"], "x": [4.0, 5.0, 6.0], "price": [7, 8, 9]})
    queries = RaggedArray.from_frame(lines, by="order", columns=["x"])
    with pytest.raises(ValueError, match="index of the context"):
        RaggedPair(
            queries,
            RaggedArray.from_frame(
                offers[:1], by="order", columns=["x", "price"], index=["a", "c"]
            ),
        )
    offered = offers[offers["order"].isin(queries.index)]
    context = RaggedArray.from_frame(
        offered, by="order", columns=["x", "price"], index=queries.index
    )
    pair = RaggedPair(queries, context)
    assert_array_equal(pair[0][0], [[1], [3]])
    assert_array_equal(pair[0][1], np.empty((0, 2)))
    assert_array_equal(pair[1][1], [[4, 7], [6, 9]])


def test_a_dense_side_is_one_token_a_sample():
    pair = RaggedPair(np.eye(3), [[[1.0]], [], [[2.0], [3.0]]])
    assert_array_equal(pair.queries.lengths, 1)


@pytest.mark.parametrize("kinds", [("f4", "f4"), ("f4", "f8"), ("f8", "f4"), ("i8", "f4")])
def test_both_sides_have_one_type(kinds):
    q, c = (np.ones((2, 3), kind) for kind in kinds)
    pair = RaggedPair([q], [c])
    expected = np.float32 if kinds == ("f4", "f4") else np.float64
    assert pair.dtype == pair.queries.dtype == pair.context.dtype == expected


def test_token_weights_stay_and_zeros_are_dropped():
    queries = RaggedArray.from_list([[[1.0], [2.0]], [[3.0]]], weights=[[0, 2], [1]])
    context = RaggedArray.from_list([[[4.0]], [[5.0], [6.0]]], weights=[[0], [3, 0]])
    pair = RaggedPair(queries, context)
    assert "(weighted)" in repr(pair)
    kept = pair[[1, 0]].drop_zero_weights()
    assert_array_equal(kept.queries.values, [[3], [2]])
    assert_array_equal(kept.queries.weights, [1, 2])
    assert_array_equal(kept.context.values, [[5]])
    assert_array_equal(kept.context.lengths, [1, 0])
    assert_array_equal(kept.context.weights, [3])


def test_pickle_and_copy(pair):
    for other in (pickle.loads(pickle.dumps(pair)), copy.deepcopy(pair)):
        same(other, range(4))


@pytest.mark.parametrize(
    ("queries", "context", "error", "match"),
    [
        (QUERIES[:3], CONTEXT, ValueError, "3 sets of queries and 4 of context"),
        (QUERIES, [*CONTEXT[:3], [[np.nan, 0, 0]]], ValueError, "The context .* token 0 of set 3"),
        ([*QUERIES[:3], [[np.inf, 0]]], CONTEXT, ValueError, "The queries .* token 0 of set 3"),
        (QUERIES, [*CONTEXT[:3], [[1.0]]], ValueError, "The context .* Set 3 has tokens of 1"),
        (3, CONTEXT, TypeError, "The queries of a RaggedPair: Got int"),
        (QUERIES, None, TypeError, "The context of a RaggedPair: Got NoneType"),
    ],
)
def test_what_is_no_pair_is_refused_by_side(queries, context, error, match):
    with pytest.raises(error, match=match):
        RaggedPair(queries, context)


@pytest.mark.parametrize("take", [as_ragged, SetPooler().fit])
def test_what_takes_sets_says_how_to_give_one_side(take, pair):
    with pytest.raises(TypeError, match="two sets in each sample .* use .queries and .context"):
        take(pair)


def test_a_pair_is_not_an_array_and_not_compared(pair):
    with pytest.raises(TypeError, match="not become one NumPy array"):
        np.asarray(pair)
    with pytest.raises(TypeError, match="not compared"):
        _ = pair == pair
    with pytest.raises(TypeError, match="unhashable"):
        hash(pair)
