"""The classifier and the regressor: the contextualizer's model with its head."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import NUMBER_LOSSES, targets_of
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from skattn import AttentionClassifier, AttentionContextualizer, AttentionRegressor
from skattn.losses import LOSSES
from skattn.pooling import POOLINGS

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SMALL = {"n_heads": 2, "d_k": 2, "d_v": 2, "max_iter": 5, "random_state": 0}


@pytest.fixture
def sets(rng):
    return [rng.normal(size=(n, 3)) for n in [3, 0, 1, *rng.integers(1, 8, size=30)]]


# scikit-learn compares fits of weights and of repeats at 1e-7: a convex enough problem, solved
# closely, shows what the default, stopped early, would hide.
@pytest.mark.parametrize(
    ("model", "least"),
    [
        (AttentionClassifier(alpha=0.1, tol=1e-10, max_iter=1000), 60),
        (AttentionRegressor(alpha=1.0, tol=1e-12, max_iter=2000), 60),
    ],
    ids=["classifier", "regressor"],
)
@pytest.mark.filterwarnings("ignore:No training set has more than one token")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_scikit_learns_common_checks_really_run(model, least):
    results = check_estimator(model, on_fail=None)
    statuses = {result["check_name"]: result["status"] for result in results}
    failed = [
        (result["check_name"], result["exception"])
        for result in results
        if result["status"] == "failed"
    ]
    assert not failed
    assert sum(result["status"] == "passed" for result in results) >= least, statuses


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
def test_a_classifier_is_the_contextualizer_with_its_head(sets, n_classes, pooling):
    y = np.array(["no", "yes", "so"])[np.arange(len(sets)) % n_classes]
    model = AttentionClassifier(pooling=pooling, **SMALL).fit(sets, y)
    parts = AttentionContextualizer(pooling=pooling, **SMALL).fit(sets, y)
    pooled = parts.transform(sets)
    if pooling is None:
        pooled = np.array([t.mean(axis=0) if len(t) else np.zeros(8) for t in pooled])
    raw = pooled @ parts.coef_.T + parts.intercept_
    assert_allclose(model.decision_function(sets), raw[:, 0] if n_classes == 2 else raw, atol=1e-12)
    probabilities = model.predict_proba(sets)
    assert probabilities.shape == (len(sets), n_classes)
    assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-14)
    assert_allclose(np.exp(model.predict_log_proba(sets)), probabilities, rtol=1e-12)
    assert_array_equal(model.predict(sets), model.classes_[probabilities.argmax(axis=1)])
    assert model.score(sets, y) == accuracy_score(y, model.predict(sets))
    learned = (model.W_Q_, model.W_K_, model.W_V_, model.coef_, *model.pooling_params_.values())
    penalty = sum(np.sum(a**2) for a in learned)
    expected = log_loss(y, probabilities) + model.alpha / 2 * penalty
    assert_allclose(model.loss_, expected, rtol=1e-9)


@pytest.mark.parametrize("loss", NUMBER_LOSSES)
@pytest.mark.parametrize("n_outputs", [None, 1, 2])
def test_a_regressor_is_the_contextualizer_with_its_head(sets, loss, n_outputs, rng):
    y = targets_of(LOSSES[loss](), len(sets), n_outputs or 1, rng)
    y = y[:, 0] if n_outputs is None else y
    model = AttentionRegressor(loss=loss, **SMALL).fit(sets, y)
    raw = model.transform(sets) @ model.coef_.T + model.intercept_
    raw = LOSSES[loss]().inverse_link(raw)
    assert_allclose(model.predict(sets), raw[:, 0] if n_outputs is None else raw, rtol=1e-12)
    assert model.predict(sets).shape == y.shape
    assert_allclose(model.score(sets, y), r2_score(y, model.predict(sets)), rtol=1e-12)


def test_a_regressor_predicts_c_times_as_much_for_c_times_y(sets, rng):
    y = rng.normal(size=len(sets)) + 5
    one = AttentionRegressor(**SMALL).fit(sets, y).predict(sets)
    for c in (1e-6, 1e6):
        assert_allclose(
            AttentionRegressor(**SMALL).fit(sets, c * y).predict(sets), c * one, rtol=1e-6
        )


def test_the_kind_of_model_decides_the_loss_not_the_dtype(sets):
    labels = np.arange(len(sets)) % 3
    assert hasattr(AttentionClassifier(**SMALL).fit(sets, labels.astype(float)), "classes_")
    model = AttentionRegressor(**SMALL).fit(sets, labels)
    assert not hasattr(model, "classes_")
    assert_allclose(
        model.predict(sets), AttentionRegressor(**SMALL).fit(sets, labels * 1.0).predict(sets)
    )


@pytest.mark.parametrize(
    ("model", "loss"),
    [(AttentionClassifier, "squared_error"), (AttentionRegressor, "log_loss")],
)
def test_a_loss_of_the_other_kind_is_refused(sets, model, loss):
    with pytest.raises(ValueError, match=f"{model.__name__} needs a loss out of .*{loss}"):
        model(loss=loss).fit(sets, np.arange(len(sets)) % 2)


def test_an_empty_set_is_predicted_from_the_intercept(sets):
    y = np.arange(len(sets)) % 2
    for empty in ("zeros", "nan"):  # NaN rows are for transform
        model = AttentionClassifier(empty=empty, **SMALL).fit(sets, y)
        assert_allclose(model.decision_function([np.empty((0, 3))]), model.intercept_)


@pytest.mark.parametrize("model", [AttentionClassifier(**SMALL), AttentionRegressor(**SMALL)])
def test_they_are_at_home_in_scikit_learn(sets, model):
    y = np.arange(len(sets)) % 2
    assert is_classifier(model) != is_regressor(model)
    search = GridSearchCV(model, {"alpha": [1e-3, 1e-1]}, cv=2).fit(sets, y)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert cross_val_score(clone(model), sets, y, cv=2).shape == (2,)
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert_array_equal(again.predict(sets), search.predict(sets))


LABEL_FORMS = {
    "booleans": lambda y: y,
    "list of booleans": lambda y: y.tolist(),
    "integers": lambda y: y.astype(int),
    "text": lambda y: np.where(y, "yes", "no"),
    "objects of text": lambda y: np.where(y, "yes", "no").astype(object),
    "objects of booleans": lambda y: y.astype(object),
    "objects of numpy's booleans": lambda y: np.array([*y, None], dtype=object)[:-1],
    "objects of integers": lambda y: y.astype(int).astype(object),
    "objects of floats": lambda y: y.astype(float).astype(object),
    "series of booleans": lambda y: pd.Series(y),
    "series of objects": lambda y: pd.Series(y.astype(object)),
    "nullable booleans": lambda y: pd.Series(y, dtype="boolean"),
    "nullable integers": lambda y: pd.Series(y.astype(int), dtype="Int64"),
    "categories": lambda y: pd.Series(np.where(y, "yes", "no"), dtype="category"),
}
REFUSED = {name for name in LABEL_FORMS if "objects" in name} - {"objects of text"}


@pytest.mark.parametrize("form", LABEL_FORMS)
def test_labels_are_scored_or_refused_in_fit_as_by_scikit_learn(sets, form):
    y = LABEL_FORMS[form](np.arange(len(sets)) % 3 > 0)
    table = np.array([[len(tokens)] for tokens in sets])
    models = (LogisticRegression(), table), (AttentionClassifier(**SMALL), sets)
    for model, X in models:
        if form in REFUSED:
            with pytest.raises(ValueError, match="Unknown label type"):
                model.fit(X, y)
            continue
        right = model.fit(X, y).predict(X) == np.asarray(y)
        assert model.score(X, y) == pytest.approx(np.mean(right), abs=1e-15)
        scores = cross_val_score(model, X, y, cv=3, scoring="accuracy", error_score="raise")
        assert scores.shape == (3,)


def test_a_refused_form_of_labels_comes_with_one_that_is_taken(sets):
    boxed = (np.arange(len(sets)) % 2 == 0).astype(object)
    with pytest.raises(ValueError, match=r"an object array of bool.*y\.astype\('bool'\)"):
        AttentionClassifier(**SMALL).fit(sets, boxed)
    model = AttentionClassifier(**SMALL).fit(sets, boxed.astype("bool"))
    assert model.classes_.dtype == bool
    boxed[3] = None
    with pytest.raises(ValueError, match="a target is missing at position 3"):
        AttentionClassifier(**SMALL).fit(sets, boxed)
    tokens = [np.arange(len(x)) % 2 == 0 for x in sets]  # there None marks what is not scored
    AttentionClassifier(pooling=None, **SMALL).fit(sets, [t.astype(object) for t in tokens])


def test_without_a_head_there_is_nothing_to_predict_by(sets):
    model = AttentionClassifier(**SMALL | {"max_iter": 0}).fit(sets)
    with pytest.raises(AttributeError, match="not fitted"):
        model.predict(sets)
