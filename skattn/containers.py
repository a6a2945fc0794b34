"""Any container of sets, read into one :class:`~skattn.RaggedArray`."""

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array

from .ragged import RaggedArray

__all__ = ["READERS", "as_ragged"]


def as_ragged(X, *, estimator=None):
    """Read a container of sets into a RaggedArray, checking that every value is finite.

    The same sets give the same numbers in every form:

    - a list or tuple of (n_i, n_features) arrays, frames or nested lists; ``[]`` is an empty set;
    - an object array of such, one- or two-dimensional with one column;
    - a RaggedArray;
    - a 3-D array, or 3-D masked array: a row that is NaN (masked) throughout is padding,
      wherever it stands;
    - a dense 2-D array or frame, or a list of equal-length 1-D rows: one token a sample;
    - a pandas Series, or a frame of one column, whose cells hold (n_i, n_features) data. A 1-D
      cell is n tokens of one feature.

    Parameters
    ----------
    X : container of sets
        Integer, boolean and float16 tokens become float64, float32 stays.
    estimator : estimator or str, default=None
        Named in the error messages of dense input.

    Returns
    -------
    RaggedArray
        Token vectors as float32 or float64, with the token weights that a RaggedArray brought.
        Nothing is copied that need not be.

    Raises
    ------
    TypeError
        If X is no container of sets: sparse, text, a scalar, ragged 1-D rows.
    ValueError
        If tokens hold NaN or infinity, or have different numbers of features, naming the set
        and the token.

    Examples
    --------
    >>> from skattn import as_ragged
    >>> as_ragged([[[1, 2], [3, 4]], [[5, 6]]])
    RaggedArray(2 sets, 3 tokens, 2 features, float64)
    >>> as_ragged([[1.0, 2.0], [3.0, 4.0]])  # dense rows: one token a sample
    RaggedArray(2 sets, 2 tokens, 2 features, float64)
    """
    for recognises, read in READERS:
        if recognises(X):
            ragged = read(X, estimator)
            if not ragged.values.flags.c_contiguous:  # the last bit may hang on the layout
                values = np.ascontiguousarray(ragged.values)
                return RaggedArray._trusted(values, ragged.offsets, ragged.weights)
            return ragged
    raise TypeError(
        f"Got {type(X).__name__}, but X must hold sets of token vectors: a list of "
        "(n_i, n_features) arrays, a RaggedArray, a 3-D array, a dense 2-D array or a column of "
        "such cells. A single set is passed as [X]."
    )


# One reader per kind of container


def _read_ragged(X, estimator):
    ragged = RaggedArray._trusted(_as_float(X.values), X.offsets, X.weights)
    _check_finite(ragged)
    return ragged


def _read_sparse(X, estimator):
    raise TypeError(
        "Sparse input is not supported: the rows of a sparse matrix are not sets of token "
        "vectors. Use X.toarray() for one dense token a sample, or look up a vector for each "
        "stored item and pass a list of (n_i, n_features) arrays."
    )


def _read_sequence(X, estimator):
    """A list or tuple: of sets, or of the equal-length rows of a dense array."""
    if X and _are_alike(X):  # the common case, without a look at each value
        offsets = np.zeros(len(X) + 1, dtype=np.int64)
        np.cumsum([len(cell) for cell in X], out=offsets[1:])
        values = np.concatenate(X) if len(X) > 1 else X[0]
        ragged = RaggedArray._trusted(values, offsets)
        _check_finite(ragged)
        return ragged
    cells = [_numeric(cell, i) for i, cell in enumerate(X)]
    ndims = {cell.ndim for cell in cells if cell.size}
    if ndims == {2} or (cells and not ndims):  # sets, or nothing but empty sets
        return _stack(cells)
    if ndims == {1}:
        lengths = {len(cell) for cell in cells}
        if len(lengths) > 1:
            raise TypeError(
                f"X holds 1-D rows of different lengths, from {min(lengths)} to {max(lengths)}. "
                "If each number is a token of one feature, pass row.reshape(-1, 1) for each row."
            )
    elif len(ndims) > 1 or ndims - {0, 1}:
        i, cell = next((i, c) for i, c in enumerate(cells) if c.size and c.ndim != 2)
        raise ValueError(
            f"Set {i} has shape {cell.shape}, but each set must be a 2-D array of shape "
            "(n_tokens, n_features)."
        )
    return _read_dense(cells if cells else np.empty((0, 0)), estimator)


