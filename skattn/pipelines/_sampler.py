"""A sample of the tokens of long sets, for fits that cost more than linear time in their length."""

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._input import read_sets
from .._output import RaggedOutputMixin
from .._random import generator


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
        X = self._read(X, reset=True)
        rng, m = generator(self.random_state), self.max_tokens
        if X.lengths.max(initial=0) <= m:
            return X
        sets = X.repeat(np.arange(len(X)))
        order = np.lexsort((rng.random(X.n_tokens), sets))  # shuffles the tokens within each set
        kept = order[np.arange(X.n_tokens) - X.repeat(X.offsets[:-1]) < m]
        counts = np.minimum(X.lengths, m)
        weights = np.repeat(X.lengths / np.maximum(counts, 1), counts)
        kept.sort()
        if X.weights is not None:
            weights *= X.weights[kept]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return type(X)(X.values[kept], offsets, weights.astype(np.float32))

    def transform(self, X):
        """The sets with all tokens."""
        check_is_fitted(self, "n_features_in_")
        return self._read(X, reset=False)

    def _read(self, X, *, reset):
        X = read_sets(self, X, reset=reset).drop_zero_weights()
        return X.with_values(X.values.astype(np.float32, copy=False))

    def _is_ragged_out(self):
        return True
