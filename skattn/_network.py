"""The network: standardisation, attention, pooling and a linear head as one value.

    raw_i = pooled_i coef^T + intercept,   pooled_i = pooling(attention((X_i - mean) / scale))

Training, `transform`, the predictors and inspection all use it, on one chunk of equal-length sets
at a time.
"""

import itertools
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.utils import gen_batches

from ._parallel import spread_over_threads
from ._runtime import one_blas_thread
from .attention import Block
from .ragged import RaggedArray

VALUES_AT_ONCE = 2**16  # values that are standardised in place at once
SCALER_BATCH = 2**18  # values whose mean and variance are taken at once
FEW_TOKENS = 32  # up to this many, BLAS threads are left as they are
MANY_TOKENS = 2**12  # above this many, threads are worth starting

WEIGHTS_LIMIT = 2**30  # bytes of attention weights that are returned at once


@dataclass(frozen=True, eq=False)
class TokenScaler:
    """Centres and scales each token feature by `mean` and `scale`, of shape (n_features,)."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, tokens, set_weight):
        """The weighted mean and standard deviation of tokens; scale 1 for constant features.

        `set_weight` (n_samples,) is the weight of each token of a set. The results are those of
        scikit-learn's StandardScaler, in a quarter of its time: two passes over batches in float64,
        each a product with the weights. A feature is constant if round-off explains its variance.
        """
        weight = tokens.repeat(set_weight)
        if tokens.weights is not None:
            weight = weight * tokens.weights
        values, n, total = tokens.values, tokens.n_tokens, weight.sum()
        batches = list(gen_batches(n, max(1, SCALER_BATCH // tokens.n_features)))
        mean = sum(weight[batch] @ values[batch] for batch in batches) / total
        var = sum(weight[batch] @ (values[batch] - mean) ** 2 for batch in batches) / total
        eps = np.finfo(np.float64).eps
        constant = var <= n * eps * var + (n * mean * eps) ** 2
        return cls(mean, np.where(constant, 1.0, np.sqrt(var)))

    def transform(self, values):
        """(values - mean) / scale in the type of values, subtracted in float64.

        A mean rounded to float32 may be off by many scales.
        """
        out = np.empty_like(values)
        np.subtract(values, self.mean, out=out, dtype=np.float64, casting="same_kind")
        return np.divide(out, self.scale, out=out, casting="same_kind")

    def transform_in_place(self, values):
        """The same in place, some rows at a time: allocating memory takes longer than the sums."""
        for rows in gen_batches(len(values), max(1, VALUES_AT_ONCE // values.shape[1])):
            values[rows] = self.transform(values[rows])


@dataclass(frozen=True)
class LinearHead:
    """raw = pooled coef^T + intercept."""

    n_outputs: int

    def shapes(self, n_features):
        """Shapes of the parameters by name."""
        return {"coef": (self.n_outputs, n_features), "intercept": (self.n_outputs,)}

    def init_params(self, n_features, rng):
        """Parameters to start from: small weights, no bias."""
        coef = 0.01 * rng.normal(size=(self.n_outputs, n_features))
        return {"coef": coef, "intercept": np.zeros(self.n_outputs)}

    def forward(self, params, pooled):
        """Raw predictions (n, n_outputs) and a cache."""
        return pooled @ params["coef"].T + params["intercept"], pooled

    def backward(self, params, pooled, d_raw):
        """Gradient of the pooled vectors and of the parameters."""
        grads = {"coef": d_raw.T @ pooled, "intercept": d_raw.sum(axis=0)}
        return d_raw @ params["coef"], grads


class EachToken:
    """Takes the place of a pooling if the head reads every token's own output."""

    def n_features_out(self, n_features):
        """Columns of the output."""
        return n_features

    def shapes(self, n_features):
        """Shapes of the parameters: none."""
        return {}

    def init_params(self, n_features, rng):
        """Parameters to start from: none."""
        return {}

    def forward(self, params, tokens):
        """The tokens as they are."""
        return tokens.values, None

    def backward(self, params, cache, d_values):
        """Their gradient as it is."""
        return d_values, {}


