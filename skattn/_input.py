"""What every estimator of sets does with its input: read, check, take note of names."""

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from .containers import as_ragged, is_table

EMPTY = ("zeros", "nan", "error")  # what may become of a set without tokens


def read_sets(estimator, X, *, reset):
    """The sets of X, the number of features and their names checked, or noted with `reset`."""
    ragged = as_ragged(X, estimator=estimator)
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
            raise ValueError(
                "The feature names should match those that were passed during fit: the columns of "
                f"the tokens are {ragged.columns.tolist()}, but were {named.tolist()}."
            )
    if reset and ragged.n_features == 0 and len(ragged):
        raise ValueError(
            f"Found tokens with 0 feature(s) (shape=({ragged.n_tokens}, 0)) while a minimum of 1 "
            "is required."
        )
    if ragged.n_features != estimator.n_features_in_:
        if ragged.n_tokens:
            raise ValueError(
                f"X has {ragged.n_features} features, but {type(estimator).__name__} is expecting "
                f"{estimator.n_features_in_} features as input."
            )
        return ragged.with_values(np.empty((0, estimator.n_features_in_)))  # nothing but []
    return ragged


def refuse_empty_sets(ragged):
    """Raise naming the sets that have no tokens."""
    if not ragged.lengths.all():
        raise ValueError(
            f"Sets {np.flatnonzero(ragged.lengths == 0)[:10].tolist()} have no tokens. Drop them, "
            "or choose empty='zeros' or empty='nan'."
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
            f"more, and one of them above, but run from {weight.min()} to {weight.max()}."
        )
    return weight
