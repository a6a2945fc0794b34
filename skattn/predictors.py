"""The model of AttentionContextualizer with its head kept: a classifier and a regressor of sets."""

import numpy as np
from scipy.special import expit, log_softmax, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ._documented import with_parameters_of
from .contextualizer import AttentionContextualizer
from .losses import LOSSES

__all__ = ["AttentionClassifier", "AttentionRegressor"]


class _Predictor(AttentionContextualizer):
    """What both have beside the contextualizer."""

    def _check_parameters(self):
        super()._check_parameters()
        allowed = [
            name for name, loss in LOSSES.items() if loss.is_classifier == self._is_classifier
        ]
        if self.loss not in ("auto", *allowed):
            raise ValueError(
                f"{type(self).__name__} has loss one of {['auto', *allowed]}, but is given "
                f"{self.loss!r}."
            )

    def _raw_prediction(self, X):
        """Output of the linear head, (n_samples, n_outputs); of zeros for a set of no tokens."""
        check_is_fitted(self, "coef_")
        return self._pool(self._read(X, reset=False)) @ self.coef_.T + self.intercept_


@with_parameters_of(AttentionContextualizer)
class AttentionClassifier(ClassifierMixin, _Predictor):
    """Classify sets by attention, pooling and a linear head, all learned together.

    The model is that of :class:`~skattn.AttentionContextualizer`; it has that class's fitted
    attributes and its `transform`, `contextualize` and `attention_weights` too.

    Parameters
    ----------
    loss : {"auto", "log_loss"}, default="auto"
        Both are the logistic loss, whatever the dtype of y.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    coef_ : ndarray of shape (n_outputs, n_features_out)
        Weights of the head; one row for two classes.
    intercept_ : ndarray of shape (n_outputs,)
        Bias of the head.

    Raises
    ------
    ValueError
        If y holds one class only, or is continuous.

    See Also
    --------
    AttentionContextualizer : The same model as a transformer.
    AttentionRegressor : The same model for numbers.

    Examples
    --------
    >>> from skattn import AttentionClassifier
    >>> from skattn.datasets import make_lookup
    >>> X, y = make_lookup(500, random_state=0)
    >>> model = AttentionClassifier(n_heads=1, random_state=0).fit(X, y)
    >>> X_test, y_test = make_lookup(1000, random_state=1)
    >>> model.score(X_test, y_test) > 0.95
    True
    """

    _is_classifier = True

    def _loss_for(self, y):
        return "log_loss"

    def decision_function(self, X):
        """Raw prediction of each class; of the second one where there are two.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Log-odds for two classes, else log-probabilities up to a constant.
        """
        raw = self._raw_prediction(X)
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def predict_proba(self, X):
        """Probability of each class.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Rows sum to 1; columns in the order of `classes_`.
        """
        raw = self._raw_prediction(X)
        if raw.shape[1] == 1:
            return np.hstack([expit(-raw), expit(raw)])
        return softmax(raw, axis=1)

    def predict_log_proba(self, X):
        """Logarithm of the probability of each class.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        raw = self._raw_prediction(X)
        if raw.shape[1] == 1:
            return -np.logaddexp(0, np.hstack([raw, -raw]))
        return log_softmax(raw, axis=1)

    def predict(self, X):
        """Most probable class.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels as in y.
        """
        raw = self._raw_prediction(X)
        index = (raw[:, 0] > 0).astype(int) if raw.shape[1] == 1 else raw.argmax(axis=1)
        return self.classes_[index]


@with_parameters_of(AttentionContextualizer)
class AttentionRegressor(RegressorMixin, _Predictor):
    """Predict numbers from sets by attention, pooling and a linear head, all learned together.

    The model is that of :class:`~skattn.AttentionContextualizer`; it has that class's fitted
    attributes and its `transform`, `contextualize` and `attention_weights` too.

    Parameters
    ----------
    loss : {"auto", "squared_error", "huber", "poisson", "gamma"}, default="auto"
        ``"auto"`` is the squared error, for integers too. ``"poisson"`` and ``"gamma"`` have a
        logarithmic link.
    class_weight : None, default=None
        Not used: there are no classes.

    Attributes
    ----------
    coef_ : ndarray of shape (n_outputs, n_features_out)
        Weights of the head, in units of y; of its logarithm for "poisson" and "gamma".
    intercept_ : ndarray of shape (n_outputs,)
        Bias of the head.

    Raises
    ------
    ValueError
        If y is outside of the domain of the loss.

    See Also
    --------
    AttentionContextualizer : The same model as a transformer.
    AttentionClassifier : The same model for labels.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import AttentionRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(n, 3)) for n in rng.integers(1, 9, size=200)]
    >>> y = np.array([tokens[:, 0].mean() for tokens in X])
    >>> model = AttentionRegressor(n_heads=1, alpha=1e-2, tol=1e-3, random_state=0)
    >>> model.fit(X[:150], y[:150]).score(X[150:], y[150:]) > 0.9
    True
    """

    _is_classifier = False

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _loss_for(self, y):
        return "squared_error"

    def predict(self, X):
        """Predicted numbers.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            In units of y, with as many axes as y had in `fit`.
        """
        raw = self._raw_prediction(X)
        prediction = self._loss.inverse_link(raw)
        return prediction[:, 0] if self._y_ndim == 1 else prediction
