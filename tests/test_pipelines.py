"""set_pipeline and its parts: cross-fitting, scaled Nystroem features, mixtures."""

import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    StackingClassifier,
    StackingRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import estimator_checks_generator

from skattn import SetPooler
from skattn.pipelines import (
    CrossFitted,
    MixtureClassifier,
    MixtureRegressor,
    ScaledNystroem,
    member_shares,
    set_pipeline,
)


@pytest.fixture
def bags(rng):
    """Sets whose first feature tells the class, and its mean as a number."""
    X = [rng.normal(size=(n, 3)) for n in rng.integers(1, 7, size=60)]
    means = np.array([tokens[:, 0].mean() for tokens in X])
    return X, np.where(means > 0, "high", "low"), means


def quick(model):
    """The same with few trees and iterations."""
    few = {"extratrees": {"n_estimators": 10}, "histgradient": {"max_iter": 10}}
    few["attention"] = {"max_iter": 10}
    params = {}
    for name, value in model.get_params().items():
        for kind, changes in few.items():
            if type(value).__name__.lower().startswith(kind):
                params |= {f"{name}__{key}": change for key, change in changes.items()}
    assert params
    return model.set_params(**params)


def n_checks_passed(estimator):
    passed = 0
    for instance, check in estimator_checks_generator(estimator):
        check(instance)
        passed += 1
    return passed


def test_classifier_takes_sets_in_any_container(bags):
    X, y, _ = bags
    model = quick(set_pipeline("classifier", cv=2))
    probabilities = model.fit(X, y).predict_proba(X)
    assert probabilities.shape == (60, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert model.score(X, y) > 0.9
    series = pd.Series(X, index=np.arange(60)[::-1])
    np.testing.assert_array_equal(clone(model).fit(series, y).predict_proba(series), probabilities)


def test_regressor_does_not_mind_sorted_targets(bags):
    X, _, y = bags
    order = np.argsort(y)
    X, y = [X[i] for i in order], y[order]
    model = quick(set_pipeline("regressor", cv=3)).fit(X, y)
    assert model.score(X, y) > 0.9
    oof = np.average(model.transform(X), axis=1, weights=model.final_estimator_.shares_)
    assert np.corrcoef(oof, y)[0, 1] > 0.9


def test_several_targets_by_multi_output_regressor(bags):
    X, _, y = bags
    model = MultiOutputRegressor(quick(set_pipeline("regressor", cv=2))).fit(X, np.c_[y, -y])
    assert model.predict(X).shape == (60, 2)


def test_three_classes(bags):
    X, _, means = bags
    y = np.digitize(means, [-0.3, 0.3])
    model = quick(set_pipeline("classifier", cv=2)).fit(X, y)
    assert model.predict_proba(X).shape == (60, 3)
    assert model.score(X, y) > 0.8


def test_an_estimator_follows_statistics_and_out_of_fold_predictions(bags):
    X, y, _ = bags
    last = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3)
    model = quick(set_pipeline(last, cv=2))
    model.fit(X, y)
    names = list(model[0].get_feature_names_out())
    assert "statistics__mean_x0" in names
    assert "attention__attentionclassifier0" in names
    assert len(names) == model[0].transform(X).shape[1] == 8 * 3 + 1 + 5
    assert cross_val_score(model, X, y, cv=2).mean() > 0.7


