"""The penalised empirical risk of a network, with its gradient.

    objective = sum_i w_i loss(y_i, raw_i) / sum_i w_i + alpha / 2 * sum |weights|^2

The penalty covers every learned parameter but the intercept. The bias b_V of the values is not
learned: with every pooling except the sum it acts as a second intercept, so it is redundant. With
empty sets or sums it is not redundant, but a free b_V would leave the objective without a minimum:
the penalty would fall for ever as coef shrinks and b_V grows.

With a target per token, i runs over the tokens that have one, and the head reads each token's own
output instead of a pooled one.
"""

import itertools
import math
import sys
import time
import warnings
from dataclasses import replace

import joblib
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ._network import EachToken
from ._parallel import spread_over_processes
from ._runtime import one_blas_thread
from .attention import accumulate
from .ragged import RaggedArray
from .solvers import minimize

AUTO_TOL, MIN_FALL = 1e-4, 0.05  # tol="auto": limit of the gradient; least fall over 30 iterations
LONG_FIT = 180.0  # seconds
CALLS_PER_ITERATION = 1.1
LIBRARIES = (__package__, "scipy", "sklearn", "joblib")
MAX_PIECES = 32  # the sets of a large fit are cut into at most this many
WORK_OF_A_PIECE = 1e7  # multiplications, a millisecond or more


class ParameterLayout:
    """Names and shapes of arrays in one flat vector, in a fixed order."""

    def __init__(self, shapes):
        self.shapes = dict(shapes)
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        stops = np.cumsum([0, *sizes])
        self.slices = {
            name: slice(int(a), int(b))
            for name, a, b in zip(self.shapes, stops[:-1], stops[1:], strict=True)
        }
        self.size = int(stops[-1])

    def pack(self, params):
        """One flat float64 vector of the named arrays."""
        theta = np.empty(self.size)
        for name, view in self.unpack(theta).items():
            view[...] = params[name]
        return theta

    def unpack(self, theta):
        """The named arrays, as views of the flat vector."""
        return {name: theta[s].reshape(self.shapes[name]) for name, s in self.slices.items()}


class Objective:
    """Value and gradient of the penalised risk at flat parameters theta.

    Parameters
    ----------
    sets : Sets
        Training sets, with every token weight positive.
    y : ndarray of shape (n_targets,) or (n_targets, n_outputs)
        Targets in the form that the loss takes, one per set, or per token of `rows`.
    sample_weight : ndarray of shape (n_targets,)
        Their positive weights.
    network : Network
        The layers and scalers. With `rows` its pooling is not used.
    loss : loss
        The loss of raw predictions.
    alpha : float
        Strength of the L2 penalty.
    held : dict of ndarray, default=None
        Parameters that are neither learned nor penalised. Those that attention always holds are
        zeros if absent. With W_Q and W_K held an evaluation takes a quarter less time.
    rows : ndarray of shape (n_targets,), default=None
        The tokens that have a target, in rising order. None: every set has one target.
    """

    def __init__(self, sets, y, sample_weight, network, loss, alpha, held=None, rows=None):
        self.sets, order = network.pack(sets)
        network = replace(network, scalers=(None, None))  # the packed sets are standardised
        self.rows = None
        if rows is not None:
            network = replace(network, pooling=EachToken())
            self.rows, order = _packed_rows(rows, sets.queries, order)
        self.y, self.sample_weight, self.alpha = y[order], sample_weight[order], alpha
        shapes = network.shapes(sets.queries.n_features)
        attention = network.attention
        self.held = {name: np.zeros(shapes[name]) for name in attention.held}
        self.held |= held or {}
        if self.held.keys() >= set(attention.of_scores):
            network = replace(network, attention=replace(attention, learns_scores=False))
        self.network, self.loss = network, loss
        self.layout = ParameterLayout(
            {name: shape for name, shape in shapes.items() if name not in self.held}
        )
        self.chunks = self._chunks()
        self.pieces = self._pieces()

    def _pieces(self):
        """Cut the chunks into pieces of about equal work.

        The pieces depend on the data alone, and their sums are added in order: the result does not
        depend on the number of processes.
        """
        d = max(side.n_features for side in self.sets.sides)
        H = self.network.attention.n_heads
        shapes = [(*chunk.block.X.shape[:2], chunk.block.C.shape[1]) for chunk, _ in self.chunks]
        work = np.cumsum([b * (n * m + max(n, m) * (d + 8.0)) * H * d for b, n, m in shapes])
        total = work[-1] if len(work) else 0.0
        n_pieces = int(np.clip(total / WORK_OF_A_PIECE, 1, MAX_PIECES))
        shares = np.linspace(0, total, n_pieces + 1)[1:-1]
        cuts = sorted({0, *np.searchsorted(work, shares).tolist(), len(self.chunks)})
        return [slice(a, b) for a, b in itertools.pairwise(cuts)]

    def _chunks(self):
        """The chunks, each with the slice of its targets."""
        chunks = self.network.chunks(self.sets)
        if self.rows is None:
            return [(chunk, chunk.sets) for chunk in chunks]
        out = []
        for chunk in chunks:
            first, end = chunk.rows.start, chunk.rows.stop  # slices, since the sets are packed
            a, b = np.searchsorted(self.rows, [first, end]).tolist()
            scored = self.rows[a:b] - first if b - a < end - first else None
            out.append((chunk._replace(scored=scored), slice(a, b)))
        return out

    def __getstate__(self):
        state = {k: v for k, v in self.__dict__.items() if k != "chunks"}  # views of the sets
        # layers and losses defined in a script or notebook go to a worker by value
        for name in ("network", "loss"):
            state[name] = joblib.wrap_non_picklable_objects(state[name], keep_wrapper=False)
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.sets = self.sets.map(_in_memory)
        self.y, self.sample_weight = np.asarray(self.y), np.asarray(self.sample_weight)
        self.rows = None if self.rows is None else np.asarray(self.rows)
        self.chunks = self._chunks()

    def value_and_grad(self, theta):
        """The objective and its gradient (n_parameters,). O(sum n_i m_i) time.

        A trial step may overflow without a warning: the solver refuses values that are not finite.
        """
        return self.combine(theta, self.sums(range(len(self.pieces)), theta))

    def sums(self, pieces, theta):
        """For each of some pieces, by its number: the summed loss, the gradients of attention's
        folded parameters, and the gradients of the others.
        """
        params = self.layout.unpack(theta) | self.held
        network, sums = self.network, {}
        with np.errstate(over="ignore", invalid="ignore"):
            folded = network.fold(params, self.sets.dtype)
            for piece in pieces:
                value, d_folded, grads = 0.0, {}, {}
                for chunk, at in self.chunks[self.pieces[piece]]:
                    if at.start == at.stop:  # no token of these sets has a target
                        continue
                    raw, cache = network.forward(folded, chunk)
                    loss, d_raw = self.loss.loss_gradient(self.y[at], raw, self.sample_weight[at])
                    value += float(loss.sum())
                    d_attention, d_others = network.backward(folded, chunk, cache, d_raw)
                    accumulate(d_folded, d_attention)
                    accumulate(grads, d_others)
                sums[piece] = value, d_folded, grads
        return sums

    def combine(self, theta, sums):
        """The objective and its gradient from the sums of all pieces, added in their order."""
        params = self.layout.unpack(theta) | self.held
        total_weight = float(np.sum(self.sample_weight))
        with np.errstate(over="ignore", invalid="ignore"):
            value, d_folded, grads = 0.0, {}, {}
            for of_piece, folded_of_piece, grads_of_piece in (sums[k] for k in sorted(sums)):
                value += of_piece
                accumulate(d_folded, folded_of_piece)
                accumulate(grads, grads_of_piece)
            if d_folded:
                accumulate(grads, self.network.attention.unfold(params, d_folded))
            value /= total_weight
            for name, shape in self.layout.shapes.items():
                grads[name] = np.divide(grads.get(name, np.zeros(shape)), total_weight)
                if name != "intercept":
                    value += self.alpha / 2 * float(np.sum(params[name] ** 2))
                    grads[name] += self.alpha * params[name]
        return value, self.layout.pack(grads)


