"""Stacks of members that read sets; steps that members share are computed once."""

import time
from itertools import product

import joblib
import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.ensemble import StackingClassifier, StackingRegressor
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import Bunch, _safe_indexing, check_consistent_length, column_or_1d, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from .._documented import with_parameters_of
from .._persistence import unchanged_on_failure
from ..preprocessing import PositionalEncoder, SetPooler, TokenEmbedder, TokenTransformer
from ._mixtures import MixtureClassifier, MixtureRegressor
from ._sampler import TokenSampler

READ_SETS = (PositionalEncoder, SetPooler, TokenEmbedder, TokenSampler, TokenTransformer)
ENOUGH = 100  # with fewer samples in the first fold, no member is dropped
LEAST = 0.03  # a member with a smaller share in the first fold's mixture is dropped
ALL = "all samples"


class _SetStack:
    """The part that both stacks share."""

    passthrough = False
    stack_method = "auto"

    def __init__(self, estimators, final_estimator=None, *, cv=None, n_jobs=None, verbose=0):
        self.estimators = estimators
        self.final_estimator = final_estimator
        self.cv = cv
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def feature_names_in_(self):
        """Names of the columns, if `fit` got a frame of numbers."""
        return self.estimators_[0].feature_names_in_

    def fit(self, X, y):
        """Fit the members in folds and on all samples, then their mixture.

        Parameters
        ----------
        X : container of n_samples sets
            Anything that the members read.
        y : array-like of shape (n_samples,)
            Labels or numbers.

        Returns
        -------
        self : estimator
            Fitted.
        """
        with unchanged_on_failure(self):
            return self._fit(X, self._encoded(column_or_1d(y, warn=True)))

    def _fit(self, X, y):
        """Fit members and mixture to encoded targets."""
        check_consistent_length(X, y)
        names, members = self._validate_estimators()
        members = {name: m for name, m in zip(names, members, strict=True) if m != "drop"}
        cv = check_cv(self.cv, y, classifier=is_classifier(self))
        folds = list(cv.split(np.zeros(len(y)), y))
        if not np.array_equal(np.sort(np.concatenate([test for _, test in folds])), range(len(y))):
            raise ValueError("cv must put each sample into the test set of exactly one fold.")
        mixture = MixtureClassifier() if is_classifier(self) else MixtureRegressor()
        if self.final_estimator is not None:
            mixture = clone(self.final_estimator)
        with threadpool_limits(1):
            views = _views(members, X)
            run = _Run(self, members, views, y, folds)
            first = run.fits(members, [0])
            kept = self._kept(clone(mixture), first, y[folds[0][1]])
            predictions = first | run.fits(kept, range(1, len(folds)))
            fitted = run.fits(kept, [ALL])
        self.estimators_ = [_joined(members[name], views[name], fitted[name, ALL]) for name in kept]
        self.named_estimators_ = Bunch(**dict.fromkeys(names, "drop"))
        self.named_estimators_.update(zip(kept, self.estimators_, strict=True))
        columns = np.empty((len(y), sum(first[name, 0].shape[1] for name in kept)))
        for k, (_, test) in enumerate(folds):
            columns[test] = np.hstack([predictions[name, k] for name in kept])
        self.final_estimator_ = mixture.fit(columns, y)
        return self

    def get_feature_names_out(self, input_features=None):
        """Names of the columns of `transform`: the member's name, numbered if it has several.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Not used.

        Returns
        -------
        ndarray of str of shape (n_columns,)
            One name per column.
        """
        check_is_fitted(self)
        n = self._n_classes if self._n_classes > 2 else 1
        names = [name for name, member in self.named_estimators_.items() if member != "drop"]
        numbers = range(n) if n > 1 else [""]
        prefix = type(self).__name__.lower()
        return np.array(
            [f"{prefix}_{name}{k}" for name, k in product(names, numbers)], dtype=object
        )

    def _kept(self, mixture, first, y):
        """Names of the members that are fitted after the first fold."""
        names = [name for name, _ in first]
        enough = len(y) >= ENOUGH and len(np.unique(y)) >= self._n_classes
        if not enough or not hasattr(mixture, "prior"):
            return names
        shares = mixture.fit(np.hstack(list(first.values())), y).shares_
        least = min(LEAST, shares.max())
        return [name for name, share in zip(names, shares, strict=True) if share >= least]

    def _transform(self, X):
        """Predictions of all members side by side."""
        check_is_fitted(self)
        views, columns = {}, []
        for member in self.estimators_:
            steps = _leading(member)
            key = tuple(map(id, steps))  # fitted once, shared by several members
            if key not in views:
                views[key] = X
                for step in steps:
                    views[key] = step.transform(views[key])
            rest = member[len(steps) :] if steps else member
            columns.append(_predicted(rest, views[key], self._n_classes))
        return np.hstack(columns)


