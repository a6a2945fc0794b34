"""Token vectors of words, ids and baskets."""

import copy
import reprlib
import warnings
from collections.abc import Mapping, Set
from itertools import compress, islice, pairwise

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from .._arrays import float_type
from .._output import RaggedOutputMixin
from ..ragged import RaggedArray
from ._words import (
    as_array,
    is_missing,
    listed,
    nfc,
    read_baskets,
    read_documents,
    read_ragged_ids,
    some,
)

UNKNOWN = ("drop", "zeros", "error")  # what to do with a token that has no vector


class TokenEmbedder(RaggedOutputMixin, BaseEstimator):
    """Look up the vector of each word, id or basket item, set by set.

    The vectors come from elsewhere, for instance from GloVe or a trained gensim model. Nothing is
    learned.

    Parameters
    ----------
    vectors : dict, frame, pair, ndarray, KeyedVectors or "onehot"
        The vector of each word:

        - a dict from words to vectors of one length;
        - a pandas frame whose index holds the words, or a polars frame with one column of words;
        - a tuple of a list of n words, or a dict from words to row numbers, and an array of
          shape (n, n_features);
        - an object with `key_to_index` and `vectors`, such as gensim's KeyedVectors;
        - an array of shape (n, n_features), also a torch tensor: tokens are ids, the row numbers
          of the array, counted from 0;
        - ``"onehot"``: each word in `fit`, or each column of a basket, gets one feature, in
          sorted order.

        Words may be any hashable values, for instance integer codes of articles.
    unknown : {"drop", "zeros", "error"}, default="drop"
        What to do with a token that has no vector: leave it out, give it a vector of zeros, or
        raise a ValueError in `fit` and `transform` that names the set and the word.
    tokenizer : callable, default=None
        Splits a text into a list of words. None lower-cases the text and splits it into runs of
        letters, digits and underscores with their combining marks; ``str.split`` keeps capitals
        and punctuation. Sets that are already lists of words are neither split nor lower-cased.

    Attributes
    ----------
    vocabulary_ : dict or None
        Row of `vectors_`, or number of the feature, by word in Unicode's form NFC; None where
        tokens are row numbers.
    vectors_ : ndarray of shape (n_words, n_features_out_) or None
        The vectors: float32 if `vectors` is float32, else float64; None for ``"onehot"``.
    unknown_share_ : float
        Share of the training tokens without a vector, between 0 and 1; 0 if there are no tokens.
    n_features_out_ : int
        Number of features of a token vector.
    n_features_in_ : int
        Number of columns, if X in `fit` was a sparse matrix.

    Raises
    ------
    TypeError
        If X does not hold sets of words or ids, or if X holds ids and the vocabulary words, or
        the reverse.
    ValueError
        If vectors are not finite or differ in length; if a word has two vectors; if a document
        is missing; if a basket has a negative or non-finite entry; if a token has no vector and
        `unknown` is ``"error"``.

    Warns
    -----
    UserWarning
        From `fit`, if no token has a vector, or if words of `vectors` are the same in NFC.

    See Also
    --------
    PositionalEncoder : Add the positions of words, which attention does not see otherwise.
    TokenTransformer : Apply any transformer to the vectors.

    Notes
    -----
    A text without known words is an empty set. The parameter `empty` of the next step decides
    about its row.

    A word and its vector are matched in Unicode's form NFC: it does not matter whether an accent
    is part of the letter or a combining mark after it.

    In a sparse basket, as CountVectorizer gives, a stored entry (i, j, v) is a token of set i with
    row j of the vectors and the token weight v, which counts it v times. Duplicate entries are
    summed; zeros are not tokens. A dense array of integer counts is read as ids, each row a set:
    make it sparse first.

    ``clone`` does not copy `vectors`: the clone shares them. To label tokens, use `words`.

    O(n_tokens n_features) time: a second for a million words of 50 features. For a Pipeline with
    `memory`, which hashes all parameters, a tuple of words and an array is much faster than a
    dict of arrays.

    The output is a RaggedArray; ``set_output`` does not change it.

    Examples
    --------
    >>> from skattn import TokenEmbedder
    >>> table = {"cat": [1.0, 0.5], "dog": [0.8, 0.6], "phone": [-0.5, 1.0]}
    >>> embedder = TokenEmbedder(table)
    >>> X = embedder.fit_transform(["Cat, dog, phone!", "cat zzz", ""])
    >>> X.to_list()[1]
    array([[1. , 0.5]])
    >>> X.lengths
    array([3, 1, 0])
    >>> embedder.unknown_share_
    0.2
    """

    def __init__(self, vectors, *, unknown="drop", tokenizer=None):
        self.vectors = vectors
        self.unknown = unknown
        self.tokenizer = tokenizer

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.input_tags.two_d_array = False
        return tags

    def __sklearn_clone__(self):
        """A clone that shares the vectors: they are never written to, and may be gigabytes."""
        shell = copy.copy(self)
        shell.vectors = None
        clone = super(TokenEmbedder, shell).__sklearn_clone__()
        clone.vectors = self.vectors
        return clone

    def get_params(self, deep=True):
        """Get the parameters of this estimator.

        Parameters
        ----------
        deep : bool, default=True
            With False, which scikit-learn uses to print an estimator, `vectors` given as a dict
            is a copy of that dict with a short repr.

        Returns
        -------
        dict
            The parameters by name.
        """
        params = super().get_params(deep)
        if not deep and type(params["vectors"]) is dict:
            params["vectors"] = _BriefDict(params["vectors"])
        return params

    def fit(self, X, y=None):
        """Read the vectors and count the unknown tokens.

        Parameters
        ----------
        X : container of n_samples sets
            A list, tuple, object array, Series or frame of one column; each entry is a text, or
            a list or array of words or ids. Or a 2-D array or tensor of words or ids, each row a
            set; a sparse matrix of shape (n_samples, n_words); or a RaggedArray of ids with one
            feature.
        y : None, default=None
            Not used.

        Returns
        -------
        self : TokenEmbedder
            The fitted embedder.
        """
        self._fit(X)
        return self

    def fit_transform(self, X, y=None):
        """Read the vectors and look up the tokens of X.

        Parameters
        ----------
        X : container of n_samples sets
            As in `fit`.
        y : None, default=None
            Not used.

        Returns
        -------
        RaggedArray
            As from `transform`.
        """
        return self._vectors_of(self._fit(X))

    def transform(self, X):
        """Look up the vectors of all tokens.

        Parameters
        ----------
        X : container of n_samples sets
            As in `fit`.

        Returns
        -------
        RaggedArray
            One row of `n_features_out_` columns for each token, in order, with the index and
            the token weights of X if it has any.
        """
        check_is_fitted(self)
        sets = self._read(X, reset=False)
        rows = self._rows(sets)
        self._refuse_unknown(sets, rows)
        return self._vectors_of(rows)

    def unknown_share(self, X):
        """Share of the tokens of X without a vector.

        Parameters
        ----------
        X : container of n_samples sets
            As in `fit`.

        Returns
        -------
        float
            Between 0 and 1; weighted if tokens have weights; 0 if there are no tokens.
        """
        check_is_fitted(self)
        return _share_unknown(self._rows(self._read(X, reset=False)))

    def words(self, X):
        """Words of the tokens that `transform` keeps, set by set.

        Parameters
        ----------
        X : container of n_samples sets
            As in `fit`.

        Returns
        -------
        list of n_samples lists
            ``words(X)[i][j]`` is the word, or the id, of token j of set i in ``transform(X)``.
            Words are in Unicode's form NFC, lower-cased where the default tokenizer splits texts.
            For sparse baskets they are the words of the columns, or the number of a column
            without a word.

        Examples
        --------
        >>> from skattn import TokenEmbedder
        >>> embedder = TokenEmbedder({"cat": [1.0], "dog": [2.0]}).fit(["cat"])
        >>> embedder.words(["A cat, a dog!", "zzz"])
        [['cat', 'dog'], []]
        """
        check_is_fitted(self)
        sets = self._read(X, reset=False)
        rows = self._rows(sets)
        self._refuse_unknown(sets, rows)
        words = sets.tokens.tolist() if isinstance(sets.tokens, np.ndarray) else sets.tokens
        if sets.n_columns is not None and self.vocabulary_ is not None:
            word_of = {row: word for word, row in self.vocabulary_.items()}
            words = [word_of.get(row, row) for row in words]
        known = rows.values[:, 0] >= 0
        if self.unknown == "drop":
            words, rows = list(compress(words, known)), rows._keep(known)
        return [words[a:b] for a, b in pairwise(rows.offsets.tolist())]

    def get_feature_names_out(self, input_features=None):
        """Names of a vector's features.

        Parameters
        ----------
        input_features : None, default=None
            Not used.

        Returns
        -------
        ndarray of str of shape (n_features_out_,)
            The columns of the frame or the words of ``"onehot"`` if they are strings, else
            ``tokenembedder0``, ...
        """
        check_is_fitted(self)
        names = self._names
        if names is None or not all(isinstance(name, str) for name in names):
            names = [f"{type(self).__name__.lower()}{j}" for j in range(self.n_features_out_)]
        return np.array(names, dtype=object)

    def _fit(self, X):
        """Fit, and return the rows of the training tokens' vectors."""
        if not isinstance(self.unknown, str) or self.unknown not in UNKNOWN:
            raise ValueError(f"unknown must be one of {list(UNKNOWN)}, but is {self.unknown!r}.")
        if self.tokenizer is not None and not callable(self.tokenizer):
            raise TypeError(
                "tokenizer must be a callable that splits a text into a list of words, but is "
                f"{self.tokenizer!r}."
            )
        sets = self._read(X, reset=True)
        if isinstance(self.vectors, str) and self.vectors == "onehot":
            self.vocabulary_ = sets.distinct()
            self.vectors_, self._names = None, list(self.vocabulary_ or []) or None
            self.n_features_out_ = sets.n_columns or len(self.vocabulary_)
        else:
            self.vocabulary_, self.vectors_, self._names = _read_vectors(self.vectors)
            self.n_features_out_ = self.vectors_.shape[1]
        rows = self._rows(sets)
        self._refuse_unknown(sets, rows)
        self.unknown_share_ = _share_unknown(rows)
        if self.unknown_share_ == 1:
            warnings.warn(
                f"None of the {len(sets.tokens)} tokens has a vector. The first tokens are "
                f"{some(sets.tokens)}; the vocabulary begins with "
                f"{some(self.vocabulary_ or range(len(self.vectors_)))}. Compare their spelling, "
                "capitals and type.",
                stacklevel=3,
            )
        return rows

    def _read(self, X, *, reset):
        """The tokens of X; the number of columns is checked, or stored with `reset`."""
        if reset and hasattr(self, "n_features_in_"):
            del self.n_features_in_
        if issparse(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return read_baskets(X)
        if isinstance(X, RaggedArray):
            return read_ragged_ids(X)
        return read_documents(X, self.tokenizer)

    def _rows(self, sets):
        """The row of each token's vector, -1 if it has none, as sets of one feature."""
        n_words = self.n_features_out_ if self.vectors_ is None else len(self.vectors_)
        if sets.n_columns is not None:
            if sets.n_columns != n_words:
                raise ValueError(
                    f"X has {sets.n_columns} columns, but there are {n_words} vectors. Column j "
                    "needs row j of the vectors: give one vector for each column."
                )
            rows = sets.tokens
        elif self.vocabulary_ is None:
            rows = sets.row_numbers(n_words)
        else:
            rows = sets.look_up(self.vocabulary_)
        return RaggedArray(rows[:, None], sets.offsets, sets.weights, sets.index, sets.rows)

    def _refuse_unknown(self, sets, rows):
        """Raise an error that names the first token without a vector, if `unknown` is "error"."""
        unknown = rows.values[:, 0] < 0
        if self.unknown == "error" and unknown.any():
            position = int(np.argmax(unknown))
            raise ValueError(
                f"{sets.where(position)}, which has no vector; "
                f"{np.sum(unknown)} of {len(unknown)} tokens have none. Add them to vectors, or "
                "choose unknown='drop' or unknown='zeros'."
            )

    def _vectors_of(self, rows):
        """The token vectors (n_tokens, n_features_out_) of sets of rows."""
        if self.unknown == "drop":
            known = rows.values[:, 0] >= 0
            rows = rows if known.all() else rows._keep(known)
        row = rows.values[:, 0]
        if self.vectors_ is None:
            values = np.zeros((len(row), self.n_features_out_))
            values[np.flatnonzero(row >= 0), row[row >= 0]] = 1
        else:
            values = self.vectors_.take(row, axis=0)  # -1 takes the last, for now
            values[row < 0] = 0
        return rows.with_values(values)

    def _is_ragged_out(self):
        return True


class _BriefDict(dict):
    """A dict that is printed by its first words, however many it has."""

    def __repr__(self):
        shown = [f"{word!r}: {reprlib.repr(vector)}" for word, vector in islice(self.items(), 3)]
        more = len(self) - len(shown)
        return "{" + ", ".join(shown) + (f", ... {more} more" if more else "") + "}"


def _share_unknown(rows):
    """Share of the tokens, by weight, whose row is -1."""
    weights = np.ones(rows.n_tokens) if rows.weights is None else rows.weights
    total = weights.sum()
    return float(weights[rows.values[:, 0] < 0].sum() / total) if total > 0 else 0.0


# Tables of vectors


def _read_vectors(vectors):
    """The vocabulary (None: row numbers), the vectors and the names of their features (or None)."""
    words = names = None
    if isinstance(vectors, Mapping):
        words = list(vectors)
        values = [as_array(v) if hasattr(v, "detach") else v for v in vectors.values()]
        shapes = [np.shape(vector) for vector in values]
        for word, shape in zip(words, shapes, strict=True):
            if len(shape) != 1 or shape != shapes[0]:
                raise ValueError(
                    f"The vector of {word!r} has shape {shape} and the vector of {words[0]!r} has "
                    f"shape {shapes[0]}, but all must be 1-D and of one length."
                )
    elif hasattr(vectors, "key_to_index") and hasattr(vectors, "vectors"):
        words, values = vectors.key_to_index, vectors.vectors
    elif isinstance(vectors, tuple) and len(vectors) == 2:
        words, values = vectors
    elif hasattr(vectors, "iloc") and hasattr(vectors, "columns"):  # pandas
        words, values, names = vectors.index, _numbers_of(vectors), list(vectors.columns)
    elif hasattr(vectors, "get_columns"):  # polars
        words, values, names = _read_polars(vectors)
    elif not isinstance(vectors, RaggedArray) and as_array(vectors) is not None:
        values = vectors
    else:
        got = repr(vectors) if isinstance(vectors, str) else f"a {type(vectors).__name__}"
        raise TypeError(
            f"vectors is {got}, but must be a dict from words to vectors, a frame with the words "
            "as its index, a tuple (vocabulary, array), KeyedVectors (the .wv of a gensim model), "
            "an array of shape (n, n_features), or 'onehot'."
        )
    values = np.asarray(values) if as_array(values) is None else as_array(values)
    if values.ndim != 2 or values.size == 0 or values.dtype.kind not in "fiub":
        raise ValueError(
            f"The array of vectors has shape {values.shape} and dtype {values.dtype}, but must be "
            "numeric, of shape (n_words, n_features), and not empty."
        )
    vocabulary = None if words is None else _in_nfc(_read_vocabulary(words, len(values)))
    return vocabulary, _as_finite(values, vocabulary), names


def _read_vocabulary(words, n_rows):
    """The row of each word, by word, from a dict of rows or a list of words."""
    if isinstance(words, Mapping):
        vocabulary = dict(words)
        for word, row in vocabulary.items():
            if not isinstance(row, (int, np.integer)) or isinstance(row, bool):
                raise TypeError(
                    f"The vocabulary in vectors gives {row!r} for the word {word!r}, but must give "
                    "the number of a row of the array, an integer."
                )
            if not 0 <= row < n_rows:
                raise ValueError(
                    f"The word {word!r} has row {row} of vectors, which has {n_rows} rows."
                )
        return vocabulary
    if isinstance(words, (str, bytes, Set)) or not hasattr(words, "__iter__"):
        raise TypeError(
            f"The vocabulary in vectors is {reprlib.repr(words)}, but must be a list of words, in "
            "the order of the array's rows, or a dict from words to row numbers."
        )
    words = list(words) if listed(words) is None else listed(words)
    if len(words) != n_rows:
        raise ValueError(
            f"vectors has {len(words)} words, but {n_rows} rows: give one vector per word."
        )
    try:
        vocabulary = {word: row for row, word in enumerate(words)}
    except TypeError as error:
        raise TypeError(
            f"An entry of the vocabulary in vectors is not a word ({error}). In a tuple the "
            "vocabulary comes first, then the array."
        ) from error
    for row, word in enumerate(words):
        if is_missing(word):
            raise ValueError(
                f"The word of row {row} of vectors is missing ({word!r}). If pandas read it from "
                "a file, it may be the word 'null' or 'nan': read it with keep_default_na=False."
            )
        if vocabulary[word] != row:
            raise ValueError(
                f"vectors has the word {word!r} twice, in rows {row} and {vocabulary[word]}. Keep "
                "one of them."
            )
    return vocabulary


def _in_nfc(vocabulary):
    """The vocabulary with its words in NFC; of several that become one word, one is kept."""
    if all(not isinstance(word, str) or word.isascii() for word in vocabulary):
        return vocabulary
    composed, first, twice = {}, {}, []
    for word, row in vocabulary.items():
        form = nfc(word)
        if form in composed:
            twice.append((first[form], word))
            if word != form:
                continue
        composed[form], first[form] = row, word
    if twice:
        warnings.warn(
            f"{len(twice)} words of vectors are spelled with other code points than a word that "
            f"is the same in Unicode's form NFC, such as {twice[0][0]!a} and "
            f"{twice[0][1]!a}. Each keeps one vector: that of the spelling in NFC, or else "
            "of the first.",
            stacklevel=5,
        )
    return composed


def _as_finite(values, vocabulary):
    """The vectors as a contiguous array of float32 or float64, checked to be finite."""
    values = np.ascontiguousarray(values, dtype=float_type(values.dtype))
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if bad.size:
        words = [word for word, row in (vocabulary or {}).items() if row == bad[0]]
        named = f" (the word {words[0]!r})" if words else ""
        raise ValueError(f"Row {bad[0]}{named} of vectors contains NaN or infinity.")
    return values


def _numbers_of(frame):
    """The values of a pandas frame, also of nullable types."""
    values = frame.to_numpy()
    if values.dtype == object and all(dtype.kind in "fiub" for dtype in frame.dtypes):
        return frame.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _read_polars(frame):
    """Words, vectors and features' names of a polars frame with one column of words."""
    columns = frame.get_columns()
    words = [column for column in columns if not column.dtype.is_numeric()]
    if len(words) != 1:
        raise ValueError(
            f"vectors is a frame with {len(words)} columns that hold no numbers, but must have "
            "exactly one: the words."
        )
    names = [column.name for column in columns if column.dtype.is_numeric()]
    return words[0].to_list(), frame.select(names).to_numpy(), names
