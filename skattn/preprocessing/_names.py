"""Names of token features, as every step on tokens is given them."""


def of_token_features(estimator, input_features):
    """The names as they are, or None where they are the one name of a column of sets."""
    named = hasattr(estimator, "feature_names_in_")
    if input_features is None or named or len(input_features) != 1:
        return input_features
    return input_features if estimator.n_features_in_ == 1 else None
