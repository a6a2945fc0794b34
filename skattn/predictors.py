"""The model of AttentionContextualizer with its head kept: a classifier and a regressor of sets."""

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
    """What both have beside the contextualizer."""

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
                f"{type(self).__name__} has loss one of {['auto', *allowed]}, but is given "
                f"{loss!r}."
            )
        return settings

    def _predicted(self, X, of_raw):
        """`of_raw` of the head's output, (n_samples, n_outputs) there, zeros in for an empty set.

        With a target per token (n_tokens, n_outputs), and a list of what it gives for each set.
        """
        check_is_fitted(self, "coef_")
        if not self._task_.per_token:
            return of_raw(self._raw(self._pooled(self._read(X))))
        tokens = self.contextualize(X)
        out = of_raw(self._raw(tokens.values))
        return [out[a:b] for a, b in itertools.pairwise(tokens.offsets)]

    def _raw(self, pooled):
        """Raw predictions (n, n_outputs) of what the head reads."""
        return LinearHead(len(self.coef_)).forward(self._head(), pooled)[0]

    def _token_score(self, metric, X, y, sample_weight):
        """A metric over all tokens that are scored, each weighted as in `fit`."""
        if not is_per_token(y):
            raise ValueError(
                f"This {type(self).__name__} was fitted with a target per token: y must hold an "
                "array of as many targets as it has tokens for each set."
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
        If y holds one class only, is continuous, or is an object array of one label per set that
        are no text: scikit-learn's classifiers refuse the same.

    See Also
    --------
    AttentionContextualizer : The same model as a transformer.
    AttentionRegressor : The same model for numbers.

    Notes
    -----
    With ``pooling=None`` and a label per token, every method gives a list, one array per set, and
    `score` is the accuracy over the tokens that have a label. Any other metric of tokens goes
    into `scoring` as a function::

        def token_f1(model, X, y):
            truth, said = np.concatenate(y), np.concatenate(model.predict(X))
            has_label = ~pandas.isna(truth)
            return f1_score(truth[has_label].astype(said.dtype), said[has_label])

    scikit-learn splits such a y without stratification. ``cross_val_predict`` does not join such
    lists, unless all sets are of one length.

    Examples
    --------
    >>> from skattn import AttentionClassifier
    >>> from skattn.datasets import make_lookup
    >>> X, y = make_lookup(500, random_state=0)
    >>> model = AttentionClassifier(n_heads=1, random_state=0).fit(X, y)
    >>> X_test, y_test = make_lookup(1000, random_state=1)
    >>> model.score(X_test, y_test) > 0.95
    True

    A label for every token, here whether it repeats another of its set; None is not scored:

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
        if is_boxed and type_of_target(y) == "unknown":  # else of pandas' nullable types
            raise ValueError(
                f"Unknown label type: y is an object array of {array.dtype}. By such an array "
                "scikit-learn would neither stratify nor score, whatever the model predicts: pass "
                f"y.astype({array.dtype.name!r})."
            )
        return array

    def _loss_for(self, y):
        return "log_loss"

    def decision_function(self, X):
        """Raw prediction of each class; of the second one where there are two.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or with contexts as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Log-odds for two classes, else log-probabilities up to a constant. Where `fit` had a
            label per token, a list of such arrays, one row per token.
        """
        return self._predicted(X, lambda raw: raw[:, 0] if raw.shape[1] == 1 else raw)

    def predict_proba(self, X):
        """Probability of each class.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or with contexts as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Rows sum to 1; columns in the order of `classes_`. Where `fit` had a label per token,
            a list of such arrays, one row per token.
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
            Anything that :func:`skattn.as_ragged` reads, or with contexts as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`. Where `fit` had a label per token, a list of such
            arrays, one row per token.
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
            Anything that :func:`skattn.as_ragged` reads, or with contexts as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels as in y. Where `fit` had one per token, a list of arrays of shape (n_tokens,).
        """

        def labels(raw):
            index = (raw[:, 0] > 0).astype(int) if raw.shape[1] == 1 else raw.argmax(axis=1)
            return self.classes_[index]

        return self._predicted(X, labels)

    def score(self, X, y, sample_weight=None):
        """Accuracy; over all tokens that are scored, where targets are per token.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or with contexts as in `fit`.
        y : array-like of shape (n_samples,), or container of arrays of shape (n_tokens,)
            Labels as in `fit`; a token whose label is missing is not scored.
        sample_weight : array-like of shape (n_samples,), or container of arrays, default=None
            Weights as in `fit`.

        Returns
        -------
        float
            Share of labels that are predicted, by weight.
        """
        check_is_fitted(self, "coef_")
        if self._task_.per_token:
            return self._token_score(accuracy_score, X, y, sample_weight)
        return super().score(X, y, sample_weight)


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
            Anything that :func:`skattn.as_ragged` reads, or with contexts as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            In units of y, with as many axes as y had in `fit`. Where `fit` had targets per token,
            a list of such arrays, one row per token.
        """
        return self._predicted(X, lambda raw: self._task_.predict(raw))

    def score(self, X, y, sample_weight=None):
        """R squared; over all tokens that are scored, where targets are per token.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, or with contexts as in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or container of arrays
            Numbers as in `fit`; a token whose target is missing is not scored.
        sample_weight : array-like of shape (n_samples,), or container of arrays, default=None
            Weights as in `fit`.

        Returns
        -------
        float
            Coefficient of determination, its mean over outputs.
        """
        check_is_fitted(self, "coef_")
        if self._task_.per_token:
            return self._token_score(r2_score, X, y, sample_weight)
        return super().score(X, y, sample_weight)
