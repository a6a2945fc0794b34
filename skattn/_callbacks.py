"""Calls of scikit-learn's callbacks (1.9 or later) during a fit.

As in scikit-learn's own estimators, the fit is a task and each iteration is a subtask. A hook that
needs a fitted estimator gets the model as it is after the iteration.
"""

from contextlib import contextmanager

from .solvers import SolverResult

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:
        """Stands in for scikit-learn's class; there are no callbacks."""

    def with_callbacks(method):
        """Return the method unchanged."""
        return method


def as_task(estimator, run, n_parts, data):
    """Return ``run(task)``, and report its begin and end to the callbacks of the estimator.

    The task has at most `n_parts` subtasks. It is None if neither the user nor an estimator around
    this one has set callbacks. `data` are the X, y and metadata for the hooks. If the estimator is
    already inside its own fit, the task is a subtask of that fit.
    """
    if not getattr(estimator, "_skl_callbacks", None):
        return run(None)
    whole = getattr(estimator, "_callback_fit_ctx", None)
    if whole is None:
        return _as_whole(estimator, run, n_parts, data)
    return _reported(
        estimator, run, whole.subcontext(task_name="refit", max_subtasks=n_parts), data
    )


@with_callbacks
def _as_whole(estimator, run, n_parts, data):
    return _reported(estimator, run, estimator._init_callback_context(max_subtasks=n_parts), data)


def _reported(estimator, run, task, data):
    task.call_on_fit_task_begin(estimator=estimator, **data)
    out = run(task)
    task.call_on_fit_task_end(estimator=estimator, reconstruction_attributes={}, **data)
    return out


def parts_of(task, name, parts, steps):
    """A subtask with ``len(steps)`` subtasks for each part of a task; Nones if the task is None.

    The subtasks must be created before other processes receive them.
    """
    if task is None:
        return [None] * len(parts)
    return [task.subcontext(task_name=name, max_subtasks=len(steps)) for _ in parts]


@contextmanager
def within(task, estimator):
    """Report the begin and the end of a task to the callbacks of an estimator."""
    if task is not None:
        task.call_on_fit_task_begin(estimator=estimator)
    yield
    if task is not None:
        task.call_on_fit_task_end(estimator=estimator)


@contextmanager
def handed_on(task, estimator, model):
    """Fit a model as a step of the estimator's task, with the estimator's callbacks."""
    if task is None:
        yield
        return
    step = task.subcontext(task_name="step")
    with step.propagate_callback_context(model), within(step, estimator):
        yield


class Iterations:
    """A callback of `minimize` that reports each iteration to scikit-learn's callbacks.

    Parameters
    ----------
    task : CallbackContext
        The task of the fit.
    estimator : estimator
        The estimator that is fitted.
    fitted : callable
        ``fitted(result)`` gives the attributes that the estimator would have if the fit stopped
        with this SolverResult.
    tol : float
        The tolerance of `minimize`: no iteration begins once the gradient is at most `tol`.
    data : dict
        X, y and metadata for the hooks.
    listener : callable or None
        Another callback, which is called first.
    """

    def __init__(self, task, estimator, fitted, tol, data, listener):
        self.task, self.estimator, self.fitted = task, estimator, fitted
        self.tol, self.data, self.listener = tol, data, listener
        self.curve, self.iteration = [], None

    def __call__(self, n_iter, loss, grad_norm, theta):
        """Report the end of an iteration; return whether a callback asks to stop."""
        if self.listener is not None:
            self.listener(n_iter, loss, grad_norm, theta)
        converged = grad_norm <= self.tol
        self.curve.append(loss)
        result = SolverResult(
            theta, loss, n_iter, converged, "callback", "", grad_norm, list(self.curve)
        )
        report = {
            **self.data,
            "estimator": self.estimator,
            "reconstruction_attributes": lambda: self.fitted(result),
        }
        wants_to_stop = False
        if self.iteration is not None:
            wants_to_stop = self.iteration.call_on_fit_task_end(**report)
            self.iteration = None
        if not (converged or wants_to_stop or n_iter >= self.task.max_subtasks):
            self.iteration = self.task.subcontext(task_name="iteration")
            self.iteration.call_on_fit_task_begin(**report)
        return wants_to_stop

    def end(self):
        """Report the end of an iteration that the solver began and abandoned."""
        if self.iteration is not None:
            self.iteration.call_on_fit_task_end(estimator=self.estimator)
