"""TokenEmbedder: token vectors of words, ids and the items of baskets."""

import pickle
import re
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array, get_tags
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

from skattn import AttentionContextualizer, RaggedArray, SetPooler, TokenEmbedder

WORDS = ["cat", "dog", "phone", "of"]
VECTORS = np.array([[1.0, 0.5], [0.8, 0.6], [-0.5, 1.0], [0.0, -2.0]])
TABLE = dict(zip(WORDS, VECTORS, strict=True))
TEXTS = ["Dog of a cat, phone!", "", "zzz", "phone phone zzz", "cat"]
TOKENS = [["dog", "of", "a", "cat", "phone"], [], ["zzz"], ["phone", "phone", "zzz"], ["cat"]]
IDS = [[1, 3, 9, 0, 2], [], [-1], [2, 2, 4], [0]]  # 9, -1 and 4 are not among four rows


def embedded_in_a_loop(tokens, unknown="drop", table=TABLE):
    """Each set's vectors, one look at the dict after the other."""
    sets = []
    for words in tokens:
        rows = [np.zeros(2) if w not in table else table[w] for w in words]
        keep = [unknown == "zeros" or w in table for w in words]
        sets.append(np.array(rows).reshape(-1, 2)[np.array(keep, dtype=bool)])
    return sets


def assert_same_sets(actual, desired):
    """A RaggedArray holds just the sets of a list, or of another."""
    assert isinstance(actual, RaggedArray)
    assert len(actual) == len(desired)
    for i, (a, b) in enumerate(zip(actual, desired, strict=True)):
        assert_array_equal(a, b, err_msg=f"set {i}")


def cells(sets):
    """One object per set in an object array."""
    column = np.empty(len(sets), dtype=object)
    column[:] = [list(s) if isinstance(s, list) else s for s in sets]
    return column


def keyed_vectors(order):
    """An object as gensim's KeyedVectors, with its rows in some order."""
    return SimpleNamespace(
        key_to_index={word: int(np.flatnonzero(order == j)[0]) for j, word in enumerate(WORDS)},
        vectors=VECTORS[order],
    )


VOCABULARIES = {
    "dict": TABLE,
    "dict of lists": {word: vector.tolist() for word, vector in TABLE.items()},
    "frame": pd.DataFrame(VECTORS, index=WORDS),
    "named frame": pd.DataFrame(VECTORS, index=pd.Index(WORDS, name="word"), columns=["a", "b"]),
    "nullable frame": pd.DataFrame(VECTORS, index=WORDS, dtype="Float64"),
    "pair": (WORDS, VECTORS),
    "pair of arrays": (np.array(WORDS), VECTORS),
    "pair with a series": (pd.Series(WORDS, index=range(7, 11)), VECTORS),
    "pair with rows": ({word: j for j, word in enumerate(WORDS)}, VECTORS),
    "keyed vectors": keyed_vectors(np.arange(4)),
    "keyed vectors, mixed": keyed_vectors(np.array([2, 0, 3, 1])),
}
vocabularies = pytest.mark.parametrize("vectors", VOCABULARIES.values(), ids=VOCABULARIES)

CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "objects": cells,
    "column of objects": lambda sets: cells(sets)[:, None],
    "series": lambda sets: pd.Series(cells(sets), index=range(7, 7 + len(sets))),
    "frame": lambda sets: pd.DataFrame({"text": cells(sets)}),
}
containers = pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)


# Words ----------------------------------------------------------------------------------------


@vocabularies
@pytest.mark.parametrize("unknown", ["drop", "zeros"])
def test_each_word_has_its_vector_from_every_form_of_the_vocabulary(vectors, unknown):
    embedder = TokenEmbedder(vectors, unknown=unknown)
    expected = embedded_in_a_loop(TOKENS, unknown)
    assert_same_sets(embedder.fit_transform(TEXTS), expected)
    assert_same_sets(embedder.fit(TEXTS[:1]).transform(TEXTS), expected)
    assert embedder.n_features_out_ == 2
    assert not hasattr(embedder, "n_features_in_")


@containers
@pytest.mark.parametrize("sets", [TEXTS, TOKENS, [np.array(t, dtype=str) for t in TOKENS]])
def test_texts_and_lists_of_words_are_the_same_in_every_container(container, sets):
    out = TokenEmbedder(TABLE).fit_transform(container(sets))
    assert_same_sets(out, embedded_in_a_loop(TOKENS))


