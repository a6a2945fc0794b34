"""Field cases N01 to N15: inputs that people have, read rightly or refused in words that help."""

import ast
import pickle
import warnings
from decimal import Decimal
from fractions import Fraction

import joblib
import numpy as np
import pandas as pd
import pytest
from columns import optional
from numpy.testing import assert_array_equal

from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionRegressor,
    RaggedArray,
    SetPooler,
    as_ragged,
)
from skattn._targets import for_each_token, plain
from skattn.joining import SetJoiner

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SMALL = {"n_heads": 1, "d_k": 2, "d_v": 2, "max_iter": 2, "random_state": 0}
BLOCK = np.arange(12.0).reshape(2, 3, 2)


def objects(cells):
    """An object array of shape (n,), filled cell by cell."""
    out = np.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        out[i] = cell
    return out


# N01: extension types of Arrow


def tensors(block):
    return optional("pyarrow").FixedShapeTensorArray.from_numpy_ndarray(block)


TENSORS = {
    "array": tensors,
    "chunks": lambda b: optional("pyarrow").chunked_array([tensors(b[:1]), tensors(b[1:])]),
    "slice": lambda b: tensors(np.concatenate([b, b]))[2:],
    "table": lambda b: optional("pyarrow").table({"s": tensors(b)}),
    "batch": lambda b: optional("pyarrow").RecordBatch.from_arrays([tensors(b)], names=["s"]),
    "series": lambda b: pd.Series(tensors(b), dtype=pd.ArrowDtype(tensors(b).type)),
    "frame": lambda b: pd.DataFrame({"s": TENSORS["series"](b)}),
}


@pytest.mark.parametrize("form", TENSORS)
def test_n01_a_tensor_of_arrow_is_a_set(form):
    ragged = as_ragged(TENSORS[form](BLOCK))
    assert ragged.shape == (2, None, 2)
    assert_array_equal(ragged.lengths, [3, 3])
    assert_array_equal(ragged.values, BLOCK.reshape(6, 2))


def test_n01_a_permuted_tensor_is_read_in_its_logical_order():
    pa = optional("pyarrow")
    kind = pa.fixed_shape_tensor(pa.float64(), (2, 3), permutation=[1, 0])
    storage = pa.array(BLOCK.swapaxes(1, 2).reshape(2, 6).tolist(), pa.list_(pa.float64(), 6))
    column = pa.ExtensionArray.from_storage(kind, storage)
    assert_array_equal(as_ragged(column).values, BLOCK.reshape(6, 2))


def test_n01_a_list_of_tensors_is_a_set_of_tokens():
    pa = optional("pyarrow")
    tokens = tensors(BLOCK.reshape(6, 2))
    ragged = as_ragged(pa.ListArray.from_arrays(pa.array([0, 4, 4, 6], pa.int32()), tokens))
    assert_array_equal(ragged.lengths, [4, 0, 2])
    assert_array_equal(ragged.values, BLOCK.reshape(6, 2))


def test_n01_other_extension_types_are_refused_by_name():
    pa = optional("pyarrow")

    class Points(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.list_(pa.float64(), 4), "points")

        def __arrow_ext_serialize__(self):
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage_type, serialized):
            return cls()

    storage = pa.array([[0.0, 1.0, 2.0, 3.0]], pa.list_(pa.float64(), 4))
    column = pa.ExtensionArray.from_storage(Points(), storage)
    for X in (column, pa.table({"s": column}), pa.chunked_array([column])):
        with pytest.raises(TypeError, match="extension type .*cast"):
            as_ragged(X)
    kind = tensors(BLOCK).type
    assert as_ragged(pa.chunked_array([], kind)).shape == (0, None, 2)
    null = pa.ExtensionArray.from_storage(kind, pa.nulls(1, kind.storage_type))
    with pytest.raises(ValueError, match="Cell 0 of the column holds None"):
        as_ragged(null)


