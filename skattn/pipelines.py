"""set_pipeline: one line to a strong model on sets, made of public parts."""

from numbers import Integral, Real

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
    clone,
    is_classifier,
)
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    StackingClassifier,
    StackingRegressor,
)
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold, check_cv, cross_val_predict
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ._documented import with_parameters_of
from ._output import RaggedOutputMixin
from .predictors import AttentionClassifier, AttentionRegressor
from .preprocessing import SetPooler, TokenTransformer

__all__ = [
    "CrossFitted",
    "MixtureClassifier",
    "MixtureRegressor",
    "ScaledNystroem",
    "member_shares",
    "set_pipeline",
]

STATISTICS = ("mean", "std", "min", "max", 0.25, "median", 0.75, "sum", "count")
PRIOR = 0.3  # how many samples stand behind equal shares of the members, for each member
FLOOR = 1e-6  # of a probability: a member that rules out a label is not ruled out for it
ROUNDING = 1e-6  # by which a probability may be out of range
MAX_STEPS = 1000  # of expectation maximisation


def set_pipeline(estimator, *, members=None, cv=5, n_jobs=None, random_state=0):
    """A strong model on sets in one line, from public parts.

    ``"classifier"`` and ``"regressor"`` give a stack of eight members that look at sets in
    different ways: kernel, boosting and forest learners on pooled statistics; kernel means of
    tokens at two widths; the token that speaks loudest; and attention between tokens, whose outputs
    are averaged, or pooled by attention in their turn. What each says of samples that it was not
    fitted on decides its share in the prediction, so that the stack leans on what suits the data.
    An estimator gives a pipeline in which it follows pooled statistics and the out-of-fold
    predictions of the members that read tokens.

    Parameters
    ----------
    estimator : {"classifier", "regressor"} or estimator
        What to make. A classifier or regressor of scikit-learn's kind becomes the last step.
    members : iterable of str, default=None
        Names of the members to have, fewer for a lighter model: all of them where None. They are
        ``"statistics_kernel"``, ``"statistics_boosting"``, ``"statistics_forest"``,
        ``"kernel_mean_1"``, ``"kernel_mean_4"``, ``"strongest_token"``, ``"attention"`` and
        ``"attention_pooled"``; before an estimator those alone that read tokens, the last five.
    cv : int or splitter, default=5
        Folds in which members predict samples that they were not fitted on; shuffled, and
        stratified for labels, where an integer.
    n_jobs : int, default=None
        Processes for members; None is 1 unless joblib's configuration says otherwise.
    random_state : int or None, default=0
        Seed of members and folds.

    Returns
    -------
    StackingClassifier, StackingRegressor or Pipeline
        Unfitted. Takes everything that :func:`skattn.as_ragged` reads.

    Raises
    ------
    ValueError, TypeError
        If estimator is another word, or has no fit or predict, or a member is unknown.

    See Also
    --------
    member_shares : What each member has of the prediction.
    CrossFitted : The step that makes out-of-fold predictions.
    MixtureClassifier, MixtureRegressor : The last step of the stack.
    AttentionClassifier, AttentionRegressor : Attention alone, at a fraction of the cost.

    Notes
    -----
    The shares are those of a convex combination: the maximum likelihood mixture for labels, least
    squares for numbers, each with a prior of 0.3 samples per member in favour of equal shares.

    A fit costs cv + 1 fits of every member. The regressor takes one target a set; for more, wrap it
    in scikit-learn's ``MultiOutputRegressor``. Weights of samples are not taken: the members would
    need them by scikit-learn's metadata routing, step by step.

    Fits of attention in different folds end in different bases, so that their contextual vectors
    can not stand in one column; their predictions can. Without the folds a learner behind them
    would see the targets shine through.

    References
    ----------
    .. [1] Wolpert, "Stacked generalization", Neural Networks 5, 1992.
    .. [2] Breiman, "Stacked regressions", Machine Learning 24, 1996.

    Examples
    --------
    >>> from skattn.datasets import make_lookup
    >>> from skattn.pipelines import member_shares, set_pipeline
    >>> X, y = make_lookup(400, random_state=0)
    >>> model = set_pipeline("classifier", cv=3).fit(X[:300], y[:300])
    >>> model.score(X[300:], y[300:]) > 0.9
    True
    >>> member_shares(model).idxmax()
    'attention'
    >>> lighter = set_pipeline("classifier", members=["statistics_kernel", "attention"])
    >>> lighter.fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.9
    True
    """
    if isinstance(estimator, str):
        if estimator not in ("classifier", "regressor"):
            raise ValueError(
                f"estimator must be 'classifier', 'regressor' or an estimator, but is "
                f"{estimator!r}."
            )
        classifies = estimator == "classifier"
        stack, mixture = (
            (StackingClassifier, MixtureClassifier)
            if classifies
            else (StackingRegressor, MixtureRegressor)
        )
        known = _on_statistics(classifies, random_state) + _on_tokens(classifies, random_state)
        return stack(
            _chosen(members, known),
            mixture(),
            cv=_folds(cv, classifies, random_state),
            n_jobs=n_jobs,
        )
    if not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
        raise TypeError(
            f"estimator must be 'classifier', 'regressor', or have the methods fit and predict, "
            f"but is {estimator!r}."
        )
    classifies = is_classifier(estimator)
    features = [("statistics", SetPooler(STATISTICS))]
    features += [
        (name, CrossFitted(member, cv=cv, random_state=random_state))
        for name, member in _chosen(members, _on_tokens(classifies, random_state))
    ]
    return make_pipeline(FeatureUnion(features, n_jobs=n_jobs), StandardScaler(), estimator)


