"""At home in scikit-learn: metadata routing, output frames and names, for every estimator."""

import re

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionContextualizerCV,
    AttentionRegressor,
    PositionalEncoder,
    RaggedArray,
    SetJoiner,
    SetPooler,
    TokenEmbedder,
    TokenTransformer,
)
from skattn.pipelines import CrossFitted, ScaledNystroem, set_pipeline

# A fit of a few steps is as good as a long one where tools are tried.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SMALL = {"n_heads": 1, "d_k": 2, "d_v": 2, "max_iter": 4, "random_state": 0}
PREDICTORS = (AttentionClassifier, AttentionRegressor)
LEARNERS = (AttentionContextualizer, *PREDICTORS)


def small(kind=AttentionContextualizer, **params):
    return kind(**{**SMALL, **params})


@pytest.fixture
def bags(rng):
    """36 ragged sets, some empty, every other one shifted: sets, labels, weights and groups."""
    y = np.arange(36) % 2
    sets = [
        rng.normal(size=(n, 3)) + 2 * label
        for n, label in zip(rng.integers(0, 6, size=36), y, strict=True)
    ]
    return sets, y, rng.integers(0, 4, size=36).astype(float), np.arange(36) // 6


@pytest.fixture
def routed():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# Metadata routing ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*LEARNERS, AttentionContextualizerCV])
def test_weights_are_routed_through_a_pipeline(bags, routed, kind):
    X, y, weight, _ = bags
    params = {"cv": 2, "alphas": (0.01, 0.1)} if kind is AttentionContextualizerCV else {}
    direct = small(kind, **params).fit(X, y, sample_weight=weight)
    before = TokenTransformer(FunctionTransformer()).set_fit_request(sample_weight=False)
    step = small(kind, **params).set_fit_request(sample_weight=True)
    model = make_pipeline(before, step).fit(X, y, sample_weight=weight)
    assert_array_equal(model[-1].coef_, direct.coef_)


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_weight_that_nobody_asked_for_is_refused(bags, routed, kind):
    X, y, weight, _ = bags
    with pytest.raises(ValueError, match="sample_weight"):
        make_pipeline(small(kind)).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("container", [list, RaggedArray.from_list, pd.Series])
@pytest.mark.parametrize("kind", PREDICTORS)
def test_weights_and_groups_are_routed_through_a_search(bags, routed, kind, container):
    """To the fits, to the scores, and to the splitter: as if each had been called by hand."""
    X, y, weight, groups = bags
    est = small(kind).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    search = GridSearchCV(est, {"alpha": [0.001, 0.1]}, cv=GroupKFold(3), error_score="raise")
    search.fit(container(X), y, sample_weight=weight, groups=groups)
    by_hand = []
    for train, test in GroupKFold(3).split(y, y, groups):
        model = small(kind, alpha=0.1)
        model.fit([X[i] for i in train], y[train], sample_weight=weight[train])
        by_hand.append(model.score([X[i] for i in test], y[test], weight[test]))
    assert_allclose(search.cv_results_["mean_test_score"][1], np.mean(by_hand), atol=1e-9)
    scores = cross_val_score(
        clone(est).set_params(alpha=0.1),
        container(X),
        y,
        cv=GroupKFold(3),
        params={"sample_weight": weight, "groups": groups},
    )
    assert_allclose(scores, by_hand, atol=1e-9)


@pytest.mark.parametrize("container", [list, RaggedArray.from_list, pd.Series])
def test_weights_and_groups_without_routing(bags, container):
    """By the name of the step, as scikit-learn did before, and groups to the splitter."""
    X, y, weight, groups = bags
    model = make_pipeline(small(AttentionClassifier))
    grid = {"attentionclassifier__alpha": [0.001, 0.1]}
    search = GridSearchCV(model, grid, cv=GroupKFold(3), error_score="raise")
    search.fit(container(X), y, attentionclassifier__sample_weight=weight, groups=groups)
    by_hand = []
    for train, test in GroupKFold(3).split(y, y, groups):
        fold = small(AttentionClassifier, alpha=0.1)
        fold.fit([X[i] for i in train], y[train], sample_weight=weight[train])
        by_hand.append(fold.score([X[i] for i in test], y[test]))
    assert_allclose(search.cv_results_["mean_test_score"][1], np.mean(by_hand), atol=1e-9)


# Output frames and names -----------------------------------------------------------------------


def spoken(sets):
    """Each token as a word."""
    return [[f"w{abs(int(t[0]))}" for t in tokens] for tokens in sets]


