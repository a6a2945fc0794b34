"""Field cases F18 and F29 to F32: scikit-learn's tools, clone, processes, weights and memory."""

import pickle
import random
import tracemalloc

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    StratifiedGroupKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_info

from skattn import AttentionClassifier, AttentionContextualizer, RaggedArray, inspection
from skattn.display import AttentionDisplay
from skattn.pooling import POOLINGS

# A fit of a few steps is as good as a long one where tools are tried.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

GRID = {"attentioncontextualizer__alpha": [0.001, 0.01]}


def small(**params):
    """A small model after a few steps of training."""
    settings = {"n_heads": 1, "d_k": 2, "d_v": 2, "max_iter": 5, "random_state": 0}
    return AttentionContextualizer(**{**settings, **params})


def cells(sets):
    """One object per set in an object array of one column."""
    column = np.empty((len(sets), 1), dtype=object)
    for i, tokens in enumerate(sets):
        column[i, 0] = tokens
    return column


@pytest.fixture
def bags(rng):
    """36 ragged sets, some empty, every other one shifted: sets, labels and groups."""
    y = np.arange(36) % 2
    lengths = rng.integers(0, 7, size=36)
    sets = [rng.normal(size=(n, 3)) + 2 * label for n, label in zip(lengths, y, strict=True)]
    return sets, y, np.arange(36) // 4


@pytest.fixture
def model():
    return make_pipeline(small(), LogisticRegression())


# F18 ------------------------------------------------------------------------------------------

ACCEPTING = {
    "Pipeline": lambda model: Pipeline([("model", model)]),
    "FeatureUnion": lambda model: make_pipeline(
        FeatureUnion([("one", model[0]), ("two", small(random_state=1))]), LogisticRegression()
    ),
    "GridSearchCV": lambda model: GridSearchCV(model, GRID, cv=2),
    "HalvingGridSearchCV": lambda model: HalvingGridSearchCV(
        model, GRID, cv=2, min_resources=24, random_state=0
    ),
    "VotingClassifier": lambda model: VotingClassifier(
        [("one", model), ("two", make_pipeline(small(pooling="max"), LogisticRegression()))],
        voting="soft",
    ),
    "StackingClassifier": lambda model: StackingClassifier(
        [("one", model), ("two", make_pipeline(small(pooling="max"), LogisticRegression()))], cv=2
    ),
    "CalibratedClassifierCV": lambda model: CalibratedClassifierCV(model, cv=2),
    "TunedThresholdClassifierCV": lambda model: TunedThresholdClassifierCV(model, cv=2),
    "OneVsRestClassifier": lambda model: OneVsRestClassifier(model),
}


@pytest.mark.parametrize("tool", ACCEPTING)
def test_f18_meta_estimators_accept_ragged_lists(bags, model, tool):
    sets, y, _ = bags
    fitted = ACCEPTING[tool](model).fit(sets, y)
    assert fitted.score(sets, y) > 0.7
    probabilities = fitted.predict_proba(sets)
    assert probabilities.shape == (len(sets), 2)
    assert_allclose(probabilities.sum(axis=1), 1)
    again = ACCEPTING[tool](model).fit(RaggedArray.from_list(sets), y)
    assert_allclose(again.predict_proba(RaggedArray.from_list(sets)), probabilities, atol=1e-10)


@pytest.mark.parametrize("container", [list, tuple, RaggedArray.from_list, cells])
def test_f18_cross_validation_accepts_ragged_containers(bags, model, container):
    sets, y, _ = bags
    expected = cross_val_predict(model, sets, y, cv=3, method="predict_proba")
    got = cross_val_predict(model, container(sets), y, cv=3, method="predict_proba")
    assert_allclose(got, expected, atol=1e-10)
    assert np.mean(np.argmax(got, axis=1) == y) > 0.6
    sizes, train, test = learning_curve(
        model, container(sets), y, cv=2, train_sizes=[0.5, 1.0], shuffle=True, random_state=0
    )
    assert sizes.tolist() == [9, 18]
    assert np.all(np.isfinite(train))
    assert np.all(np.isfinite(test))


@pytest.mark.parametrize("container", [cells, lambda sets: pd.DataFrame({"sets": sets})])
def test_f18_a_column_of_sets_passes_where_two_dimensions_are_demanded(bags, model, container):
    """Bagging and permutation importance refuse a ragged list, and take an object column.

    AdaBoostClassifier and SelfTrainingClassifier turn X into numbers, so no column helps there.
    """
    sets, y, _ = bags
    X = container(sets)
    with pytest.raises(ValueError, match="inhomogeneous|sequence"):
        BaggingClassifier(model, n_estimators=2, random_state=0).fit(sets, y)
    assert BaggingClassifier(model, n_estimators=2, random_state=0).fit(X, y).score(X, y) > 0.7
    importance = permutation_importance(model.fit(X, y), X, y, n_repeats=3, random_state=0)
    assert importance.importances_mean.shape == (1,)
    assert importance.importances_mean[0] > 0.1


