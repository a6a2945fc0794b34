"""Any scikit-learn transformer, applied to tokens."""

from inspect import Parameter, signature

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.utils import check_consistent_length, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._arrays import as_float
from .._input import check_sample_weight, read_sets
from .._output import RaggedOutputMixin
from .._targets import for_each_token
from ..containers import as_ragged
from ._names import of_token_features


def _transformer_has(method):
    """Whether the wrapped transformer, fitted or not, has the method."""
    return lambda self: hasattr(getattr(self, "transformer_", self.transformer), method)


class TokenTransformer(OneToOneFeatureMixin, RaggedOutputMixin, BaseEstimator):
    """Apply a scikit-learn transformer to every token.

    The transformer is fitted once, on the tokens of all training sets as the rows of one array.
    Use it to standardise tokens, to reduce or expand their features, or to encode a feature.

    Parameters
    ----------
    transformer : transformer
        Any transformer that returns one dense row for each row: ``StandardScaler()``, ``PCA()``,
        ``Nystroem()``, ``OneHotEncoder(sparse_output=False)``, a FunctionTransformer, a
        ColumnTransformer, a Pipeline. It is cloned; its own parameters are ``transformer__...``.

    Attributes
    ----------
    transformer_ : transformer
        The clone, fitted on an array of shape (n_tokens, n_features_in_).
    n_features_out_ : int
        Number of features of a transformed token.
    n_features_in_ : int
        Number of features of a token.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the token features, if X in `fit` had names.

    Raises
    ------
    TypeError
        If the transformer lacks ``fit`` or ``transform``, or returns sparse or non-numeric rows.
    ValueError
        If there is no token to fit on, or if the transformer changes the number of rows.

    See Also
    --------
    SetPooler : Statistics of each set's tokens.
    as_ragged : All forms of X.

    Notes
    -----
    The cost is that of the transformer on an array of shape (n_tokens, n_features).

    The weight of a token is its own weight, if X is a RaggedArray with weights, times the
    `sample_weight` of its set. A transformer whose ``fit`` has a parameter `sample_weight` gets
    these weights. For other transformers, such as PCA and any Pipeline, every token counts once;
    to weight several steps, chain TokenTransformers. `fit` always leaves out tokens of weight 0
    and sets of sample weight 0. Tokens of weight 0 have no row in the output.

    A ColumnTransformer, alone or in a Pipeline, can select token features by name where they have
    names: it gets the tokens as a pandas frame with the columns `feature_names_in_`.

    The output is a RaggedArray; ``set_output`` does not change it. FeatureUnion and
    ColumnTransformer cannot stack RaggedArrays: pool first, for instance with SetPooler.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skattn.preprocessing import TokenTransformer
    >>> X = [[[1.0, 0.0], [3.0, 4.0]], [], [[5.0, 8.0]]]
    >>> scaled = TokenTransformer(StandardScaler()).fit_transform(X)
    >>> scaled
    RaggedArray(3 sets, 3 tokens, 2 features, float64)
    >>> scaled[0].round(3)
    array([[-1.225, -1.225],
           [ 0.   ,  0.   ]])
    """

    def __init__(self, transformer):
        self.transformer = transformer

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if hasattr(self.transformer, "__sklearn_tags__"):
            inner = get_tags(self.transformer)
            tags.target_tags.required = inner.target_tags.required
            tags.input_tags.positive_only = inner.input_tags.positive_only
            tags.non_deterministic = inner.non_deterministic
            if inner.transformer_tags is not None:
                tags.transformer_tags.preserves_dtype = inner.transformer_tags.preserves_dtype
        return tags

    def fit(self, X, y=None, *, sample_weight=None):
        """Fit the transformer on the tokens of all sets.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads; at least one token.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            A target per set, repeated for each token of the set if the transformer's ``fit``
            takes y. Or a target per token: a RaggedArray, or a list of arrays with the lengths
            of the sets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the sets, 0 or more; see Notes.

        Returns
        -------
        self : TokenTransformer
            The fitted transformer.
        """
        tokens, used, parameters = self._prepare(X, y, sample_weight)
        values = self._named(tokens.values[used])
        self.transformer_.fit(values, **parameters)
        first = values[:1].copy()  # the transformer may write over what it gets
        self.n_features_out_ = self._rows(self.transformer_.transform(first), 1).shape[1]
        return self

    def fit_transform(self, X, y=None, *, sample_weight=None):
        """Fit the transformer on the tokens of all sets and transform them.

        The transformer's own ``fit_transform`` runs once. It may be faster than ``fit`` and
        ``transform``, or differ from them: TargetEncoder cross-fits in it.

        Parameters
        ----------
        X : container of n_samples sets
            As in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            As in `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            As in `fit`. Sets of weight 0 are transformed, but the fit does not use them.

        Returns
        -------
        RaggedArray
            One row of `n_features_out_` columns for each token.
        """
        tokens, used, parameters = self._prepare(X, y, sample_weight)
        values, transformer = self._named(tokens.values[used]), self.transformer_
        method = getattr(transformer, "fit_transform", None)
        if method is not None and all(_takes(method, name) for name in parameters):
            rows = method(values, **parameters)
        else:
            rows = transformer.fit(values, **parameters).transform(values)
        rows = self._rows(rows, len(values))
        self.n_features_out_ = rows.shape[1]
        if isinstance(used, slice):
            return self._with_rows(tokens, rows)
        out = np.empty((tokens.n_tokens, rows.shape[1]), rows.dtype)
        out[used], out[~used] = rows, self._apply(tokens.values[~used])
        return self._with_rows(tokens, out)

    def transform(self, X):
        """Transform every token.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that :func:`skattn.as_ragged` reads.

        Returns
        -------
        RaggedArray
            One row of `n_features_out_` columns for each token, with the token weights of X and
            without the tokens of weight 0. An empty set stays empty. Float32 if X is and the
            transformer keeps it, else float64.
        """
        check_is_fitted(self)
        tokens = read_sets(self, X, reset=False).drop_zero_weights()
        return self._with_rows(tokens, self._apply(tokens.values))

    @available_if(_transformer_has("inverse_transform"))
    def inverse_transform(self, X):
        """Undo `transform`, token by token, if the transformer can.

        Parameters
        ----------
        X : container of n_samples sets
            Tokens of `n_features_out_` features, in anything that :func:`skattn.as_ragged`
            reads.

        Returns
        -------
        RaggedArray
            One row of `n_features_in_` columns for each token.
        """
        check_is_fitted(self)
        tokens = as_ragged(X, estimator=self).drop_zero_weights()
        if tokens.n_tokens == 0:
            return tokens.with_values(np.empty((0, self.n_features_in_), tokens.dtype))
        if tokens.n_features != self.n_features_out_:
            raise ValueError(
                f"X has {tokens.n_features} features, but inverse_transform is expecting tokens "
                f"of {self.n_features_out_} features, as from transform."
            )
        rows = self.transformer_.inverse_transform(tokens.values)
        return tokens.with_values(self._rows(rows, tokens.n_tokens))

    def get_feature_names_out(self, input_features=None):
        """Names of a transformed token's features, as the transformer names them.

        Parameters
        ----------
        input_features : array-like of str of shape (n_features_in_,), default=None
            Names of the token features. If `feature_names_in_` exists, they must equal it. None
            stands for `feature_names_in_` or else ``x0, x1, ...``. The name of a column of sets
            is not used.

        Returns
        -------
        ndarray of str of shape (n_features_out_,)
            One name per column; ``tokentransformer0``, ... if the transformer has no names.
        """
        check_is_fitted(self)
        names = super().get_feature_names_out(of_token_features(self, input_features))
        try:
            return self.transformer_.get_feature_names_out(names)
        except AttributeError:  # the transformer, or a step of a Pipeline, has no names
            prefix = type(self).__name__.lower()
            return np.array([f"{prefix}{j}" for j in range(self.n_features_out_)], dtype=object)

    def _prepare(self, X, y, sample_weight):
        """The tokens of the output, a mask of those to fit on, and the parameters of the fit."""
        for method in ("fit", "transform"):
            if not hasattr(self.transformer, method):
                raise TypeError(
                    f"transformer must have the methods fit and transform, but "
                    f"{self.transformer!r} has no {method}."
                )
        tokens = read_sets(self, X, reset=True)
        if y is None and get_tags(self).target_tags.required:
            raise ValueError(
                f"{type(self.transformer).__name__} requires y to be passed, but the target y is "
                "None."
            )
        weight = None
        if sample_weight is not None:
            weight = tokens.repeat(check_sample_weight(sample_weight, len(tokens)))
        if tokens.weights is not None:
            weight = tokens.weights * (1.0 if weight is None else weight)
        if tokens.n_tokens == 0 or (weight is not None and not weight.any()):
            raise ValueError(
                f"Found no tokens of positive weight in {len(tokens)} sets; at least one is "
                "required."
            )
        used = slice(None) if weight is None or weight.all() else weight > 0
        self.transformer_ = clone(self.transformer)
        parameters = {}
        if y is not None:
            check_consistent_length(tokens, y)
            if has_fit_parameter(self.transformer_, "y"):
                parameters["y"] = for_each_token(y, tokens)[used]
        if weight is not None and has_fit_parameter(self.transformer_, "sample_weight"):
            parameters["sample_weight"] = weight[used]
        if tokens.weights is not None and not isinstance(used, slice):
            used = used[tokens.weights > 0]  # the output, too, has only these
        return tokens.drop_zero_weights(), used, parameters

    def _apply(self, values):
        """Transformed tokens (n_tokens, n_features_out_); 0 rows skip the transformer."""
        if len(values) == 0:
            return np.empty((0, self.n_features_out_), values.dtype)
        return self._rows(self.transformer_.transform(self._named(values)), len(values))

    def _named(self, values):
        """The tokens; as a frame where a ColumnTransformer can select them by their names."""
        names = getattr(self, "feature_names_in_", None)
        parts = [self.transformer_]
        if hasattr(self.transformer_, "get_params"):
            parts += self.transformer_.get_params().values()
        if names is None or not any(isinstance(part, ColumnTransformer) for part in parts):
            return values
        import pandas as pd

        return pd.DataFrame(values, columns=names)

    def _rows(self, out, n_tokens):
        """The transformer's output as a float array, checked to have a row per token."""
        name = type(self.transformer_).__name__
        if issparse(out):
            raise TypeError(
                f"{name} returns sparse rows, but tokens are dense vectors. Set "
                "sparse_output=False if it has this parameter, or add a step with dense output, "
                "such as TruncatedSVD, in a Pipeline."
            )
        rows = np.asarray(out)
        if rows.ndim != 2 or len(rows) != n_tokens:
            raise ValueError(
                f"{name} returned an array of shape {rows.shape} for {n_tokens} tokens, but must "
                f"return one row per token, ({n_tokens}, n_features_out)."
            )
        if rows.dtype.kind not in "fiub":
            raise TypeError(
                f"{name} returns rows of dtype {rows.dtype}, but tokens must be real numbers."
            )
        return as_float(rows)

    def _with_rows(self, tokens, rows):
        """The same sets with transformed tokens, with names if X has names."""
        named = tokens.columns is not None
        return tokens.with_values(rows, self.get_feature_names_out() if named else None)

    def _is_ragged_out(self):
        return True


def _takes(method, name):
    """Whether a method takes the parameter, by name or as one of its ``**kwargs``."""
    parameters = signature(method).parameters
    return name in parameters or any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
