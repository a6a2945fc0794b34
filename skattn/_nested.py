"""Columns of lists of lists, of Arrow, polars and awkward, read where their values lie."""

from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

from ._arrays import as_float, real_numbers
from ._frames import is_arrow_list
from .ragged import RaggedArray

NO_SET = (
    "Cell {} of the column holds {}, but each cell must hold a set of token vectors. Use an "
    "empty list for a set without tokens."
)
EXTENSION = (
    "X holds the extension type {}, whose meaning is not known. If its storage holds the vectors, "
    "pass {}."
)
MISSING = "Input X contains a missing value: {} {}. Drop or impute such tokens."


# Columns of lists of lists, level by level. Each has
#   kind        what the library calls the type of the entries at this level
#   first_null  position of the first null at this level, or None
#   is_list     whether the entries at this level are lists
#   size        the length that their type declares for all of them, or None
#   lengths     of each of them
#   inner()     the entries of all lists, one after another: a column again
#   numbers()   the entries at this level as an array, where they are no lists


@dataclass(frozen=True)
class ArrowColumn:
    """Chunks of a pyarrow array. Nothing is copied but several chunks into one."""

    chunks: list
    kind: Any
    first_null: int | None

    @classmethod
    def of(cls, chunks, kind):
        """The column of such chunks, those of an extension type as what they stand for."""
        null, start = None, 0
        for chunk in chunks:
            if chunk.null_count and null is None:
                null = start + int(np.argmax(chunk.is_null().to_numpy(zero_copy_only=False)))
            start += len(chunk)
        if null is None and hasattr(kind, "extension_name"):
            chunks, kind = _without_extension(chunks, kind)
        return cls(chunks, kind, null)

    @property
    def is_list(self):
        return is_arrow_list(self.kind)

    @property
    def size(self):
        return getattr(self.kind, "list_size", None)

    @property
    def lengths(self):
        if self.size is not None:
            return np.full(sum(map(len, self.chunks)), self.size)
        lengths = [chunk.value_lengths() for chunk in self.chunks]
        return _joined([n.to_numpy(zero_copy_only=False) for n in lengths], np.int64)

    def inner(self):
        chunks = [chunk.flatten() for chunk in self.chunks]  # minds offsets, unlike .values
        return ArrowColumn.of(chunks, self.kind.value_type)

    def numbers(self):
        return _joined([chunk.to_numpy(zero_copy_only=False) for chunk in self.chunks], np.float64)


def _without_extension(chunks, kind):
    """Chunks without nulls of an extension type of Arrow as lists or numbers, and their type."""
    import pyarrow as pa

    if kind.extension_name == "arrow.bool8":
        return [chunk.storage.cast(pa.bool_()) for chunk in chunks], pa.bool_()
    if kind.extension_name != "arrow.fixed_shape_tensor":
        raise TypeError(EXTENSION.format(kind, "column.cast(column.type.storage_type)"))
    chunks = [_lists_of_tensors(chunk) for chunk in chunks or [pa.nulls(0, kind)]]
    return chunks, chunks[0].type


def _lists_of_tensors(chunk):
    """An array of Arrow's tensors as lists of lists of one length."""
    import pyarrow as pa

    kind = chunk.type
    order = [0, *(axis + 1 for axis in kind.permutation or range(len(kind.shape)))]
    numbers = chunk.storage.flatten().to_numpy(zero_copy_only=False)
    block = numbers.reshape(len(chunk), *kind.shape).transpose(order)
    lists = pa.array(block.ravel(), from_pandas=False)
    for size in block.shape[:0:-1]:
        lists = pa.FixedSizeListArray.from_arrays(lists, size)
    return lists


