"""The penalty chosen by cross-validation."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline

from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionContextualizerCV,
    AttentionRegressor,
    RaggedArray,
)
from skattn.datasets import make_lookup
from skattn.losses import HuberLoss

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SMALL = {"n_heads": 2, "d_k": 2, "d_v": 2, "max_iter": 5, "random_state": 0}
ALPHAS = (1e-1, 1e-3, 1e-2)


@pytest.fixture
def sets(rng):
    return [rng.normal(size=(n, 3)) for n in rng.integers(1, 8, size=24)]


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_scores_are_those_of_a_rising_warm_path_in_each_fold(sets, kind, rng):
    y = np.arange(24) % 3 if kind == "labels" else rng.normal(size=24)
    splitter = StratifiedKFold(3) if kind == "labels" else KFold(3)
    model = AttentionContextualizerCV(alphas=ALPHAS, cv=3, **SMALL).fit(sets, y)
    predictor = AttentionClassifier if kind == "labels" else AttentionRegressor
    expected = np.empty((3, 3))
    for k, (train, test) in enumerate(splitter.split(sets, y)):
        path = predictor(warm_start=True, **SMALL)
        for j, alpha in enumerate(sorted(ALPHAS)):  # of 5 iterations, a half and then a quarter
            path.set_params(alpha=alpha, tol=1e-3, max_iter=3 if j == 0 else 2).fit(
                [sets[i] for i in train], y[train]
            )
            expected[k, j] = path.score([sets[i] for i in test], y[test])
    results = model.cv_results_
    assert_array_equal(results["alpha"], sorted(ALPHAS))
    assert_allclose(results["split_test_scores"], expected, rtol=1e-12)
    assert_allclose(results["mean_test_score"], expected.mean(axis=0), rtol=1e-12)
    mean = expected.mean(axis=0)
    assert model.alpha_ == max(
        a for a, m in zip(sorted(ALPHAS), mean, strict=True) if m == mean.max()
    )


def test_the_fit_on_all_sets_follows_the_path_to_the_chosen_alpha(sets):
    y = np.arange(24) % 2
    strongest = {"alphas": (1e-3, 1e-2), "cv": 2, "scoring": lambda m, X, y: m.alpha}
    model = AttentionContextualizerCV(**strongest, **SMALL)
    model.fit(sets, y)
    assert model.alpha_ == 1e-2
    path = AttentionContextualizer(warm_start=True, **SMALL)
    path.set_params(alpha=1e-3, tol=1e-3, max_iter=3).fit(sets, y)
    path.set_params(alpha=1e-2, tol=1e-4, max_iter=5).fit(sets, y)
    assert_array_equal(model.W_Q_, path.W_Q_)
    assert model.loss_ == path.loss_
    assert_array_equal(model.transform(sets), path.transform(sets))
    assert_array_equal(model.fit(sets, y).W_Q_, path.W_Q_)  # and again from the start


def test_lookup_is_found_where_a_falling_path_and_a_cold_start_fail():
    X, y = make_lookup(500, random_state=0)
    model = AttentionContextualizerCV(cv=2, n_heads=1, random_state=0).fit(X, y)
    assert model.cv_results_["mean_test_score"].max() > 0.95
    assert model.alpha_ < 0.1


def test_equal_scores_choose_the_strongest_penalty(sets):
    model = AttentionContextualizerCV(alphas=ALPHAS, cv=2, scoring=lambda m, X, y: 1.0, **SMALL)
    assert model.fit(sets, np.arange(24) % 2).alpha_ == 0.1


def recording(splitter, seen):
    split = splitter.split

    def split_and_record(X, y=None, groups=None):
        for train, test in split(X, y, groups):
            seen.append((train, test))
            yield train, test

    splitter.split = split_and_record
    return splitter


def test_f27_groups_stay_on_one_side_of_every_inner_split(sets):
    """By fit itself, through a Pipeline and through GridSearchCV."""
    sets, y, groups = sets[:12], np.arange(12) % 2, np.repeat(np.arange(4), 3)
    seen = []
    cv = recording(GroupKFold(2), seen)
    model = AttentionContextualizerCV(alphas=(1e-2, 1e-1), cv=cv, **SMALL)
    model.fit(sets, y, groups=groups)
    pipeline = make_pipeline(model, LogisticRegression())
    pipeline.fit(sets, y, attentioncontextualizercv__groups=groups)
    assert len(seen) == 4
    for train, test in seen:
        assert not set(groups[train]) & set(groups[test])
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make_pipeline(
            AttentionContextualizerCV(
                alphas=(1e-2, 1e-1), cv=GroupKFold(2), **SMALL
            ).set_fit_request(groups=True),
            LogisticRegression(),
        )
        search = GridSearchCV(routed, {"logisticregression__C": [0.1, 1]}, cv=GroupKFold(2))
        search.fit(sets, y, groups=groups)  # inside, each half holds two groups
        assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


def test_f27_a_splitter_by_groups_without_groups_says_so(sets):
    model = AttentionContextualizerCV(cv=GroupKFold(2), **SMALL)
    with pytest.raises(ValueError, match="groups"):
        model.fit(sets, np.arange(24) % 2)


def test_f27_without_groups_the_split_is_stratified(sets, monkeypatch):
    y = np.array([0] * 20 + [1] * 4)
    model = AttentionContextualizerCV(alphas=(1e-2,), cv=4, **SMALL).fit(sets, y)
    assert np.all(np.isfinite(model.cv_results_["split_test_scores"]))  # a 1 in every fold


def test_folds_in_parallel_change_nothing(sets):
    y = np.arange(24) % 2
    one, two = (
        AttentionContextualizerCV(alphas=ALPHAS, cv=3, n_jobs=n_jobs, **SMALL).fit(sets, y)
        for n_jobs in (1, 2)
    )
    assert_array_equal(one.cv_results_["split_test_scores"], two.cv_results_["split_test_scores"])
    assert_array_equal(one.W_Q_, two.W_Q_)


def test_sample_weights_count_in_fits_and_scores(sets):
    y, weight = np.arange(24) % 2, np.ones(24)
    model = AttentionContextualizerCV(alphas=ALPHAS, cv=2, **SMALL)
    plain = clone(model).fit(sets, y)
    same = clone(model).fit(sets, y, sample_weight=weight)
    assert_array_equal(plain.W_Q_, same.W_Q_)
    weight[::3] = 5
    other = clone(model).fit(sets, y, sample_weight=weight)
    assert not np.array_equal(plain.W_Q_, other.W_Q_)


@pytest.mark.parametrize("alphas", [(), (0, 1), (-1.0,), (np.nan,)])
def test_alphas_are_numbers_above_zero(sets, alphas):
    with pytest.raises(ValueError, match="alphas must be numbers above 0"):
        AttentionContextualizerCV(alphas=alphas).fit(sets, np.arange(24) % 2)


def test_targets_mean_the_same_in_an_object_array(sets, rng):
    numbers, choices = rng.normal(size=24), np.arange(24) % 2 == 0
    for y in (numbers, choices):
        plain = AttentionContextualizerCV(alphas=ALPHAS, cv=2, **SMALL).fit(sets, y)
        boxed = AttentionContextualizerCV(alphas=ALPHAS, cv=2, **SMALL).fit(sets, y.astype(object))
        for name in ("mean_test_score", "split_test_scores"):
            assert_array_equal(boxed.cv_results_[name], plain.cv_results_[name])
        assert_array_equal(boxed.coef_, plain.coef_)


def test_labels_of_tokens_mean_the_same_in_a_ragged_array(sets, rng):
    X = RaggedArray.from_list(sets)
    labels = X.with_values(rng.integers(0, 2, size=(X.n_tokens, 1)))
    model = AttentionContextualizerCV(alphas=ALPHAS, cv=2, pooling=None, **SMALL)
    listed = clone(model).fit(sets, [cell.ravel() for cell in labels])
    ragged = clone(model).fit(sets, labels)
    scores = "split_test_scores"
    assert_array_equal(ragged.cv_results_[scores], listed.cv_results_[scores])
    assert_array_equal(ragged.coef_, listed.coef_)


def test_scores_that_are_no_numbers_choose_nothing(sets):
    def score(model, X, y):
        return np.nan if len(X) == 8 else 1.0

    model = AttentionContextualizerCV(alphas=ALPHAS, cv=KFold(3), scoring=score, **SMALL)
    with pytest.raises(ValueError, match=r"no best alpha: scoring=.* scores \[nan, .* in fold 0"):
        model.fit(sets, np.arange(24) % 2)


def test_without_targets_there_is_nothing_to_choose_by(sets):
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        AttentionContextualizerCV().fit(sets)


def test_fits_to_choose_by_are_cut_short_and_parameters_stay(sets):
    y = np.arange(24) % 2
    model = AttentionContextualizerCV(alphas=ALPHAS, cv=2, **SMALL | {"max_iter": 40})
    before = model.get_params()
    model.fit(sets, y)
    assert model.get_params() == before
    assert np.all(model.cv_results_["mean_n_iter"] <= [20, 10, 10])
    assert model.n_iter_ == 40 or model.converged_

    def fails(model, X, y):
        raise RuntimeError("no score")

    with pytest.raises(RuntimeError, match="no score"):
        model.set_params(scoring=fails).fit(sets, y)
    assert (model.tol, model.max_iter) == (before["tol"], before["max_iter"])


def test_only_the_last_fit_warns_of_convergence(sets):
    model = AttentionContextualizerCV(alphas=ALPHAS, cv=2, **SMALL)
    with pytest.warns(ConvergenceWarning) as record:
        model.fit(sets, np.arange(24) % 2)
    assert len(record) == 1
    assert model.cv_results_["n_converged"].shape == (3,)


def test_it_is_a_scikit_learn_estimator(sets):
    model = AttentionContextualizerCV(alphas=ALPHAS, cv=2, **SMALL)
    assert clone(model).get_params()["alphas"] == ALPHAS
    assert "alpha" not in model.get_params()
    pipeline = make_pipeline(model, LogisticRegression())
    search = GridSearchCV(pipeline, {"attentioncontextualizercv__d_k": [1, 2]}, cv=2)
    search.fit(sets, np.arange(24) % 2)
    names = search.best_estimator_[0].get_feature_names_out()
    assert names[0] == "attentioncontextualizercv0"


def test_the_loss_may_be_an_instance():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 2)) for n in rng.integers(1, 5, size=30)]
    y = np.array([tokens.sum() for tokens in X])
    search = AttentionContextualizerCV(
        alphas=(1e-2, 1e-1), cv=2, loss=HuberLoss(delta=2.0), n_heads=1, max_iter=5, tol=None
    )
    assert search.fit(X, y).alpha_ in (1e-2, 1e-1)
