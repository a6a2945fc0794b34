"""BLAS on one thread while our kernels run, and as it was afterwards.

The kernels make many calls of microseconds each, over which BLAS threads would only wait for one
another: with two of them on two cores, W1-like fits took up to 18 times as long.
"""

import functools
import threading
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController  # scikit-learn requires it

_lock = threading.Lock()
_inside = {"depth": 0, "limit": None}


@functools.cache
def _controller():
    return ThreadpoolController()  # scans the loaded libraries, which takes a millisecond


@contextmanager
def one_blas_thread():
    """Hold BLAS to one thread; the last to leave, of several Python threads, lifts the limit."""
    with _lock:
        if _inside["depth"] == 0:
            _inside["limit"] = _controller().limit(limits=1, user_api="blas")
        _inside["depth"] += 1
    try:
        yield
    finally:
        with _lock:
            _inside["depth"] -= 1
            if _inside["depth"] == 0:
                _inside["limit"].restore_original_limits()
                _inside["limit"] = None
