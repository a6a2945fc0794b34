"""A Gaussian kernel's features, its width scaled to the number of columns."""

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.kernel_approximation import Nystroem
from sklearn.utils.validation import check_is_fitted, validate_data


class ScaledNystroem(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Nystroem features of a Gaussian kernel whose width grows with the number of features.

    Their dot products approximate ``exp(-sharpness |x - z|^2 / n_features)``. With standardised
    features, one sharpness suits any number of them.

    Parameters
    ----------
    n_components : int, default=100
        Number of landmarks, drawn from the training rows; at most as many as there are rows.
    sharpness : float, default=1.0
        Factor of the squared distance per feature; above 0.
    random_state : int, RandomState or None, default=None
        Seed of the landmarks.

    Attributes
    ----------
    nystroem_ : Nystroem
        The fitted transformer of scikit-learn, with gamma ``sharpness / n_features``.
    n_features_in_ : int
        Number of columns.

    See Also
    --------
    sklearn.kernel_approximation.Nystroem : The same features with a given gamma.
    skattn.TokenTransformer : Applies it to each token.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.pipelines import ScaledNystroem
    >>> X = np.array([[0.0, 0.0], [1.0, 1.0]])
    >>> features = ScaledNystroem(sharpness=0.5).fit_transform(X)
    >>> (features @ features.T).round(6)  # exp(-1/2) apart
    array([[1.      , 0.606531],
           [0.606531, 1.      ]])
    """

    def __init__(self, n_components=100, *, sharpness=1.0, random_state=None):
        self.n_components = n_components
        self.sharpness = sharpness
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X, y=None):
        """Draw landmarks.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, standardised.
        y : None, default=None
            Not used.

        Returns
        -------
        self : ScaledNystroem
            Fitted.
        """
        if not self.sharpness > 0:
            raise ValueError(f"sharpness must be above 0, but is {self.sharpness!r}.")
        X = validate_data(self, X, dtype=(np.float64, np.float32))
        self.nystroem_ = Nystroem(
            gamma=self.sharpness / X.shape[1],
            n_components=min(self.n_components, len(X)),
            random_state=self.random_state,
        ).fit(X)
        return self

    def transform(self, X):
        """Features of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, standardised as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_landmarks)
            The features. O(n_samples n_landmarks (n_features + n_landmarks)) time.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return self.nystroem_.transform(X)

    @property
    def _n_features_out(self):
        return len(self.nystroem_.components_)
