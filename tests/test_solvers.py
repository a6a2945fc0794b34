"""Minimisers: the best point, and an honest word on how it was reached."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn.solvers import SOLVERS, SolverResult, minimize


@pytest.fixture(params=SOLVERS)
def solver(request):
    """Each solver of the table."""
    return request.param


CURVATURE = np.array([1.0, 2.0, 5.0, 10.0, 0.5])
CENTRE = np.array([1.0, -2.0, 0.5, 3.0, 0.0])


def quadratic(x):
    """A well-conditioned bowl with its least value, 3, at CENTRE."""
    error = x - CENTRE
    return 3 + 0.5 * np.sum(CURVATURE * error**2), CURVATURE * error


def valley(x):
    """A convex relative of Rosenbrock's: bent by its fourth power, least at ones with 0."""
    a, b = x[1:] - x[:-1], x[0] - 1
    value = np.sum(5 * a**2 + a**4) + b**2 + b**4
    d_a, d_b = 10 * a + 4 * a**3, 2 * b + 4 * b**3
    grad = np.zeros_like(x)
    grad[1:] += d_a
    grad[:-1] -= d_a
    grad[0] += d_b
    return value, grad


def rosenbrock(x):
    """Rosenbrock's banana, not convex, least at ones with 0."""
    a, b = x[1] - x[0] ** 2, 1 - x[0]
    return 100 * a**2 + b**2, np.array([-400 * x[0] * a - 2 * b, 200 * a])


PROBLEMS = {
    "quadratic": (quadratic, np.zeros(5), CENTRE, 3.0),
    "valley": (valley, np.array([-1.5, 2.0, 0.0, 3.0]), np.ones(4), 0.0),
    "rosenbrock": (rosenbrock, np.array([-1.2, 1.0]), np.ones(2), 0.0),
}


class Watched:
    """A function that notes each point it is asked for, and may misbehave from some call on."""

    def __init__(self, function, then=None, after=None):
        self.function, self.then, self.after = function, then, after
        self.points, self.values = [], []

    def __call__(self, x):
        if self.after is not None and len(self.points) >= self.after:
            return self.then(x)
        value, grad = self.function(x)
        self.points.append(x.copy())
        self.values.append(value)
        return value, grad


def interrupt(x):
    """What control-C does."""
    raise KeyboardInterrupt


def assert_sound(result, function, start):
    """Check what every result promises, however it came about."""
    assert isinstance(result, SolverResult)
    value, grad = function(result.theta)
    assert result.loss == pytest.approx(value, rel=1e-14, abs=1e-300)
    assert result.grad_norm == pytest.approx(np.abs(grad).max(), rel=1e-12, abs=1e-300)
    assert result.loss == min(result.loss_curve)
    assert result.loss_curve[0] == function(start)[0]
    assert result.loss <= result.loss_curve[0]
    assert np.all(np.isfinite(result.loss_curve))
    assert len(result.loss_curve) in (result.n_iter + 1, result.n_iter + 2)
    assert result.theta.dtype == np.float64
    assert isinstance(result.converged, (bool, np.bool_))
    assert result.message
    assert result.advice


# Getting there


@pytest.mark.parametrize("problem", PROBLEMS)
def test_it_finds_the_minimum(solver, problem):
    function, start, best, least = PROBLEMS[problem]
    result = minimize(function, start, solver=solver, tol=1e-5, max_iter=2000)
    assert_sound(result, function, start)
    assert result.converged
    assert result.reason == "gradient"
    assert result.grad_norm <= 1e-5
    assert_allclose(result.theta, best, atol=1e-3)
    assert_allclose(result.loss, least, atol=1e-6)


def test_solvers_agree(solver):
    found = minimize(valley, np.zeros(6), solver=solver, tol=1e-6, max_iter=1000)
    expected = minimize(valley, np.zeros(6), solver="lbfgs", tol=1e-6, max_iter=1000)
    assert_allclose(found.theta, expected.theta, atol=1e-4)


def test_lbfgs_comes_first():
    assert next(iter(SOLVERS)) == "lbfgs"


def test_the_start_is_neither_changed_nor_handed_back(solver):
    start = np.zeros(5, dtype=int)
    start.flags.writeable = False
    result = minimize(quadratic, start, solver=solver)
    assert_array_equal(start, np.zeros(5))
    assert not np.shares_memory(result.theta, start)
    assert result.converged


def test_a_gradient_that_is_written_over_does_no_harm(solver):
    store = np.empty(5)

    def reuses_its_memory(x):
        value, grad = quadratic(x)
        store[...] = grad
        return value, store

    result = minimize(reuses_its_memory, np.zeros(5), solver=solver, tol=1e-6)
    assert result.converged
    assert_allclose(result.theta, CENTRE, atol=1e-5)


