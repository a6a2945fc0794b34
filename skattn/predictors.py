"""AttentionClassifier and AttentionRegressor: the contextualizer with its head as a predictor."""

import itertools

import numpy as np
from scipy.special import expit, log_softmax, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from ._documented import with_parameters_of
from ._input import read_sets_in_context
from ._network import LinearHead
from ._targets import is_per_token, scored_tokens
from .contextualizer import AttentionContextualizer
from .losses import LOSSES

__all__ = ["AttentionClassifier", "AttentionRegressor"]


class _Predictor(AttentionContextualizer):
    """What both predictors add to the contextualizer."""

    _learns_without_y = False

    def _checked(self):
        settings = super()._checked()
        allowed = [
            name for name, loss in LOSSES.items() if loss.is_classifier == self._is_classifier
        ]
        loss = settings.loss
        fits = (
            loss in ("auto", *allowed)
            if isinstance(loss, str)
            else (loss.is_classifier == self._is_classifier)
        )
        if not fits:
            raise ValueError(
                f"{type(self).__name__} needs a loss out of {['auto', *allowed]}, but got {loss!r}."
            )
        return settings

    def _predicted(self, X, of_raw):
        """`of_raw` of the head's output (n_samples, n_outputs); an empty set is pooled to zeros.

        With a target per token the head's output is (n_tokens, n_outputs), and the result a list of
        one array per set.
        """
        check_is_fitted(self, "coef_")
        if not self._task_.per_token:
            return of_raw(self._raw(self._pooled(self._read(X))))
        tokens = self.contextualize(X)
        out = of_raw(self._raw(tokens.values))
        return [out[a:b] for a, b in itertools.pairwise(tokens.offsets)]

    def _raw(self, pooled):
        """Raw predictions (n, n_outputs) from the vectors that the head reads."""
        return LinearHead(len(self.coef_)).forward(self._head(), pooled)[0]

    def _token_score(self, metric, X, y, sample_weight):
        """A metric over all scored tokens, weighted as in `fit`."""
        if not is_per_token(y):
            raise ValueError(
                f"This {type(self).__name__} was fitted with a target per token: y must hold one "
                "array per set, with one target per token."
            )
        sets = read_sets_in_context(self, X, reset=False)
        truth, rows, weight = scored_tokens(y, sample_weight, sets.queries)
        counts = sets.queries.drop_zero_weights().weights
        if counts is not None:
            weight = weight * counts[rows]
        predicted = np.concatenate(self.predict(sets.as_data()))
        return metric(truth, predicted[rows], sample_weight=weight)


