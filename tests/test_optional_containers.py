"""Columns of lists of Arrow, polars and awkward: layouts, nulls, Parquet, what is refused."""

import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from columns import COLUMNS, arrow, arrow_chunks, awkward, optional, pandas_arrow, polars_list
from numpy.testing import assert_array_equal
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import AttentionContextualizer, RaggedArray, as_ragged

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def small():
    return AttentionContextualizer(n_heads=2, d_k=2, d_v=2, max_iter=3, random_state=0)


@pytest.fixture(params=[np.float64, np.float32])
def sets(request, awkward_sets):
    """Sets of 4, 0, 1, 4, 23, 2 and 0 tokens."""
    return [tokens.astype(request.param) for tokens in awkward_sets]


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_of_the_same_sets_is_read_the_same(sets, column):
    expected, got = RaggedArray.from_list(sets), as_ragged(COLUMNS[column](sets))
    assert_array_equal(got.offsets, expected.offsets)
    assert_array_equal(got.values, expected.values)
    assert got.values.flags.c_contiguous
    if column not in ("pandas arrow", "pandas arrow column", "awkward taken", "list of polars"):
        assert got.dtype == sets[0].dtype


@pytest.mark.parametrize("kind", ["list", "large", "fixed", "large of fixed"])
def test_arrow_values_are_read_where_they_lie(awkward_sets, kind):
    column = arrow(awkward_sets, kind)
    values = column.flatten().flatten().to_numpy()
    assert np.shares_memory(as_ragged(column).values, values)
    part = as_ragged(column[3:6])
    assert np.shares_memory(part.values, values)
    assert_array_equal(part.values, np.concatenate(awkward_sets[3:6]))


def test_polars_and_awkward_values_are_read_where_they_lie(awkward_sets):
    filled = [tokens for tokens in awkward_sets if len(tokens)]
    column = polars_list(filled)
    first, again = (column.explode().explode().to_numpy() for _ in range(2))
    if np.shares_memory(first, again):  # early versions copy by themselves
        assert np.shares_memory(as_ragged(column).values, first)
    ak, column = optional("awkward"), awkward(filled)
    assert np.shares_memory(as_ragged(column).values, ak.to_numpy(ak.flatten(column, axis=None)))


def test_a_column_of_fixed_lists_of_fixed_lists_is_sets_of_one_length(rng):
    block = rng.normal(size=(3, 4, 2))
    pa, pl = optional("pyarrow"), optional("polars")
    fixed = pa.array(block.tolist(), pa.list_(pa.list_(pa.float64(), 2), 4))
    array = pl.Series(block.tolist(), dtype=pl.Array(pl.Array(pl.Float64, 2), 4))
    for column in (fixed, array):
        assert_array_equal(as_ragged(column).values, block.reshape(12, 2))
        assert_array_equal(as_ragged(column).lengths, [4, 4, 4])
        assert_array_equal(as_ragged(column[1:]).values, block[1:].reshape(8, 2))


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars", "awkward"])
def test_lists_of_numbers_are_tokens_of_one_feature(library):
    cells = [[1, 2], [], [3]]
    column = {
        "pyarrow": lambda: optional("pyarrow").array(cells),
        "pandas": lambda: pd.Series(
            cells, dtype=pd.ArrowDtype(optional("pyarrow").list_(optional("pyarrow").int64()))
        ),
        "polars": lambda: optional("polars").Series(cells),
        "awkward": lambda: optional("awkward").Array(cells),
    }[library]()
    ragged = as_ragged(column)
    assert_array_equal(ragged.lengths, [2, 0, 1])
    assert_array_equal(ragged.values, [[1.0], [2.0], [3.0]])
    assert ragged.dtype == np.float64


@pytest.mark.parametrize("library", ["pyarrow", "polars", "awkward"])
@pytest.mark.parametrize("cells", [[[], []], [[]], []])
def test_columns_may_hold_nothing_but_empty_sets(library, cells):
    column = {
        "pyarrow": lambda: optional("pyarrow").array(
            cells, optional("pyarrow").list_(optional("pyarrow").null())
        ),
        "polars": lambda: optional("polars").Series(
            cells, dtype=optional("polars").List(optional("polars").Float64)
        ),
        "awkward": lambda: awkward([np.empty((0, 1)), *map(np.empty, [(0, 1)] * len(cells))])[1:],
    }[library]()
    assert_array_equal(as_ragged(column).lengths, [0] * len(cells))


