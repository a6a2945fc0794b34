"""What a fit tells scikit-learn's callbacks, which there are from 1.9 on.

As in scikit-learn's own estimators, the fit is a task and each of its iterations a task in it. A
hook that wants a fitted estimator is handed the model as it is after the iteration.
"""

from contextlib import contextmanager

from .solvers import SolverResult

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:
        """No callbacks to support."""

    def with_callbacks(method):
        """The method as it is."""
        return method


def as_task(estimator, run, n_parts, data):
    """What ``run(task)`` gives, while callbacks are told that the estimator is being fitted.

    The task has at most `n_parts` parts; it is None where no callbacks are set, by the user or by
    an estimator around this one. `data` are the X, y and metadata of the hooks. A fit that the
    estimator does in the course of its fit is a part of that.
    """
    if not getattr(estimator, "_skl_callbacks", None):
        return run(None)
    whole = getattr(estimator, "_callback_fit_ctx", None)
    if whole is None:
        return _as_whole(estimator, run, n_parts, data)
    return _told(estimator, run, whole.subcontext(task_name="refit", max_subtasks=n_parts), data)


@with_callbacks
def _as_whole(estimator, run, n_parts, data):
    return _told(estimator, run, estimator._init_callback_context(max_subtasks=n_parts), data)


def _told(estimator, run, task, data):
    task.call_on_fit_task_begin(estimator=estimator, **data)
    out = run(task)
    task.call_on_fit_task_end(estimator=estimator, reconstruction_attributes={}, **data)
    return out


def parts_of(task, name, parts, steps):
    """A task of as many steps for each of the parts of a task; None for each where that is None.

    They are made before they are handed to other processes.
    """
    if task is None:
        return [None] * len(parts)
    return [task.subcontext(task_name=name, max_subtasks=len(steps)) for _ in parts]


@contextmanager
def within(task, estimator):
    """Tell callbacks of an estimator that a task of its fit begins and ends."""
    if task is not None:
        task.call_on_fit_task_begin(estimator=estimator)
    yield
    if task is not None:
        task.call_on_fit_task_end(estimator=estimator)


@contextmanager
def handed_on(task, estimator, model):
    """Let a model be fitted as a step of a task of the estimator, and tell of itself."""
    if task is None:
        yield
        return
    step = task.subcontext(task_name="step")
    with step.propagate_callback_context(model), within(step, estimator):
        yield


class Iterations:
    """Tells callbacks of each iteration; called as `minimize` calls its callback.

    Parameters
    ----------
    task : CallbackContext
        The task of the fit.
    estimator : estimator
        What is fitted.
    fitted : callable
        ``fitted(result)`` gives the attributes that the estimator would have if the fit had
        stopped with that SolverResult.
    tol : float
        As `minimize` has it: no iteration begins where the gradient is as small.
    data : dict
        X, y and metadata of the hooks.
    listener : callable or None
        Is called too, and before.
    """

    def __init__(self, task, estimator, fitted, tol, data, listener):
        self.task, self.estimator, self.fitted = task, estimator, fitted
        self.tol, self.data, self.listener = tol, data, listener
        self.curve, self.iteration = [], None

    def __call__(self, n_iter, loss, grad_norm, theta):
        """Take note of the end of an iteration; whether a callback wants to stop there."""
        if self.listener is not None:
            self.listener(n_iter, loss, grad_norm, theta)
        converged = grad_norm <= self.tol
        self.curve.append(loss)
        result = SolverResult(
            theta, loss, n_iter, converged, "callback", "", grad_norm, list(self.curve)
        )
        told = {
            **self.data,
            "estimator": self.estimator,
            "reconstruction_attributes": lambda: self.fitted(result),
        }
        wants_to_stop = False
        if self.iteration is not None:
            wants_to_stop = self.iteration.call_on_fit_task_end(**told)
            self.iteration = None
        if not (converged or wants_to_stop or n_iter >= self.task.max_subtasks):
            self.iteration = self.task.subcontext(task_name="iteration")
            self.iteration.call_on_fit_task_begin(**told)
        return wants_to_stop

    def end(self):
        """End an iteration that the solver has begun and given up."""
        if self.iteration is not None:
            self.iteration.call_on_fit_task_end(estimator=self.estimator)
