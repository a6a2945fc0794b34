"""Sets from a second table: each row of the parents' table gets its rows of a child table."""

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ._arrays import is_from, is_pandas
from ._frames import is_frame, keys_of, names_in, names_of, positions
from ._output import RaggedOutputMixin
from .ragged import RaggedArray

__all__ = ["SetJoiner"]


class SetJoiner(RaggedOutputMixin, BaseEstimator):
    """Join each row of a table with the set of its rows in a child table.

    The parents' table has one row per sample, for instance customers. The child table has any
    number of rows for each, for instance transactions, with the parents' key in one of its columns.
    The output is one set of tokens per parent, in the parents' order, ready for an estimator of
    sets. The parents' other columns are not used: a ColumnTransformer puts them beside the pooled
    sets.

    Parameters
    ----------
    child : pandas or polars DataFrame, or Arrow table
        The child table. It is never changed; a clone shares it.
    key : str or list of str
        The column, or columns, of the parents' table that hold their key.
    columns : str or list of str
        The numeric columns of `child` that are the features of a token.
    child_key : str or list of str, default=None
        The column, or columns, of `child` that hold the parent's key; None is `key`.
    order_by : str or list of str, default=None
        Columns of `child` to sort each set's rows by; None keeps their order.
    weight : str, default=None
        The column of `child` that holds token weights.

    Attributes
    ----------
    keys_ : pandas.Index of shape (n_keys,)
        The keys in the child table, in the order in which each first appears.
    n_features_out_ : int
        Number of features of a token.

    Raises
    ------
    TypeError, ValueError
        If the child table is not as :meth:`RaggedArray.from_frame` needs it; if X has no column
        `key`, or a row without a key; in `fit`, if the child table has no row for any row of X, for
        instance because one table holds keys as text and the other as numbers.

    See Also
    --------
    RaggedArray.from_frame : The same outside a pipeline.

    Notes
    -----
    A parent without rows gets an empty set. Rows of parents that are not in X are ignored, so a
    training fold uses only its own rows. A key may appear several times in X.

    `fit` groups the child table, O(n_rows log(n_rows)); `transform` looks the keys up and copies
    their tokens. Nothing is learned from X or y: to give a fitted pipeline new rows, refit this
    step alone, ``model[0].set_params(child=today).fit(parents)``.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> from skattn import SetPooler
    >>> from skattn.joining import SetJoiner
    >>> customers = pd.DataFrame({"customer": ["a", "b", "c"], "age": [31, 47, 25]})
    >>> bought = pd.DataFrame({"customer": ["b", "a", "b"], "price": [1.0, 2.0, 3.0]})
    >>> joiner = SetJoiner(bought, key="customer", columns=["price"])
    >>> joiner.fit_transform(customers).lengths.tolist()
    [1, 2, 0]
    >>> model = make_pipeline(joiner, SetPooler(statistics=("mean", "count")))
    >>> model.set_output(transform="pandas").fit_transform(customers)
       mean_price  count
    0         2.0    1.0
    1         2.0    2.0
    2         0.0    0.0
    """

    def __init__(self, child, *, key, columns, child_key=None, order_by=None, weight=None):
        self.child = child
        self.key = key
        self.columns = columns
        self.child_key = child_key
        self.order_by = order_by
        self.weight = weight

    def __sklearn_clone__(self):
        return type(self)(**self.get_params(deep=False))  # a deep copy of the table would cost

    def fit(self, X, y=None):
        """Group the child table by its key.

        Parameters
        ----------
        X : pandas or polars DataFrame of n_samples rows, or array-like of shape (n_samples,)
            The parents' table, or its keys alone.
        y : None
            Not used.

        Returns
        -------
        self : SetJoiner
            Fitted.
        """
        keys = self._keys(X)
        sets = RaggedArray.from_frame(
            self.child,
            by=self.key if self.child_key is None else self.child_key,
            columns=self.columns,
            order_by=self.order_by,
            weight=self.weight,
        )
        found = positions(sets.index, keys) >= 0
        if len(keys) and not found.any():
            raise ValueError(
                f"The child table has no row for any of {len(keys)} keys of X: its keys are like "
                f"{sets.index[:3].tolist()}, those of X like {keys[:3].tolist()}. Both tables must "
                "write a key the same way."
            )
        self.keys_ = sets.index
        # with an empty set at the end: position -1, for a key without rows, finds it
        offsets = np.append(sets.offsets, sets.offsets[-1])
        self._sets = sets._with(offsets=offsets, index=None)
        self.n_features_out_ = sets.n_features
        return self

    def transform(self, X):
        """The set of child rows of each row of X.

        Parameters
        ----------
        X : pandas or polars DataFrame of n_samples rows, or array-like of shape (n_samples,)
            The parents' table, or its keys alone.

        Returns
        -------
        RaggedArray
            One set per row of X, empty if the child table has no rows for its key, with the index
            of a pandas X. Its `rows` are positions in the child table.
        """
        check_is_fitted(self)
        sets = self._sets.take(positions(self.keys_, self._keys(X)))
        labelled = is_pandas(X, "DataFrame", "Series")
        return sets._with(index=X.index) if labelled else sets

    def get_feature_names_out(self, input_features=None):
        """Names of a token's features: the columns of the child table.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Not used.

        Returns
        -------
        ndarray of str of shape (n_features_out_,)
            `columns`.
        """
        check_is_fitted(self)
        return np.array(names_in(self.columns), dtype=object)

    def _keys(self, X):
        """The key of each row of X (n_samples,) as a pandas Index."""
        import pandas as pd

        names = names_in(self.key)
        if is_from(X, "polars", "Series"):
            X = X.to_frame()
        elif is_pandas(X, "Series", "Index"):
            X = pd.DataFrame({names[0]: X})
        if not is_frame(X):
            X = np.asarray(X, dtype=None if hasattr(X, "dtype") else object)
            if X.ndim == 1:
                X = X.reshape(-1, 1)
            if X.ndim != 2 or X.shape[1] != len(names):
                raise ValueError(
                    f"X has shape {X.shape}, but must be a frame with the column {self.key!r}, or "
                    "the keys alone."
                )
            X = pd.DataFrame(X, columns=names).infer_objects()
        columns = names_of(X)
        return keys_of(X, columns if len(columns) == len(names) == 1 else names)

    def _is_ragged_out(self):
        return True
