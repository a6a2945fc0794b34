"""Any container of sets, read into one :class:`~skattn.RaggedArray`."""

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array

from ._arrays import (
    as_array,
    as_float,
    is_from,
    is_missing,
    is_pandas,
    missing,
    real_numbers,
    short,
)
from ._frames import (
    columns_of,
    holds_sets,
    is_arrow_list,
    is_cell,
    is_frame,
    names_of,
    polars_kind,
    set_columns,
)
from ._nested import (
    EXTENSION,
    MISSING,
    NO_SET,
    ArrowColumn,
    AwkwardColumn,
    PolarsColumn,
    check_finite,
    read_nested,
)
from .ragged import RaggedArray

__all__ = ["READERS", "as_ragged"]


def as_ragged(X, *, estimator=None):
    """Read a container of sets into a RaggedArray, checking that every value is finite.

    The same sets give the same numbers in every form:

    - a list or tuple of (n_i, n_features) arrays, frames or nested lists; ``[]`` is an empty set;
    - an object array of these, one- or two-dimensional with one column;
    - a RaggedArray;
    - a 3-D array, or 3-D masked array: a row that is all NaN (or all masked) is padding, at any
      position;
    - a dense 2-D array or frame, or a list of equal-length 1-D rows: one token per sample;
    - a pandas Series, or a frame of one column, whose cells hold (n_i, n_features) data. A 1-D
      cell is n tokens of one feature;
    - a column of lists (a pandas Series of Arrow's type, a polars Series or a pyarrow array), or
      a frame or table with only this column. The cells are lists of lists, with declared lengths
      or without, or Arrow's tensors of one shape;
    - an awkward array with one or two ragged axes. A regular one is read as the NumPy array it
      equals;
    - a tensor of torch, read as the NumPy array it equals; a nested tensor, a packed sequence.

    Parameters
    ----------
    X : container of sets
        float32 tokens stay float32; all other real numbers become float64, for instance integers,
        booleans, float16 and Decimal.
    estimator : estimator or str, default=None
        Its name appears in the error messages for dense input.

    Returns
    -------
    RaggedArray
        Token vectors as float32 or float64, with the token weights of a RaggedArray, the index of a
        pandas object and the column names of frames in a list. Values are copied only if necessary;
        those of an Arrow, polars or awkward column are read in place.

    Raises
    ------
    TypeError
        If X is not a container of sets: sparse, text, a scalar, ragged 1-D rows.
    ValueError
        If tokens hold a null, NaN or infinity, or have different numbers of features (the message
        names the set and the token); if a set is null; if a frame has other columns beside a column
        of sets; if frames in a list have different columns, or the same columns in another order.

    Notes
    -----
    scikit-learn's splitters, searches and ensembles pass these containers on unchanged. A few of
    its tools turn X into one array first, which fails for sets of different lengths.
    BaggingClassifier and ``sklearn.inspection.permutation_importance`` take sets as a frame of one
    column, or as an object array of shape (n_samples, 1). SelfTrainingClassifier takes only
    numbers: give it row numbers, and look the sets up in the model (this works for the others
    too)::

        def look_up(rows, sets):
            return sets[np.ravel(rows)]

        sets, rows = as_ragged(X), np.arange(len(X)).reshape(-1, 1)
        first = FunctionTransformer(look_up, kw_args={"sets": sets})
        SelfTrainingClassifier(make_pipeline(first, AttentionClassifier())).fit(rows, y)

    AdaBoostClassifier passes sample weights to the `fit` of its estimator, which a pipeline does
    not accept. Put it after the pooling:
    ``make_pipeline(AttentionContextualizer(), AdaBoostClassifier())``.
    :func:`skattn.inspection.permutation_importance` takes any container.

    Examples
    --------
    >>> from skattn import as_ragged
    >>> as_ragged([[[1, 2], [3, 4]], [[5, 6]]])
    RaggedArray(2 sets, 3 tokens, 2 features, float64)
    >>> as_ragged([[1.0, 2.0], [3.0, 4.0]])  # dense rows: one token per sample
    RaggedArray(2 sets, 2 tokens, 2 features, float64)
    """
    for recognises, read in READERS:
        if recognises(X):
            ragged = read(X, estimator)
            if not ragged.values.flags.c_contiguous:  # the last bit may depend on the layout
                return ragged._with(values=np.ascontiguousarray(ragged.values))
            return ragged
    raise TypeError(
        f"Got {type(X).__name__}, but X must hold sets of token vectors: a list of "
        "(n_i, n_features) arrays, a RaggedArray, a 3-D array, a dense 2-D array or a column of "
        "sets. A single set is passed as [X]."
    )