def test_n01_an_extension_type_of_polars_is_refused_by_name():
    pl = optional("polars")
    if not hasattr(pl, "BaseExtension"):
        pytest.skip("this polars has no extension types")

    class Points(pl.BaseExtension):
        def __init__(self):
            super().__init__("skattn.points", pl.Array(pl.Float64, 4))

    column = pl.Series([[0.0, 1.0, 2.0, 3.0]], dtype=pl.Array(pl.Float64, 4)).ext.to(Points())
    for X in (column, column.to_frame("s")):
        with pytest.raises(TypeError, match=r"extension type .*pass column\.ext\.storage"):
            as_ragged(X)


def test_n01_truth_values_of_arrow_are_numbers():
    pa = optional("pyarrow")
    if not hasattr(pa, "bool8"):
        pytest.skip("this pyarrow has no 8-bit booleans")
    column = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))
    assert as_ragged(pa.table({"a": column, "b": [2.0, 3.0]})).values.tolist() == [[1, 2], [0, 3]]
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), column)
    assert as_ragged(lists).values.tolist() == [[1], [0]]


# N02: names that come with each cell

NAMED = {
    "pandas": pd.DataFrame,
    "polars": lambda data: optional("polars").DataFrame(data),
    "arrow": lambda data: optional("pyarrow").table(data),
}


def named_sets(names, make=pd.DataFrame):
    """Eight sets, u rising from set to set and v falling, with columns in the order of names."""
    data = [{"u": [i, i + 1.0], "v": [-i, 1.0 - i]} for i in np.arange(8.0)]
    return [make({name: columns[name] for name in names}) for columns in data]


@pytest.mark.parametrize("library", NAMED)
@pytest.mark.parametrize("of", [list, tuple, objects, pd.Series])
def test_n02_names_of_the_cells_are_kept_and_compared(library, of):
    make, y = NAMED[library], np.arange(8) // 4
    for model in (AttentionClassifier(**SMALL), SetPooler()):
        model.fit(of(named_sets("uv", make)), y)
        assert model.feature_names_in_.tolist() == ["u", "v"]
        model.transform(of(named_sets("uv", make)))
        model.transform([frame.to_numpy() for frame in named_sets("uv")])
        with pytest.raises(ValueError, match="feature names should match.*same order"):
            model.transform(of(named_sets("vu", make)))
        other = [make({"u": [0.0], "w": [0.0]})]
        with pytest.raises(ValueError, match="feature names should match"):
            model.transform(of(other))


def test_n02_two_orders_in_one_list_name_the_set():
    mixed = [*named_sets("uv")[:3], [], *named_sets("vu")[:1]]
    with pytest.raises(ValueError, match=r"Set 4 has the columns \['v', 'u'\], but set 0 has"):
        as_ragged(mixed)


def test_n02_the_columns_of_a_ragged_array_meet_those_of_cells():
    frame = pd.DataFrame({"k": [1, 1, 2], "u": [0.0, 1, 2], "v": [1.0, 2, 3]})
    sets = RaggedArray.from_frame(frame, by="k", columns=["v", "u"])
    model = SetPooler().fit(named_sets("uv"))
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(sets)


def test_n02_rows_as_series_bring_names_too():
    frame = pd.DataFrame({"u": [1.0, 2.0], "v": [3.0, 4.0]})
    rows = [row for _, row in frame.iterrows()]
    assert as_ragged(rows).columns.tolist() == ["u", "v"]
    with pytest.raises(ValueError, match="Set 1 has the columns"):
        as_ragged([rows[0], rows[1][["v", "u"]]])


# N04: NaT


@pytest.mark.parametrize("dtype", ["M8[ns]", "m8[s]", object])
@pytest.mark.parametrize("model", [AttentionRegressor, AttentionClassifier])
def test_n04_nat_in_y_is_missing(dtype, model):
    y = np.array(["2020-01-01", "2021-01-01", "NaT"], "M8[s]")
    y = (y - y[0]).astype(dtype) if dtype == "m8[s]" else y.astype(dtype)
    if dtype is object:
        y[-1] = pd.NaT
    for given in (y, pd.Series(y)):
        with pytest.raises(ValueError, match="Input y contains NaN"):
            model(**SMALL).fit([[[1.0]], [[2.0], [1.0]], [[0.0]]], given)


