"""The same sets as columns of lists of the libraries that may be absent."""

import numpy as np
import pandas as pd
import pytest


def optional(name):
    """The library, or a skip that says which is missing."""
    return pytest.importorskip(name, reason=f"{name} is not installed")


def lists(sets):
    return [np.asarray(tokens).tolist() for tokens in sets]


def width(sets):
    return np.asarray(sets[0]).shape[1]


def arrow(sets, kind="list"):
    """A pyarrow array whose lists and tokens are of the kind."""
    pa = optional("pyarrow")
    number = pa.from_numpy_dtype(np.asarray(sets[0]).dtype)
    types = {
        "list": pa.list_(pa.list_(number)),
        "large": pa.large_list(pa.large_list(number)),
        "fixed": pa.list_(pa.list_(number, width(sets))),
        "large of fixed": pa.large_list(pa.list_(number, width(sets))),
    }
    return pa.array(lists(sets), types[kind])


def arrow_slice(sets):
    """A slice out of the middle of a longer array, whose buffers hold more than the sets."""
    pa, whole = optional("pyarrow"), arrow(sets, "fixed")
    return pa.concat_arrays([whole, whole, whole])[len(sets) : 2 * len(sets)]


def arrow_chunks(sets):
    """Chunks of one set each, and a chunk without any."""
    pa, whole = optional("pyarrow"), arrow(sets)
    chunks = [whole[:0], *(whole[i : i + 1] for i in range(len(sets)))]
    return pa.chunked_array(chunks, whole.type)


def arrow_views(sets):
    pa = optional("pyarrow")
    if not hasattr(pa, "list_view"):
        pytest.skip("pyarrow has list views from version 16")
    inner = pa.list_(pa.from_numpy_dtype(np.asarray(sets[0]).dtype))
    return pa.array(lists(sets), pa.list_view(inner))


def arrow_table(sets):
    return optional("pyarrow").table({"s": arrow(sets)})


def arrow_batch(sets):
    return optional("pyarrow").RecordBatch.from_arrays([arrow(sets, "fixed")], names=["s"])


def pandas_arrow(sets):
    column = arrow(sets)
    return pd.Series(column.to_pylist(), dtype=pd.ArrowDtype(column.type))


def polars_list(sets):
    pl = optional("polars")
    number = {"f": pl.Float32, "d": pl.Float64}[np.asarray(sets[0]).dtype.char]
    return pl.Series("s", lists(sets), dtype=pl.List(pl.List(number)))


def polars_array(sets):
    pl = optional("polars")
    number = {"f": pl.Float32, "d": pl.Float64}[np.asarray(sets[0]).dtype.char]
    return pl.Series("s", lists(sets), dtype=pl.List(pl.Array(number, width(sets))))


def polars_slice(sets):
    pl = optional("polars")
    return pl.concat([polars_list(sets)] * 3, rechunk=False).slice(len(sets), len(sets))


def awkward(sets):
    """Sets and tokens both of varying length, as far as awkward knows."""
    ak = optional("awkward")
    number = np.asarray(sets[0]).dtype
    flat = np.concatenate([*(np.asarray(tokens).ravel() for tokens in sets), np.empty(0, number)])
    lengths = [len(tokens) for tokens in sets]
    tokens = ak.unflatten(flat.astype(number), np.full(sum(lengths), width(sets)))
    return ak.unflatten(tokens, lengths)


def awkward_regular(sets):
    """Sets of varying length of tokens of one declared width."""
    ak = optional("awkward")
    return ak.unflatten(np.concatenate(sets), [len(tokens) for tokens in sets])


def awkward_taken(sets):
    """The sets picked out of others, in another order than the memory's."""
    return awkward([*sets[::-1], sets[0]])[np.arange(len(sets))[::-1]]


COLUMNS = {
    "arrow list": arrow,
    "arrow large list": lambda sets: arrow(sets, "large"),
    "arrow list of fixed": lambda sets: arrow(sets, "fixed"),
    "arrow large list of fixed": lambda sets: arrow(sets, "large of fixed"),
    "arrow slice": arrow_slice,
    "arrow chunks": arrow_chunks,
    "arrow list view": arrow_views,
    "arrow table": arrow_table,
    "arrow batch": arrow_batch,
    "pandas arrow": pandas_arrow,
    "pandas arrow column": lambda sets: pd.DataFrame({"s": pandas_arrow(sets)}),
    "polars list": polars_list,
    "polars list of array": polars_array,
    "polars slice of chunks": polars_slice,
    "polars objects": lambda sets: optional("polars").Series("s", list(sets), dtype=object),
    "polars column": lambda sets: polars_list(sets).to_frame(),
    "awkward": awkward,
    "awkward of regular": awkward_regular,
    "awkward taken": awkward_taken,
    "list of arrow": lambda sets: [arrow([tokens])[0].values for tokens in sets],
    "list of awkward": lambda sets: list(awkward(sets)),
    "list of polars": lambda sets: [optional("polars").DataFrame(tokens) for tokens in sets],
}