# One reader per kind of container


def _read_ragged(X, estimator):
    ragged = X._with(values=as_float(X.values))
    check_finite(ragged)
    return ragged


def _read_sparse(X, estimator):
    raise TypeError(
        "Sparse input is not supported: the rows of a sparse matrix are not sets of token "
        "vectors. If each stored entry is a token (a basket), TokenEmbedder(vectors) gives sets; "
        "a dense array, from .toarray(), is read as one token per row."
    )


def _read_packed(X, estimator):
    """A packed sequence of torch, in the original order of its sets."""
    from torch.nn.utils.rnn import unpack_sequence

    return _read_sequence(unpack_sequence(X), estimator)


def _read_nested_tensor(X, estimator):
    return _read_sequence(X.unbind(), estimator)


def _read_sequence(X, estimator):
    """A list or tuple: of sets, or of the equal-length rows of a dense array."""
    if X and _are_alike(X):  # the common case, without reading each value in Python
        offsets = np.zeros(len(X) + 1, dtype=np.int64)
        np.cumsum([len(cell) for cell in X], out=offsets[1:])
        values = np.concatenate(X) if len(X) > 1 else X[0]
        ragged = RaggedArray._trusted(values, offsets)
        check_finite(ragged)
        return ragged
    cells = [_numeric(cell, i) for i, cell in enumerate(X)]
    ndims = {cell.ndim for cell in cells if cell.size}
    if not ndims or ndims == {2}:  # sets, or only empty sets, or no sets
        return _stack(cells, X)
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
    return _read_dense(np.array(cells), estimator)._with(columns=_names(X, "Series"))


def _read_array(X, estimator):
    """A NumPy array: dense, 3-D with padding, or of objects."""
    if np.ma.isMaskedArray(X):
        return _read_masked(X, estimator)
    if X.dtype == object and (X.ndim == 1 or (X.ndim == 2 and X.shape[1] == 1)):
        cells = X.ravel()
        if any(map(is_cell, cells)) or not cells.size:
            return _read_cells(cells, estimator)
    if X.shape == (0,):
        return _stack([])
    if X.ndim == 3:
        return _read_padded(X)
    _refuse_no_numbers("X", X)
    if X.dtype == object and X.ndim == 2:
        for i, row in enumerate(X):
            _refuse_missing([row], i)
    return _read_dense(X, estimator)


def _read_masked(X, estimator):
    """A masked array: a token whose features are all masked is padding."""
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
    return _without_padding(_numeric(np.ma.getdata(X)), padding)


def _read_padded(X):
    """A 3-D array: a token whose features are all NaN is padding."""
    numbers = _numeric(X)
    padding = np.isnan(numbers).all(axis=-1) & (X.shape[-1] > 0)
    if X.dtype == object:
        for i in np.flatnonzero((missing(X).any(axis=-1) & ~padding).any(axis=1)):
            _refuse_missing(X[i], i)
    return _without_padding(numbers, padding)


def _without_padding(X, padding):
    """Sets of the rows of X (n_samples, n, d) that are not padding (n_samples, n)."""
    n_samples, n, d = X.shape
    offsets = np.arange(n_samples + 1, dtype=np.int64) * n
    ragged = RaggedArray._trusted(as_float(X).reshape(n_samples * n, d), offsets)
    check_finite(ragged, skip=padding.ravel())
    return ragged._keep(~padding.ravel()) if padding.any() else ragged


def _read_dense(X, estimator):
    """A 2-D array or frame of numbers: one token per sample."""
    values = check_array(
        X,
        dtype=[np.float64, np.float32],
        estimator=estimator,
        input_name="X",
        ensure_min_samples=0,
    )
    return RaggedArray._trusted(values, np.arange(len(values) + 1, dtype=np.int64))


def _read_series(X, estimator):
    if is_arrow_list(getattr(X.dtype, "pyarrow_dtype", None)):
        return _read_arrow(X.array.__arrow_array__(), estimator)._with(index=X.index)
    return _read_cells(X.to_numpy(dtype=object), estimator)._with(index=X.index)