def test_n04_a_token_without_a_date_is_not_scored():
    y = [np.array(["2020", "NaT"], "M8[D]"), np.array(["2021", "2020"], "M8[D]")]
    X = [[[1.0], [2.0]], [[3.0], [1.0]]]
    model = AttentionClassifier(**SMALL, pooling=None).fit(X, y)
    same = AttentionClassifier(**SMALL, pooling=None).fit(X, [["2020", None], ["2021", "2020"]])
    assert_array_equal(model.classes_, np.array(["2020", "2021"], "M8[D]"))
    assert_array_equal(model.coef_, same.coef_)


@pytest.mark.parametrize(
    "make",
    [
        lambda dates: dates[:, None],
        lambda dates: pd.DataFrame({"t": dates}),
        lambda dates: pd.DataFrame({"t": dates, "x": 1.0}),
        lambda dates: [dates[:, None]],
        lambda dates: optional("polars").DataFrame({"t": dates}),
    ],
    ids=["array", "frame", "frame of two", "set", "polars"],
)
def test_n04_dates_are_no_tokens_in_any_form(make):
    with pytest.raises(TypeError, match="datetime64"):
        as_ragged(make(np.array(["2020-01-01", "NaT"], "M8[ns]")))


# N05: an order that a type knows


def test_n05_the_order_of_an_enum_is_kept():
    pl, sizes = optional("polars"), ["S", "M", "L"]
    data = {"k": [1, 1, 1, 2], "x": [1.0, 2.0, 3.0, 4.0], "s": ["L", "M", "S", "S"]}
    frame = pl.DataFrame(data, schema_overrides={"s": pl.Enum(sizes)})
    pandas = pd.DataFrame(data)
    pandas["s"] = pd.Categorical(data["s"], sizes, ordered=True)
    for table in (frame, pandas, optional("pyarrow").Table.from_pandas(pandas)):
        sets = RaggedArray.from_frame(table, by="k", columns="x", order_by="s")
        assert sets[0].ravel().tolist() == [3.0, 2.0, 1.0]
    unordered = pl.DataFrame(data)
    sets = RaggedArray.from_frame(unordered, by="k", columns="x", order_by="s")
    assert sets[0].ravel().tolist() == [1.0, 2.0, 3.0]


# N06: keys that a float cannot hold

BIG = 2**53


@pytest.mark.parametrize("kind", ["float64", "Float64", object])
def test_n06_nobodys_rows_in_anothers_set(kind):
    child = pd.DataFrame({"k": [BIG, BIG + 1, BIG + 1], "x": [1.0, 2.0, 3.0]})
    parents = pd.DataFrame({"k": pd.Series([float(BIG)], dtype=kind)})
    with pytest.raises(ValueError, match="rounded to one another.*integers"):
        SetJoiner(child, key="k", columns="x").fit(parents)
    with pytest.raises(ValueError, match="rounded to one another"):
        RaggedArray.from_frame(child, by="k", columns="x", index=parents["k"])


@pytest.mark.parametrize("kind", ["int64", "uint64", "Int64", "UInt64", object, "category"])
@pytest.mark.parametrize("child_kind", ["int64", "uint64", "Int64", object])
def test_n06_integers_of_any_type_match_exactly(kind, child_kind):
    keys = [BIG, BIG + 1, BIG + 2, 2**62 + 1, 2**62]
    child = pd.DataFrame({"k": pd.Series(keys, dtype=child_kind), "x": np.arange(5.0)})
    parents = pd.DataFrame({"k": pd.Series(keys[::-1], dtype=kind)})
    sets = SetJoiner(child, key="k", columns="x").fit_transform(parents)
    assert sets.values.ravel().tolist() == [4.0, 3.0, 2.0, 1.0, 0.0]
    assert sets.lengths.tolist() == [1] * 5


def test_n06_small_floats_still_match_integers():
    child = pd.DataFrame({"k": [1, 2, BIG + 1], "x": [1.0, 2.0, 3.0]})
    joiner = SetJoiner(child, key="k", columns="x")
    assert joiner.fit_transform([2.0, 1.5, 1.0]).lengths.tolist() == [1, 0, 1]


# N07: tensors of torch


