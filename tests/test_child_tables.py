"""RaggedArray.from_frame: a child table as sets, and back to its rows. Field case F12."""

import pickle

import numpy as np
import pandas as pd
import pytest
from columns import optional
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

from skattn import AttentionContextualizer, RaggedArray, SetPooler

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

LIBRARIES = ["pandas", "polars"]


def as_library(frame, library):
    """The frame in the library; polars takes it without its index."""
    if library == "pandas":
        return frame
    pl = optional("polars")
    columns = {}
    for name, column in frame.items():
        texts = column.dtype.kind == "O"
        cells = [None if pd.isna(cell) else cell for cell in column] if texts else None
        columns[name] = cells or column.to_numpy()
    return pl.DataFrame(columns)


@pytest.fixture
def letters():
    """F12's frame: keys that interleave."""
    return pd.DataFrame({"g": ["b", "a", "b", "c"], "x": [1, 2, 3, 4]}, index=[7, 5, 6, 4])


@pytest.fixture
def bought(rng):
    """Forty rows of five customers in no order, the third of whom bought nothing."""
    n = 40
    return pd.DataFrame(
        {
            "customer": rng.choice([11, 13, 17, 19], n),
            "price": rng.normal(size=n),
            "hour": rng.integers(0, 24, n),
            "when": pd.to_datetime(rng.permutation(n), unit="D"),
            "count": rng.integers(1, 4, n),
        },
        index=rng.permutation(n),
    )


CUSTOMERS = [19, 13, 12, 11, 17]
COLUMNS = ["price", "hour"]


# The sets and their order


@pytest.mark.parametrize("library", LIBRARIES)
def test_f12_sets_come_in_the_order_of_first_appearance_and_say_so(letters, library):
    sets = RaggedArray.from_frame(as_library(letters, library), by="g", columns=["x"])
    assert sets.index.tolist() == ["b", "a", "c"]
    assert [tokens.ravel().tolist() for tokens in sets] == [[1.0, 3.0], [2.0], [4.0]]
    assert sets.dtype == np.float64


@pytest.mark.parametrize("library", LIBRARIES)
def test_f12_targets_by_key_line_up_in_any_order(bought, library):
    sets = RaggedArray.from_frame(as_library(bought, library), by="customer", columns=COLUMNS)
    y = pd.Series([0.0, 1.0, 2.0, 3.0], index=[11, 13, 17, 19])
    est = AttentionContextualizer(n_heads=1, max_iter=3, random_state=0)
    expected = [bought.loc[bought.customer == key, COLUMNS].to_numpy() for key in y.index]
    loss = est.fit(expected, y).loss_
    for shuffled in (y, y[::-1], y.iloc[[2, 0, 3, 1]]):
        assert est.fit(sets, shuffled.loc[sets.index]).loss_ == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
def test_index_gives_the_order_and_the_empty_sets(bought, library):
    sets = RaggedArray.from_frame(
        as_library(bought, library), by="customer", columns=COLUMNS, index=CUSTOMERS
    )
    assert sets.index.tolist() == CUSTOMERS
    for key, tokens in zip(CUSTOMERS, sets, strict=True):
        assert_array_equal(tokens, bought.loc[bought.customer == key, COLUMNS].to_numpy())
    assert sets.lengths[2] == 0


@pytest.mark.parametrize(
    "index",
    [
        np.array(CUSTOMERS),
        pd.Index(CUSTOMERS, name="id"),
        pd.Series(CUSTOMERS),
        tuple(CUSTOMERS),
        np.array(CUSTOMERS, dtype=float),
    ],
    ids=["array", "index", "series", "tuple", "floats"],
)
def test_index_may_be_any_sequence(bought, index):
    sets = RaggedArray.from_frame(bought, by="customer", columns=COLUMNS, index=index)
    expected = RaggedArray.from_frame(bought, by="customer", columns=COLUMNS, index=CUSTOMERS)
    assert_array_equal(sets.values, expected.values)
    assert_array_equal(sets.offsets, expected.offsets)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("order_by", ["when", ["hour", "when"], ["hour"]])
def test_order_by_sorts_within_each_set_and_keeps_ties(bought, order_by, library):
    sets = RaggedArray.from_frame(
        as_library(bought, library), by="customer", columns=COLUMNS, order_by=order_by
    )
    for key, tokens in zip(sets.index, sets, strict=True):
        rows = bought[bought.customer == key].sort_values(order_by, kind="stable")
        assert_array_equal(tokens, rows[COLUMNS].to_numpy())