def test_same_seed_same_numbers(bags):
    X, y, _ = bags
    first, second = (quick(set_pipeline(LogisticRegression(), cv=2)).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize("word", ["clf", ""])
def test_another_word_is_refused(word):
    with pytest.raises(ValueError, match="'classifier', 'regressor' or an estimator"):
        set_pipeline(word)


def test_what_cannot_predict_is_refused():
    with pytest.raises(TypeError, match="methods fit and predict"):
        set_pipeline(SetPooler())


# Cross-fitting


@pytest.mark.parametrize("y_kind", ["two", "three", "numbers", "outputs"])
def test_cross_fitted_predicts_each_sample_by_other_folds(rng, y_kind):
    X = rng.normal(size=(40, 3))
    y = {
        "two": (X[:, 0] > 0).astype(int),
        "three": np.digitize(X[:, 0], [-0.4, 0.4]),
        "numbers": X[:, 0] + rng.normal(size=40),
        "outputs": rng.normal(size=(40, 2)),
    }[y_kind]
    numbers = y_kind in ("numbers", "outputs")
    estimator = Ridge() if numbers else LogisticRegression()
    step = CrossFitted(estimator, cv=4, random_state=0)
    out = step.fit_transform(X, y)
    expected = np.empty_like(out)

    def predict(fitted, rows):
        if numbers:
            return fitted.predict(rows).reshape(len(rows), -1)
        probabilities = fitted.predict_proba(rows)
        return probabilities[:, 1:] if y_kind == "two" else probabilities

    folds = (KFold if numbers else StratifiedKFold)(4, shuffle=True, random_state=0)
    for train, test in folds.split(X, y):
        expected[test] = predict(clone(estimator).fit(X[train], y[train]), X[test])
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(step.transform(X), predict(clone(estimator).fit(X, y), X))
    assert len(step.get_feature_names_out()) == out.shape[1]


def test_cross_fitting_does_not_let_the_targets_through(rng):
    X, y = rng.normal(size=(200, 2)), rng.integers(2, size=200)  # nothing to learn
    step = CrossFitted(KNeighborsClassifier(1), cv=5, random_state=0)
    assert np.mean((step.fit_transform(X, y)[:, 0] > 0.5) == y) < 0.62
    assert np.mean((step.transform(X)[:, 0] > 0.5) == y) == 1  # in sample, as its docstring says


def test_cross_fitting_does_not_mind_the_order_of_samples(rng):
    """In the order of the classes' parts, whole parts would be missing in folds not shuffled."""
    X = np.repeat(np.arange(10.0), 20)[:, None] + 0.1 * rng.normal(size=(200, 1))
    y = np.repeat(np.arange(10) % 2, 20)
    step = CrossFitted(KNeighborsClassifier(3), cv=5, random_state=0)
    assert np.mean((step.fit_transform(X, y)[:, 0] > 0.5) == y) > 0.95
    in_order = CrossFitted(KNeighborsClassifier(3), cv=StratifiedKFold(5))
    assert np.mean((in_order.fit_transform(X, y)[:, 0] > 0.5) == y) < 0.7


def test_cross_fitted_uses_decisions_where_there_are_no_probabilities(rng):
    X, y = make_classification(60, random_state=0)
    step = CrossFitted(LinearSVC(), cv=3)
    out = step.fit_transform(X, y)
    assert out.shape == (60, 1)
    assert out.min() < 0 < out.max()
    np.testing.assert_array_equal(step.transform(X)[:, 0], step.estimator_.decision_function(X))
    assert list(step.get_feature_names_out()) == ["linearsvc0"]


def test_cross_fitted_needs_y():
    with pytest.raises(ValueError, match="requires y"):
        CrossFitted(DummyClassifier()).fit([[0.0], [1.0]])


def test_cross_fitted_takes_one_label_per_sample(rng):
    several = rng.integers(0, 2, size=(12, 2))
    with pytest.raises(ValueError, match=r"y has shape \(12, 2\), .* one column of labels"):
        CrossFitted(KNeighborsClassifier()).fit_transform(rng.normal(size=(12, 2)), several)


def test_cross_fitted_predicts_by_what_was_fitted_whatever_is_set_since(rng):
    X, y = rng.normal(size=(20, 2)), np.arange(20) % 3
    step = CrossFitted(LogisticRegression()).fit(X, y)
    expected, names = step.transform(X), step.get_feature_names_out().tolist()
    step.set_params(estimator=Ridge())
    assert_array_equal(step.transform(X), expected)
    assert step.get_feature_names_out().tolist() == names


def test_an_integer_of_numpy_gives_shuffled_folds_too():
    folds = set_pipeline("classifier", cv=np.int64(3), random_state=5).cv
    assert (folds.n_splits, folds.shuffle, folds.random_state) == (3, True, 5)


def test_cross_fitted_stands_in_a_union(bags):
    X, y, _ = bags
    base = make_pipeline(SetPooler(), LogisticRegression())
    union = make_union(SetPooler(), CrossFitted(base, cv=3))
    names = union.fit(X, y).get_feature_names_out()
    assert names[-1] == "crossfitted__logisticregression0"
    assert union.transform(X).shape == (60, len(names))


# Scaled Nystroem features


@pytest.mark.parametrize("sharpness", [0.5, 4])
def test_scaled_nystroem_has_the_kernel_that_it_says(rng, sharpness):
    X = rng.normal(size=(30, 5))
    features = ScaledNystroem(50, sharpness=sharpness, random_state=0).fit_transform(X)
    squared = ((X[:, None] - X) ** 2).sum(axis=-1)
    np.testing.assert_allclose(features @ features.T, np.exp(-sharpness * squared / 5), atol=1e-8)


def test_scaled_nystroem_passes_the_common_checks():
    assert n_checks_passed(ScaledNystroem()) > 35


def test_scaled_nystroem_refuses_a_sharpness_of_zero():
    with pytest.raises(ValueError, match="sharpness must be above 0"):
        ScaledNystroem(sharpness=0.0).fit(np.eye(3))


# Mixtures


def test_shares_maximise_the_penalised_likelihood(rng):
    y = rng.integers(3, size=80)
    members = rng.dirichlet(np.ones(3), size=(80, 4))
    members[:, 1] = 0.7 * np.eye(3)[y] + 0.1  # a member that knows
    mixture = MixtureClassifier(prior=2.0).fit(members.reshape(80, 12), y)
    likelihood = members[np.arange(80), :, y]

    def objective(logits):
        shares = np.exp(logits) / np.exp(logits).sum()
        return -np.log(likelihood @ shares).sum() - 2.0 * np.log(shares).sum()

    best = minimize(objective, np.zeros(4), tol=1e-12)
    found = objective(np.log(mixture.shares_))
    assert found <= best.fun + 1e-6
    assert mixture.shares_.argmax() == 1
    np.testing.assert_allclose(mixture.predict_proba(members.reshape(80, 12)).sum(axis=1), 1)


def test_two_classes_come_as_one_column_per_member(rng):
    y = np.array(["no", "yes"] * 20)
    good, bad = np.where(y == "yes", 0.9, 0.1), rng.uniform(size=40)
    mixture = MixtureClassifier(prior=0.1).fit(np.c_[bad, good], y)
    assert mixture.shares_[1] > 0.95
    assert list(mixture.predict(np.c_[bad, good])) == list(y)


@pytest.mark.parametrize("seed", range(20))
def test_a_mixture_can_be_a_member_of_a_mixture(seed):
    """Shares may sum to more than 1 by rounding, and then so would certain probabilities."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=30)
    members = np.clip(0.1 + 0.8 * y[:, None] + 0.1 * rng.normal(size=(30, 8)), 0, 1)
    inner = MixtureClassifier().fit(members, y)
    certain = inner.predict_proba(np.vstack([np.zeros(8), np.ones(8)]))
    assert certain.min() >= 0 and certain.max() <= 1
    probabilities = inner.predict_proba(members)[:, [1]]
    outer = MixtureClassifier().fit(probabilities * (1 + 1e-12) - 1e-12, y)  # of other makers
    np.testing.assert_allclose(outer.predict_proba(probabilities)[:, [1]], probabilities)


def test_a_member_that_rules_out_a_label_is_survived():
    y = np.array([0, 1] * 10)
    certain = y.astype(float)
    certain[0] = 1.0  # sure, and wrong
    mixture = MixtureClassifier().fit(np.c_[certain, np.full(20, 0.5)], y)
    assert np.all(np.isfinite(mixture.shares_))


def test_regressor_shares_solve_the_constrained_problem(rng):
    y = 100 + 5 * rng.normal(size=60)
    members = np.c_[y + rng.normal(size=60), y + 2 * rng.normal(size=60), rng.normal(size=60)]
    mixture = MixtureRegressor(prior=2.0).fit(members, y)
    noise, equal = np.mean((members[:, 0] - y) ** 2), np.full(3, 1 / 3)

    def objective(shares):
        squared_error = np.sum((members @ shares - y) ** 2)
        return squared_error + 2.0 * 3**2 * noise * np.sum((shares - equal) ** 2)

    best = minimize(
        lambda shares: objective(shares) / objective(equal),  # of a size that SLSQP can do with
        equal,
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda shares: shares.sum() - 1},
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(mixture.shares_.sum(), 1)
    assert objective(mixture.shares_) <= objective(best.x) * (1 + 1e-6)
    np.testing.assert_allclose(mixture.shares_, best.x, atol=1e-4)


@pytest.mark.parametrize("wild", [1e2, 1e5, 1e8, 1e11])
def test_a_wild_member_does_not_spoil_the_shares_of_the_others(rng, wild):
    """Where shares are optimal, all that are above 0 have the same slope, and no other a lower."""
    y = rng.normal(size=100)
    noise = rng.normal(size=(100, 4)) * [0.5, 0.7, 0.6, wild]
    members = y[:, None] + noise
    shares = MixtureRegressor().fit(members, y).shares_
    errors = members - y[:, None]
    pull = 0.3 * 4**2 * np.mean(errors**2, axis=0).min()
    slopes = errors.T @ (errors @ shares) + pull * (shares - 1 / 4)
    np.testing.assert_allclose(shares.sum(), 1)
    np.testing.assert_allclose(slopes[:3], slopes[0], rtol=1e-4)
    assert np.all(shares[:3] > 0.1) and shares[3] < 100 / wild


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_shares_do_not_depend_on_the_unit_of_y(rng, factor):
    y = rng.normal(size=50)
    members = np.c_[y + rng.normal(size=50), rng.normal(size=50)]
    one = MixtureRegressor().fit(members, y).shares_
    np.testing.assert_allclose(MixtureRegressor().fit(factor * members, factor * y).shares_, one)


def test_a_constant_target_gives_shares(rng):
    members = np.full((20, 3), 7.0)
    mixture = MixtureRegressor().fit(members, np.full(20, 7.0))
    np.testing.assert_allclose(mixture.predict(members), 7.0)
    np.testing.assert_allclose(mixture.shares_, 1 / 3)


def test_members_without_error_share_alike(rng):
    y = rng.normal(size=20)
    mixture = MixtureRegressor().fit(np.c_[y, y + rng.normal(size=20), y], y)
    np.testing.assert_allclose(mixture.shares_, [0.5, 0, 0.5], atol=1e-6)


def test_mixture_regressor_passes_the_common_checks():
    assert n_checks_passed(MixtureRegressor()) > 40


def test_mixture_classifier_refuses_what_is_no_probability(rng):
    y = np.array([0, 1, 2] * 10)
    with pytest.raises(ValueError, match="values from -1 to 2: MixtureClassifier mixes"):
        MixtureClassifier().fit(np.linspace(-1, 2, 90).reshape(30, 3), y)
    X = rng.normal(size=(30, 2))
    for choice in ({"passthrough": True}, {"stack_method": "decision_function"}):
        stack = StackingClassifier([("a", LogisticRegression())], MixtureClassifier(), **choice)
        with pytest.raises(ValueError, match="members need that method, and passthrough must be F"):
            stack.fit(X, y)
    with pytest.raises(ValueError, match="4 columns, but there are 3 classes"):
        MixtureClassifier().fit(rng.uniform(size=(30, 4)), y)
    with pytest.raises(ValueError, match="classif"):
        MixtureClassifier().fit(rng.uniform(size=(30, 3)), rng.normal(size=30))


@pytest.mark.parametrize("mixture", [MixtureClassifier, MixtureRegressor])
@pytest.mark.parametrize("prior", [-1.0, np.nan, np.inf, None, "1"])
def test_a_prior_that_is_no_count_is_refused(mixture, prior):
    with pytest.raises(ValueError, match="prior must be a number, 0 or more and finite, but is"):
        mixture(prior=prior).fit(np.eye(4), [0, 1, 0, 1])


def test_member_shares_by_name(bags):
    X, y, _ = bags
    model = quick(set_pipeline("classifier", cv=2)).set_params(attention="drop").fit(X, y)
    shares = member_shares(model)
    assert "attention" not in shares.index and len(shares) == len(model.estimators) - 1
    assert shares.is_monotonic_decreasing and shares.sum() == pytest.approx(1)
    order = [name for name, _ in model.estimators if name != "attention"]
    np.testing.assert_array_equal(shares[order], model.final_estimator_.shares_)
    model.set_params(statistics_kernel="drop", attention=DummyClassifier())  # for the next fit
    pd.testing.assert_series_equal(member_shares(model), shares)
    with pytest.raises(TypeError, match="last step is a mixture"):
        member_shares(set_pipeline("classifier"))


def test_member_shares_of_a_stack_that_passes_features_on_are_refused(rng):
    X = rng.normal(size=(40, 3))
    stack = StackingRegressor([("a", Ridge()), ("b", DummyRegressor())], MixtureRegressor())
    stack.set_params(passthrough=True).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="2 members, but its mixture 5 shares: passthrough"):
        member_shares(stack)


def test_fewer_members(bags):
    X, y, means = bags
    few = ["statistics_forest", "statistics_kernel"]
    model = set_pipeline("classifier", members=few, cv=2)
    assert [name for name, _ in model.estimators] == few[::-1]
    assert model.fit(X, y).score(X, y) > 0.9
    model = set_pipeline(Ridge(), members=["kernel_mean_1"], cv=2).fit(X, means)
    assert len(model[0].get_feature_names_out()) == 8 * 3 + 1 + 1


@pytest.mark.parametrize("container", [tuple, set, iter, dict.fromkeys, np.array, pd.Index])
def test_members_come_in_any_container(container):
    few = ["statistics_kernel", "attention"]
    for names in (few, few[:1], few + few):
        model = set_pipeline("classifier", members=container(names))
        assert [name for name, _ in model.estimators] == [n for n in few if n in names]


def test_the_members_are_those_that_the_docstring_names():
    told = re.findall(r'``"(\w+)"``', set_pipeline.__doc__.split("Names of the members")[1])
    for kind in ("classifier", "regressor"):
        assert [name for name, _ in set_pipeline(kind).estimators] == told
    union = set_pipeline(Ridge())[0]
    assert [name for name, _ in union.transformer_list] == ["statistics", *told[-5:]]


@pytest.mark.parametrize("members", [["mean"], "attention", [], np.array([]), 5, [["attention"]]])
def test_unknown_members_are_refused(members):
    with pytest.raises(ValueError, match=r"a list with some of \['statistics_kernel', .*but is"):
        set_pipeline("classifier", members=members)
    with pytest.raises(ValueError, match=r"a list with some of \['kernel_mean_1', .*but is"):
        set_pipeline(Ridge(), members=members)