class SetStackClassifier(_SetStack, StackingClassifier):
    """Stack of classifiers of sets that share their first steps.

    It works like scikit-learn's StackingClassifier, but is cheaper. First steps that do not use the
    labels (SetPooler, TokenTransformer, TokenEmbedder, PositionalEncoder) are fitted only once, on
    all sets, for all members that begin with the same steps. A member with almost no share in the
    first fold's mixture is dropped: it is not fitted again. Each fit uses one thread.

    Parameters
    ----------
    estimators : list of (str, estimator)
        The members: classifiers with ``predict_proba``, alone or at the end of a pipeline.
    final_estimator : classifier, default=None
        The model that is fitted on the members' out-of-fold probabilities; None is a
        MixtureClassifier.
    cv : int, splitter or iterable, default=None
        Folds; None is five.
    n_jobs : int, default=None
        Processes for the fits of members; None is 1 unless joblib is configured otherwise.
    verbose : int, default=0
        Above 0, each fit of a member prints a line with an estimate of the time left.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    estimators_ : list of estimator
        The members that were not dropped, fitted on all samples.
    named_estimators_ : Bunch
        The same by name, with "drop" for members that were dropped or given as "drop".
    final_estimator_ : classifier
        The fitted mixture.

    See Also
    --------
    set_pipeline : A stack with members that suit most sets.
    member_shares : Each member's share in the prediction.

    Notes
    -----
    A member is dropped if its share after the first fold is under 0.03 and that fold has 100
    samples or more and all classes. Scalers and landmarks of first steps are fitted on all tokens,
    also those of samples that are predicted out of fold, but never on their targets.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from skattn import SetPooler
    >>> from skattn.pipelines import SetStackClassifier
    >>> X = [[[0.0], [1.0]], [[5.0]], [[0.5]], [[4.0], [6.0], [5.0]]] * 5
    >>> means = make_pipeline(SetPooler(["mean"]), LogisticRegression())
    >>> maxima = make_pipeline(SetPooler(["max"]), LogisticRegression())
    >>> stack = SetStackClassifier([("means", means), ("maxima", maxima)])
    >>> stack.fit(X, ["low", "high", "low", "high"] * 5).predict([[[0.2]], [[7.0], [4.0]]])
    array(['low', 'high'], dtype='<U4')
    """

    def _encoded(self, y):
        """Labels as numbers."""
        check_classification_targets(y)
        self._label_encoder = LabelEncoder().fit(y)
        self.classes_ = self._label_encoder.classes_
        self._n_classes = len(self.classes_)
        return self._label_encoder.transform(y)


@with_parameters_of(SetStackClassifier)
class SetStackRegressor(_SetStack, StackingRegressor):
    """Stack of regressors of sets that share their first steps.

    It works like scikit-learn's StackingRegressor, but is cheaper, like
    :class:`SetStackClassifier`.

    Parameters
    ----------
    estimators : list of (str, estimator)
        The members: regressors, alone or at the end of a pipeline.
    final_estimator : regressor, default=None
        The model that is fitted on the members' out-of-fold predictions; None is a
        MixtureRegressor.

    Attributes
    ----------
    estimators_ : list of estimator
        The members that were not dropped, fitted on all samples.
    named_estimators_ : Bunch
        The same by name, with "drop" for members that were dropped or given as "drop".
    final_estimator_ : regressor
        The fitted mixture.

    See Also
    --------
    SetStackClassifier : The same for labels, with notes on the shared steps.
    set_pipeline : A stack with members that suit most sets.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from skattn import SetPooler
    >>> from skattn.pipelines import SetStackRegressor
    >>> X = [[[0.0], [1.0]], [[5.0]], [[0.5]], [[4.0], [6.0], [5.0]]] * 5
    >>> means = make_pipeline(SetPooler(["mean"]), Ridge(1e-6))
    >>> stack = SetStackRegressor([("means", means)]).fit(X, [0.5, 5.0, 0.5, 5.0] * 5)
    >>> stack.predict([[[2.0], [4.0]]]).round(2)
    array([3.])
    """

    _n_classes = 0

    def _encoded(self, y):
        """Numbers as they are."""
        return y