WORDS = {f"w{i}": np.array([i, 1.0]) for i in range(9)}
PEOPLE = pd.DataFrame({"id": np.arange(36) % 7})
CHILD = pd.DataFrame({"id": [0, 1, 1, 3, 9], "price": [1.0, 2, 3, 4, 5], "n": [1.0, 1, 0, 0, 2]})
POOLED = {
    "attention": lambda: small(),
    "statistics": lambda: small(pooling="stats"),
    "search": lambda: small(AttentionContextualizerCV, alphas=(0.01, 0.1), cv=2),
    "classifier": lambda: small(AttentionClassifier),
    "regressor": lambda: small(AttentionRegressor),
    "reconstruction": lambda: small(loss="reconstruction"),
    "pooler": SetPooler,
    "cross-fitted": lambda: CrossFitted(small(AttentionClassifier), cv=2, random_state=0),
    "piped": lambda: make_pipeline(TokenTransformer(StandardScaler()), SetPooler()),
    "union": lambda: FeatureUnion([("s", SetPooler()), ("a", small())]),
    "lifted": lambda: make_pipeline(
        TokenTransformer(ScaledNystroem(5, random_state=0)), PositionalEncoder(), small()
    ),
}
RAGGED = {
    "attention": lambda: small(pooling=None),
    "reconstruction": lambda: small(loss="reconstruction", pooling=None),
    "tokens": lambda: TokenTransformer(StandardScaler()),
    "positions": PositionalEncoder,
    "words": lambda: TokenEmbedder(WORDS),
    "joined": lambda: SetJoiner(CHILD, key="id", columns=["price", "n"]),
}
INDEX = [f"row {i}" for i in np.random.default_rng(0).permutation(36)]


def wanted(library):
    if library == "polars":
        return pytest.importorskip("polars", reason="polars is not installed").DataFrame
    return pd.DataFrame


