"""Frames and columns of other libraries, looked into by these functions alone."""

import numpy as np

from ._arrays import float_type, is_from, is_pandas, real_numbers, short

FRAMES = (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table", "RecordBatch"))


def is_frame(X):
    """Whether X is a frame of pandas, polars or Arrow; a lazy one is refused."""
    if is_from(X, "polars", "LazyFrame"):
        raise TypeError("Got a lazy frame, whose rows do not exist yet: call .collect() first.")
    return any(is_from(X, *frame) for frame in FRAMES)


def names_of(frame):
    """Names of a frame's columns, one of which may stand twice."""
    return list(frame.schema.names if is_from(frame, *FRAMES[2]) else frame.columns)


def columns_of(frame, numbers=True):
    """Names and columns of a frame; of one of pandas at will without those of numbers."""
    if is_pandas(frame, "DataFrame"):
        kinds = enumerate(frame.dtypes.items())
        wanted = [(j, name) for j, (name, k) in kinds if numbers or k.kind not in "fiub"]
        return [(name, frame.iloc[:, j]) for j, name in wanted]
    if is_from(frame, "polars", "DataFrame"):
        return [(column.name, column) for column in frame.get_columns()]
    return list(zip(frame.schema.names, frame.columns, strict=True))


def listed(column):
    """The entries of a column, an array or a sequence of any library in a list; [] of others."""
    if isinstance(column, (list, tuple)):
        return column
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(column, method):
            return getattr(column, method)()
    return list(column) if hasattr(column, "__iter__") and not isinstance(column, str) else []


def is_cell(value):
    """Whether a cell of a column holds a set rather than a number, a text or nothing."""
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes, dict, set))


def is_arrow_list(kind):
    """Whether an Arrow type is a kind of list, or an extension type, which may be one."""
    return hasattr(kind, "value_field") or getattr(kind, "extension_name", "arrow.bool8") != (
        "arrow.bool8"
    )


def polars_kind(column):
    """Name of the type of a polars column, whatever its parameters."""
    if hasattr(column.dtype, "ext_storage"):
        return "Extension"
    return column.dtype.base_type().__name__


def holds_sets(column):
    """Whether the cells of a column of any library hold sets."""
    if is_pandas(column, "Series"):
        return column.dtype.kind == "O" and any(map(is_cell, column))
    if is_from(column, "polars", "Series"):
        return polars_kind(column) in ("List", "Array", "Object", "Extension")
    return is_arrow_list(column.type)


def set_columns(frame):
    """Names of the columns of a frame whose cells hold sets."""
    return [name for name, column in columns_of(frame, numbers=False) if holds_sets(column)]


# A child table and its keys


def group(frame, by, columns, order_by, weight, index):
    """The parts of the RaggedArray that :meth:`RaggedArray.from_frame` makes, by name."""
    codes, index = _codes_of_keys(keys_of(frame, by), index)
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
    return [names] if isinstance(names, str) or not hasattr(names, "__iter__") else list(names)


def keys_of(frame, by):
    """The key of each row of a table (n_rows,) as a pandas Index, a MultiIndex of several columns.

    Raises
    ------
    ValueError
        If a row has no key.
    """
    import pandas as pd

    columns = [_column(frame, name) for name in names_in(by)]
    for column in columns:
        _refuse_missing(column, column.isna().to_numpy(), "key")
    if len(columns) > 1:
        return pd.MultiIndex.from_arrays(columns, names=[column.name for column in columns])
    return pd.Index(columns[0], tupleize_cols=False)


def positions(index, keys):
    """Where each of the keys stands in the index, -1 where it does not, compared exactly."""
    if index.nlevels != keys.nlevels:
        raise ValueError(
            f"The keys of one table have {index.nlevels} parts, those of the other {keys.nlevels}."
        )
    levels = [
        [_plain(side.get_level_values(k)) for side in (index, keys)] for k in range(index.nlevels)
    ]
    alike = [_kind(side) == _kind(other) for side, other in levels]
    for level, is_alike in zip(levels, alike, strict=True):
        if not is_alike:
            _refuse_rounded(*level)
    if index.nlevels > 1:
        index, keys = index.to_flat_index(), keys.to_flat_index()
    elif not alike[0]:  # as Python's numbers, which are compared exactly
        index, keys = (side.astype(object) for side in levels[0])
    else:
        index, keys = levels[0]
    return index.get_indexer(keys)