def test_a_start_at_the_minimum_needs_no_iteration(solver):
    watched = Watched(quadratic)
    result = minimize(watched, CENTRE, solver=solver)
    assert_sound(result, quadratic, CENTRE)
    assert (result.n_iter, result.converged, result.reason) == (0, True, "gradient")
    assert_array_equal(result.theta, CENTRE)
    assert len(watched.points) == 1


def test_two_runs_are_the_same(solver):
    first, second = (minimize(valley, np.zeros(4), solver=solver) for _ in range(2))
    assert_array_equal(first.theta, second.theta)
    assert first.loss_curve == second.loss_curve


def test_no_point_is_evaluated_twice_in_a_row(solver):
    watched = Watched(valley)
    minimize(watched, np.zeros(4), solver=solver, tol=1e-6)
    for before, after in zip(watched.points[:-1], watched.points[1:], strict=True):
        assert not np.array_equal(before, after)


# The best point


@pytest.mark.parametrize("max_fun", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_best_point_seen_is_kept_when_it_is_cut_short(solver, problem, max_fun):
    function, start, _, _ = PROBLEMS[problem]
    watched = Watched(function)
    result = minimize(watched, start, solver=solver, tol=1e-12, max_fun=max_fun)
    assert_sound(result, function, start)
    assert len(watched.points) <= max_fun
    assert result.loss == min(watched.values)
    assert_array_equal(result.theta, watched.points[int(np.argmin(watched.values))])
    if not result.converged:
        assert result.reason == "max_fun"


@pytest.mark.parametrize("max_iter", [0, 1, 2, 5])
def test_iterations_are_counted_and_limited(solver, max_iter):
    start = np.array([-1.2, 1.0])
    watched = Watched(rosenbrock)
    result = minimize(watched, start, solver=solver, tol=1e-10, max_iter=max_iter)
    assert_sound(result, rosenbrock, start)
    assert result.n_iter == max_iter
    assert (result.converged, result.reason) == (False, "max_iter")
    assert "Increase max_iter" in result.advice
    assert result.loss == min(watched.values)


def test_no_iterations_evaluate_the_start_alone(solver):
    watched = Watched(quadratic)
    result = minimize(watched, np.zeros(5), solver=solver, max_iter=0)
    assert len(watched.points) == 1
    assert_array_equal(result.theta, np.zeros(5))
    assert result.loss_curve == [quadratic(np.zeros(5))[0]]


@pytest.mark.parametrize("base", [1.0, 1e6])
def test_of_points_as_low_the_flattest_is_the_best(solver, base):
    # Near the minimum the value is exact to 1e-16 * base: values are equal, gradients are not.
    def high_up(x):
        value, grad = valley(x)
        return base + value, grad

    watched = Watched(high_up)
    result = minimize(watched, np.array([-1.5, 2.0, 0.0]), solver=solver, tol=1e-13, max_iter=500)
    slopes = [np.abs(valley(x)[1]).max() for x in watched.points]
    as_low = [s for s, v in zip(slopes, watched.values, strict=True) if v == result.loss]
    assert result.grad_norm == min(as_low)


# The curve and the callback


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_callback_hears_of_each_iteration_once(solver, problem):
    function, start, _, _ = PROBLEMS[problem]
    heard = []
    result = minimize(function, start, lambda *args: heard.append(args), solver=solver, max_iter=30)
    assert [n_iter for n_iter, *_ in heard] == list(range(result.n_iter + 1))
    assert [loss for _, loss, *_ in heard] == result.loss_curve[: result.n_iter + 1]
    for _, loss, grad_norm, theta in heard:
        value, grad = function(theta)
        assert (loss, grad_norm) == (value, np.abs(grad).max())
        assert isinstance(loss, float)
        assert isinstance(grad_norm, float)
    assert_array_equal(heard[0][3], start)


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_callback_that_gives_true_ends_it(solver, at):
    start = np.array([-1.2, 1.0])

    def callback(n_iter, *_):
        return n_iter == at

    result = minimize(rosenbrock, start, callback, solver=solver, tol=1e-10)
    assert_sound(result, rosenbrock, start)
    assert (result.reason, result.n_iter, result.converged) == ("callback", at, False)


@pytest.mark.parametrize("problem", ["quadratic", "valley"])
@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "slsqp"])
def test_the_curve_of_a_line_search_falls(solver, problem):
    function, start, _, _ = PROBLEMS[problem]
    curve = minimize(function, start, solver=solver, tol=1e-6).loss_curve
    assert np.all(np.diff(curve) <= 1e-12 * np.abs(curve[:-1]))


# Not getting there, and saying so


@pytest.mark.parametrize("problem", PROBLEMS)
def test_an_unreachable_tolerance_is_not_reported_as_reached(solver, problem):
    function, start, _, _ = PROBLEMS[problem]
    result = minimize(function, start, solver=solver, tol=1e-30, max_iter=300)
    assert_sound(result, function, start)
    assert result.converged == (result.grad_norm <= 1e-30)
    if result.converged:  # an exact zero, as on a quadratic
        assert result.reason == "gradient"
    else:
        assert result.reason in ("flat", "abnormal", "max_iter", "max_fun")


