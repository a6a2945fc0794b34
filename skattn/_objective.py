"""The penalised empirical risk of attention, pooling and a linear head, with its gradient.

    objective = sum_i w_i loss(y_i, raw_i) / sum_i w_i + alpha / 2 * sum |weights|^2
    raw_i = pooled_i coef^T + intercept,   pooled_i = pooling(attention(X_i))

The penalty takes in every parameter but the intercept. The bias b_V of the values is not learned
but held: every pooling except the sum hands it on to the intercept, with which it is redundant.
Where it is not, by empty sets or sums, a free bias would leave the objective without a minimum:
coef could shrink, at a gain, as b_V grows without bound.

With a target per token, i runs over the tokens that have one, and the head reads each token's own
output in the place of a pooled one.
"""

import itertools
import math
from dataclasses import replace
from typing import NamedTuple

import joblib
import numpy as np

from .attention import Block, accumulate
from .pairs import RaggedPair, sides
from .ragged import RaggedArray

HELD = ("b_V",)
PIECE = 2**16  # values that are standardised at once
MAX_PARTS = 32  # into which the sets of a large fit are cut, for as many processes
WORK_OF_A_PART = 1e7  # multiplications, a millisecond or more


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


class Chunk(NamedTuple):
    """A block of b sets of n tokens each.

    `sets` are their positions and `rows` those of their tokens, as slices or indices; weights
    (b, n) the token weights or None, p (b, n) the token weights of a linear pooling or None.
    """

    sets: slice | np.ndarray
    rows: slice | np.ndarray
    block: Block
    weights: np.ndarray | None
    p: np.ndarray | None


def chunks(X, attention, pooling, standards=None, *, share=(0, 1)):
    """Cut the sets of X into blocks, tokens standardised, until each has had its turn.

    X is a RaggedArray or a RaggedPair; `standards` the mean and scale of the tokens of each of its
    sides, as tuples. With share = (k, n) every n-th block, from block k on.

    Empty sets come too, as blocks of no tokens. Memory of one block at a time; none where the
    sets stand in order of length and nothing is standardised.
    """
    linear = hasattr(pooling, "token_weights")
    limit, itemsize = attention.sets_at_once, X.dtype.itemsize
    tokens, context = sides(X)
    if context is None:
        blocks = X.equal_length_chunks(lambda n: limit(n, n, itemsize))
    else:
        blocks = X.equal_length_chunks(lambda n, m: limit(n, m, itemsize))
    standard, context_standard = standards or (None, None)
    for sets, rows, shape, *of_context in itertools.islice(blocks, share[0], None, share[1]):
        values, weights = _taken(tokens, rows, shape, standard)
        p = None
        if linear:
            p = pooling.token_weights(RaggedArray.from_block(values, weights)).reshape(shape)
        if context is None:
            block = attention.block(values, weights)
        else:
            C, C_weights = _taken(context, *of_context, context_standard)
            block = attention.block(values, C_weights, C)
        yield Chunk(sets, rows, block, weights, p)


def _taken(tokens, rows, shape, standard):
    """Some rows as a block of token vectors, standardised, and their weights, (b, n) or None."""
    is_view = isinstance(rows, slice)
    values = tokens.values[rows] if is_view else np.take(tokens.values, rows, axis=0)
    if standard is not None:
        values = standardise(values, *standard)
    weights = None if tokens.weights is None else tokens.weights[rows].reshape(shape)
    return values.reshape(*shape, tokens.n_features), weights


def pack(X, standards=None):
    """The sets in order of length, tokens standardised, and their positions in X."""
    is_pair = isinstance(X, RaggedPair)
    order = X.by_length() if is_pair else np.argsort(X.lengths, kind="stable")
    packed = X.take(order)
    for side, standard in zip(sides(packed), standards or (None, None), strict=True):
        if standard is not None:
            _standardise_in_place(side.values, *standard)
    return packed, order