def _read_array(X, estimator):
    """A NumPy array: dense, 3-D with padding, or of objects."""
    if np.ma.isMaskedArray(X):
        return _read_masked(X, estimator)
    if X.dtype == object and (X.ndim == 1 or (X.ndim == 2 and X.shape[1] == 1)):
        cells = X.ravel()
        if any(map(_is_cell, cells)):
            return _read_cells(cells, estimator)
    if X.ndim == 3:
        return _read_padded(X)
    return _read_dense(X, estimator)


def _read_masked(X, estimator):
    """A masked array: a token that is masked throughout is padding."""
    mask = np.ma.getmaskarray(X)
    if X.ndim not in (2, 3):
        raise ValueError(f"A masked array must have 2 or 3 axes, but this one has {X.ndim}.")
    if X.ndim == 2:
        X, mask = X[:, None, :], mask[:, None, :]
    padding = mask.all(axis=-1)
    partly = np.argwhere(mask.any(axis=-1) & ~padding)
    if len(partly):
        i, j = partly[0]
        raise ValueError(
            f"Token {j} of set {i} is masked in part. Mask a token's whole row to leave it out, "
            "or fill in its missing features."
        )
    return _without_padding(np.ma.getdata(X), padding)


def _read_padded(X):
    """A 3-D array: a token that is NaN throughout is padding."""
    X = _numeric(X)
    return _without_padding(X, np.isnan(X).all(axis=-1) & (X.shape[-1] > 0))


def _without_padding(X, padding):
    """Sets of the rows of X (n_samples, n, d) that are not padding (n_samples, n)."""
    n_samples, n, d = X.shape
    offsets = np.arange(n_samples + 1, dtype=np.int64) * n
    ragged = RaggedArray._trusted(_as_float(X).reshape(n_samples * n, d), offsets)
    _check_finite(ragged, skip=padding.ravel())
    return ragged._keep(~padding.ravel()) if padding.any() else ragged


def _read_dense(X, estimator):
    """A 2-D array or frame of numbers: one token a sample."""
    values = check_array(X, dtype=[np.float64, np.float32], estimator=estimator, input_name="X")
    return RaggedArray._trusted(values, np.arange(len(values) + 1, dtype=np.int64))


def _read_series(X, estimator):
    return _read_cells(X.to_numpy(dtype=object), estimator)


def _read_frame(X, estimator):
    listed = _set_columns(X)
    if not listed and X.shape[1] == 1 and any(isinstance(cell, str) for cell in X.iloc[:, 0]):
        return _read_series(X.iloc[:, 0], estimator)  # which says what a cell must hold
    if not listed:
        return _read_dense(X, estimator)
    if X.shape[1] > 1:
        raise ValueError(
            f"X is a frame of {X.shape[1]} columns, of which {listed} hold sets. Pass one such "
            "column at a time; in a ColumnTransformer give each its own transformer, and give "
            "the ordinary columns theirs."
        )
    return _read_series(X.iloc[:, 0], estimator)


def _read_cells(cells, estimator):
    """A column whose cells hold sets; a 1-D cell is n tokens of one feature."""
    sets = []
    for i, cell in enumerate(cells):
        if not _is_cell(cell):
            raise ValueError(
                f"Cell {i} of the column holds {cell!r}, but each cell must hold a set of token "
                "vectors. Use an empty list for a set without tokens."
            )
        tokens = _numeric(cell, i)
        sets.append(tokens.reshape(-1, 1) if tokens.ndim == 1 and tokens.size else tokens)
    return _stack(sets)


def _set_columns(frame):
    """Names of the columns of a frame whose cells hold sets."""
    return [
        name
        for name, column in frame.items()
        if column.dtype.kind == "O" and any(map(_is_cell, column))
    ]