@pytest.mark.parametrize("container", [list, RaggedArray.from_list, cells])
def test_f18_permutation_importance_of_our_own_takes_ragged_sets(bags, model, container):
    sets, y, _ = bags
    fitted = model.fit(sets, y)
    result = inspection.permutation_importance(fitted, container(sets), y, random_state=0)
    assert result.importances.shape == (3, 5)
    whole = inspection.permutation_importance(
        fitted, container(sets), y, kind="sets", random_state=0
    )
    assert whole.importances_mean[0] > 0.1
    assert whole.baseline_score == fitted.score(sets, y)


# F29 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"init": np.eye(2)},
        {"init": {"W_Q": np.eye(2)}},
        {"init": lambda n_features, rng: None},
        {"pooling": POOLINGS["mean"]()},
        {"class_weight": {0: 1.0, 1: 3.0}},
        {"random_state": np.random.RandomState(0)},
        {"n_heads": np.int64(3)},
    ],
    ids=["array", "dict", "callable", "pooling", "class weights", "random state", "numpy integer"],
)
def test_f29_the_constructor_only_stores(params):
    est = AttentionContextualizer(**params)
    ((name, value),) = params.items()
    assert getattr(est, name) is value
    assert est.get_params()[name] is value
    assert not [attribute for attribute in vars(est) if attribute.endswith("_")]
    copy = clone(est)
    assert type(copy.get_params()[name]) is type(value)
    if isinstance(value, np.ndarray):
        assert_array_equal(copy.init, value)
        assert copy.init is not value  # scikit-learn's clone copies what is no estimator
    assert set(est.get_params()) == set(copy.get_params())


BAD = {
    "n_heads": [0, -1, 1.5, "two"],
    "d_k": [0, 2.5],
    "d_v": [0, "wide"],
    "pooling": ["median", 3],
    "mask": ["past", 3],
    "scale": ["half", float("nan")],
    "loss": ["hinge", 3],
    "alpha": [-1.0, "small", float("nan")],
    "class_weight": ["even", 3],
    "init": ["xavier", np.eye(2), {"W_X": np.eye(2)}, {"W_Q": np.eye(2)}],
    "solver": ["adam", 3],
    "max_iter": [-1, 1.5, "many"],
    "tol": [-1.0, "tight"],
    "empty": ["drop", 3],
    "random_state": ["seed"],
    "standardize": ["yes"],
    "score_statistics": ["yes"],
    "warm_start": ["yes"],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in BAD.items() for value in values],
    ids=lambda value: type(value).__name__ if isinstance(value, (dict, np.ndarray)) else str(value),
)
def test_f29_bad_values_raise_in_fit_and_name_the_parameter(bags, name, value):
    sets, y, _ = bags
    est = clone(AttentionContextualizer(n_heads=1, max_iter=5).set_params(**{name: value}))
    with pytest.raises((ValueError, TypeError), match="W_Q|init" if name == "init" else name):
        est.fit(sets, y)


def test_f29_a_fitted_model_pickles(bags):
    sets, y, _ = bags
    est = small().fit(sets, y)
    assert_array_equal(pickle.loads(pickle.dumps(est)).transform(sets), est.transform(sets))
    assert not hasattr(clone(est), "W_Q_")


# F30 ------------------------------------------------------------------------------------------


def frozen(sets):
    """The same sets in arrays that cannot be written to."""
    out = [tokens.copy() for tokens in sets]
    for tokens in out:
        tokens.flags.writeable = False
    return out


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_f30_read_only_sets_are_left_as_they_are(bags, dtype, pooling):
    sets, y, _ = bags
    sets = [tokens.astype(dtype) for tokens in sets]
    X = frozen(sets)
    y_before, weight = y.copy(), np.linspace(1, 2, len(y))
    y.flags.writeable = weight.flags.writeable = False
    est = small(pooling=pooling)
    out = est.fit(X, y, sample_weight=weight).transform(X)
    est.attention_weights(X), est.contextualize(X)
    expected = small(pooling=pooling).fit(sets, y_before, sample_weight=weight.copy())
    for got, plain in zip(out, expected.transform(sets), strict=True):
        assert_array_equal(got, plain)
    for tokens, before in zip(X, sets, strict=True):
        assert_array_equal(tokens, before)
    assert_array_equal(y, y_before)
    assert_array_equal(weight, np.linspace(1, 2, len(y)))