def test_arrays_of_strings_are_texts_and_rows_of_words():
    embedder = TokenEmbedder(TABLE)
    texts = np.array(TEXTS)
    assert_same_sets(embedder.fit_transform(texts), embedded_in_a_loop(TOKENS))
    assert_same_sets(embedder.transform(texts[:, None]), embedded_in_a_loop(TOKENS))
    rows = np.array([["cat", "dog"], ["of", "zzz"]])
    for X in (rows, rows.astype(object), rows.tolist()):
        assert_same_sets(embedder.transform(X), [VECTORS[:2], VECTORS[3:]])
    if hasattr(np.dtypes, "StringDType"):
        strings = texts.astype(np.dtypes.StringDType())
        assert_same_sets(embedder.transform(strings), embedded_in_a_loop(TOKENS))


def test_polars_and_arrow_columns_and_vectors():
    pl = pytest.importorskip("polars", reason="polars is not installed")
    vectors = pl.DataFrame({"word": WORDS, "a": VECTORS[:, 0], "b": VECTORS[:, 1]})
    embedder = TokenEmbedder(vectors)
    expected = embedded_in_a_loop(TOKENS)
    for sets in (TEXTS, TOKENS):
        column = pl.Series("text", sets)
        assert_same_sets(embedder.fit_transform(column), expected)
        assert_same_sets(embedder.transform(column.to_frame()), expected)
    assert embedder.get_feature_names_out().tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="frame with 2 columns that hold no numbers"):
        TokenEmbedder(vectors.with_columns(note=pl.lit("x"))).fit(TEXTS)
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    for sets in (TEXTS, TOKENS):
        assert_same_sets(embedder.transform(pa.array(sets)), expected)
        assert_same_sets(embedder.transform(pa.chunked_array([sets[:2], sets[2:]])), expected)
        assert_same_sets(embedder.transform(pa.table({"text": sets})), expected)


def test_gensims_keyed_vectors():
    models = pytest.importorskip("gensim.models", reason="gensim is not installed")
    keyed = models.KeyedVectors(vector_size=2)
    keyed.add_vectors(WORDS, VECTORS)
    embedder = clone(TokenEmbedder(keyed))
    assert_allclose(
        embedder.fit_transform(TEXTS).values, np.vstack(embedded_in_a_loop(TOKENS)), rtol=1e-6
    )
    model = models.Word2Vec([["cat", "dog"]], vector_size=2, min_count=1, workers=1)
    with pytest.raises(TypeError, match=r"a Word2Vec.*of a gensim model its \.wv"):
        TokenEmbedder(model).fit(TEXTS)


def test_a_text_is_split_into_lower_cased_words_or_as_the_tokenizer_does():
    table = {"don": [1.0], "t": [2.0], "été": [3.0], "Dog,": [4.0], "x_1": [5.0], "B": [6.0]}
    embedder = TokenEmbedder(table, unknown="error")
    assert_array_equal(embedder.fit_transform(["Don't", "ÉTÉ -- x_1."])[1], [[3], [5]])
    assert_array_equal(embedder.transform(["Don't"])[0], [[1], [2]])
    own = TokenEmbedder(table, unknown="error", tokenizer=str.split)
    assert_array_equal(own.fit_transform(["Dog, B"])[0], [[4], [6]])
    # what is split already is taken as it is
    assert_array_equal(embedder.transform([["B", "Dog,"]])[0], [[6], [4]])
    generator = TokenEmbedder(table, tokenizer=lambda text: (c for c in text))
    assert_array_equal(generator.fit_transform(["Bt"])[0], [[6], [2]])


def test_order_repeats_and_batch_mates_change_nothing(rng):
    embedder = TokenEmbedder(TABLE).fit(TEXTS)
    out = embedder.transform(TEXTS)
    order = rng.permutation(len(TEXTS))
    assert_same_sets(embedder.transform([TEXTS[i] for i in order]), out[order])
    for text, tokens in zip(TEXTS, out, strict=True):
        assert_array_equal(embedder.transform([text])[0], tokens)
    assert_array_equal(out[3], VECTORS[[2, 2]])  # twice the same word is two tokens


def test_the_table_itself_is_never_changed():
    vectors = VECTORS.copy()
    embedder = TokenEmbedder(vectors, unknown="zeros").fit(IDS)
    out = embedder.transform(IDS)
    out.values[:] = 7
    assert_array_equal(vectors, VECTORS)
    assert_array_equal(embedder.vectors_, VECTORS)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, bool, ">f8"])
def test_float32_stays_and_all_else_is_float64(dtype):
    vectors = VECTORS.astype(dtype)
    out = TokenEmbedder((WORDS, vectors)).fit_transform(["phone of"])
    assert out.dtype == (np.float32 if dtype == np.float32 else np.float64)
    assert_array_equal(out[0], vectors[2:].astype(float))


# Ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unknown", ["drop", "zeros"])
@pytest.mark.parametrize("dtype", [None, np.int64, np.int8, object])
def test_ids_are_row_numbers_of_an_array(dtype, unknown):
    sets = IDS if dtype is None else [np.array(ids, dtype=dtype) for ids in IDS]
    embedder = TokenEmbedder(VECTORS, unknown=unknown)
    assert_same_sets(embedder.fit_transform(sets), embedded_in_a_loop(TOKENS, unknown))
    assert embedder.vocabulary_ is None
    far = [-100] if dtype is None else np.array([-100, 100], dtype=dtype)
    assert_array_equal(embedder.transform([far]).values, 0)  # far out of range, too
    columns = [np.array(ids, dtype=dtype or np.int64)[:, None] for ids in IDS]
    assert_same_sets(embedder.transform(columns), embedded_in_a_loop(TOKENS, unknown))


def test_ids_of_any_integers_are_looked_up():
    codes = [70001, 2**63 + 5, -3, 8]
    table = dict(zip(codes, VECTORS, strict=True))
    sets = [[2**63 + 5, 8, 1], [-3, 70001]]
    for X in (sets, [np.array(ids, dtype=object) for ids in sets]):
        assert_same_sets(TokenEmbedder(table).fit_transform(X), [VECTORS[[1, 3]], VECTORS[[2, 0]]])
    arrays = [np.array(sets[0], dtype=np.uint64), np.array(sets[1])]
    assert_same_sets(TokenEmbedder(table).fit_transform(arrays), [VECTORS[[1, 3]], VECTORS[[2, 0]]])
    big = TokenEmbedder(VECTORS, unknown="zeros").fit_transform([[2**70, 1], [2**63]])
    assert_array_equal(big.values, [[0, 0], VECTORS[1], [0, 0]])
    big = TokenEmbedder(VECTORS).fit_transform([np.array([1, 2**64 - 1], dtype=np.uint64)])
    assert_array_equal(big.values, VECTORS[[1]])


def test_a_two_dimensional_array_of_ids_is_a_set_a_row():
    ids = np.array([[1, 0, -1], [2, 2, 3]])
    embedder = TokenEmbedder(VECTORS)
    expected = [VECTORS[[1, 0]], VECTORS[[2, 2, 3]]]
    assert_same_sets(embedder.fit_transform(ids), expected)
    assert_same_sets(embedder.transform(ids.tolist()), expected)
    masked = np.ma.array(np.abs(ids), mask=ids < 0)
    assert_same_sets(embedder.transform(masked), expected)
    assert_same_sets(embedder.transform(ids[:, :1]), [VECTORS[[1]], VECTORS[[2]]])


def test_a_ragged_array_of_ids_keeps_its_weights():
    ids = RaggedArray.from_list([[[1.0], [9.0]], [], [[0.0], [2.0]]], [[2, 1], [], [0, 3]])
    embedder = TokenEmbedder(VECTORS)
    out = embedder.fit_transform(ids)
    assert_same_sets(out, [VECTORS[[1]], np.empty((0, 2)), VECTORS[[2]]])
    assert_array_equal(out.weights, [2, 3])
    assert embedder.unknown_share_ == 1 / 6
    named = TokenEmbedder({0: [1.0], 2: [3.0]}).fit_transform(ids)
    assert_array_equal(named.values, [[3]])
    assert_array_equal(embedder.transform(RaggedArray.from_list([[], []])).lengths, [0, 0])
    for wrong in ([[1.5]], [[np.nan]], [[1.0, 2.0]]):
        with pytest.raises(TypeError, match="values must be ids: whole numbers"):
            embedder.transform(RaggedArray.from_list([wrong]))


# Unknown words --------------------------------------------------------------------------------


def test_the_share_of_unknown_words_is_reported():
    embedder = TokenEmbedder(TABLE).fit(TEXTS)
    assert embedder.unknown_share_ == 3 / 10
    assert embedder.unknown_share(["zzz cat", ""]) == 1 / 2
    assert embedder.unknown_share_ == 3 / 10  # that of fit
    assert embedder.unknown_share([""]) == 0
    assert embedder.unknown_share(["zzz"]) == 1
    strict = TokenEmbedder(TABLE, unknown="error").fit(["cat"])
    assert strict.unknown_share(["zzz cat"]) == 1 / 2  # asking is no error


