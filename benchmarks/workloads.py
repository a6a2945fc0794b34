"""Sets of the sizes on which speed is measured.

W1: many small sets, 3 to 30 tokens of 16 features. W2: sets of very different sizes, about 60 and
up to 600 tokens, of 64 features. W3: sets of 4,000 tokens of 64 features. W4: one set of 20
tokens of 16 features.
"""

from dataclasses import dataclass

import numpy as np

from skattn import RaggedArray

__all__ = ["WORKLOADS", "Workload"]


@dataclass(frozen=True)
class Workload:
    """Lengths of the sets by a generator, and widths of tokens and projections."""

    n_sets: int
    n_features: int
    d_k: int
    lengths: object
    padded_batch: int

    def sets(self, dtype=np.float64, share=1.0, seed=0):
        """A RaggedArray of `share` of the sets, normal tokens."""
        rng = np.random.default_rng(seed)
        n_sets = max(1, int(self.n_sets * share))
        lengths = self.lengths(rng, n_sets)
        values = rng.normal(size=(lengths.sum(), self.n_features)).astype(dtype)
        return RaggedArray(values, np.concatenate([[0], np.cumsum(lengths)]))


def _uniform(rng, n_sets):
    return rng.integers(3, 31, size=n_sets)


def _lognormal(rng, n_sets):
    return np.clip(rng.lognormal(np.log(60) - 0.32, 0.8, size=n_sets), 2, 600).astype(int)


WORKLOADS = {
    "W1": Workload(20_000, 16, 16, _uniform, 256),
    "W2": Workload(2_000, 64, 32, _lognormal, 64),
    "W3": Workload(2, 64, 64, lambda rng, n_sets: np.full(n_sets, 4_000), 1),
    "W4": Workload(1, 16, 16, lambda rng, n_sets: np.full(n_sets, 20), 1),
}
