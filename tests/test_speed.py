"""Ratios of times within one run: the production path against the textbook's, in turns.

The bounds lie far below what is measured on a quiet machine (see benchmarks/results/speed.md for
times), so that only a lost optimisation fails, never a busy neighbour: he slows both alike.
"""

import time

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import attend_and_pool, log_loss_gradient, make_objective
from threadpoolctl import threadpool_limits

from skattn import AttentionContextualizer, RaggedArray
from skattn.attention import Attention
from skattn.losses import LogLoss
from skattn.pooling import MeanPooling

N_SETS, D, ROUNDS = 2_000, 16, 7


@pytest.fixture(params=[1, 4], ids=["one head", "four heads"])
def task(request, rng):
    """Many small sets, labels, and the objective of mean pooling at some parameters."""
    sets = [rng.normal(size=(n, D)) for n in rng.integers(3, 31, size=N_SETS)]
    X, y = RaggedArray.from_list(sets), rng.integers(0, 2, size=N_SETS)
    attention = Attention(request.param, D, D, score_statistics=False)
    objective = make_objective(
        X, y, np.ones(N_SETS), 1, attention, MeanPooling(), LogLoss(), alpha=0.0
    )
    return sets, X, y, objective, 0.3 * rng.normal(size=objective.layout.size)


def median_ratio(slow, fast):
    """Median over the rounds of the time of `slow` over that of `fast`, called in turns."""
    ratios = []
    with threadpool_limits(1, user_api="blas"):
        for _ in range(ROUNDS):
            seconds = []
            for call in (slow, fast):
                start = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - start)
            ratios.append(seconds[0] / seconds[1])
    return np.median(ratios)


def test_loss_and_gradient_are_three_times_as_fast_as_set_by_set(task):
    sets, _, y, objective, theta = task
    params, n_heads = objective.layout.unpack(theta), objective.network.attention.n_heads
    value, grads = log_loss_gradient(params, sets, y, n_heads=n_heads)
    fast_value, fast_grad = objective.value_and_grad(theta)
    assert_allclose(fast_value, value, rtol=1e-10)
    for name, grad in objective.layout.unpack(fast_grad).items():
        assert_allclose(grad, grads[name], rtol=0, atol=1e-10 * np.abs(grads[name]).max())
    ratio = median_ratio(
        lambda: log_loss_gradient(params, sets, y, n_heads=n_heads),
        lambda: objective.value_and_grad(theta),
    )
    print(ratio)
    assert ratio >= 3


def test_pooled_transform_is_twice_as_fast_as_set_by_set(task):
    sets, X, y, objective, theta = task
    params, n_heads = objective.layout.unpack(theta), objective.network.attention.n_heads
    estimator = AttentionContextualizer(
        n_heads=n_heads,
        d_k=D,
        d_v=D,
        score_statistics=False,
        standardize=False,
        max_iter=0,
        init={name: params[name] for name in ("W_Q", "W_K", "W_V")},
    ).fit(X)

    def set_by_set():
        return np.array([attend_and_pool(params, tokens, n_heads=n_heads)[0] for tokens in sets])

    assert_allclose(estimator.transform(X), set_by_set(), rtol=1e-10, atol=1e-12)
    assert median_ratio(set_by_set, lambda: estimator.transform(X)) >= 2
