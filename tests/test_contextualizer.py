"""AttentionContextualizer: its parameters, the formula, and the manners of an estimator."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import sklearn
from models import (
    Y,
    assert_same_fit,
    fitted,
    lone_tokens,
    raw_prediction,
    small,
    unfinished,
)
from numpy.testing import assert_allclose, assert_array_equal
from reference import LENGTHS
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skattn import (
    AttentionContextualizer,
    RaggedArray,
)
from skattn.pooling import POOLINGS, MeanPooling, StatsPooling, SumPooling

# Parameters are looked at in fit


@pytest.mark.parametrize(
    ("name", "value", "error", "match"),
    [
        ("n_heads", 0, ValueError, "n_heads must be 1 or more, but is 0"),
        ("n_heads", 2.0, TypeError, "n_heads must be an integer, but is 2.0"),
        ("n_heads", True, TypeError, "n_heads must be an integer"),
        ("d_k", -1, ValueError, "d_k must be 1 or more"),
        ("d_k", "8", TypeError, "d_k must be an integer, but is '8'"),
        ("d_v", None, TypeError, "d_v must be an integer, but is None"),
        ("d_v", 0, ValueError, "d_v must be 1 or more"),
        ("pooling", "median", ValueError, "pooling must be one of .*'mean'.*'median'"),
        (
            "pooling",
            3,
            TypeError,
            "pooling must be one of .*, but is 3, which lacks shapes",
        ),
        ("mask", "upper", ValueError, "mask must be one of .*'causal'.*'upper'"),
        ("mask", np.eye(2), TypeError, "which lacks allowed"),
        ("scale", "big", TypeError, "scale must be a number"),
        ("scale", np.inf, ValueError, "scale must be finite"),
        ("loss", "hinge", ValueError, "loss must be one of .*'auto'.*'hinge'"),
        ("loss", None, ValueError, "loss must be one of"),
        ("alpha", -1e-3, ValueError, "alpha must be finite and 0 or more, but is -0.001"),
        ("alpha", np.nan, ValueError, "alpha must be finite"),
        ("alpha", None, TypeError, "alpha must be a number, but is None"),
        ("alpha", [0.1], TypeError, "alpha must be a number"),
        ("class_weight", "even", ValueError, "class_weight"),
        ("class_weight", {5: 1.0}, ValueError, "class"),
        ("init", "zeros", ValueError, "init must be one of .*'tied'.*'zeros'"),
        ("init", np.eye(3), TypeError, "init must be one of .* dict of arrays.*ndarray"),
        ("init", {"W_X": np.eye(3)}, ValueError, "init has an array 'W_X'.*'W_Q'"),
        (
            "init",
            {"W_Q": np.eye(3)},
            ValueError,
            r"W_Q to start from has shape \(3, 3\), but must have \(3, 4\): 3 features, 2 heads",
        ),
        ("solver", "adam", ValueError, "solver must be one of .*'lbfgs'.*'adam'"),
        ("solver", None, ValueError, "solver must be one of"),
        ("max_iter", -1, ValueError, "max_iter must be 0 or more"),
        ("max_iter", 10.0, TypeError, "max_iter must be an integer"),
        ("tol", -1.0, ValueError, "tol must be finite and 0 or more"),
        ("tol", "small", ValueError, "tol must be one of .*'auto'"),
        ("empty", "skip", ValueError, "empty must be one of .*'zeros'.*'skip'"),
        ("empty", None, ValueError, "empty must be one of"),
        ("random_state", "seed", (TypeError, ValueError), "seed|random_state"),
        ("random_state", -1, ValueError, "non-negative|random_state"),
    ],
)
def test_a_parameter_that_means_nothing_is_refused_in_fit(sets, name, value, error, match):
    model = small(**{name: value})  # the constructor takes anything
    assert getattr(model, name) is value
    with pytest.raises(error, match=match):
        model.fit(sets, Y["log_loss"])
    assert not hasattr(model, "W_Q_")


@pytest.mark.parametrize("value", [np.int64(2), np.int8(2)])
def test_numpy_numbers_are_numbers(sets, value):
    model = small(n_heads=value, max_iter=value, alpha=np.float32(0.1), tol=np.float64(10))
    assert model.fit(sets, Y["log_loss"]).transform(sets).shape == (12, 8)


def test_every_parameter_has_a_default_and_a_docstring():
    names = AttentionContextualizer().get_params()
    for name in names:
        assert f"{name} : " in AttentionContextualizer.__doc__
    assert clone(AttentionContextualizer(n_heads=3)).n_heads == 3
    with pytest.raises(TypeError):
        AttentionContextualizer(4)


# What fit takes


def test_sets_of_one_token_each_are_warned_about(rng):
    X, y = rng.normal(size=(12, 3)), Y["log_loss"]
    with pytest.warns(UserWarning, match=r"more than one token.*identity.*pass it as \[X\]"):
        small(max_iter=0).fit(X, y)


@pytest.mark.parametrize("method", ["transform", "contextualize", "attention_weights"])
def test_nothing_is_transformed_before_fit(sets, method):
    with pytest.raises(NotFittedError):
        getattr(small(), method)(sets)
    with pytest.raises(NotFittedError):
        small().get_feature_names_out()


@pytest.mark.parametrize("method", ["transform", "contextualize", "attention_weights"])
@pytest.mark.parametrize("form", [list, lambda X: X[0], RaggedArray.from_list])
def test_sets_of_another_width_are_refused(sets, method, form, rng):
    model = fitted(sets, rng)
    X = form([rng.normal(size=(2, 5)), rng.normal(size=(3, 5))])
    with pytest.raises(ValueError, match="5 features, but AttentionContextualizer is expecting 3"):
        getattr(model, method)(X)


# The formula


def test_without_learning_it_is_the_textbook_formula(seed_tokens):
    formula = AttentionContextualizer(
        n_heads=1,
        d_k=2,
        d_v=2,
        init="identity",
        standardize=False,
        score_statistics=False,
        max_iter=0,
        pooling=None,
    ).fit([seed_tokens])
    expected = [[0.654218, 0.628224], [0.601719, 0.645381], [0.155590, 0.789868]]
    assert_allclose(formula.transform([seed_tokens])[0], expected, atol=5e-7)
    cat = formula.attention_weights([seed_tokens])[0][0, 0]
    assert_allclose(cat, [0.432425, 0.388908, 0.178667], atol=5e-7)


@pytest.mark.parametrize("name", POOLINGS)
def test_pooled_outputs_are_the_pooling_of_token_outputs(sets, rng, name):
    model = fitted(sets, rng, pooling=name)
    tokens = model.contextualize(sets)
    assert isinstance(tokens, RaggedArray)
    expected, _ = POOLINGS[name]().forward(model.pooling_params_, tokens)
    assert_allclose(model.transform(sets), expected, rtol=1e-12, atol=1e-12)


def test_score_statistics_are_extra_columns(sets, rng):
    full = fitted(sets, np.random.default_rng(0), pooling=None)
    bare = fitted(sets, np.random.default_rng(0), pooling=None, score_statistics=False)
    assert full.transform(sets).n_features == 2 * (2 + 2)
    assert bare.transform(sets).n_features == 2 * 2
    assert_allclose(bare.transform(sets).values, full.transform(sets).values[:, :4], rtol=1e-12)


def test_asking_for_weights_changes_nothing(sets, rng):
    model = fitted(sets, rng)
    before, state = model.transform(sets), pickle.dumps(model)
    weights = model.attention_weights(sets)
    model.contextualize(sets)
    assert_array_equal(model.transform(sets), before)
    assert pickle.dumps(model) == state
    assert [A.shape for A in weights] == [(2, n, n) for n in LENGTHS]
    for A in weights:
        assert_allclose(A.sum(axis=-1), 1, rtol=1e-12)


def test_weights_that_take_too_much_memory_are_refused(sets, rng, monkeypatch):
    model = fitted(sets, rng)
    n_bytes = 2 * 8 * sum(n * n for n in LENGTHS)
    monkeypatch.setattr("skattn._network.WEIGHTS_LIMIT", n_bytes)
    assert len(model.attention_weights(sets)) == 12
    monkeypatch.setattr("skattn._network.WEIGHTS_LIMIT", n_bytes - 1)
    with pytest.raises(ValueError, match="12 sets, the longest of 9 tokens.*fewer sets at a time"):
        model.attention_weights(sets)


@unfinished
def test_a_pooling_may_be_an_instance_or_one_of_your_own(sets):
    class Mean:  # not of the table, and without the shortcut of linear poolings
        def n_features_out(self, n_features):
            return n_features

        def shapes(self, n_features):
            return {}

        def init_params(self, n_features, rng):
            return {}

        def forward(self, params, tokens):
            pooled, (tokens, p) = MeanPooling().forward(params, tokens)
            return pooled, (tokens, p)

        def backward(self, params, cache, d_pooled):
            return MeanPooling().backward(params, cache, d_pooled)

    named = small(max_iter=5).fit(sets, Y["log_loss"])
    assert_same_fit(named, small(max_iter=5, pooling=MeanPooling()).fit(sets, Y["log_loss"]))
    own = small(max_iter=5, pooling=Mean()).fit(sets, Y["log_loss"])
    assert_allclose(own.transform(sets), named.transform(sets), rtol=1e-7, atol=1e-9)
    assert_allclose(own.loss_curve_[0], named.loss_curve_[0], rtol=1e-12)


# Manners of a scikit-learn estimator


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@unfinished
def test_fit_transform_is_fit_and_transform(sets, pooling):
    weight = np.linspace(0.5, 2, 12)
    one = small(pooling=pooling, max_iter=3).fit_transform(
        sets, Y["log_loss"], sample_weight=weight
    )
    model = small(pooling=pooling, max_iter=3).fit(sets, Y["log_loss"], sample_weight=weight)
    two = model.transform(sets)
    if pooling is None:
        assert_array_equal(one.offsets, two.offsets)
        one, two = one.values, two.values
    assert_array_equal(one, two)


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("score_statistics", [True, False])
def test_feature_names_are_as_many_as_columns(sets, pooling, score_statistics):
    model = small(pooling=pooling, score_statistics=score_statistics, max_iter=0).fit(sets)
    names, out = model.get_feature_names_out(), model.transform(sets)
    assert len(set(names)) == len(names) == out.shape[-1]
    assert names[0] == "attentioncontextualizer0"


@pytest.mark.parametrize("how", ["set_output", "config_context"])
@pytest.mark.parametrize("transform", ["pandas", "default"])
def test_pooled_outputs_are_wrapped_as_asked(sets, rng, how, transform):
    pd = pytest.importorskip("pandas")
    model = fitted(sets, rng)
    plain = model.transform(sets)
    if how == "set_output":
        out = model.set_output(transform=transform).transform(sets)
    else:
        with sklearn.config_context(transform_output=transform):
            out = model.transform(sets)
    assert isinstance(out, pd.DataFrame if transform == "pandas" else np.ndarray)
    assert_array_equal(np.asarray(out), plain)
    if transform == "pandas":
        assert list(out.columns) == list(model.get_feature_names_out())


@pytest.mark.parametrize("how", ["set_output", "config_context"])
@pytest.mark.parametrize("method", ["transform", "fit_transform"])
@pytest.mark.parametrize("transform", ["pandas", "polars", "default"])
def test_token_outputs_are_never_wrapped(sets, how, method, transform):
    model = small(pooling=None, max_iter=0)
    if how == "set_output":
        model.set_output(transform=transform)
    setting = {} if how == "set_output" else {"transform_output": transform}
    with sklearn.config_context(**setting):
        if method == "transform":
            out = model.fit(sets, Y["log_loss"]).transform(sets)
        else:
            out = model.fit_transform(sets, Y["log_loss"])
    assert isinstance(out, RaggedArray)
    assert_array_equal(out.lengths, LENGTHS)


def test_a_subclass_keeps_these_manners(sets, rng):
    pytest.importorskip("pandas")

    class Doubled(AttentionContextualizer):
        def transform(self, X):
            out = super().transform(X)
            return out.with_values(2 * out.values) if self.pooling is None else 2 * out

    for pooling in ("mean", None):
        params = {"pooling": pooling, "max_iter": 0, "random_state": 0}
        plain = AttentionContextualizer(**params).fit(sets).transform(sets)
        out = Doubled(**params).set_output(transform="pandas").fit(sets).transform(sets)
        if pooling is None:
            assert_array_equal(out.values, 2 * plain.values)
        else:
            assert_array_equal(out.to_numpy(), 2 * plain)
            assert out.columns[0] == "doubled0"


@pytest.mark.parametrize("pooling", ["mean", "attention", None, StatsPooling()], ids=str)
@unfinished
def test_it_survives_pickle_and_clone(sets, pooling):
    model = small(pooling=pooling, max_iter=3, init={"b_V": np.ones(4)}).fit(sets, Y["log_loss"])
    again = pickle.loads(pickle.dumps(model))
    assert_same_fit(model, again)
    outs = [m.transform(sets) for m in (model, again)]
    assert_array_equal(*[out.values if pooling is None else out for out in outs])
    fresh = clone(model)
    assert not hasattr(fresh, "W_Q_")
    assert fresh.get_params().keys() == model.get_params().keys()
    assert_same_fit(model, fresh.fit(sets, Y["log_loss"]))


@unfinished
def test_fit_changes_no_parameter(sets):
    init = {"W_V": np.ones((3, 4))}
    model = small(init=init, pooling="attention", max_iter=2, class_weight={0: 1.0, 1: 2.0})
    before = model.get_params()
    model.fit(sets, Y["log_loss"]).transform(sets)
    assert all(model.get_params()[name] is value for name, value in before.items())


@lone_tokens
def test_a_frame_of_numbers_has_named_features(rng):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(rng.normal(size=(12, 3)), columns=["a", "b", "c"])
    model = small(max_iter=0).fit(frame, Y["log_loss"])
    assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
    assert model.n_features_in_ == 3
    assert_array_equal(model.transform(frame), model.transform(frame.to_numpy().tolist()))
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(frame[["b", "a", "c"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.transform(frame.to_numpy())
    model.fit(frame.to_numpy(), Y["log_loss"])
    assert not hasattr(model, "feature_names_in_")
    model.fit(frame, Y["log_loss"]).fit([frame.to_numpy()] * 12, Y["log_loss"])
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("n_features", [1, 2])
def test_the_name_of_a_column_of_sets_is_no_name_of_a_feature(n_features, rng):
    pd = pytest.importorskip("pandas")
    cells = [rng.normal(size=(n + 1, n_features)) for n in LENGTHS]
    frame = pd.DataFrame({"bag": pd.Series(cells)})
    model = small(max_iter=0).fit(frame, Y["log_loss"])
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == n_features
    for X in (cells, frame["bag"], frame, frame.rename(columns={"bag": "basket"})):
        assert_array_equal(model.transform(X), model.transform(frame))


# Real use, in small


def test_it_learns_what_averages_cannot_say():
    rng = np.random.default_rng(0)
    X = [rng.choice([-1.0, 1.0], size=(2, 1)) for _ in range(120)]
    y = np.array([int(tokens[0, 0] == tokens[1, 0]) for tokens in X])
    X = [np.column_stack([tokens, 0.1 * rng.normal(size=(2, 2))]) for tokens in X]
    model = small(alpha=1e-3, max_iter=300, tol=1e-3).fit(X[:80], y[:80])
    assert model.converged_
    assert np.mean((raw_prediction(model, X[80:])[:, 0] > 0) == y[80:]) > 0.95


@dataclass(frozen=True)
class Twice(SumPooling):
    def token_weights(self, tokens):
        return 2 * super().token_weights(tokens)


def test_a_pooling_of_ones_own_is_taken_as_it_is(sets):
    model = small(max_iter=0, pooling=Twice()).fit(sets, Y["log_loss"])
    plain = small(max_iter=0, pooling="sum").fit(sets, Y["log_loss"])
    assert_allclose(model.transform(sets), 2 * plain.transform(sets), rtol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"mask": "causal"},
        {"pooling": "stats"},
        {"pooling": "attention"},
        {"pooling": None},
        {"n_heads": 1},
        {"scale": 3.0},
        {"score_statistics": False},
        {"standardize": False},
        {"alpha": 7.0},
    ],
    ids=str,
)
@unfinished
def test_set_params_is_for_the_next_fit(sets, change):
    model = small(max_iter=6).fit(sets, Y["log_loss"])
    before = model.transform(sets)
    model = pickle.loads(pickle.dumps(model)).set_params(**change)
    assert_array_equal(model.transform(sets), before)
