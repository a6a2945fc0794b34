"""Settings of the process while our kernels run.

BLAS runs on one thread, and its old setting is restored afterwards. The kernels make many calls of
microseconds each, in which several BLAS threads would only wait for each other. With two BLAS
threads on two busy cores a fit took up to 18 times as long.
"""

import functools
import threading
from contextlib import contextmanager

import numpy as np
from threadpoolctl import ThreadpoolController  # scikit-learn requires it

_lock = threading.Lock()
_inside = {"depth": 0, "limit": None}


@functools.cache
def _controller():
    return ThreadpoolController()  # scans the loaded libraries, which takes a millisecond


@functools.cache
def keep_freed_blocks():
    """Make the C library keep freed blocks of up to 16 MB.

    By default glibc maps every block above 128 KB anew, page by page, until one block of that size
    has been freed. In a new process this took a quarter of an evaluation's time.
    """
    np.empty(2**24, np.uint8)  # freed at once; its pages are never touched


@contextmanager
def one_blas_thread():
    """Limit BLAS to one thread; the last of several Python threads to leave lifts the limit."""
    keep_freed_blocks()
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