def test_order_by_text(letters):
    letters["name"] = ["z", "k", "a", "b"]
    sets = RaggedArray.from_frame(letters, by="g", columns="x", order_by="name")
    assert sets[0].ravel().tolist() == [3.0, 1.0]


@pytest.mark.parametrize("library", LIBRARIES)
def test_weights_travel_with_their_rows(bought, library):
    frame = as_library(bought, library)
    sets = RaggedArray.from_frame(frame, by="customer", columns=COLUMNS, weight="count")
    repeated = bought.loc[bought.index.repeat(bought["count"])]
    again = RaggedArray.from_frame(repeated, by="customer", columns=COLUMNS, index=sets.index)
    pooler = SetPooler(("mean", "std", "max", "count"))
    np.testing.assert_allclose(
        pooler.fit_transform(sets), pooler.fit_transform(again), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize(
    "keys",
    [
        pd.Categorical(["b", "a", "b", "c"], categories=["a", "b", "c", "d"]),
        pd.array([2, 1, 2, 3], dtype="Int64"),
        pd.to_datetime(["2020-01-02", "2020-01-01", "2020-01-02", "2020-01-03"]),
        np.array([("x", 1), ("x", 2), ("x", 1), ("y", 1)], dtype="O,i8").astype(object),
        [True, False, True, False],
    ],
    ids=["categorical", "nullable", "dates", "tuples", "booleans"],
)
def test_keys_may_be_of_any_kind(keys, letters):
    letters["g"] = keys
    sets = RaggedArray.from_frame(letters, by="g", columns=["x"])
    assert sets[0].ravel().tolist() == [1.0, 3.0]
    assert sets.index[0] == letters["g"].iloc[0]
    back = sets.index[::-1]
    again = RaggedArray.from_frame(letters, by="g", columns=["x"], index=back)
    assert_array_equal(again.lengths, sets.lengths[::-1])


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["float32", "float32"], np.float32),
        (["float32", "int8"], np.float64),
        (["Float32", "Float32"], np.float32),
        (["boolean", "Int16"], np.float64),
        (["bool", "float16"], np.float64),
    ],
)
def test_numbers_of_every_kind_are_read(dtypes, expected):
    frame = pd.DataFrame({"g": [1, 2, 1], "a": [1, 0, 1], "b": [0, 1, 1]})
    frame = frame.astype(dict(zip("ab", dtypes, strict=True)))
    sets = RaggedArray.from_frame(frame, by="g", columns=["a", "b"])
    assert sets.dtype == expected
    assert_array_equal(sets.values, [[1, 0], [1, 1], [0, 1]])


def test_a_table_without_rows_gives_empty_sets(bought):
    none = bought.iloc[:0]
    sets = RaggedArray.from_frame(none, by="customer", columns=COLUMNS, index=CUSTOMERS)
    assert sets.shape == (5, None, 2)
    assert sets.n_tokens == 0
    assert len(RaggedArray.from_frame(none, by="customer", columns=COLUMNS)) == 0
    assert sets.broadcast(np.ones((5, 3))).shape == (0, 3)


# Back to the rows


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("order_by", [None, "when"])
def test_broadcast_gives_each_row_its_sets_vector(bought, library, order_by):
    sets = RaggedArray.from_frame(
        as_library(bought, library),
        by="customer",
        columns=COLUMNS,
        order_by=order_by,
        index=CUSTOMERS,
    )
    sums = sets.broadcast(sets.segment_sum())
    expected = bought.groupby("customer")[COLUMNS].transform("sum").to_numpy()
    np.testing.assert_allclose(sums, expected, rtol=1e-12)
    assert_array_equal(sets.broadcast(CUSTOMERS), bought["customer"])


@pytest.mark.parametrize("order_by", [None, "when"])
def test_to_frame_gives_the_rows_back_in_their_order(bought, order_by):
    sets = RaggedArray.from_frame(
        bought, by="customer", columns=COLUMNS, order_by=order_by, index=CUSTOMERS
    )
    back = sets.to_frame()
    assert back.index.names == ["customer", "token"]
    assert_array_equal(back.index.get_level_values("customer"), bought["customer"])
    back = back.set_axis(bought.index)
    assert_frame_equal(back, bought[COLUMNS].astype(float), check_names=False)