@pytest.mark.parametrize("how", ["step", "globally"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("transformer", POOLED)
def test_pooled_output_is_a_frame_with_names_and_index(bags, transformer, library, how):
    X, y, *_ = bags
    frame, series = wanted(library), pd.Series(X, index=INDEX)
    est = POOLED[transformer]()
    plain = clone(est).fit_transform(X, y)
    if how == "step":
        est.set_output(transform=library)
    setting = {"transform_output": library} if how == "globally" else {}
    with sklearn.config_context(**setting):
        trained = est.fit_transform(series, y)
        out, of_list = est.transform(series), est.transform(X)
        names = est.get_feature_names_out().tolist()
    assert len(set(names)) == len(names) == plain.shape[1]
    for got in (trained, out, of_list):
        assert isinstance(got, frame)
        assert list(got.columns) == names
    assert_allclose(trained.to_numpy(), plain, atol=1e-10)
    assert_allclose(out.to_numpy(), of_list.to_numpy(), atol=1e-10)
    if library == "pandas":
        assert trained.index.tolist() == out.index.tolist() == INDEX
        assert of_list.index.tolist() == list(range(36))


@pytest.mark.parametrize("how", ["step", "globally"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("transformer", RAGGED)
def test_sets_of_tokens_are_never_wrapped_and_have_names(bags, transformer, library, how):
    X, y, *_ = bags
    X = {"words": spoken(X), "joined": PEOPLE}.get(transformer, X)
    est = RAGGED[transformer]()
    if how == "step":
        est.set_output(transform=library)
    setting = {"transform_output": library} if how == "globally" else {}
    if library == "polars":
        wanted(library)
    with sklearn.config_context(**setting):
        trained = est.fit_transform(X, y)
        out = est.transform(X)
    names = est.get_feature_names_out().tolist()
    assert len(set(names)) == len(names)
    for tokens in (trained, out):
        assert isinstance(tokens, RaggedArray)
        assert tokens.n_features == len(names)
        frame = tokens._with(rows=None).to_frame()  # a joined set's rows stand as in its table
        assert len(frame) == tokens.n_tokens
        assert_array_equal(frame[list(frame.columns[-len(names) :])].to_numpy(), tokens.values)


def test_a_table_with_a_column_of_sets_keeps_its_index_and_names(bags):
    X, y, *_ = bags
    table = pd.DataFrame(
        {"age": np.arange(36.0), "city": np.array(["a", "b", "c"] * 12), "bag": X}, index=INDEX
    )
    columns = ColumnTransformer(
        [
            ("bag", small(), "bag"),
            ("age", StandardScaler(), ["age"]),
            ("city", OneHotEncoder(sparse_output=False), ["city"]),
        ]
    ).set_output(transform="pandas")
    out = columns.fit_transform(table, y)
    assert out.index.tolist() == INDEX
    assert out.columns.tolist() == columns.get_feature_names_out().tolist()
    assert out.columns[0] == "bag__attentioncontextualizer0"
    assert_array_equal(out.iloc[:, :4].to_numpy(), small().fit_transform(X, y))
    model = make_pipeline(columns, LogisticRegression())
    shuffled = table.sample(frac=1, random_state=0)
    fitted = model.fit(table, y)
    expected = fitted.predict_proba(table)[table.index.get_indexer(shuffled.index)]
    assert_allclose(fitted.predict_proba(shuffled), expected, atol=1e-10)
    assert cross_validate(model, table, y, cv=3)["test_score"].mean() > 0.6


# Tools that turn X into one array --------------------------------------------------------------


def look_up(rows, sets):
    return sets[np.ravel(rows)]


def by_row(sets, model):
    """A model whose X is a column of row numbers."""
    return make_pipeline(FunctionTransformer(look_up, kw_args={"sets": sets}), model)


@pytest.fixture
def shifted(bags):
    """Ragged sets, none of them empty, their labels, and a model that tells them apart."""
    X, y, *_ = bags
    X = [np.vstack([tokens, [[2.0 * label] * 3]]) for tokens, label in zip(X, y, strict=True)]
    return RaggedArray.from_list(X), y, small(AttentionClassifier, max_iter=20)


def test_row_numbers_pass_where_sets_do_not(shifted):
    """The same models come out of the row numbers as of a column of sets."""
    X, y, model = shifted
    rows = np.arange(len(X)).reshape(-1, 1)
    column = pd.DataFrame({"bag": X.to_list()})
    bagging = BaggingClassifier(by_row(X, model), n_estimators=2, random_state=0).fit(rows, y)
    of_column = BaggingClassifier(model, n_estimators=2, random_state=0).fit(column, y)
    assert_allclose(bagging.predict_proba(rows), of_column.predict_proba(column), atol=1e-10)
    ours, importance = {}, by_row(X, model).fit(rows, y)
    for name, X_given, fitted in (("rows", rows, importance), ("column", column, importance[-1])):
        ours[name] = permutation_importance(fitted, X_given, y, n_repeats=3, random_state=0)
    assert_array_equal(ours["rows"].importances, ours["column"].importances)
    assert ours["rows"].importances_mean[0] > 0.2


def test_self_training_takes_row_numbers(shifted):
    X, y, model = shifted
    rows = np.arange(len(X)).reshape(-1, 1)
    partly = np.where(rows[:, 0] % 3 == 0, -1, y)
    with pytest.raises(ValueError, match="sequence|inhomogeneous"):
        SelfTrainingClassifier(model).fit(X.to_list(), partly)
    trained = SelfTrainingClassifier(by_row(X, model), threshold=0.6).fit(rows, partly)
    assert np.any(trained.labeled_iter_ > 0)  # sets without a label were given one
    assert trained.score(rows, y) > 0.9


def test_adaboost_stands_behind_the_pooling(shifted):
    """It hands weights to the estimator's own `fit`, which a pipeline has none for."""
    X, y, _ = shifted
    model = make_pipeline(small(), AdaBoostClassifier(n_estimators=3, random_state=0))
    assert cross_val_score(model, X, y, cv=3, error_score="raise").mean() > 0.9
    same_length = np.stack([tokens[:1] for tokens in X])  # one array takes sets of equal length
    boosted = AdaBoostClassifier(small(AttentionClassifier, max_iter=20), n_estimators=2)
    with pytest.warns(UserWarning, match="No training set has more than one token"):
        boosted.fit(same_length, y)
    assert boosted.score(same_length, y) > 0.6


@pytest.mark.parametrize("tool", [VotingClassifier, StackingClassifier])
def test_predictors_stand_beside_models_on_pooled_statistics(shifted, tool):
    X, y, model = shifted
    members = [("attention", model), ("pooled", make_pipeline(SetPooler(), LogisticRegression()))]
    assert cross_val_score(tool(members), X, y, cv=3, error_score="raise").mean() > 0.9


# Printing --------------------------------------------------------------------------------------


def printed():
    """Pipelines with large parameters."""
    words, vectors = [f"w{i}" for i in range(3000)], np.zeros((3000, 40))
    child = pd.DataFrame(np.arange(30_000.0).reshape(1000, 30)).add_prefix("c")
    start = small(AttentionClassifier, init={"W_Q": np.ones((2000, 2))})
    return {
        "arrays to start from": make_pipeline(TokenTransformer(StandardScaler()), start),
        "a table of words": make_pipeline(TokenEmbedder((words, vectors)), small()),
        "a frame of words": TokenEmbedder(pd.DataFrame(vectors, index=words)),
        "a child table": make_pipeline(SetJoiner(child, key="c0", columns=["c1"]), SetPooler()),
        "a stack": set_pipeline("classifier"),
    }


@pytest.mark.parametrize("model", printed())
def test_large_parameters_are_cut_short_where_a_model_is_shown(model):
    est = printed()[model]
    page = est._repr_html_()
    for step in est.get_params().values():
        if hasattr(step, "fit"):
            assert type(step).__name__ in page
    assert len(repr(est)) < 4000
    shown = re.sub("<style>.*?</style>|<script>.*?</script>", "", page, flags=re.DOTALL)
    assert max(map(len, re.split("<[^>]*>", shown))) < 4000  # each text; of old versions one line
