"""Plain statistics of each set's tokens."""

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from .._input import EMPTY, read_sets, refuse_empty_sets
from .._output import RaggedOutputMixin
from ..pooling import MaxPooling, MeanPooling, StatsPooling, SumPooling
from ..ragged import RaggedArray
from ._names import of_token_features

POOLED_AT_ONCE = 2**18  # numbers of a block of sets, which then stays in cache


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


# From sets of one length, of n > 0 tokens each, to one row per set.
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

    Nothing is learned. It is the baseline to compare attention with, and a good companion of
    it in a FeatureUnion. For one-hot items, as of baskets, ``("sum", "count")`` says all
    that the other statistics would (see Notes).

    Parameters
    ----------
    statistics : tuple or list, default=("mean", "std", "min", "max", "count")
        Which, in the order of the output's columns: any of ``"mean"``, ``"std"``, ``"min"``,
        ``"max"``, ``"sum"``, ``"median"`` and ``"count"``, and a number between 0 and 1 for that
        quantile. All features of the first come first; ``"count"``, the number of tokens, is
        one column.
    empty : {"zeros", "nan", "error"}, default="zeros"
        What a set without tokens gives: a row of zeros; NaN in all but its sum and its count,
        which are 0; or a ValueError.

    Attributes
    ----------
    n_features_in_ : int
        Number of features of a token.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where `fit` was given a frame of numbers.

    Raises
    ------
    TypeError, ValueError
        If a parameter or the data is not as described; the message says what is needed.

    See Also
    --------
    AttentionContextualizer : Learned vectors of sets whose tokens interact.
    as_ragged : What X may be.

    Notes
    -----
    The standard deviation is that of the set itself, with divisor n: 0 for one token. The
    q-quantile is the least value v with a share of at least q of the tokens at or below it, or
    the mean of v and the next value where the share is q exactly: the median is the usual one,
    and ``numpy.quantile`` calls it ``"averaged_inverted_cdf"``.

    Of one-hot items the sum says how many of each there are, and with the count all other
    statistics follow from it: the mean is ``sum / count``, the standard deviation the root of
    ``mean (1 - mean)``, the largest value whether the item is there, the least whether there is no
    other. The default takes four times the columns to say so.

    Token weights w of a RaggedArray count a token w times in every statistic, and a token of
    weight 0 is as good as absent.

    O(n_tokens n_features) time, with quantiles O(n_tokens n_features log n) for sets of n tokens.
    Sets of one length are pooled together, in float64 whatever X is, so that a set's numbers
    depend on no other set.

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
        """Check the parameters, and take note of the tokens' features.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads.
        y : None, default=None
            Not used.

        Returns
        -------
        self : SetPooler
            Fitted.
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
            For each statistic in turn, one column per feature of a token, or one for
            ``"count"``. Float32 for float32 tokens, else float64.
        """
        check_is_fitted(self, "n_features_in_")
        X = self._read(X, reset=False)
        widths = [1 if s == "count" else X.n_features for s in self.statistics]
        stops = np.cumsum(widths)
        out = np.zeros((len(X), stops[-1]), X.dtype)
        for sets, rows, (b, n) in X.equal_length_chunks(
            lambda n: POOLED_AT_ONCE // max(1, n * X.n_features)
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
            Names of the token features: `feature_names_in_` where there are such names, which
            these must then equal, else ``x0, x1, ...``. The one name of a column of sets is not
            used, unless tokens have one feature.

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
        """Refuse parameters that mean nothing, naming each."""
        known = f"{list(STATISTICS)} or a number between 0 and 1, which is that quantile"
        if not isinstance(self.statistics, (tuple, list)):
            raise TypeError(
                f"statistics must be a tuple or list, each of {known}, but is {self.statistics!r}."
            )
        if not self.statistics:
            raise ValueError(f"statistics is empty; give at least one of {known}.")
        for statistic in self.statistics:
            if isinstance(statistic, (float, np.floating)):
                if not 0 < statistic < 1:
                    raise ValueError(
                        f"The quantile {statistic!r} in statistics is not between 0 and 1; the "
                        "extremes are 'min' and 'max'."
                    )
            elif not isinstance(statistic, str) or statistic not in STATISTICS:
                raise ValueError(f"statistics has {statistic!r}, but each must be one of {known}.")
        if len(set(self.statistics)) < len(self.statistics):
            raise ValueError(f"statistics names one of them twice: {self.statistics!r}.")
        if not isinstance(self.empty, str) or self.empty not in EMPTY:
            raise ValueError(f"empty must be one of {list(EMPTY)}, but is {self.empty!r}.")

    def _read(self, X, *, reset):
        """Sets ready to be pooled: checked, without the tokens of weight 0."""
        X = read_sets(self, X, reset=reset).drop_zero_weights()
        if self.empty == "error":
            refuse_empty_sets(X)
        return X


def _quantile(sets, q):
    """The q-quantile of each feature in sets of one length, (b, n_features).

    Of the ordered values, the one at which the running weight reaches the share q; where it
    stops at q to round-off, the mean of that value and the next. Whole weights are repeats.
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
    slack = 4 * n * np.finfo(np.float64).eps * total  # more than the running sums can err
    lower = np.sum(reached < q * total - slack, axis=1, keepdims=True)
    upper = np.sum(reached <= q * total + slack, axis=1, keepdims=True)
    low, high = (np.take_along_axis(values, np.minimum(k, n - 1), axis=1) for k in (lower, upper))
    return (0.5 * low + 0.5 * high)[:, 0]