@pytest.mark.parametrize("tol", [1e-30, 1e-8, 1e-4, 1e-1])
@pytest.mark.parametrize("max_iter", [1, 5, 200])
def test_converged_is_a_matter_of_the_gradient_alone(solver, tol, max_iter):
    start = np.array([-1.5, 2.0, 0.0, 3.0])
    result = minimize(valley, start, solver=solver, tol=tol, max_iter=max_iter)
    slope = np.abs(valley(result.theta)[1]).max()
    assert result.converged == (slope <= tol)
    assert (result.reason == "gradient") == result.converged


def test_advice_follows_the_reason(solver):
    start = np.array([-1.5, 2.0, 0.0, 3.0])
    short = minimize(valley, start, solver=solver, tol=1e-30, max_iter=1)
    assert "Increase max_iter" in short.advice

    def uphill(x):  # a slope that leads nowhere
        value, grad = valley(x)
        return value, -grad

    with np.errstate(over="ignore"):  # SLSQP runs up the hill
        stuck = minimize(uphill, start, solver=solver, tol=1e-30, max_iter=50)
    assert not stuck.converged
    assert stuck.reason != "gradient"
    if stuck.reason in ("abnormal", "flat"):
        assert "Increase max_iter" not in stuck.advice
    assert stuck.loss <= valley(start)[0]


# Values that are not finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", ["value", "gradient"])
def test_a_start_that_is_not_finite_is_an_error(solver, bad, part):
    def broken(x):
        value, grad = quadratic(x)
        return (bad, grad) if part == "value" else (value, np.where(np.arange(5) == 2, bad, grad))

    with pytest.raises(ValueError, match="not finite at the start.*scale of tokens"):
        minimize(broken, np.zeros(5), solver=solver)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_later_value_that_is_not_finite_stops_it_at_the_best_point(solver, bad, after):
    start = np.array([-1.2, 1.0])
    watched = Watched(rosenbrock, lambda x: (bad, np.zeros(2)), after)
    result = minimize(watched, start, solver=solver, tol=1e-10)
    assert_sound(result, rosenbrock, start)
    assert (result.reason, result.converged) == ("non-finite", False)
    assert "infinite or NaN" in result.message
    assert result.loss == min(watched.values)
    assert np.all(np.isfinite(result.theta))


def test_a_later_gradient_that_is_not_finite_stops_it_too(solver):
    start = np.array([-1.2, 1.0])
    watched = Watched(rosenbrock, lambda x: (-1e9, np.array([np.nan, 0.0])), 4)
    result = minimize(watched, start, solver=solver, tol=1e-10)
    assert_sound(result, rosenbrock, start)
    assert (result.reason, result.converged) == ("non-finite", False)


# Interrupts


@pytest.mark.parametrize("after", [1, 2, 3, 8])
def test_an_interrupt_keeps_the_best_point(solver, after):
    start = np.array([-1.2, 1.0])
    watched = Watched(rosenbrock, interrupt, after)
    result = minimize(watched, start, solver=solver, tol=1e-10)
    assert_sound(result, rosenbrock, start)
    assert (result.reason, result.converged) == ("interrupted", False)
    assert "warm_start=True" in result.advice
    assert result.loss == min(watched.values)
    assert_array_equal(result.theta, watched.points[int(np.argmin(watched.values))])


@pytest.mark.parametrize("at", [0, 1, 3])
def test_an_interrupt_in_the_callback_is_one_too(solver, at):
    def callback(n_iter, loss, grad_norm, theta):
        if n_iter == at:
            raise KeyboardInterrupt

    start = np.array([-1.2, 1.0])
    result = minimize(rosenbrock, start, callback, solver=solver, tol=1e-10)
    assert_sound(result, rosenbrock, start)
    assert result.reason == "interrupted"
    assert result.n_iter == at


def test_an_interrupt_before_anything_leaves_the_start(solver):
    result = minimize(interrupt, np.ones(2), solver=solver)
    assert (result.reason, result.converged, result.n_iter) == ("interrupted", False, 0)
    assert_array_equal(result.theta, np.ones(2))


def test_other_errors_of_the_function_come_through(solver):
    def broken(x):
        raise ZeroDivisionError("in the objective")

    with pytest.raises(ZeroDivisionError, match="in the objective"):
        minimize(Watched(rosenbrock, broken, 3), np.array([-1.2, 1.0]), solver=solver, tol=1e-10)


def test_an_unknown_solver_is_a_key_error():
    with pytest.raises(KeyError, match="adam"):
        minimize(quadratic, np.zeros(5), solver="adam")