class Chunk(NamedTuple):
    """A block of b sets of n tokens each.

    `sets` are the positions of the sets and `rows` those of their tokens, as slices or indices;
    weights (b, n) are the token weights or None; p (b, n) the token weights of a linear pooling or
    None; `scored` the rows of the pooled output that the head reads, or None for all.
    """

    sets: slice | np.ndarray
    rows: slice | np.ndarray
    block: Block
    weights: np.ndarray | None
    p: np.ndarray | None
    scored: np.ndarray | None = None


class Folded(NamedTuple):
    """Parameters for the layers: those of attention folded, the others by name."""

    attention: NamedTuple
    params: dict


@dataclass(frozen=True, eq=False)
class Network:
    """Attention, pooling and head, and the scalers of tokens and of keys.

    Parameters
    ----------
    attention, pooling, head : layers
        Pooling and head may be None: without pooling only `tokens` works, without head also `pool`.
    scalers : tuple, default=(None, None)
        A TokenScaler for the tokens and one for their keys; None leaves tokens as they are.
    """

    attention: object
    pooling: object
    head: object = None
    scalers: tuple = (None, None)

    # Parameters

    def shapes(self, n_features):
        """Shapes of the parameters by name."""
        shapes = self.attention.shapes(n_features)
        layers = [(self.pooling, self.attention.n_features_out)] if self.pooling else []
        if self.head is not None:
            layers.append((self.head, self.n_pooled))
        for layer, k in layers:
            more = layer.shapes(k)
            taken = sorted(shapes.keys() & more.keys())
            if taken:
                raise ValueError(
                    f"{type(layer).__name__} names a parameter {taken[0]!r}, but another layer has "
                    "one of that name: choose another."
                )
            shapes |= more
        return shapes

    @property
    def n_pooled(self):
        """Columns of the pooled output."""
        return self.pooling.n_features_out(self.attention.n_features_out)

    def fold(self, params, dtype):
        """Parameters for the kernels, computed once per evaluation."""
        return Folded(self.attention.fold(params, dtype), params)

    # Chunks

    def chunks(self, sets, share=(0, 1)):
        """Cut the sets into chunks of standardised tokens; each set is in one chunk.

        With share = (k, n) only every n-th chunk, from chunk k on. Empty sets are included, as
        blocks without tokens. Memory of one chunk at a time; none if the sets are in order of
        length and are not standardised.
        """
        attention, itemsize = self.attention, sets.dtype.itemsize
        is_linear = hasattr(self.pooling, "token_weights")
        found = sets.equal_length_chunks(lambda n, m: attention.sets_at_once(n, m, itemsize))
        scaler, key_scaler = self.scalers
        for at, rows, shape, *keys in itertools.islice(found, share[0], None, share[1]):
            X, weights = _block(sets.queries, rows, shape, scaler)
            C, key_weights = X, weights
            if sets.has_context:
                C, key_weights = _block(sets.keys, *keys, key_scaler)
            p = None
            if is_linear:
                p = self.pooling.token_weights(RaggedArray.from_block(X, weights)).reshape(shape)
            yield Chunk(at, rows, attention.block(X, key_weights, C), weights, p)

    def pack(self, sets):
        """The standardised sets in order of length, so that chunks are views; and that order."""
        order = sets.by_length()
        packed = sets.take(order)
        for side, scaler in zip(packed.sides, self.scalers, strict=False):
            if scaler is not None:
                scaler.transform_in_place(side.values)
        return packed, order

    def walk(self, sets, params, per, n_columns, of_chunk, n_jobs=None):
        """Results of `of_chunk(folded, chunk)` for all chunks, in the order of the sets.

        One row of n_columns numbers per set if `per` is "sets", per token if it is "rows". Runs in
        `n_jobs` threads.
        """
        folded = self.fold(params, sets.dtype)
        n_rows = len(sets) if per == "sets" else sets.queries.n_tokens
        out = np.empty((n_rows, n_columns), sets.dtype)

        def work(*share):
            for chunk in self.chunks(sets, share):
                out[getattr(chunk, per)] = of_chunk(folded, chunk)

        with one_blas_thread() if sets.n_tokens > FEW_TOKENS else nullcontext():
            spread_over_threads(work, n_jobs, sets.n_tokens > MANY_TOKENS)
        return out

    def weights(self, sets, params):
        """Attention weights of every set, a list of arrays (n_heads, n_i, m_i)."""
        n, m, attention = sets.queries.lengths, sets.keys.lengths, self.attention
        n_bytes = attention.n_heads * sets.dtype.itemsize * int(np.sum(n * m))
        if n_bytes > WEIGHTS_LIMIT:
            raise ValueError(
                f"The attention weights of these {len(sets)} sets, the longest of "
                f"{max(n.max(), m.max())} tokens, would take {n_bytes / 1e9:.1f} GB, more than the "
                f"{WEIGHTS_LIMIT / 1e9:.1f} GB that are returned at once. Give fewer sets at a "
                "time, or only the part of a long set that matters."
            )
        folded = self.fold(params, sets.dtype).attention
        weights = [None] * len(sets)
        with one_blas_thread():
            for chunk in self.chunks(sets):
                A = attention.weights(folded, chunk.block)
                for i, A_i in zip(np.arange(len(sets))[chunk.sets], A, strict=True):
                    weights[i] = A_i
        return weights

    # Forward and backward of a chunk

    def tokens(self, folded, chunk):
        """Contextual vectors (b, n, k) of a chunk and a cache."""
        return self.attention.forward(folded.attention, chunk.block)

    def pool(self, folded, chunk, toward=None):
        """Pooled outputs (b, k) of a chunk and a cache.

        If the gradient of every pooled output will be a multiple of one vector, `toward` (k,) is
        that vector: the row of coef, if there is only one output. It saves a second sweep over long
        sets.
        """
        b, n, _ = chunk.block.X.shape
        if n == 0:
            return np.zeros((b, self.n_pooled), chunk.block.X.dtype), None
        if chunk.p is not None:  # V and the token outputs never exist
            return self.attention.attend_pool(folded.attention, chunk.block, chunk.p, toward)
        out, attended = self.tokens(folded, chunk)
        tokens = RaggedArray.from_block(out, chunk.weights)
        pooled, pooled_cache = self.pooling.forward(folded.params, tokens)
        return pooled, (attended, pooled_cache)

    def forward(self, folded, chunk):
        """Raw predictions of a chunk, (b, n_outputs) or (n_scored, n_outputs), and a cache."""
        coef = folded.params["coef"]
        pooled, cache = self.pool(folded, chunk, coef[0] if len(coef) == 1 else None)
        read = pooled if chunk.scored is None else pooled[chunk.scored]
        raw, head_cache = self.head.forward(folded.params, read)
        return raw, (cache, pooled.shape, head_cache)

    def backward(self, folded, chunk, cache, d_raw):
        """Gradients of attention's folded parameters and of the others, given that of `raw`."""
        cache, shape, head_cache = cache
        d_pooled, grads = self.head.backward(folded.params, head_cache, d_raw)
        if chunk.scored is not None:
            d_read, d_pooled = d_pooled, np.zeros(shape)
            d_pooled[chunk.scored] = d_read
        if cache is None:
            return {}, grads
        if chunk.p is not None:
            d_attention = self.attention.attend_pool_backward(folded.attention, cache, d_pooled)
            return d_attention, grads
        attended, pooled_cache = cache
        d_out, d_pooling = self.pooling.backward(folded.params, pooled_cache, d_pooled)
        return self.attention.backward(folded.attention, attended, d_out), grads | d_pooling

    def token_gradient(self, folded, chunk, d_pooled):
        """Gradient of the standardised tokens (b, n, d) of a chunk given that of the output.

        For self-attention only. O(b n^2) time.
        """
        out, attended = self.tokens(folded, chunk)
        _, cache = self.pooling.forward(folded.params, RaggedArray.from_block(out, chunk.weights))
        d_out, _ = self.pooling.backward(folded.params, cache, d_pooled)
        dX, dC = self.attention.token_gradient(folded.attention, attended, d_out)
        return (dX + dC).reshape(chunk.block.X.shape)


def _block(tokens, rows, shape, scaler):
    """A block of standardised token vectors from some rows, and its weights (b, n) or None."""
    is_view = isinstance(rows, slice)
    values = tokens.values[rows] if is_view else np.take(tokens.values, rows, axis=0)
    if scaler is not None:
        values = scaler.transform(values)
    weights = None if tokens.weights is None else tokens.weights[rows].reshape(shape)
    return values.reshape(*shape, tokens.n_features), weights
