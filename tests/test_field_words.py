"""Field cases of words: combining marks, colliding spellings, tensors, clones, kept words."""

import copy
import time
import unicodedata

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skattn import AttentionClassifier, RaggedArray, TokenEmbedder

VECTORS = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]])


def spelled(form, text="café"):
    return unicodedata.normalize(form, text)


# N03: combining marks ---------------------------------------------------------------------------


@pytest.mark.parametrize("in_text", ["NFC", "NFD"])
@pytest.mark.parametrize("in_table", ["NFC", "NFD"])
@pytest.mark.parametrize("split", [lambda text: text, str.split], ids=["text", "words"])
def test_n03_a_word_has_its_vector_in_every_spelling(in_text, in_table, split):
    table = {spelled(in_table): VECTORS[0], "cafe": VECTORS[1]}
    for vectors in (table, (list(table), VECTORS[:2])):
        embedder = TokenEmbedder(vectors, unknown="error")
        out = embedder.fit_transform([split(spelled(in_text)), split("cafe")])
        assert_array_equal(out.values, VECTORS[:2])
        assert list(embedder.vocabulary_) == [spelled("NFC"), "cafe"]


@pytest.mark.parametrize("words", [["नमस्ते", "दुनिया"], ["می‌خواهم", "کتاب"], ["สวัสดี", "น้ำ"]])
def test_n03_words_of_scripts_with_marks_stay_whole(words):
    embedder = TokenEmbedder("onehot").fit([" ".join(words)])
    assert set(embedder.vocabulary_) == {spelled("NFC", word) for word in words}
    assert embedder.words([", ".join(words)]) == [[spelled("NFC", word) for word in words]]


def test_n03_an_own_tokenizer_and_onehot_meet_in_one_form():
    texts = [spelled("NFD"), spelled("NFC")]
    assert TokenEmbedder("onehot", tokenizer=str.split).fit(texts).n_features_out_ == 1
    assert TokenEmbedder("onehot").fit([[text] for text in texts]).n_features_out_ == 1


def test_n03_words_that_collide_are_warned_of_and_the_composed_one_is_kept():
    words = [spelled("NFD"), spelled("NFC"), "cafe"]
    embedder = TokenEmbedder((words, VECTORS))
    with pytest.warns(UserWarning, match=r"1 words of vectors .* 'cafe\\u0301' and 'caf\\xe9'"):
        out = embedder.fit_transform(words)
    assert_array_equal(out.values, VECTORS[[1, 1, 2]])
    baskets = sparse.csr_array(np.eye(3))  # columns are no words: each has its row
    assert_array_equal(embedder.transform(baskets).values, VECTORS)
    assert embedder.words(baskets) == [[0], [spelled("NFC")], ["cafe"]]


# N16: arrays of other libraries -----------------------------------------------------------------


class Tensor:
    """As a torch tensor: turned into a NumPy array once it is detached and its type is known."""

    def __init__(self, array, requires_grad=False, narrow=False):
        self.array, self.requires_grad, self.narrow = np.asarray(array), requires_grad, narrow
        self.ndim = self.array.ndim

    def numpy(self):
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.narrow:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array

    def __array__(self, dtype=None, copy=None):
        return self.numpy()

    def detach(self):
        return Tensor(self.array, narrow=self.narrow)

    def cpu(self):
        return self

    def double(self):
        return Tensor(self.array.astype(np.float64))

    def tolist(self):
        return self.array.tolist()


