"""Poolings: layers from the tokens of a set to one vector, with a forward and a backward pass.

A pooling is a frozen dataclass with pure methods. A token of weight w counts w times; without
weights, w is 1. A set without tokens pools to zeros. A pooling that is linear in the tokens has
`token_weights`; attention uses them to pool without computing its token outputs. `token_shares` is
how much of the pooled output each token has, and ``keeps_equal_tokens`` whether equal tokens pool
to a linear function of themselves.
"""

from dataclasses import dataclass

import numpy as np

__all__ = [
    "POOLINGS",
    "AttentionPooling",
    "MaxPooling",
    "MeanPooling",
    "StatsPooling",
    "SumPooling",
]


class _WithoutParameters:
    """A pooling without parameters."""

    def shapes(self, n_features):
        """Shapes of the parameters by name: none."""
        return {}

    def init_params(self, n_features, rng):
        """Parameters to start from: none."""
        return {}


class _Linear(_WithoutParameters):
    """pooled = sum_i p_i z_i, with weights p that do not depend on the tokens z."""

    def token_shares(self, params, tokens):
        """How much of the pooled output each token has, (n_tokens, 1)."""
        return self.token_weights(tokens)[:, None]

    def n_features_out(self, n_features):
        """Columns of the pooled output."""
        return n_features

    def forward(self, params, tokens):
        """Pool token vectors (n_tokens, k) into (n_samples, k)."""
        p = self.token_weights(tokens)
        return tokens.with_values(tokens.values * p[:, None]).segment_sum(), (tokens, p)

    def backward(self, params, cache, d_pooled):
        """Gradient of the tokens, (n_tokens, k), and of the parameters, none."""
        tokens, p = cache
        return tokens.repeat(d_pooled) * p[:, None], {}


@dataclass(frozen=True)
class MeanPooling(_Linear):
    """The weighted mean of each set's tokens.

    Examples
    --------
    >>> from skattn import RaggedArray
    >>> from skattn.pooling import MeanPooling
    >>> MeanPooling().forward({}, RaggedArray.from_list([[[1.0], [3.0]], []]))[0]
    array([[2.],
           [0.]])
    """

    def token_weights(self, tokens):
        """Share of each token in its set's mean, w_i / sum w, (n_tokens,)."""
        if tokens.weights is None:
            return tokens.repeat((1 / np.maximum(tokens.lengths, 1)).astype(tokens.dtype))
        return _weights(tokens) / tokens.repeat(_total(tokens))


@dataclass(frozen=True)
class SumPooling(_Linear):
    """The weighted sum of each set's tokens.

    Examples
    --------
    >>> from skattn import RaggedArray
    >>> from skattn.pooling import SumPooling
    >>> SumPooling().forward({}, RaggedArray.from_list([[[1.0], [3.0]], []]))[0]
    array([[4.],
           [0.]])
    """

    def token_weights(self, tokens):
        """Factor of each token in its set's sum, w_i, (n_tokens,)."""
        return _weights(tokens)


@dataclass(frozen=True)
class MaxPooling(_WithoutParameters):
    """The largest value of each feature in each set.

    The gradient goes to the token with the largest value; tied tokens share it.

    Examples
    --------
    >>> from skattn import RaggedArray
    >>> from skattn.pooling import MaxPooling
    >>> MaxPooling().forward({}, RaggedArray.from_list([[[1.0], [3.0]], [[-2.0]]]))[0]
    array([[ 3.],
           [-2.]])
    """

    keeps_equal_tokens = True

    def n_features_out(self, n_features):
        """Columns of the pooled output."""
        return n_features

    def token_shares(self, params, tokens):
        """Share of each token in each maximum, (n_tokens, k)."""
        return _share_at(tokens, tokens.segment_max())

    def forward(self, params, tokens):
        """Pool token vectors (n_tokens, k) into (n_samples, k)."""
        pooled = tokens.segment_max()
        return pooled, (tokens, pooled)

    def backward(self, params, cache, d_pooled):
        """Gradient of the tokens, (n_tokens, k), and of the parameters, none."""
        tokens, pooled = cache
        return _share_at(tokens, pooled) * tokens.repeat(d_pooled), {}