@pytest.mark.parametrize("method", ["fit", "fit_transform", "transform"])
def test_unknown_words_can_be_an_error_that_names_them(method):
    embedder = TokenEmbedder(TABLE, unknown="error").fit(["cat"])
    message = "Token 2 of set 0 is 'a', which has no vector; 3 of 10 tokens have none"
    with pytest.raises(ValueError, match=message):
        getattr(embedder, method)(TEXTS)
    ids = TokenEmbedder(VECTORS, unknown="error").fit([[0]])
    with pytest.raises(ValueError, match="Token 0 of set 2 is -1, which has no vector; 1 of 2"):
        getattr(ids, method)([[1], [], [-1]])


def test_a_vocabulary_that_knows_no_word_is_warned_of():
    upper = {"Cat": [1.0], "Dog": [2.0]}
    with pytest.warns(
        UserWarning, match=r"None of the 2 tokens .* 'cat', 'dog'; .* 'Cat', 'Dog'\."
    ):
        out = TokenEmbedder(upper).fit_transform(["Cat dog"])
    assert_array_equal(out.lengths, [0])
    TokenEmbedder(upper).fit(["", ""])  # no tokens, no warning
    TokenEmbedder(TABLE).fit(["cat"]).transform(["zzz"])


# Baskets --------------------------------------------------------------------------------------


BASKETS = np.array([[2, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1], [0, 0.5, 0, 0]])


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("storage", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
def test_an_entry_of_a_sparse_matrix_is_a_token_of_its_column(storage, kind):
    X = getattr(sparse, f"{storage}_{kind}")(BASKETS)
    embedder = TokenEmbedder(VECTORS)
    out = embedder.fit_transform(X)
    assert_same_sets(out, [VECTORS[[0, 2]], np.empty((0, 2)), VECTORS[[1, 3]], VECTORS[[1]]])
    assert_array_equal(out.weights, [2, 1, 1, 1, 0.5])
    assert embedder.n_features_in_ == 4
    assert embedder.unknown_share_ == 0
    assert_array_equal(X.toarray(), BASKETS)


@vocabularies
def test_a_column_has_the_vector_of_its_row_in_every_form(vectors):
    out = TokenEmbedder(vectors).fit_transform(sparse.csr_array(BASKETS))
    array = TokenEmbedder(vectors).fit(["cat"]).vectors_
    assert_array_equal(out.values, array[[0, 2, 1, 3, 1]])


def test_counts_of_words_weigh_as_their_repeats():
    counter = CountVectorizer(vocabulary=WORDS)
    texts = [*TEXTS, "cat phone cat cat"]
    pooled = make_pipeline(TokenEmbedder((WORDS, VECTORS)), SetPooler())
    expected = pooled.fit_transform(texts)
    assert_allclose(pooled.fit_transform(counter.fit_transform(texts)), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.float32, np.float64])
def test_entries_may_be_of_any_real_type(dtype):
    out = TokenEmbedder(VECTORS).fit_transform(sparse.csr_array((BASKETS >= 1).astype(dtype)))
    assert_array_equal(out.values, VECTORS[[0, 2, 1, 3]])
    assert out.weights is None  # all are 1


def test_stored_zeros_are_no_tokens_and_duplicates_are_summed():
    rows, columns, entries = [0, 0, 0, 1, 1], [3, 1, 3, 2, 0], [1.0, 0.0, 2.0, 0.0, 4.0]
    coo = sparse.coo_array((entries, (rows, columns)), shape=(3, 4))
    csr = sparse.csr_array((entries, columns, [0, 3, 5, 5]), shape=(3, 4))  # not in order, too
    for X in (coo, csr):
        out = TokenEmbedder(VECTORS).fit_transform(X)
        assert_array_equal(out.values, VECTORS[[3, 0]])
        assert_array_equal(out.weights, [3, 4])
        assert_array_equal(out.lengths, [1, 1, 0])
        assert X.nnz == 5  # the input is left as it is
        assert_array_equal(X.data, entries)


@pytest.mark.parametrize("entry", [-1.0, np.nan, np.inf])
def test_an_entry_that_is_no_weight_is_refused(entry):
    # the second of two entries for one place, whose sum would do
    X = sparse.coo_array(([1.0, 2.0, entry], ([0, 1, 1], [0, 2, 2])), shape=(2, 4))
    with pytest.raises(ValueError, match=f"set 1 has the entry {entry} in column 2"):
        TokenEmbedder(VECTORS).fit(X)


