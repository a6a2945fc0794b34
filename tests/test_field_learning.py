"""Field cases F20 to F25 and F28: stopping, precision, labels, weights and the loss curve."""

import functools
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import MASK_NAMES, penalised_loss, targets_of
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight

from skattn import AttentionContextualizer, RaggedArray, contextualizer, solvers
from skattn.losses import LOSSES
from skattn.pooling import POOLINGS
from skattn.solvers import SOLVERS

PARTS = ("W_Q_", "W_K_", "W_V_", "b_V_", "coef_", "intercept_")


def small(**params):
    """A well-penalised model that trains in a few steps."""
    settings = {"n_heads": 2, "d_k": 2, "d_v": 2, "alpha": 0.1, "random_state": 0}
    return AttentionContextualizer(**{**settings, **params})


@pytest.fixture
def sets(rng):
    return [rng.normal(size=(n, 3)) for n in (4, 3, 1, 4, 9, 2, 5, 3, 6, 2, 4, 7)]


@pytest.fixture
def labels(rng, sets):
    return rng.permutation(np.arange(len(sets)) % 2)


@pytest.fixture
def objectives(monkeypatch):
    """The objectives that fits minimise from here on, in order."""
    built = []

    class Recorded(contextualizer.Objective):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            built.append(self)

    monkeypatch.setattr(contextualizer, "Objective", Recorded)
    return built


def risk(est, sets, y):
    """The objective from what is public: the head's loss on `transform`, and the penalty."""
    pooled = est.transform(sets)
    if est.pooling is None:
        pooled = np.array([tokens.mean(axis=0) for tokens in pooled])
    raw = pooled @ est.coef_.T + est.intercept_
    loss = LOSSES[est.loss]()
    y = np.searchsorted(est.classes_, y) if loss.is_classifier else np.reshape(y, (len(y), -1))
    return penalised_loss(est, loss, raw, y, np.ones(len(y)))


# F20 ------------------------------------------------------------------------------------------


def convergence_warnings(call):
    """The texts of a call's warnings, all of which are about convergence."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        call()
    assert {w.category for w in record} <= {ConvergenceWarning}
    return [str(w.message) for w in record]


def stored(est, objective):
    """The fitted parameters as the objective's flat vector, for labels."""
    names = objective.layout.shapes
    parts = {n: est.pooling_params_.get(n, getattr(est, n + "_", None)) for n in names}
    return objective.layout.pack(parts)


def test_f20_the_iteration_limit_asks_for_more_iterations(sets, labels, objectives):
    est = small(tol=1e-30, max_iter=1)
    (text,) = convergence_warnings(lambda: est.fit(sets, labels))
    assert est.n_iter_ == 1
    assert not est.converged_
    assert re.search(r"(?i)increase max_iter", text)
    assert re.search(r"\b1 iteration", text)
    _, gradient = objectives[0].value_and_grad(stored(est, objectives[0]))
    (reported,) = re.findall(r"max \|gradient\| \D*([\d.]+(?:e-?\d+)?)", text)
    assert_allclose(float(reported), np.abs(gradient).max(), rtol=1e-2)  # three digits are shown
    assert np.all(np.isfinite(est.transform(sets)))


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_f20_an_abnormal_stop_gives_other_advice(sets, labels, pooling):
    """No gradient is ever below 1e-30: the line search gives up before the limit."""
    est = small(tol=1e-30, max_iter=4_000, pooling=pooling)
    (text,) = convergence_warnings(lambda: est.fit(sets, labels))
    assert est.n_iter_ < est.max_iter
    assert not est.converged_
    assert str(est.n_iter_) in text
    assert "max |gradient|" in text
    assert not re.search(r"(?i)(increase|raise|larger) max_iter", text)
    assert "tol" in text
    assert np.all(np.isfinite(est.transform(sets)))


