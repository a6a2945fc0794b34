"""Powers of two of whole arrays, in the way that is fast on this processor.

With AVX-512 on Linux NumPy's exp2 has vector code. Elsewhere it has none. There a table and a
polynomial, in passes that do have vector code, take the place of exp2 in float64, and exp that in
float32 where the processor has AVX2. What NumPy reports of the processor decides, once, when this
module is imported, so that all processes of a machine compute the same bits.
"""

import math
import sys

import numpy as np

__all__ = ["exp2_in_place"]

# 2^s = 2^(k / 2048) 2^r with an integer k and |r| <= 1 / 4096. The first factor is an entry of a
# table and a shift of the exponent. The second is SCALE ((u^2 + LINEAR) u + CONSTANT) with
# u = r + CENTER: a cubic that has the value, slope and curvature of 2^r at r = 0, and is off by
# less than 2e-16. CENTER is near log2(e) and a multiple of 1 / 2048, so that k / 2048 - CENTER is
# exact.
BITS = 11
PIECE = 2**14  # values at a time, so that they and three arrays of scratch stay in the cache
LN_2 = math.log(2)
CENTER = round(2**BITS / LN_2) / 2**BITS
SCALE = LN_2**2 / (6 * CENTER)
LINEAR = LN_2 / SCALE - 3 * CENTER**2
CONSTANT = 1 / SCALE - CENTER**3 - LINEAR * CENTER
ROUNDER = 1.5 * 2 ** (52 - BITS)  # a sum with it ends in the bits of k
BACK = ROUNDER + CENTER  # from that sum to k / 2048 - CENTER
INDEX, SHIFT = 2**BITS - 1, 52 - BITS
# What k adds to the exponent's bits, k << SHIFT, holds k modulo 2048 too: taken off beforehand.
TABLE = (SCALE * np.exp2(np.arange(2**BITS) / 2**BITS)).view(np.int64)
TABLE -= np.arange(2**BITS) << SHIFT
# As arrays, which ufuncs read in less time than Python's numbers.
ROUNDER, BACK, LINEAR, CONSTANT = map(np.array, (ROUNDER, BACK, LINEAR, CONSTANT))
INDEX, SHIFT = np.array(INDEX, np.int64), np.array(SHIFT, np.int64)


def _by_table(S):
    """2^S in place, float64 with |S| <= 1000, at a relative error of 6e-16.

    NaN stays NaN, and an infinite value gives NaN. Scratch is new in each call: threads share
    none.
    """
    S = S.reshape(-1)
    scratch = np.empty((3, min(PIECE, S.size)))
    integers = scratch.view(np.int64)
    for start in range(0, S.size, PIECE):
        s = S[start : start + PIECE]
        if s.size < scratch.shape[1]:
            scratch, integers = scratch[:, : s.size], integers[:, : s.size]
        t, _, power = scratch
        bits, index, power_bits = integers
        np.add(s, ROUNDER, t)
        np.bitwise_and(bits, INDEX, index)
        TABLE.take(index, None, power_bits, "clip")  # other modes are slower
        np.left_shift(bits, SHIFT, index)
        np.add(power_bits, index, power_bits)
        np.subtract(t, BACK, t)
        np.subtract(s, t, s)  # u
        np.multiply(s, s, t)
        np.add(t, LINEAR, t)
        np.multiply(t, s, t)
        np.add(t, CONSTANT, t)
        np.multiply(t, power, s)


def _by_exp(S):
    """2^S in place, float32, at a relative error of 1e-7 + 4e-8 |S|: that of S ln 2, rounded."""
    S *= S.dtype.type(LN_2)
    np.exp(S, out=S)


def _by_exp2(S):
    """2^S in place."""
    np.exp2(S, out=S)


def _choose():
    """The function for each type, given NumPy's names for what the processor has."""
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    has = {*extensions.get("baseline", ()), *extensions.get("found", ())}
    if sys.platform == "linux" and has & {"AVX512_SKX", "X86_V4"}:
        return {np.dtype(np.float32): _by_exp2, np.dtype(np.float64): _by_exp2}
    single = _by_exp if has & {"AVX2", "X86_V3"} else _by_exp2
    return {np.dtype(np.float32): single, np.dtype(np.float64): _by_table}


CHOSEN = _choose()


def exp2_in_place(S):
    """Turn a contiguous array, float32 or float64 and -1000 <= S <= 1000 or NaN, into 2^S."""
    CHOSEN[S.dtype](S)