def test_a_sparse_matrix_that_does_not_fit_the_vectors_is_refused():
    X = sparse.csr_array(BASKETS)
    with pytest.raises(ValueError, match="X has 3 columns, but there are 4 vectors"):
        TokenEmbedder(VECTORS).fit(X[:, :3])
    embedder = TokenEmbedder(VECTORS).fit(X)
    with pytest.raises(ValueError, match="X has 3 features, but TokenEmbedder is expecting 4"):
        embedder.transform(X[:, :3])
    assert_same_sets(embedder.transform([[1]]), [VECTORS[[1]]])  # ids after columns
    assert not hasattr(embedder.fit([[1]]), "n_features_in_")
    with pytest.raises(ValueError, match="X has 3 columns, but there are 4 vectors"):
        embedder.transform(X[:, :3])
    for wrong in (X[:, :0], X.astype(complex)):
        with pytest.raises(ValueError, match=re.escape(f"of shape {wrong.shape} and dtype")):
            embedder.fit(wrong)


# One-hot --------------------------------------------------------------------------------------


def test_onehot_gives_each_word_of_fit_a_feature():
    embedder = TokenEmbedder("onehot", unknown="zeros")
    out = embedder.fit_transform(["dog cat", "cat", ""])
    assert_array_equal(out.values, [[0, 1], [1, 0], [1, 0]])
    assert embedder.vocabulary_ == {"cat": 0, "dog": 1}
    assert embedder.get_feature_names_out().tolist() == ["cat", "dog"]
    assert_array_equal(embedder.transform(["zzz dog"])[0], [[0, 0], [0, 1]])
    drop = TokenEmbedder("onehot").fit(["dog cat"])
    assert_array_equal(drop.transform(["zzz dog"])[0], [[0, 1]])
    assert drop.unknown_share(["zzz dog"]) == 1 / 2


@pytest.mark.parametrize("form", [list, np.array])
def test_onehot_of_ids(form):
    embedder = TokenEmbedder("onehot")
    out = embedder.fit_transform([form([40, 7]), form([7, -2])])
    assert_array_equal(out.values, [[0, 0, 1], [0, 1, 0], [0, 1, 0], [1, 0, 0]])
    assert embedder.get_feature_names_out().tolist() == [f"tokenembedder{j}" for j in range(3)]


def test_onehot_of_baskets_sums_to_the_baskets():
    X = sparse.csr_array(BASKETS)
    embedder = TokenEmbedder("onehot")
    assert_array_equal(make_pipeline(embedder, SetPooler(("sum",))).fit_transform(X), BASKETS)
    with pytest.raises(ValueError, match="X has 3 features, but TokenEmbedder is expecting 4"):
        embedder.transform(X[:, :3])


def test_onehot_needs_tokens_of_one_kind():
    with pytest.raises(ValueError, match="Found no tokens"):
        TokenEmbedder("onehot").fit(["", ""])
    with pytest.raises(TypeError, match="cannot be sorted"):
        TokenEmbedder("onehot").fit([["cat", 3]])
    with pytest.raises(TypeError, match="cannot be sorted"):
        TokenEmbedder("onehot").fit([[["cat"]]])


# What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("cat dog", TypeError, r"X is a str, .* Pass a single text as \[text\]"),
        ({"cat": 1}, TypeError, "X is a dict"),
        ((text for text in TEXTS), TypeError, "X is a generator"),
        (None, TypeError, "X is a NoneType"),
        ([1, 2], TypeError, "Set 0 is 1, of type int, but must be a text"),
        (np.array([1, 2]), TypeError, "Set 0 is 1, of type int"),
        (["cat", None], ValueError, r"Set 1 is missing \(None\). Drop it, or give '' or \[\]"),
        (pd.Series(["cat", np.nan]), ValueError, r"Set 1 is missing \(nan\)"),
        (pd.Series(["cat", pd.NA], dtype="string"), ValueError, r"Set 1 is missing \(<NA>\)"),
        (["cat", b"dog"], TypeError, "Set 1 is b'dog', of type bytes"),
        (["cat", {"dog"}], TypeError, "Set 1 is {'dog'}, of type set"),
        (["cat", dict.fromkeys(range(9), 1)], TypeError, r"{0: 1, 1: 1, 2: 1, 3: 1, ...}, of"),
        (["cat", np.array("dog")], TypeError, "Set 1 is array"),
        (["cat", np.ones((2, 2), int)], TypeError, r"Set 1 has shape \(2, 2\)"),
        ([["cat", ["dog"]]], TypeError, "A token of X is not a word .* a flat list of words"),
        (
            [["cat", None]],
            TypeError,
            "Token 1 of set 0 is None, but the words of the vocabulary are of another type",
        ),
        ([[], ["cat", 3]], TypeError, "Token 1 of set 1 is 3, .* 'cat', 'dog', 'phone', 'of'"),
        (np.ones((2, 3)), TypeError, r"dtype float64, .* scipy.sparse.csr_array\(X\)"),
        (np.ones((2, 3, 1), int), TypeError, r"array of shape \(2, 3, 1\)"),
        (pd.DataFrame(np.eye(2)), ValueError, "frame of 2 columns, but must have one"),
    ],
    ids=str,
)
def test_what_is_no_set_of_words_is_refused(X, error, message):
    with pytest.raises(error, match=message):
        TokenEmbedder(TABLE).fit(X)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["cat"], "Token 1 of set 1 is 'cat', but without a vocabulary tokens must be ids"),
        ([1.0], "Token 1 of set 1 is 1.0"),
        ([True], "Token 1 of set 1 is True"),
        ([None], "Token 1 of set 1 is None"),
    ],
)
def test_what_is_no_id_is_refused(tokens, message):
    with pytest.raises(TypeError, match=message):
        TokenEmbedder(VECTORS).fit([[2], [1, *tokens]])