class Foreign:
    """An array of a library that offers `__array__` only."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def __array__(self, dtype=None, copy=None):
        return self.array


TENSORS = {
    "tensor": Tensor,
    "parameter": lambda array: Tensor(array, requires_grad=True),
    "array": Foreign,
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_n16_a_tensor_is_a_table_of_vectors(tensor):
    vectors = VECTORS.astype(np.float32)
    expected = vectors[[2, 0]]
    by_id = TokenEmbedder(tensor(vectors)).fit_transform([[2, 0]])
    assert by_id.dtype == np.float32
    assert_array_equal(by_id.values, expected)
    by_word = TokenEmbedder((["a", "b", "c"], tensor(vectors))).fit_transform(["c a"])
    assert_array_equal(by_word.values, expected)
    table = dict(zip("abc", map(tensor, vectors), strict=True))
    assert_array_equal(TokenEmbedder(table).fit_transform(["c a"]).values, expected)


def test_n16_a_type_that_numpy_lacks_is_read_in_double_precision():
    out = TokenEmbedder(Tensor(VECTORS.astype(np.float32), narrow=True)).fit_transform([[2, 0]])
    assert out.dtype == np.float64
    assert_array_equal(out.values, VECTORS[[2, 0]])


@pytest.mark.parametrize("tensor", [Tensor, Foreign])
def test_n16_a_tensor_of_ids_is_a_set_a_row(tensor):
    ids = np.array([[1, 0], [2, 2]])
    embedder = TokenEmbedder(VECTORS)
    assert_array_equal(embedder.fit_transform(tensor(ids)).values, VECTORS[ids.ravel()])
    with pytest.raises(TypeError, match="each row a set. Make a matrix of counts sparse"):
        embedder.fit(tensor(ids / 2))


def test_n16_sets_may_be_tensors_of_ids():
    embedder = TokenEmbedder(VECTORS)
    out = embedder.fit_transform([Tensor([1, 0]), Tensor([[2], [2]]), Tensor(np.array([], int))])
    assert_array_equal(out.lengths, [2, 2, 0])
    assert_array_equal(out.values, VECTORS[[1, 0, 2, 2]])


def test_n16_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    layer = torch.nn.Embedding.from_pretrained(torch.tensor(VECTORS), freeze=False)
    ids = torch.tensor([[1, 0], [2, 2]])
    for table in (layer.weight, torch.tensor(VECTORS), torch.tensor(VECTORS, dtype=torch.bfloat16)):
        for X in (ids, list(ids)):
            out = TokenEmbedder(table).fit_transform(X)
            assert out.dtype == np.float64
            assert_array_equal(out.values, VECTORS[[1, 0, 2, 2]])


# Large tables -----------------------------------------------------------------------------------


class Uncopied(np.ndarray):
    """An array that must not be copied."""

    def __deepcopy__(self, memo):
        raise AssertionError("the table was copied")


@pytest.mark.parametrize("form", [lambda a: a, lambda a: (list("abc"), a), lambda a: {"a": a[0]}])
def test_clones_share_the_table(form):
    vectors = form(VECTORS.view(Uncopied))
    embedder = TokenEmbedder(vectors, unknown="zeros", tokenizer=str.split)
    embedder.set_output(transform="pandas")
    other = clone(embedder)
    assert other.vectors is other.get_params()["vectors"] is vectors
    assert other.get_params()["tokenizer"] is str.split
    assert other.unknown == "zeros"
    assert other._sklearn_output_config == embedder._sklearn_output_config
    assert clone(make_pipeline(embedder))[0].vectors is vectors
    assert not hasattr(clone(TokenEmbedder(VECTORS).fit([[0]])), "vectors_")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_search_shares_the_table():
    model = make_pipeline(TokenEmbedder(VECTORS.view(Uncopied)), AttentionClassifier(max_iter=2))
    grid = {"tokenembedder__unknown": ["drop", "zeros"]}
    X, y = [[0, 1], [2], [0], [2, 1]] * 3, [0, 1, 0, 1] * 3
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_estimator_[0].vectors is model[0].vectors


@pytest.mark.parametrize("wrap", [lambda step: step, make_pipeline], ids=["step", "pipeline"])
def test_a_dict_of_many_vectors_is_printed_by_its_first_words(wrap):
    table = {f"w{i}": vector for i, vector in enumerate(np.ones((20_000, 50)))}
    estimator = wrap(TokenEmbedder(table))
    start = time.process_time()
    text, html = repr(estimator), estimator._repr_html_()
    assert time.process_time() - start < 2  # tens of seconds, were all of it printed
    for printed in (text, html):
        assert "w1" in printed and "w19999" not in printed
    assert "19997 more" in text


def test_shallow_parameters_build_the_same_estimator():
    table = {"a": VECTORS[0], "b": VECTORS[1]}
    embedder = TokenEmbedder(table)
    rebuilt = TokenEmbedder(**embedder.get_params(deep=False))
    for other in (rebuilt, clone(rebuilt), copy.deepcopy(rebuilt)):
        assert_array_equal(other.fit_transform(["b a"]).values, VECTORS[[1, 0]])
    assert embedder.get_params()["vectors"] is table
    assert repr(TokenEmbedder({"a": [1.0]})) == "TokenEmbedder(vectors={'a': [1.0]})"


# Kept words -------------------------------------------------------------------------------------


TEXTS = ["Dog of a cat!", "", "zzz", "cat zzz cat"]


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        ("drop", [["dog", "cat"], [], [], ["cat", "cat"]]),
        ("zeros", [["dog", "of", "a", "cat"], [], ["zzz"], ["cat", "zzz", "cat"]]),
    ],
)
def test_words_are_those_of_the_tokens_kept(unknown, expected):
    embedder = TokenEmbedder({"cat": VECTORS[0], "dog": VECTORS[1]}, unknown=unknown).fit(TEXTS)
    assert embedder.words(TEXTS) == expected
    for words, tokens in zip(embedder.words(TEXTS), embedder.transform(TEXTS), strict=True):
        rows = [embedder.vocabulary_.get(word) for word in words]
        want = [np.zeros(2) if row is None else VECTORS[row] for row in rows]
        assert_array_equal(tokens, np.reshape(want, (-1, 2)))


def test_words_of_ids_and_of_baskets():
    baskets = sparse.csr_array(np.array([[0, 2, 1], [0, 0, 0], [1, 0, 0]]))
    assert TokenEmbedder(VECTORS).fit(baskets).words(baskets) == [[1, 2], [], [0]]
    named = TokenEmbedder((list("abc"), VECTORS)).fit(baskets)
    assert named.words(baskets) == [["b", "c"], [], ["a"]]
    assert TokenEmbedder(VECTORS).fit([[0]]).words([[1, 7], [2]]) == [[1], [2]]
    ids = RaggedArray.from_list([[[1.0], [9.0], [0.0]], [[2.0]]], [[1, 1, 0], [3]])
    assert TokenEmbedder(VECTORS).fit(ids).words(ids) == [[1], [2]]
    with pytest.raises(ValueError, match="Token 0 of set 0 is 9, which has no vector"):
        TokenEmbedder(VECTORS, unknown="error").fit([[0]]).words([[9]])


# Messages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vocabulary", "error", "message"),
    [
        (5, TypeError, "The vocabulary in vectors is 5, but must be a list of words"),
        ("abc", TypeError, "The vocabulary in vectors is 'abc', but must be a list"),
        ({"a", "b", "c"}, TypeError, "must be a list of words, in the order of the array's rows"),
        ({"a": "0"}, TypeError, "gives '0' for the word 'a', but must give the number of a row"),
        ({"a": 0.5}, TypeError, "gives 0.5 for the word 'a'"),
        ({"a": True}, TypeError, "gives True for the word 'a'"),
        ({"a": None}, TypeError, "gives None for the word 'a'"),
    ],
    ids=str,
)
def test_a_vocabulary_of_the_wrong_kind_is_refused_by_name(vocabulary, error, message):
    with pytest.raises(error, match=message):
        TokenEmbedder((vocabulary, VECTORS)).fit([["a"]])


@pytest.mark.parametrize(
    ("params", "X"),
    [
        ({"vectors": {"a": [1.0]}, "unknown": "error"}, [["x" * 60_000]]),
        ({"vectors": VECTORS}, [["x" * 60_000]]),
        ({"vectors": {1: [1.0]}}, [["x" * 60_000]]),
        ({"vectors": {"x" * 60_000: [1.0]}}, [[1]]),
        ({"vectors": {"a": [1.0]}, "tokenizer": lambda text: text}, ["x" * 60_000]),
    ],
)
def test_no_message_shows_all_of_a_long_text(params, X):
    with pytest.raises((TypeError, ValueError), match=r"'?x+\.\.\.x+'?|is 1") as caught:
        TokenEmbedder(**params).fit(X)
    assert len(str(caught.value)) < 400