@pytest.mark.parametrize("max_iter", [50, 1])
@pytest.mark.parametrize("solver", SOLVERS)
def test_f20_a_stop_is_never_silent(rng, sets, max_iter, solver):
    y = rng.normal(size=len(sets))
    est = small(alpha=1e-3, tol=1e-30, max_iter=max_iter, solver=solver)
    (text,) = convergence_warnings(lambda: est.fit(sets, y))
    assert not est.converged_
    assert f"{est.n_iter_} iteration" in text
    assert "max |gradient|" in text
    assert ("ncrease max_iter" in text) == (est.n_iter_ == max_iter)
    assert np.all(np.isfinite(est.transform(sets)))


def test_f20_the_decision_follows_the_gradient(sets, labels, objectives):
    est = small(tol=1e-5)
    assert convergence_warnings(lambda: est.fit(sets, labels)) == []
    assert est.converged_
    assert est.n_iter_ < est.max_iter
    _, gradient = objectives[0].value_and_grad(stored(est, objectives[0]))
    assert np.abs(gradient).max() <= 1e-5


@pytest.mark.parametrize("message", ["ABNORMAL: ", "CONVERGENCE: ALL IS WELL", ""])
@pytest.mark.parametrize("status", [0, 1, 2])
def test_f20_the_text_that_scipy_sends_decides_nothing(monkeypatch, sets, labels, message, status):
    """A method that gives up at once, whatever it says, has not converged."""

    def gives_up(fun, x0, **kwargs):
        value, grad = fun(x0)
        return solvers.optimize.OptimizeResult(
            x=x0, fun=value, jac=grad, status=status, message=message, nit=0, success=status == 0
        )

    monkeypatch.setattr(solvers.optimize, "minimize", gives_up)
    est = small()
    (text,) = convergence_warnings(lambda: est.fit(sets, labels))
    assert not est.converged_
    assert message.strip() in text
    assert not re.search(r"(?i)(increase|raise|larger) max_iter", text)


def test_f20_a_trial_step_that_overflows_leaks_no_other_warning(awkward_sets):
    """A Poisson mean of exp(raw) overflows on a long trial step; the solver deals with that."""
    y = np.arange(len(awkward_sets)) % 3
    est = small(n_heads=1, alpha=1.0, loss="poisson")
    convergence_warnings(lambda: est.fit(awkward_sets, y))
    assert np.isfinite(est.loss_)
    assert np.all(np.isfinite(est.transform(awkward_sets)))


# F21 ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("max_fun", [1, 2, 3, 7])
@pytest.mark.parametrize("solver", SOLVERS)
def test_f21_a_stop_by_evaluations_returns_the_best_point(
    monkeypatch, objectives, sets, labels, solver, max_fun
):
    limited = functools.partial(solvers.minimize, max_fun=max_fun)
    monkeypatch.setattr("skattn._objective.minimize", limited)
    est = small(solver=solver, loss="log_loss").fit(sets, labels)
    value, _ = objectives[0].value_and_grad(stored(est, objectives[0]))
    assert_allclose(est.loss_, value, rtol=1e-12)
    assert_allclose(est.loss_, risk(est, sets, labels), rtol=1e-12)
    assert est.loss_ == min(est.loss_curve_)
    assert est.loss_ <= est.loss_curve_[0]
    assert not est.converged_


def test_f21_the_best_point_is_kept_when_the_last_is_worse():
    """Every evaluation counts, also those of a line search that was cut short."""
    seen = []

    def rosenbrock(x):
        value = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
        gradient = [
            -400 * x[0] * (x[1] - x[0] ** 2) - 2 * (1 - x[0]),
            200 * (x[1] - x[0] ** 2),
        ]
        seen.append((value, x.copy()))
        return value, np.array(gradient)

    for solver in SOLVERS:
        for max_fun in range(1, 15):
            seen.clear()
            result = solvers.minimize(
                rosenbrock, np.array([-1.2, 1.0]), solver=solver, max_fun=max_fun
            )
            assert len(seen) <= max_fun
            best, at = min(seen, key=lambda pair: pair[0])
            assert result.loss == best == min(result.loss_curve)
            assert_array_equal(result.theta, at)
            assert result.loss_curve[0] == seen[0][0]


