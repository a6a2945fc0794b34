"""as_ragged: the same sets in every container are the same numbers."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

from skattn import RaggedArray, as_ragged
from skattn.containers import READERS

NAN, INF = np.nan, np.inf


def pandas():
    """The library, or a skip."""
    return pytest.importorskip("pandas")


def objects(cells):
    """An object array of shape (n,), filled cell by cell."""
    out = np.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        out[i] = cell
    return out


def frame_of(tokens):
    """Tokens as a pandas frame with one named column per feature."""
    return pandas().DataFrame(tokens, columns=[f"f{j}" for j in range(tokens.shape[1])])


def padded(sets, at):
    """A 3-D array in which NaN rows stand before, between or after the tokens of each set."""
    longest = max(len(tokens) for tokens in sets) + 2
    out = np.full((len(sets), longest, sets[0].shape[1]), NAN)
    for i, tokens in enumerate(sets):
        n = len(tokens)
        rows = {
            "front": np.arange(longest - n, longest),
            "middle": np.r_[np.arange(n // 2), np.arange(longest - n + n // 2, longest)],
            "end": np.arange(n),
        }[at]
        out[i, rows] = tokens
    return out


def masked(sets, hole):
    """A 3-D masked array, with `hole` in the slots that are masked."""
    filled = padded(sets, "end")
    absent = np.isnan(filled)
    return np.ma.array(np.where(absent, hole, filled), mask=absent)


def weighted(sets):
    """A RaggedArray in which every set ends in a token of weight 0."""
    ghosts = [np.vstack([tokens, np.full((1, tokens.shape[1]), 9.0)]) for tokens in sets]
    weights = [[1.0] * len(tokens) + [0.0] for tokens in sets]
    return RaggedArray.from_list(ghosts, weights).drop_zero_weights()


CONTAINERS = {
    "list of arrays": list,
    "tuple of arrays": tuple,
    "nested lists": lambda sets: [tokens.tolist() for tokens in sets],
    "nested tuples": lambda sets: tuple(tuple(map(tuple, tokens.tolist())) for tokens in sets),
    "lists of row arrays": lambda sets: [list(tokens) for tokens in sets],
    "list of frames": lambda sets: [frame_of(tokens) for tokens in sets],
    "list, [] where empty": lambda sets: [t if len(t) else [] for t in sets],
    "object array": objects,
    "object array of lists": lambda sets: objects([tokens.tolist() for tokens in sets]),
    "object array (n, 1)": lambda sets: objects(sets).reshape(-1, 1),
    "object array of object arrays": lambda sets: objects([objects(list(t)) for t in sets]),
    "list of object matrices": lambda sets: [tokens.astype(object) for tokens in sets],
    "RaggedArray": RaggedArray.from_list,
    "RaggedArray with ghosts": weighted,
    "3-D, padded in front": lambda sets: padded(sets, "front"),
    "3-D, padded in the middle": lambda sets: padded(sets, "middle"),
    "3-D, padded at the end": lambda sets: padded(sets, "end"),
    "3-D of objects": lambda sets: padded(sets, "end").astype(object),
    "masked 3-D": lambda sets: masked(sets, 7.0),
    "masked 3-D over NaN": lambda sets: masked(sets, NAN),
    "masked 3-D over infinity": lambda sets: masked(sets, INF),
    "series of arrays": lambda sets: pandas().Series(sets),
    "series of lists": lambda sets: pandas().Series([tokens.tolist() for tokens in sets]),
    "series of object arrays": lambda sets: pandas().Series([objects(list(t)) for t in sets]),
    "series of frames": lambda sets: pandas().Series([frame_of(tokens) for tokens in sets]),
    "series with an index": lambda sets: pandas().Series(sets, index=range(len(sets), 0, -1)),
    "frame of one column": lambda sets: pandas().DataFrame({"bag": pandas().Series(sets)}),
}


@pytest.fixture(params=["awkward", "equal lengths", "one set", "one token each", "one feature"])
def sets(request, awkward_sets):
    """Sets of different, equal and degenerate shapes."""
    rng = np.random.default_rng(3)
    lengths, d = {
        "equal lengths": ((3, 3, 3, 3), 2),
        "one set": ((5,), 3),
        "one token each": ((1, 1, 1), 4),
        "one feature": ((2, 0, 1, 3), 1),
    }.get(request.param, ((), 0))
    return [rng.normal(size=(n, d)) for n in lengths] or awkward_sets


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_every_container_of_the_same_sets_is_read_the_same(sets, container):
    expected, got = RaggedArray.from_list(sets), as_ragged(container(sets))
    assert isinstance(got, RaggedArray)
    assert got.dtype == np.float64
    assert got.weights is None
    assert_array_equal(got.offsets, expected.offsets)
    assert_array_equal(got.values, expected.values)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_reading_leaves_the_input_as_it_is(sets, container):
    X = container([tokens.copy() for tokens in sets])
    before = pickle.dumps(X)
    for array in (a for a in (X if isinstance(X, (list, tuple)) else [X]) if hasattr(a, "flags")):
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    as_ragged(copy.copy(X))
    as_ragged(X)
    assert pickle.dumps(X) == before


def test_token_weights_travel_in_a_ragged_array():
    ragged = RaggedArray.from_list([[[1.0], [2.0]], [[3.0]]], weights=[[0.0, 2.0], [1.0]])
    assert_array_equal(as_ragged(ragged).weights, [0, 2, 1])
    assert as_ragged(ragged).values is ragged.values


# One token a sample

ROWS = np.array([[1.0, 2.0], [0.0, 0.0], [5.0, 6.0]])
DENSE = {
    "array": lambda: ROWS,
    "object array": lambda: ROWS.astype(object),
    "list of lists": ROWS.tolist,
    "list of rows": lambda: list(ROWS),
    "tuple of tuples": lambda: tuple(map(tuple, ROWS)),
    "frame": lambda: frame_of(ROWS),
    "frame of mixed types": lambda: frame_of(ROWS).astype({"f0": "float32", "f1": "int64"}),
    "list of series": lambda: [row for _, row in frame_of(ROWS).iterrows()],
    "masked array": lambda: np.ma.array(ROWS, mask=False),
    "3-D of one token": lambda: ROWS[:, None, :],
    "sets of one token": lambda: list(ROWS[:, None, :]),
}


@pytest.mark.parametrize("make", DENSE.values(), ids=DENSE)
def test_dense_rows_are_one_token_a_sample(make):
    ragged = as_ragged(make())
    assert_array_equal(ragged.lengths, [1, 1, 1])
    assert_array_equal(ragged.values, ROWS)


def test_a_masked_row_of_a_dense_array_is_an_empty_set():
    X = np.ma.array(ROWS, mask=[[False, False], [True, True], [False, False]])
    assert_array_equal(as_ragged(X).lengths, [1, 0, 1])
    assert_array_equal(as_ragged(X).values, ROWS[[0, 2]])


@pytest.mark.parametrize("of", [list, objects, lambda cells: pandas().Series(cells)])
def test_a_masked_token_is_left_out_of_a_set_too(of):
    tokens = np.ma.array([[1.0, 2.0], [NAN, 9.0], [3.0, 4.0]], mask=[[0, 0], [1, 1], [0, 0]])
    ragged = as_ragged(of([tokens, np.ones((2, 2))]))
    assert_array_equal(ragged.lengths, [2, 2])
    assert_array_equal(ragged[0], [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    "make",
    [
        lambda cells: pandas().Series(cells),
        lambda cells: pandas().DataFrame({"s": pandas().Series(cells)}),
        objects,
        lambda cells: objects(cells).reshape(-1, 1),
    ],
    ids=["series", "frame", "object array", "object (n, 1)"],
)
@pytest.mark.parametrize("as_cell", [list, np.array, tuple])
def test_a_one_dimensional_cell_of_a_column_is_tokens_of_one_feature(make, as_cell):
    ragged = as_ragged(make([as_cell([1.0, 2.0]), as_cell([3.0]), as_cell([])]))
    assert_array_equal(ragged.lengths, [2, 1, 0])
    assert_array_equal(ragged.values, [[1], [2], [3]])


def test_equal_one_dimensional_cells_of_a_column_are_no_dense_rows():
    ragged = as_ragged(pandas().Series([[1.0, 2.0], [3.0, 4.0]]))
    assert (ragged.n_features, ragged.n_tokens) == (1, 4)


# Sets without tokens


@pytest.mark.parametrize(
    "container",
    [
        lambda: [np.empty((0, 3))] * 2,
        lambda: np.full((2, 4, 3), NAN),
        lambda: np.empty((2, 0, 3)),
        lambda: np.ma.array(np.ones((2, 4, 3)), mask=True),
        lambda: np.ma.array(np.ones((2, 3)), mask=True),
        lambda: RaggedArray(np.empty((0, 3)), [0, 0, 0]),
        lambda: pandas().Series([np.empty((0, 3))] * 2),
    ],
)
def test_sets_may_all_be_empty_and_keep_their_width(container):
    ragged = as_ragged(container())
    assert_array_equal(ragged.lengths, [0, 0])
    assert ragged.n_features == 3


@pytest.mark.parametrize(
    "container",
    [list, tuple, objects, lambda cells: pandas().Series(cells)],
    ids=["list", "tuple", "object array", "series"],
)
def test_empty_lists_are_empty_sets_whatever_holds_them(container):
    assert_array_equal(as_ragged(container([[], []])).lengths, [0, 0])


def test_rows_of_zeros_are_tokens():
    assert_array_equal(as_ragged(np.zeros((2, 3, 1))).lengths, [3, 3])
    assert_array_equal(as_ragged([np.zeros((2, 2)), np.zeros((1, 2))]).lengths, [2, 1])


# Layouts and types


LAYOUTS = {
    "Fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(np.repeat(a, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("form", ["list", "column", "3-D", "dense", "ragged"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_memory_layout_does_not_matter(rng, layout, form, dtype):
    if form == "3-D":
        X = rng.normal(size=(3, 4, 2)).astype(dtype)
        expected, X = X.reshape(-1, 2), layout(X)
    elif form == "dense":
        expected = rng.normal(size=(5, 2)).astype(dtype)
        X = layout(expected)
    elif form == "ragged":
        expected = rng.normal(size=(5, 2)).astype(dtype)
        X = RaggedArray(layout(expected), layout(np.array([[0, 2, 5]]))[0])
    else:
        sets = [rng.normal(size=(n, 2)).astype(dtype) for n in (3, 1, 2)]
        expected, X = np.vstack(sets), [layout(tokens) for tokens in sets]
        X = objects(X) if form == "column" else X
    got = as_ragged(X)
    assert_array_equal(got.values, expected)
    assert got.dtype.isnative
    assert got.dtype == dtype or layout is LAYOUTS["big-endian"]


FORMS = {
    "list": list,
    "object array": objects,
    "object arrays in it": lambda sets: objects([objects(list(tokens)) for tokens in sets]),
    "series": lambda sets: pandas().Series(sets),
    "3-D": np.stack,
    "masked": lambda sets: np.ma.array(np.stack(sets)),
    "dense": lambda sets: sets[0],
    "frame": lambda sets: frame_of(sets[0]),
    "ragged": lambda sets: RaggedArray.from_block(np.stack(sets)),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("f4", "f4"),
        ("f8", "f8"),
        ("f2", "f8"),
        ("i8", "f8"),
        ("i4", "f8"),
        ("u1", "f8"),
        ("?", "f8"),
    ],
)
def test_float32_stays_and_every_other_number_becomes_float64(form, dtype, expected):
    sets = [np.array([[0, 1], [1, 0]], dtype), np.array([[1, 1], [1, 0]], dtype)]
    got = as_ragged(form(sets))
    assert got.dtype == np.dtype(expected)
    assert_array_equal(got.values[:2], [[0, 1], [1, 0]])


@pytest.mark.parametrize("form", ["list", "dense", "3-D"])
def test_infinity_by_summation_is_no_infinity_in_a_token(form):
    tokens = np.full((4, 2), 3e38, np.float32)
    X = {"list": [tokens], "dense": tokens, "3-D": tokens[None]}[form]
    assert_array_equal(as_ragged(X).values, tokens)


# What is refused


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize(
    "form",
    [
        "list of arrays",
        "tuple of arrays",
        "nested lists",
        "list of frames",
        "object array",
        "object array of object arrays",
        "RaggedArray",
        "series of arrays",
        "series of lists",
        "frame of one column",
    ],
)
@pytest.mark.parametrize("whole", [False, True], ids=["in part", "throughout"])
def test_a_token_that_is_not_finite_is_named(rng, bad, position, form, whole):
    sets = [rng.normal(size=(n, 2)) for n in (2, 0, 3, 1)]
    sets[position][1, slice(None) if whole else 1] = bad
    with pytest.raises(ValueError, match=f"NaN or infinity: token 1 of set {position} has") as info:
        as_ragged(CONTAINERS[form](sets))
    assert f"{bad} in feature {0 if whole else 1}" in str(info.value)


@pytest.mark.parametrize("token", [[NAN, 1], [INF, 1], [INF, NAN], [-INF, -INF]], ids=str)
def test_half_a_padding_row_is_named(rng, token):
    X = rng.normal(size=(2, 3, 2))
    X[0, 0], X[1, 2] = NAN, token
    with pytest.raises(ValueError, match="token 2 of set 1"):
        as_ragged(X)


@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_token_that_is_not_masked_must_be_finite(bad):
    X = np.ma.array(np.ones((2, 2, 2)), mask=False)
    X[1, 1, 0], X[0, 0] = bad, np.ma.masked
    with pytest.raises(ValueError, match="token 1 of set 1"):
        as_ragged(X)


@pytest.mark.parametrize("axes", [2, 3])
def test_half_a_mask_is_named(axes):
    mask = np.zeros((2, 3, 2), bool)
    mask[1, 2, 0] = True
    X = np.ma.array(np.ones((2, 3, 2)), mask=mask)
    X, token = (X, 2) if axes == 3 else (X[:, 2], 0)
    with pytest.raises(ValueError, match=f"Token {token} of set 1 is masked in part"):
        as_ragged(X)


REFUSED = {
    "text": (TypeError, "Got str", lambda: "a set"),
    "number": (TypeError, "Got int", lambda: 3),
    "None": (TypeError, "Got NoneType", lambda: None),
    "dict": (TypeError, "Got dict", lambda: {0: [[1.0]]}),
    "set": (TypeError, "Got set", lambda: {1.0, 2.0}),
    "generator": (TypeError, "Got generator", lambda: (x for x in [[[1.0]]])),
    "sparse matrix": (TypeError, "[Ss]parse", lambda: scipy.sparse.csr_matrix(np.eye(2))),
    "sparse array": (TypeError, "[Ss]parse", lambda: scipy.sparse.coo_array(np.eye(2))),
    "sparse set": (TypeError, "Set 1 is sparse", lambda: [np.eye(2), scipy.sparse.eye(2)]),
    "no features": (ValueError, r"0 feature\(s\)", lambda: np.empty((3, 0))),
    "0-D": (ValueError, "Expected 2D array, got scalar", lambda: np.array(1.0)),
    "1-D": (ValueError, "Expected 2D array, got 1D", lambda: np.ones(3)),
    "list of numbers": (ValueError, "Expected 2D array, got 1D", lambda: [1.0, 2.0]),
    "4-D": (ValueError, "dim 4", lambda: np.ones((1, 2, 3, 4))),
    "dense NaN": (ValueError, "Input X contains NaN", lambda: [[1.0, NAN], [1.0, 2.0]]),
    "dense infinity": (ValueError, "contains infinity", lambda: np.array([[1.0, INF]])),
    "ragged rows": (
        TypeError,
        r"1-D rows of different lengths, from 1 to 2.*reshape\(-1, 1\)",
        lambda: [[1.0, 2.0], [3.0]],
    ),
    "mixed axes": (ValueError, r"Set 1 has shape \(2,\)", lambda: [[[1.0, 2.0]], [1.0, 2.0]]),
    "set of sets": (ValueError, r"Set 0 has shape \(1, 2, 3\)", lambda: [np.ones((1, 2, 3))]),
    "another width": (
        ValueError,
        "Set 2 has tokens of 3 features, but the sets before it have 2.*project set 2 first",
        lambda: [np.ones((1, 2)), [], np.ones((2, 3))],
    ),
    "another width in a column": (
        ValueError,
        "Set 1 has tokens of 3 features",
        lambda: pandas().Series([np.ones((1, 2)), np.ones((2, 3))]),
    ),
    "widths within a set": (
        ValueError,
        "Set 1 is not a rectangular array",
        lambda: [[[1.0, 2.0]], [[1.0, 2.0], [1.0]]],
    ),
    "widths within a Parquet cell": (
        ValueError,
        "Set 1 is not a rectangular array",
        lambda: [np.ones((1, 2)), objects([np.ones(2), np.ones(1)])],
    ),
    "words": (TypeError, "Set 0 has text, 'a b'.*Look up", lambda: ["a b", "c"]),
    "bags of words": (TypeError, "Set 0 has dtype <U1", lambda: [["a", "b"], ["c"]]),
    "numbers as text": (TypeError, "Set 1 has dtype <U1", lambda: [[[1.0]], [["1"]]]),
    "text in an object matrix": (
        TypeError,
        "Set 0 holds '1', of type str",
        lambda: [np.array([["1", "2"]], dtype=object)],
    ),
    "text in a Parquet cell": (
        TypeError,
        "Set 0 has dtype <U1",
        lambda: pandas().Series([objects([np.array(["1", "2"])])]),
    ),
    "objects": (TypeError, "Set 1 holds <object.*of type object", lambda: [[[1.0]], [[object()]]]),
    "dates": (TypeError, "datetime64", lambda: [np.array([["2020"]], "M8[Y]")]),
    "complex set": (
        ValueError,
        "Complex data not supported: Set 0",
        lambda: [np.ones((1, 1)) * 1j],
    ),
    "complex array": (ValueError, "Complex data not supported", lambda: np.ones((2, 2, 2)) * 1j),
    "masked 1-D": (ValueError, "2 or 3 axes, but this one has 1", lambda: np.ma.array([1.0])),
    "series of numbers": (
        ValueError,
        r"Cell 0 of the column holds 1.0.*empty list",
        lambda: pandas().Series([1.0, 2.0]),
    ),
    "series of text": (
        ValueError,
        r"Cell 0 of the column holds '\[\[1\]\]'",
        lambda: pandas().Series(["[[1]]"]),
    ),
    "missing cell": (
        ValueError,
        "Cell 1 of the column holds None.*empty list",
        lambda: objects([[[1.0]], None]),
    ),
    "missing cell of a series": (
        ValueError,
        "Cell 1 of the column holds None",
        lambda: pandas().Series([[[1.0]], None], dtype=object),
    ),
    "missing first cell of a series": (
        ValueError,
        "Cell 0 of the column holds nan",
        lambda: pandas().Series([NAN, [[1.0]]]),
    ),
    "missing first cell": (
        ValueError,
        "Cell 0 of the column holds None",
        lambda: objects([None, [[1.0]]]),
    ),
    "missing first cell of a frame": (
        ValueError,
        "Cell 0 of the column holds None",
        lambda: pandas().DataFrame({"s": [None, [[1.0]]]}),
    ),
    "two list columns": (
        ValueError,
        r"2 columns; \['a', 'b'\] hold sets.*one column of sets at a time",
        lambda: pandas().DataFrame({"a": [[[1.0]]], "b": [[[1.0]]]}),
    ),
    "a list column and a number": (
        ValueError,
        r"2 columns; \['a'\] hold sets",
        lambda: pandas().DataFrame({"a": [[[1.0]]], "b": [1.0]}),
    ),
    "frame of text": (
        ValueError,
        "holds 'x', but each cell must hold a set",
        lambda: pandas().DataFrame({"a": ["x"]}),
    ),
}


@pytest.mark.parametrize(("error", "match", "make"), REFUSED.values(), ids=REFUSED)
def test_what_holds_no_sets_is_refused_with_the_reason(error, match, make):
    with pytest.raises(error, match=match):
        as_ragged(make())


def test_errors_of_dense_input_name_the_estimator():
    with pytest.raises(ValueError, match="MyModel"):
        as_ragged(np.array([[NAN]]), estimator="MyModel")


# Other libraries


def test_readers_are_pairs_of_functions():
    for recognises, read in READERS:
        assert callable(recognises)
        assert callable(read)
        assert recognises(3.5) is False


def test_torch_tensors_are_read():
    torch = pytest.importorskip("torch")
    sets = [torch.arange(6.0).reshape(3, 2), torch.ones(1, 2)]
    ragged = as_ragged(sets)
    assert ragged.dtype == np.float32
    assert_array_equal(ragged[0], [[0, 1], [2, 3], [4, 5]])
    assert_array_equal(as_ragged(torch.ones(2, 3)).values, np.ones((2, 3)))


def test_a_three_dimensional_tensor_is_read_as_the_array_is():
    torch = pytest.importorskip("torch")
    X = torch.arange(12.0).reshape(2, 3, 2)
    assert_array_equal(as_ragged(X).values, X.numpy().reshape(6, 2))
    assert_array_equal(as_ragged(X).lengths, [3, 3])


ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "polars", "pyarrow", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import numpy as np
import skattn

for X in ([[[1.0]], []], np.ones((2, 2)), np.ones((2, 2, 2)), np.ma.ones((2, 2, 2))):
    skattn.as_ragged(X)
assert "pandas" not in sys.modules
"""


def test_reading_lists_and_arrays_needs_no_other_library():
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
