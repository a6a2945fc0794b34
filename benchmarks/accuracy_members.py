"""Predictions of a stack's members, kept in a folder: a change of one member costs only that one.

`remembered` gives the same stack; only that each of its members is fitted when it is asked for
predictions, and not at all where these are in the folder. A prediction is found again by the
member's parameters and the samples themselves, so that all who ask for it share it.
"""

import time

import numpy as np
from joblib import Memory
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier
from sklearn.multioutput import MultiOutputRegressor

__all__ = ["recalled_seconds", "remembered", "remembered_member"]

_recalled = {"seconds": 0.0}


def recalled_seconds():
    """Seconds that this process would have spent on what it found in folders."""
    return _recalled["seconds"]


def remembered(model, folder):
    """The same stack, whose members' predictions are kept in a folder."""
    if isinstance(model, MultiOutputRegressor):
        return MultiOutputRegressor(remembered(model.estimator, folder))
    members = [(name, remembered_member(member, folder)) for name, member in model.estimators]
    return clone(model).set_params(estimators=members)


def remembered_member(member, folder):
    """The same classifier or regressor, whose predictions are kept in a folder."""
    kind = RememberedClassifier if is_classifier(member) else RememberedRegressor
    return kind(member, str(folder))


def fit_and_predict(estimator, X, y, X_test):
    """Probabilities of classes or predictions, and the seconds that they took this process."""
    start = time.process_time()
    model = clone(estimator).fit(X, y)
    predicted = model.predict_proba(X_test) if is_classifier(model) else model.predict(X_test)
    return predicted, time.process_time() - start


class Remembered(BaseEstimator):
    """An estimator that is fitted once for each pair of training samples and samples to predict."""

    def __init__(self, estimator, folder):
        self.estimator = estimator
        self.folder = folder

    def fit(self, X, y):
        self._training = X, y
        return self

    def _recalled(self, X):
        """What `fit_and_predict` gives, out of the folder where it is there."""
        start = time.process_time()
        recall = Memory(self.folder, verbose=0).cache(fit_and_predict)
        predicted, seconds = recall(self.estimator, *self._training, X)
        _recalled["seconds"] += max(0.0, seconds - (time.process_time() - start))
        return predicted


class RememberedRegressor(RegressorMixin, Remembered):
    def predict(self, X):
        return self._recalled(X)


class RememberedClassifier(ClassifierMixin, Remembered):
    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return super().fit(X, y)

    def predict_proba(self, X):
        return self._recalled(X)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