def test_a_declared_width_holds_without_tokens():
    pa, pl = optional("pyarrow"), optional("polars")
    assert as_ragged(pa.array([[]], pa.list_(pa.list_(pa.float64(), 5)))).shape == (1, None, 5)
    assert as_ragged(pl.Series([[]], dtype=pl.List(pl.Array(pl.Float64, 5)))).n_features == 5


@pytest.mark.parametrize("number", ["int8", "uint16", "int64", "bool"])
def test_other_numbers_become_float64(number):
    pa = optional("pyarrow")
    column = pa.array([[[1, 0]], [[1, 1], [0, 1]]]).cast(
        pa.list_(pa.list_(pa.from_numpy_dtype(np.dtype(number))))
    )
    assert as_ragged(column).dtype == np.float64
    assert_array_equal(as_ragged(column).values, [[1, 0], [1, 1], [0, 1]])


# An index and names


def test_the_index_of_a_pandas_column_is_kept(awkward_sets):
    column = pandas_arrow(awkward_sets).set_axis([5, 3, 6, 0, 1, 4, 2])
    y = np.arange(7) % 2
    est = small().set_output(transform="pandas").fit(column, y)
    assert est.transform(column).index.tolist() == [5, 3, 6, 0, 1, 4, 2]
    assert est.transform(column.to_frame()).index.tolist() == [5, 3, 6, 0, 1, 4, 2]
    assert as_ragged(column).index is column.index


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_a_list_column_stands_beside_a_number_in_a_frame(awkward_sets, library):
    y, v = np.arange(7) % 2, np.arange(7.0)
    if library == "polars":
        frame = optional("polars").DataFrame({"s": polars_list(awkward_sets), "v": v})
    else:
        frame = pd.DataFrame({"s": pandas_arrow(awkward_sets), "v": v})
    expected = small().fit_transform(awkward_sets, y)
    for columns in ("s", ["s"]):
        model = ColumnTransformer([("sets", small(), columns), ("v", StandardScaler(), ["v"])])
        model.set_output(transform=library)
        out = model.fit(frame, y).transform(frame)
        assert list(out.columns) == list(model.get_feature_names_out())
        assert_array_equal(out.to_numpy()[:, :-1], expected)


@pytest.mark.parametrize("column", ["arrow list", "arrow chunks", "polars list", "polars column"])
def test_cross_validation_splits_a_column(awkward_sets, column):
    sets = awkward_sets * 4
    y = np.arange(len(sets)) % 2
    model = make_pipeline(small(), LogisticRegression())
    got = cross_val_predict(model, COLUMNS[column](sets), y, cv=3, method="decision_function")
    assert_array_equal(got, cross_val_predict(model, sets, y, cv=3, method="decision_function"))


def test_numeric_frames_are_one_token_a_sample_and_name_its_features(rng):
    values = rng.normal(size=(4, 2))
    pa, pl = optional("pyarrow"), optional("polars")
    frames = [
        pl.DataFrame(values, schema=["a", "b"]),
        pa.table({"a": values[:, 0], "b": values[:, 1]}),
    ]
    for frame in frames:
        assert_array_equal(as_ragged(frame).values, values)
        assert_array_equal(as_ragged(frame).lengths, [1, 1, 1, 1])
    with pytest.warns(UserWarning, match="identity"):
        batch = frames[1].to_batches()[0]
        ests = [small().fit(frame, [0, 1, 0, 1]) for frame in (*frames, batch)]
    for est in ests[:2]:
        assert est.feature_names_in_.tolist() == ["a", "b"]
    for est in ests:
        assert est.n_features_in_ == 2
        assert_array_equal(est.transform(values.tolist()), ests[0].transform(values.tolist()))
    with pytest.raises(ValueError, match="feature names"):
        ests[0].transform(pl.DataFrame(values, schema=["a", "c"]))


def test_text_that_looks_like_numbers_is_refused_in_every_frame():
    texts = {"s": ["[[1, 2]]", "3"]}
    frames = [pd.DataFrame(texts), optional("polars").DataFrame(texts)]
    for frame in (*frames, optional("pyarrow").table(texts)):
        with pytest.raises(ValueError, match="Cell 0 of the column holds '"):
            as_ragged(frame)