@pytest.mark.parametrize("token", [None, np.nan, pd.NA])
def test_a_missing_id_is_refused_where_codes_are_looked_up(token):
    with pytest.raises(TypeError, match="Token 1 of set 0 is"):
        TokenEmbedder({3: [1.0]}).fit([[3, token]])


@pytest.mark.parametrize(
    ("vectors", "error", "message"),
    [
        ("glove", TypeError, "vectors is 'glove', but must be a dict"),
        (None, TypeError, "vectors is a NoneType"),
        ([[1.0]], TypeError, "vectors is a list"),
        ({}, ValueError, r"shape \(0,\)"),
        ({"a": [1.0, 2.0], "b": [1.0]}, ValueError, r"'b' has shape \(1,\) and the vector of 'a'"),
        ({"a": 1.0}, ValueError, r"The vector of 'a' has shape \(\)"),
        ({"a": ["x"]}, ValueError, "dtype <U1"),
        ({"a": [np.nan]}, ValueError, r"Row 0 \(the word 'a'\) of vectors contains NaN"),
        ((WORDS, np.full((4, 1), np.inf)), ValueError, r"Row 0 \(the word 'cat'\)"),
        (np.full((4, 1), np.inf), ValueError, "Row 0 of vectors contains NaN or infinity"),
        (np.ones(3), ValueError, r"shape \(3,\)"),
        (np.ones((3, 0)), ValueError, r"shape \(3, 0\)"),
        (np.ones((3, 1), complex), ValueError, "dtype complex128"),
        ((WORDS, VECTORS[:3]), ValueError, "4 words, but 3 rows"),
        ((VECTORS, WORDS), ValueError, r"The array of vectors has shape \(4,\)"),
        ((VECTORS, VECTORS), TypeError, "In a tuple the vocabulary comes first"),
        ((["a", "b", "a"], np.eye(3)), ValueError, "the word 'a' twice, in rows 0 and 2"),
        (pd.DataFrame(np.eye(2), index=["a", "a"]), ValueError, "the word 'a' twice"),
        (pd.DataFrame(np.eye(2), index=["a", None]), ValueError, "keep_default_na=False"),
        (pd.DataFrame({"x": [pd.NA]}, dtype="Float64"), ValueError, r"the word 0\) of vectors"),
        (({"a": 2}, np.eye(2)), ValueError, "'a' has row 2 of vectors, which has 2 rows"),
        (({"a": -1}, np.eye(2)), ValueError, "'a' has row -1 of vectors"),
        (pd.DataFrame({"w": ["a"], "x": [1.0]}), ValueError, "dtype object"),
    ],
    ids=str,
)
def test_bad_vectors_are_refused_by_fit(vectors, error, message):
    embedder = TokenEmbedder(vectors)
    with pytest.raises(error, match=message):
        embedder.fit(TEXTS)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (
            {"unknown": "ignore"},
            ValueError,
            r"\['drop', 'zeros', 'error'\], but is 'ignore'",
        ),
        ({"unknown": None}, ValueError, "but is None"),
        ({"tokenizer": "split"}, TypeError, "a callable that splits .* but is 'split'"),
        ({"tokenizer": str.lower}, TypeError, "tokenizer gave 'cat' for set 0"),
        ({"tokenizer": len}, TypeError, "tokenizer gave 3 for set 0"),
    ],
)
def test_bad_parameters_are_refused_by_fit(params, error, message):
    with pytest.raises(error, match=message):
        TokenEmbedder(TABLE, **params).fit(["cat"])


def test_an_embedder_must_be_fitted():
    for method in ("transform", "unknown_share"):
        with pytest.raises(NotFittedError):
            getattr(TokenEmbedder(TABLE), method)(TEXTS)
    with pytest.raises(NotFittedError):
        TokenEmbedder(TABLE).get_feature_names_out()