@with_parameters_of(AttentionContextualizer)
class AttentionClassifier(ClassifierMixin, _Predictor):
    """Classify sets by attention, pooling and a linear head, all learned together.

    The model is that of :class:`~skattn.AttentionContextualizer`, with the same fitted attributes
    and with its `transform`, `contextualize` and `attention_weights`.

    Parameters
    ----------
    loss : {"auto", "log_loss"}, default="auto"
        Both are the logistic loss, for any dtype of y.

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
        If y holds only one class, is continuous, or is an object array of labels per set that are
        not text. scikit-learn's classifiers refuse the same.

    See Also
    --------
    AttentionContextualizer : The same model as a transformer.
    AttentionRegressor : The same model for numbers.

    Notes
    -----
    With ``pooling=None`` and a label per token, every method gives a list, one array per set, and
    `score` is the accuracy over the tokens that have a label. Give `scoring` any other metric of
    tokens as a function::

        def token_f1(model, X, y):
            truth, predicted = np.concatenate(y), np.concatenate(model.predict(X))
            has_label = ~pandas.isna(truth)
            return f1_score(truth[has_label].astype(predicted.dtype), predicted[has_label])

    scikit-learn does not stratify by labels per token. ``cross_val_predict`` can join the lists
    only if all sets have the same length.

    Examples
    --------
    >>> from skattn import AttentionClassifier
    >>> from skattn.datasets import make_lookup
    >>> X, y = make_lookup(500, random_state=0)
    >>> model = AttentionClassifier(n_heads=1, random_state=0).fit(X, y)
    >>> X_test, y_test = make_lookup(1000, random_state=1)
    >>> model.score(X_test, y_test) > 0.95
    True

    A label for every token, here whether the set holds it twice; None is not scored:

    >>> X = [[[0], [1], [1]], [[2], [2]], [[1], [3], [2]], [[3], [0]], [[3], [0], [3], [1]]]
    >>> y = [[0, 1, 1], [1, 1], [0, 0, 0], [0, None], [1, 0, 1, 0]]
    >>> model = AttentionClassifier(pooling=None, random_state=0).fit(X, y)
    >>> model.predict([[[1], [0], [1]]])
    [array([1, 0, 1])]
    """

    _is_classifier = True

    def _plain(self, y):
        array = super()._plain(y)
        is_boxed = y is not None and np.asarray(y).dtype == object and array.dtype != object
        if is_boxed and type_of_target(y) == "unknown":  # other cases: pandas' nullable types
            raise ValueError(
                f"Unknown label type: y is an object array of {array.dtype}. scikit-learn cannot "
                "stratify or score by an object array of labels that are not text: pass "
                f"y.astype({array.dtype.name!r})."
            )
        return array

    def _loss_for(self, y):
        return "log_loss"

    def decision_function(self, X):
        """Raw prediction of each class; with two classes, of the second only.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or sets with contexts as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Log-odds for two classes, else log-probabilities up to a constant. If `fit` had a label
            per token, a list of one array per set, one row per token.
        """
        return self._predicted(X, lambda raw: raw[:, 0] if raw.shape[1] == 1 else raw)

    def predict_proba(self, X):
        """Probability of each class.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or sets with contexts as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Rows sum to 1; columns in the order of `classes_`. If `fit` had a label per token, a
            list of one array per set, one row per token.
        """

        def probabilities(raw):
            if raw.shape[1] == 1:
                return np.hstack([expit(-raw), expit(raw)])
            return softmax(raw, axis=1)

        return self._predicted(X, probabilities)

    def predict_log_proba(self, X):
        """Logarithm of the probability of each class.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or sets with contexts as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`. If `fit` had a label per token, a list of one array
            per set, one row per token.
        """

        def log_probabilities(raw):
            if raw.shape[1] == 1:
                return -np.logaddexp(0, np.hstack([raw, -raw]))
            return log_softmax(raw, axis=1)

        return self._predicted(X, log_probabilities)

    def predict(self, X):
        """Most probable class.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or sets with contexts as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels as in y. If `fit` had one per token, a list of arrays of shape (n_tokens,).
        """

        def labels(raw):
            index = (raw[:, 0] > 0).astype(int) if raw.shape[1] == 1 else raw.argmax(axis=1)
            return self.classes_[index]

        return self._predicted(X, labels)

    def score(self, X, y, sample_weight=None):
        """Accuracy over sets, or over all scored tokens if labels are per token.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or sets with contexts as in `fit`.
        y : array-like of shape (n_samples,), or container of arrays of shape (n_tokens,)
            Labels as in `fit`; a token whose label is missing is not scored.
        sample_weight : array-like of shape (n_samples,), or container of arrays, default=None
            Weights as in `fit`.

        Returns
        -------
        float
            Weighted share of correct labels.
        """
        check_is_fitted(self, "coef_")
        if self._task_.per_token:
            return self._token_score(accuracy_score, X, y, sample_weight)
        return super().score(X, y, sample_weight)


@with_parameters_of(AttentionContextualizer)
class AttentionRegressor(RegressorMixin, _Predictor):
    """Predict numbers from sets by attention, pooling and a linear head, all learned together.

    The model is that of :class:`~skattn.AttentionContextualizer`, with the same fitted attributes
    and with its `transform`, `contextualize` and `attention_weights`.

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
        Weights of the head, in units of y; for "poisson" and "gamma" in units of its logarithm.
    intercept_ : ndarray of shape (n_outputs,)
        Bias of the head.

    Raises
    ------
    ValueError
        If y is outside the domain of the loss.

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
            Anything that :func:`skattn.as_ragged` reads, or sets with contexts as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            In units of y, with as many axes as y had in `fit`. If `fit` had targets per token, a
            list of one array per set, one row per token.
        """
        return self._predicted(X, lambda raw: self._task_.predict(raw))

    def score(self, X, y, sample_weight=None):
        """R squared over sets, or over all scored tokens if targets are per token.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or sets with contexts as in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or container of arrays
            Numbers as in `fit`; a token whose target is missing is not scored.
        sample_weight : array-like of shape (n_samples,), or container of arrays, default=None
            Weights as in `fit`.

        Returns
        -------
        float
            Coefficient of determination, averaged over outputs.
        """
        check_is_fitted(self, "coef_")
        if self._task_.per_token:
            return self._token_score(r2_score, X, y, sample_weight)
        return super().score(X, y, sample_weight)