# F28, and the rest of F21 ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", [1, 3, 40])
@pytest.mark.parametrize("solver", SOLVERS)
def test_f28_every_solver_has_a_curve_down_to_the_stored_point(sets, labels, solver, max_iter):
    est = small(solver=solver, max_iter=max_iter, loss="log_loss").fit(sets, labels)
    assert est.loss_ == min(est.loss_curve_)
    assert est.loss_ < est.loss_curve_[0]
    assert_allclose(est.loss_, risk(est, sets, labels), rtol=1e-12)
    assert 1 <= est.n_iter_ <= max_iter
    assert est.n_iter_ + 1 <= len(est.loss_curve_) <= est.n_iter_ + 2
    assert np.all(np.isfinite(est.loss_curve_))
    start = small(solver=solver, max_iter=0, loss="log_loss").fit(sets, labels)
    assert_allclose(est.loss_curve_[0], risk(start, sets, labels), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("loss", LOSSES)
def test_f28_the_reported_loss_is_that_of_the_stored_parameters(rng, sets, pooling, loss):
    """In units of y too: coefficients are turned back, and their loss with them."""
    y = targets_of(LOSSES[loss](), len(sets), 3, rng) * (1 if LOSSES[loss].is_classifier else 5.0)
    est = small(pooling=pooling, loss=loss, max_iter=5).fit(sets, y)
    assert_allclose(est.loss_, risk(est, sets, y), rtol=1e-12)
    assert est.loss_ == min(est.loss_curve_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", SOLVERS)
def test_f28_progress_is_printed_when_asked_for_and_only_then(sets, labels, solver, capfd):
    quiet = small(solver=solver, max_iter=3).fit(sets, labels)
    assert capfd.readouterr() == ("", "")
    loud = small(solver=solver, max_iter=3, verbose=1).fit(sets, labels)
    printed = "".join(capfd.readouterr())
    assert len(printed.splitlines()) >= loud.n_iter_
    assert quiet.loss_curve_ == loud.loss_curve_
    for name in PARTS:
        assert_array_equal(getattr(quiet, name), getattr(loud, name))


# F22 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
def test_f22_loss_and_gradient_agree_in_single_precision(
    rng, objectives, awkward_sets, pooling, mask
):
    y = np.arange(len(awkward_sets)) % 3
    double = [tokens.astype(np.float32).astype(np.float64) for tokens in awkward_sets]
    single = [tokens.astype(np.float32) for tokens in awkward_sets]
    for tokens in single[::2]:
        tokens.flags.writeable = False
    for X in (double, single):
        small(pooling=pooling, mask=mask, max_iter=0).fit(X, y)
    for _ in range(3):
        theta = 0.5 * rng.normal(size=objectives[0].layout.size)
        (value, grad), (value_32, grad_32) = (o.value_and_grad(theta) for o in objectives)
        assert grad_32.dtype == np.float64
        assert_allclose(value_32, value, rtol=1e-5)
        assert_allclose(grad_32, grad, atol=1e-5 * np.abs(grad).max(), rtol=0)


# not "sum", whose gradients are n times as large: noise of float32 stops it before 1e-5
@pytest.mark.parametrize("pooling", [name for name in POOLINGS if name != "sum"])
@pytest.mark.parametrize("writeable", [True, False])
def test_f22_float32_sets_train_in_float64_and_transform_in_float32(
    sets, labels, pooling, writeable
):
    single = [tokens.astype(np.float32) for tokens in sets]
    double = [tokens.astype(np.float64) for tokens in single]
    for tokens in single:
        tokens.flags.writeable = writeable
    settings = {"pooling": pooling, "alpha": 0.3, "tol": 1e-5, "max_iter": 1000}
    expected = small(**settings).fit(double, labels)
    est = small(**settings).fit(single, labels)
    assert est.converged_
    for name in PARTS:
        assert getattr(est, name).dtype == np.float64
    assert est.transform(single).dtype == np.float32
    assert est.transform(double).dtype == np.float64
    assert est.contextualize(single).dtype == np.float32
    assert {w.dtype for w in est.attention_weights(single)} == {np.dtype(np.float32)}
    assert_allclose(est.transform(single), est.transform(double), rtol=1e-5, atol=1e-5)
    assert_allclose(est.loss_, expected.loss_, rtol=1e-5)
    raw, raw_64 = (
        e.transform(X) @ e.coef_.T + e.intercept_ for e, X in ((est, single), (expected, double))
    )
    assert_allclose(raw, raw_64, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint16, bool, np.float16])
def test_f22_other_numbers_are_tokens_too(sets, labels, dtype):
    tokens = [np.round(4 * np.abs(x)).astype(dtype) for x in sets]
    expected = [x.astype(np.float64) for x in tokens]
    est = small(max_iter=0).fit(tokens, labels)
    assert est.transform(tokens).dtype == np.float64
    assert_array_equal(est.transform(tokens), est.transform(expected))
    assert est.loss_ == small(max_iter=0).fit(expected, labels).loss_


# F23 ------------------------------------------------------------------------------------------

WORDS = ["no", "yes", "yes", "no", "no", "yes", "no", "yes", "yes", "no", "no", "no"]


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (WORDS, ["no", "yes"]),
        (np.array(WORDS), ["no", "yes"]),
        (np.array(WORDS, dtype=object), ["no", "yes"]),
        (pd.Series(WORDS, index=range(20, 32)), ["no", "yes"]),
        (pd.Series(WORDS, dtype="category"), ["no", "yes"]),
        (pd.Categorical(WORDS), ["no", "yes"]),
        ([word == "yes" for word in WORDS], [False, True]),
        (pd.Series([word == "yes" for word in WORDS]), [False, True]),
        (np.array([word == "yes" for word in WORDS], dtype=np.uint8), [0, 1]),
        ([1 if word == "yes" else -1 for word in WORDS], [-1, 1]),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_f23_labels_of_every_kind_train_the_same_parameters(sets, y, classes):
    reference = small().fit(sets, [int(word == "yes") for word in WORDS])
    est = small().fit(sets, y)
    assert est.classes_.tolist() == classes
    for name in PARTS:
        assert_array_equal(getattr(est, name), getattr(reference, name))
    assert est.loss_ == reference.loss_


def test_f23_three_words_are_three_classes(sets):
    y = np.array(["pear", "apple", "fig"] * 4)
    est = small().fit(sets, y)
    assert est.classes_.tolist() == ["apple", "fig", "pear"]
    assert est.coef_.shape[0] == 3
    reference = small().fit(sets, np.searchsorted(est.classes_, y))
    assert_array_equal(est.coef_, reference.coef_)


# F24 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [[0, 1], ["a", "b"]])
def test_f24_class_weights_are_sample_weights(rng, sets, objectives, names):
    y = np.array(names)[[0] * 9 + [1] * 3]
    balanced = compute_class_weight("balanced", classes=np.array(names), y=y)
    assert_allclose(balanced, [0.666667, 2.0], atol=5.1e-7)
    by_hand = np.repeat([2 / 3, 2.0], [9, 3])
    extra = rng.uniform(0.5, 2, size=12)
    named = dict(zip(names, [2 / 3, 2.0], strict=True))
    fits = [
        small(class_weight="balanced").fit(sets, y),
        small(class_weight=named).fit(sets, y),
        small().fit(sets, y, sample_weight=by_hand),
        small(class_weight="balanced").fit(sets, y, sample_weight=extra),
        small(class_weight=named).fit(sets, y, sample_weight=extra),
        small().fit(sets, y, sample_weight=by_hand * extra),
    ]
    for group in (slice(0, 3), slice(3, 6)):
        *weighted, reference = fits[group]
        *others, expected = objectives[group]
        theta = rng.normal(size=expected.layout.size)
        value, grad = expected.value_and_grad(theta)
        for est, objective in zip(weighted, others, strict=True):
            got, got_grad = objective.value_and_grad(theta)
            assert_allclose(got, value, rtol=1e-12)
            assert_allclose(got_grad, grad, rtol=1e-12, atol=1e-12)
            assert_allclose(est.token_mean_, reference.token_mean_, atol=1e-12)
            assert_allclose(est.loss_, reference.loss_, rtol=1e-8)
    assert fits[0].loss_ != small().fit(sets, y).loss_


# F25 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("loss", LOSSES)
def test_f25_zero_and_integer_weights_are_repetition(rng, objectives, loss, pooling, mask):
    A, B, C = (rng.normal(size=(n, 3)) for n in (2, 3, 4))
    B *= 100  # it would set scales
    y = np.array([0, 7, 1]) if LOSSES[loss].is_classifier else np.array([0.5, 700.0, 1.5])
    settings = {"loss": loss, "pooling": pooling, "mask": mask, "max_iter": 0}
    weighted = small(**settings).fit([A, B, C], y, sample_weight=[1, 0, 2])
    repeated = small(**settings).fit([A, C, C], y[[0, 2, 2]])
    assert_allclose(weighted.token_mean_, repeated.token_mean_, atol=1e-12)
    assert_allclose(weighted.token_scale_, repeated.token_scale_, rtol=1e-12)
    if LOSSES[loss].is_classifier:
        assert weighted.classes_.tolist() == [0, 1]
    assert_allclose(weighted.loss_, repeated.loss_, rtol=1e-12)
    for _ in range(3):
        theta = 0.5 * rng.normal(size=objectives[0].layout.size)
        (value, grad), (expected, expected_grad) = (o.value_and_grad(theta) for o in objectives)
        assert_allclose(value, expected, rtol=1e-12)
        assert_allclose(grad, expected_grad, rtol=1e-12, atol=1e-12 * np.abs(grad).max())


def test_f25_a_set_of_weight_zero_may_hold_anything_finite(rng, sets, labels):
    weight = np.ones(len(sets) + 1)
    weight[4] = 0
    huge = [*sets[:4], np.full((2, 3), 1e300), *sets[4:]]
    y = np.insert(labels, 4, 9)
    est, expected = small().fit(huge, y, sample_weight=weight), small().fit(sets, labels)
    for name in (*PARTS, "classes_", "token_mean_", "token_scale_"):
        assert_array_equal(getattr(est, name), getattr(expected, name))


def test_f25_the_scale_of_the_weights_does_not_matter(sets, labels, objectives):
    weight = np.linspace(1, 2, len(sets))
    one = small(max_iter=0).fit(sets, labels, sample_weight=weight)
    other = small(max_iter=0).fit(sets, labels, sample_weight=1000 * weight)
    assert_allclose(one.loss_, other.loss_, rtol=1e-12)


@pytest.mark.parametrize(
    "weight",
    [[0.0, 0, 0], [1, -1, 1], [1, np.nan, 1], [1, np.inf, 1], [1, 1], [[1, 1, 1]], ["a", "b", "c"]],
    ids=["zeros", "negative", "nan", "infinite", "short", "2d", "text"],
)
def test_f25_weights_that_mean_nothing_are_refused(rng, weight):
    sets = [rng.normal(size=(n, 3)) for n in (2, 3, 4)]
    with pytest.raises(ValueError, match=r"(?i)sample_weight|could not convert"):
        small().fit(sets, [0, 1, 0], sample_weight=weight)


def test_f25_token_weights_and_set_weights_standardise_together(rng):
    """A token counts by its own weight times that of its set."""
    sets = [rng.normal(size=(n, 3)) for n in (2, 3, 4)]
    counts = [rng.integers(1, 4, size=len(tokens)) for tokens in sets]
    weighted = RaggedArray.from_list(sets, weights=counts)
    repeated = [np.repeat(x, c, axis=0) for x, c in zip(sets, counts, strict=True)]
    a = small(max_iter=0).fit(weighted, [0, 1, 0], sample_weight=[1, 2, 3])
    b = small(max_iter=0).fit(
        [repeated[i] for i in (0, 1, 1, 2, 2, 2)], np.array([0, 1, 1, 0, 0, 0])
    )
    assert_allclose(a.token_mean_, b.token_mean_, atol=1e-12)
    assert_allclose(a.token_scale_, b.token_scale_, rtol=1e-12)
    assert_allclose(a.loss_, b.loss_, rtol=1e-12)