def _standardise_in_place(values, mean, scale):
    """A piece at a time: new memory would cost more than the sums."""
    step = max(1, PIECE // values.shape[1])
    for start in range(0, len(values), step):
        values[start : start + step] = standardise(values[start : start + step], mean, scale)


def standardise(values, mean, scale):
    """(values - mean) / scale in the type of values, subtracted in float64.

    A mean rounded to float32 may be off by many scales.
    """
    out = np.empty_like(values)
    np.subtract(values, mean, out=out, dtype=np.float64, casting="same_kind")
    return np.divide(out, scale, out=out, casting="same_kind")


def pool_forward(attention, pooling, folded, params, chunk, toward=None):
    """Pooled outputs (b, k) of a chunk and a cache for `pool_backward`.

    `toward` (k,) is what the gradient of every pooled output will be a multiple of, if it is
    known: the row of coef, where there is one output. It spares long sets a second sweep.
    """
    b, n, _ = chunk.block.X.shape
    if n == 0:
        k = pooling.n_features_out(attention.n_features_out)
        return np.zeros((b, k), chunk.block.X.dtype), None
    if chunk.p is not None:  # V and the token outputs never exist
        return attention.attend_pool(folded, chunk.block, chunk.p, toward)
    out, attended = attention.forward(folded, chunk.block)
    pooled, pooled_cache = pooling.forward(params, RaggedArray.from_block(out, chunk.weights))
    return pooled, (attended, pooled_cache)


def pool_backward(attention, pooling, folded, params, chunk, cache, d_pooled):
    """Gradients of the folded projections and of the pooling's parameters."""
    if cache is None:
        return {}, {}
    if chunk.p is not None:
        return attention.attend_pool_backward(folded, cache, d_pooled), {}
    attended, pooled_cache = cache
    d_out, d_pooling = pooling.backward(params, pooled_cache, d_pooled)
    return attention.backward(folded, attended, d_out), d_pooling


class _EachToken:
    """In the place of a pooling: the head reads every token's own output."""

    def n_features_out(self, n_features):
        return n_features

    def shapes(self, n_features):
        return {}

    def forward(self, params, tokens):
        return tokens.values, None

    def backward(self, params, cache, d_values):
        return d_values, {}


class Objective:
    """Value and gradient of the penalised risk at flat parameters theta.

    Parameters
    ----------
    X : RaggedArray or RaggedPair
        Training sets, with every token weight positive.
    y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Targets as the loss takes them.
    sample_weight : ndarray of shape (n_samples,)
        Positive weights of the sets.
    n_outputs : int
        Columns of the raw prediction.
    attention, pooling, loss : layers and loss
        The parts; the pooling is not used with `rows`.
    alpha : float
        Strength of the L2 penalty.
    standards : tuple, default=None
        Mean and scale, each of shape (n_features,), by which tokens are standardised, and those
        for the tokens of the contexts; None leaves a side as it is.
    held : dict of ndarray, default=None
        Parameters that are not learned, nor penalised: b_V, zeros where None. With W_Q and W_K
        an evaluation takes a quarter less time.
    rows : ndarray of shape (n_targets,), default=None
        The tokens that have a target, rising; `y` and `sample_weight` are then theirs. Where
        None every set has one.
    """

    def __init__(
        self,
        X,
        y,
        sample_weight,
        n_outputs,
        attention,
        pooling,
        loss,
        alpha,
        standards=None,
        held=None,
        rows=None,
    ):
        self.X, order = pack(X, standards)
        self.rows = None
        if rows is not None:
            pooling = _EachToken()
            self.rows, order = _packed_rows(rows, sides(X)[0], order)
        self.y, self.sample_weight, self.alpha = y[order], sample_weight[order], alpha
        self.attention, self.pooling, self.loss = attention, pooling, loss
        k = pooling.n_features_out(attention.n_features_out)
        shapes = attention.shapes(X.n_features)
        self.held = {name: np.zeros(shapes[name]) for name in HELD} if held is None else held
        if {"W_Q", "W_K"} <= self.held.keys():
            self.attention = replace(attention, learns_scores=False)
        self.layout = ParameterLayout(
            {name: shape for name, shape in shapes.items() if name not in self.held}
            | pooling.shapes(attention.n_features_out)
            | {"coef": (n_outputs, k), "intercept": (n_outputs,)}
        )
        self.chunks = list(chunks(self.X, self.attention, self.pooling))
        self.targets = self._targets()
        self.parts = self._parts()

    def _parts(self):
        """Cut the chunks into parts of about equal work.

        The sums over parts are added in their order, whoever computes them: so the parts depend
        on the data alone.
        """
        d = max(side.n_features for side in sides(self.X) if side is not None)
        H = self.attention.n_heads
        shapes = [(*chunk.block.X.shape[:2], chunk.block.C.shape[1]) for chunk in self.chunks]
        work = np.cumsum([b * (n * m + max(n, m) * (d + 8.0)) * H * d for b, n, m in shapes])
        total = work[-1] if len(work) else 0.0
        n_parts = int(np.clip(total / WORK_OF_A_PART, 1, MAX_PARTS))
        shares = np.linspace(0, total, n_parts + 1)[1:-1]
        cuts = sorted({0, *np.searchsorted(work, shares).tolist(), len(self.chunks)})
        return [slice(a, b) for a, b in itertools.pairwise(cuts)]

    def _targets(self):
        """For each chunk, which targets are its own, and of which rows before the head.

        A slice, and positions or None for all rows, in order.
        """
        if self.rows is None:
            return [(chunk.sets, None) for chunk in self.chunks]
        targets = []
        for chunk in self.chunks:
            first, end = chunk.rows.start, chunk.rows.stop  # of packed sets: slices
            a, b = np.searchsorted(self.rows, [first, end]).tolist()
            targets.append((slice(a, b), self.rows[a:b] - first if b - a < end - first else None))
        return targets

    def __getstate__(self):
        views = ("chunks", "targets")  # of X and rows
        state = {k: v for k, v in self.__dict__.items() if k not in views}
        # a pooling of a script's or notebook's own goes to a worker by value
        state["pooling"] = joblib.wrap_non_picklable_objects(self.pooling, keep_wrapper=False)
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        plain = [None if side is None else _in_memory(side) for side in sides(self.X)]
        self.X = plain[0] if plain[1] is None else RaggedPair._trusted(*plain)
        self.y, self.sample_weight = np.asarray(self.y), np.asarray(self.sample_weight)
        self.rows = None if self.rows is None else np.asarray(self.rows)
        self.chunks = list(chunks(self.X, self.attention, self.pooling))
        self.targets = self._targets()

    def value_and_grad(self, theta):
        """The objective and its gradient (n_parameters,). O(sum n_i^2) time.

        A trial step may overflow, without a warning: the solver refuses what is not finite.
        """
        return self.combine(theta, self.sums(range(len(self.parts)), theta))

    def sums(self, parts, theta):
        """By the number of each of some parts: its summed loss, gradients of what the layers
        folded, and gradients of the rest.
        """
        attention, pooling = self.attention, self.pooling
        params = self.layout.unpack(theta) | self.held
        coef, intercept = params["coef"], params["intercept"]
        toward = coef[0] if len(coef) == 1 else None
        sums = {}
        with np.errstate(over="ignore", invalid="ignore"):
            folded = attention.fold(params, self.X.dtype)
            for part in parts:
                value, d_folded = 0.0, {}
                grads = {"coef": np.zeros(coef.shape), "intercept": np.zeros(intercept.shape)}
                in_part = self.parts[part]
                for chunk, (at, scored) in zip(
                    self.chunks[in_part], self.targets[in_part], strict=True
                ):
                    if at.start == at.stop:  # no token of these sets has a target
                        continue
                    pooled, cache = pool_forward(attention, pooling, folded, params, chunk, toward)
                    heard = pooled if scored is None else pooled[scored]
                    raw = heard @ coef.T + intercept
                    loss, d_raw = self.loss.loss_gradient(self.y[at], raw, self.sample_weight[at])
                    value += float(loss.sum())
                    grads["coef"] += d_raw.T @ heard
                    grads["intercept"] += d_raw.sum(axis=0)
                    d_pooled = d_raw @ coef
                    if scored is not None:
                        d_heard, d_pooled = d_pooled, np.zeros(pooled.shape)
                        d_pooled[scored] = d_heard
                    d_attention, d_pooling = pool_backward(
                        attention, pooling, folded, params, chunk, cache, d_pooled
                    )
                    accumulate(d_folded, d_attention)
                    accumulate(grads, d_pooling)
                sums[part] = value, d_folded, grads
        return sums

    def combine(self, theta, sums):
        """The objective and its gradient from the sums of all parts, added in their order."""
        params = self.layout.unpack(theta) | self.held
        total_weight = float(np.sum(self.sample_weight))
        with np.errstate(over="ignore", invalid="ignore"):
            value, d_folded, grads = 0.0, {}, {}
            for part_value, part_folded, part_grads in (sums[k] for k in sorted(sums)):
                value += part_value
                accumulate(d_folded, part_folded)
                accumulate(grads, part_grads)
            if d_folded:
                accumulate(grads, self.attention.unfold(params, d_folded))
            value /= total_weight
            for name, shape in self.layout.shapes.items():
                grads[name] = np.divide(grads.get(name, np.zeros(shape)), total_weight)
                if name != "intercept":
                    value += self.alpha / 2 * float(np.sum(params[name] ** 2))
                    grads[name] += self.alpha * params[name]
        return value, self.layout.pack(grads)


def _in_memory(X):
    """The same sets as plain arrays, which are faster than those a worker maps from a file."""
    weights = None if X.weights is None else np.asarray(X.weights)
    return RaggedArray._trusted(np.asarray(X.values), np.asarray(X.offsets), weights)


def _packed_rows(rows, X, order):
    """Where tokens `rows` of X stand, rising, when its sets are in the given order.

    Also which of `rows` stands at each place. O(n_tokens).
    """
    number = np.full((X.n_tokens, 1), -1)
    number[rows, 0] = np.arange(len(rows))
    packed = X.with_values(number).take(order).values[:, 0]
    places = np.flatnonzero(packed >= 0)
    return places, packed[places]
