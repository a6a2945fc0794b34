"""Constructor parameters of the estimators: one table of checks."""

from types import SimpleNamespace

import numpy as np

from ._input import EMPTY
from ._tasks import RECONSTRUCTION
from .attention import ATTENTIONS, INITS
from .losses import LOSSES
from .masks import MASKS
from .pooling import POOLINGS
from .solvers import SOLVERS

LOSS = ("is_classifier", "scales_target", "start", "loss_gradient")
LOSS_OF_NUMBERS = (*LOSS, "check", "inverse_link")
LAYER = ("shapes", "init_params", "n_features_out", "forward", "backward")
MASK = ("allowed", "attends_to", "weights_are_copies", "sees_all", "only_self")


def checked(estimator, own=None):
    """The checked parameters of an estimator, with numbers as Python numbers.

    `own` has the checks of parameters that only this estimator has, by name. A message names the
    parameter that it refuses.
    """
    checks = CHECKS | (own or {})
    return SimpleNamespace(
        **{
            name: checks[name](name, value) if name in checks else value
            for name, value in estimator.get_params(deep=False).items()
        }
    )


def integer(least):
    """A check for integers of `least` or more."""

    def check(name, value):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise TypeError(f"{name} must be an integer, but is {value!r}.")
        if value < least:
            raise ValueError(f"{name} must be {least} or more, but is {value}.")
        return int(value)

    return check


def number(least=0.0):
    """A check for finite numbers of `least` or more."""

    def check(name, value):
        kinds = (int, float, np.integer, np.floating)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise TypeError(f"{name} must be a number, but is {value!r}.")
        if not np.isfinite(value) or value < least:
            bound = "" if least == -np.inf else f" and {least:g} or more"
            raise ValueError(f"{name} must be finite{bound}, but is {value}.")
        return float(value)

    return check


def positive(name, value):
    """A check for finite numbers above 0."""
    value = number()(name, value)
    if value == 0:
        raise ValueError(f"{name} must be above 0, but is 0.")
    return value


def optional(check):
    """The same check, but None is allowed."""
    return lambda name, value: None if value is None else check(name, value)


def flag(name, value):
    """A check for booleans."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, but is {value!r}.")
    return bool(value)


def jobs(name, value):
    """A check for numbers of jobs."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name} must be None or an integer, but is {value!r}.")
    if value == 0:
        raise ValueError(f"{name} must not be 0: give None, a number of jobs, or -1 for all cores.")
    return int(value)


def one_of(table, methods=(), what="instance", also=()):
    """A check for a name in a table, or for an instance that has all `methods`."""

    def check(name, value):
        names = [*also, *table]  # rows may be added to the table
        if value is None or isinstance(value, str):
            if value not in names:
                raise ValueError(f"{name} must be one of {names}, but is {value!r}.")
            return value
        if not methods:
            raise ValueError(f"{name} must be one of {names}, but is {value!r}.")
        lacks = [method for method in methods if not hasattr(value, method)]
        if isinstance(value, type) or lacks:
            missing = (
                " a class: give an instance"
                if isinstance(value, type)
                else (f" {value!r}, which lacks {', '.join(lacks)}")
            )
            raise TypeError(f"{name} must be one of {names} or a {what}, but is{missing}.")
        return value

    return check


def loss(name, value):
    """A check for losses; a loss of numbers also needs `check` and `inverse_link`."""
    methods = LOSS if getattr(value, "is_classifier", False) else LOSS_OF_NUMBERS
    return one_of(("auto", *LOSSES, RECONSTRUCTION), methods, "loss")(name, value)


def tol(name, value):
    """A check for tolerances: a number, None or "auto"."""
    if isinstance(value, str):
        return one_of(("auto", None))(name, value)
    return optional(number())(name, value)


def start(name, value):
    """A check for starting values: a name, or arrays by name."""
    if isinstance(value, str):
        return one_of(INITS)(name, value)
    if not isinstance(value, dict):
        raise TypeError(
            f"{name} must be one of {list(INITS)} or a dict of arrays, but is of type "
            f"{type(value).__name__}."
        )
    return value


CHECKS = {
    "n_heads": integer(1),
    "d_k": integer(1),
    "d_v": integer(1),
    "pooling": one_of(POOLINGS, LAYER, "pooling layer", also=(None,)),
    "mask": one_of(MASKS, MASK, "Mask", also=(None,)),
    "attention": one_of(ATTENTIONS),
    "score_statistics": flag,
    "standardize": flag,
    "scale": optional(number(-np.inf)),
    "loss": loss,
    "alpha": number(),
    "init": start,
    "solver": one_of(SOLVERS),
    "max_iter": integer(0),
    "tol": tol,
    "max_tokens": optional(integer(2)),
    "warm_start": flag,
    "empty": one_of(EMPTY),
    "n_jobs": optional(jobs),
}