def _read_frame(X, estimator):
    """A frame: of one column of sets, or of numbers."""
    columns, n_columns = columns_of(X, numbers=False), len(names_of(X))
    listed = [name for name, column in columns if holds_sets(column)]
    if listed and n_columns > 1:
        raise ValueError(
            f"X is a frame of {n_columns} columns; {short(listed)} hold sets. Pass one column of "
            "sets at a time; in a ColumnTransformer give each its own transformer, and give the "
            "ordinary columns theirs. For sets that attend to those of another column, name the "
            "other column by the attention's context=."
        )
    if listed or _is_empty_column(X):
        return as_ragged(columns[0][1], estimator=estimator)
    if is_pandas(X, "DataFrame"):
        if columns and n_columns == 1 and any(isinstance(cell, str) for cell in columns[0][1]):
            return _read_series(columns[0][1], estimator)  # raises: text is no set
        for name, column in columns:
            _refuse_no_numbers(f"Column {name!r}", column)
        return _read_dense(X, estimator)._with(index=X.index)
    if is_from(X, "polars", "DataFrame"):
        if len(columns) == 1 and polars_kind(columns[0][1]) == "String":
            return _read_cells(columns[0][1].to_list(), estimator)  # the same
        return _read_array(X.to_numpy(), estimator)
    return _read_frame(X.to_pandas(), estimator)


def _read_cells(cells, estimator):
    """A column whose cells hold sets; a 1-D cell is n tokens of one feature."""
    sets = []
    for i, cell in enumerate(cells):
        if not is_cell(cell):
            hint = _how_to_read(cell) if isinstance(cell, str) else ""
            raise ValueError(NO_SET.format(i, short(cell)) + hint)
        tokens = _numeric(cell, i)
        sets.append(tokens.reshape(-1, 1) if tokens.ndim == 1 and tokens.size else tokens)
    return _stack(sets, cells)


def _read_arrow(X, estimator):
    """A pyarrow array or chunked array of lists, or any other as the NumPy array it equals."""
    if not is_arrow_list(X.type):
        return _read_array(np.asarray(X), estimator)
    return read_nested(ArrowColumn.of(getattr(X, "chunks", [X]), X.type))


def _read_polars(X, estimator):
    """A polars column of lists or objects, or any other as the NumPy array it equals."""
    if polars_kind(X) == "Object":
        return _read_cells(X.to_list(), estimator)
    if polars_kind(X) == "Extension":
        raise TypeError(EXTENSION.format(X.dtype, "column.ext.storage()"))
    if not holds_sets(X):
        return _read_array(X.to_numpy(), estimator)
    return read_nested(PolarsColumn(X))


def _read_awkward(X, estimator):
    """An awkward array with a ragged axis, or a regular one as the NumPy array it equals."""
    if X.ndim == 1 and len(X) == 0:
        return _stack([])
    if X.ndim > 1 and not X.fields and X.layout.purelist_isregular:
        return _read_array(np.asarray(X), estimator)
    return read_nested(AwkwardColumn(X))


def is_table(X):
    """Whether X is a 2-D array or frame of numbers: one token per sample."""
    if isinstance(X, (list, tuple, RaggedArray)) or _is_empty_column(X):
        return False
    if is_frame(X):
        return not set_columns(X) and type(X).__name__ != "RecordBatch"  # strange to scikit-learn
    if is_from(X, "awkward", "Array"):
        return X.ndim == 2 and not X.fields and X.layout.purelist_isregular
    if getattr(X, "ndim", 0) != 2:
        return False
    return getattr(X, "dtype", None) != np.dtype(object) or not any(map(is_cell, np.ravel(X)))


def _is_empty_column(X):
    """Whether X is a column for cells of sets, with no cells."""
    is_column = isinstance(X, np.ndarray) or is_pandas(X, "DataFrame")
    return is_column and X.shape == (0, 1) and np.asarray(X).dtype == object


READERS = (
    (lambda X: isinstance(X, RaggedArray), _read_ragged),
    (issparse, _read_sparse),
    (lambda X: isinstance(X, np.ndarray), _read_array),
    (lambda X: is_from(X, "torch", "PackedSequence"), _read_packed),
    (lambda X: is_from(X, "torch", "Tensor") and X.is_nested, _read_nested_tensor),
    (lambda X: isinstance(X, (list, tuple)), _read_sequence),
    (lambda X: is_pandas(X, "Series"), _read_series),
    (is_frame, _read_frame),
    (lambda X: is_from(X, "polars", "Series"), _read_polars),
    (lambda X: is_from(X, "pyarrow", "Array", "ChunkedArray"), _read_arrow),
    (lambda X: is_from(X, "awkward", "Array"), _read_awkward),
    (
        lambda X: hasattr(X, "__array__") or hasattr(X, "__array_interface__"),
        lambda X, estimator: _read_array(as_array(X), estimator),
    ),
)


# Helpers