def test_contextual_tokens_come_back_in_the_order_of_the_rows(bought):
    sets = RaggedArray.from_frame(bought, by="customer", columns=COLUMNS, order_by="when")
    tokens = sets.with_values(2 * sets.values)
    assert_array_equal(tokens.to_frame().to_numpy(), 2 * bought[COLUMNS].to_numpy())
    assert tokens.index is sets.index


def test_sets_that_were_taken_keep_their_keys_and_the_order_of_their_rows(bought):
    sets = RaggedArray.from_frame(bought, by="customer", columns=COLUMNS, index=CUSTOMERS)
    for key in ([4, 2, 0], np.array([True, False, True, False, True]), slice(None, None, -2)):
        some = sets[key]
        wanted = np.array(CUSTOMERS)[key]
        assert some.index.tolist() == wanted.tolist()
        rows = bought[bought.customer.isin(wanted)]
        assert_array_equal(some.to_frame().to_numpy(), rows[COLUMNS].to_numpy())
        assert_array_equal(some.broadcast(wanted), rows["customer"])


def test_tokens_of_weight_zero_leave_the_other_rows_in_order(bought):
    bought["count"] = np.arange(40) % 3
    sets = RaggedArray.from_frame(bought, by="customer", columns=COLUMNS, weight="count")
    rows = bought[bought["count"] > 0]
    left = sets.drop_zero_weights()
    assert_array_equal(left.broadcast(sets.index), rows["customer"])
    assert_array_equal(left.to_frame().to_numpy(), rows[COLUMNS].to_numpy())


def test_without_a_frame_rows_are_in_the_order_of_the_sets():
    sets = RaggedArray.from_list([[[1.0], [2.0]], [], [[3.0]]])
    assert_array_equal(sets.broadcast([[10], [20], [30]]), [[10], [10], [30]])
    assert sets.index is None
    assert sets.rows is None


@pytest.mark.parametrize("pooled", [np.ones((3, 2)), np.ones(6), 1.0])
def test_broadcast_refuses_another_number_of_sets(bought, pooled):
    sets = RaggedArray.from_frame(bought, by="customer", columns=COLUMNS, index=CUSTOMERS)
    with pytest.raises(ValueError, match="there are 5 sets"):
        sets.broadcast(pooled)


def test_keys_and_rows_survive_pickling_and_astype(bought):
    sets = RaggedArray.from_frame(bought, by="customer", columns=COLUMNS, index=CUSTOMERS)
    for other in (pickle.loads(pickle.dumps(sets)), sets.astype(np.float32)):
        assert other.index.tolist() == CUSTOMERS
        assert_array_equal(other.rows, sets.rows)


@pytest.mark.parametrize(
    "labels",
    [{"index": ["a"]}, {"index": [["a", "b"]]}, {"rows": [0]}, {"rows": [0.0, 1.0, 2.0]}]
    + [{"columns": ["a", "b"]}],
)
def test_labels_that_do_not_fit_are_refused(labels):
    with pytest.raises(ValueError, match="index has|rows has|columns has"):
        RaggedArray(np.ones((3, 1)), [0, 1, 3], **labels)


def test_to_frame_names_several_levels_of_an_index():
    index = pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["shop", None])
    sets = RaggedArray(np.ones((3, 1)), [0, 1, 3], index=index)
    assert sets.to_frame().index.names == ["shop", "set", "token"]
    assert sets.to_frame().index.tolist() == [("x", 1, 0), ("y", 2, 0), ("y", 2, 1)]


# Names of features


def test_an_estimator_takes_note_of_the_columns(bought):
    sets = RaggedArray.from_frame(bought, by="customer", columns=COLUMNS)
    pooler = SetPooler(("mean", "count")).fit(sets)
    assert pooler.feature_names_in_.tolist() == COLUMNS
    assert pooler.get_feature_names_out().tolist() == ["mean_price", "mean_hour", "count"]
    out = pooler.set_output(transform="pandas").transform(sets)
    assert out.columns.tolist() == pooler.get_feature_names_out().tolist()
    assert out.index.tolist() == sets.index.tolist()
    assert_array_equal(pooler.transform(sets.to_list()), out)  # without names, as before
    assert not hasattr(pooler.fit(sets.to_list()), "feature_names_in_")