def test_n07_tensors_are_read_where_that_is_exact():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    sets = [torch.arange(6.0).reshape(3, 2), torch.ones(1, 2)]
    expected = np.concatenate([tokens.numpy() for tokens in sets])
    narrow = [tokens.to(torch.bfloat16) for tokens in sets]
    for X in (
        narrow,
        [tokens.clone().requires_grad_() for tokens in sets],
        [list(tokens) for tokens in narrow],
        torch.nested.nested_tensor(sets, layout=torch.jagged),
        torch.nn.utils.rnn.pack_sequence(sets, enforce_sorted=False),
        torch.nn.utils.rnn.pack_sequence(sets[::-1], enforce_sorted=False),
    ):
        ragged = as_ragged(X)
        swapped = ragged.lengths[0] == 1
        assert_array_equal((ragged[[1, 0]] if swapped else ragged).values, expected)
    assert as_ragged(narrow).dtype == np.float64
    for bad in (sets[0].to_sparse(), sets[0].to("meta")):
        with pytest.raises(TypeError, match="Set 0 is a Tensor, which does not give its numbers"):
            as_ragged([bad])
    assert as_ragged(torch.ones(2, 3, requires_grad=True)).shape == (2, None, 3)


def test_n07_a_foreign_error_names_the_set_and_the_way_out():
    class Guarded:
        """An array that does not give its numbers away."""

        def __len__(self):
            return 1

        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("not before you ask nicely")

    cells = objects([[[1.0]], Guarded()])
    for X in (list(cells), cells, pd.Series(cells)):
        with pytest.raises(TypeError, match="Set 1 is a Guarded.*ask nicely.*detach"):
            as_ragged(X)
    with pytest.raises(TypeError, match="X is a Guarded.*ask nicely.*detach"):
        as_ragged(Guarded())


# N08: text


@pytest.mark.parametrize(
    "make",
    [
        list,
        pd.Series,
        objects,
        lambda c: pd.DataFrame({"s": c}),
        lambda c: pd.DataFrame({"s": c, "x": 1.0}),
        lambda c: optional("polars").DataFrame({"s": c}),
        lambda c: optional("pyarrow").table({"s": c}),
    ],
    ids=["list", "series", "objects", "frame", "frame of two", "polars", "arrow"],
)
def test_n08_a_column_from_csv_is_named_in_few_words(make):
    cells = [str([[1.0, 2.0]] * 5000)] * 3
    with pytest.raises((TypeError, ValueError), match="went through a CSV file") as info:
        as_ragged(make(cells))
    assert len(str(info.value)) < 600
    assert_array_equal(as_ragged(pd.Series(cells).map(ast.literal_eval)).lengths, [5000] * 3)
    with pytest.raises((TypeError, ValueError), match="NumPy prints it"):
        as_ragged(make(["[[1. 2.]\n [3. 4.]]"]))


# N09 and N10: what is missing, and what is a number


@pytest.mark.parametrize("gap", [None, pd.NA, pd.NaT], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        list,
        objects,
        pd.Series,
        lambda sets: pd.DataFrame({"s": pd.Series(sets)}),
        lambda sets: [np.array(tokens, dtype=object) for tokens in sets],
        lambda sets: [objects(tokens) for tokens in sets],
        lambda sets: [pd.DataFrame(tokens, dtype=object) for tokens in sets],
        lambda sets: np.array(sets, dtype=object),
    ],
    ids=["list", "objects", "series", "frame", "matrices", "rows", "frames", "3-D"],
)
def test_n09_a_missing_number_is_named_by_set_and_token(make, gap):
    sets = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, gap]]]
    with pytest.raises(ValueError, match="missing value: token 1 of set 1"):
        as_ragged(make(sets))


def test_n09_a_missing_row_of_a_padded_object_array_is_padding():
    block = np.array([[[1.0, 2.0], [None, None]], [[3, 4], [pd.NA, np.nan]]], dtype=object)
    assert_array_equal(as_ragged(block).lengths, [1, 1])


