"""What the process around our kernels should be like while they run.

BLAS on one thread, and as it was afterwards: the kernels make many calls of microseconds each,
over which BLAS threads would only wait for one another. With two of them on two busy cores a fit
took up to 18 times as long.
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
    """Let the C library keep the blocks of up to 16 MB that it is given back.

    glibc maps each block above 128 KB anew, page by page, until such a block has been freed
    once: its rule for adapting. In a new process that was a quarter of an evaluation's time.
    """
    np.empty(2**24, np.uint8)  # freed at once; its pages are never touched


@contextmanager
def one_blas_thread():
    """Hold BLAS to one thread; the last to leave, of several Python threads, lifts the limit."""
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
