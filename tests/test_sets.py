"""Sets: tokens and what they attend to, in chunks of equal lengths."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skattn import RaggedArray, RaggedPair
from skattn._sets import Sets


def test_sets_attend_to_themselves_unless_there_is_a_context(awkward_sets):
    ragged = RaggedArray.from_list(awkward_sets)
    alone = Sets.of(ragged)
    assert alone.keys is alone.queries is alone.as_data() is ragged
    assert not alone.has_context
    taken = alone.take([1, 0])
    assert taken.keys is taken.queries
    pair = RaggedPair(ragged, ragged)
    both = Sets.of(pair)
    assert both.queries is pair.queries
    assert both.keys is pair.context
    assert both.has_context
    assert isinstance(both.as_data(), RaggedPair)


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_chunks_cover_each_set_once_with_sets_of_one_length(rng, step):
    mixed = np.array([*rng.integers(0, 5, size=40), 300])
    for lengths in (mixed, np.sort(mixed)):  # in order: slices, which copy nothing
        ragged = RaggedArray.from_list([rng.normal(size=(n, 2)) for n in lengths])
        chunks = list(Sets.of(ragged).equal_length_chunks(lambda n, m: step))
        taken = [np.arange(41)[sets] for sets, *_ in chunks]
        assert_array_equal(np.sort(np.concatenate(taken)), np.arange(41))
        for (sets, rows, (b, n), *_), positions in zip(chunks, taken, strict=True):
            assert (
                isinstance(sets, slice)
                == isinstance(rows, slice)
                == bool(np.all(np.diff(lengths) >= 0))
            )
            assert 1 <= len(positions) == b <= step
            assert np.all(np.diff(positions) > 0)
            assert np.all(lengths[positions] == n)
            block = ragged.values[rows].reshape(b, n, 2)
            for i, tokens in zip(positions, block, strict=True):
                assert_array_equal(tokens, ragged[int(i)])
        short_first = [n for _, _, (_, n), *_ in chunks]
        assert short_first == sorted(short_first)


def test_chunks_are_as_large_as_asked_for_each_length(awkward_sets):
    asked = []
    ragged = RaggedArray.from_list(awkward_sets)
    chunks = list(
        Sets.of(ragged).equal_length_chunks(lambda n, m: asked.append(n) or 0)
    )  # 0: one at a time
    assert asked == [0, 1, 2, 4, 23]
    assert [sets.tolist() for sets, *_ in chunks] == [[1], [6], [2], [5], [0], [3], [4]]


def test_no_sets_make_no_chunks():
    assert (
        list(Sets.of(RaggedArray(np.empty((0, 2)), [0])).equal_length_chunks(lambda n, m: 5)) == []
    )


@pytest.mark.parametrize("in_order", [True, False])
def test_chunks_of_pairs_have_two_equal_lengths_and_hold_every_sample_once(in_order):
    rng = np.random.default_rng(0)
    n, m = rng.integers(0, 3, size=(2, 40))
    if in_order:
        order = np.lexsort((m, n))
        n, m = n[order], m[order]
    queries = [np.full((length, 1), float(i)) for i, length in enumerate(n)]
    context = [np.full((length, 2), float(i)) for i, length in enumerate(m)]
    pair, seen = RaggedPair(queries, context), []
    for sets, rows, shape, context_rows, context_shape in Sets.of(pair).equal_length_chunks(
        lambda n, m: 3
    ):
        positions = np.arange(40)[sets]
        assert isinstance(rows, slice) == isinstance(sets, slice) == in_order
        assert len(positions) == shape[0] == context_shape[0] <= 3
        assert set(n[positions]) == {shape[1]}
        assert set(m[positions]) == {context_shape[1]}
        assert_array_equal(pair.queries.values[rows, 0], np.repeat(positions, shape[1]))
        assert_array_equal(pair.context.values[context_rows, 1], np.repeat(positions, m[positions]))
        seen.extend(positions)
    assert sorted(seen) == list(range(40))
    assert list(Sets.of(pair[:0]).equal_length_chunks(lambda n, m: 3)) == []
