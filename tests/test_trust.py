"""No silent wrong number: failed fits, names that clash, masks and warnings at their edges."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skattn import AttentionClassifier, AttentionContextualizer, SetPooler
from skattn._objective import LongFitWarning
from skattn.inspection import attention_diagnostics
from skattn.losses import LogLoss
from skattn.masks import Mask
from skattn.pipelines import SetStackClassifier
from skattn.pooling import AttentionPooling

SMALL = {"n_heads": 2, "d_k": 2, "d_v": 2, "max_iter": 3, "tol": None, "random_state": 0}


@pytest.fixture
def y(sets):
    return np.array(["a", "b"])[np.arange(len(sets)) % 2]


def bad_refits(sets, y):
    """Refits that raise, early and late."""
    return {
        "width": ([tokens[:, :0] for tokens in sets], y),
        "one class": (sets, np.full(len(sets), "z")),
        "too few labels": (sets, np.array(["x", "y"])),
        "infinity": ([tokens / 0 if i == 4 else tokens for i, tokens in enumerate(sets)], y),
    }


@pytest.mark.parametrize("bad", ["width", "one class", "too few labels", "infinity"])
@pytest.mark.filterwarnings("ignore:divide by zero|invalid value")
def test_a_refit_that_fails_leaves_the_model_before(sets, y, bad):
    stack = SetStackClassifier(
        [("means", make_pipeline(SetPooler(["mean"]), LogisticRegression()))], cv=2
    )
    for model in (AttentionClassifier(**SMALL), stack):
        state = dict(vars(model.fit(sets, y)))
        said = model.predict_proba(sets)
        with pytest.raises(ValueError):
            model.fit(*bad_refits(sets, y)[bad])
        assert_array_equal(model.predict_proba(sets), said)
        assert vars(model).keys() == state.keys()
        assert all(vars(model)[name] is value for name, value in state.items())


@dataclass(frozen=True)
class Interrupting(LogLoss):
    def loss_gradient(self, y_true, raw_prediction, sample_weight):
        raise KeyboardInterrupt


def test_an_interrupt_before_the_first_value_leaves_the_model_before(sets, y):
    model = AttentionClassifier(**SMALL).fit(sets, y)
    said, loss = model.predict_proba(sets), model.loss_
    with pytest.raises(KeyboardInterrupt):
        model.set_params(loss=Interrupting()).fit(sets, y)
    assert_array_equal(model.predict_proba(sets), said)
    assert model.loss_ == loss


def test_attributes_of_a_subclass_outlive_the_fit(sets, y):
    class Noting(AttentionClassifier):
        def fit(self, X, y, sample_weight=None):
            self.seen_ = len(y)
            return super().fit(X, y, sample_weight=sample_weight)

    model = Noting(**SMALL).fit(sets, y).fit(sets[1:], y[1:])
    assert model.seen_ == 11


class Named:
    """Attention pooling whose query has a name of one's own."""

    def __init__(self, name):
        self.name = name

    def n_features_out(self, n_features):
        return n_features

    def shapes(self, n_features):
        return {self.name: (n_features,)}

    def init_params(self, n_features, rng):
        return {self.name: np.zeros(n_features)}

    def forward(self, params, tokens):
        return AttentionPooling().forward({"q": params[self.name]}, tokens)

    def backward(self, params, cache, d_pooled):
        d_tokens, grads = AttentionPooling().backward({"q": params[self.name]}, cache, d_pooled)
        return d_tokens, {self.name: grads["q"]}


@pytest.mark.parametrize("name", ["b_V", "W_V", "coef", "intercept"])
def test_layers_do_not_share_the_name_of_a_parameter(sets, y, name):
    with pytest.raises(ValueError, match=f"names? a parameter '{name}'"):
        AttentionClassifier(**SMALL, pooling=Named(name)).fit(sets, y)
    AttentionClassifier(**SMALL, pooling=Named("mine")).fit(sets, y)


@dataclass(frozen=True)
class AllOf(Mask):
    attends_to = "all {braces}"

    def allowed(self, i, j):
        return None


@dataclass(frozen=True)
class FirstTwo(Mask):
    def allowed(self, i, j):
        return j < 2


def test_a_mask_may_allow_all_or_give_what_broadcasts(sets, y):
    plain = AttentionClassifier(**SMALL).fit(sets, y)
    every = AttentionClassifier(**SMALL, mask=AllOf()).fit(sets, y)
    assert_array_equal(every.coef_, plain.coef_)
    flat = AttentionClassifier(**SMALL | {"max_iter": 0}, mask=AllOf(), scale=0.0).fit(sets, y)
    assert "all {braces}" in " ".join(attention_diagnostics(flat, sets)["advice"])
    first = AttentionContextualizer(**SMALL, mask=FirstTwo()).fit(sets, y)
    for tokens, weights in zip(sets, first.attention_weights(sets), strict=True):
        assert np.all(weights[:, :, 2:] == 0)
        assert weights.shape == (2, len(tokens), len(tokens))


@pytest.mark.parametrize("solver", ["lbfgs", "cg", "newton-cg"])
def test_a_long_fit_is_blamed_on_the_line_that_started_it(sets, y, solver, monkeypatch):
    monkeypatch.setattr("skattn._objective.LONG_FIT", 0.0)
    with pytest.warns(LongFitWarning) as caught:
        AttentionClassifier(**SMALL, solver=solver).fit(sets, y)
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("name", ["alpha", "scale", "n_jobs"])
def test_a_truth_value_is_no_number(sets, y, name):
    with pytest.raises(TypeError, match=f"{name} must be"):
        AttentionClassifier(**SMALL, **{name: True}).fit(sets, y)
