"""Sets with their keys: the input of every layer of attention."""

from dataclasses import dataclass

import numpy as np

from .pairs import RaggedPair
from .ragged import RaggedArray


@dataclass(frozen=True, eq=False)
class Sets:
    """Sets of tokens, each with the tokens it attends to: its keys.

    In self-attention `keys` is `queries`, the same object; with a context the keys of set i are
    the tokens of context i.
    """

    queries: RaggedArray
    keys: RaggedArray

    @classmethod
    def of(cls, X):
        """The sets of a RaggedArray or of a RaggedPair."""
        return cls(X.queries, X.context) if isinstance(X, RaggedPair) else cls(X, X)

    @property
    def has_context(self):
        """Whether the keys are those of a context."""
        return self.keys is not self.queries

    @property
    def sides(self):
        """The queries, and with a context also the keys."""
        return (self.queries, self.keys) if self.has_context else (self.queries,)

    @property
    def dtype(self):
        """Type of the token values, the same on both sides."""
        return self.queries.dtype

    @property
    def n_tokens(self):
        """Number of tokens of all sides."""
        return sum(side.n_tokens for side in self.sides)

    def __len__(self):
        return len(self.queries)

    def as_data(self):
        """The sets as input of an estimator: a RaggedArray or a RaggedPair."""
        return RaggedPair._trusted(self.queries, self.keys) if self.has_context else self.queries

    def map(self, change):
        """The sets with each side changed."""
        sides = [change(side) for side in self.sides]
        return Sets(sides[0], sides[-1])

    def take(self, indices):
        """The sets at the given positions."""
        return self.map(lambda side: side.take(indices))

    def sampled(self, max_tokens, rng):
        """The sets with at most `max_tokens` tokens, and keys, of each.

        From a set of n > max_tokens tokens, max_tokens are drawn without replacement. They keep
        their order, and each has n / max_tokens times its weight.
        """
        return self.map(lambda side: _sampled(side, max_tokens, rng))

    def by_length(self):
        """Positions of the sets (n_samples,), by number of tokens, then by number of keys."""
        if not self.has_context:
            return np.argsort(self.queries.lengths, kind="stable")
        return np.lexsort((self.keys.lengths, self.queries.lengths))

    def equal_length_chunks(self, sets_at_once):
        """Positions of sets with the same numbers of tokens and keys, smallest first.

        Parameters
        ----------
        sets_at_once : callable
            ``sets_at_once(n, m)`` is how many sets of n tokens and m keys fit in one chunk.

        Yields
        ------
        sets : slice or ndarray of int of shape (b,)
            Positions of b sets; a slice if the sets are in order of length, so that taking them
            copies nothing.
        rows, key_rows : slice or ndarray of int, of shape (b * n,) and (b * m,)
            Rows of the values that hold their tokens and keys; the same object in self-attention.
        shape, key_shape : tuple of int
            ``(b, n)`` and ``(b, m)``.
        """
        n, m = self.queries.lengths, self.keys.lengths
        if len(n) == 1:
            rows = slice(0, int(n[0]))
            key_rows = slice(0, int(m[0])) if self.has_context else rows
            yield slice(0, 1), rows, (1, int(n[0])), key_rows, (1, int(m[0]))
            return
        order = self.by_length()
        in_order = bool((order[1:] > order[:-1]).all())
        n, m = n[order], m[order]
        stops = np.append(np.flatnonzero((n[1:] != n[:-1]) | (m[1:] != m[:-1])) + 1, len(n))
        start = 0
        for stop in stops.tolist() if len(n) else ():
            lengths = int(n[start]), int(m[start])
            step = max(1, int(sets_at_once(*lengths)))
            while start < stop:
                end = min(start + step, stop)
                sets = slice(start, end) if in_order else order[start:end]
                rows = key_rows = _rows(self.queries, sets, lengths[0])
                if self.has_context:
                    key_rows = _rows(self.keys, sets, lengths[1])
                yield sets, rows, (end - start, lengths[0]), key_rows, (end - start, lengths[1])
                start = end


def _sampled(side, max_tokens, rng):
    """At most `max_tokens` tokens of each set, weighted to represent all."""
    lengths = side.lengths
    if not len(side) or lengths.max() <= max_tokens:
        return side
    sets = side.repeat(np.arange(len(side)))
    in_turn = np.lexsort((rng.random(side.n_tokens), sets))  # each set's tokens, shuffled
    is_kept = np.empty(side.n_tokens, dtype=bool)
    is_kept[in_turn] = np.arange(side.n_tokens) - side.repeat(side.offsets[:-1]) < max_tokens
    weights = side.repeat(np.maximum(1.0, lengths / max_tokens))
    if side.weights is not None:
        weights *= side.weights
    return side._with(weights=weights)._keep(is_kept)


def _rows(ragged, sets, n):
    """Rows of the values that hold sets of n tokens; a slice if `sets` is a slice."""
    if isinstance(sets, slice):
        return slice(int(ragged.offsets[sets.start]), int(ragged.offsets[sets.stop]))
    return (ragged.offsets[sets][:, None] + np.arange(n)).ravel()