NUMBERS = {"decimal": Decimal, "fraction": Fraction}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize(
    "make",
    [
        lambda sets: sets,
        objects,
        pd.Series,
        lambda sets: [np.array(tokens, dtype=object) for tokens in sets],
        lambda sets: np.array(sets, dtype=object),
        lambda sets: pd.DataFrame([tokens[0] for tokens in sets]),
        lambda sets: [tokens[0] for tokens in sets],
        lambda sets: np.array([tokens[0] for tokens in sets], dtype=object),
    ],
    ids=["list", "objects", "series", "matrices", "3-D", "dense frame", "rows", "dense array"],
)
def test_n10_exact_numbers_are_read_in_every_form(make, kind):
    number = NUMBERS[kind]
    sets = [[[number("1.5"), number(2)]], [[number(3), number("-0.25")]]]
    assert_array_equal(as_ragged(make(sets)).values, [[1.5, 2.0], [3.0, -0.25]])


def test_n10_decimal_columns_are_read():
    child = {"k": [1, 1, 2], "x": [Decimal("1.50"), Decimal("2.00"), Decimal("-0.25")]}
    pa, pl = optional("pyarrow"), optional("polars")
    frames = [pd.DataFrame(child), pl.DataFrame(child), pa.table(child)]
    frames.append(frames[-1].to_pandas(types_mapper=pd.ArrowDtype))
    for frame in frames:
        sets = RaggedArray.from_frame(frame, by="k", columns="x")
        assert sets.values.ravel().tolist() == [1.5, 2.0, -0.25]
    cells = [[[Decimal("1.50")]], [[Decimal("2.00")], [Decimal("-0.25")]]]
    for column in (pa.array(cells), pl.Series(cells)):
        assert as_ragged(column).values.ravel().tolist() == [1.5, 2.0, -0.25]


# N11 and N12: keys, and frames that are not there yet


@pytest.fixture
def orders():
    return pd.DataFrame(
        {"shop": ["b", "a", "b", "a"], "order": [1, 1, 1, 2], "price": [1.0, 2.0, 3.0, 4.0]}
    )


@pytest.mark.parametrize("library", NAMED)
def test_n11_keys_of_several_columns(orders, library):
    frame = NAMED[library](orders.to_dict("list"))
    sets = RaggedArray.from_frame(frame, by=["shop", "order"], columns="price")
    assert isinstance(sets.index, pd.MultiIndex)
    assert sets.index.names == ["shop", "order"]
    assert sets.index.tolist() == [("b", 1), ("a", 1), ("a", 2)]
    assert [tokens.ravel().tolist() for tokens in sets] == [[1.0, 3.0], [2.0], [4.0]]
    keys = [("a", 2), ("c", 1), ("b", 1), ("a", 1)]
    parents = pd.DataFrame(keys, columns=["shop", "order"])
    for index in (keys, pd.MultiIndex.from_tuples(keys), parents, parents.assign(age=1.0)):
        again = RaggedArray.from_frame(frame, by=["shop", "order"], columns="price", index=index)
        assert again.lengths.tolist() == [1, 0, 2, 1]
        assert again.index.names == ["shop", "order"]
        assert again.to_frame().index.names == ["shop", "order", "token"]
    joiner = SetJoiner(frame, key=["shop", "order"], columns="price")
    assert joiner.fit_transform(parents).lengths.tolist() == [1, 0, 2, 1]
    assert joiner.transform(parents.to_numpy()).lengths.tolist() == [1, 0, 2, 1]


def test_n11_parts_of_a_key_are_compared_exactly(orders):
    child = orders.assign(order=[BIG, BIG + 1, BIG + 1, BIG])
    index = [("b", BIG + 1), ("b", BIG), ("a", BIG), ("a", BIG + 1)]
    sets = RaggedArray.from_frame(child, by=["shop", "order"], columns="price", index=index)
    assert sets.values.ravel().tolist() == [3.0, 1.0, 4.0, 2.0]


