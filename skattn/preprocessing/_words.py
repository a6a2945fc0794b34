"""Read sets of words, ids or basket items from any container."""

import re
import reprlib
import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from typing import Any

import numpy as np

from ..containers import is_from

WORD = re.compile(r"\w+")
FEW = 5  # words that a message names


@dataclass(frozen=True, eq=False)
class WordSets:
    """The tokens of all sets, and where each set begins and ends."""

    tokens: list | np.ndarray  # words in NFC, or ids; an array only of integers
    offsets: np.ndarray
    weights: np.ndarray | None = None
    n_columns: int | None = None  # of the sparse matrix whose columns the tokens are
    index: Any = None  # as a RaggedArray has it
    rows: np.ndarray | None = None

    def where(self, position):
        """The token, its number and its set, for a message."""
        i = int(np.searchsorted(self.offsets, position, side="right")) - 1
        token = self.tokens[position]
        token = token.item() if isinstance(token, np.generic) else token
        return f"Token {position - self.offsets[i]} of set {i} is {reprlib.repr(token)}"

    def row_numbers(self, n_words):
        """The tokens as row numbers, -1 if out of range, (n_tokens,)."""
        ids = self.tokens
        if isinstance(ids, np.ndarray):
            known = (ids >= 0) & (ids < n_words)
            return np.where(known, ids, 0).astype(np.int64) - ~known
        for kind in set(map(type, ids)):
            if kind is bool or not issubclass(kind, (int, np.integer)):
                position = next(k for k, token in enumerate(ids) if type(token) is kind)
                raise TypeError(
                    f"{self.where(position)}, but without a vocabulary "
                    "tokens must be ids: integer row numbers of vectors. To look up words, give "
                    "vectors as a tuple (vocabulary, array) or as a dict."
                )
        return np.array([i if 0 <= i < n_words else -1 for i in ids], dtype=np.int64)

    def look_up(self, vocabulary):
        """The row of each token in the vocabulary, -1 if it has none, (n_tokens,)."""
        tokens = self.tokens.tolist() if isinstance(self.tokens, np.ndarray) else self.tokens
        try:
            rows = np.fromiter(map(vocabulary.get, tokens, repeat(-1)), np.int64, len(tokens))
        except TypeError as error:
            raise TypeError(
                f"A token of X is not a word ({error}). Each set must be a text, or a flat list "
                "of words or ids."
            ) from error
        unknown = np.flatnonzero(rows < 0)
        if unknown.size:
            kinds = {isinstance(word, str) for word in vocabulary}
            for position in unknown:
                token = tokens[position]
                if is_missing(token) or isinstance(token, str) not in kinds:
                    raise TypeError(
                        f"{self.where(position)}, but the words of the vocabulary "
                        f"are of another type: {some(vocabulary)}. If tokens are row numbers, "
                        "give vectors as the array alone."
                    )
        return rows

    def distinct(self):
        """A number for each distinct token, in sorted order; None if tokens are columns."""
        if self.n_columns is not None:
            return None
        if isinstance(self.tokens, np.ndarray):
            words = np.unique(self.tokens).tolist()
        else:
            try:
                words = sorted(set(self.tokens))
            except TypeError as error:
                raise TypeError(
                    f"The tokens of X cannot be sorted ({error}). Each set must be a text, or a "
                    "flat list of words or ids, and all tokens must be of one type."
                ) from error
        if not words:
            raise ValueError("Found no tokens in X; 'onehot' needs at least one.")
        return {word: j for j, word in enumerate(words)}


def _lower_cased_words(text):
    text = text.lower()
    return WORD.findall(text) if text.isascii() else _word_with_marks().findall(nfc(text))


@cache
def _word_with_marks():
    """The pattern of a word that keeps its combining marks and invisible joiners."""
    characters = map(chr, range(sys.maxunicode + 1))
    marks = "".join(c for c in characters if unicodedata.category(c)[0] == "M")
    return re.compile(rf"\w+(?:[{marks}\u200c\u200d]+\w*)*")


def nfc(word):
    """A text in Unicode's composed form, in which all words are compared; else as it is."""
    return unicodedata.normalize("NFC", word) if isinstance(word, str) else word


def as_array(X):
    """Any library's array, for instance a torch tensor, as a NumPy array; None if X is none."""
    if hasattr(X, "detach") and hasattr(X, "numpy"):  # torch's
        X = X.detach().cpu()
        try:
            return X.numpy()
        except TypeError:  # a type that NumPy lacks, as bfloat16
            return X.double().numpy()
    return np.asarray(X) if hasattr(X, "__array__") else None


def read_baskets(X):
    """A sparse matrix: a stored entry is a token of its column, its value a token weight."""
    if X.ndim != 2 or X.shape[1] == 0 or X.dtype.kind not in "fiub":
        raise ValueError(
            f"X is a sparse array of shape {X.shape} and dtype {X.dtype}, but must hold real "
            "numbers and be of shape (n_samples, n_words) with at least one word."
        )
    entries = X.tocoo().astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(entries.data) & (entries.data >= 0)))
    if bad.size:
        k = bad[0]
        what = "Negative values in data passed" if entries.data[k] < 0 else "NaN or infinity in X"
        raise ValueError(
            f"{what}: set {entries.row[k]} has the entry {entries.data[k]} in column "
            f"{entries.col[k]}. Entries are token weights: each must be finite and 0 or more."
        )
    rows = entries.tocsr()  # a copy, in which duplicates are summed
    rows.eliminate_zeros()
    weights = None if np.all(rows.data == 1) else rows.data
    return WordSets(rows.indices.astype(np.int64), rows.indptr, weights, n_columns=X.shape[1])


