"""Out-of-fold predictions as features."""

from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .._output import RaggedOutputMixin


class CrossFitted(RaggedOutputMixin, BaseEstimator):
    """Predictions of an estimator as features, out of fold for the training samples.

    `fit_transform` predicts each training sample by a fit on other folds, `transform` predicts any
    sample by the fit on all. So the next step of a pipeline gets the same kind of predictions for
    training samples and for new ones.

    Parameters
    ----------
    estimator : classifier or regressor
        The estimator that predicts; it may read sets.
    cv : int, splitter or iterable, default=5
        Folds. An integer gives shuffled folds, stratified for a classifier, so that the order of
        the samples does not matter.
    random_state : int, RandomState or None, default=None
        Seed of the folds if cv is an integer.

    Attributes
    ----------
    estimator_ : classifier or regressor
        The fit on all samples.

    Raises
    ------
    ValueError
        If y is None, or has several labels per sample.

    See Also
    --------
    set_pipeline : A whole model that uses this step.
    sklearn.preprocessing.TargetEncoder : Cross-fitted features of categories.

    Notes
    -----
    A classifier gives the probabilities of its classes, for two classes only of the second;
    without ``predict_proba`` it gives its ``decision_function``. `fit` followed by `transform` of
    the same samples differs from `fit_transform`: it gives in-sample predictions. The estimator is
    fitted once per fold and once on all samples.

    References
    ----------
    .. [1] Wolpert, "Stacked generalization", Neural Networks 5, 1992.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.pipeline import make_pipeline, make_union
    >>> from skattn import AttentionClassifier, SetPooler
    >>> from skattn.datasets import make_lookup
    >>> from skattn.pipelines import CrossFitted
    >>> X, y = make_lookup(500, random_state=0)
    >>> attention = CrossFitted(AttentionClassifier(n_heads=1, tol=None, random_state=0), cv=3)
    >>> model = make_pipeline(make_union(SetPooler(), attention), RandomForestClassifier())
    >>> model.fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.8
    True
    """

    def __init__(self, estimator, *, cv=5, random_state=None):
        self.estimator = estimator
        self.cv = cv
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X, y=None):
        """Fit the estimator on all samples.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that the estimator reads.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets; one label per sample for a classifier.

        Returns
        -------
        self : CrossFitted
            Fitted.
        """
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None."
            )
        n_outputs = 1 if np.ndim(y) == 1 else np.shape(y)[1]
        if is_classifier(self.estimator) and n_outputs > 1:
            raise ValueError(
                f"y has shape {np.shape(y)}, but a classifier is cross-fitted to one label per "
                "sample: give one column of labels."
            )
        self.estimator_ = clone(self.estimator).fit(X, y)
        if is_classifier(self.estimator):
            n_classes = len(self.estimator_.classes_)
            self._n_features_out = 1 if n_classes == 2 else n_classes
        else:
            self._n_features_out = n_outputs
        return self

    def fit_transform(self, X, y=None):
        """Fit the estimator on all samples, and predict each sample by a fit on other folds.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that the estimator reads.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets; one label per sample for a classifier.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Out-of-fold predictions.
        """
        self.fit(X, y)
        cv = shuffled(self.cv, is_classifier(self.estimator), self.random_state)
        method = self._method()
        return self._columns(cross_val_predict(clone(self.estimator), X, y, cv=cv, method=method))

    def transform(self, X):
        """Predict by the fit on all samples.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that the estimator reads.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Predictions.
        """
        check_is_fitted(self)
        return self._columns(getattr(self.estimator_, self._method())(X))

    def get_feature_names_out(self, input_features=None):
        """Names of the output columns: the estimator's name in lower case and a number.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Not used.

        Returns
        -------
        ndarray of str of shape (n_features_out,)
            One name per column.
        """
        check_is_fitted(self)
        fitted = self.estimator_
        last = fitted[-1] if isinstance(fitted, Pipeline) else fitted
        name = type(last).__name__.lower()
        return np.array([f"{name}{j}" for j in range(self._n_features_out)], dtype=object)

    def _method(self):
        """Name of the method of the fitted estimator that predicts."""
        if not is_classifier(self.estimator_):
            return "predict"
        has_probabilities = hasattr(self.estimator_, "predict_proba")
        return "predict_proba" if has_probabilities else "decision_function"

    def _columns(self, prediction):
        """A prediction as columns; for two classes only the second."""
        columns = prediction.reshape(len(prediction), -1)
        return columns[:, -1:] if self._n_features_out == 1 else columns


def shuffled(cv, classifies, random_state):
    """Shuffled folds for an integer; a splitter or an iterable as it is."""
    if not isinstance(cv, Integral):
        return cv
    return (StratifiedKFold if classifies else KFold)(cv, shuffle=True, random_state=random_state)
