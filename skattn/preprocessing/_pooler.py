"""Plain statistics of each set's tokens."""

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from .._input import read_sets, refuse_empty_sets
from .._output import RaggedOutputMixin
from .._parameters import checked
from .._sets import Sets
from ..pooling import MaxPooling, MeanPooling, StatsPooling, SumPooling
from ..ragged import RaggedArray
from ._names import of_token_features

POOLED_AT_ONCE = 2**18  # numbers in a block of sets, so that it fits in cache


def _pooled(pooling, sets):
    return pooling.forward({}, sets)[0]


def _count(sets):
    weights = np.ones(sets.n_tokens) if sets.weights is None else sets.weights
    return sets.with_values(weights[:, None]).segment_sum()


def _std(sets):
    """Standard deviations; values are scaled by powers of two, so that no square overflows."""
    _, exponents = np.frexp(sets.with_values(np.abs(sets.values)).segment_max())
    scaled = sets.with_values(np.ldexp(sets.values, -sets.repeat(exponents)))
    return np.ldexp(np.split(_pooled(StatsPooling(), scaled), 4, axis=1)[1], exponents)


# Each maps sets of one length n > 0 to one row per set.
STATISTICS = {
    "mean": lambda sets: _pooled(MeanPooling(), sets),
    "std": _std,
    "min": lambda sets: -_pooled(MaxPooling(), sets.with_values(-sets.values)),
    "max": lambda sets: _pooled(MaxPooling(), sets),
    "sum": lambda sets: _pooled(SumPooling(), sets),
    "median": lambda sets: _quantile(sets, 0.5),
    "count": _count,
}