def is_table(X):
    """Whether X is a 2-D array or frame of numbers: one token a sample."""
    if getattr(X, "ndim", 0) != 2:
        return False
    if is_pandas(X, "DataFrame"):
        return not _set_columns(X)
    return np.asarray(X).dtype.kind != "O" or not any(map(_is_cell, np.ravel(X)))


def is_pandas(X, name):
    """Whether X is a pandas object of the given name, without importing pandas."""
    kind = type(X)
    return kind.__module__.split(".")[0] == "pandas" and kind.__name__ == name


READERS = (
    (lambda X: isinstance(X, RaggedArray), _read_ragged),
    (issparse, _read_sparse),
    (lambda X: isinstance(X, np.ndarray), _read_array),
    (lambda X: isinstance(X, (list, tuple)), _read_sequence),
    (lambda X: is_pandas(X, "Series"), _read_series),
    (lambda X: is_pandas(X, "DataFrame"), _read_frame),
    (
        lambda X: hasattr(X, "__array__") or hasattr(X, "__array_interface__"),
        lambda X, estimator: _read_array(np.asarray(X), estimator),
    ),
)


# Helpers


def _is_cell(value):
    """Whether a cell of a column holds a set rather than a number, a text or nothing."""
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes, dict, set))


def _are_alike(cells):
    """Whether all cells are plain 2-D arrays of one float type and one width."""
    first = cells[0]
    if type(first) is not np.ndarray or first.ndim != 2 or first.dtype.char not in "fd":
        return False
    if not first.dtype.isnative:
        return False
    dtype, width = first.dtype, first.shape[1]
    return all(
        type(cell) is np.ndarray
        and cell.ndim == 2
        and cell.dtype == dtype
        and cell.shape[1] == width
        for cell in cells
    )


def _stack(cells):
    ragged = RaggedArray.from_list(cells)
    _check_finite(ragged)
    return ragged


def _as_float(X):
    """float32 and float64 in the machine's byte order; all else as float64."""
    kind = np.float32 if X.dtype.char == "f" else np.float64
    return X.astype(kind, copy=False)


_RAGGED_ROWS = "{} is not a rectangular array: its tokens have different numbers of features."


def _numeric(cell, i=None):
    """The tokens of one cell as a numeric array, whatever nesting it comes in."""
    where = "X" if i is None else f"Set {i}"
    if cell is None:
        raise TypeError(f"{where} is None. Use an empty list for a set without tokens.")
    if issparse(cell):
        raise TypeError(f"{where} is sparse; sparse sets are not supported, use .toarray().")
    if np.ma.isMaskedArray(cell):
        return _read_masked(cell[None], None).values
    try:
        array = np.asarray(cell)
    except ValueError as error:
        raise ValueError(_RAGGED_ROWS.format(where)) from error
    if array.dtype == object and array.ndim:  # an array of arrays, as Parquet gives it back
        rows = [_numeric(row, i) for row in array]
        if len({row.shape for row in rows}) > 1:
            raise ValueError(_RAGGED_ROWS.format(where))
        array = np.array(rows)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {where} has dtype {array.dtype}.")
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{where} has dtype {array.dtype}, but a token is a vector of real numbers. Look up "
            "a vector for each word or id first."
        )
    return array


def _check_finite(ragged, skip=None):
    """Raise naming the first set and token that hold NaN or infinity. O(n_tokens)."""
    values = ragged.values
    with np.errstate(over="ignore", invalid="ignore"):
        if skip is None and np.isfinite(values.sum()):  # NaN and infinity survive a sum
            return
    bad = ~np.isfinite(values).all(axis=1)
    if skip is not None:
        bad &= ~skip
    if bad.any():
        row = int(np.argmax(bad))
        i = int(np.searchsorted(ragged.offsets, row, side="right")) - 1
        feature = int(np.argmin(np.isfinite(values[row])))
        raise ValueError(
            f"Input X contains NaN or infinity: token {row - ragged.offsets[i]} of set {i} has "
            f"{values[row, feature]} in feature {feature}. Drop or impute such tokens; only in a "
            "3-D array is a row of NaN throughout read as padding."
        )