def test_n11_a_key_in_the_index_and_keys_that_are_tuples(orders):
    expected = RaggedArray.from_frame(orders, by="shop", columns="price")
    inside = RaggedArray.from_frame(orders.set_index("shop"), by="shop", columns="price")
    assert inside.index.tolist() == expected.index.tolist()
    tupled = orders.assign(k=list(zip(orders.shop, orders.order, strict=True)))
    index = [("a", 1), ("b", 1), ("a", 2)]
    sets = RaggedArray.from_frame(tupled, by="k", columns="price", index=index)
    assert sets.lengths.tolist() == [1, 2, 1]
    assert sets.index.nlevels == 1
    with pytest.raises(TypeError, match="'k' holds keys that cannot be looked up.*by="):
        RaggedArray.from_frame(orders.assign(k=[["a", 1]] * 4), by="k", columns="price")
    orders.loc[2, "order"] = np.nan
    with pytest.raises(ValueError, match="'order' has no key in row 2"):
        RaggedArray.from_frame(orders, by=["shop", "order"], columns="price")


def test_n12_a_lazy_frame_says_to_collect(orders):
    lazy = optional("polars").DataFrame(orders.to_dict("list")).lazy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for read in (
            as_ragged,
            lambda X: RaggedArray.from_frame(X, by="shop", columns="price"),
            lambda X: SetJoiner(X, key="shop", columns="price").fit(orders),
            lambda X: SetJoiner(orders, key="shop", columns="price").fit(X),
            SetPooler().fit,
        ):
            with pytest.raises(TypeError, match=r"call \.collect\(\)"):
                read(lazy)


# N13: what was read of it is no part of it


def test_n13_a_property_that_was_read_changes_no_pickle(orders):
    made = RaggedArray.from_frame(orders, by="shop", columns="price")
    for X in (made, RaggedArray.from_list([[[1.0]], []]), made[[1, 0]], as_ragged([np.eye(2)])):
        before, pickled = joblib.hash(X), pickle.dumps(X)
        _ = X.lengths, X.shape, repr(X), X.segment_sum(), X.broadcast(np.ones(len(X)))
        assert joblib.hash(X) == before
        assert pickle.dumps(X) == pickled
        again = pickle.loads(pickled)
        assert joblib.hash(again) == before
        assert_array_equal(again.lengths, X.lengths)


# N14 and N15: y

COLUMNS = {
    "list": lambda y: y,
    "series": pd.Series,
    "objects": objects,
    "arrow": lambda y: optional("pyarrow").array(y),
    "chunks": lambda y: optional("pyarrow").chunked_array([y[:1], y[1:]]),
    "table": lambda y: optional("pyarrow").table({"y": y}),
    "arrow series": lambda y: pd.Series(y, dtype=pd.ArrowDtype(optional("pyarrow").array(y).type)),
    "polars": lambda y: optional("polars").Series(y),
    "polars frame": lambda y: optional("polars").DataFrame({"y": optional("polars").Series(y)}),
    "pandas frame": lambda y: pd.DataFrame({"y": pd.Series(y)}),
    "awkward": lambda y: optional("awkward").Array(y),
}
SETS = [[[1.0], [2.0]], [[3.0]], [[0.0], [1.0], [5.0]], []]


@pytest.mark.parametrize("form", COLUMNS)
@pytest.mark.parametrize(
    "y",
    [[[1, 0], [1], [0, None, 1], []], [["a", "b"], ["a"], ["b", None, "a"], []]],
    ids=["numbers", "words"],
)
def test_n14_targets_per_token_may_come_as_the_tokens_do(form, y):
    model = AttentionClassifier(**SMALL, pooling=None).fit(SETS, COLUMNS[form](y))
    expected = AttentionClassifier(**SMALL, pooling=None).fit(SETS, y)
    assert model.classes_.tolist() == expected.classes_.tolist()
    assert_array_equal(model.coef_, expected.coef_)
    assert model.score(SETS, COLUMNS[form](y)) == expected.score(SETS, y)


@pytest.mark.parametrize("form", COLUMNS)
def test_n14_weights_per_token_may_come_so_too(form):
    y, weight = [[1, 0], [1], [0, 1, 1], []], [[1.0, 2.0], [0.5], [1.0, 0.0, 1.0], []]
    model = AttentionClassifier(**SMALL, pooling=None)
    got = model.fit(SETS, y, sample_weight=COLUMNS[form](weight)).coef_
    assert_array_equal(got, model.fit(SETS, y, sample_weight=weight).coef_)