@dataclass(frozen=True)
class StatsPooling(_WithoutParameters):
    """Mean, standard deviation, minimum and maximum of each feature in each set.

    The standard deviation has the divisor sum w. If it is 0, for example in a set of one token,
    its gradient is 0 too.

    Examples
    --------
    >>> from skattn import RaggedArray
    >>> from skattn.pooling import StatsPooling
    >>> StatsPooling().forward({}, RaggedArray.from_list([[[1.0], [3.0]]]))[0]
    array([[2., 1., 1., 3.]])
    """

    keeps_equal_tokens = True

    def n_features_out(self, n_features):
        """Columns of the pooled output: all means, then deviations, minima and maxima."""
        return 4 * n_features

    def token_shares(self, params, tokens):
        """Share of each token in the mean, (n_tokens, 1)."""
        return MeanPooling().token_shares(params, tokens)

    def forward(self, params, tokens):
        """Pool token vectors (n_tokens, k) into (n_samples, 4 k)."""
        mean, (_, p) = MeanPooling().forward(params, tokens)
        centred = tokens.values - tokens.repeat(mean)
        std = np.sqrt(tokens.with_values(p[:, None] * centred**2).segment_sum())
        low = -tokens.with_values(-tokens.values).segment_max()
        top = tokens.segment_max()
        return np.hstack([mean, std, low, top]), (tokens, p, centred, std, low, top)

    def backward(self, params, cache, d_pooled):
        """Gradient of the tokens, (n_tokens, k), and of the parameters, none."""
        tokens, p, centred, std, low, top = cache
        d_mean, d_std, d_low, d_top = np.split(d_pooled, 4, axis=1)
        round_off = 8 * np.finfo(std.dtype).eps * np.maximum(np.abs(low), np.abs(top))
        slope = np.divide(d_std, std, out=np.zeros_like(std), where=std > round_off)
        d_tokens = p[:, None] * (tokens.repeat(d_mean) + tokens.repeat(slope) * centred)
        d_tokens += _share_at(tokens, low) * tokens.repeat(d_low)
        d_tokens += _share_at(tokens, top) * tokens.repeat(d_top)
        return d_tokens, {}


@dataclass(frozen=True)
class AttentionPooling:
    """A learned query q attends to the tokens of each set: sum_i pi_i z_i.

    pi is the softmax of z_i . q (+ log w_i) over the set. The query starts at zero, which gives
    the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import RaggedArray
    >>> from skattn.pooling import AttentionPooling
    >>> tokens = RaggedArray.from_list([[[0.0], [np.log(3)]]])
    >>> AttentionPooling().forward({"q": np.array([1.0])}, tokens)[0].round(6)
    array([[0.823959]])
    """

    keeps_equal_tokens = True

    def n_features_out(self, n_features):
        """Columns of the pooled output."""
        return n_features

    def shapes(self, n_features):
        """Shapes of the parameters by name."""
        return {"q": (n_features,)}

    def init_params(self, n_features, rng):
        """Parameters to start from."""
        return {"q": np.zeros(n_features)}

    def token_shares(self, params, tokens):
        """Weight pi of each token in its set, (n_tokens, 1)."""
        q = params["q"].astype(tokens.dtype)
        scores = (tokens.values @ q)[:, None]
        if tokens.weights is not None:
            scores = scores + np.log(tokens.weights, dtype=scores.dtype)[:, None]
        scores = tokens.with_values(scores)
        e = np.exp(scores.values - tokens.repeat(scores.segment_max()))
        return e / tokens.repeat(scores.with_values(e).segment_sum())

    def forward(self, params, tokens):
        """Pool token vectors (n_tokens, k) into (n_samples, k)."""
        q, pi = params["q"].astype(tokens.dtype), self.token_shares(params, tokens)
        pooled = tokens.with_values(pi * tokens.values).segment_sum()
        return pooled, (tokens, q, pi, pooled)

    def backward(self, params, cache, d_pooled):
        """Gradient of the tokens, (n_tokens, k), and of the query, {"q": (k,)}."""
        tokens, q, pi, pooled = cache
        d_rows = tokens.repeat(d_pooled)
        # softmax: d_score_i = pi_i (z_i - pooled) . d_pooled
        d_scores = pi[:, 0] * np.einsum("tk,tk->t", tokens.values - tokens.repeat(pooled), d_rows)
        d_tokens = pi * d_rows + d_scores[:, None] * q
        return d_tokens, {"q": d_scores @ tokens.values}


POOLINGS = {
    "mean": MeanPooling,
    "sum": SumPooling,
    "max": MaxPooling,
    "stats": StatsPooling,
    "attention": AttentionPooling,
}


def _weights(tokens):
    """Token weights (n_tokens,), 1 for tokens without weights."""
    if tokens.weights is None:
        return np.ones(tokens.n_tokens, tokens.dtype)
    return tokens.weights.astype(tokens.dtype, copy=False)


def _total(tokens):
    """Sum of each set's token weights, (n_samples,)."""
    if tokens.weights is None:
        return tokens.lengths.astype(tokens.dtype)
    return tokens.with_values(_weights(tokens)[:, None]).segment_sum()[:, 0]


def _share_at(tokens, extreme):
    """The share (n_tokens, k) of each token in the gradient of its set's extreme (n_samples, k).

    Tokens that equal the extreme up to round-off share its gradient by their weights, so that
    neither the order of tied tokens nor their last bit matters.
    """
    slack = 8 * np.finfo(tokens.dtype).eps * np.abs(extreme)
    hit = np.abs(tokens.values - tokens.repeat(extreme)) <= tokens.repeat(slack)
    share = hit * _weights(tokens)[:, None]
    return share / tokens.repeat(tokens.with_values(share).segment_sum())