class SetPooler(OneToOneFeatureMixin, RaggedOutputMixin, BaseEstimator):
    """Statistics of each set's tokens, feature by feature: a plain vector per set.

    Nothing is learned. Use it as a baseline for attention, or beside attention in a FeatureUnion.
    For one-hot items, for instance of baskets, ``("sum", "count")`` holds the information of all
    other statistics (see Notes).

    Parameters
    ----------
    statistics : tuple or list, default=("mean", "std", "min", "max", "count")
        The statistics in the order of the output's columns: any of ``"mean"``, ``"std"``,
        ``"min"``, ``"max"``, ``"sum"``, ``"median"`` and ``"count"``, and numbers between 0 and 1
        for quantiles. Each statistic has one column per feature, but ``"count"``, the number of
        tokens, has one column.
    empty : {"zeros", "nan", "error"}, default="zeros"
        The row of a set without tokens: zeros; NaN, except for sum and count, which are 0; or a
        ValueError.

    Attributes
    ----------
    n_features_in_ : int
        Number of features of a token.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the token features, if X in `fit` had names.

    Raises
    ------
    TypeError, ValueError
        If a parameter or the data is not as described. The message names what is needed.

    See Also
    --------
    AttentionContextualizer : Learn a vector per set from interacting tokens.
    as_ragged : All forms of X.

    Notes
    -----
    The standard deviation has the divisor n; it is 0 for one token. The q-quantile is the
    smallest value v with at least a share q of the tokens at or below it. If the share is exactly
    q, it is the mean of v and the next larger value. This is the usual median;
    ``numpy.quantile`` calls the method ``"averaged_inverted_cdf"``.

    For one-hot items the sum counts each item, and sum and count determine all other statistics:
    the mean is ``sum / count``, the standard deviation the root of ``mean (1 - mean)``; the
    maximum is 1 if the item occurs, the minimum is 1 if no other item occurs. The default takes
    four times as many columns for the same information.

    A token of weight w in a RaggedArray counts w times in every statistic; a token of weight 0
    does not count.

    O(n_tokens n_features) time, with quantiles O(n_tokens n_features log n) for sets of n tokens.
    Sets of one length are pooled together, always in float64, so that the result of a set does
    not depend on other sets.

    Examples
    --------
    >>> from skattn.preprocessing import SetPooler
    >>> X = [[[1.0, 10.0], [3.0, 20.0]], [], [[5.0, 30.0]]]
    >>> pooler = SetPooler(statistics=("mean", "std", 0.9, "count"))
    >>> pooler.fit_transform(X)
    array([[ 2., 15.,  1.,  5.,  3., 20.,  2.],
           [ 0.,  0.,  0.,  0.,  0.,  0.,  0.],
           [ 5., 30.,  0.,  0.,  5., 30.,  1.]])
    >>> pooler.get_feature_names_out().tolist()
    ['mean_x0', 'mean_x1', 'std_x0', 'std_x1', 'q0.9_x0', 'q0.9_x1', 'count']

    Baskets of items 0 to 2, one-hot:

    >>> import numpy as np
    >>> items = np.eye(3)
    >>> SetPooler(("sum", "count")).fit_transform([items[[0, 2, 0]], items[[1]]])
    array([[2., 0., 1., 3.],
           [0., 1., 0., 1.]])
    """

    def __init__(self, statistics=("mean", "std", "min", "max", "count"), *, empty="zeros"):
        self.statistics = statistics
        self.empty = empty

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X, y=None):
        """Check the parameters and store the number and names of the token features.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads.
        y : None, default=None
            Not used.

        Returns
        -------
        self : SetPooler
            The fitted pooler.
        """
        self._check_parameters()
        self._read(X, reset=True)
        return self

    def transform(self, X):
        """Pool each set's tokens into one vector.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            One column per statistic and token feature, statistic by statistic; one column for
            ``"count"``. Float32 for float32 tokens, else float64.
        """
        check_is_fitted(self, "n_features_in_")
        X = self._read(X, reset=False)
        widths = [1 if s == "count" else X.n_features for s in self.statistics]
        stops = np.cumsum(widths)
        out = np.zeros((len(X), stops[-1]), X.dtype)
        for sets, rows, (b, n), *_ in Sets.of(X).equal_length_chunks(
            lambda n, _: POOLED_AT_ONCE // max(1, n * X.n_features)
        ):
            weights = None if X.weights is None else X.weights[rows].reshape(b, n)
            values = X.values[rows].astype(np.float64, copy=False).reshape(b, n, X.n_features)
            block = RaggedArray.from_block(values, weights)
            for statistic, stop, width in zip(self.statistics, stops, widths, strict=True):
                columns = slice(stop - width, stop)
                if n > 0:
                    pool = STATISTICS.get(statistic)
                    out[sets, columns] = pool(block) if pool else _quantile(block, statistic)
                elif self.empty == "nan" and statistic not in ("sum", "count"):
                    out[sets, columns] = np.nan
        return out

    def get_feature_names_out(self, input_features=None):
        """Names of the output columns: ``mean_x0``, ``q0.25_x0``, ``count``.

        Parameters
        ----------
        input_features : array-like of str of shape (n_features_in_,), default=None
            Names of the token features. If `feature_names_in_` exists, they must equal it. None
            stands for `feature_names_in_` or else ``x0, x1, ...``. The name of a column of sets
            is not used, unless tokens have one feature.

        Returns
        -------
        ndarray of str of shape (n_features_out,)
            One name per column.
        """
        check_is_fitted(self, "n_features_in_")
        features = super().get_feature_names_out(of_token_features(self, input_features))
        names = []
        for statistic in self.statistics:
            label = statistic if isinstance(statistic, str) else f"q{float(statistic)!r}"
            names += ["count"] if label == "count" else [f"{label}_{name}" for name in features]
        return np.array(names, dtype=object)

    def _check_parameters(self):
        """Raise an error that names an invalid parameter."""
        known = f"{list(STATISTICS)} or a number between 0 and 1 for a quantile"
        if not isinstance(self.statistics, (tuple, list)):
            raise TypeError(
                f"statistics must be a tuple or list of {known}, but is {self.statistics!r}."
            )
        if not self.statistics:
            raise ValueError(f"statistics is empty; give at least one of {known}.")
        for statistic in self.statistics:
            if isinstance(statistic, (float, np.floating)):
                if not 0 < statistic < 1:
                    raise ValueError(
                        f"The quantile {statistic!r} in statistics must be between 0 and 1. Use "
                        "'min' and 'max' for the extremes."
                    )
            elif not isinstance(statistic, str) or statistic not in STATISTICS:
                raise ValueError(f"statistics has {statistic!r}, but each must be one of {known}.")
        if len(set(self.statistics)) < len(self.statistics):
            raise ValueError(f"statistics has an entry twice: {self.statistics!r}.")
        checked(self)

    def _read(self, X, *, reset):
        """The sets, checked, without the tokens of weight 0."""
        X = read_sets(self, X, reset=reset).drop_zero_weights()
        if self.empty == "error":
            refuse_empty_sets(Sets.of(X))
        return X


def _quantile(sets, q):
    """The q-quantile of each feature in sets of one length, (b, n_features).

    It is the sorted value at which the cumulative weight reaches the share q. If the cumulative
    weight equals q to round-off, it is the mean of that value and the next.
    """
    b, n, d = len(sets), int(sets.lengths[0]), sets.n_features
    values = sets.values.reshape(b, n, d)
    if sets.weights is None:
        values = np.sort(values, axis=1)
        reached = np.arange(1.0, n + 1)[None, :, None]  # (1, n, 1)
    else:
        order = np.argsort(values, axis=1, kind="stable")
        values = np.take_along_axis(values, order, axis=1)
        weights = sets.weights.astype(np.float64, copy=False).reshape(b, n, 1)
        reached = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)  # (b, n, d)
    total = reached[:, -1:]
    slack = 4 * n * np.finfo(np.float64).eps * total  # exceeds the round-off of the cumulative sums
    lower = np.sum(reached < q * total - slack, axis=1, keepdims=True)
    upper = np.sum(reached <= q * total + slack, axis=1, keepdims=True)
    low, high = (np.take_along_axis(values, np.minimum(k, n - 1), axis=1) for k in (lower, upper))
    return (0.5 * low + 0.5 * high)[:, 0]