def _plain(keys):
    """Keys in the type of their categories, or of the objects, where they are such."""
    keys = keys.astype(keys.categories.dtype) if hasattr(keys, "categories") else keys
    return keys.infer_objects()


def _kind(keys):
    """What kind of numbers keys are, or "" of all that pandas compares exactly by itself."""
    kind = getattr(keys.dtype, "kind", "")
    return kind if kind in "iuf" else ""


def _refuse_rounded(index, keys):
    """Refuse numbers of two kinds, of which floats may be rounded from another key's integer."""
    sides = {_kind(side): side for side in (index, keys)}
    if "f" in sides and len(sides) == 2 and "" not in sides:
        large = [(np.abs(side.astype(float)) >= 2.0**53).any() for side in sides.values()]
        if all(large):
            raise ValueError(
                "The keys of one table are integers of 2**53 and more, those of the other floats, "
                "in which these are rounded to one another. Read both as integers."
            )


def _column(frame, name):
    """A column of a pandas or polars frame as a pandas Series, a null being pandas' own."""
    import pandas as pd

    if not is_frame(frame):
        raise TypeError(
            f"Got {type(frame).__name__}, but a child table is a pandas or polars DataFrame or an "
            "Arrow table."
        )
    names = names_of(frame)
    if name not in names and name in getattr(getattr(frame, "index", None), "names", ()):
        return pd.Series(frame.index.get_level_values(name), index=frame.index)
    if names.count(name) != 1:
        raise ValueError(
            f"The frame has {names.count(name)} columns {name!r}, but needs exactly one; its "
            f"columns are {short(names)}."
        )
    column = frame[name]
    if is_pandas(column, "Series"):
        return column
    if is_from(column, "pyarrow", "Array", "ChunkedArray"):
        return pd.Series(column.to_pandas(), name=name)
    values = column.to_numpy()
    if polars_kind(column) == "Enum":
        values = pd.Categorical(values, column.dtype.categories.to_list(), ordered=True)
    return pd.Series(values, name=name)


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

    try:
        codes, found = keys.factorize()
    except TypeError as error:
        raise TypeError(
            f"Column {keys.name!r} holds keys that cannot be looked up ({error}), as "
            f"{short(keys[0])}. Turn each into a tuple or a text first, or give the columns that "
            "it is made of: by=[name, name]."
        ) from error
    if index is None:
        return codes, found.set_names(keys.names)
    if is_frame(index):
        index = keys_of(index, list(keys.names))
    elif keys.nlevels > 1 and not hasattr(index, "nlevels"):
        index = pd.MultiIndex.from_tuples(list(index))
    elif not hasattr(index, "nlevels"):
        index = pd.Index(index, tupleize_cols=False)
    if not any(name is not None for name in index.names):
        index = index.set_names(keys.names)
    bad = np.asarray(index.duplicated() | _gaps(index))
    if bad.any():
        raise ValueError(
            f"index must hold each key once, but holds {index[bad][0]!r} twice or NaN."
        )
    where = positions(index, found)
    unknown = np.flatnonzero(where < 0)
    if len(unknown):
        raise ValueError(
            f"Column {keys.names[0]!r} has {len(unknown)} keys that index lacks, as "
            f"{short(found[unknown[0]])}. Drop these rows, or add the keys to index."
        )
    return where[codes], index


def _gaps(index):
    """Where a key, or a part of it, is missing (n_keys,)."""
    levels = [index.get_level_values(k).isna() for k in range(index.nlevels)]
    return np.logical_or.reduce(levels)


def _ranks(column):
    """Numbers (n_rows,) in the order of a column's values, equal where these are."""
    import pandas as pd

    _refuse_missing(column, column.isna().to_numpy(), "value to sort by")
    plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiubmM"
    return column.to_numpy() if plain else pd.factorize(column, sort=True)[0]


def _numbers(column):
    """A numeric column (n_rows,) as float32, where it is, or float64."""
    import pandas as pd

    if column.dtype == object and not any(isinstance(value, str) for value in column):
        numbers = real_numbers(column.to_numpy(), f"Column {column.name!r}")
    elif pd.api.types.is_numeric_dtype(column) and getattr(column.dtype, "kind", "f") in "fiubO":
        kind = float_type(getattr(column.dtype, "numpy_dtype", column.dtype))
        numbers = column.to_numpy(dtype=kind, na_value=np.nan)
    else:
        raise TypeError(
            f"Column {column.name!r} has dtype {column.dtype}, but tokens are vectors of real "
            "numbers. Encode it first."
        )
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
