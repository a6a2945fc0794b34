"""What y and sample_weight may be: one entry for each set, or one for each token."""

import numpy as np

from ._input import check_sample_weight
from .ragged import RaggedArray


def is_per_token(entries):
    """Whether targets or weights come set by set: a RaggedArray, or a list of sequences."""
    if isinstance(entries, RaggedArray):
        return True
    if entries is None or isinstance(entries, (str, bytes)) or hasattr(entries, "columns"):
        return False
    if isinstance(entries, np.ndarray) and (entries.dtype != object or entries.ndim != 1):
        return False
    if not hasattr(entries, "__iter__"):
        return False
    return any(_is_sequence(entry) for entry in entries)


def is_certainly_per_token(entries):
    """Whether they can be nothing else, as a table in nested lists can."""
    if not is_per_token(entries):
        return False
    if not isinstance(entries, (list, tuple)):
        return True
    shapes = {len(entry) if _is_sequence(entry) else None for entry in entries}
    return len(shapes) > 1


def scored_tokens(y, sample_weight, X):
    """The tokens with a target, out of those of positive token weight.

    Parameters
    ----------
    y : container of n_samples 1-D or 2-D arrays, or None
        A target per token; one that is missing is not scored. Where None, the tokens of sets of
        two or more are scored, by themselves.
    sample_weight : array-like or container of arrays, or None
        A weight per set or per token; a token of weight 0 is not scored.
    X : RaggedArray
        The sets as they were given.

    Returns
    -------
    values : ndarray of shape (n_scored,) or (n_scored, n_outputs), or None
        Their targets, in their own type; None without y.
    rows : ndarray of shape (n_scored,)
        Where they stand in the values of ``X.drop_zero_weights()``.
    weight : ndarray of shape (n_scored,)
        Their sample weights; the token weights are not in it.
    """
    weight = _token_sample_weight(sample_weight, X)
    kept = np.ones(X.n_tokens, bool) if X.weights is None else X.weights > 0
    if y is None:
        values, present = None, X.repeat(X.with_values(kept[:, None] * 1.0).segment_sum()[:, 0] > 1)
    else:
        values, present = _read(y, X.lengths)
    scored = present & kept & (weight > 0)
    if not scored.any():
        if y is None:
            raise ValueError(
                f"Found no set of two or more tokens in {len(X)} sets (of positive weight): "
                "loss='reconstruction' predicts each token from the others of its set."
            )
        raise ValueError(
            f"None of the {X.n_tokens} tokens is scored: y has {int(present.sum())} targets that "
            "are not missing, and those of them with a positive weight are 0."
        )
    if y is not None:
        values = plain(values[scored[present]])
    return values, (np.cumsum(kept) - 1)[scored], weight[scored]


def plain(y):
    """Targets of an object array: strings as they are, numbers and booleans in their own type."""
    if y.dtype != object:
        return y
    for i, value in enumerate(y.flat):
        if _is_missing(value):
            raise ValueError(f"Input y contains NaN: a target is missing at position {i}.")
    return y if any(isinstance(value, str) for value in y.flat) else np.array(y.tolist())


def by_set(entries):
    """Entries set by set as an object array (n_samples,), which scikit-learn's splits can index."""
    cells = _cells(entries)
    out = np.empty(len(cells), dtype=object)
    out[:] = cells
    return out


def _cells(entries):
    """One entry for each set; in a RaggedArray of one feature, a vector."""
    if isinstance(entries, RaggedArray) and entries.n_features == 1:
        return [cell[:, 0] for cell in entries]
    return list(entries)


def _is_sequence(entry):
    return (
        hasattr(entry, "__len__")
        and not isinstance(entry, (str, bytes))
        and getattr(entry, "ndim", 1) > 0
    )


def _is_missing(value):
    """Whether a target is None, NaN, pandas' NA (not even equal to itself for sure) or masked."""
    return (
        value is None
        or value is np.ma.masked
        or type(value).__name__ == "NAType"
        or bool(value != value)
    )


def _read(y, lengths):
    """Targets that are present, in one array, and where they are, boolean (n_tokens,)."""
    if len(y) != len(lengths):
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[len(lengths), len(y)]}"
        )
    values, present, n_axes = [], [], set()
    for i, (cell, length) in enumerate(zip(_cells(y), lengths.tolist(), strict=True)):
        array, missing = _cell(cell, i)
        if len(array) != length:
            raise ValueError(
                f"Set {i} has {length} tokens, but y has {len(array)} targets for it. With "
                "pooling=None and y set by set, every token has one; mark those that are not "
                "scored by NaN or None. Several targets per set go into a 2-D array."
            )
        present.append(~missing)
        if not missing.all():
            array = array[~missing]
            values.append(array)
            n_axes.add(array.shape[1:])
    present = np.concatenate([np.empty(0, bool), *present])
    if len(n_axes) > 1:
        raise ValueError(
            f"The targets of a token have the shapes {sorted(n_axes)} in different sets, but must "
            "have one: () for one target, (n_outputs,) for several."
        )
    if not values:
        return np.empty(0), present
    kinds = {array.dtype.kind for array in values}
    if len(kinds) > 1 and kinds & set("USO"):  # text and numbers are not made one in silence
        values = [array.astype(object) for array in values]
    return np.concatenate(values), present


def _cell(cell, i):
    """A set's targets as an array, and which of them are missing, boolean (n_i,)."""
    masked = np.ma.getmaskarray(cell) if np.ma.isMaskedArray(cell) else None
    if masked is not None:
        array = cell.data
    elif not _is_sequence(cell):
        raise ValueError(
            f"y holds a target per token for some sets, but {cell!r} for set {i}: give an array of "
            "as many targets as the set has tokens, or one target for every set."
        )
    else:
        array = np.asarray(cell)
        if array.dtype.kind in "US" and isinstance(cell, (list, tuple)):
            if not all(isinstance(value, str) for value in cell):  # "nan" is no label
                array = np.array(cell, dtype=object)
    if array.ndim not in (1, 2):
        raise ValueError(
            f"y has an entry of shape {array.shape} for set {i}, but a set's targets have the "
            "shape (n_tokens,) or (n_tokens, n_outputs)."
        )
    if array.dtype == object:
        missing = np.array([_is_missing(value) for value in array.flat], dtype=bool)
        missing = missing.reshape(array.shape)
    elif array.dtype.kind in "fc":
        missing = np.isnan(array)
    else:
        missing = np.zeros(array.shape, dtype=bool)
    if masked is not None:
        missing |= masked
    return array, missing if missing.ndim == 1 else missing.any(axis=1)


def _token_sample_weight(sample_weight, X):
    """The weight of every token (n_tokens,), from weights per set or per token."""
    if not is_per_token(sample_weight):
        return X.repeat(check_sample_weight(sample_weight, len(X)))
    if len(sample_weight) != len(X):
        raise ValueError(
            f"sample_weight has weights for {len(sample_weight)} sets, but there are {len(X)}."
        )
    cells = [np.asarray(cell, dtype=np.float64).reshape(-1) for cell in _cells(sample_weight)]
    for i, (cell, length) in enumerate(zip(cells, X.lengths.tolist(), strict=True)):
        if len(cell) != length:
            raise ValueError(
                f"Set {i} has {length} tokens, but sample_weight has {len(cell)} weights for it."
            )
    return check_sample_weight(np.concatenate([np.empty(0), *cells]), X.n_tokens)
