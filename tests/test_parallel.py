"""Processes and threads change nothing but the time."""

import os
import tempfile
from concurrent.futures import BrokenExecutor
from pathlib import Path

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from threadpoolctl import threadpool_info

from skattn import AttentionContextualizer, RaggedArray, _objective, _parallel
from skattn._parallel import spread_over_threads
from skattn._runtime import one_blas_thread
from skattn.pooling import POOLINGS

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def small_is_worth_it(monkeypatch):
    monkeypatch.setattr(_objective, "WORK_OF_A_PIECE", 2000.0)
    monkeypatch.setattr("skattn._network.MANY_TOKENS", 0)


@pytest.fixture
def data(rng):
    sets = [rng.normal(size=(n, 3)) for n in [*rng.integers(0, 9, size=40), 60]]
    weights = [rng.integers(1, 3, size=len(tokens)) for tokens in sets]
    return RaggedArray.from_list(sets, weights), np.arange(41) % 3


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_processes_and_threads_change_no_bit(small_is_worth_it, data, pooling, dtype):
    X, y = data[0].astype(dtype), data[1]
    settings = {"n_heads": 2, "d_k": 2, "d_v": 2, "max_iter": 8, "random_state": 0}
    one, two = (
        AttentionContextualizer(pooling=pooling, n_jobs=n_jobs, **settings).fit(
            X, y, sample_weight=1 + y
        )
        for n_jobs in (1, 2)
    )
    assert one.loss_curve_ == two.loss_curve_
    for name in ("W_Q_", "W_K_", "W_V_", "coef_", "intercept_"):
        assert_array_equal(getattr(one, name), getattr(two, name))
    assert_array_equal(one.transform(X), two.transform(X))
    assert_array_equal(one.contextualize(X).values, two.contextualize(X).values)


def test_processes_are_really_used(small_is_worth_it, data, monkeypatch):
    submitted, workers = [], _parallel._workers

    class Counting:
        def __init__(self, n):
            self.pool = workers(n)

        def submit(self, call, *args):
            submitted.append(call)
            return self.pool.submit(call, *args)

    monkeypatch.setattr(_parallel, "_workers", Counting)
    AttentionContextualizer(n_heads=1, max_iter=2, n_jobs=2).fit(*data)
    assert submitted.count(_parallel._sums) >= 3  # the start and two iterations
    assert submitted[-1] is _parallel._forget


def test_workers_that_were_killed_are_replaced(small_is_worth_it, data):
    model = AttentionContextualizer(n_heads=1, max_iter=2, n_jobs=2, random_state=0)
    loss = model.fit(*data).loss_
    with pytest.raises(BrokenExecutor):
        _parallel._workers(1).submit(os._exit, 1).result()
    assert model.fit(*data).loss_ == loss


def test_a_small_fit_stays_in_one_process(data, monkeypatch):
    monkeypatch.setattr(_parallel, "_workers", None)
    AttentionContextualizer(n_heads=1, max_iter=2, n_jobs=2).fit(*data)


def test_nothing_is_left_behind(small_is_worth_it, data):
    before = {path.name for path in Path(tempfile.gettempdir()).glob("skattn-*")}
    threads = [(lib["filepath"], lib["num_threads"]) for lib in threadpool_info()]
    AttentionContextualizer(n_heads=1, max_iter=2, n_jobs=2).fit(*data).transform(data[0])
    after = {path.name for path in Path(tempfile.gettempdir()).glob("skattn-*")}
    assert after <= before
    assert [(lib["filepath"], lib["num_threads"]) for lib in threadpool_info()] == threads


def fit_in_worker(data):
    model = AttentionContextualizer(n_heads=1, max_iter=2, n_jobs=2, random_state=0).fit(*data)
    return os.getpid(), _parallel._effective(2), model.loss_


def test_inside_another_parallel_computation_it_is_one_process(data):
    results = joblib.Parallel(n_jobs=2)(joblib.delayed(fit_in_worker)(data) for _ in range(2))
    expected = fit_in_worker(data)[2]
    for pid, n_jobs, loss in results:
        assert pid != os.getpid()
        assert n_jobs == 1
        assert loss == expected


def test_an_error_in_a_thread_is_raised():
    def work(k, n):
        if k == 1:
            raise ValueError("from the second thread")

    with pytest.raises(ValueError, match="second thread"):
        spread_over_threads(work, 2, True)


def test_the_last_to_leave_lifts_the_limit_on_blas():
    def blas():
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    before = blas()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(blas()) == {1}
    second.__exit__(None, None, None)
    assert blas() == before


@pytest.mark.parametrize("n_jobs", ["two", 1.5])
def test_n_jobs_is_an_integer_or_none(data, n_jobs):
    with pytest.raises(TypeError, match="n_jobs must be None or an integer"):
        AttentionContextualizer(n_jobs=n_jobs).fit(*data)