def test_n14_targets_of_tokens_are_read_alike_in_a_step_on_tokens():
    X = RaggedArray.from_list([[[1.0], [2.0]], [[3.0]], []])
    for form in COLUMNS.values():
        assert for_each_token(form([[1, 0], [1], []]), X).tolist() == [1, 0, 1]
    assert for_each_token(["a", "b", "c"], X).tolist() == ["a", "a", "b"]
    assert for_each_token([[1, 2], [3, 4], [5, 6]], X).tolist() == [[1, 2], [1, 2], [3, 4]]
    with pytest.raises(ValueError, match="Set 1 has 1 tokens, but y has 2 entries for it"):
        for_each_token([[1, 0], [1, 1], []], X)


@pytest.mark.parametrize("library", ["pyarrow", "polars", "awkward"])
def test_n14_targets_per_set_may_come_as_columns(library):
    y = {
        "pyarrow": lambda cells: optional("pyarrow").array(cells),
        "polars": lambda cells: optional("polars").Series(cells),
        "awkward": lambda cells: optional("awkward").Array(cells),
    }[library]
    for labels in (["a", "b", "b", "a"], [1, 0, 0, 1]):
        model = AttentionClassifier(**SMALL).fit(SETS, y(labels))
        assert model.classes_.tolist() == sorted(set(labels))
        assert_array_equal(model.coef_, AttentionClassifier(**SMALL).fit(SETS, labels).coef_)
    assert plain(y([1, 0])).tolist() == [1, 0]
    with pytest.raises(ValueError, match="Input y contains NaN"):
        plain(y(["a", None]))


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy has it from version 2.0")
def test_n15_text_of_numpys_own_type_is_labels():
    y = ["no", "yes", "yes", "no"]
    texts = np.array(y, dtype=np.dtypes.StringDType())
    model = AttentionClassifier(**SMALL).fit(SETS, texts)
    assert model.classes_.tolist() == ["no", "yes"]
    assert_array_equal(model.predict(SETS), AttentionClassifier(**SMALL).fit(SETS, y).predict(SETS))
    assert AttentionContextualizer(**SMALL).fit(SETS, texts).classes_.tolist() == ["no", "yes"]
    per_token = [texts[:2], texts[:1], texts[1:], texts[:0]]
    model = AttentionClassifier(**SMALL, pooling=None).fit(SETS, per_token)
    assert model.classes_.tolist() == ["no", "yes"]
    gap = np.array(["no", None, "yes", "no"], dtype=np.dtypes.StringDType(na_object=None))
    with pytest.raises(ValueError, match="Input y contains NaN"):
        AttentionClassifier(**SMALL).fit(SETS, gap)


# No sets


@pytest.mark.parametrize(
    "nothing",
    [
        lambda: [],
        lambda: (),
        lambda: objects([]),
        lambda: np.empty((0, 1), dtype=object),
        lambda: np.empty(0),
        lambda: np.empty((0, 2)),
        lambda: np.empty((0, 4, 2)),
        lambda: pd.Series([], dtype=object),
        lambda: pd.DataFrame({"s": []}, dtype=object),
        lambda: RaggedArray(np.empty((0, 2)), [0]),
        lambda: optional("polars").Series([], dtype=optional("polars").List(int)),
        lambda: optional("pyarrow").array([[1.0]])[:0],
        lambda: optional("awkward").Array([]),
    ],
    ids="list tuple objects column 1-D dense 3-D series frame ragged polars arrow awkward".split(),
)
def test_no_sets_are_transformed_to_no_rows_and_not_learned_from(nothing):
    sets = [[[1.0, 2.0]], [[3.0, 1.0], [0.0, 1.0]]]
    for model in (SetPooler(), AttentionContextualizer(**SMALL)):
        expected = model.fit(sets, [0, 1]).transform(sets)
        assert model.transform(nothing()).shape == (0, expected.shape[1])
        with pytest.raises(ValueError, match=r"0 sample\(s\)"):
            model.fit(nothing(), [])
