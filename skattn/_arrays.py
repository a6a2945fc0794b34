"""What equals a NumPy array, which of its entries are missing, and the type its numbers become."""

import reprlib
from decimal import Decimal
from numbers import Real

import numpy as np

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def is_from(X, library, *names):
    """Whether X is of a library's class of one of the names, without importing the library."""
    return any(
        kind.__name__ in names and kind.__module__.partition(".")[0] == library
        for kind in type(X).__mro__
    )


def is_pandas(X, *names):
    """Whether X is a pandas object of one of the names, without importing pandas."""
    return is_from(X, "pandas", *names)


def short(value):
    """A user's value for a message, cut to some 80 characters."""
    text = _SHORT.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def as_array(X, what="X"):
    """The NumPy array that an array of any library, or a nest of lists, equals.

    Raises
    ------
    ValueError
        If lists in it are of different lengths.
    TypeError
        If the library does not give its numbers to NumPy.
    """
    if type(X) is np.ndarray:
        return X
    try:
        if is_from(X, "torch", "Tensor"):
            X = _read_tensor(X)
        elif is_from(X, "pyarrow", "Scalar"):  # an entry of a pyarrow array
            X = X.as_py()
        return np.asarray(X)
    except Exception as error:
        if is_from(X, "awkward", "Array"):  # with None in it
            return np.asarray(X.to_list())
        if isinstance(X, (list, tuple)):  # of different lengths, or with a tensor among them
            return np.asarray([as_array(entry, what) for entry in X])
        raise TypeError(
            f"{what} is a {type(X).__name__}, which does not give its numbers to NumPy: {error} "
            "Convert it to a NumPy array first; of a tensor, .detach(), .cpu(), .float() or "
            ".to_dense() may be missing."
        ) from error


def _read_tensor(X):
    """A torch tensor as its NumPy array where that is exact, else the tensor."""
    if str(X.layout) != "torch.strided" or X.is_nested:
        return X
    X = X.detach().cpu()
    narrow = X.is_floating_point() and X.element_size() < 4  # not all of these are NumPy's too
    return (X.double() if narrow else X).numpy(force=True)


def is_missing(value):
    """Whether a value is None, NaN, NaT, pandas' NA or masked."""
    if value is None or value is np.ma.masked or type(value).__name__ == "NAType":
        return True
    return not hasattr(value, "__len__") and bool(value != value)


def missing(array):
    """Where the entries of an array are missing, as a boolean array of its shape."""
    data, out = np.ma.getdata(array), np.ma.getmaskarray(array).copy()
    if data.dtype.kind in "fc":
        out |= np.isnan(data)
    elif data.dtype.kind in "mM":
        out |= np.isnat(data)
    elif data.dtype.kind in "OT":
        found = np.array([is_missing(value) for value in data.ravel().tolist()], dtype=bool)
        out |= found.reshape(data.shape)
    return out


def float_type(*dtypes):
    """The type of tokens made of such values: float32 where all are, else float64."""
    single = bool(dtypes) and all(dtype.char == "f" for dtype in dtypes)
    return np.float32 if single else np.float64


def as_float(X):
    """float32 and float64 in the machine's byte order; all else as float64."""
    return X.astype(float_type(X.dtype), copy=False)


def real_numbers(array, what):
    """Numbers of an object array as float64, a missing one as NaN."""
    gaps = missing(array)
    for kind in set(map(type, array[~gaps])):
        if not issubclass(kind, (Real, Decimal, np.bool_)):
            other = next(value for value in array[~gaps] if type(value) is kind)
            raise TypeError(
                f"{what} holds {short(other)}, of type {kind.__name__}, but a token is a vector of "
                "real numbers. Look up a vector for each word or id first."
            )
    out = np.full(array.shape, np.nan)
    try:
        out[~gaps] = array[~gaps].astype(np.float64)
    except OverflowError as error:
        raise ValueError(f"{what} holds a number that is too large for float64.") from error
    return out
