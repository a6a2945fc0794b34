"""Mixtures of members' predictions, the last step of a stack."""

from numbers import Real

import numpy as np
from scipy.optimize import nnls
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._documented import with_parameters_of

PRIOR = 0.3  # samples in favour of equal shares, for each member
FLOOR = 1e-6  # of a probability, or one label that a member rules out would remove that member
ROUNDING = 1e-6  # by which a probability may be out of range
MAX_STEPS = 1000  # of expectation maximisation


class _Mixture(BaseEstimator):
    def __init__(self, prior=PRIOR):
        self.prior = prior

    def _check_prior(self):
        if not (isinstance(self.prior, Real) and 0 <= self.prior < np.inf):
            raise ValueError(
                f"prior must be a number, 0 or more and finite, but is {self.prior!r}."
            )


class MixtureClassifier(ClassifierMixin, _Mixture):
    """Mixture of members' class probabilities: sum_k share_k p_k(class), the last step of a stack.

    The shares are 0 or more and sum to 1. They maximise the log-likelihood of the labels plus
    ``prior sum_k log share_k``.

    Parameters
    ----------
    prior : float, default=0.3
        Weight of the prior in favour of equal shares, in samples per member; 0 or more.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    shares_ : ndarray of shape (n_members,)
        Share of each member, in the order of the columns.
    n_features_in_ : int
        Number of columns.

    Raises
    ------
    ValueError
        If a column holds no probabilities, or a member lacks a column for some class.

    See Also
    --------
    MixtureRegressor : The same for numbers.
    member_shares : The shares of a stack by name.
    sklearn.ensemble.StackingClassifier : The stack, which passes out-of-fold probabilities to it.

    Notes
    -----
    The objective is concave in the shares, so expectation maximisation finds its maximum from any
    start. A step takes O(n_samples n_members) time; there are at most a thousand steps.

    References
    ----------
    .. [1] Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM
       algorithm", Journal of the Royal Statistical Society B 39, 1977.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.pipelines import MixtureClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=100)
    >>> knows, guesses = 0.1 + 0.8 * y, rng.uniform(size=100)
    >>> model = MixtureClassifier().fit(np.column_stack([knows, guesses]), y)
    >>> model.shares_.round(2)
    array([0.99, 0.01])
    """

    def fit(self, X, y):
        """Find the shares.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members * n_classes)
            Members' probabilities side by side; for two classes one column per member, of the
            second class.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        self : MixtureClassifier
            Fitted.
        """
        self._check_prior()
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, encoded = np.unique(y, return_inverse=True)
        members = self._members(X)  # (n_samples, n_members, n_classes)
        likelihood = np.maximum(members[np.arange(len(encoded)), :, encoded], FLOOR)
        n_members = likelihood.shape[1]
        shares = np.full(n_members, 1 / n_members)
        for _ in range(MAX_STEPS):
            counts = shares * (likelihood.T @ (1 / (likelihood @ shares))) + self.prior
            previous, shares = shares, counts / counts.sum()
            if np.abs(shares - previous).max() < 1e-6:
                break
        self.shares_ = shares
        return self

    def predict_proba(self, X):
        """Mixed probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members * n_classes)
            Members' probabilities, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probability of each class.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mixed = np.einsum("nkc,k->nc", self._members(X), self.shares_)
        return np.minimum(mixed, 1.0)  # rounding may take it above 1

    def predict(self, X):
        """Most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members * n_classes)
            Members' probabilities, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels.
        """
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _members(self, X):
        """Probabilities of each class by each member, (n_samples, n_members, n_classes)."""
        if X.min() < -ROUNDING or X.max() > 1 + ROUNDING:
            raise ValueError(
                f"X must hold probabilities, but has values from {X.min():g} to {X.max():g}: "
                f"{type(self).__name__} mixes the output of predict_proba. In a "
                "StackingClassifier all members need that method, and passthrough must be False."
            )
        X = np.clip(X, 0.0, 1.0)
        n_classes = len(self.classes_)
        if n_classes == 2:
            return np.stack([1 - X, X], axis=-1)
        if X.shape[1] % n_classes:
            raise ValueError(
                f"X has {X.shape[1]} columns, but there are {n_classes} classes: each member must "
                "give a probability for each of them."
            )
        return X.reshape(len(X), -1, n_classes)


@with_parameters_of(MixtureClassifier)
class MixtureRegressor(RegressorMixin, _Mixture):
    """Mixture of members' predictions: sum_k share_k f_k, the last step of a stack.

    The shares are 0 or more and sum to 1. They minimise the squared error plus a penalty: the
    squared distance from equal shares, times ``prior n_members^2``, times the best member's mean
    squared error.

    Attributes
    ----------
    shares_ : ndarray of shape (n_members,)
        Share of each member, in the order of the columns.
    n_features_in_ : int
        Number of members.

    See Also
    --------
    MixtureClassifier : The same for labels.
    member_shares : The shares of a stack by name.
    sklearn.ensemble.StackingRegressor : The stack, which passes out-of-fold predictions to it.

    Notes
    -----
    If the best member's error is taken as the variance of the noise, this prior equals that of
    :class:`MixtureClassifier` to second order. The problem is one of non-negative least squares,
    solved in O(n_samples n_members^2) time.

    References
    ----------
    .. [1] Breiman, "Stacked regressions", Machine Learning 24, 1996.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.pipelines import MixtureRegressor
    >>> y = np.linspace(0, 1, 200)
    >>> too_low, too_high = y - 0.1, y + 0.3
    >>> model = MixtureRegressor(prior=0.0).fit(np.column_stack([too_low, too_high]), y)
    >>> model.shares_.round(2)
    array([0.75, 0.25])
    """

    def fit(self, X, y):
        """Find the shares.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members)
            Members' predictions side by side.
        y : array-like of shape (n_samples,)
            Targets.

        Returns
        -------
        self : MixtureRegressor
            Fitted.
        """
        self._check_prior()
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        n_members = X.shape[1]
        from_equal = np.eye(n_members) - 1 / n_members  # times the shares: their distance from 1/K
        errors = X - y[:, None]  # times the shares: the error of the mixture, as they sum to 1
        squared = np.mean(errors**2, axis=0)
        noise = squared.min() or 1e-14 * squared.max() or 1.0  # above 0 for a perfect member too
        # The objective is |A shares|^2 over shares that sum to 1. Its minimiser is u / sum(u) for
        # the u >= 0 that minimises |A u|^2 + n (1 - sum_k u_k)^2, whatever n: no weight is large.
        A = np.vstack([errors / np.sqrt(noise), n_members * np.sqrt(self.prior) * from_equal])
        rows = np.vstack([A, np.full(n_members, np.sqrt(len(y)))])
        sizes = np.linalg.norm(rows, axis=0)  # nnls gets columns of norm 1
        u, _ = nnls(rows / sizes, np.append(np.zeros(len(A)), np.sqrt(len(y))))
        self.shares_ = u / sizes / np.sum(u / sizes)
        return self

    def predict(self, X):
        """Mixed predictions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members)
            Members' predictions.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predictions.
        """
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False) @ self.shares_