@dataclass(frozen=True)
class PolarsColumn:
    """A polars Series. Copied are several chunks into one; by early versions, all beside []."""

    series: Any

    @property
    def kind(self):
        return self.series.dtype

    @property
    def first_null(self):
        return int(self.series.is_null().arg_max()) if self.series.null_count() else None

    @property
    def is_list(self):
        return self.kind.base_type().__name__ in ("List", "Array")

    @property
    def size(self):
        return self.kind.shape[0] if hasattr(self.kind, "shape") else None

    @property
    def lengths(self):
        if self.size is not None:
            return np.full(len(self.series), self.size)
        return self.series.list.len().to_numpy().astype(np.int64)

    def inner(self):
        series = self.series
        if self.lengths.all():
            return PolarsColumn(series.explode())
        if "empty_as_null" in signature(series.explode).parameters:
            return PolarsColumn(series.explode(empty_as_null=False))
        series = series.filter(series.list.len() > 0) if self.size is None else series[:0]
        return PolarsColumn(series.explode())

    def numbers(self):
        return self.series.to_numpy()


@dataclass(frozen=True)
class AwkwardColumn:
    """An awkward array, read by its own functions."""

    array: Any

    @property
    def kind(self):
        return self.array.type.content

    @property
    def first_null(self):
        import awkward as ak

        if not isinstance(self.kind, ak.types.OptionType):
            return None
        null = ak.to_numpy(ak.is_none(self.array))
        return int(np.argmax(null)) if null.any() else None

    @property
    def is_list(self):
        return self.array.layout.purelist_depth > 1

    @property
    def size(self):
        return getattr(self.kind, "size", None)

    @property
    def lengths(self):
        import awkward as ak

        return np.asarray(ak.to_numpy(ak.num(self.array, axis=1)), dtype=np.int64)

    def inner(self):
        import awkward as ak

        return AwkwardColumn(ak.flatten(self.array, axis=1))

    def numbers(self):
        import awkward as ak

        return np.ma.getdata(ak.to_numpy(self.array))


def read_nested(column):
    """A column of lists of lists; one of lists of numbers holds tokens of one feature."""
    null = column.first_null
    if null is not None:
        raise ValueError(NO_SET.format(null, None))
    if not column.is_list:
        raise TypeError(
            f"X is a column of {column.kind}, but must hold sets of token vectors. A single set "
            "is passed as [X]."
        )
    offsets = np.concatenate([[0], np.cumsum(column.lengths, dtype=np.int64)])
    tokens = column.inner()
    null = tokens.first_null
    if null is not None:
        raise ValueError(MISSING.format(_place(null, offsets), "is null"))
    numbers, width = tokens.inner() if tokens.is_list else tokens, 1
    if numbers.is_list:
        raise ValueError(
            "X nests lists three deep or more, but each of its cells must be a list of token "
            "vectors, (n_tokens, n_features)."
        )
    if tokens.is_list:
        width = _width(tokens, offsets)
        null = numbers.first_null
        if null is not None:
            place = _place(null // width, offsets)
            raise ValueError(MISSING.format(place, f"has null in feature {null % width}"))
    values = numbers.numbers()
    if values.dtype == object:
        values = real_numbers(values, "X")
    if values.size and (values.dtype.kind not in "fiub" or values.ndim > 1):
        raise TypeError(
            f"X holds values of type {numbers.kind}, but a token is a vector of real numbers. Look "
            "up a vector for each word or id first; put the fields of a record into a list."
        )
    ragged = RaggedArray._trusted(as_float(values).reshape(offsets[-1], width), offsets)
    check_finite(ragged)
    return ragged


def _width(tokens, offsets):
    """The one length of all tokens, as declared or as found."""
    if tokens.size is not None:
        return tokens.size
    widths = tokens.lengths
    other = np.flatnonzero(widths != widths[:1])
    if len(other):
        raise ValueError(
            f"The tokens have different numbers of features: {_place(other[0], offsets)} has "
            f"{widths[other[0]]}, but {_place(0, offsets)} has {widths[0]}. All tokens must share "
            "one feature space."
        )
    return int(widths[0]) if len(widths) else 0


def _place(token, offsets):
    """Where a token stands, in words."""
    i = int(np.searchsorted(offsets, token, side="right")) - 1
    return f"token {token - offsets[i]} of set {i}"


def _joined(arrays, dtype):
    """Arrays one after another, a single one as it is; of the dtype where there is none."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)


def check_finite(ragged, skip=None):
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
