"""What y and sample_weight may be: one entry for each set, or one for each token."""

import numpy as np

from ._arrays import as_array, missing, short
from ._frames import columns_of, is_frame, listed
from ._input import check_sample_weight
from .ragged import RaggedArray


def is_per_token(entries):
    """Whether targets or weights come set by set: a RaggedArray, or a column of sequences."""
    return isinstance(entries, RaggedArray) or any(map(_is_sequence, _cells(entries)))


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
        values, present = _present(y, X.lengths)
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
    """Targets as an array: strings as they are, numbers and booleans in their own type."""
    y = as_array(y, "y")
    gaps = np.flatnonzero(missing(y)) if y.dtype.kind in "mMOT" else ()
    if len(gaps):
        raise ValueError(f"Input y contains NaN: a target is missing at position {gaps[0]}.")
    if y.dtype.kind not in "OT" or any(isinstance(v, str) for v in y.flat if y.dtype == object):
        return y
    return np.array(y.tolist())


def by_set(entries):
    """Entries set by set as an object array (n_samples,), which scikit-learn's splits can index."""
    cells = _cells(entries)
    out = np.empty(len(cells), dtype=object)
    out[:] = cells
    return out


def for_each_token(y, X):
    """A target for each token of X, (n_tokens,) or (n_tokens, n_outputs): its own, or its set's."""
    if is_per_token(y):
        cells = _cells(y)
        fits = len(cells) == len(X) and all(
            len(c) == n for c, n in zip(cells, X.lengths, strict=True)
        )
        if fits or is_certainly_per_token(y):
            arrays = [array for array in _arrays_of(y, X.lengths, "y") if len(array)]
            targets = np.concatenate(arrays or [np.empty(0)])
            return targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    return X.repeat(np.asarray(y))


def _cells(entries):
    """One entry for each set, in a list; none where the entries are no column."""
    if isinstance(entries, RaggedArray):
        return [cell[:, 0] if entries.n_features == 1 else cell for cell in entries]
    if is_frame(entries):
        columns = columns_of(entries)
        return _cells(columns[0][1]) if len(columns) == 1 else []
    if isinstance(entries, np.ndarray) and (entries.dtype != object or entries.ndim != 1):
        return []
    return listed(entries)


def _is_sequence(entry):
    return (
        hasattr(entry, "__len__")
        and not isinstance(entry, (str, bytes))
        and getattr(entry, "ndim", 1) > 0
    )


def _arrays_of(entries, lengths, name):
    """The targets or weights of each set, as an array of as many entries as it has tokens."""
    cells = _cells(entries)
    if len(cells) != len(lengths):
        raise ValueError(
            "Found input variables with inconsistent numbers of samples: "
            f"{[len(lengths), len(cells)]} ({name} set by set)"
        )
    arrays = []
    for i, (cell, length) in enumerate(zip(cells, lengths.tolist(), strict=True)):
        if not _is_sequence(cell):
            raise ValueError(
                f"{name} holds an array for some sets, but {short(cell)} for set {i}: give an "
                "array of as many entries as the set has tokens, or one entry for every set."
            )
        array = cell if np.ma.isMaskedArray(cell) else as_array(cell, f"{name} of set {i}")
        if array.dtype.kind in "US" and isinstance(cell, (list, tuple)):
            if not all(isinstance(value, str) for value in cell):  # "nan" is no label
                array = np.array(cell, dtype=object)
        if array.ndim not in (1, 2):
            raise ValueError(
                f"{name} has an entry of shape {array.shape} for set {i}, but that of a set has "
                "the shape (n_tokens,) or (n_tokens, n_outputs)."
            )
        if len(array) != length:
            raise ValueError(
                f"Set {i} has {length} tokens, but {name} has {len(array)} entries for it. Given "
                "set by set, every token has one; mark a target that is not scored by NaN or "
                "None. Several targets per set go into a 2-D array."
            )
        arrays.append(array)
    return arrays


def _present(y, lengths):
    """Targets that are present, in one array, and where they are, boolean (n_tokens,)."""
    values, present = [np.empty(0)], [np.empty(0, bool)]
    for array in _arrays_of(y, lengths, "y"):
        there = ~missing(array)
        present.append(there if there.ndim == 1 else there.all(axis=1))
        if present[-1].any():
            values.append(np.ma.getdata(array)[present[-1]])
    values = values[1:] or values
    shapes = {array.shape[1:] for array in values}
    if len(shapes) > 1:
        raise ValueError(
            f"The targets of a token have the shapes {sorted(shapes)} in different sets, but must "
            "have one: () for one target, (n_outputs,) for several."
        )
    kinds = {array.dtype.kind for array in values}
    if len(kinds) > 1 and kinds & set("USTO"):  # text and numbers are not made one in silence
        values = [array.astype(object) for array in values]
    return np.concatenate(values), np.concatenate(present)


def _token_sample_weight(sample_weight, X):
    """The weight of every token (n_tokens,), from weights per set or per token."""
    if not is_per_token(sample_weight):
        return X.repeat(check_sample_weight(sample_weight, len(X)))
    arrays = _arrays_of(sample_weight, X.lengths, "sample_weight")
    flat = [np.asarray(array, dtype=np.float64).reshape(-1) for array in arrays]
    return check_sample_weight(np.concatenate([np.empty(0), *flat]), X.n_tokens)