def member_shares(stack):
    """What each member of a stack has of its prediction.

    Parameters
    ----------
    stack : StackingClassifier or StackingRegressor
        Fitted, with a :class:`MixtureClassifier` or :class:`MixtureRegressor` as its last step, as
        that of :func:`set_pipeline`.

    Returns
    -------
    Series of float of shape (n_members,)
        Shares by the name of the member, of sum 1, the largest first.

    Raises
    ------
    TypeError
        If there is no mixture.
    ValueError
        If the mixture had other columns than the members', by ``passthrough=True``.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.pipelines import member_shares, set_pipeline
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(n, 2)) for n in rng.integers(1, 9, size=100)]
    >>> y = [np.sin(tokens).mean() for tokens in X]
    >>> model = set_pipeline("regressor", members=["kernel_mean_1", "statistics_forest"])
    >>> member_shares(model.fit(X, y)).round(2)
    member
    statistics_forest    0.65
    kernel_mean_1        0.35
    Name: share, dtype: float64
    """
    mixture = getattr(stack, "final_estimator_", None)
    if not hasattr(mixture, "shares_"):
        raise TypeError(
            "stack must be a fitted stack whose last step is a mixture, as that of set_pipeline, "
            f"but is {type(stack).__name__} with {mixture!r}. Of several outputs, ask each of "
            "estimators_; of a search, its best_estimator_."
        )
    names = [name for name, member in stack.named_estimators_.items() if member != "drop"]
    if len(names) != len(mixture.shares_):
        raise ValueError(
            f"The stack has {len(names)} members, but its mixture {len(mixture.shares_)} shares: "
            "with passthrough=True columns of X have been mixed as if members had predicted "
            "them. Fit it with passthrough=False."
        )
    shares = pd.Series(mixture.shares_, pd.Index(names, name="member"), name="share")
    return shares.sort_values(ascending=False)


def _chosen(names, members):
    """Members of these names, in their own order."""
    if names is None:
        return members
    known = [name for name, _ in members]
    given = list(names) if np.iterable(names) and not isinstance(names, str) else []
    if not given or not all(name in known for name in given):
        raise ValueError(
            f"members must be a list with some of {known}, or None for all, but is "
            f"{given or names!r}."
        )
    return [(name, member) for name, member in members if name in given]


def _folds(cv, classifies, random_state):
    """An integer as shuffled folds; others as they are."""
    if not isinstance(cv, Integral):
        return cv
    return (StratifiedKFold if classifies else KFold)(cv, shuffle=True, random_state=random_state)


def _on_statistics(classifies, random_state):
    """Members that read pooled statistics, by name."""
    boosting, forest = (
        (HistGradientBoostingClassifier, ExtraTreesClassifier)
        if classifies
        else (HistGradientBoostingRegressor, ExtraTreesRegressor)
    )
    return [
        (
            "statistics_kernel",
            make_pipeline(SetPooler(STATISTICS), *_kernel_machine(classifies, random_state)),
        ),
        (
            "statistics_boosting",
            make_pipeline(
                SetPooler(STATISTICS),
                boosting(max_iter=100, random_state=random_state),
            ),
        ),
        (
            "statistics_forest",
            make_pipeline(
                SetPooler(STATISTICS),
                forest(300, min_samples_leaf=2 if classifies else 1, random_state=random_state),
            ),
        ),
    ]


