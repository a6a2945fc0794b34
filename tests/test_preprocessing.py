"""TokenTransformer and SetPooler: tokens through any transformer, and pooled statistics."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
    TargetEncoder,
)
from sklearn.utils.estimator_checks import check_estimator

from skattn import AttentionContextualizer, RaggedArray
from skattn.preprocessing import STATISTICS, SetPooler, TokenTransformer

# Transformers of several kinds.
TRANSFORMERS = {
    "scaler": StandardScaler(),
    "pca": PCA(2),
    "nystroem": Nystroem(n_components=5, random_state=0),
    "poly": PolynomialFeatures(2),
    "kmeans": KMeans(2, n_init=1, random_state=0),
    "function": FunctionTransformer(np.tanh),
    "pipeline": make_pipeline(MinMaxScaler(), PCA(2)),
}
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
ALL = (*STATISTICS, 0.25, 0.9)


@pytest.fixture
def bags(rng):
    """24 ragged sets of 3 features, some empty, every other one shifted, and their labels."""
    y = np.arange(24) % 2
    lengths = rng.integers(1, 7, size=24)
    sets = [rng.normal(size=(n, 3)) + 2 * label for n, label in zip(lengths, y, strict=True)]
    sets[5] = np.empty((0, 3))
    return sets, y


def repeated(sets, weights):
    """The sets with every token as often as its whole weight says."""
    return [np.repeat(tokens, w, axis=0) for tokens, w in zip(sets, weights, strict=True)]


def whole_weights(sets, rng):
    """Weights of 0 to 3 for the tokens of each set."""
    return [rng.integers(0, 4, size=len(tokens)) for tokens in sets]


def cells(sets):
    """One object per set in an object array."""
    column = np.empty(len(sets), dtype=object)
    for i, tokens in enumerate(sets):
        column[i] = tokens
    return column


def padded(sets):
    """The sets as one 3-D array, with two rows of NaN more than the longest needs."""
    out = np.full((len(sets), max(map(len, sets)) + 2, sets[0].shape[1]), np.nan)
    for i, tokens in enumerate(sets):
        out[i, : len(tokens)] = tokens
    return out


CONTAINERS = {
    "objects": cells,
    "ragged": RaggedArray.from_list,
    "padded": padded,
    "series": lambda sets: pd.Series(cells(sets), index=range(7, 7 + len(sets))),
    "frame": lambda sets: pd.DataFrame({"bag": cells(sets)}),
    "nested": lambda sets: [tokens.tolist() for tokens in sets],
}
containers = pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
transformers = pytest.mark.parametrize("transformer", TRANSFORMERS.values(), ids=TRANSFORMERS)


def assert_same_sets(actual, desired, **tolerance):
    """Two RaggedArrays, or one and a list, hold the same sets."""
    assert isinstance(actual, RaggedArray)
    assert len(actual) == len(desired)
    for i, (a, b) in enumerate(zip(actual, desired, strict=True)):
        assert_allclose(a, b, err_msg=f"set {i}", **tolerance)


# TokenTransformer -----------------------------------------------------------------------------


@transformers
def test_tokens_are_transformed_as_rows_of_one_array(transformer, awkward_sets):
    rows = clone(transformer).fit(np.vstack(awkward_sets))
    out = TokenTransformer(transformer).fit(awkward_sets).transform(awkward_sets)
    assert_array_equal(out.lengths, [len(tokens) for tokens in awkward_sets])
    for tokens, transformed in zip(awkward_sets, out, strict=True):
        if len(tokens):
            assert_allclose(transformed, rows.transform(tokens), atol=1e-12)


@transformers
def test_fit_transform_is_fit_and_transform(transformer, awkward_sets):
    est = TokenTransformer(transformer)
    together = est.fit_transform(awkward_sets)
    width = est.n_features_out_
    apart = est.fit(awkward_sets).transform(awkward_sets)
    assert_same_sets(together, apart, atol=1e-10)
    assert est.n_features_out_ == width == apart.n_features


@transformers
def test_order_of_sets_and_batch_mates_change_no_token(transformer, awkward_sets, rng):
    est = TokenTransformer(transformer).fit(awkward_sets)
    out = est.transform(awkward_sets)
    order = rng.permutation(len(awkward_sets))
    assert_same_sets(est.transform([awkward_sets[i] for i in order]), out[order], atol=1e-12)
    for tokens, transformed in zip(awkward_sets, out, strict=True):
        assert_allclose(est.transform([tokens])[0], transformed, atol=1e-12)


@containers
def test_tokens_are_the_same_from_every_container(container, awkward_sets):
    plain = TokenTransformer(StandardScaler()).fit_transform(awkward_sets)
    est = TokenTransformer(StandardScaler())
    assert_same_sets(est.fit_transform(container(awkward_sets)), plain, rtol=0)
    assert est.n_features_in_ == 3
    assert not hasattr(est, "feature_names_in_")


def test_token_weights_stay_with_their_tokens(awkward_sets, rng):
    weights = [rng.uniform(0.5, 2, size=len(tokens)) for tokens in awkward_sets]
    X = RaggedArray.from_list(awkward_sets, weights)
    out = TokenTransformer(StandardScaler()).fit_transform(X)
    assert_array_equal(out.weights, X.weights)
    assert_array_equal(out.offsets, X.offsets)


@pytest.mark.parametrize("method", ["fit", "fit_transform"])
def test_whole_weights_of_tokens_and_sets_are_repeats(method, awkward_sets, rng):
    weights = whole_weights(awkward_sets, rng)
    set_weights = np.array([2, 1, 0, 3, 1, 0, 1])
    weighted, plain = TokenTransformer(StandardScaler()), TokenTransformer(StandardScaler())
    X = RaggedArray.from_list(awkward_sets, weights)
    getattr(weighted, method)(X, sample_weight=set_weights)
    plain.fit([repeated(awkward_sets, weights)[i] for i in np.repeat(range(7), set_weights)])
    assert_allclose(weighted.transformer_.mean_, plain.transformer_.mean_, rtol=1e-12)
    assert_allclose(weighted.transformer_.scale_, plain.transformer_.scale_, rtol=1e-12)


@pytest.mark.parametrize("transformer", [StandardScaler(), PCA(2)], ids=["scaler", "pca"])
def test_what_has_no_weight_is_left_out_of_fit(transformer, awkward_sets):
    spoilt = [tokens.copy() for tokens in awkward_sets]
    spoilt[0][1] = 1e6
    spoilt[3][:] = -1e6
    weights = [np.ones(len(tokens)) for tokens in spoilt]
    weights[0][1] = 0
    set_weights = [1, 1, 1, 0, 1, 1, 1]
    kept = [np.delete(awkward_sets[0], 1, axis=0), *awkward_sets[1:3], *awkward_sets[4:]]
    X = RaggedArray.from_list(spoilt, weights)
    plain = TokenTransformer(transformer).fit(kept)
    out = TokenTransformer(transformer).fit_transform(X, sample_weight=set_weights)
    assert_array_equal(out.lengths, [3, 0, 1, 4, 23, 2, 0])  # the set of weight 0 has its rows
    assert_allclose(out[0], plain.transform(kept)[0], atol=1e-10)
    assert_allclose(out[3], plain.transform([spoilt[3]])[0], rtol=1e-10)
    assert_same_sets(
        TokenTransformer(transformer).fit(X, sample_weight=set_weights).transform(X),
        out,
        atol=1e-10,
    )


@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: make_pipeline(t, MinMaxScaler())])
def test_a_column_transformer_selects_token_features_by_name(wrap):
    bought = pd.DataFrame(
        {
            "who": ["b", "a", "b", "a"],
            "price": [1.0, 2.0, 3.0, 6.0],
            "n": [1.0, 2.0, 1.0, 4.0],
            "note": [7.0, 7.0, 8.0, 8.0],
        }
    )
    X = RaggedArray.from_frame(bought, by="who", columns=["price", "n", "note"])
    parts = [("scaled", StandardScaler(), ["note", "price"]), ("as_is", "passthrough", ["n"])]
    for columns in (parts, [("scaled", StandardScaler(), make_column_selector("^n"))]):
        inner = wrap(ColumnTransformer(columns))
        expected = clone(inner).fit_transform(bought[["price", "n", "note"]])
        est = TokenTransformer(inner)
        for out in (est.fit_transform(X), est.fit(X).transform(X)):
            assert_allclose(out.to_frame(), expected)
        names = est.transformer_.get_feature_names_out().tolist()
        assert out.columns.tolist() == est.get_feature_names_out().tolist() == names
        nameless = RaggedArray(X.values, X.offsets)
        assert_array_equal(est.transform(nameless).values, out.values)
    table = bought[["price", "n", "note"]]  # one token a row
    out = TokenTransformer(wrap(ColumnTransformer(parts))).fit_transform(table)
    assert_allclose(out.values, wrap(ColumnTransformer(parts)).fit_transform(table))


def test_a_column_transformer_may_select_by_number(awkward_sets):
    inner = ColumnTransformer([("scaled", StandardScaler(), [2, 0])])
    out = TokenTransformer(inner).fit_transform(awkward_sets)
    assert_allclose(out.values, clone(inner).fit_transform(np.vstack(awkward_sets)))
    with pytest.raises(ValueError, match="using strings is only supported for"):
        TokenTransformer(ColumnTransformer([("a", "passthrough", ["x"])])).fit(awkward_sets)


def test_weights_are_of_no_use_to_a_transformer_that_takes_none(awkward_sets, rng):
    weights = [rng.uniform(0.5, 2, size=len(tokens)) for tokens in awkward_sets]
    X = RaggedArray.from_list(awkward_sets, weights)
    out = TokenTransformer(PCA(2)).fit_transform(X, sample_weight=np.arange(1, 8))
    assert_same_sets(out, TokenTransformer(PCA(2)).fit_transform(awkward_sets), atol=1e-10)


class Recorder(TransformerMixin, BaseEstimator):
    """Remembers what its fit was called with, and how often which method ran."""

    def fit(self, X, y=None, sample_weight=None):
        self.calls_ = [*getattr(self, "calls_", []), "fit"]
        self.X_, self.y_, self.weight_ = X, y, sample_weight
        return self

    def transform(self, X):
        self.calls_ = [*getattr(self, "calls_", []), "transform"]
        return X[:, :1]


class WithoutTarget(TransformerMixin, BaseEstimator):
    """A transformer whose fit takes X alone, and that has no fit_transform that takes more."""

    def fit(self, X):
        self.fitted_ = True
        return self

    def transform(self, X):
        return X


def test_a_target_of_a_set_goes_to_each_of_its_tokens(awkward_sets):
    labels = np.array(list("abcdefg"))
    recorder = TokenTransformer(Recorder()).fit(awkward_sets, labels).transformer_
    assert "".join(recorder.y_) == "aaaac" + "dddd" + 23 * "e" + "ff"
    assert recorder.weight_ is None
    several = np.arange(14.0).reshape(7, 2)
    for y in (several, several.tolist(), pd.DataFrame(several), several.astype(object)):
        recorder = TokenTransformer(Recorder()).fit(awkward_sets, y).transformer_
        assert_array_equal(recorder.y_, np.repeat(several, [4, 0, 1, 4, 23, 2, 0], axis=0))
    pairs = [tokens[:2] for tokens in awkward_sets if len(tokens) > 1]  # two tokens, two targets
    recorder = TokenTransformer(Recorder()).fit(pairs, several[:4].astype(object)).transformer_
    assert_array_equal(recorder.y_, np.repeat(several[:4], 2, axis=0))
    assert TokenTransformer(Recorder()).fit(awkward_sets).transformer_.y_ is None


@pytest.mark.parametrize("form", [list, cells, lambda y: RaggedArray.from_list(y, None)])
def test_a_target_of_a_token_goes_to_that_token(form, awkward_sets):
    y = [np.arange(len(tokens), dtype=float)[:, None] for tokens in awkward_sets]
    weights = [np.ones(len(tokens)) for tokens in awkward_sets]
    weights[0][1] = 0
    X = RaggedArray.from_list(awkward_sets, weights)
    recorder = TokenTransformer(Recorder()).fit(X, form(y), sample_weight=[1] * 6 + [2])
    expected = np.concatenate(y)[np.concatenate(weights) > 0, 0]
    assert_array_equal(recorder.transformer_.y_, expected)
    assert len(recorder.transformer_.weight_) == len(recorder.transformer_.X_) == 33


def test_a_supervised_transformer_learns_from_its_sets_target():
    sets, y = [[[0.0], [1.0]], [[1.0]], [[0.0], [0.0], [1.0]], []], [0.0, 1.0, 2.0, 9.0]
    est = TokenTransformer(TargetEncoder(smooth=0.0, target_type="continuous")).fit(sets, y)
    assert_allclose(est.transform([[[0.0], [1.0]]])[0], [[4 / 3], [1.0]])
    with pytest.raises(ValueError, match="TargetEncoder requires y to be passed"):
        TokenTransformer(TargetEncoder()).fit(sets)


def test_targets_that_fit_neither_sets_nor_tokens_are_refused(awkward_sets):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        TokenTransformer(Recorder()).fit(awkward_sets, [0, 1])
    y = [np.zeros(len(tokens)) for tokens in awkward_sets]
    y[3] = np.zeros(5)
    with pytest.raises(ValueError, match="Set 3 has 4 tokens, but y has 5 entries for it"):
        TokenTransformer(Recorder()).fit(awkward_sets, y)


def test_a_fit_that_takes_no_target_gets_none(awkward_sets):
    est = TokenTransformer(WithoutTarget()).fit(awkward_sets, np.arange(7))
    assert_same_sets(est.transform(awkward_sets), awkward_sets)


def test_fit_transform_of_the_transformer_runs_once(awkward_sets):
    class Once(Recorder):
        def fit_transform(self, X, y=None, **parameters):
            self.fit(X, y, **parameters)
            self.calls_ = ["fit_transform"]
            return X[:, :2]

    est = TokenTransformer(Once())
    out = est.fit_transform(awkward_sets, sample_weight=np.ones(7))
    assert est.transformer_.calls_ == ["fit_transform"]
    assert out.n_features == est.n_features_out_ == 2
    assert len(est.transformer_.weight_) == 34


def test_a_fit_transform_that_takes_no_weights_is_passed_by(awkward_sets):
    class Unweighted(Recorder):
        def fit_transform(self, X, y=None):
            raise AssertionError("the weights would be lost")

    est = TokenTransformer(Unweighted())
    est.fit_transform(awkward_sets, sample_weight=np.ones(7))
    assert est.transformer_.calls_ == ["fit", "transform"]
    assert est.transformer_.weight_ is not None


def test_the_transformer_given_is_left_alone(awkward_sets):
    scaler = StandardScaler()
    est = TokenTransformer(scaler).fit(awkward_sets)
    assert est.transformer is scaler
    assert not hasattr(scaler, "mean_")
    with pytest.raises(NotFittedError, match="TokenTransformer instance is not fitted"):
        TokenTransformer(scaler).transform(awkward_sets)


@pytest.mark.parametrize("name", ["scaler", "pca", "function"])
def test_float32_stays_where_the_transformer_keeps_it(name, awkward_sets):
    single = [tokens.astype(np.float32) for tokens in awkward_sets]
    out = TokenTransformer(TRANSFORMERS[name]).fit_transform(single)
    assert out.dtype == np.float32
    double = TokenTransformer(TRANSFORMERS[name]).fit_transform(awkward_sets)
    assert_same_sets(out, double, atol=1e-5)


@pytest.mark.parametrize("function", [np.rint, lambda X: X > 0, lambda X: X.astype(np.int8)])
def test_tokens_of_other_types_become_floats(function, awkward_sets):
    out = TokenTransformer(FunctionTransformer(function)).fit_transform(awkward_sets)
    assert out.dtype == np.float64
    assert_same_sets(out, [function(tokens) for tokens in awkward_sets])


@pytest.mark.parametrize("empty", [[[]], [[], []], [np.empty((0, 3))], RaggedArray(
    np.empty((0, 3)), np.zeros(3, dtype=int)
)])  # fmt: skip
def test_sets_without_tokens_pass_through_transform(empty, awkward_sets):
    out = TokenTransformer(PCA(2)).fit(awkward_sets).transform(empty)
    assert out.shape == (len(empty), None, 2)
    assert out.n_tokens == 0


@pytest.mark.parametrize("method", ["fit", "fit_transform"])
def test_fit_without_tokens_is_refused(method, awkward_sets):
    fit = getattr(TokenTransformer(PCA(2)), method)
    with pytest.raises(ValueError, match=r"Found no tokens of positive weight in 2 sets"):
        fit([np.empty((0, 3))] * 2)
    with pytest.raises(ValueError, match=r"Found no tokens of positive weight in 2 sets"):
        fit([np.empty((0, 3))] * 2, [[], []])  # as targets of tokens
    X = RaggedArray.from_list([np.ones((2, 3))], [[0, 0]])
    with pytest.raises(ValueError, match=r"Found no tokens of positive weight in 1 sets"):
        fit(X)
    with pytest.raises(ValueError, match="Found no tokens"):
        fit(awkward_sets, sample_weight=[0, 1, 0, 0, 0, 0, 1])  # weight on empty sets alone


@pytest.mark.parametrize(
    ("sample_weight", "message"),
    [
        ([1, 1], r"sample_weight has shape \(2,\), but must be 1-D with one weight for each of 7"),
        ([-1, 1, 1, 1, 1, 1, 1], "negative.*run from -1.0 to 1.0"),
        (np.zeros(7), "all are zero"),
        ([np.nan] * 7, "NaN"),
    ],
)
def test_weights_that_mean_nothing_are_refused(sample_weight, message, awkward_sets):
    with pytest.raises(ValueError, match=message):
        TokenTransformer(StandardScaler()).fit(awkward_sets, sample_weight=sample_weight)


@pytest.mark.parametrize("transformer", [None, "scaler", LogisticRegression(), object()])
def test_what_is_no_transformer_is_refused(transformer, awkward_sets):
    with pytest.raises(TypeError, match="transformer must have the methods fit and transform"):
        TokenTransformer(transformer).fit(awkward_sets)


@pytest.mark.parametrize("method", ["fit", "fit_transform"])
def test_sparse_rows_are_refused_and_a_dense_step_helps(method, awkward_sets):
    sets = [np.rint(tokens) for tokens in awkward_sets]
    sparse = OneHotEncoder(handle_unknown="ignore")
    with pytest.raises(TypeError, match="OneHotEncoder returns sparse rows.*sparse_output=False"):
        getattr(TokenTransformer(sparse), method)(sets)
    svd = make_pipeline(sparse, TruncatedSVD(2, random_state=0))
    assert TokenTransformer(svd).fit_transform(sets).n_features == 2
    dense = TokenTransformer(OneHotEncoder(sparse_output=False)).fit_transform(sets)
    assert set(np.unique(dense.values)) == {0.0, 1.0}
    assert_array_equal(dense.values.sum(axis=1), 3)  # one category of each feature


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda X: X[:1].sum(axis=1), ValueError, r"shape \(1,\) for 1 tokens"),
        (lambda X: np.vstack([X, X]), ValueError, r"shape \(2, 3\) for 1 tokens.*one row per"),
        (lambda X: X.astype(str), TypeError, "returns rows of dtype <U"),
        (lambda X: X.astype(complex), TypeError, "returns rows of dtype complex128"),
    ],
)
def test_rows_that_are_no_tokens_are_refused(function, error, message, awkward_sets):
    with pytest.raises(error, match=message):
        TokenTransformer(FunctionTransformer(function)).fit(awkward_sets)


def test_another_number_of_features_is_refused(awkward_sets):
    est = TokenTransformer(PCA(2)).fit(awkward_sets)
    with pytest.raises(ValueError, match="X has 2 features, but TokenTransformer is expecting 3"):
        est.transform([np.ones((2, 2))])
    with pytest.raises(ValueError, match="X has 3 features, but inverse_transform is expecting"):
        est.inverse_transform(awkward_sets)
    with pytest.raises(ValueError, match=r"Found tokens with 0 feature\(s\)"):
        TokenTransformer(PCA(2)).fit([np.empty((2, 0))])


def test_inverse_transform_undoes_transform(awkward_sets, rng):
    weights = [rng.uniform(1, 2, size=len(tokens)) for tokens in awkward_sets]
    X = RaggedArray.from_list(awkward_sets, weights)
    est = TokenTransformer(make_pipeline(StandardScaler(), PCA(3))).fit(X)
    back = est.inverse_transform(est.transform(X))
    assert_same_sets(back, awkward_sets, atol=1e-12)
    assert_array_equal(back.weights, X.weights)
    assert est.inverse_transform([[], []]).shape == (2, None, 3)


def test_inverse_transform_is_there_where_the_transformer_has_one(awkward_sets):
    assert hasattr(TokenTransformer(PCA()), "inverse_transform")
    assert not hasattr(TokenTransformer(Nystroem()), "inverse_transform")
    assert not hasattr(
        TokenTransformer(Nystroem(n_components=2)).fit(awkward_sets), "inverse_transform"
    )


def test_names_are_those_the_transformer_gives(awkward_sets):
    def names(transformer, *args):
        return TokenTransformer(transformer).fit(awkward_sets).get_feature_names_out(*args).tolist()

    assert names(StandardScaler()) == ["x0", "x1", "x2"]
    assert names(StandardScaler(), ["a", "b", "c"]) == ["a", "b", "c"]
    assert names(StandardScaler(), ["bag"]) == ["x0", "x1", "x2"]  # of a column of sets
    assert names(PCA(2)) == ["pca0", "pca1"]
    assert names(KBinsDiscretizer(2, encode="onehot-dense", strategy="uniform"))[0] == "x0_0.0"
    assert names(FunctionTransformer()) == [f"tokentransformer{j}" for j in range(3)]
    unnamed = make_pipeline(FunctionTransformer(), PCA(2))
    assert names(unnamed) == ["tokentransformer0", "tokentransformer1"]
    with pytest.raises(ValueError, match="length equal to number of features"):
        names(StandardScaler(), ["a", "b"])
    with pytest.raises(NotFittedError):
        TokenTransformer(PCA()).get_feature_names_out()


def test_names_of_a_table_are_kept(rng):
    frame = pd.DataFrame(rng.normal(size=(6, 2)), columns=["mass", "charge"])
    est = TokenTransformer(StandardScaler()).fit(frame)
    assert est.feature_names_in_.tolist() == ["mass", "charge"]
    assert est.get_feature_names_out().tolist() == ["mass", "charge"]
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        est.get_feature_names_out(["charge", "mass"])
    with pytest.raises(ValueError, match="feature names should match"):
        est.transform(frame[["charge", "mass"]])
    est.fit([frame.to_numpy()])
    assert not hasattr(est, "feature_names_in_")


@pytest.mark.parametrize("transform", ["pandas", "default"])
def test_set_output_is_accepted_without_effect(transform, awkward_sets):
    plain = TokenTransformer(PCA(2)).fit_transform(awkward_sets)
    est = TokenTransformer(PCA(2)).set_output(transform=transform)
    assert_same_sets(est.fit_transform(awkward_sets), plain, atol=1e-12)
    assert_same_sets(est.transform(awkward_sets), plain, atol=1e-10)
    inner = TokenTransformer(PCA(2).set_output(transform=transform))
    assert_same_sets(inner.fit_transform(awkward_sets), plain, atol=1e-12)


def test_clone_and_pickle_keep_the_transformer(awkward_sets):
    est = TokenTransformer(PCA(2)).fit(awkward_sets)
    copy = pickle.loads(pickle.dumps(est))
    assert_same_sets(copy.transform(awkward_sets), est.transform(awkward_sets), rtol=0)
    fresh = clone(est).set_params(transformer__n_components=1)
    assert fresh.fit(awkward_sets).n_features_out_ == 1
    assert est.n_features_out_ == 2
    assert "transformer__whiten" in est.get_params()


def test_fit_writes_over_no_token_of_the_caller(awkward_sets):
    """Even where the transformer works in place: only its own fit_transform and transform may."""
    X = RaggedArray.from_list(awkward_sets)
    TokenTransformer(StandardScaler(copy=False)).fit(X)
    assert_array_equal(X.values, np.vstack(awkward_sets))


@transformers
def test_read_only_tokens_are_left_as_they_are(transformer, awkward_sets):
    X = RaggedArray.from_list(awkward_sets)
    X.values.setflags(write=False)
    TokenTransformer(transformer).fit_transform(X)
    SetPooler().fit_transform(X)
    assert_array_equal(X.values, np.vstack(awkward_sets))


def test_a_union_of_tokens_names_what_to_do(awkward_sets):
    union = FeatureUnion([("a", TokenTransformer(PCA(1))), ("b", TokenTransformer(PCA(2)))])
    with pytest.raises((TypeError, ValueError), match="RaggedArray|2D|dimension"):
        union.fit_transform(awkward_sets)


# SetPooler ------------------------------------------------------------------------------------

LOOP = {
    "mean": lambda tokens: tokens.mean(axis=0),
    "std": lambda tokens: tokens.std(axis=0),
    "min": lambda tokens: tokens.min(axis=0),
    "max": lambda tokens: tokens.max(axis=0),
    "sum": lambda tokens: tokens.sum(axis=0),
    "median": lambda tokens: np.median(tokens, axis=0),
    "count": lambda tokens: [len(tokens)],
}


def pool_in_a_loop(sets, statistics):
    """Rows (n_samples, k), set by set and statistic by statistic."""

    def pool(tokens, statistic):
        if len(tokens) == 0:
            return np.zeros(1 if statistic == "count" else tokens.shape[1])
        if statistic in LOOP:
            return LOOP[statistic](tokens)
        return np.quantile(tokens, statistic, axis=0, method="averaged_inverted_cdf")

    return np.array([np.concatenate([pool(t, s) for s in statistics]) for t in sets])


@pytest.mark.parametrize("statistic", [*STATISTICS, *QUANTILES])
def test_a_statistic_is_that_of_a_loop_over_sets(statistic, awkward_sets):
    out = SetPooler((statistic,)).fit_transform(awkward_sets)
    assert_allclose(out, pool_in_a_loop(awkward_sets, [statistic]), atol=1e-14)


@pytest.mark.parametrize("scale", [2.0**-1060, 1e-170, 1e-160, 1e155, 1e300])
def test_the_deviation_of_tokens_of_any_size_is_right(scale, awkward_sets):
    pooler = SetPooler(("std",))
    plain = pooler.fit_transform(awkward_sets)
    out = pooler.transform([tokens * scale for tokens in awkward_sets])
    smallest = np.nextafter(0, 1)
    assert_allclose(out, plain * scale, rtol=1e-12, atol=8 * smallest)
    mixed = pooler.transform([*awkward_sets, awkward_sets[0] * scale])
    assert_array_equal(mixed, np.vstack([plain, out[:1]]))


@pytest.mark.parametrize("k", [-300, 3, 300])
def test_the_deviation_has_the_same_bits_at_every_power_of_two(k, awkward_sets):
    pooler = SetPooler(("std",))
    out = pooler.fit_transform([np.ldexp(tokens, k) for tokens in awkward_sets])
    assert_array_equal(np.ldexp(out, -k), pooler.transform(awkward_sets))


def test_statistics_stand_side_by_side_in_the_order_asked_for(awkward_sets):
    for statistics in (ALL, ALL[::-1], SetPooler().statistics, ["count"], ("count", "mean")):
        out = SetPooler(statistics).fit_transform(awkward_sets)
        assert_allclose(out, pool_in_a_loop(awkward_sets, statistics), atol=1e-14)


@pytest.mark.parametrize("n", range(1, 12))
def test_quantiles_are_numpys_at_every_length(n, rng):
    tokens = rng.normal(size=(n, 2)).round(1)  # with ties
    quantiles = (1 / 3, *QUANTILES)
    out = SetPooler(quantiles).fit_transform([tokens, np.ones((20, 2))])[0]
    expected = np.quantile(tokens, quantiles, axis=0, method="averaged_inverted_cdf")
    assert_allclose(out, expected.ravel())


def test_a_share_reached_but_for_round_off_is_reached():
    tokens = np.arange(1.0, 101)[:, None]
    assert 0.29 * 100 < 29 and 0.07 * 100 > 7  # in floating point
    pooler = SetPooler((0.07, 0.29, np.nextafter(1, 0)))
    assert_array_equal(pooler.fit_transform([tokens]), [[7.5, 29.5, 100]])
    weighted = RaggedArray.from_list([tokens], [np.full(100, 0.1)])
    assert_array_equal(pooler.fit_transform(weighted), [[7.5, 29.5, 100]])


@pytest.mark.parametrize("scale", [1, 0.1, 1e6])
def test_quantiles_do_not_change_when_weights_are_scaled(scale, awkward_sets, rng):
    weights = [rng.integers(1, 4, size=len(tokens)) for tokens in awkward_sets]
    X = RaggedArray.from_list(awkward_sets, [scale * w for w in weights])
    expected = pool_in_a_loop(repeated(awkward_sets, weights), QUANTILES)
    assert_allclose(SetPooler(QUANTILES).fit_transform(X), expected, atol=1e-14)


@pytest.mark.parametrize("statistic", [*STATISTICS, *QUANTILES])
def test_whole_weights_are_repeats_in_every_statistic(statistic, awkward_sets, rng):
    weights = whole_weights(awkward_sets, rng)
    pooler = SetPooler((statistic,)).fit(awkward_sets)
    weighted = pooler.transform(RaggedArray.from_list(awkward_sets, weights))
    assert_allclose(weighted, pooler.transform(repeated(awkward_sets, weights)), atol=1e-13)


def test_a_token_of_weight_zero_is_absent():
    X = RaggedArray.from_list([[[1.0], [9.0]], [[5.0]]], [[1, 0], [0]])
    out = SetPooler(ALL).fit_transform(X)
    assert_allclose(out, pool_in_a_loop([np.ones((1, 1)), np.empty((0, 1))], ALL))


@pytest.mark.parametrize("n_features", [1, 3])
def test_a_sets_row_depends_on_no_other_set(n_features, rng):
    sets = [rng.normal(size=(n, n_features)) for n in (30, 0, 9, 30, 1, 200, 9)]
    pooler = SetPooler(ALL).fit(sets)
    out = pooler.transform(sets)
    for tokens, row in zip(sets, out, strict=True):
        assert_array_equal(pooler.transform([tokens])[0], row)  # to the last bit
    order = rng.permutation(len(sets))
    assert_array_equal(pooler.transform([sets[i] for i in order]), out[order])


def test_order_of_tokens_changes_nothing(awkward_sets, rng):
    pooler = SetPooler(ALL).fit(awkward_sets)
    shuffled = [rng.permutation(tokens) for tokens in awkward_sets]
    assert_allclose(pooler.transform(shuffled), pooler.transform(awkward_sets), atol=1e-14)


def test_blocks_of_any_size_give_the_same(awkward_sets, monkeypatch):
    whole = SetPooler(ALL).fit_transform(awkward_sets)
    monkeypatch.setattr("skattn.preprocessing._pooler.POOLED_AT_ONCE", 1)
    assert_array_equal(SetPooler(ALL).fit_transform(awkward_sets), whole)


@containers
def test_rows_are_the_same_from_every_container(container, awkward_sets):
    plain = SetPooler(ALL).fit_transform(awkward_sets)
    pooler = SetPooler(ALL)
    assert_array_equal(pooler.fit_transform(container(awkward_sets)), plain)
    assert pooler.n_features_in_ == 3


def test_a_table_is_one_token_a_row(rng):
    X = rng.normal(size=(5, 2))
    out = SetPooler(("mean", "std", 0.3, "count")).fit_transform(X)
    assert_allclose(out, np.hstack([X, np.zeros((5, 2)), X, np.ones((5, 1))]))


def test_empty_sets_have_rows_of_zeros_nan_or_none(awkward_sets):
    is_empty = np.array([len(tokens) == 0 for tokens in awkward_sets])
    zeros = SetPooler(ALL).fit_transform(awkward_sets)
    assert_array_equal(zeros[is_empty], 0)
    pooler = SetPooler(ALL, empty="nan")
    out = pooler.fit_transform(awkward_sets)
    assert_array_equal(out[~is_empty], zeros[~is_empty])
    names = pooler.get_feature_names_out()
    defined = [name.startswith(("sum", "count")) for name in names]
    assert_array_equal(
        np.isnan(out[is_empty]), np.broadcast_to(~np.array(defined), (2, len(names)))
    )
    with pytest.raises(ValueError, match=r"Sets \[1, 6\] have no tokens"):
        SetPooler(empty="error").fit(awkward_sets)
    pooler = SetPooler(empty="error").fit(awkward_sets[:1])
    with pytest.raises(ValueError, match=r"Sets \[0\] have no tokens"):
        pooler.transform([[], awkward_sets[0]])
    assert_array_equal(SetPooler().fit(awkward_sets).transform([[], []]), np.zeros((2, 13)))


def test_of_one_hot_items_every_statistic_follows_from_sum_and_count(rng):
    baskets = [np.eye(6)[rng.integers(0, 4, size=n)] for n in (1, 2, 5, 30, 4)]
    baskets += [np.eye(6)[[3, 3, 3]], np.eye(6)[:0]]

    def of(*statistics):
        return SetPooler(statistics).fit_transform(baskets)

    total, count = np.split(of("sum", "count"), [6], axis=1)
    mean = total / np.maximum(count, 1)
    assert_allclose(of("mean"), mean)
    assert_allclose(of("std"), np.sqrt(mean * (1 - mean)), atol=1e-15)
    assert_array_equal(of("max"), total > 0)
    assert_array_equal(of("min"), (total == count) & (count > 0))


def test_float32_stays_and_is_summed_in_float64(rng):
    sets = [(rng.normal(size=(n, 2)) + 1000).astype(np.float32) for n in (50_000, 3)]
    out = SetPooler(ALL).fit_transform(sets)
    assert out.dtype == np.float32
    double = SetPooler(ALL).fit_transform([tokens.astype(np.float64) for tokens in sets])
    assert double.dtype == np.float64
    assert_allclose(out, double, rtol=1e-7)


def test_names_say_statistic_and_feature(rng):
    pooler = SetPooler(("mean", 0.25, "count", "max", np.float32(0.5))).fit([np.ones((2, 2))])
    expected = "mean_x0 mean_x1 q0.25_x0 q0.25_x1 count max_x0 max_x1 q0.5_x0 q0.5_x1"
    assert pooler.get_feature_names_out().tolist() == expected.split()
    assert pooler.get_feature_names_out(["a", "b"])[1] == "mean_b"
    assert pooler.get_feature_names_out(["bag"])[1] == "mean_x1"
    with pytest.raises(ValueError, match="length equal to number of features"):
        pooler.get_feature_names_out(["a", "b", "c"])
    pooler.fit(pd.DataFrame(rng.normal(size=(4, 2)), columns=["mass", "charge"]))
    assert pooler.get_feature_names_out()[:2].tolist() == ["mean_mass", "mean_charge"]
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        pooler.get_feature_names_out(["a", "b"])


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"statistics": "mean"}, TypeError, "statistics must be a tuple or list.*'mean'"),
        ({"statistics": 0.5}, TypeError, "statistics must be a tuple or list"),
        ({"statistics": ()}, ValueError, "statistics is empty"),
        ({"statistics": ("mean", "mode")}, ValueError, "statistics has 'mode'"),
        ({"statistics": (1,)}, ValueError, "statistics has 1, but each must be one of"),
        ({"statistics": (True,)}, ValueError, "statistics has True"),
        ({"statistics": (["mean"],)}, ValueError, r"statistics has \['mean'\]"),
        ({"statistics": (1.0,)}, ValueError, "quantile 1.0.*'min' and 'max'"),
        ({"statistics": (float("nan"),)}, ValueError, "quantile nan"),
        ({"statistics": ("mean", "mean")}, ValueError, "has an entry twice"),
        ({"empty": None}, ValueError, "empty must be one of"),
        ({"empty": "zero"}, ValueError, "empty must be one of"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(params, error, message, awkward_sets):
    with pytest.raises(error, match=message):
        SetPooler(**params).fit(awkward_sets)


def test_pooler_refuses_other_features_and_none(awkward_sets):
    pooler = SetPooler().fit(awkward_sets)
    with pytest.raises(ValueError, match="X has 2 features, but SetPooler is expecting 3"):
        pooler.transform([np.ones((2, 2))])
    with pytest.raises(ValueError, match=r"Found tokens with 0 feature\(s\)"):
        pooler.fit([[], []])
    with pytest.raises(NotFittedError):
        SetPooler().transform(awkward_sets)
    with pytest.raises(NotFittedError):
        SetPooler().get_feature_names_out()


def test_clone_and_pickle_of_the_pooler(awkward_sets):
    pooler = SetPooler(ALL, empty="nan").fit(awkward_sets)
    copy = pickle.loads(pickle.dumps(pooler))
    assert_array_equal(copy.transform(awkward_sets), pooler.transform(awkward_sets))
    assert clone(pooler).get_params() == {"statistics": ALL, "empty": "nan"}


# In scikit-learn's company --------------------------------------------------------------------

NOT_AN_ARRAY = "compares outputs as arrays, but the output is a RaggedArray whatever X is"
RAGGED_OUTPUT = {
    name: NOT_AN_ARRAY
    for name in (
        "check_estimators_pickle",
        "check_fit_idempotent",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_pipeline_consistency",
        "check_sample_weight_equivalence_on_dense_data",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
    )
}


class OneTokenRows(TokenTransformer):
    """A TokenTransformer whose output is an array, as that of one-token sets may be."""

    def transform(self, X):
        return super().transform(X).values

    def fit_transform(self, X, y=None, *, sample_weight=None):
        return super().fit_transform(X, y, sample_weight=sample_weight).values

    def _is_ragged_out(self):
        return False


@pytest.mark.parametrize(
    ("estimator", "expected_failures", "at_least"),
    [
        (SetPooler(), {}, 46),
        (SetPooler(("median", 0.25, "sum", "count"), empty="error"), {}, 46),
        (TokenTransformer(StandardScaler()), RAGGED_OUTPUT, 43),
        (OneTokenRows(StandardScaler()), {}, 53),
        (
            OneTokenRows(PCA(1)),
            {"check_sample_weight_equivalence_on_dense_data": "PCA takes no sample_weight"},
            52,
        ),
    ],
    ids=["pooler", "quantiles", "ragged", "scaler", "pca"],
)
def test_scikit_learns_common_checks_really_run(estimator, expected_failures, at_least):
    """A dense array is one-token sets, so the checks for dense data run.

    Those that compare outputs as arrays run on a subclass that hands out the rows.
    """
    results = check_estimator(
        estimator, expected_failed_checks=expected_failures, on_skip=None, on_fail=None
    )
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
    expected = {r["check_name"] for r in results if r["status"] == "xfail"}
    assert expected == set(expected_failures)
    assert sum(r["status"] == "passed" for r in results) >= at_least


def test_sample_weights_are_routed(awkward_sets):
    with config_context(enable_metadata_routing=True):
        step = TokenTransformer(StandardScaler()).set_fit_request(sample_weight=True)
        model = make_pipeline(step, SetPooler(("mean",)))
        weights = np.array([2, 1, 0, 3, 1, 0, 1])
        model.fit(awkward_sets, sample_weight=weights)
    direct = TokenTransformer(StandardScaler()).fit(awkward_sets, sample_weight=weights)
    assert_allclose(model[0].transformer_.mean_, direct.transformer_.mean_)


def contextualizer(**params):
    """A small model after a few steps of training."""
    return AttentionContextualizer(n_heads=1, d_k=2, d_v=2, max_iter=5, random_state=0, **params)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("container", [list, RaggedArray.from_list, cells])
def test_grid_search_over_the_parameters_of_the_token_transformer(container, bags):
    sets, y = bags
    model = make_pipeline(
        TokenTransformer(StandardScaler()), contextualizer(), LogisticRegression()
    )
    grid = [
        {"tokentransformer__transformer__with_mean": [True, False]},
        {"tokentransformer__transformer": [PCA(2), Nystroem(n_components=4, random_state=0)]},
    ]
    search = GridSearchCV(model, grid, cv=3, error_score="raise").fit(container(sets), y)
    assert search.best_score_ > 0.8
    assert search.best_estimator_.score(container(sets), y) > 0.8


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_target_per_token_passes_through_a_pipeline(bags):
    sets, _ = bags
    y = [tokens[:, 0] for tokens in sets]
    recorder = make_pipeline(TokenTransformer(StandardScaler()), Recording()).fit(sets, y)[-1]
    assert recorder.y_ is y


class Recording(BaseEstimator):
    """Remembers the y that a pipeline hands on."""

    def fit(self, X, y=None):
        self.y_ = y
        return self


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_pooled_statistics_beside_contextual_vectors(bags):
    sets, y = bags
    union = FeatureUnion([("stats", SetPooler()), ("attention", contextualizer())])
    model = make_pipeline(TokenTransformer(StandardScaler()), union, LogisticRegression())
    assert cross_val_score(model, sets, y, cv=3, error_score="raise").mean() > 0.8
    out = union.fit_transform(sets, y)
    assert_array_equal(out[:, :13], SetPooler().fit_transform(sets))
    names = union.get_feature_names_out()
    assert len(names) == out.shape[1]
    assert names[0] == "stats__mean_x0"
    frame = union.set_output(transform="pandas").fit_transform(pd.Series(cells(sets)), y)
    assert frame.columns.tolist() == names.tolist()
    assert_array_equal(frame.to_numpy(), out)


def test_a_column_of_sets_beside_a_column_of_numbers(awkward_sets):
    index = [5, 3, 1, 0, 2, 4, 6]
    frame = pd.DataFrame({"bag": cells(awkward_sets), "v": np.arange(7.0)}, index=index)
    table = ColumnTransformer([("bag", SetPooler(), "bag"), ("v", StandardScaler(), ["v"])])
    out = table.fit_transform(frame)
    assert_array_equal(out[:, :-1], SetPooler().fit_transform(awkward_sets))
    named = table.set_output(transform="pandas").fit_transform(frame)
    assert named.index.tolist() == index
    assert named.columns.tolist() == table.get_feature_names_out().tolist()
    assert named.columns[0] == "bag__mean_x0"
    assert_array_equal(named.to_numpy(), out)
    piped = make_pipeline(TokenTransformer(PCA(2)), SetPooler(("mean", "count")))
    table = ColumnTransformer([("bag", piped, "bag")]).set_output(transform="pandas")
    named = table.fit_transform(frame)
    assert named.columns.tolist() == ["bag__mean_pca0", "bag__mean_pca1", "bag__count"]
    # the tokens in between have no index to keep
    assert_array_equal(named["bag__count"], [len(tokens) for tokens in awkward_sets])


@pytest.mark.parametrize("form", [lambda s: s, lambda s: s.to_frame("bag"), list])
def test_pooled_frames_keep_the_index(form, awkward_sets):
    series = pd.Series(cells(awkward_sets), index=list("gfedcba"))
    pooler = SetPooler(("mean", "count")).set_output(transform="pandas")
    out = pooler.fit_transform(form(series))
    expected = list(range(7)) if form is list else list("gfedcba")
    assert out.index.tolist() == expected
    assert pooler.transform(form(series)).index.tolist() == expected
    assert out.columns.tolist() == ["mean_x0", "mean_x1", "mean_x2", "count"]


def test_polars_output_has_the_names(awkward_sets):
    pytest.importorskip("polars", reason="polars is not installed")
    out = SetPooler().set_output(transform="polars").fit_transform(awkward_sets)
    assert out.columns == SetPooler().fit(awkward_sets).get_feature_names_out().tolist()
