"""How a fit ends: convergence, warnings, interrupts, and what it prints."""

import numpy as np
import pytest
from models import (
    Y,
    assert_same_fit,
    small,
    unfinished,
)
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import skattn.contextualizer
from skattn.solvers import SOLVERS


@pytest.mark.parametrize("solver", SOLVERS)
@unfinished
def test_verbose_prints_a_line_per_iteration(sets, solver, capsys):
    quiet = small(solver=solver, max_iter=3).fit(sets, Y["log_loss"])
    assert capsys.readouterr().out == ""
    loud = small(solver=solver, max_iter=3, verbose=1).fit(sets, Y["log_loss"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == loud.n_iter_ + 1
    for i, line in enumerate(lines):
        assert line.startswith(f"[AttentionContextualizer] iteration {i:4d}   objective ")
        assert f"{loud.loss_curve_[i]:.6e}" in line
    assert_same_fit(loud, quiet)


def test_a_fit_that_is_cut_short_says_so(sets):
    match = r"after 1 iterations: .*max \|gradient\| is .*Increase max_iter"
    with pytest.warns(ConvergenceWarning, match=match):
        model = small(max_iter=1).fit(sets, Y["log_loss"])
    assert not model.converged_


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_fit_that_converges_says_nothing(sets, solver):
    model = small(solver=solver, max_iter=500, tol=1e-3).fit(sets, Y["log_loss"])
    assert model.converged_


def test_the_warning_points_at_the_line_that_called_fit(sets):
    with pytest.warns(ConvergenceWarning) as record:
        small(max_iter=1).fit(sets, Y["log_loss"])
    assert record[0].filename == __file__


def test_without_tol_a_fit_is_a_budget_of_iterations(sets):
    budget = small(max_iter=3, tol=None).fit(sets, np.arange(12.0))  # warnings are errors
    assert budget.n_iter_ == 3
    assert not budget.converged_
    with pytest.warns(ConvergenceWarning):
        strict = small(max_iter=3, tol=0.0).fit(sets, np.arange(12.0))
    assert_same_fit(budget, strict)


def test_without_tol_a_fit_says_that_its_objective_is_no_longer_finite(sets):
    far = [1e4 * tokens for tokens in sets]  # exp of the first trial step overflows
    broken = small(n_heads=1, alpha=1e-3, tol=None, standardize=False, loss="poisson")
    with pytest.warns(ConvergenceWarning, match=r"infinite or NaN; max \|gradient\| is \S+ Check"):
        broken.fit(far, np.arange(12.0))
    assert broken.n_iter_ < broken.max_iter


# Objectives that are not finite, and interrupts


def fail_after(monkeypatch, n_calls, then):
    """Let the objective work for some calls, then do something else; the list of calls grows."""
    objective = skattn.contextualizer.Objective
    works, calls = objective.value_and_grad, []

    def value_and_grad(self, theta):
        calls.append(1)
        return then() if len(calls) > n_calls else works(self, theta)

    monkeypatch.setattr(objective, "value_and_grad", value_and_grad)
    return calls


def interrupt(*args, **kwargs):
    """What control-C does."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_objective_that_is_not_finite_is_never_a_success(sets, monkeypatch, bad):
    calls = fail_after(monkeypatch, 4, lambda: (bad, np.zeros(1)))
    with pytest.warns(ConvergenceWarning, match="infinite or NaN.*standardize=True"):
        model = small().fit(sets, Y["log_loss"])
    assert len(calls) == 6  # a restart from the best point tries once more
    assert not model.converged_
    assert np.isfinite(model.loss_)
    assert np.all(np.isfinite(model.transform(sets)))


def test_an_objective_that_is_not_finite_at_the_start_is_an_error(sets, monkeypatch):
    fail_after(monkeypatch, 0, lambda: (np.nan, np.zeros(1)))
    with pytest.raises(ValueError, match="not finite at the start"):
        small().fit(sets, Y["log_loss"])


@pytest.mark.parametrize("pooling", ["mean", "attention", None])
@pytest.mark.parametrize("n_calls", [1, 5])
@unfinished
def test_an_interrupt_leaves_the_best_point_and_is_raised_again(
    sets, monkeypatch, n_calls, pooling
):
    model = small(pooling=pooling, warm_start=True, max_iter=6, tol=1e-8)
    with monkeypatch.context() as patch:
        fail_after(patch, n_calls, interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.fit(sets, Y["log_loss"])
    out = model.transform(sets)
    assert np.all(np.isfinite(out.values if pooling is None else out))
    assert len(model.get_feature_names_out()) == 8
    assert not model.converged_
    reached = model.loss_
    model.fit(sets, Y["log_loss"])  # goes on from there
    assert_allclose(model.loss_curve_[0], reached, rtol=1e-10)
    if n_calls == 5:
        uninterrupted = small(pooling=pooling, max_iter=0).fit(sets, Y["log_loss"])
        assert reached < uninterrupted.loss_


def test_an_interrupt_before_the_first_value_leaves_an_unfitted_model_so(sets, monkeypatch):
    model = small()
    with monkeypatch.context() as patch:
        fail_after(patch, 0, interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.fit(sets, Y["log_loss"])
    with pytest.raises(NotFittedError):
        model.transform(sets)


@unfinished
def test_an_interrupt_while_printing_is_one_too(sets, monkeypatch):
    model = small(verbose=1, max_iter=30)
    monkeypatch.setattr("builtins.print", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(sets, Y["log_loss"])
    assert np.all(np.isfinite(model.transform(sets)))
    assert model.n_iter_ == 0