def _on_tokens(classifies, random_state):
    """Members that read tokens, by name."""
    attention = AttentionClassifier if classifies else AttentionRegressor
    budget = {"max_iter": 100, "tol": None, "random_state": random_state}
    members = [
        (
            f"kernel_mean_{sharpness}",
            make_pipeline(
                _lift(300, sharpness, random_state),
                SetPooler(("mean",)),
                *_kernel_machine(classifies, random_state),
            ),
        )
        for sharpness in (1, 4)
    ]
    strongest = attention(
        mask="diagonal", score_statistics=False, pooling="max", alpha=3e-3, **budget
    )
    return members + [
        ("strongest_token", make_pipeline(_lift(200, 1, random_state), strongest)),
        ("attention", attention(alpha=1e-3, **budget)),
        ("attention_pooled", attention(pooling="attention", alpha=1e-3, **budget)),
    ]


def _lift(n_components, sharpness, random_state):
    """Tokens to features whose dot product is a Gaussian kernel."""
    lift = ScaledNystroem(n_components, sharpness=sharpness, random_state=random_state)
    return TokenTransformer(make_pipeline(StandardScaler(), lift))


def _kernel_machine(classifies, random_state):
    """Steps of a kernel learner on vectors, which gives probabilities where it classifies."""
    yield StandardScaler()
    yield ScaledNystroem(300, sharpness=0.5, random_state=random_state)
    yield LogisticRegression(C=100, max_iter=300) if classifies else _ridge()


def _ridge():
    return RidgeCV(np.logspace(-5, 3, 17))


class ScaledNystroem(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Nystroem's features of a Gaussian kernel whose width goes by the number of features.

    Their dot products approximate ``exp(-sharpness |x - z|^2 / n_features)``, which for
    standardised features means the same in any dimension.

    Parameters
    ----------
    n_components : int, default=100
        Number of landmarks, drawn from the training rows; all rows where there are fewer.
    sharpness : float, default=1.0
        Factor of the squared distance per feature; above 0.
    random_state : int, RandomState or None, default=None
        Seed of the landmarks.

    Attributes
    ----------
    nystroem_ : Nystroem
        scikit-learn's, fitted with that gamma.
    n_features_in_ : int
        Number of columns.

    See Also
    --------
    sklearn.kernel_approximation.Nystroem : With a gamma of one's own.
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
            Rows, standardised as those of `fit`.

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


class CrossFitted(RaggedOutputMixin, BaseEstimator):
    """Predictions of an estimator as features, out of fold for the samples it is fitted on.

    `fit_transform` predicts each training sample by a fit on other folds, `transform` any sample by
    the fit on all. What follows in a pipeline thus sees training samples as it will see new
    ones.

    Parameters
    ----------
    estimator : classifier or regressor
        What predicts; it may read sets.
    cv : int, splitter or iterable, default=5
        Folds; shuffled, and stratified for a classifier, where an integer: folds in the order in
        which samples were recorded would mislead what follows.
    random_state : int, RandomState or None, default=None
        Seed of the folds, where cv is an integer.

    Attributes
    ----------
    estimator_ : classifier or regressor
        The fit on all samples.

    Raises
    ------
    ValueError
        If y is None, or has several labels per sample.

    See Also
    --------
    set_pipeline : A whole model with such steps.
    sklearn.preprocessing.TargetEncoder : The same care for categories.

    Notes
    -----
    A classifier gives the probabilities of its classes, of the second alone where there are two;
    without ``predict_proba`` its ``decision_function``. `fit` followed by `transform` of the same
    samples is not `fit_transform`: it gives in-sample predictions. One fit per fold, and one.

    References
    ----------
    .. [1] Wolpert, "Stacked generalization", Neural Networks 5, 1992.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.pipeline import make_pipeline, make_union
    >>> from skattn import AttentionClassifier, SetPooler
    >>> from skattn.datasets import make_lookup
    >>> from skattn.pipelines import CrossFitted
    >>> X, y = make_lookup(500, random_state=0)
    >>> attention = CrossFitted(AttentionClassifier(n_heads=1, tol=None, random_state=0), cv=3)
    >>> model = make_pipeline(make_union(SetPooler(), attention), RandomForestClassifier())
    >>> model.fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.8
    True
    """

    def __init__(self, estimator, *, cv=5, random_state=None):
        self.estimator = estimator
        self.cv = cv
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X, y=None):
        """Fit the estimator on all samples.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that the estimator reads.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets; of a classifier one label per sample.

        Returns
        -------
        self : CrossFitted
            Fitted.
        """
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None."
            )
        n_outputs = 1 if np.ndim(y) == 1 else np.shape(y)[1]
        if is_classifier(self.estimator) and n_outputs > 1:
            raise ValueError(
                f"y has shape {np.shape(y)}, but a classifier is cross-fitted to one label per "
                "sample: give one column of labels."
            )
        self.estimator_ = clone(self.estimator).fit(X, y)
        if is_classifier(self.estimator):
            n_classes = len(self.estimator_.classes_)
            self._n_features_out = 1 if n_classes == 2 else n_classes
        else:
            self._n_features_out = n_outputs
        return self

    def fit_transform(self, X, y=None):
        """Fit the estimator on all samples, and predict each by a fit on other folds.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that the estimator reads.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets; of a classifier one label per sample.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Out-of-fold predictions.
        """
        self.fit(X, y)
        classifies = is_classifier(self.estimator)
        cv = check_cv(_folds(self.cv, classifies, self.random_state), y, classifier=classifies)
        return self._columns(
            cross_val_predict(clone(self.estimator), X, y, cv=cv, method=self._method())
        )

    def transform(self, X):
        """Predict by the fit on all samples.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that the estimator reads.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Predictions.
        """
        check_is_fitted(self)
        return self._columns(getattr(self.estimator_, self._method())(X))

    def get_feature_names_out(self, input_features=None):
        """Names of the output columns: the lower-cased name of the estimator and a number.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Not used.

        Returns
        -------
        ndarray of str of shape (n_features_out,)
            One name per column.
        """
        check_is_fitted(self)
        fitted = self.estimator_
        last = fitted[-1] if isinstance(fitted, Pipeline) else fitted
        name = type(last).__name__.lower()
        return np.array([f"{name}{j}" for j in range(self._n_features_out)], dtype=object)

    def _method(self):
        """Of the estimator that was fitted: set_params is for the next fit."""
        if not is_classifier(self.estimator_):
            return "predict"
        has_probabilities = hasattr(self.estimator_, "predict_proba")
        return "predict_proba" if has_probabilities else "decision_function"

    def _columns(self, prediction):
        """A prediction as columns, of two classes the second alone."""
        if prediction.ndim == 1:
            return prediction[:, None]
        if self._n_features_out == 1:
            return prediction[:, -1:]
        return prediction


