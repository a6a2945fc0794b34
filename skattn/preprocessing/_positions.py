"""Positions of tokens, encoded in their vectors."""

from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from .._input import read_sets
from .._output import RaggedOutputMixin
from .._parameters import checked, integer, one_of, optional, positive
from ..containers import is_pandas, is_table
from ..ragged import RaggedArray
from ._names import of_token_features

MODES = ("add", "append")


def sinusoidal(positions, n_features, max_period):
    """Sines and cosines of positions (n,) at falling frequencies, (n, n_features)."""
    column = np.arange(n_features)
    frequencies = float(max_period) ** -(2 * (column // 2) / n_features)  # 2i of each pair
    out = positions[:, None] * frequencies
    np.sin(out[:, 0::2], out=out[:, 0::2])
    np.cos(out[:, 1::2], out=out[:, 1::2])
    return out


ENCODINGS = {"sinusoidal": sinusoidal}
CHECKS = {
    "kind": one_of(ENCODINGS),
    "mode": one_of(MODES),
    "n_features": optional(integer(1)),
    "max_period": positive,
}


class PositionalEncoder(OneToOneFeatureMixin, RaggedOutputMixin, BaseEstimator):
    """Encode the position of each token in its set, or its time, in the token's vector.

    Attention and pooling ignore the order of tokens: for them *dog bites man* equals *man bites
    dog*. With positions in the vectors, they can distinguish equal tokens at different places.

    Parameters
    ----------
    kind : {"sinusoidal"}, default="sinusoidal"
        The encoding, see Notes.
    mode : {"add", "append"}, default="add"
        Whether to add the encoding to the token's features, as in the paper, or to append it as
        further columns, which keeps both apart.
    n_features : int, default=None
        Number of columns of an appended encoding. None takes the number of token features without
        `position`. An added encoding always has this number.
    max_period : float, default=10000.0
        The wavelengths rise from 2 pi to nearly ``2 pi max_period``, in units of the positions.
        If it is much larger than the longest set, most columns are nearly constant.
    position : int or str, default=None
        Number or name of the token column that holds the positions, for instance times; any real
        values. A negative number counts from the end. Tokens have named columns if X is a frame
        of numbers, if each set is a frame, or if the sets come from a child table. None counts
        the tokens of each set from 0, in their order.
    drop_position : bool, default=False
        Whether to leave the column `position` out of the output. If it is kept, it is unchanged.

    Attributes
    ----------
    position_ : int or None
        Number of the column `position`.
    n_features_out_ : int
        Number of features of a token in the output.
    n_features_in_ : int
        Number of features of a token.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the token features, if X in `fit` had names.

    Raises
    ------
    TypeError, ValueError
        If a parameter or the data is not as described. The message names what is needed.

    See Also
    --------
    TokenEmbedder : Look up token vectors of words.
    AttentionContextualizer : With ``mask="causal"`` a token attends to itself and earlier tokens.

    Notes
    -----
    The sinusoidal encoding of position t in d columns is that of Vaswani et al. (2017), section
    3.5, with their 10000 for `max_period`::

        PE(t, 2i)     = sin(t / max_period^(2i / d))
        PE(t, 2i + 1) = cos(t / max_period^(2i / d))

    If d is odd, the last column is a sine. If d is even, the dot product of two encodings depends
    only on the distance of the positions.

    Padding rows and tokens of weight 0 are left out and not counted. Other token weights are kept.
    A token of weight 2 takes one position. It therefore equals the token repeated if `position`
    is a column, but not if tokens are counted.

    O(n_tokens n_features) time. The output is a RaggedArray, float32 for float32 tokens, else
    float64; ``set_output`` does not change it.

    References
    ----------
    A. Vaswani et al., "Attention is all you need", Advances in Neural Information Processing
    Systems 30, 2017.

    Examples
    --------
    >>> from skattn import PositionalEncoder
    >>> X = [[[1.0, 1.0], [1.0, 1.0]], [[5.0, 5.0]]]
    >>> PositionalEncoder().fit_transform(X)[0].round(3)
    array([[1.   , 2.   ],
           [1.841, 1.54 ]])
    >>> PositionalEncoder(mode="append").fit_transform(X)[0].round(3)
    array([[1.   , 1.   , 0.   , 1.   ],
           [1.   , 1.   , 0.841, 0.54 ]])
    """

    def __init__(
        self,
        kind="sinusoidal",
        *,
        mode="add",
        n_features=None,
        max_period=10000.0,
        position=None,
        drop_position=False,
    ):
        self.kind = kind
        self.mode = mode
        self.n_features = n_features
        self.max_period = max_period
        self.position = position
        self.drop_position = drop_position

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X, y=None):
        """Check the parameters and store the number and names of the token features.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, with the tokens of each set in order.
        y : None, default=None
            Not used.

        Returns
        -------
        self : PositionalEncoder
            The fitted encoder.
        """
        self._check_parameters()
        d = read_sets(self, X, reset=True).n_features
        self.position_ = None if self.position is None else self._find_position(X, d)
        content = d - (self.position_ is not None)
        if self.mode == "add" and self.n_features not in (None, content):
            raise ValueError(
                f"n_features is {self.n_features}, but an added encoding has as many features "
                f"as the tokens, {content}. Leave n_features at None, or choose mode='append'."
            )
        self._n_encoded = content if self.n_features is None else self.n_features
        if self._n_encoded == 0:
            raise ValueError(
                "Tokens have no features besides their position. Choose mode='append' and give "
                "n_features."
            )
        self.n_features_out_ = len(self._kept()) + (self.mode == "append") * self._n_encoded
        return self

    def transform(self, X):
        """Encode the positions of the tokens in their vectors.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads, with the tokens of each set in order.

        Returns
        -------
        RaggedArray
            One row of `n_features_out_` columns for each token.
        """
        check_is_fitted(self)
        if isinstance(self.position, str) and _column_names(X):
            place = self._find_position(X, self.n_features_in_)
            if place != self.position_:
                raise ValueError(
                    f"The position {self.position!r} is column {place} of X, but was column "
                    f"{self.position_} in fit. Put the columns in the same order."
                )
        X = read_sets(self, X, reset=False).drop_zero_weights()
        encode, kept, d = ENCODINGS[self.kind], self._kept(), self._n_encoded
        if self.position_ is None:
            table = encode(
                np.arange(X.lengths.max(initial=0), dtype=np.float64), d, self.max_period
            )
            code = table[np.arange(X.n_tokens) - X.repeat(X.offsets[:-1])]
        else:
            times = X.values[:, self.position_].astype(np.float64, copy=False)
            code = encode(times, d, self.max_period)
        values = X.values[:, kept]
        if self.mode == "append":
            values = np.hstack([values, code], dtype=X.dtype, casting="same_kind")
        else:
            values[:, kept != self.position_] += code.astype(X.dtype, copy=False)
        return X.with_values(values, None if X.columns is None else self.get_feature_names_out())

    def get_feature_names_out(self, input_features=None):
        """Names of the output's token features: those of X, then the appended encoding.

        Parameters
        ----------
        input_features : array-like of str of shape (n_features_in_,), default=None
            Names of the token features. If `feature_names_in_` exists, they must equal it. None
            stands for `feature_names_in_` or else ``x0, x1, ...``. The name of a column of sets
            is not used.

        Returns
        -------
        ndarray of str of shape (n_features_out_,)
            ``positionalencoder0``, ... for the columns of an appended encoding.
        """
        check_is_fitted(self)
        names = super().get_feature_names_out(of_token_features(self, input_features))
        prefix, appended = type(self).__name__.lower(), self.n_features_out_ - len(self._kept())
        own = np.array([f"{prefix}{j}" for j in range(appended)], dtype=object)
        return np.concatenate([names[self._kept()], own])

    def _is_ragged_out(self):
        return True

    def _kept(self):
        """Numbers of the columns of X that the output keeps."""
        columns = np.arange(self.n_features_in_)
        return columns[columns != self.position_] if self.drop_position else columns

    def _check_parameters(self):
        """Raise an error that names an invalid parameter."""
        checked(self, CHECKS)
        if self.position is None and self.drop_position:
            raise ValueError("drop_position=True needs a column to drop: give position.")

    def _find_position(self, X, n_features):
        """Number of the column `position`, from 0."""
        if isinstance(self.position, str):
            names = _column_names(X)
            if self.position not in names:
                raise ValueError(
                    f"position is {self.position!r}, but the tokens' columns are "
                    f"{names or 'without names'}. Give its number, or X as frames that have it."
                )
            return names.index(self.position)
        if not _is_integer(self.position):
            raise TypeError(
                "position must be the number or the name of a column, or None, but is "
                f"{self.position!r}."
            )
        if not -n_features <= self.position < n_features:
            raise ValueError(
                f"position is {self.position}, but tokens have {n_features} features, numbered "
                "from 0."
            )
        return int(self.position) % n_features


def _is_integer(value):
    return isinstance(value, Integral) and not isinstance(value, (bool, np.bool_))


def _column_names(X):
    """Names of the token features, the same in all frames of X; empty if X has none."""
    if isinstance(X, RaggedArray):
        return [] if X.columns is None else X.columns.tolist()
    if is_pandas(X, "DataFrame"):
        if is_table(X):
            return list(X.columns)
        X = X.iloc[:, 0]
    frames = [(i, cell) for i, cell in enumerate(X) if is_pandas(cell, "DataFrame")]
    names = list(frames[0][1].columns) if frames else []
    for i, frame in frames:
        if list(frame.columns) != names:
            raise ValueError(
                f"Set {i} has the columns {list(frame.columns)}, but the sets before it have "
                f"{names}: all must have the same ones in the same order."
            )
    return names