# Parquet


F13 = [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]], [], [[7.0, 8.0]]]


WRITERS = ["pandas", "pandas arrow", "polars", "pyarrow", "pyarrow fixed"]
READERS = ["pandas", "pandas arrow", "polars", "pyarrow"]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("reader", READERS)
def test_f14_a_parquet_round_trip_gives_the_same_numbers(writer, reader):
    pa = optional("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow has no Parquet")
    file, sets = io.BytesIO(), [np.array(tokens).reshape(-1, 2) for tokens in F13]
    if writer == "pandas":
        pd.DataFrame({"s": pd.Series(F13)}).to_parquet(file)
    elif writer == "pandas arrow":
        pd.DataFrame({"s": pandas_arrow(sets)}).to_parquet(file)
    elif writer == "polars":
        polars_list(sets).to_frame().write_parquet(file)
    else:
        kind = "fixed" if "fixed" in writer else "list"
        pq.write_table(pa.table({"s": arrow(sets, kind)}), file)
    file.seek(0)

    def read_by_pandas(**how):
        try:
            return pd.read_parquet(file, **how)
        except TypeError as error:
            assert writer == "pandas arrow"
            pytest.skip(f"this pandas does not read the file that it wrote: {error}")

    back = {
        "pandas": read_by_pandas,
        "pandas arrow": lambda: read_by_pandas(dtype_backend="pyarrow"),
        "polars": lambda: optional("polars").read_parquet(file),
        "pyarrow": lambda: pq.read_table(file),
    }[reader]()
    y = [0, 1, 0, 1]
    assert_array_equal(as_ragged(back).values, np.concatenate(sets))
    assert_array_equal(as_ragged(back).lengths, [1, 2, 0, 1])
    assert_array_equal(small().fit(back, y).transform(back), small().fit(sets, y).transform(sets))
    columns = {"pandas": ["s"], "pandas arrow": ["s"], "polars": ["s"]}.get(reader)
    if columns:
        model = ColumnTransformer([("sets", small(), columns)]).fit(back, y)
        assert_array_equal(model.transform(back), small().fit(sets, y).transform(sets))


# What is refused


def column_of(library, cells):
    """A column of nested Python lists, with its nulls."""
    pa, kind = optional("pyarrow"), None
    if library == "pandas":
        kind = pd.ArrowDtype(pa.list_(pa.list_(pa.float64())))
        return pd.Series(pa.array(cells), dtype=kind)
    if library == "pandas objects":
        return pd.Series(cells)
    return {
        "pyarrow": lambda: pa.array(cells, pa.list_(pa.list_(pa.float64()))),
        "chunks": lambda: pa.chunked_array(
            [pa.array([cell], pa.list_(pa.list_(pa.float64()))) for cell in cells]
        ),
        "table": lambda: pa.table({"s": pa.array(cells, pa.list_(pa.list_(pa.float64())))}),
        "polars": lambda: optional("polars").Series(cells),
        "polars array": lambda: optional("polars").Series(
            cells, dtype=optional("polars").List(optional("polars").Array(float, 2))
        ),
        "awkward": lambda: optional("awkward").Array(cells),
    }[library]()


LIBRARIES = [
    "pyarrow",
    "chunks",
    "table",
    "pandas",
    "pandas objects",
    "polars",
    "polars array",
    "awkward",
]
GOOD = [[1.0, 2.0], [3.0, 4.0]]
NAMED = r"(?i)(?=.*\bset 1\b)(?=.*\btoken 1\b)"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_null_set_is_refused_as_none_is(library):
    with pytest.raises(ValueError, match="Cell 1 of the column holds None.*empty list"):
        as_ragged(column_of(library, [GOOD, None, GOOD]))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bad", [None, [1.0, None], [None, None]])
