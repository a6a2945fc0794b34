"""The penalised empirical risk of attention, pooling and a linear head, with its gradient.

    objective = sum_i w_i loss(y_i, raw_i) / sum_i w_i + alpha / 2 * sum |weights|^2
    raw_i = pooled_i coef^T + intercept,   pooled_i = pooling(attention(X_i))

The penalty takes in every parameter but the intercept. The bias b_V of the values is not learned
but held: every pooling except the sum hands it on to the intercept, with which it is redundant.
Where it is not, by empty sets or sums, a free bias would leave the objective without a minimum:
coef could shrink, at a gain, as b_V grows without bound.
"""

import math
from typing import NamedTuple

import numpy as np

from .attention import Block
from .ragged import RaggedArray

HELD = ("b_V",)


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

    sets (b,) are their positions and rows (b, n) those of their tokens, weights (b, n) the token
    weights or None, p (b, n) the token weights of a linear pooling or None.
    """

    sets: np.ndarray
    rows: np.ndarray
    block: Block
    weights: np.ndarray | None
    p: np.ndarray | None


def chunks(X, attention, pooling, mean=None, scale=None):
    """Cut the sets of X into blocks, tokens standardised, until each has had its turn.

    Empty sets come too, as blocks of no tokens; p (b, n) are the token weights of a pooling that
    is linear, else None. Memory of one block at a time.
    """
    linear = hasattr(pooling, "token_weights")
    for sets in X.equal_length_chunks(lambda n: attention.sets_at_once(n, X.dtype.itemsize)):
        rows = X.token_rows(sets)
        values = X.values[rows]
        if mean is not None:
            values -= mean
            values /= scale
        weights = None if X.weights is None else X.weights[rows]
        p = None
        if linear:
            p = pooling.token_weights(RaggedArray.from_block(values, weights)).reshape(rows.shape)
        yield Chunk(sets, rows, attention.block(values, weights), weights, p)


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


class Objective:
    """Value and gradient of the penalised risk at flat parameters theta.

    Parameters
    ----------
    X : RaggedArray
        Training sets, with every token weight positive.
    y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Targets as the loss takes them.
    sample_weight : ndarray of shape (n_samples,)
        Positive weights of the sets.
    n_outputs : int
        Columns of the raw prediction.
    attention, pooling, loss : layers and loss
        The parts.
    alpha : float
        Strength of the L2 penalty.
    mean, scale : ndarray of shape (n_features,) or None
        Tokens are standardised by them.
    held : dict of ndarray, default=None
        Parameters that are not learned: b_V, zeros where None.
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
        mean=None,
        scale=None,
        held=None,
    ):
        self.y, self.sample_weight, self.alpha = y, sample_weight, alpha
        self.total_weight = float(np.sum(sample_weight))
        self.attention, self.pooling, self.loss = attention, pooling, loss
        self.dtype = X.dtype
        k = pooling.n_features_out(attention.n_features_out)
        shapes = attention.shapes(X.n_features)
        self.held = {name: np.zeros(shapes[name]) for name in HELD} if held is None else held
        self.layout = ParameterLayout(
            {name: shape for name, shape in shapes.items() if name not in HELD}
            | pooling.shapes(attention.n_features_out)
            | {"coef": (n_outputs, k), "intercept": (n_outputs,)}
        )
        self.chunks = list(chunks(X, attention, pooling, mean, scale))

    def value_and_grad(self, theta):
        """The objective and its gradient (n_parameters,). O(sum n_i^2) time.

        A trial step may overflow, without a warning: the solver refuses what is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return self._value_and_grad(theta)

    def _value_and_grad(self, theta):
        attention, pooling, alpha = self.attention, self.pooling, self.alpha
        params = self.layout.unpack(theta) | self.held
        folded = attention.fold(params, self.dtype)
        coef, intercept = params["coef"], params["intercept"]
        toward = coef[0] if len(coef) == 1 else None
        value, d_folded = 0.0, {}
        grads = {name: np.zeros(shape) for name, shape in self.layout.shapes.items()}
        for chunk in self.chunks:
            pooled, cache = pool_forward(attention, pooling, folded, params, chunk, toward)
            raw = pooled @ coef.T + intercept
            loss, d_raw = self.loss.loss_gradient(
                self.y[chunk.sets], raw, self.sample_weight[chunk.sets]
            )
            value += float(loss.sum())
            grads["coef"] += d_raw.T @ pooled
            grads["intercept"] += d_raw.sum(axis=0)
            d_attention, d_pooling = pool_backward(
                attention, pooling, folded, params, chunk, cache, d_raw @ coef
            )
            _accumulate(d_folded, d_attention)
            _accumulate(grads, d_pooling)
        if d_folded:
            _accumulate(grads, attention.unfold(params, d_folded))
        value /= self.total_weight
        for name in self.layout.shapes:
            grad = grads[name]
            grad /= self.total_weight
            if name != "intercept":
                value += alpha / 2 * float(np.sum(params[name] ** 2))
                grad += alpha * params[name]
        return value, self.layout.pack(grads)


def _accumulate(total, part):
    """Add the arrays of `part` to those of `total`, in float64."""
    for name, array in part.items():
        if name in total:
            total[name] += array
        else:
            total[name] = array.astype(np.float64)