def read_ragged_ids(X):
    """A RaggedArray of one feature, whose values are whole numbers."""
    with np.errstate(invalid="ignore"):  # NaN; the comparison below finds it
        ids = X.values.astype(np.int64)
    if X.n_tokens and (X.n_features != 1 or np.any(ids != X.values)):
        raise TypeError(
            f"X is a RaggedArray of {X.n_features} features, but must have one, and its values "
            "must be ids: whole numbers. Token vectors need no TokenEmbedder."
        )
    X = X.with_values(ids).drop_zero_weights()
    return WordSets(X.values.ravel(), X.offsets, X.weights, index=X.index, rows=X.rows)


def read_documents(X, tokenizer):
    """A list, array or column of texts or lists of tokens."""
    tokenizer = _lower_cased_words if tokenizer is None else tokenizer
    documents = [_tokens_of(entry, i, tokenizer) for i, entry in enumerate(_entries(X))]
    offsets = np.zeros(len(documents) + 1, dtype=np.int64)
    np.cumsum([len(tokens) for tokens in documents], out=offsets[1:])
    index = X.index if is_from(X, "pandas", "Series", "DataFrame") else None
    arrays = [tokens for tokens in documents if len(tokens)]
    if arrays and all(isinstance(tokens, np.ndarray) for tokens in arrays):
        ids = np.concatenate(arrays)
        if ids.dtype.kind in "iu":  # signed and unsigned integers together become floats
            return WordSets(ids, offsets, index=index)
    plain = (t.tolist() if isinstance(t, np.ndarray) else t for t in documents)
    words = chain.from_iterable(plain)
    words = [w if not isinstance(w, str) or w.isascii() else nfc(w) for w in words]
    return WordSets(words, offsets, index=index)


def _entries(X):
    """The sets of a container, one by one."""
    if isinstance(X, (list, tuple)):
        return X
    if isinstance(X, np.ndarray):
        if X.ndim == 1 or (X.ndim == 2 and X.shape[1] == 1 and X.dtype.kind not in "iu"):
            return X.ravel().tolist()
        if X.ndim == 2 and X.dtype.kind in "iuUOT":
            return X
        raise TypeError(
            f"X is an array of shape {X.shape} and dtype {X.dtype}, but must hold words or "
            "integer ids, each row a set. Make a matrix of counts sparse: "
            "scipy.sparse.csr_array(X)."
        )
    if hasattr(X, "columns") and hasattr(X, "shape"):  # a pandas, polars or Arrow table
        if X.shape[1] != 1:
            raise ValueError(
                f"X is a frame of {X.shape[1]} columns, but must have one column of texts or "
                "lists of tokens. Pass this column, or its name in a ColumnTransformer. Make a "
                "table of counts sparse: scipy.sparse.csr_array(X)."
            )
        X = _only_column(X)
    entries = listed(X)
    if entries is None and as_array(X) is not None:
        return _entries(as_array(X))
    if entries is None:
        raise TypeError(
            f"X is a {type(X).__name__}, but must be a list, an array or a column of sets of "
            "tokens, or a sparse matrix. Pass a single text as [text]."
        )
    return entries


def _only_column(frame):
    if hasattr(frame, "iloc"):  # pandas
        return frame.iloc[:, 0]
    return frame.to_series() if hasattr(frame, "to_series") else frame.column(0)  # polars, Arrow


def listed(values):
    """A Series, an index or an Arrow array as a list; None for anything else."""
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(values, method) and getattr(values, "ndim", 1) == 1:
            return getattr(values, method)()
    return None


def is_missing(value):
    """Whether a text or a word is None, NaN or pandas.NA."""
    is_nan = isinstance(value, float) and value != value
    return value is None or is_nan or type(value).__name__ == "NAType"


def _tokens_of(entry, i, tokenizer):
    """The tokens of a set: a list, or an array of integers."""
    if isinstance(entry, str):
        tokens = tokenizer(entry)
        if isinstance(tokens, str) or not isinstance(tokens, Iterable):
            raise TypeError(
                f"tokenizer gave {reprlib.repr(tokens)} for set {i}, but must give a list of words."
            )
        return list(tokens)
    if isinstance(entry, (list, tuple)):
        return entry
    if hasattr(entry, "detach"):
        entry = as_array(entry)
    if isinstance(entry, np.ndarray) and entry.ndim:
        if entry.ndim > 2 or (entry.ndim == 2 and entry.shape[1] != 1):
            raise TypeError(
                f"Set {i} has shape {entry.shape}, but a set is a flat list of words or ids."
            )
        masked = np.ma.isMaskedArray(entry)  # masked entries are padding
        entry = entry.compressed() if masked else entry.ravel()
        return entry if entry.dtype.kind in "iu" else entry.tolist()
    tokens = listed(entry)
    if tokens is not None:
        return tokens
    if is_missing(entry):
        raise ValueError(
            f"Set {i} is missing ({entry!r}). Drop it, or give '' or [] for a set without tokens."
        )
    raise TypeError(
        f"Set {i} is {reprlib.repr(entry)}, of type {type(entry).__name__}, but must be a text, or "
        "a list or array of words or ids."
    )


def some(words):
    """The first few words, for a message."""
    return ", ".join(reprlib.repr(word) for word, _ in zip(words, range(FEW), strict=False))
