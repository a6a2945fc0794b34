"""Names of token features."""


def of_token_features(estimator, input_features):
    """The names given, or None if there is one name and it names a column of sets."""
    named = hasattr(estimator, "feature_names_in_")
    if input_features is None or named or len(input_features) != 1:
        return input_features
    return input_features if estimator.n_features_in_ == 1 else None
