"""Sets and their contexts: the input of cross-attention."""

from dataclasses import dataclass

import numpy as np

from .containers import as_ragged
from .ragged import RaggedArray

__all__ = ["RaggedPair"]


@dataclass(frozen=True, eq=False, repr=False)
class RaggedPair:
    """Sets of tokens, each with the set of tokens that it attends to, its context.

    Sample i is the pair of ``queries[i]`` and ``context[i]``. The two may have different numbers of
    tokens and of features. Like a :class:`~skattn.RaggedArray` it works with scikit-learn's
    splitters: it has a length and a ``shape``, and its index may be an integer, a slice, or an
    integer or boolean array.

    Parameters
    ----------
    queries : container of n_samples sets
        The tokens that attend: anything that :func:`skattn.as_ragged` reads. A dense 2-D array is
        one token per sample.
    context : container of n_samples sets
        The tokens that the queries attend to, sample by sample.

    Attributes
    ----------
    shape : tuple
        ``(n_samples, 2)``: each sample is two sets.

    Raises
    ------
    TypeError
        If one side is not a container of sets.
    ValueError
        If the sides have different numbers of sets, or different indices from pandas objects or
        :meth:`skattn.RaggedArray.from_frame`, or if a side cannot be read; the message names the
        side.

    Notes
    -----
    A token weight in the context is how often that token stands there to be attended to. Token
    weights of the queries count in the pooling.

    Examples
    --------
    >>> from skattn import RaggedPair
    >>> items = [[1.0, 0.0], [0.0, 1.0]]  # a query of one token for each sample
    >>> baskets = [[[3.0], [1.0]], [[2.0]]]
    >>> X = RaggedPair(items, baskets)
    >>> X
    RaggedPair(2 samples, queries: 2 tokens of 2 features, context: 3 tokens of 1 features, float64)
    >>> X[0]
    (array([[1., 0.]]), array([[3.],
           [1.]]))
    >>> len(X[:1])
    1
    """

    queries: RaggedArray
    context: RaggedArray

    def __post_init__(self):
        read = {}
        for name in ("queries", "context"):
            try:
                read[name] = as_ragged(getattr(self, name))
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"The {name} of a RaggedPair: {error}") from error
        n_queries, n_context = len(read["queries"]), len(read["context"])
        if n_queries != n_context:
            raise ValueError(
                f"A RaggedPair has a context for each set, but there are {n_queries} sets of "
                f"queries and {n_context} of context."
            )
        index, context_index = read["queries"].index, read["context"].index
        if not (index is None or context_index is None or _equal(index, context_index)):
            raise ValueError(
                "The index of the context is not that of the queries, but each set is paired with "
                "the context at its own position. Bring one into the order of the other, for "
                "instance by context.loc[queries.index] or from_frame(..., index=queries.index), "
                "or give the sets without their index."
            )
        dtype = np.result_type(*(side.dtype for side in read.values()))
        for name, side in read.items():
            object.__setattr__(self, name, side.astype(dtype))

    @classmethod
    def _trusted(cls, queries, context):
        """Build from sides that are known to be valid, without checking them again."""
        self = object.__new__(cls)
        self.__dict__.update(queries=queries, context=context)
        return self

    # What it is

    @property
    def n_samples(self):
        """Number of pairs."""
        return self.queries.n_samples

    @property
    def n_tokens(self):
        """Number of tokens that attend, in all samples together."""
        return self.queries.n_tokens

    @property
    def lengths(self):
        """Number of tokens that attend, ndarray of shape (n_samples,)."""
        return self.queries.lengths

    @property
    def n_features(self):
        """Number of features of a token that attends."""
        return self.queries.n_features

    @property
    def dtype(self):
        """Type of the token values of both sides."""
        return self.queries.dtype

    @property
    def shape(self):
        """``(n_samples, 2)``: each sample is two sets."""
        return (self.n_samples, 2)

    @property
    def ndim(self):
        """Number of axes, 2: samples, sides."""
        return 2

    def __len__(self):
        return self.n_samples

    def __repr__(self):
        each = (
            f"{name}: {side.n_tokens} tokens of {side.n_features} features"
            + ("" if side.weights is None else " (weighted)")
            for name, side in (("queries", self.queries), ("context", self.context))
        )
        return f"RaggedPair({self.n_samples} samples, {', '.join(each)}, {self.dtype})"

    def __array__(self, dtype=None, copy=None):
        raise TypeError(
            "A RaggedPair has two sets in each sample and does not become one NumPy array: use "
            ".queries and .context, both RaggedArrays, or first an estimator that attends from "
            "one to the other, for instance AttentionContextualizer."
        )

    def __eq__(self, other):
        raise TypeError("RaggedPairs are not compared by ==; compare .queries and .context.")

    __hash__ = None

    # Taking samples

    def __iter__(self):
        return zip(self.queries, self.context, strict=True)

    def __getitem__(self, key):
        queries, context = self.queries[key], self.context[key]
        if isinstance(queries, RaggedArray):
            return RaggedPair._trusted(queries, context)
        return queries, context

    def take(self, indices):
        """Samples at the given positions, in that order; a position may come twice.

        Parameters
        ----------
        indices : array-like of int of shape (n_taken,)
            Positions of samples.

        Returns
        -------
        RaggedPair
            The samples taken, copied. O(tokens taken).
        """
        return RaggedPair._trusted(self.queries.take(indices), self.context.take(indices))

    def drop_zero_weights(self):
        """The samples without the tokens of weight 0, on both sides.

        Returns
        -------
        RaggedPair
            An equal collection in which every token has a positive weight.
        """
        queries, context = self.queries.drop_zero_weights(), self.context.drop_zero_weights()
        return RaggedPair._trusted(queries, context)


def _equal(index, other):
    """Whether two indices have the same labels in the same order."""
    kinds = {getattr(side, "dtype", None) for side in (index, other)}
    if len(kinds) == 1 and hasattr(index, "equals") and hasattr(other, "equals"):  # of pandas
        return index.equals(other)
    return list(index) == list(other)  # Python compares integers and floats exactly
