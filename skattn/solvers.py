"""Minimisers of a smooth function with a gradient, over a vector of parameters.

Every method of ``scipy.optimize.minimize`` that uses a gradient is available. The result is always
the best point that was evaluated. A fit has converged if the largest entry of the gradient at this
point is at most `tol`, whatever message SciPy returns.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy import optimize

__all__ = ["SOLVERS", "ScipySolver", "SolverResult", "minimize"]


@dataclass(frozen=True)
class SolverResult:
    """Where a minimisation ended.

    Parameters
    ----------
    theta : ndarray of shape (n_parameters,)
        The best point evaluated.
    loss : float
        The objective at `theta`; the smallest entry of `loss_curve`.
    n_iter : int
        Number of iterations.
    converged : bool
        Whether the largest entry of the gradient at `theta` is at most the tolerance.
    reason : str
        Why it stopped: "gradient", "slow" (it fell by less than `min_fall`), "max_iter",
        "max_fun", "flat" (the objective no longer falls by more than round-off), "abnormal" (the
        line search gave up), "non-finite", "callback" (a callback stopped it) or "interrupted".
    message : str
        The reason in words, with SciPy's message.
    grad_norm : float
        Largest absolute entry of the gradient at `theta`.
    loss_curve : list of float
        The objective at the start and after each iteration.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.solvers import minimize
    >>> minimize(lambda x: (np.sum(x**4), 4 * x**3), np.full(1, 3.0), max_iter=1).advice[:32]
    'Increase max_iter, or loosen tol'
    """

    theta: np.ndarray
    loss: float
    n_iter: int
    converged: bool
    reason: str
    message: str
    grad_norm: float
    loss_curve: list = field(repr=False)

    @property
    def advice(self):
        """What to do about a minimisation that has not converged."""
        return _ADVICE[self.reason]


_ADVICE = {
    "gradient": "Nothing needs to be done.",
    "slow": "Nothing needs to be done.",
    "max_iter": (
        "Increase max_iter, or loosen tol. Use cross-validation to find out whether a longer fit "
        "predicts better: often it does not."
    ),
    "max_fun": "The line search needs many evaluations: loosen tol, or choose solver='lbfgs'.",
    "flat": (
        "The objective no longer falls by more than round-off: tol is too strict for this data."
    ),
    "abnormal": (
        "More iterations will not help: loosen tol, use standardize=True, or raise alpha, which "
        "makes the problem better conditioned."
    ),
    "non-finite": "Check the scale of tokens and targets, use standardize=True, or raise alpha.",
    "callback": "Fit again without the callback that stopped it, or with warm_start=True.",
    "interrupted": "The best point so far is kept; fit again with warm_start=True to continue.",
}


@dataclass(frozen=True)
class ScipySolver:
    """One method of ``scipy.optimize.minimize``, with its own stopping rules disabled.

    Parameters
    ----------
    method : str
        SciPy's name of the method.
    options : dict
        SciPy's options that disable the stopping rules of the method.

    Examples
    --------
    >>> from skattn.solvers import SOLVERS
    >>> SOLVERS["lbfgs"].method
    'L-BFGS-B'
    """

    method: str
    options: dict = field(default_factory=dict)


WINDOW = 10  # iterations over which the value has to fall by min_fall
_EPS = np.finfo(float).eps
SOLVERS = {
    "lbfgs": ScipySolver("L-BFGS-B", {"gtol": 0.0, "ftol": 4 * _EPS, "maxcor": 10, "maxls": 50}),
    "bfgs": ScipySolver("BFGS", {"gtol": 0.0}),
    "cg": ScipySolver("CG", {"gtol": 0.0}),
    "newton-cg": ScipySolver("Newton-CG", {"xtol": 4 * _EPS}),
    "tnc": ScipySolver("TNC", {"gtol": 0.0, "ftol": 0.0, "xtol": 0.0}),
    "slsqp": ScipySolver("SLSQP", {"ftol": 4 * _EPS}),
}


class _Stop(Exception):
    """Ends a SciPy method from inside a callback; its text is the reason."""


class _Track:
    """The function that SciPy calls; it remembers the best point and the curve."""

    def __init__(self, value_and_grad, theta0, tol, max_iter, max_fun, min_fall, callback):
        self.value_and_grad, self.callback = value_and_grad, callback
        self.tol, self.max_iter, self.max_fun = tol, max_iter, max_fun
        self.min_fall = min_fall
        self.theta, self.loss, self.grad_norm = theta0, np.inf, np.inf
        self.n_calls, self.curve, self.recent = 0, [], []
        self.seen = np.inf

    def __call__(self, theta):
        for x, value, grad in self.recent:
            if np.array_equal(x, theta):
                return value, grad.copy()  # SciPy may write into the array
        if self.max_fun is not None and self.n_calls >= self.max_fun:
            raise _Stop("max_fun")
        value, grad = self.value_and_grad(theta)
        self.n_calls += 1
        if not (np.isfinite(value) and np.all(np.isfinite(grad))):
            raise _Stop("non-finite")
        value, theta, grad = float(value), theta.copy(), np.array(grad)
        grad_norm = float(np.abs(grad).max(initial=0))
        if (value, grad_norm) < (self.loss, self.grad_norm):  # of equal losses, the flattest point
            self.theta, self.loss, self.grad_norm = theta, value, grad_norm
        self.recent = [(theta, value, grad), *self.recent[:2]]
        return value, grad.copy()

    def has_improved(self):
        """Whether the best point has improved since the last call."""
        improved, self.seen = self.loss < self.seen, self.loss
        return improved

    def iterated(self, theta):
        """Record an iteration that ended at theta, and stop if a stopping rule holds."""
        value, grad = self(np.asarray(theta))
        self.curve.append(value)
        is_enough = self.callback is not None and self.callback(
            len(self.curve) - 1, value, float(np.abs(grad).max(initial=0)), np.array(theta)
        )
        if self.grad_norm <= self.tol:
            raise _Stop("gradient")
        if is_enough:
            raise _Stop("callback")
        if len(self.curve) > WINDOW and self.min_fall:
            if self.curve[-1 - WINDOW] - value < self.min_fall * abs(value):
                raise _Stop("slow")
        if len(self.curve) > self.max_iter:
            raise _Stop("max_iter")


def minimize(
    value_and_grad,
    theta0,
    callback=None,
    *,
    solver="lbfgs",
    tol=1e-4,
    max_iter=200,
    max_fun=None,
    min_fall=0.0,
):
    """Minimise a smooth function and keep the best point seen.

    Parameters
    ----------
    value_and_grad : callable
        ``value_and_grad(theta)`` gives the value and its gradient (n_parameters,).
    theta0 : ndarray of shape (n_parameters,)
        The point to start from.
    callback : callable, default=None
        ``callback(n_iter, loss, grad_norm, theta)`` is called at the start with ``n_iter=0`` and
        after each iteration. The minimisation stops if it returns True.
    solver : str, default="lbfgs"
        A name of ``SOLVERS``.
    tol : float, default=1e-4
        Stop when no entry of the gradient is larger.
    max_iter : int, default=200
        Stop after this number of iterations.
    max_fun : int, default=None
        Stop after this number of evaluations; None is ``20 * (max_iter + 1)``.
    min_fall : float, default=0.0
        Stop when the value has fallen by less than this share of itself over ten iterations; the
        result has then converged. 0 never stops for this.

    Returns
    -------
    SolverResult
        The best point, and why the minimisation stopped. A keyboard interrupt also ends the
        minimisation without an error; the caller decides whether to raise it again.

    Raises
    ------
    ValueError
        If the function or its gradient is not finite at `theta0`.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.solvers import minimize
    >>> result = minimize(lambda x: (np.sum((x - 1) ** 2), 2 * (x - 1)), np.zeros(2))
    >>> result.theta.round(6), result.converged, result.reason
    (array([1., 1.]), True, 'gradient')
    """
    method = SOLVERS[solver]
    if max_fun is None:
        max_fun = 20 * (max_iter + 1)
    theta0 = np.array(theta0, dtype=np.float64)
    track = _Track(value_and_grad, theta0, tol, max_iter, max_fun, min_fall, callback)
    reason, message = _run(method, track)
    while reason == "non-finite" and track.has_improved():
        reason, message = _run(method, track)  # starts with a short step from the best point
    if not track.n_calls or not np.isfinite(track.loss):
        if reason == "non-finite":
            raise ValueError(
                "The objective or its gradient is not finite at the start. " + _ADVICE["non-finite"]
            )
        return SolverResult(theta0, np.inf, 0, False, reason, _MESSAGES[reason], np.inf, [])
    n_iter = max(0, len(track.curve) - 1)
    if track.loss < min(track.curve, default=np.inf):  # the stop came inside a line search
        track.curve.append(track.loss)
    converged = track.grad_norm <= tol
    if converged and reason != "interrupted":
        reason = "gradient"
    converged |= reason == "slow"
    addition = f" (SciPy: {message})" if message else ""
    return SolverResult(
        track.theta,
        track.loss,
        n_iter,
        converged,
        reason,
        _MESSAGES[reason] + addition,
        track.grad_norm,
        track.curve,
    )


def _run(method, track):
    """Run SciPy from the best point; return why it stopped, and SciPy's message."""
    options = method.options | {"maxfun" if method.method == "TNC" else "maxiter": 10**9}
    if method.method == "L-BFGS-B":
        options["maxfun"] = 10**9
    try:
        if not track.curve:
            track.iterated(track.theta)
        result = optimize.minimize(
            track,
            track.theta,
            jac=True,
            method=method.method,
            callback=lambda x: track.iterated(x),
            options=options,
        )
    except _Stop as stop:
        return str(stop), ""
    except KeyboardInterrupt:
        return "interrupted", ""
    flat = result.status == 0 or (method.method == "TNC" and result.status in (1, 2))
    return "flat" if flat else "abnormal", str(result.message).strip()


_MESSAGES = {
    "gradient": "the gradient is at most tol",
    "slow": "the objective fell by less than min_fall over ten iterations",
    "max_iter": "the limit of iterations was reached",
    "max_fun": "the limit of function evaluations was reached",
    "flat": "the objective no longer fell",
    "abnormal": "the line search gave up",
    "non-finite": "the objective or its gradient became infinite or NaN",
    "callback": "a callback stopped it",
    "interrupted": "it was interrupted",
}
