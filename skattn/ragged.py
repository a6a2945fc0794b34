"""Sets of token vectors, each set with its own length, in one flat array."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from ._arrays import float_type
from ._frames import group, token_frame

__all__ = ["RaggedArray"]


@dataclass(frozen=True, eq=False, repr=False)
class RaggedArray:
    """Sets of token vectors in one flat array, set after set.

    Set ``i`` is ``values[offsets[i]:offsets[i + 1]]``: Arrow's list layout. Nothing is padded, and
    an empty set is two equal offsets. It works with scikit-learn's splitters: it has a length and a
    ``shape``, and its index may be an integer, a slice, or an integer or boolean array.

    Parameters
    ----------
    values : ndarray of shape (n_tokens, n_features)
        All token vectors, those of set 0 first.
    offsets : ndarray of shape (n_samples + 1,)
        Where each set begins and ends; rises from 0 to ``n_tokens``.
    weights : ndarray of shape (n_tokens,), default=None
        Multiplicity of each token, finite and not negative: weight 2 counts the token twice,
        weight 0 removes it. None counts every token once.
    index : ndarray or pandas.Index of shape (n_samples,), default=None
        Label of each set: the keys of `from_frame`, or the index of the pandas object that was
        read. None if the sets have no labels.
    rows : ndarray of int of shape (n_tokens,), default=None
        Position of each token among the rows of the frame that `from_frame` read.
    columns : ndarray of str of shape (n_features,), default=None
        Names of the features; an estimator keeps them in `fit`.

    Attributes
    ----------
    lengths : ndarray of shape (n_samples,)
        Number of tokens of each set.
    shape : tuple
        ``(n_samples, None, n_features)``.

    Raises
    ------
    TypeError
        If `values` is not a 2-D numeric array.
    ValueError
        If `offsets` do not rise from 0 to ``n_tokens``, or if `weights`, `rows`, `index` or
        `columns` do not have one entry for each token, set or feature.

    See Also
    --------
    skattn.as_ragged : Read any container of sets.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import RaggedArray
    >>> X = RaggedArray.from_list([[[1, 2], [3, 4]], [[5, 6]]])
    >>> X
    RaggedArray(2 sets, 3 tokens, 2 features, float64)
    >>> X[0]
    array([[1., 2.],
           [3., 4.]])
    >>> X[[1, 0]].lengths
    array([1, 2])
    """

    values: np.ndarray
    offsets: np.ndarray
    weights: np.ndarray | None = None
    index: Any = None
    rows: np.ndarray | None = None
    columns: np.ndarray | None = None

    def __post_init__(self):
        values, offsets = np.asarray(self.values), np.asarray(self.offsets)
        if values.ndim != 2 or values.dtype.kind not in "fiub":
            raise TypeError(
                f"values has shape {values.shape} and dtype {values.dtype}, but must be a numeric "
                "array of shape (n_tokens, n_features)."
            )
        if offsets.ndim != 1 or offsets.size == 0 or offsets.dtype.kind not in "iu":
            raise ValueError(
                f"offsets has shape {offsets.shape} and dtype {offsets.dtype}, but must be a 1-D "
                "integer array of n_samples + 1 entries."
            )
        offsets = offsets.astype(np.int64, copy=False)
        if offsets[0] != 0 or offsets[-1] != len(values) or np.any(np.diff(offsets) < 0):
            raise ValueError(
                f"offsets run from {offsets[0]} to {offsets[-1]}, but must rise from 0 to the "
                f"number of tokens, {len(values)}, without a step back."
            )
        parts = {"values": values, "offsets": offsets}
        n_samples, (n_tokens, n_features) = len(offsets) - 1, values.shape
        for name, n, what in (
            ("weights", n_tokens, "tokens: give one weight per token"),
            ("index", n_samples, "sets: give one label per set"),
            ("rows", n_tokens, "tokens: give the position of each token's row"),
            ("columns", n_features, "features of a token: give one name per feature"),
        ):
            part = getattr(self, name)
            if part is None:
                continue
            if not hasattr(part, "get_indexer"):  # an index of pandas has it
                part = np.asarray(part, dtype=object if name == "columns" else None)
            if part.shape != (n,) or (name == "rows" and part.dtype.kind not in "iu"):
                raise ValueError(
                    f"{name} has shape {part.shape} and dtype {part.dtype}, but there are {n} "
                    f"{what}."
                )
            parts[name] = part
        weights = parts.get("weights", np.ones(0))
        if weights.dtype.kind not in "fiub" or not np.all(np.isfinite(weights) & (weights >= 0)):
            raise ValueError(
                "weights must be finite numbers, 0 or more: they count how often each token "
                "stands in its set."
            )
        self.__dict__.update(parts)

    @classmethod
    def _trusted(cls, values, offsets, weights=None, **labels):
        """Build from parts that are known to be valid, without checking them again."""
        self = object.__new__(cls)
        self.__dict__.update(values=values, offsets=offsets, weights=weights, **labels)
        return self

    def __getstate__(self):
        return {field.name: getattr(self, field.name) for field in fields(self)}  # nothing cached

    def _with(self, **parts):
        """The same sets with other parts that are known to be valid."""
        other = object.__new__(RaggedArray)
        other.__dict__.update(self.__getstate__(), **parts)
        return other

    @classmethod
    def from_list(cls, sets, weights=None):
        """Stack a list of (n_i, n_features) arrays.

        Parameters
        ----------
        sets : list of array-like of shape (n_i, n_features)
            One entry per set; an entry may be empty.
        weights : list of array-like of shape (n_i,), default=None
            Token weights, set by set.

        Returns
        -------
        RaggedArray
            The same sets, as float32 if all are float32, else as float64.

        Raises
        ------
        TypeError
            If an entry is not a numeric array.
        ValueError
            If an entry is not 2-D, has another width than the entries before it, or has another
            number of weights than of tokens.

        Examples
        --------
        >>> from skattn import RaggedArray
        >>> RaggedArray.from_list([[[1.0]], []], weights=[[2], []]).weights
        array([2.])
        """
        arrays = [np.asarray(tokens) for tokens in sets]
        width = None
        for i, tokens in enumerate(arrays):
            if tokens.dtype.kind not in "fiub":
                raise TypeError(
                    f"Set {i} has dtype {tokens.dtype}, but tokens are vectors of real numbers."
                )
            if tokens.shape in ((0,), (0, 0)):
                continue  # an empty set takes the width of the others
            if tokens.ndim != 2:
                raise ValueError(
                    f"Set {i} has shape {tokens.shape}, but a set is a 2-D array of shape "
                    "(n_tokens, n_features)."
                )
            if width is None:
                width = tokens.shape[1]
            elif tokens.shape[1] != width:
                raise ValueError(
                    f"Set {i} has tokens of {tokens.shape[1]} features, but the sets before it "
                    f"have {width}. All tokens must share one feature space; pad or project set "
                    f"{i} first."
                )
        filled = [tokens for tokens in arrays if tokens.shape not in ((0,), (0, 0))]
        values = np.concatenate(
            [np.empty((0, width or 0), np.float32), *filled],
            dtype=float_type(*(tokens.dtype for tokens in filled)),
            casting="unsafe",
        )
        offsets = _offsets([len(tokens) for tokens in arrays])
        if weights is not None:
            weights = [np.asarray(w, dtype=float).reshape(-1) for w in weights]
            if [len(w) for w in weights] != [len(tokens) for tokens in arrays]:
                raise ValueError(
                    f"The sets have {[len(t) for t in arrays][:10]} tokens, but there are "
                    f"{[len(w) for w in weights][:10]} token weights (first ten sets): give one "
                    "weight per token."
                )
            weights = np.concatenate([np.empty(0), *weights])
        return cls(values, offsets, weights)

    @classmethod
    def from_frame(cls, frame, by, columns, *, order_by=None, weight=None, index=None):
        """Group the rows of a child table by a key: one set per key, one token per row.

        Parameters
        ----------
        frame : pandas or polars DataFrame, or Arrow table, of n_rows rows
            The child table, for instance the transactions of customers.
        by : str or list of str
            The column, or level of a pandas index, that holds each row's key; several if the key
            has several columns.
        columns : str or list of str
            The numeric columns that are the features of a token, in this order.
        order_by : str or list of str, default=None
            Columns to sort the rows of each set by, most important first; ties keep their order.
            None keeps the frame's order. A causal mask and positions depend on this order.
        weight : str, default=None
            The column that holds token weights.
        index : array-like of shape (n_samples,), or frame with the columns `by`, default=None
            All keys of the parents' table, each once. The sets are in this order, and a key without
            rows is an empty set. None takes the keys of the frame, in the order in which each first
            appears. A key of several columns is a tuple.

        Returns
        -------
        RaggedArray
            Its `index` holds the keys in the order of the sets: ``y.loc[sets.index]`` brings a
            Series of targets into that order. It is a MultiIndex if `by` names several columns. Its
            `rows` are the rows that the tokens came from, its `columns` the names. O(n_rows
            log(n_rows)).

        Raises
        ------
        TypeError
            If `frame` is none of these, or a column is not numeric.
        ValueError
            If a column is missing, a row has no key or a key that `index` lacks, a key stands
            twice in `index`, or a value of `columns`, `order_by` or `weight` is missing.

        See Also
        --------
        RaggedArray.broadcast : Give each row of the frame its set's vector.
        skattn.joining.SetJoiner : The same in a pipeline over the parents' table.

        Examples
        --------
        >>> import pandas as pd
        >>> from skattn import RaggedArray
        >>> bought = pd.DataFrame({"who": ["b", "a", "b", "c"], "price": [1.0, 2.0, 3.0, 4.0]})
        >>> sets = RaggedArray.from_frame(bought, by="who", columns=["price"])
        >>> sets.index.tolist(), sets.lengths.tolist()
        (['b', 'a', 'c'], [2, 1, 1])
        >>> RaggedArray.from_frame(
        ...     bought, by="who", columns=["price"], index=["a", "b", "c", "d"]
        ... ).lengths.tolist()
        [1, 2, 1, 0]
        """
        return cls(**group(frame, by, columns, order_by, weight, index))

    @classmethod
    def from_block(cls, values, weights=None):
        """Sets of one length.

        Parameters
        ----------
        values : ndarray of shape (n_samples, n, n_features)
            The sets.
        weights : ndarray of shape (n_samples, n), default=None
            Token weights.

        Returns
        -------
        RaggedArray
            The same numbers, not copied if the layout allows.
        """
        b, n, k = values.shape
        offsets = np.arange(b + 1, dtype=np.int64) * n
        weights = None if weights is None else weights.reshape(b * n)
        return cls._trusted(values.reshape(b * n, k), offsets, weights)

    # What it is

    @cached_property
    def lengths(self):
        """Number of tokens of each set, ndarray of shape (n_samples,)."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def n_samples(self):
        """Number of sets."""
        return len(self.offsets) - 1

    @property
    def n_tokens(self):
        """Number of tokens in all sets together."""
        return len(self.values)

    @property
    def n_features(self):
        """Number of features of a token."""
        return self.values.shape[1]

    @property
    def dtype(self):
        """Type of the token values."""
        return self.values.dtype

    @property
    def shape(self):
        """``(n_samples, None, n_features)``: the lengths on the middle axis differ."""
        return (self.n_samples, None, self.n_features)

    @property
    def ndim(self):
        """Number of axes, 3: sets, tokens, features."""
        return 3

    def __len__(self):
        return self.n_samples

    def __repr__(self):
        weighted = "" if self.weights is None else ", weighted"
        return (
            f"RaggedArray({self.n_samples} sets, {self.n_tokens} tokens, "
            f"{self.n_features} features, {self.dtype}{weighted})"
        )

    def __array__(self, dtype=None, copy=None):
        raise TypeError(
            "A RaggedArray has sets of different lengths and does not become one NumPy array by "
            "itself: use .to_list() for a list of (n_i, n_features) arrays, or .to_padded() "
            "for one 3-D array with NaN rows as padding; or pool first, to one vector per set."
        )

    def __eq__(self, other):
        raise TypeError("RaggedArrays are not compared by ==; compare .values and .offsets.")

    __hash__ = None

    # Taking sets

    def __iter__(self):
        return (self.values[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    def __getitem__(self, key):
        if isinstance(key, tuple):  # scikit-learn indexes X[rows, ...]
            rest = [k for k in key[1:] if k is not Ellipsis and k != slice(None)]
            if not key or rest:
                raise IndexError(
                    f"A RaggedArray takes one index, over sets, but got {key!r}. Index the set "
                    "first, X[i], then its tokens and features."
                )
            key = key[0]
        if isinstance(key, (int, np.integer)) and not isinstance(key, (bool, np.bool_)):
            if not -self.n_samples <= key < self.n_samples:
                raise IndexError(f"Set {key} is out of range: there are {self.n_samples} sets.")
            key = int(key) % self.n_samples
            return self.values[self.offsets[key] : self.offsets[key + 1]]
        if key is Ellipsis:
            return self
        if key is None or isinstance(key, (bool, np.bool_)):
            raise IndexError(f"{key!r} is not an index of sets.")
        return self.take(np.arange(self.n_samples)[key])

    def take(self, indices):
        """Sets at the given positions, in that order; a position may come twice.

        Parameters
        ----------
        indices : array-like of int of shape (n_taken,)
            Positions of sets.

        Returns
        -------
        RaggedArray
            The sets taken, copied. O(tokens taken).
        """
        indices = np.asarray(indices)
        if indices.size and (indices.ndim != 1 or indices.dtype.kind not in "iu"):
            raise IndexError(
                f"Positions of sets must be a 1-D array of integers, but have shape "
                f"{indices.shape} and dtype {indices.dtype}. Use X[mask] for a boolean mask."
            )
        indices = indices.astype(np.int64, copy=False).reshape(-1)
        lengths = self.lengths[indices]
        offsets = _offsets(lengths)
        rows = np.arange(offsets[-1]) + np.repeat(
            self.offsets[:-1][indices] - offsets[:-1], lengths
        )
        return self._with(
            values=np.take(self.values, rows, axis=0),
            offsets=offsets,
            weights=_at(self.weights, rows),
            index=_at(self.index, indices),
            rows=_at(self.rows, rows),
        )

    def with_values(self, values, columns=None):
        """The same sets with other token vectors.

        Parameters
        ----------
        values : ndarray of shape (n_tokens, any)
            One row per token.
        columns : array-like of str of shape (any,), default=None
            Names of the new features.

        Returns
        -------
        RaggedArray
            Same offsets, weights, index and rows.
        """
        return RaggedArray(values, self.offsets, self.weights, self.index, self.rows, columns)

    def drop_zero_weights(self):
        """The sets without the tokens of weight 0; weights that are all 1 are dropped too.

        Returns
        -------
        RaggedArray
            An equal collection in which every token has a positive weight.
        """
        if self.weights is None:
            return self
        keep = self.weights > 0
        ragged = self if keep.all() else self._keep(keep)
        return ragged._with(weights=None) if np.all(ragged.weights == 1) else ragged

    def _keep(self, keep):
        """The sets with only the tokens where the boolean `keep` (n_tokens,) is True."""
        counts = np.concatenate([[0], np.cumsum(keep)])
        return self._with(
            values=self.values[keep],
            offsets=counts[self.offsets],
            weights=_at(self.weights, keep),
            rows=_at(self.rows, keep),
        )

    # Sums and maxima over each set

    def segment_sum(self):
        """Sum of each set's tokens; an empty set sums to zeros.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The sums. O(n_tokens).
        """
        return self._reduce(np.add)

    def segment_max(self):
        """Largest value of each feature in each set; an empty set gives zeros.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The maxima. O(n_tokens).
        """
        return self._reduce(np.maximum)

    def _reduce(self, ufunc):
        n_samples, lengths = self.n_samples, self.lengths
        if n_samples and lengths[0] and np.all(lengths == lengths[0]):  # an equal-length block
            return ufunc.reduce(self.values.reshape(n_samples, lengths[0], -1), axis=1)
        out = np.zeros((n_samples, self.n_features), dtype=self.dtype)
        filled = np.flatnonzero(lengths)  # reduceat misreads an empty segment
        if filled.size:
            out[filled] = ufunc.reduceat(self.values, self.offsets[filled], axis=0)
        return out

    def repeat(self, per_set):
        """Each set's row, once for each of its tokens.

        Parameters
        ----------
        per_set : ndarray of shape (n_samples, ...)
            One row per set.

        Returns
        -------
        ndarray of shape (n_tokens, ...)
            One row per token.
        """
        return np.repeat(per_set, self.lengths, axis=0)

    def broadcast(self, pooled):
        """Each set's row, once for each of its tokens, in the order of the frame's rows.

        Parameters
        ----------
        pooled : array-like of shape (n_samples, ...)
            One row per set, for instance from `transform`.

        Returns
        -------
        ndarray of shape (n_tokens, ...)
            Row i belongs to row i of the frame that `from_frame` read. If only some rows of the
            frame are tokens of these sets, row i belongs to the i-th of them. Without a frame the
            tokens are in the order of the sets.

        Raises
        ------
        ValueError
            If the number of rows of `pooled` is not the number of sets.

        Examples
        --------
        >>> import pandas as pd
        >>> from skattn import RaggedArray
        >>> bought = pd.DataFrame({"who": ["b", "a", "b"], "price": [1.0, 2.0, 3.0]})
        >>> sets = RaggedArray.from_frame(bought, by="who", columns=["price"])
        >>> sets.broadcast(sets.segment_sum()).ravel().tolist()
        [4.0, 2.0, 4.0]
        """
        pooled = np.asarray(pooled)
        if pooled.ndim == 0 or len(pooled) != self.n_samples:
            raise ValueError(
                f"pooled has shape {pooled.shape}, but there are {self.n_samples} sets: give one "
                "row per set."
            )
        sets = np.repeat(np.arange(self.n_samples), self.lengths)
        return pooled[sets[self._in_frame_order()]]

    def _in_frame_order(self):
        """Positions of the tokens (n_tokens,) in the order of the rows they came from."""
        return slice(None) if self.rows is None else np.argsort(self.rows, kind="stable")

    # Other forms

    def to_list(self):
        """The sets as a list of (n_i, n_features) arrays, views of `values`.

        Returns
        -------
        list of ndarray of shape (n_i, n_features)
            One entry per set.
        """
        return list(self)

    def to_padded(self, fill=np.nan):
        """The sets as one 3-D array, with short sets padded.

        Parameters
        ----------
        fill : float, default=nan
            Value of the padding rows. `as_ragged` reads NaN rows as padding.

        Returns
        -------
        ndarray of shape (n_samples, longest, n_features)
            Token weights are lost. O(n_samples * longest * n_features) memory.
        """
        longest = int(self.lengths.max(initial=0))
        out = np.full(
            (self.n_samples, longest, self.n_features),
            fill,
            np.result_type(self.dtype, np.float32),
        )
        out[np.arange(longest) < self.lengths[:, None]] = self.values
        return out

    def to_frame(self, columns=None):
        """The tokens as a long pandas frame indexed by (set, token).

        Parameters
        ----------
        columns : array-like of str of shape (n_features,), default=None
            Column names; None is the sets' `columns`, or ``x0``, ``x1``, ... without these.

        Returns
        -------
        pandas.DataFrame of shape (n_tokens, n_features)
            Rows in the order of `broadcast`. If `from_frame` made these sets, that is the order of
            the frame, and ``.set_axis(frame.index)`` sets the frame's own index. A set is named by
            its label in `index`, or by its position. Empty sets have no rows.

        Examples
        --------
        >>> from skattn import RaggedArray
        >>> RaggedArray.from_list([[[1.0], [2.0]], [[3.0]]]).to_frame()
                    x0
        set token
        0   0      1.0
            1      2.0
        1   0      3.0
        """
        if columns is None:
            columns = self.columns
        if columns is None:
            columns = [f"x{j}" for j in range(self.n_features)]
        if len(columns) != self.n_features:
            raise ValueError(
                f"columns has {len(columns)} names, but tokens have {self.n_features} features."
            )
        order = self._in_frame_order()
        sets = self.repeat(np.arange(self.n_samples))[order]
        tokens = (np.arange(self.n_tokens) - self.repeat(self.offsets[:-1]))[order]
        index = range(self.n_samples) if self.index is None else self.index
        return token_frame(self.values[order], columns, index, sets, tokens)

    def astype(self, dtype):
        """The same sets with values of another type; no copy where it is the same.

        Parameters
        ----------
        dtype : dtype
            Type of the new values.

        Returns
        -------
        RaggedArray
            The same sets.
        """
        return replace(self, values=self.values.astype(dtype, copy=False))


def _offsets(lengths):
    """Offsets (n + 1,) of segments that have the given lengths (n,)."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def _at(array, positions):
    """The entries at the positions, or None where there is no array."""
    return None if array is None else array[positions]
