"""Losses on the raw prediction: values, gradients, and what other libraries say they are."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import targets_of
from scipy.special import expit, softmax
from sklearn import metrics

from skattn.losses import LOSSES, HuberLoss

N = 12


def targets(name, n_outputs, rng):
    """Targets as the loss takes them: indices of classes, or (n, n_outputs) numbers."""
    return targets_of(LOSSES[name](), N, n_outputs, rng)


CASES = [(name, n) for name in LOSSES for n in (1, 3)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request, rng):
    """Each loss of the table, with targets, raw predictions and weights."""
    name, n_outputs = request.param
    y = targets(name, n_outputs, rng)
    raw = 1.5 * rng.normal(size=(N, n_outputs))  # Huber's corners lie within
    return LOSSES[name](), y, raw, rng.uniform(0.5, 2, size=N)


def test_gradient_is_the_derivative_in_every_entry(case):
    loss, y, raw, weight = case
    _, gradient = loss.loss_gradient(y, raw, weight)
    assert gradient.shape == raw.shape
    numeric, step = np.empty_like(raw), 1e-5
    for entry in np.ndindex(raw.shape):
        nudge = np.zeros_like(raw)
        nudge[entry] = step
        up, _ = loss.loss_gradient(y, raw + nudge, weight)
        down, _ = loss.loss_gradient(y, raw - nudge, weight)
        numeric[entry] = np.sum(up - down) / (2 * step)
    assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-8)


def test_weights_multiply_losses_and_gradients(case):
    loss, y, raw, weight = case
    ones, d_ones = loss.loss_gradient(y, raw, np.ones(N))
    weighted, d_weighted = loss.loss_gradient(y, raw, weight)
    assert ones.shape == (N,)
    assert_allclose(weighted, weight * ones, rtol=1e-15)
    assert_allclose(d_weighted, weight[:, None] * d_ones, rtol=1e-15)


def test_a_set_of_weight_zero_says_nothing(case):
    loss, y, raw, weight = case
    weight = weight.copy()
    weight[3] = 0
    value, gradient = loss.loss_gradient(y, raw, weight)
    assert value[3] == 0
    assert_array_equal(gradient[3], np.zeros(raw.shape[1]))


def test_rows_have_nothing_to_do_with_each_other(case):
    loss, y, raw, weight = case
    value, gradient = loss.loss_gradient(y, raw, weight)
    rows = [7, 2]
    alone, d_alone = loss.loss_gradient(y[rows], raw[rows], weight[rows])
    assert_allclose(alone, value[rows], rtol=1e-14)
    assert_allclose(d_alone, gradient[rows], rtol=1e-14)


def test_a_loss_is_no_less_than_zero(case):
    loss, y, raw, weight = case
    assert np.all(loss.loss_gradient(y, raw, weight)[0] >= 0)


def test_arguments_are_left_as_they_are(case):
    loss, *arrays = case
    for array in arrays:
        array.flags.writeable = False
    first, second = loss.loss_gradient(*arrays), loss.loss_gradient(*arrays)
    for a, b in zip(first, second, strict=True):
        assert_array_equal(a, b)


@pytest.mark.parametrize("name", LOSSES)
def test_it_is_a_frozen_value(name):
    loss = LOSSES[name]()
    assert dataclasses.is_dataclass(loss)
    assert loss == LOSSES[name]()
    assert hash(loss) == hash(LOSSES[name]())


@pytest.mark.parametrize("name", ["squared_error", "poisson", "gamma"])
def test_the_start_is_the_best_constant(name, rng):
    loss, n_outputs = LOSSES[name](), 2
    y, weight = targets(name, n_outputs, rng), rng.uniform(0.5, 2, size=N)
    if loss.scales_target:  # the estimator standardises these
        y = y - np.average(y, axis=0, weights=weight)
    raw = np.broadcast_to(loss.start(y, weight), (N, n_outputs))
    _, gradient = loss.loss_gradient(y, raw, weight)
    assert_allclose(gradient.sum(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("name", ["poisson", "gamma"])
def test_the_start_of_a_log_link_is_the_log_of_the_mean(name, n_outputs, rng):
    y, weight = targets(name, n_outputs, rng), rng.uniform(0.5, 2, size=N)
    start = LOSSES[name]().start(y, weight)
    assert_allclose(np.exp(start), np.average(y, axis=0, weights=weight))


# What other libraries say


def mean_loss(name, y, raw, weight):
    """The weighted mean of a loss, as the objective forms it."""
    return LOSSES[name]().loss_gradient(y, raw, weight)[0].sum() / weight.sum()


@pytest.mark.parametrize("n_outputs", [1, 3, 5])
def test_log_loss_is_scikit_learns(n_outputs, rng):
    y, raw, weight = (
        targets("log_loss", n_outputs, rng),
        rng.normal(size=(N, n_outputs)),
        rng.uniform(size=N),
    )
    p = expit(raw[:, 0]) if n_outputs == 1 else softmax(raw, axis=1)
    expected = metrics.log_loss(y, p, sample_weight=weight)
    assert_allclose(mean_loss("log_loss", y, raw, weight), expected, rtol=1e-12)


def test_two_columns_of_raw_predictions_are_one_difference(rng):
    y, raw = np.arange(N) % 2, rng.normal(size=(N, 2))
    two, d_two = LOSSES["log_loss"]().loss_gradient(y, raw, np.ones(N))
    one, d_one = LOSSES["log_loss"]().loss_gradient(y, raw[:, 1:] - raw[:, :1], np.ones(N))
    assert_allclose(two, one, rtol=1e-12)
    assert_allclose(d_two, np.hstack([-d_one, d_one]), rtol=1e-12)


DEVIANCES = {
    "squared_error": (metrics.mean_squared_error, lambda raw: raw),
    "poisson": (metrics.mean_poisson_deviance, np.exp),
    "gamma": (metrics.mean_gamma_deviance, np.exp),
}


@pytest.mark.parametrize("name", DEVIANCES)
def test_regression_losses_are_half_of_scikit_learns(name, rng):
    metric, link = DEVIANCES[name]
    y, raw, weight = targets(name, 1, rng), rng.normal(size=(N, 1)), rng.uniform(size=N)
    expected = metric(y, link(raw), sample_weight=weight) / 2
    assert_allclose(mean_loss(name, y, raw, weight), expected, rtol=1e-12)
    assert_array_equal(LOSSES[name]().inverse_link(raw), link(raw))


@pytest.mark.parametrize("name", [*DEVIANCES, "huber"])
def test_losses_of_several_outputs_add_up(name, rng):
    y, raw = targets(name, 3, rng), rng.normal(size=(N, 3))
    together, d_together = LOSSES[name]().loss_gradient(y, raw, np.ones(N))
    alone = [LOSSES[name]().loss_gradient(y[:, [j]], raw[:, [j]], np.ones(N)) for j in range(3)]
    assert_allclose(together, sum(value for value, _ in alone), rtol=1e-12)
    assert_allclose(d_together, np.hstack([gradient for _, gradient in alone]), rtol=1e-12)


@pytest.mark.parametrize("delta", [0.3, 1.35, 100.0])
def test_huber_is_quadratic_within_delta_and_linear_beyond(delta, rng):
    y, raw = rng.normal(size=(N, 1)), 2 * rng.normal(size=(N, 1))
    error = np.abs(raw - y)[:, 0]
    value, gradient = HuberLoss(delta).loss_gradient(y, raw, np.ones(N))
    expected = np.where(error <= delta, error**2 / 2, delta * (error - delta / 2))
    assert_allclose(value, expected, rtol=1e-12)
    assert np.all(np.abs(gradient) <= delta)


@pytest.mark.parametrize(
    ("name", "n_outputs", "function"),
    [
        ("log_loss", 3, lambda F, raw, y: F.cross_entropy(raw, y, reduction="none")),
        (
            "log_loss",
            1,
            lambda F, raw, y: F.binary_cross_entropy_with_logits(
                raw[:, 0], y.to(raw), reduction="none"
            ),
        ),
        ("squared_error", 1, lambda F, raw, y: F.mse_loss(raw, y, reduction="none")[:, 0] / 2),
        ("huber", 1, lambda F, raw, y: F.huber_loss(raw, y, reduction="none", delta=1.35)[:, 0]),
    ],
    ids=["multinomial", "binary", "squared", "huber"],
)
def test_losses_and_gradients_are_torchs(name, n_outputs, function, rng):
    torch = pytest.importorskip("torch")
    y, raw, weight = (
        targets(name, n_outputs, rng),
        2 * rng.normal(size=(N, n_outputs)),
        rng.uniform(size=N),
    )
    raw_there = torch.tensor(raw, requires_grad=True)
    expected = function(torch.nn.functional, raw_there, torch.tensor(y)) * torch.tensor(weight)
    expected.sum().backward()
    value, gradient = LOSSES[name]().loss_gradient(y, raw, weight)
    assert_allclose(value, expected.detach().numpy(), rtol=1e-12, atol=1e-15)
    assert_allclose(gradient, raw_there.grad.numpy(), rtol=1e-12, atol=1e-15)


def test_poisson_differs_from_torchs_by_a_constant(rng):
    torch = pytest.importorskip("torch")
    y, raw = targets("poisson", 1, rng), rng.normal(size=(N, 1))
    there = torch.nn.functional.poisson_nll_loss(
        torch.tensor(raw), torch.tensor(y), reduction="none"
    ).numpy()[:, 0]
    value, _ = LOSSES["poisson"]().loss_gradient(y, raw, np.ones(N))
    at_best, _ = LOSSES["poisson"]().loss_gradient(y, np.log(y + 1e-300), np.ones(N))
    assert_allclose(at_best, 0, atol=1e-12)  # a deviance: 0 where mu is y
    constant = there - value
    other, _ = LOSSES["poisson"]().loss_gradient(y, raw + 0.7, np.ones(N))
    there_other = torch.nn.functional.poisson_nll_loss(
        torch.tensor(raw + 0.7), torch.tensor(y), reduction="none"
    ).numpy()[:, 0]
    assert_allclose(there_other - other, constant, rtol=1e-10, atol=1e-12)


# The edges


@pytest.mark.parametrize("size", [40.0, 800.0, 1e10, 1e300])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_log_loss_is_finite_for_any_finite_prediction(size, n_outputs):
    y = np.array([0, 1, 0, 1])
    raw = np.full((4, n_outputs), -size)
    raw[:2, 0] = size
    value, gradient = LOSSES["log_loss"]().loss_gradient(y, raw, np.ones(4))
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(gradient))
    assert np.all(np.abs(gradient) <= 1)
    if n_outputs == 1:  # class 1 where raw is large
        assert_allclose(value, [size, 0, 0, size], atol=1e-15)
        assert_allclose(gradient.ravel(), [1, 0, 0, -1], atol=1e-15)
    else:
        assert_allclose(value[:2] / size, [0, 2], atol=1e-12)


@pytest.mark.parametrize("name", ["poisson", "gamma"])
def test_an_overflow_is_an_infinite_loss_not_a_warning(name):
    raw = np.array([[1e4 if name == "poisson" else -1e4]])
    value, gradient = LOSSES[name]().loss_gradient(np.ones((1, 1)), raw, np.ones(1))
    assert np.isinf(value[0])
    assert not np.isnan(gradient).any()


def test_poisson_takes_a_count_of_zero():
    value, gradient = LOSSES["poisson"]().loss_gradient(
        np.zeros((1, 1)), np.array([[np.log(2.0)]]), np.ones(1)
    )
    assert_allclose(value, [2.0])
    assert_allclose(gradient, [[2.0]])


@pytest.mark.parametrize(
    ("name", "y", "match"),
    [
        ("poisson", [[1.0], [-1.0]], "poisson.*0 or more.*from -1.0 to 1.0"),
        ("poisson", [[0.0], [0.0]], "not all of them 0"),
        ("poisson", [[0.0, 1.0], [0.0, 2.0]], "not all of them 0"),
        ("gamma", [[1.0], [0.0]], "gamma.*above 0, but the least is 0.0"),
        ("gamma", [[1.0], [-2.0]], "the least is -2.0"),
    ],
)
def test_targets_outside_the_domain_are_refused(name, y, match):
    with pytest.raises(ValueError, match=match):
        LOSSES[name]().check(np.array(y))


@pytest.mark.parametrize(
    ("name", "y"),
    [
        ("squared_error", [[-1.0], [0.0]]),
        ("huber", [[-1.0], [0.0]]),
        ("poisson", [[0.0, 2.0], [1.5, 0.0]]),
        ("gamma", [[1e-9], [3.0]]),
    ],
)
def test_targets_within_the_domain_are_taken(name, y):
    assert LOSSES[name]().check(np.array(y)) is None