# scikit-learn ---------------------------------------------------------------------------------


def test_names_are_the_columns_of_the_frame_where_there_are_such():
    named = TokenEmbedder(VOCABULARIES["named frame"]).fit(TEXTS)
    assert named.get_feature_names_out().tolist() == ["a", "b"]
    for key in ("dict", "frame"):
        embedder = TokenEmbedder(VOCABULARIES[key]).fit(TEXTS)
        assert embedder.get_feature_names_out(["text"]).tolist() == [
            "tokenembedder0",
            "tokenembedder1",
        ]


@pytest.mark.parametrize("column", ["texts", "words", "ids"])
def test_each_text_stays_in_the_row_of_its_other_columns(column):
    texts, tokens = ["cat dog", "phone", ""], [["cat", "dog"], ["phone"], []]
    ids = [np.array(entry) for entry in ([0, 1], [2], [])]
    cells = {"texts": texts, "words": tokens, "ids": ids}[column]
    frame = pd.DataFrame({"cells": pd.Series(cells), "length": [2.0, 1.0, 0.0]})
    frame.index = [2, 0, 1]  # the labels of a shuffled frame
    pooled = make_pipeline(
        TokenEmbedder(VECTORS if column == "ids" else TABLE), SetPooler(statistics=("count",))
    )
    both = ColumnTransformer([("n", pooled, "cells"), ("of", "passthrough", ["length"])])
    out = both.set_output(transform="pandas").fit_transform(frame)
    assert out.index.tolist() == [2, 0, 1]
    assert_array_equal(out["n__count"], out["of__length"])


def test_ids_of_a_child_table_keep_its_order():
    child = pd.DataFrame({"who": ["b", "a", "b", "a"], "item": [0, 3, 9, 2]})
    ids = RaggedArray.from_frame(child, by="who", columns=["item"])
    vectors = TokenEmbedder(VECTORS, unknown="zeros").fit_transform(ids)
    assert vectors.index.tolist() == ["b", "a"]
    assert_array_equal(vectors.to_frame(), [VECTORS[0], VECTORS[3], [0, 0], VECTORS[2]])
    known = TokenEmbedder(VECTORS).fit_transform(ids)
    assert_array_equal(known.to_frame(), VECTORS[[0, 3, 2]])


@pytest.mark.parametrize("transform", ["default", "pandas"])
def test_set_output_leaves_ragged_arrays_alone(transform):
    embedder = TokenEmbedder(TABLE).set_output(transform=transform)
    assert isinstance(embedder.fit_transform(TEXTS), RaggedArray)
    assert isinstance(embedder.transform(pd.Series(TEXTS)), RaggedArray)


def test_clones_keep_the_parameters_and_pickles_the_fit():
    embedder = TokenEmbedder(TABLE, unknown="zeros", tokenizer=str.split)
    assert embedder.get_params()["vectors"] is TABLE
    embedder.fit(TEXTS)
    copy = clone(embedder)
    assert copy.get_params()["tokenizer"] is str.split
    assert not hasattr(copy, "vectors_")
    assert_same_sets(copy.fit_transform(TEXTS), embedder.transform(TEXTS))
    assert_same_sets(pickle.loads(pickle.dumps(embedder)).transform(TEXTS), copy.transform(TEXTS))


@pytest.fixture
def opinions(rng):
    """60 texts, of which those that hold both `good` and `film` are of class 1."""
    texts, y = [], []
    for i in range(60):
        words = [["good", "film"], ["good", "food"], ["bad", "film"]][i % 3]
        words = [*words, *rng.choice(["the", "so", "zzz", "very"], size=rng.integers(1, 5))]
        texts.append(" ".join(rng.permutation(words)))
        y.append(int(i % 3 == 0))
    vectors = dict(zip("good film food bad the so very".split(), np.eye(7), strict=True))
    return texts, np.array(y), vectors


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_pipeline_from_texts_to_labels_is_searched(opinions):
    texts, y, vectors = opinions
    model = make_pipeline(
        TokenEmbedder(vectors),
        AttentionContextualizer(n_heads=2, d_k=4, d_v=4, random_state=0),
        LogisticRegression(),
    )
    grid = [
        {"tokenembedder__unknown": ["drop", "zeros"]},
        {"tokenembedder__vectors": [(list(vectors), 2 * np.eye(7)), "onehot"]},
    ]
    search = GridSearchCV(model, grid, cv=3, error_score="raise").fit(texts, y)
    assert search.cv_results_["mean_test_score"].min() > 0.9
    assert search.best_estimator_.score(pd.Series(texts), y) > 0.9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_baskets_are_cross_validated(opinions):
    texts, y, vectors = opinions
    X = CountVectorizer(vocabulary=list(vectors)).fit_transform(texts)
    model = make_pipeline(
        TokenEmbedder("onehot"),
        AttentionContextualizer(n_heads=2, d_k=4, d_v=4, random_state=0),
        LogisticRegression(),
    )
    assert cross_val_score(model, X, y, cv=3, error_score="raise").mean() > 0.9


