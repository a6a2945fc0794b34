"""Saved estimators carry the version of skattn, and another version warns when it reads them."""

import warnings
from contextlib import contextmanager
from copy import copy
from importlib import import_module

from sklearn.exceptions import InconsistentVersionWarning

STAMP = "_skattn_version"
FITTED = "_fitted_names"  # of the attributes that the last fit has set


class OtherVersionWarning(InconsistentVersionWarning):
    """Warns that another version of skattn saved the estimator.

    Filters for scikit-learn's InconsistentVersionWarning apply to it.
    """

    def __str__(self):
        return (
            f"{self.estimator_name} was saved by skattn {self.original_sklearn_version} and is "
            f"read by skattn {self.current_sklearn_version}: results may differ, or the estimator "
            "may not work at all. Fit it again, or install the version that saved it."
        )


class VersionStampMixin:
    """Stores the version with a saved estimator; list this class before BaseEstimator."""

    def __getstate__(self):
        return {**super().__getstate__(), STAMP: _version()}

    def __setstate__(self, state):
        state = dict(state)
        saved_by = state.pop(STAMP, "of an unknown version")
        if saved_by != _version():
            warnings.warn(
                OtherVersionWarning(
                    estimator_name=type(self).__name__,
                    current_sklearn_version=_version(),
                    original_sklearn_version=saved_by,
                ),
                stacklevel=2,
            )
        super().__setstate__(state)


def _version():
    return import_module(__package__).__version__


@contextmanager
def unchanged_on_failure(estimator):
    """Leave an estimator as it was before if what is done here raises."""
    state = dict(vars(estimator))
    try:
        yield
    except BaseException:
        estimator.__dict__ = state
        raise


def unfitted(estimator):
    """A copy of an estimator without the attributes that `become` has given it."""
    model = copy(estimator)
    fitted = vars(model).get(FITTED, ())
    model.__dict__ = {name: value for name, value in vars(model).items() if name not in fitted}
    return model


def become(estimator, state):
    """Give an estimator the fitted attributes of a state, which end in _, all at once."""
    before = vars(unfitted(estimator))
    fitted = {name: x for name, x in state.items() if name[-1] == "_" and name not in before}
    estimator.__dict__ = before | fitted | {FITTED: tuple(fitted)}
