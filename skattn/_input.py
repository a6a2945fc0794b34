"""Input of the estimators of sets: read it, check it, note the names."""

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from ._arrays import short
from ._frames import is_frame, names_of
from ._sets import Sets
from .containers import as_ragged, is_table
from .masks import MASKS
from .pairs import RaggedPair
from .ragged import RaggedArray

EMPTY = ("zeros", "nan", "error")  # choices for a set without tokens


def read_sets(estimator, X, *, reset, name="X"):
    """The sets of X; number and names of features are checked, or noted with `reset`."""
    ragged = as_ragged(X, estimator=estimator)
    if reset and len(ragged) == 0:
        raise ValueError(
            f"Found array with 0 sample(s) (shape=(0, {ragged.n_features})) while a minimum of 1 "
            f"is required: {name} holds no sets."
        )
    if is_table(X):
        validate_data(estimator, X, reset=reset, skip_check_array=True)  # names, their number
    elif reset:
        estimator.n_features_in_ = ragged.n_features
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
        if ragged.columns is not None:
            estimator.feature_names_in_ = ragged.columns
    elif ragged.columns is not None:
        named = getattr(estimator, "feature_names_in_", ragged.columns)
        if len(named) == ragged.n_features and np.any(named != ragged.columns):
            is_order = set(named) == set(ragged.columns)
            raise ValueError(
                "The feature names should match those that were passed during fit: the columns of "
                f"the tokens are {short(ragged.columns.tolist())}, but were "
                f"{short(named.tolist())}."
                + (" Feature names must be in the same order as they were in fit." * is_order)
            )
    return _of_width(ragged, estimator.n_features_in_, name, estimator)


def _of_width(ragged, expected, name, estimator):
    """The sets; raises if their tokens do not have the expected width, or have width 0."""
    if expected == 0 and len(ragged):
        raise ValueError(
            f"Found tokens with 0 feature(s) (shape=({ragged.n_tokens}, 0)) while a minimum of 1 "
            f"is required: {name} has none."
        )
    if ragged.n_features == expected:
        return ragged
    if ragged.n_tokens:
        raise ValueError(
            f"{name} has {ragged.n_features} features, but {type(estimator).__name__} is expecting "
            f"{expected} features as input."
        )
    return ragged.with_values(np.empty((0, expected)))  # only empty sets


def as_sets(X, estimator):
    """X as a RaggedArray, or as a RaggedPair if it has contexts.

    X has contexts if it is a RaggedPair, or a frame of two columns if the estimator's `context`
    names one of them.
    """
    name = estimator.context
    if isinstance(X, RaggedPair):
        return RaggedPair(X.queries, X.context)  # checks again: arrays may have changed
    if name is None:
        return as_ragged(X, estimator=estimator)
    if not is_frame(X):
        raise TypeError(
            f"context={name!r} names a column, but X is of type {type(X).__name__}: give a frame "
            "with this column and one of sets, or a RaggedPair(queries, context)."
        )
    columns = names_of(X)
    if columns.count(name) != 1 or len(columns) != 2:
        raise ValueError(
            f"X has the columns {columns}, but must have two: {name!r}, which context names, and "
            "one with the sets that attend to it."
        )
    (other,) = (column for column in columns if column != name)
    return RaggedPair(X[other], X[name])


def read_sets_in_context(estimator, X, *, reset):
    """Like `read_sets`, but returns Sets: with the keys of each set, both sides checked."""
    if not isinstance(X, RaggedPair) and estimator.context is None:
        _check_kind(estimator, None, reset)
        return Sets.of(read_sets(estimator, X, reset=reset))
    pair = as_sets(X, estimator)
    _check_kind(estimator, pair.context.n_features, reset)
    queries = read_sets(estimator, pair.queries, reset=reset, name="The queries of X")
    context = _of_width(
        pair.context, estimator.n_context_features_in_, "The context of X", estimator
    )
    return Sets(queries, context)


def _check_kind(estimator, n_context_features, reset):
    """Note with `reset` whether X has contexts, and their width; else refuse a change of kind."""
    name = type(estimator).__name__
    had_context = hasattr(estimator, "n_context_features_in_")
    if reset:
        if n_context_features is not None:
            estimator.n_context_features_in_ = n_context_features
        elif had_context:
            del estimator.n_context_features_in_
    elif had_context and n_context_features is None:
        raise TypeError(
            f"X holds sets without a context, but this {name} was fitted on sets that attend to "
            "one: give a RaggedPair(queries, context)."
        )
    elif not had_context and n_context_features is not None:
        raise TypeError(
            f"X has contexts, but this {name} was fitted on sets that attend to themselves: "
            "give the sets alone."
        )


def ready(sets, mask, settings):
    """Sets without the tokens of weight 0, checked against the mask of the attention.

    `settings` has the parameters `mask` and `empty` as the user gave them.
    """
    sets = sets.map(RaggedArray.drop_zero_weights)
    if settings.empty == "error":
        refuse_empty_sets(sets)
    fits_context = mask.sees_all or not sets.has_context
    fits_weights = mask.weights_are_copies or sets.queries.weights is None
    if fits_context and fits_weights:
        return sets
    name = next((name for name, kind in MASKS.items() if type(mask) is kind), mask)
    what, instead = f"mask={name!r}", "choose mask=None"
    if settings.mask is None and name == "exclude_self":
        what, instead = "loss='reconstruction'", "give y, and a loss that takes it"
    if not fits_context:
        raise ValueError(
            f"{what} applies to the tokens of one set, but X has contexts, and every token "
            f"attends to all of its context: {instead}."
        )
    raise ValueError(
        f"Token weights other than 0 and 1 have no meaning with {what}: the copies of a token "
        "would attend to different tokens. Repeat the tokens instead."
    )


def refuse_empty_sets(sets):
    """Raise, naming the sets that have no tokens or an empty context."""
    for side, what in zip(sets.sides, ("Sets", "The contexts of sets"), strict=False):
        if not side.lengths.all():
            raise ValueError(
                f"{what} {np.flatnonzero(side.lengths == 0)[:10].tolist()} have no tokens. Drop "
                "them, or choose empty='zeros' or empty='nan'."
            )


def check_sample_weight(sample_weight, n_samples):
    """Weights (n_samples,), finite, not negative and not all 0."""
    if sample_weight is None:
        return np.ones(n_samples)
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.shape != (n_samples,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}, but must be 1-D with one weight for each of "
            f"{n_samples} sets."
        )
    if np.any(weight < 0) or not np.any(weight > 0):
        raise ValueError(
            "A weight in sample_weight is negative, or all are zero: the weights must be 0 or "
            f"more, at least one above 0, but run from {weight.min()} to {weight.max()}."
        )
    return weight