class _Mixture(BaseEstimator):
    def __init__(self, prior=PRIOR):
        self.prior = prior

    def _check_prior(self):
        if not (isinstance(self.prior, Real) and 0 <= self.prior < np.inf):
            raise ValueError(
                f"prior must be a number, 0 or more and finite, but is {self.prior!r}."
            )


class MixtureClassifier(ClassifierMixin, _Mixture):
    """Mixture of members' class probabilities: sum_k share_k p_k(class), the last step of a stack.

    The shares, 0 or more and of sum 1, maximise the log-likelihood of the labels plus
    ``prior sum_k log share_k``.

    Parameters
    ----------
    prior : float, default=0.3
        How many samples stand behind equal shares, for each member; 0 or more.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    shares_ : ndarray of shape (n_members,)
        Share of each member, in their order.
    n_features_in_ : int
        Number of columns.

    Raises
    ------
    ValueError
        If columns are no probabilities, or not as many for each member as there are classes.

    See Also
    --------
    MixtureRegressor : The same for numbers.
    member_shares : The shares of a stack by name.
    sklearn.ensemble.StackingClassifier : What gives it the probabilities, out of fold.

    Notes
    -----
    The log-likelihood is concave in the shares, so that every start of expectation maximisation
    ends in the same place: O(n_samples n_members) time a step, at most a thousand steps.

    References
    ----------
    .. [1] Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM
       algorithm", Journal of the Royal Statistical Society B 39, 1977.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.pipelines import MixtureClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=100)
    >>> knows, guesses = 0.1 + 0.8 * y, rng.uniform(size=100)
    >>> model = MixtureClassifier().fit(np.column_stack([knows, guesses]), y)
    >>> model.shares_.round(2)
    array([0.99, 0.01])
    """

    def fit(self, X, y):
        """Find the shares.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members * n_classes)
            Members' probabilities side by side; of two classes the second alone, a column each.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        self : MixtureClassifier
            Fitted.
        """
        self._check_prior()
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, encoded = np.unique(y, return_inverse=True)
        members = self._members(X)  # (n_samples, n_members, n_classes)
        likelihood = np.maximum(members[np.arange(len(encoded)), :, encoded], FLOOR)
        n_members = likelihood.shape[1]
        shares = np.full(n_members, 1 / n_members)
        for _ in range(MAX_STEPS):
            counts = shares * (likelihood.T @ (1 / (likelihood @ shares))) + self.prior
            previous, shares = shares, counts / counts.sum()
            if np.abs(shares - previous).max() < 1e-6:
                break
        self.shares_ = shares
        return self

    def predict_proba(self, X):
        """Mixed probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members * n_classes)
            Members' probabilities, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probability of each class.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mixed = np.einsum("nkc,k->nc", self._members(X), self.shares_)
        return np.minimum(mixed, 1.0)  # by rounding it may be more

    def predict(self, X):
        """Most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members * n_classes)
            Members' probabilities, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels.
        """
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _members(self, X):
        """Probabilities of each class by each member, (n_samples, n_members, n_classes)."""
        if X.min() < -ROUNDING or X.max() > 1 + ROUNDING:
            raise ValueError(
                f"X must hold probabilities, but has values from {X.min():g} to {X.max():g}: "
                f"{type(self).__name__} mixes what predict_proba of classifiers gives. In a "
                "StackingClassifier all members need that method, and passthrough must be False."
            )
        X = np.clip(X, 0.0, 1.0)
        n_classes = len(self.classes_)
        if n_classes == 2:
            return np.stack([1 - X, X], axis=-1)
        if X.shape[1] % n_classes:
            raise ValueError(
                f"X has {X.shape[1]} columns, but there are {n_classes} classes: each member must "
                "give a probability for each of them."
            )
        return X.reshape(len(X), -1, n_classes)


@with_parameters_of(MixtureClassifier)
class MixtureRegressor(RegressorMixin, _Mixture):
    """Mixture of members' predictions: sum_k share_k f_k, the last step of a stack.

    The shares, 0 or more and of sum 1, minimise the squared error plus ``prior n_members^2`` times
    the best member's mean squared error times the squared distance from equal shares.

    Attributes
    ----------
    shares_ : ndarray of shape (n_members,)
        Share of each member, in their order.
    n_features_in_ : int
        Number of members.

    See Also
    --------
    MixtureClassifier : The same for labels.
    member_shares : The shares of a stack by name.
    sklearn.ensemble.StackingRegressor : What gives it the predictions, out of fold.

    Notes
    -----
    With the best member's error as the variance of the noise, this is to second order the prior of
    :class:`MixtureClassifier`. Non-negative least squares, O(n_samples n_members^2) time.

    References
    ----------
    .. [1] Breiman, "Stacked regressions", Machine Learning 24, 1996.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.pipelines import MixtureRegressor
    >>> y = np.linspace(0, 1, 200)
    >>> too_low, too_high = y - 0.1, y + 0.3
    >>> model = MixtureRegressor(prior=0.0).fit(np.column_stack([too_low, too_high]), y)
    >>> model.shares_.round(2)
    array([0.75, 0.25])
    """

    def fit(self, X, y):
        """Find the shares.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members)
            Members' predictions side by side.
        y : array-like of shape (n_samples,)
            Targets.

        Returns
        -------
        self : MixtureRegressor
            Fitted.
        """
        self._check_prior()
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        n_members = X.shape[1]
        from_equal = np.eye(n_members) - 1 / n_members  # shares of sum 1 less equal ones
        errors = X - y[:, None]  # of which the mixture's are the mean, as the shares sum to 1
        squared = np.mean(errors**2, axis=0)
        noise = squared.min() or 1e-14 * squared.max() or 1.0  # some, where a member has none
        # What is minimised is |A shares|^2. Its minimum over shares of sum 1 points where that of
        # |A u|^2 + n (1 - sum_k u_k)^2 does, for any n: no row needs a great weight.
        A = np.vstack([errors / np.sqrt(noise), n_members * np.sqrt(self.prior) * from_equal])
        rows = np.vstack([A, np.full(n_members, np.sqrt(len(y)))])
        sizes = np.linalg.norm(rows, axis=0)  # for nnls all columns are of the same size
        u, _ = nnls(rows / sizes, np.append(np.zeros(len(A)), np.sqrt(len(y))))
        self.shares_ = u / sizes / np.sum(u / sizes)
        return self

    def predict(self, X):
        """Mixed predictions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_members)
            Members' predictions.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predictions.
        """
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False) @ self.shares_
