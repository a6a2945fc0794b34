"""Several processes for a fit, several threads for a transform.

The kernels make many short calls, and Python threads would wait for the interpreter lock between
them. So a fit uses worker processes. They map the packed sets from one file, keep them between
evaluations, and exchange only parameters and gradients. A transform would have to send its sets to
other processes, so it uses threads. The number of processes or threads does not change the result.
"""

import multiprocessing
import os
import time
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory

import joblib
from joblib.externals.loky import ProcessPoolExecutor

from ._runtime import one_blas_thread

SEND_SECONDS = 2e-4  # time for the executor's threads to send a call to its worker
IDLE_SECONDS = 300  # a worker process without work ends after this time


@contextmanager
def spread_over_processes(objective, n_jobs):
    """The value_and_grad of an objective, computed by this process and `n_jobs` - 1 others."""
    n_jobs = min(_effective(n_jobs), len(objective.pieces))
    if n_jobs == 1:
        yield objective.value_and_grad
        return
    shares = [range(k, len(objective.pieces), n_jobs) for k in range(n_jobs)]
    executor = _workers(n_jobs - 1)
    with TemporaryDirectory(prefix="skattn-", ignore_cleanup_errors=True) as folder:
        path = os.path.join(folder, "objective")
        joblib.dump(objective, path)

        def value_and_grad(theta):
            try:
                others = [executor.submit(_sums, path, share, theta) for share in shares[1:]]
                time.sleep(SEND_SECONDS)  # else the sending threads would wait for our kernels
                sums = objective.sums(shares[0], theta)
                for other in others:
                    sums |= other.result()
            except BrokenExecutor:  # a worker was killed: this process continues alone
                return objective.value_and_grad(theta)
            return objective.combine(theta, sums)

        try:
            yield value_and_grad
        finally:
            with suppress(BrokenExecutor):
                for _ in shares[1:]:
                    executor.submit(_forget)


def spread_over_threads(work, n_jobs, worth_it):
    """Run work(k, n_threads) for each k in range(n_threads), in as many threads."""
    n_threads = _effective(n_jobs) if worth_it else 1
    if n_threads == 1:
        work(0, 1)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        for done in [pool.submit(work, k, n_threads) for k in range(n_threads)]:
            done.result()


_pools = {}  # pools of worker processes, kept between fits, by process id and number of workers


def _workers(n):
    """A pool of n worker processes: the last pool if it is alive, else a new one."""
    key = os.getpid(), n  # the threads of a pool do not survive a fork
    if key in _pools:
        try:
            _pools[key].submit(_forget).result()
            return _pools[key]
        except BrokenExecutor:  # a worker was killed, for example by an interrupt or for memory
            pass
    _pools[key] = ProcessPoolExecutor(max_workers=n, timeout=IDLE_SECONDS)
    return _pools[key]


def _effective(n_jobs):
    """The number of workers that joblib counts, but 1 inside another parallel computation."""
    if multiprocessing.current_process().name != "MainProcess":
        return 1
    return joblib.effective_n_jobs(n_jobs)


_held = {}  # in a worker: the mapped objective, by the path of its file


def _forget():
    """In a worker: release the sets."""
    _held.clear()


def _sums(path, share, theta):
    """In a worker: sums of some parts; the sets stay mapped for the next call."""
    if path not in _held:
        _held.clear()
        _held[path] = joblib.load(path, mmap_mode="r")
    with one_blas_thread():
        return _held[path].sums(share, theta)
