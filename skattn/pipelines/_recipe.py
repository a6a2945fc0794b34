"""The recipe: which members a model on sets has, and what follows them."""

import numpy as np
import pandas as pd
from sklearn.base import is_classifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler

from ..predictors import AttentionClassifier, AttentionRegressor
from ..preprocessing import SetPooler, TokenTransformer
from ._cross_fitted import CrossFitted, shuffled
from ._kernel import ScaledNystroem
from ._mixtures import MixtureClassifier, MixtureRegressor
from ._sampler import TokenSampler
from ._stack import SetStackClassifier, SetStackRegressor

STATISTICS = ("mean", "std", "min", "max", 0.25, "median", 0.75, "sum", "count")
MAX_TOKENS = 64  # of a set that attention is fitted on
MAX_ITER = 80  # of attention


def set_pipeline(estimator, *, members=None, cv=5, n_jobs=None, random_state=0, verbose=0):
    """A strong model on sets in one line, from public parts.

    ``"classifier"`` and ``"regressor"`` give a stack of eight members: kernel, boosting and forest
    learners on pooled statistics; kernel means of tokens at two widths; the highest-scoring token
    (max pooling); and attention between tokens, its outputs averaged or pooled by attention. The
    prediction is a weighted mean of the members' predictions. Each member's share depends on how
    well it predicts samples that it was not fitted on.
    An estimator gives a pipeline: pooled statistics and the out-of-fold predictions of the members
    that read tokens are its features.

    Parameters
    ----------
    estimator : {"classifier", "regressor"} or estimator
        What to make. A scikit-learn classifier or regressor becomes the last step.
    members : iterable of str, default=None
        Names of the members, fewer for a faster model; None means all. The names are
        ``"statistics_kernel"``, ``"statistics_boosting"``, ``"statistics_forest"``,
        ``"kernel_mean_1"``, ``"kernel_mean_4"``, ``"strongest_token"``, ``"attention"`` and
        ``"attention_pooled"``; before an estimator only the last five, which read tokens.
    cv : int or splitter, default=5
        Folds in which members predict samples that they were not fitted on. An integer gives
        shuffled folds, stratified for labels.
    n_jobs : int, default=None
        Processes for members; None is 1 unless joblib's configuration says otherwise.
    random_state : int or None, default=0
        Seed of members and folds.
    verbose : int, default=0
        Above 0, a stack prints a line for each fit of a member, with about the time left.

    Returns
    -------
    SetStackClassifier, SetStackRegressor or Pipeline
        Not yet fitted. Takes everything that :func:`skattn.as_ragged` reads.

    Raises
    ------
    ValueError, TypeError
        If estimator is another string or lacks fit or predict, or a member is unknown.

    See Also
    --------
    member_shares : Each member's share in the prediction.
    CrossFitted : The step that makes out-of-fold predictions.
    MixtureClassifier, MixtureRegressor : The last step of the stack.
    AttentionClassifier, AttentionRegressor : Attention alone, at a fraction of the cost.

    Notes
    -----
    The shares are 0 or more and sum to 1. They maximise the likelihood of the labels, or minimise
    the squared error for numbers, with a prior of 0.3 samples per member in favour of equal shares.

    A fit costs cv + 1 fits of every member, less those of members that are given up after the first
    fold (see :class:`SetStackClassifier`). What members compute from sets without the targets is
    computed once. Attention is fitted on at most 64 tokens of a set, the highest-scoring token on
    at most 128, drawn at random; they predict from all tokens.

    The regressor takes one target per set; for several, wrap it in scikit-learn's
    ``MultiOutputRegressor``. `fit` takes no sample weights.

    The features before an estimator are predictions and not contextual vectors, because attention
    fitted in different folds ends in different bases. They are made out of fold, because the
    estimator would otherwise be fitted on leaked targets.

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
            (SetStackClassifier, MixtureClassifier)
            if classifies
            else (SetStackRegressor, MixtureRegressor)
        )
        known = _on_statistics(classifies, random_state) + _on_tokens(classifies, random_state)
        return stack(
            _chosen(members, known),
            mixture(),
            cv=shuffled(cv, classifies, random_state),
            n_jobs=n_jobs,
            verbose=verbose,
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
    """Each member's share in the prediction of a stack.

    Parameters
    ----------
    stack : SetStackClassifier, SetStackRegressor, StackingClassifier or StackingRegressor
        Fitted, with a :class:`MixtureClassifier` or :class:`MixtureRegressor` as its last step,
        for instance made by :func:`set_pipeline`.

    Returns
    -------
    Series of float of shape (n_members,)
        Shares by name of the member, the largest first; they sum to 1. Members that were given up
        in the course of the fit have none.

    Raises
    ------
    TypeError
        If the last step is no fitted mixture.
    ValueError
        If the mixture was also fitted on columns of X, by ``passthrough=True``.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.pipelines import member_shares, set_pipeline
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(n, 2)) for n in rng.integers(1, 9, size=100)]
    >>> y = [np.sin(tokens).mean() for tokens in X]
    >>> model = set_pipeline("regressor", members=["kernel_mean_1", "statistics_forest"])
    >>> shares = member_shares(model.fit(X, y))
    >>> shares.index.tolist(), float(shares.sum().round(6))
    (['statistics_forest', 'kernel_mean_1'], 1.0)
    """
    mixture = getattr(stack, "final_estimator_", None)
    if not hasattr(mixture, "shares_"):
        raise TypeError(
            "stack must be a fitted stack whose last step is a mixture, as set_pipeline makes, "
            f"but is {type(stack).__name__} with {mixture!r}. For several outputs, pass each of "
            "estimators_; for a search, its best_estimator_."
        )
    names = [name for name, member in stack.named_estimators_.items() if member != "drop"]
    if len(names) != len(mixture.shares_):
        raise ValueError(
            f"The stack has {len(names)} members, but its mixture {len(mixture.shares_)} shares: "
            "passthrough=True mixes columns of X with the members' predictions. Fit it with "
            "passthrough=False."
        )
    shares = pd.Series(mixture.shares_, pd.Index(names, name="member"), name="share")
    return shares.sort_values(ascending=False)


def _chosen(names, members):
    """The members with these names, in the order of `members`."""
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


def _on_statistics(classifies, random_state):
    """Members that read pooled statistics, by name."""
    boosting, forest = (
        (HistGradientBoostingClassifier, ExtraTreesClassifier)
        if classifies
        else (HistGradientBoostingRegressor, ExtraTreesRegressor)
    )
    few = {"max_iter": 100, "max_bins": 32}
    if classifies:  # a tree for each class
        few = {"max_iter": 50, "max_bins": 32, "max_leaf_nodes": 8, "max_features": 0.3}
    learners = {
        "kernel": _kernel_machine(classifies, random_state),
        "boosting": [boosting(**few, random_state=random_state)],
        "forest": [forest(200, min_samples_leaf=2 if classifies else 1, random_state=random_state)],
    }
    return [
        (f"statistics_{name}", make_pipeline(SetPooler(STATISTICS), *steps))
        for name, steps in learners.items()
    ]


def _on_tokens(classifies, random_state):
    """Members that read tokens, by name."""
    attention = AttentionClassifier if classifies else AttentionRegressor
    budget = {"max_iter": MAX_ITER, "tol": None, "random_state": random_state}
    between = budget | {"alpha": 1e-3}
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
    lifted = _lift(200, 1, random_state), TokenSampler(2 * MAX_TOKENS, random_state)
    scaled = TokenTransformer(StandardScaler()), TokenSampler(MAX_TOKENS, random_state)
    return [
        *members,
        ("strongest_token", make_pipeline(*lifted, strongest)),
        ("attention", make_pipeline(*scaled, attention(**between))),
        (
            "attention_pooled",
            make_pipeline(*scaled, attention(pooling="attention", **between)),
        ),
    ]


def _lift(n_components, sharpness, random_state):
    """Map tokens to features whose dot products approximate a Gaussian kernel."""
    lift = ScaledNystroem(n_components, sharpness=sharpness, random_state=random_state)
    return TokenTransformer(make_pipeline(StandardScaler(), lift))


def _kernel_machine(classifies, random_state):
    """Steps of a kernel learner on vectors; a classifier gives probabilities."""
    yield StandardScaler()
    yield ScaledNystroem(300, sharpness=0.5, random_state=random_state)
    yield LogisticRegression(C=100, max_iter=300) if classifies else _ridge()


def _ridge():
    return RidgeCV(np.logspace(-5, 3, 17))