class _View:
    """The sets after the first steps of a member: one version to fit, one to predict."""

    def __init__(self, steps, X):
        self.steps, self.to_fit, self.to_predict = [], X, X
        for step in steps:
            step = clone(step)
            whole, self.to_fit = self.to_predict, step.fit_transform(self.to_fit)
            sampled = isinstance(step, TokenSampler)
            self.to_predict = step.transform(whole) if sampled else self.to_fit
            self.steps.append(step)


def _leading(member):
    """The first steps of a pipeline, which read sets and learn nothing from targets."""
    steps = []
    if isinstance(member, Pipeline):
        for _, step in member.steps[:-1]:
            if not isinstance(step, READ_SETS) or get_tags(step).target_tags.required:
                break
            steps.append(step)
    return steps


def _views(members, X):
    """A view for each member, by name; members with the same first steps share one."""
    views, found = {}, {}
    for name, member in members.items():
        steps = _leading(member)
        key = joblib.hash(steps)
        if key not in found:
            found[key] = _View(steps, X)
        views[name] = found[key]
    return views


def _rest(member):
    """A member without its first steps."""
    n = len(_leading(member))
    return member[n:] if n else member


def _joined(member, view, rest):
    """The fitted first steps of a member and its fitted rest in one pipeline."""
    if not view.steps:
        return rest
    names = [name for name, _ in member.steps]
    steps = [*view.steps, *(step for _, step in rest.steps)]
    return Pipeline(list(zip(names, steps, strict=True)))


def _predicted(member, X, n_classes):
    """Predictions of a fitted member as columns; for two classes only the second."""
    if n_classes == 0:
        return member.predict(X).reshape(-1, 1)
    given = member.predict_proba(X)
    columns = np.zeros((len(given), n_classes))
    columns[:, member.classes_] = given  # a fold may lack a class
    return columns[:, 1:] if n_classes == 2 else columns


def _fit_one(member, view, y, fold, n_classes):
    """Predictions of a fold's test set, or the member fitted on all samples; and the seconds."""
    start = time.perf_counter()
    member = clone(member)
    with threadpool_limits(1):
        if fold is None:
            result = member.fit(view.to_fit, y)
        else:
            train, test = fold
            member.fit(_safe_indexing(view.to_fit, train), y[train])
            result = _predicted(member, _safe_indexing(view.to_predict, test), n_classes)
    return result, time.perf_counter() - start


class _Run:
    """Fits of the members, several at once, with a line for each."""

    def __init__(self, stack, members, views, y, folds):
        self.stack, self.members, self.views, self.y, self.folds = stack, members, views, y, folds
        self.seconds = {}  # of the last fit of each member
        self.left = dict.fromkeys(members, len(folds) + 1)  # fits of each member

    def fits(self, names, folds):
        """Results of `_fit_one` by name and fold."""
        keys = [(name, fold) for fold in folds for name in names]
        self.left = {name: self.left[name] for name in names}
        results = Parallel(n_jobs=self.stack.n_jobs, return_as="generator")(
            delayed(_fit_one)(
                _rest(self.members[name]),
                self.views[name],
                self.y,
                None if fold == ALL else self.folds[fold],
                self.stack._n_classes,
            )
            for name, fold in keys
        )
        found = {}
        for (name, fold), (result, seconds) in zip(keys, results, strict=True):
            found[name, fold] = result
            self.seconds[name] = seconds
            self.left[name] -= 1
            if self.stack.verbose:
                self._tell(name, fold, seconds)
        return found

    def _tell(self, name, fold, seconds):
        """Print that a fit has ended, and an estimate of the time left."""
        where = fold if fold == ALL else f"fold {fold + 1} of {len(self.folds)}"
        typical = sum(self.seconds.values()) / len(self.seconds)  # of members not fitted yet
        left = sum(n * self.seconds.get(name, typical) for name, n in self.left.items())
        left /= joblib.effective_n_jobs(self.stack.n_jobs)
        kind = type(self.stack).__name__
        print(f"[{kind}] {where}, {name}: {seconds:.1f} s; about {left:.0f} s left", flush=True)