def test_columns_in_another_order_are_refused(bought):
    sets = RaggedArray.from_frame(bought, by="customer", columns=COLUMNS)
    swapped = RaggedArray.from_frame(bought, by="customer", columns=COLUMNS[::-1])
    with pytest.raises(ValueError, match="feature names should match.*'hour', 'price'"):
        SetPooler().fit(sets).transform(swapped)


def test_columns_leave_with_the_features_that_they_name(bought):
    sets = RaggedArray.from_frame(bought, by="customer", columns=COLUMNS)
    assert sets[::2].columns.tolist() == COLUMNS
    assert sets.astype(np.float32).columns.tolist() == COLUMNS
    assert sets.with_values(sets.values).columns is None
    assert sets.with_values(sets.values, columns=["a", "b"]).columns.tolist() == ["a", "b"]
    assert (
        RaggedArray.from_frame(bought.rename(columns={"price": 0}), "customer", [0]).columns is None
    )


# What is refused


@pytest.mark.parametrize("library", LIBRARIES)
def test_f12_a_missing_key_is_an_error(letters, library):
    letters["g"] = ["b", None, "b", None]
    with pytest.raises(ValueError, match="'g' has no key in row .*1 more of 4"):
        RaggedArray.from_frame(as_library(letters, library), by="g", columns=["x"])
    letters["g"] = [1.0, 2.0, np.nan, 1.0]
    with pytest.raises(ValueError, match="'g' has no key in row"):
        RaggedArray.from_frame(as_library(letters, library), by="g", columns=["x"])


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_key_that_the_parents_lack_is_an_error(letters, library):
    with pytest.raises(ValueError, match="1 keys that index lacks, as 'c'"):
        RaggedArray.from_frame(
            as_library(letters, library), by="g", columns=["x"], index=["a", "b"]
        )


@pytest.mark.parametrize("index", [["a", "b", "c", "a"], ["a", "b", "c", None]])
def test_an_index_that_is_no_key_is_an_error(letters, index):
    with pytest.raises(ValueError, match="index must hold each key once"):
        RaggedArray.from_frame(letters, by="g", columns=["x"], index=index)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"by": "k", "columns": ["x"]}, "0 columns 'k'"),
        ({"by": "g", "columns": ["x", "y"]}, "0 columns 'y'"),
        ({"by": "g", "columns": ["x"], "order_by": "t"}, "0 columns 't'"),
        ({"by": "g", "columns": ["x"], "weight": "w"}, "0 columns 'w'"),
    ],
)
def test_columns_that_do_not_exist_are_named(letters, arguments, named, library):
    with pytest.raises(ValueError, match=named):
        RaggedArray.from_frame(as_library(letters, library), **arguments)


def test_a_name_that_stands_twice_is_refused(letters):
    with pytest.raises(ValueError, match="2 columns 'x'"):
        RaggedArray.from_frame(letters[["g", "x", "x"]], by="g", columns=["x"])


@pytest.mark.parametrize("library", LIBRARIES)
def test_text_is_no_feature(letters, library):
    with pytest.raises(TypeError, match="'g' has dtype.*Encode"):
        RaggedArray.from_frame(as_library(letters, library), by="g", columns=["x", "g"])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("role", ["columns", "weight"])
def test_a_missing_value_names_its_column_and_row(letters, role, bad, library):
    letters["v"] = [1.0, 2.0, bad, 4.0]
    arguments = {"columns": ["x"], role: ["v"] if role == "columns" else "v"}
    row = 6 if library == "pandas" else 2
    with pytest.raises(ValueError, match=f"'v' has no finite value in row {row}, and in 0 more"):
        RaggedArray.from_frame(as_library(letters, library), by="g", **arguments)


def test_a_missing_time_is_refused(letters):
    letters["t"] = pd.to_datetime(["2020-01-01", None, "2020-01-02", "2020-01-03"])
    with pytest.raises(ValueError, match="'t' has no value to sort by in row 5"):
        RaggedArray.from_frame(letters, by="g", columns=["x"], order_by="t")


def test_negative_weights_are_refused(letters):
    letters["w"] = [1.0, -1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="weights must be finite numbers, 0 or more"):
        RaggedArray.from_frame(letters, by="g", columns=["x"], weight="w")


@pytest.mark.parametrize("frame", [{"g": [1], "x": [1]}, np.ones((2, 2)), [[1, 2]]])
def test_what_is_no_frame_is_refused(frame):
    with pytest.raises(TypeError, match="pandas or polars DataFrame"):
        RaggedArray.from_frame(frame, by="g", columns=["x"])