def test_f30_inputs_of_every_form_are_left_as_they_are(bags):
    """Writeable inputs too: a ragged array is read in place, so nothing may be scaled in place."""
    sets, y, _ = bags
    padded = RaggedArray.from_list(sets).to_padded()
    flat = RaggedArray.from_list(sets)
    dense = np.random.default_rng(0).normal(size=(len(sets), 3))
    values, padded_before, dense_before = flat.values.copy(), padded.copy(), dense.copy()
    small().fit(flat, y).transform(flat)
    small().fit(padded, y).transform(padded)
    with pytest.warns(UserWarning, match="identity"):
        small().fit(dense, y).transform(dense)
    assert_array_equal(flat.values, values)
    assert_array_equal(padded, padded_before)
    assert_array_equal(dense, dense_before)


def test_f30_outputs_are_not_views_of_the_input(bags):
    sets, y, _ = bags
    X = RaggedArray.from_list(sets)
    for pooling in (None, "mean"):
        out = small(pooling=pooling, mask="diagonal").fit(X, y).transform(X)
        assert not np.shares_memory(out.values if pooling is None else out, X.values)


def test_f30_grid_search_in_two_processes_on_memory_maps(bags, model):
    sets, y, groups = bags
    X = frozen(sets)
    search = GridSearchCV(model, GRID, cv=StratifiedGroupKFold(2), error_score="raise")
    one = clone(search).fit(X, y, groups=groups)
    with joblib.parallel_config(backend="loky", max_nbytes=1):
        two = clone(search).set_params(n_jobs=2).fit(X, y, groups=groups)
    assert_allclose(
        two.cv_results_["mean_test_score"], one.cv_results_["mean_test_score"], atol=1e-10
    )
    assert_allclose(two.predict_proba(X), one.predict_proba(X), atol=1e-10)
    for tokens, before in zip(X, sets, strict=True):
        assert_array_equal(tokens, before)


def test_f30_a_memory_map_is_read_where_it_lies(bags, tmp_path):
    sets, y, _ = bags
    plain = RaggedArray.from_list(sets)
    np.save(tmp_path / "values.npy", plain.values)
    mapped = RaggedArray(np.load(tmp_path / "values.npy", mmap_mode="r"), plain.offsets)
    est = small().fit(mapped, y)
    assert_array_equal(est.transform(mapped), small().fit(plain, y).transform(plain))


@pytest.mark.parametrize("random_state", [None, 0, np.random.RandomState(3)], ids=str)
def test_f30_process_wide_state_is_left_alone(bags, random_state):
    sets, y, _ = bags

    def state():
        name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
        return (
            (name, keys.tolist(), position, has_gauss, cached),
            random.getstate(),
            [(pool["filepath"], pool["num_threads"]) for pool in threadpool_info()],
            np.geterr(),
        )

    small(random_state=0).fit(sets, y)  # loads whatever is loaded late
    before = state()
    est = small(random_state=random_state).fit(sets, y)
    est.transform(sets), est.attention_weights(sets), est.contextualize(sets)
    after = state()
    if random_state is None:  # scikit-learn's None draws the seed from NumPy's global generator
        before, after = before[1:], after[1:]
    assert after == before


# F31 ------------------------------------------------------------------------------------------


@pytest.fixture
def looking():
    """A fitted model of two heads, and sets of one, four and no tokens."""
    generator = np.random.default_rng(31)
    sets = [generator.normal(size=(n, 3)) for n in (1, 4, 0)]
    est = AttentionClassifier(n_heads=2, d_k=2, d_v=2, max_iter=20, random_state=0)
    return est.fit(sets, [0, 1, 0]), sets


def test_f31_weights_are_had_head_by_head_without_padding(looking):
    est, sets = looking
    weights = est.attention_weights(sets)
    assert [A.shape for A in weights] == [(2, 1, 1), (2, 4, 4), (2, 0, 0)]
    for A in weights:
        assert_allclose(A.sum(axis=-1), 1, atol=1e-12)
    assert not np.allclose(weights[1][0], weights[1][1])
    frame = inspection.attention_frame(est, sets)
    assert frame.groupby(["set", "head"]).size().to_dict() == {
        (0, 0): 1, (0, 1): 1, (1, 0): 16, (1, 1): 16,
    }  # fmt: skip
    assert_allclose(frame["weight"], np.concatenate([A.ravel() for A in weights]), atol=1e-12)


def test_f31_asking_does_not_change_transform(looking):
    est, sets = looking
    before = est.transform(sets), est.decision_function(sets)
    est.attention_weights(sets)
    inspection.attention_frame(est, sets)
    inspection.attention_diagnostics(est, sets)
    inspection.head_similarity(est, sets)
    inspection.token_importance(est, sets, method="all")
    assert_array_equal(est.transform(sets), before[0])
    assert_array_equal(est.decision_function(sets), before[1])


