"""The same model in PyTorch, eager, in the forms a user would write.

A form is a way to batch: padded batches in random order, padded batches of sets sorted by length,
or buckets of exactly one length, whole or cut into chunks; and a way to attend:
``scaled_dot_product_attention`` or matrix products with softmax. `fit_lbfgs` and `fit_adam` are
PyTorch's optimisers on such a model.
"""

import math
import time

import numpy as np
import torch
from torch.nn import functional

__all__ = ["FORMS", "TorchModel", "fit_adam", "fit_lbfgs"]

CHUNK_SCORES = 2**18  # scores in a chunk of a bucket
MINIBATCH = 64  # sets in a minibatch of one length

FORMS = {
    "padded": [("random", True), ("random", False)],
    "sorted": [("sorted", True), ("sorted", False)],
    "buckets": [(form, sdpa) for form in ("exact", "exact chunks") for sdpa in (True, False)],
}


class TorchModel:
    """Attention, mean pooling and a linear head, batched one way and attending one way.

    `order` lists the sets in the order of the batches.
    """

    def __init__(self, X, y, params, *, n_heads, d_k, d_v, batching, sdpa, padded_batch):
        self.H, self.d_k, self.d_v, self.sdpa = n_heads, d_k, d_v, sdpa
        self.n_outputs = params["coef"].shape[0]
        dtype = torch.float32 if X.dtype == np.float32 else torch.float64
        self.params = {
            name: torch.tensor(array, dtype=dtype, requires_grad=True)
            for name, array in params.items()
        }
        self.n_sets, self.dtype = len(X), dtype

        def batch():
            """Make the batches, which everything else finds made."""
            groups = self._groups(X, batching, padded_batch)
            self.order, self.batches = np.concatenate(groups), list(self._batches(X, y, groups))

        self.batch = batch
        batch()

    def _groups(self, X, batching, padded_batch):
        """Which sets make a batch, batch by batch."""
        lengths, step = X.lengths, padded_batch
        buckets = [np.argsort(lengths) if batching == "sorted" else np.arange(len(X))]
        if batching not in ("random", "sorted"):
            buckets = [np.flatnonzero(lengths == n) for n in np.unique(lengths)]
        groups = []
        for same in buckets:
            if batching == "exact chunks":
                step = max(1, CHUNK_SCORES // (self.H * int(lengths[same[0]]) ** 2))
            elif batching in ("exact", "minibatches"):
                step = len(same) if batching == "exact" else MINIBATCH
            groups += np.split(same, range(step, len(same), step))
        return groups

    def _batches(self, X, y, groups):
        """(x (b, n, d), mask (b, n) or None, lengths (b, 1), targets) per batch."""
        target_type = self.dtype if self.n_outputs == 1 else torch.int64
        for group in groups:
            part = X.take(group)
            if len(set(part.lengths)) == 1:
                x, mask = part.values.reshape(len(group), -1, X.n_features), None
            else:
                x = part.to_padded(0.0)
                mask = torch.tensor(np.arange(x.shape[1]) < part.lengths[:, None])
            yield (
                torch.from_numpy(x),
                mask,
                torch.tensor(part.lengths[:, None], dtype=self.dtype),
                torch.tensor(y[group], dtype=target_type),
            )

    def _attend(self, x, mask):
        p, (b, n, _), H = self.params, x.shape, self.H
        Q = (x @ p["W_Q"]).reshape(b, n, H, self.d_k).transpose(1, 2)
        K = (x @ p["W_K"]).reshape(b, n, H, self.d_k).transpose(1, 2)
        V = (x @ p["W_V"]).reshape(b, n, H, self.d_v).transpose(1, 2)
        allowed = None if mask is None else mask[:, None, None, :]
        if self.sdpa:
            Z = functional.scaled_dot_product_attention(Q, K, V, attn_mask=allowed)
        else:
            S = Q @ K.transpose(-1, -2) / math.sqrt(self.d_k)
            if allowed is not None:
                S = S.masked_fill(~allowed, -math.inf)
            Z = torch.softmax(S, -1) @ V
        return Z.transpose(1, 2).reshape(b, n, H * self.d_v)

    def _pool(self, x, mask, lengths):
        Z = self._attend(x, mask)
        if mask is not None:
            Z = Z * mask[:, :, None]
        return Z.sum(1) / lengths

    def _loss(self, x, mask, lengths, y):
        """Sum of the losses of a batch."""
        raw = self._pool(x, mask, lengths) @ self.params["coef"].T + self.params["intercept"]
        if self.n_outputs == 1:
            return functional.binary_cross_entropy_with_logits(raw[:, 0], y, reduction="sum")
        return functional.cross_entropy(raw, y, reduction="sum")

    def loss_and_grad(self):
        """Mean loss over all sets and the gradient of every parameter."""
        for p in self.params.values():
            p.grad = None
        total = 0.0
        for batch in self.batches:
            loss = self._loss(*batch) / self.n_sets
            loss.backward()
            total += loss.item()
        return total, {name: p.grad.numpy() for name, p in self.params.items()}

    def objective_and_grad(self, alpha):
        """The mean loss plus alpha / 2 times the sum of squared weights; gradients in p.grad."""
        value, _ = self.loss_and_grad()
        penalty = self._penalty(alpha)
        penalty.backward()  # adds to the gradients
        return value + penalty.item()

    def _penalty(self, alpha):
        squares = [(p * p).sum() for name, p in self.params.items() if name != "intercept"]
        return alpha / 2 * sum(squares)

    def objective(self, alpha):
        """The same value without gradients."""
        with torch.inference_mode():
            value = sum(self._loss(*batch).item() for batch in self.batches) / self.n_sets
            return value + self._penalty(alpha).item()

    def pooled(self):
        """Pooled vectors, batch after batch."""
        with torch.inference_mode():
            return [self._pool(x, mask, lengths) for x, mask, lengths, _ in self.batches]

    def tokens(self):
        """Token outputs, batch after batch, padding among them."""
        with torch.inference_mode():
            return [self._attend(x, mask) for x, mask, _, _ in self.batches]


class _Reached(Exception):
    """The optimiser is where it should be, or out of time."""


def fit_lbfgs(model, alpha, target, limit):
    """Seconds until L-BFGS first sees an objective of at most `target`; None if not in `limit`."""
    optimizer = torch.optim.LBFGS(
        model.params.values(),
        max_iter=10_000,
        max_eval=10_000,
        history_size=10,
        tolerance_grad=0,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )
    start = time.perf_counter()

    def closure():
        value = model.objective_and_grad(alpha)
        seconds = time.perf_counter() - start
        if value <= target:
            raise _Reached(seconds)
        if seconds > limit:
            raise _Reached(None)
        return torch.tensor(value)

    try:
        optimizer.step(closure)
    except _Reached as reached:
        return reached.args[0]
    return None  # the line search gave up


def fit_adam(model, alpha, target, limit, lr, minibatches, rng):
    """Seconds until Adam is at an objective of at most `target`; None if not within `limit`.

    The looks at the objective that minibatches need, one an epoch, are not counted.
    """
    optimizer = torch.optim.Adam(model.params.values(), lr=lr)
    seconds = 0.0
    while seconds <= limit:
        start = time.perf_counter()
        if not minibatches:
            value = model.objective_and_grad(alpha)
            if value > target:
                optimizer.step()
            seconds += time.perf_counter() - start
        else:
            for i in rng.permutation(len(model.batches)):
                optimizer.zero_grad()
                batch = model.batches[i]
                loss = model._loss(*batch) / len(batch[0]) + model._penalty(alpha)
                loss.backward()
                optimizer.step()
            seconds += time.perf_counter() - start
            value = model.objective(alpha)
        if value <= target:
            return seconds
    return None