def _are_alike(cells, ndim=2):
    """Whether all cells are plain arrays of `ndim` axes, one float type and one width."""
    first = cells[0]
    if type(first) is not np.ndarray or first.ndim != ndim or first.dtype.char not in "fd":
        return False
    if not first.dtype.isnative:
        return False
    dtype, width = first.dtype, first.shape[-1]
    return all(
        type(cell) is np.ndarray
        and cell.ndim == ndim
        and cell.dtype == dtype
        and cell.shape[-1] == width
        for cell in cells
    )


def _stack(cells, X=()):
    """The cells as sets, with the names from the cells of X."""
    ragged = RaggedArray.from_list(cells)
    check_finite(ragged)
    return ragged._with(columns=_names(X))


def _names(cells, *kinds):
    """Feature names (n_features,) from the frames, or pandas' kinds, among the cells."""
    names, first = None, None
    for i, cell in enumerate(cells):
        if type(cell) in (np.ndarray, list, tuple):
            continue
        if is_frame(cell):
            own = names_of(cell)
        elif is_pandas(cell, *kinds):
            own = list(cell.index)
        else:
            continue
        if not own or not all(isinstance(name, str) for name in own):
            continue
        if names is not None and own != names:
            raise ValueError(
                f"Set {i} has the columns {short(own)}, but set {first} has {short(names)}. All "
                "sets must have the same columns in the same order."
            )
        names, first = own, i if first is None else first
    return None if names is None else np.array(names, dtype=object)


_RAGGED_ROWS = "{} is not a rectangular array: its tokens have different numbers of features."
_NO_NUMBERS = (
    "{} has {}, but a token is a vector of real numbers. Look up a vector for each word or id "
    "first, and encode dates and categories."
)


def _numeric(cell, i=None):
    """The tokens of one cell, in any nesting, as a numeric array."""
    where = "X" if i is None else f"Set {i}"
    if not hasattr(cell, "__len__") and is_missing(cell):
        raise TypeError(f"{where} is {cell!r}. Use an empty list for a set without tokens.")
    if issparse(cell):
        raise TypeError(f"{where} is sparse; sparse sets are not supported, use .toarray().")
    if np.ma.isMaskedArray(cell):
        return _read_masked(cell[None], None).values
    if isinstance(cell, str):
        raise TypeError(_NO_NUMBERS.format(where, f"text, {short(cell)}") + _how_to_read(cell))
    try:
        array = as_array(cell, where)
    except ValueError as error:
        _refuse_missing(cell, i)
        raise ValueError(_RAGGED_ROWS.format(where)) from error
    if array.dtype == object and array.ndim:
        if array.ndim == 1 and len(array) and _are_alike(array, ndim=1):
            return np.concatenate(array).reshape(len(array), -1)
        if i is not None:
            _refuse_missing(array, i)
        if any(map(is_cell, array.flat)):  # an array of arrays, for instance from Parquet
            rows = [_numeric(row, i) for row in array]
            if len({row.shape for row in rows}) > 1:
                raise ValueError(_RAGGED_ROWS.format(where))
            array = np.array(rows)
        else:
            array = real_numbers(array, where)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {where} has dtype {array.dtype}.")
    if array.dtype.kind not in "fiub":
        raise TypeError(_NO_NUMBERS.format(where, f"dtype {array.dtype}"))
    return array


def _refuse_missing(cell, i):
    """Raise, naming the first token of the cell that is missing or holds a missing value."""
    for j, token in enumerate(cell):
        kind = getattr(token, "dtype", "O")
        for value in np.ravel(np.array(token, dtype=object)) if kind == "O" else ():
            if is_missing(value) and not isinstance(value, float):  # check_finite reports NaN
                raise ValueError(MISSING.format(f"token {j} of set {i}", f"has {value!r}"))


def _refuse_no_numbers(what, column):
    """Raise if a column or array of one token per sample holds dates or text."""
    if column.dtype.kind in "mM":
        raise TypeError(_NO_NUMBERS.format(what, f"dtype {column.dtype}"))
    if column.dtype.kind == "O":
        text = next((value for value in np.ravel(column) if isinstance(value, str)), None)
        if text is not None:
            raise ValueError(_NO_NUMBERS.format(what, short(text)) + _how_to_read(text))


def _how_to_read(text):
    """Advice on a set that a text file turned into text."""
    if not text.strip().startswith(("[", "(")):
        return ""
    if "," in text:
        return (
            " The text looks like a list that went through a CSV file: read it back by "
            "column.map(ast.literal_eval), or keep columns of sets in a Parquet file."
        )
    return (
        " The text looks like an array as NumPy prints it, with numbers and digits left out: write "
        "the column again, as array.tolist() or to a Parquet file."
    )
