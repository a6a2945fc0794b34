"""A sample of the tokens of long sets, for fits that cost more than linear time in their length."""

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._input import read_sets
from .._output import RaggedOutputMixin
from .._random import generator
from .._sets import Sets


class TokenSampler(RaggedOutputMixin, BaseEstimator):
    """Sets in float32, at most `max_tokens` tokens of each in `fit_transform`.

    `fit_transform` represents a set of n > max_tokens tokens by max_tokens of them, drawn without
    replacement, and multiplies their token weights by n / max_tokens. `transform` keeps all tokens.
    """

    def __init__(self, max_tokens, random_state=None):
        self.max_tokens = max_tokens
        self.random_state = random_state

    def fit(self, X, y=None):
        """Take note of the number of token features."""
        self._read(X, reset=True)
        return self

    def fit_transform(self, X, y=None):
        """The sampled sets."""
        sets = Sets.of(self._read(X, reset=True))
        return sets.sampled(self.max_tokens, generator(self.random_state)).queries

    def transform(self, X):
        """The sets with all tokens."""
        check_is_fitted(self, "n_features_in_")
        return self._read(X, reset=False)

    def _read(self, X, *, reset):
        X = read_sets(self, X, reset=reset).drop_zero_weights()
        return X.with_values(X.values.astype(np.float32, copy=False))

    def _is_ragged_out(self):
        return True