def test_f31_the_plot_takes_one_set_and_labels_its_tokens(looking):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed").use("Agg")
    est, sets = looking
    words = ["not", "averaged", "unless", "asked"]
    display = AttentionDisplay.from_estimator(est, sets, 1, token_labels=words)
    (A,) = est.attention_weights(sets[1:2])
    assert_array_equal([image.get_array() for image in display.images_], A)
    for axis in (display.axes_[0].yaxis, display.axes_[0].xaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == words
    mean = AttentionDisplay.from_estimator(est, sets, 1, head="mean")
    assert_array_equal(mean.im_.get_array(), A.mean(axis=0))
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.close(display.figure_), plt.close(mean.figure_)


# F32 ------------------------------------------------------------------------------------------

EXPECTED_FAILURES = {}


@pytest.mark.filterwarnings("ignore::UserWarning")  # one-token sets, and some checks stop early
def test_f32_scikit_learns_common_checks_really_run():
    """A dense array is one-token sets, so all the checks for dense data run, and pass.

    The sample-weight equivalence check compares two fits of a problem that is not convex, at
    1e-7; it is run where the penalty makes the minimum sharp: alpha=0.1 and a tight tol.
    """
    est = AttentionContextualizer(alpha=0.1, tol=1e-10, max_iter=1000)
    results = check_estimator(
        est, expected_failed_checks=EXPECTED_FAILURES, on_skip=None, on_fail=None
    )
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
    expected = {r["check_name"] for r in results if r["status"] == "xfail"}
    assert expected == set(EXPECTED_FAILURES)
    assert sum(r["status"] == "passed" for r in results) >= 47


@pytest.mark.parametrize("container", [list, RaggedArray.from_list, cells])
def test_f32_grid_search_with_groups_on_ragged_sets(bags, model, container):
    sets, y, groups = bags
    cv = StratifiedGroupKFold(3)
    search = GridSearchCV(model, GRID, cv=cv, n_jobs=2, error_score="raise")
    search.fit(container(sets), y, groups=groups)
    assert search.best_score_ > 0.6
    scores = cross_val_score(
        search.best_estimator_, container(sets), y, groups=groups, cv=cv, error_score="raise"
    )
    assert_allclose(scores.mean(), search.best_score_)


LONG, MEMORY_LIMIT = 20_000, 400e6  # bytes; one (n, n) matrix of float64 would be 3.2e9


@pytest.fixture(scope="module")
def long_set():
    return np.random.default_rng(0).normal(size=(LONG, 8))


def peak(call):
    """Result of a call, and the most memory it held at once beyond what there was, in bytes."""
    tracemalloc.start()
    try:
        out = call()
        return out, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def naive_tokens(est, X, rows):
    """Rows of softmax(Q K^T / sqrt(d_k)) V for a one-head model on raw tokens."""
    Q, K, V = X[:rows] @ est.W_Q_, X @ est.W_K_, X @ est.W_V_ + est.b_V_
    S = Q @ K.T / np.sqrt(Q.shape[1])
    A = np.exp(S - S.max(axis=1, keepdims=True))
    return A / A.sum(axis=1, keepdims=True) @ V


def test_f32_a_set_of_20000_tokens_transforms_in_bounded_memory(long_set):
    est = AttentionContextualizer(
        n_heads=1,
        d_k=4,
        d_v=2,
        score_statistics=False,
        standardize=False,
        max_iter=0,
        random_state=0,
    ).fit([long_set[:500]])
    tokens, used = peak(lambda: est.contextualize([long_set]))
    assert used < MEMORY_LIMIT
    assert tokens[0].shape == (LONG, 2)
    assert_allclose(tokens[0][:20], naive_tokens(est, long_set, 20), atol=1e-10)
    (part,) = est.contextualize([long_set[:500]])
    assert_allclose(part, naive_tokens(est, long_set[:500], 500), atol=1e-10)
    pooled, used = peak(lambda: est.transform([long_set]))
    assert used < MEMORY_LIMIT
    assert_allclose(pooled[0], tokens[0].mean(axis=0), atol=1e-10)


def test_f32_a_set_of_20000_tokens_fits_in_bounded_memory(long_set):
    tokens = long_set.astype(np.float32)  # half the time, the same blocks
    sets = [tokens, tokens[:500], tokens[500:505], tokens[:1]]
    est = AttentionContextualizer(n_heads=1, d_k=4, d_v=2, max_iter=2, random_state=0)
    _, used = peak(lambda: est.fit(sets, [0, 1, 1, 0]))
    assert used < MEMORY_LIMIT
    assert est.n_iter_ == 2
    assert est.loss_ < est.loss_curve_[0]


def test_f32_weights_that_do_not_fit_are_refused(long_set):
    est = AttentionContextualizer(n_heads=2, max_iter=0, random_state=0).fit([long_set[:50]])
    with pytest.raises((ValueError, MemoryError), match=r"(?i)20[,_ ]?000.*GB|GB.*20[,_ ]?000"):
        est.attention_weights([long_set[:5], long_set])
