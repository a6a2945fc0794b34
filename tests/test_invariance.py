"""What must change nothing: order, neighbours, padding, chunks, containers, threads."""

import functools
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from models import (
    Y,
    assert_rows_equal,
    assert_same_fit,
    small,
    unfinished,
)

from skattn import (
    RaggedArray,
    as_ragged,
)
from skattn.attention import ATTENTIONS, Attention


def test_the_order_of_sets_does_not_matter(model, sets, rng):
    order = rng.permutation(12)
    got, expected = model.transform([sets[i] for i in order]), model.transform(sets)
    assert_rows_equal(got, [list(expected)[i] for i in order])


def test_a_set_does_not_depend_on_the_others(model, sets):
    together = list(model.transform(sets))
    for i, tokens in enumerate(sets):
        assert_rows_equal(model.transform([tokens]), [together[i]])


def test_a_set_may_come_twice(model, sets):
    got = list(model.transform([*sets, *sets]))
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