def minimized(objective, theta0, listener, settings):
    """Minimise the objective in `settings.n_jobs` processes."""
    with (
        one_blas_thread(),
        spread_over_processes(objective, settings.n_jobs) as value_and_grad,
    ):
        return minimize(
            _timed(value_and_grad, settings),
            theta0,
            listener,
            solver=settings.solver,
            tol=tolerance(settings),
            max_iter=settings.max_iter,
            min_fall=MIN_FALL if settings.tol == "auto" else 0.0,
        )


def _level_outside():
    """The `stacklevel` of the caller's first frame outside the libraries."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in LIBRARIES:
        frame, level = frame.f_back, level + 1
    return level


def tolerance(settings):
    """The largest entry of the gradient at which a fit has converged."""
    return AUTO_TOL if settings.tol == "auto" else settings.tol or 0.0


class LongFitWarning(UserWarning):
    """A fit will take minutes; the message states how many, and how to shorten it."""


def _timed(value_and_grad, settings):
    """The function, with a warning after its second call if the fit will take minutes.

    The first call is slower: it may start processes, and it allocates memory.
    """
    seconds = []

    def timed(theta):
        if len(seconds) == 2:
            return value_and_grad(theta)
        start = time.perf_counter()
        out = value_and_grad(theta)
        seconds.append(time.perf_counter() - start)
        whole = min(seconds) * settings.max_iter * CALLS_PER_ITERATION
        if len(seconds) == 2 and whole > LONG_FIT:
            warnings.warn(
                f"This fit may take {whole / 60:.0f} minutes: {settings.max_iter} iterations of "
                f"{min(seconds):.2g} s. Fewer tokens (max_tokens), fewer iterations (max_iter), "
                "fewer heads (n_heads), float32 tokens or more processes (n_jobs) make it shorter.",
                LongFitWarning,
                stacklevel=_level_outside(),
            )
        return out

    return timed


def warn_unless_converged(name, result, settings):
    """Warn of a fit that did not converge, unless the user asked for a fixed budget."""
    is_as_asked = (
        settings.max_iter == 0
        or result.reason == "callback"
        or (settings.tol is None and result.reason != "non-finite")
    )
    if not (result.converged or is_as_asked):
        strict = {None: "", "auto": ""}.get(settings.tol, f", tol {tolerance(settings):.3g}")
        warnings.warn(
            f"{name} has not converged after {result.n_iter} iterations: {result.message}; max "
            f"|gradient| is {result.grad_norm:.3g}{strict}. {result.advice}",
            ConvergenceWarning,
            stacklevel=4,
        )


def _in_memory(side):
    """The same sets as plain arrays, faster than the memory-mapped arrays of a worker."""
    weights = None if side.weights is None else np.asarray(side.weights)
    return RaggedArray._trusted(np.asarray(side.values), np.asarray(side.offsets), weights)


def _packed_rows(rows, tokens, order):
    """Positions of the tokens `rows`, in rising order, after the sets are put in `order`.

    Also which of `rows` is at each position. O(n_tokens).
    """
    number = np.full((tokens.n_tokens, 1), -1)
    number[rows, 0] = np.arange(len(rows))
    packed = tokens.with_values(number).take(order).values[:, 0]
    places = np.flatnonzero(packed >= 0)
    return places, packed[places]
