"""Frames and columns of other libraries, looked into by these functions alone."""

import numpy as np

from ._arrays import float_type, is_from, is_pandas

FRAMES = (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table", "RecordBatch"))


def is_frame(X):
    """Whether X is a frame of pandas, polars or Arrow."""
    return any(is_from(X, *frame) for frame in FRAMES)


def columns_of(frame):
    """Names and columns of a frame, pair by pair, as a name may stand twice."""
    if is_pandas(frame, "DataFrame"):
        return [(name, frame.iloc[:, j]) for j, name in enumerate(frame.columns)]
    if is_from(frame, "polars", "DataFrame"):
        return [(column.name, column) for column in frame.get_columns()]
    return list(zip(frame.schema.names, frame.columns, strict=True))


def listed(column):
    """The entries of a column, an array or a sequence of any library in a list; [] of others."""
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(column, method):
            return getattr(column, method)()
    return list(column) if hasattr(column, "__iter__") and not isinstance(column, str) else []


def is_cell(value):
    """Whether a cell of a column holds a set rather than a number, a text or nothing."""
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes, dict, set))


def is_arrow_list(kind):
    """Whether an Arrow type is one of the kinds of list; nothing else has a `value_field`."""
    return hasattr(kind, "value_field")


def polars_kind(column):
    """Name of the type of a polars column, whatever its parameters."""
    return column.dtype.base_type().__name__


def holds_sets(column):
    """Whether the cells of a column of any library hold sets."""
    if is_pandas(column, "Series"):
        return column.dtype.kind == "O" and any(map(is_cell, column))
    if is_from(column, "polars", "Series"):
        return polars_kind(column) in ("List", "Array", "Object")
    return is_arrow_list(column.type)


def set_columns(frame):
    """Names of the columns of a frame whose cells hold sets."""
    return [name for name, column in columns_of(frame) if holds_sets(column)]


# A child table and its keys


def group(frame, by, columns, order_by, weight, index):
    """The parts of the RaggedArray that :meth:`RaggedArray.from_frame` makes, by name."""
    codes, index = _codes_of_keys(_column(frame, by), index)
    rows = np.argsort(codes, kind="stable")
    if order_by is not None:
        ranks = [_ranks(_column(frame, name)) for name in reversed(names_in(order_by))]
        rows = np.lexsort((*ranks, codes))
    names = names_in(columns)
    parts = [_numbers(_column(frame, name)) for name in names]
    values = np.empty((len(rows), len(parts)), float_type(*(part.dtype for part in parts)))
    for j, part in enumerate(parts):
        values[:, j] = part[rows]
    return {
        "values": values,
        "offsets": np.append(0, np.cumsum(np.bincount(codes, minlength=len(index)))),
        "weights": None if weight is None else _numbers(_column(frame, weight))[rows],
        "index": index,
        "rows": rows,
        "columns": names if all(isinstance(name, str) for name in names) else None,
    }


def names_in(names):
    """The names of one column or of several as a list."""
    return [names] if isinstance(names, str) else list(names)


def _column(frame, name):
    """A column of a pandas or polars frame as a pandas Series, a null being pandas' own."""
    import pandas as pd

    if not any(is_from(frame, *kind) for kind in FRAMES[:2]):
        raise TypeError(
            f"Got {type(frame).__name__}, but a child table is a pandas or polars DataFrame."
        )
    columns = list(frame.columns)
    if columns.count(name) != 1:
        raise ValueError(
            f"The frame has {columns.count(name)} columns {name!r}, but needs exactly one; its "
            f"columns are {columns}."
        )
    column = frame[name]
    return column if is_pandas(column, "Series") else pd.Series(column.to_numpy(), name=name)


def _refuse_missing(column, missing, what):
    if missing.any():
        i = int(np.argmax(missing))
        row = column.index[i : i + 1].tolist()[0]
        raise ValueError(
            f"Column {column.name!r} has no {what} in row {row!r}, and in "
            f"{int(missing.sum()) - 1} more of {len(column)}. Drop or impute such rows."
        )


def _codes_of_keys(keys, index):
    """Position of each row's set (n_rows,), and the keys in the order of the sets."""
    import pandas as pd

    _refuse_missing(keys, keys.isna().to_numpy(), "key")
    codes, found = pd.factorize(keys)
    if index is None:
        return codes, pd.Index(found, name=keys.name)
    index = pd.Index(index, name=getattr(index, "name", None) or keys.name)
    if index.hasnans or not index.is_unique:
        twice = index[index.isna() | index.duplicated()]
        raise ValueError(f"index must hold each key once, but holds {twice[0]!r} twice or NaN.")
    positions = index.get_indexer(pd.Index(found))
    unknown = np.flatnonzero(positions < 0)
    if len(unknown):
        raise ValueError(
            f"Column {keys.name!r} has {len(unknown)} keys that index lacks, as "
            f"{found[unknown[0]]!r}. Drop these rows, or add the keys to index."
        )
    return positions[codes], index


def _ranks(column):
    """Numbers (n_rows,) in the order of a column's values, equal where these are."""
    import pandas as pd

    _refuse_missing(column, column.isna().to_numpy(), "value to sort by")
    plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiubmM"
    return column.to_numpy() if plain else pd.factorize(column, sort=True)[0]


def _numbers(column):
    """A numeric column (n_rows,) as float32, where it is, or float64."""
    import pandas as pd

    if not (pd.api.types.is_numeric_dtype(column) and getattr(column.dtype, "kind", "f") in "fiub"):
        raise TypeError(
            f"Column {column.name!r} has dtype {column.dtype}, but tokens are vectors of real "
            "numbers. Encode it first."
        )
    kind = float_type(getattr(column.dtype, "numpy_dtype", column.dtype))
    numbers = column.to_numpy(dtype=kind, na_value=np.nan)
    _refuse_missing(column, ~np.isfinite(numbers), "finite value")
    return numbers


def token_frame(values, columns, index, sets, tokens):
    """Tokens as a pandas frame indexed by the label of their set and their number in it."""
    import pandas as pd

    labels = index if is_pandas(index, "Index") else pd.Index(index)
    labels = labels[sets]
    levels = [labels.get_level_values(k) for k in range(labels.nlevels)]
    names = ["set" if name is None else name for name in labels.names]
    index = pd.MultiIndex.from_arrays([*levels, tokens], names=[*names, "token"])
    return pd.DataFrame(values, index=index, columns=list(columns))