def test_a_null_token_is_refused_by_set_and_token(library, bad):
    with pytest.raises(ValueError, match=NAMED):
        as_ragged(column_of(library, [GOOD, [[5.0, 6.0], bad, [7.0, 8.0]], []]))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_by_set_and_token(library, bad):
    with pytest.raises(ValueError, match=NAMED):
        as_ragged(column_of(library, [GOOD, [[5.0, 6.0], [1.0, bad]], []]))


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "polars array"])
@pytest.mark.parametrize("token", [[1.0], [1.0, 2.0, 3.0], []])
def test_tokens_of_another_width_are_refused_by_set(library, token):
    with pytest.raises(ValueError, match=r"(?i)set 1\b"):
        as_ragged(column_of(library, [GOOD, [[5.0, 6.0], token], GOOD]))


@pytest.mark.parametrize("library", ["pyarrow", "polars", "awkward"])
def test_what_is_not_numbers_in_two_levels_is_refused(library):
    make = {
        "pyarrow": lambda cells: optional("pyarrow").array(cells),
        "polars": lambda cells: optional("polars").Series(cells),
        "awkward": lambda cells: optional("awkward").Array(cells),
    }[library]
    with pytest.raises(TypeError, match="vector of real numbers"):
        as_ragged(make([["cat", "dog"], ["phone"]]))
    with pytest.raises(TypeError, match="vector"):
        as_ragged(make([[{"x": 1.0, "y": 2.0}], []]))
    with pytest.raises(ValueError, match="three deep"):
        as_ragged(make([[[[1.0], [2.0]]], [[[3.0]]]]))


def test_a_bare_set_is_refused_with_advice():
    ak = optional("awkward")
    for X in (ak.Array([1.0, 2.0]), optional("polars").Series([1.0, 2.0])):
        with pytest.raises((TypeError, ValueError), match=r"\[X\]|2D array"):
            as_ragged(X)


def test_a_regular_awkward_array_is_the_numpy_array_it_equals(rng):
    ak, block = optional("awkward"), rng.normal(size=(3, 4, 2))
    block[1, 2:] = np.nan  # padding
    assert_array_equal(as_ragged(ak.Array(block)).lengths, [4, 2, 4])
    dense = rng.normal(size=(3, 2))
    assert_array_equal(as_ragged(ak.Array(dense)).lengths, [1, 1, 1])
    assert_array_equal(as_ragged(ak.Array(dense)).values, dense)


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars"])
def test_a_frame_of_several_columns_with_sets_is_refused_with_advice(awkward_sets, library):
    pa = optional("pyarrow")
    columns = {"s": arrow(awkward_sets), "t": arrow(awkward_sets), "v": pa.array(range(7))}
    for names in (["s", "t"], ["s", "v"]):
        table = pa.table({name: columns[name] for name in names})
        frame = {
            "pyarrow": lambda table: table,
            "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
            "polars": lambda table: optional("polars").from_arrow(table),
        }[library](table)
        with pytest.raises(ValueError, match="2 columns; .*one column of sets at a time"):
            as_ragged(frame)
        with pytest.raises(ValueError, match="one column of sets at a time"):
            small().fit(frame, np.arange(7) % 2)


def test_reading_leaves_a_chunked_column_as_it_is(awkward_sets):
    column = arrow_chunks(awkward_sets)
    before = column.to_pylist()
    small().fit(column, np.arange(7) % 2).transform(column)
    assert column.to_pylist() == before


# What is imported


ONE_AT_A_TIME = """
import sys
import numpy as np

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import {library}
from skattn import as_ragged
assert as_ragged({made}).values.tolist() == [[1, 2], [3, 4], [5, 6]]
"""
MADE = {
    "polars": "polars.Series([[[1, 2], [3, 4]], [], [[5, 6]]])",
    "pyarrow": "pyarrow.array([[[1, 2], [3, 4]], [], [[5, 6]]])",
    "awkward": "awkward.Array([[[1, 2], [3, 4]], [], [[5, 6]]])",
}


@pytest.mark.parametrize("library", MADE)
def test_each_library_is_read_without_the_others(library):
    optional(library)
    absent = {"polars", "pyarrow", "awkward", "pandas"} - {library}
    code = ONE_AT_A_TIME.format(absent=sorted(absent), library=library, made=MADE[library])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_class_that_inherits_from_a_frame_is_read_as_one(awkward_sets):
    class Table(pd.DataFrame):
        """As geopandas has."""

    table = Table({"s": pd.Series(awkward_sets)})
    assert_array_equal(as_ragged(table).values, np.concatenate(awkward_sets))