@pytest.mark.parametrize("column", ["text", ["text"]])
def test_a_column_of_texts_beside_one_of_numbers(column):
    frame = pd.DataFrame({"text": TEXTS, "v": np.arange(5.0)}, index=list("edcba"))
    words = make_pipeline(TokenEmbedder(TABLE), SetPooler(("mean", "count")))
    table = ColumnTransformer([("words", words, column), ("v", "passthrough", ["v"])])
    out = table.fit_transform(frame)
    means = [s.mean(axis=0) if len(s) else np.zeros(2) for s in embedded_in_a_loop(TOKENS)]
    assert_allclose(out[:, :2], means, atol=1e-15)
    assert_array_equal(out[:, 2], [4, 0, 0, 2, 1])
    assert_array_equal(out[:, 3], frame["v"])


def test_glove_vectors_of_real_questions_by_id_by_word_and_by_count(data_dir):
    glove, trec = (np.load(data_dir / f"{name}.npz") for name in ("glove50_vocab", "trec6"))
    words, vectors, y = glove["words"], glove["vectors"], trec["y"]
    ids = np.split(trec["tokens"][:, 0], trec["offsets"][1:-1])
    by_id = TokenEmbedder(vectors, unknown="error").fit_transform(ids)
    assert_array_equal(by_id.values, vectors[trec["tokens"][:, 0]])
    by_word = TokenEmbedder((words, vectors), unknown="error")
    texts = [" ".join(words[i]) for i in ids]
    by_word = by_word.set_params(tokenizer=str.split).fit_transform(texts)
    assert_array_equal(by_word.values, by_id.values)
    counts = CountVectorizer(vocabulary=words, tokenizer=str.split, token_pattern=None)
    baskets = TokenEmbedder(vectors).fit_transform(counts.fit_transform(texts))
    means = SetPooler(("mean",)).fit_transform(by_id)
    assert_allclose(SetPooler(("mean",)).fit_transform(baskets), means, rtol=1e-5, atol=1e-5)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, tol=3e-4))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    assert_allclose(cross_val_score(model, means, y, cv=folds).mean(), 0.609, atol=0.005)


def test_a_million_words_are_looked_up_in_about_a_second(rng):
    words = np.array([f"word{i}" for i in range(20_000)])
    table = dict(zip(words.tolist(), rng.normal(size=(20_000, 50)).astype(np.float32), strict=True))
    drawn = rng.integers(0, 20_000, size=(50_000, 20))
    texts = [" ".join(row) for row in words[drawn]]
    embedder = TokenEmbedder(table).fit(texts[:1])
    start = time.process_time()
    out = embedder.transform(texts)
    seconds = time.process_time() - start
    assert out.n_tokens == 1_000_000
    assert_array_equal(out[-1], embedder.vectors_[drawn[-1]])
    assert seconds < 5  # a second on an idle machine


class PooledBaskets(TokenEmbedder):
    """A TokenEmbedder of dense tables of counts, whose output is the sum of each set's tokens.

    The sum of one-hot tokens by weight is the table: what the checks of dense data can check.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.string = False
        return tags

    def fit(self, X, y=None):
        return super().fit(self._basket(X))

    def fit_transform(self, X, y=None):
        return self.fit(X, y).transform(X)

    def transform(self, X):
        check_is_fitted(self)
        sets = super().transform(self._basket(X))
        weights = np.ones(sets.n_tokens) if sets.weights is None else sets.weights
        return sets.with_values(sets.values * weights[:, None]).segment_sum()

    def _basket(self, X):
        return X if sparse.issparse(X) else sparse.csr_array(check_array(X, dtype="numeric"))

    def _is_ragged_out(self):
        return False


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_of_scikit_learns_common_checks_one_applies_to_texts():
    assert [r["status"] for r in check_estimator(TokenEmbedder(TABLE), on_skip=None)] == ["passed"]
    tags = get_tags(TokenEmbedder(TABLE)).input_tags
    assert tags.string and tags.sparse and tags.positive_only and not tags.two_d_array


def test_scikit_learns_common_checks_really_run_on_baskets():
    results = check_estimator(PooledBaskets("onehot"), on_skip=None, on_fail=None)
    assert not {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert sum(r["status"] == "passed" for r in results) >= 46
