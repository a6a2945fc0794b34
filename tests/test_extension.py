"""A loss, a pooling, a mask and an attention of one's own: a class and a row of a table each."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from models import pair_of, small, unfinished
from numpy.testing import assert_allclose, assert_array_equal
from reference import check_gradient, layer, make_objective, penalised_loss
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skattn import (
    AttentionContextualizer,
    AttentionContextualizerCV,
    AttentionRegressor,
    RaggedArray,
)
from skattn.attention import ATTENTIONS, Attention
from skattn.inspection import attention_diagnostics, attention_frame, token_importance
from skattn.losses import LOSSES, SquaredError, _Elementwise
from skattn.masks import MASKS, Mask, mask_of
from skattn.pooling import POOLINGS, MeanPooling, _WithoutParameters

pytestmark = unfinished


@dataclass(frozen=True)
class LogCosh(_Elementwise):
    """log cosh(raw - y): quadratic near the target, linear far from it."""

    scales_target = True

    def _elements(self, y, raw):
        error = raw - y
        return np.logaddexp(error, -error) - np.log(2), np.tanh(error)


@dataclass(frozen=True)
class RootMeanSquare(_WithoutParameters):
    """The root of the weighted mean square of each feature in each set."""

    def n_features_out(self, n_features):
        return n_features

    def token_shares(self, params, tokens):
        return MeanPooling().token_shares(params, tokens)

    def forward(self, params, tokens):
        squares, (_, p) = MeanPooling().forward(params, tokens.with_values(tokens.values**2))
        root = np.sqrt(squares)
        return root, (tokens, p, root)

    def backward(self, params, cache, d_pooled):
        tokens, p, root = cache
        slope = np.divide(d_pooled, root, out=np.zeros_like(root), where=root > 0)
        return p[:, None] * tokens.values * tokens.repeat(slope), {}


@dataclass(frozen=True)
class Window(Mask):
    """Token i attends to itself and to its neighbours up to a distance."""

    width: int = 1
    attends_to = "its neighbours"

    def allowed(self, i, j):
        return abs(i - j) <= self.width


@dataclass(frozen=True)
class Tempered(Attention):
    """Attention with a learned temperature: head h has the scores Q K^T scale exp(t_h)."""

    def shapes(self, n_features):
        return super().shapes(n_features) | {"log_temperature": (self.n_heads,)}

    def init_params(self, n_features, rng, init="tied"):
        start = super().init_params(n_features, rng, init)
        return start | {"log_temperature": np.zeros(self.n_heads)}

    def _tempered(self, params):
        factor = np.repeat(np.exp(params["log_temperature"]), self.d_k)
        return params | {"W_Q": params["W_Q"] * factor}, factor

    def fold(self, params, dtype):
        return super().fold(self._tempered(params)[0], dtype)

    def unfold(self, params, d_folded):
        params, factor = self._tempered(params)
        grads = super().unfold(params, d_folded)
        if "W_Q" not in grads:  # the scores are not learned
            return grads | {"log_temperature": np.zeros(self.n_heads)}
        by_head = (grads["W_Q"] * params["W_Q"]).sum(axis=0).reshape(self.n_heads, self.d_k)
        scaled = {"W_Q": grads["W_Q"] * factor, "log_temperature": by_head.sum(axis=1)}
        return grads | scaled


TABLES = {"loss": LOSSES, "pooling": POOLINGS, "mask": MASKS, "attention": ATTENTIONS}
OWN = {"loss": LogCosh, "pooling": RootMeanSquare, "mask": Window, "attention": Tempered}
NAMES = {parameter: f"own {parameter}" for parameter in OWN}
CHOICES = {**{parameter: {parameter: NAMES[parameter]} for parameter in OWN}, "all": NAMES}


@pytest.fixture(autouse=True)
def own_rows(monkeypatch):
    """A row for each class in its table."""
    for parameter, table in TABLES.items():
        monkeypatch.setitem(table, NAMES[parameter], OWN[parameter])


@pytest.fixture(params=CHOICES)
def choice(request):
    """Parameters that choose one piece of one's own, or all of them."""
    return CHOICES[request.param]


@pytest.fixture
def y(sets):
    return np.array([tokens.sum() for tokens in sets])


def regressor(**params):
    settings = {"n_heads": 2, "d_k": 2, "d_v": 2, "alpha": 0.1, "max_iter": 4, "random_state": 0}
    return AttentionRegressor(**settings | params)


def pooled_by_loop(model, sets):
    """What the head reads, set by set, by the formula."""
    params = {name: getattr(model, name + "_") for name in ("W_Q", "W_K", "W_V", "b_V")}
    temperature = np.exp(getattr(model, "log_temperature_", np.zeros(2)))
    params["W_Q"] = params["W_Q"] * np.repeat(temperature, model.d_k)
    mask = Window() if model.mask == NAMES["mask"] else model.mask
    rows = np.zeros((len(sets), 8))
    for row, X in zip(rows, sets, strict=True):
        if len(X):
            X = (X - model.token_mean_) / model.token_scale_
            Z = layer(params, X, n_heads=2, mask=mask)[0]
            own = model.pooling == NAMES["pooling"]
            row[:] = np.sqrt(np.mean(Z**2, axis=0)) if own else Z.mean(axis=0)
    return rows


def test_a_row_is_enough_to_fit_and_transform(sets, y, choice):
    model = regressor(**choice).fit(sets, y)
    pooled = pooled_by_loop(model, sets)
    raw = pooled @ model.coef_.T + model.intercept_
    assert_allclose(model.transform(sets), pooled, rtol=1e-10, atol=1e-12)
    assert_allclose(model.predict(sets), raw[:, 0], rtol=1e-10)
    assert model.loss_ < model.loss_curve_[0]
    if "attention" in choice:
        assert model.log_temperature_.shape == (2,)
        assert np.all(model.log_temperature_ != 0)
        return  # the penalty of the reference knows no temperature
    loss = LogCosh() if "loss" in choice else SquaredError()
    expected = penalised_loss(model, loss, raw, y[:, None], np.ones(12))
    assert_allclose(model.loss_, expected, rtol=1e-10)


@pytest.mark.parametrize("parameter", ["loss", "pooling", "mask"])
def test_an_instance_is_what_its_name_is(sets, y, parameter):
    named = regressor(**{parameter: NAMES[parameter]}).fit(sets, y)
    given = regressor(**{parameter: OWN[parameter]()}).fit(sets, y)
    assert_array_equal(given.predict(sets), named.predict(sets))
    assert_array_equal(clone(given).fit(sets, y).predict(sets), named.predict(sets))


def test_it_survives_pickle_and_clone(sets, y, choice):
    model = regressor(**choice).fit(sets, y)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(sets), model.predict(sets))
    assert_array_equal(again.fit(sets, y).predict(sets), model.predict(sets))
    assert_array_equal(clone(model).fit(sets, y).predict(sets), model.predict(sets))
    assert "own " in repr(model) and "own " in model._repr_html_()


GRID = {
    "loss": ["squared_error", NAMES["loss"], LogCosh()],
    "pooling": ["mean", NAMES["pooling"], RootMeanSquare()],
    "mask": [None, NAMES["mask"], Window(2)],
    "attention": ["scaled_dot_product", NAMES["attention"]],
}


@pytest.mark.parametrize("parameter", GRID)
def test_it_is_a_value_of_a_grid(sets, y, parameter):
    X, y = [*sets, *sets], [*y, *y]
    search = GridSearchCV(regressor(), {parameter: GRID[parameter]}, cv=3).fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert np.all(np.isfinite(scores))
    assert len(set(scores[:2])) == 2  # it is another model
    best = regressor(**search.best_params_).fit(X, y)
    assert_array_equal(search.predict(sets), best.predict(sets))


def test_it_stands_in_the_search_for_the_penalty(sets, y, choice):
    search = AttentionContextualizerCV(
        n_heads=2, d_k=2, d_v=2, alphas=[0.01, 1.0], cv=2, max_iter=4, random_state=0, **choice
    ).fit(sets, y)
    expected = small(**choice, alpha=search.alpha_, max_iter=4).fit(sets, y)
    assert search.transform(sets).shape == expected.transform(sets).shape
    assert np.all(np.isfinite(search.transform(sets)))


@pytest.mark.parametrize("d_k", [2, 6])  # both sides of the choice between M and Q, K
@pytest.mark.parametrize("in_context", [False, True])
def test_gradients_are_central_differences(sets, rng, choice, d_k, in_context):
    X = pair_of(rng) if in_context else RaggedArray.from_list(sets)
    if in_context and "mask" in choice:
        choice = {name: value for name, value in choice.items() if name != "mask"}

    def piece(parameter, default):
        return OWN[parameter] if parameter in choice else default

    attention = piece("attention", Attention)(
        n_heads=2,
        d_k=d_k,
        d_v=2,
        mask=choice.get("mask"),
        n_context_features=3 if in_context else None,
    )
    objective = make_objective(
        X,
        rng.normal(size=(len(X), 2)),
        rng.uniform(0.5, 2, size=len(X)),
        2,
        attention,
        piece("pooling", MeanPooling)(),
        piece("loss", SquaredError)(),
        alpha=0.1,
    )
    assert ("log_temperature" in objective.layout.shapes) == ("attention" in choice)
    check_gradient(objective, 0.5 * rng.normal(size=objective.layout.size), rng)


def test_it_is_inspected(sets, y, choice):
    model = regressor(**choice).fit(sets, y)
    frame = attention_frame(model, sets)
    of_query = frame.groupby(["set", "head", "query"])["weight"].sum()
    assert_allclose(of_query, 1, rtol=1e-12)
    allowed = mask_of(choice.get("mask")).allowed(frame["query"], frame["key"])
    assert_array_equal(np.isfinite(frame["score"]), True if allowed is None else allowed)
    weights = [A.ravel() for A in model.attention_weights(sets)]
    assert_allclose(frame["weight"], np.concatenate(weights), atol=1e-12)
    diagnostics = attention_diagnostics(model, sets)
    assert np.all(np.isfinite(diagnostics["entropy"]))
    found = token_importance(model, sets, method=["weights", "gradient", "leave_one_out"]).frame
    assert_allclose(found.groupby("set")["weights"].sum(), 1, rtol=1e-9)
    X, step = sets[4], 1e-5
    for j in range(len(X)):
        ends = []
        for t in (step, -step):
            nudged = X.copy()
            nudged[j] += t * (X[j] - model.token_mean_)
            ends.append(model.predict([nudged])[0])
        got = found.loc[(found["set"] == 4) & (found["token"] == j)].iloc[0]
        assert_allclose(got["gradient"], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)
        without = model.predict([np.delete(X, j, axis=0)])[0]
        assert_allclose(got["leave_one_out"], model.predict([X])[0] - without, rtol=1e-8, atol=1e-9)


def test_diagnostics_have_the_words_of_a_mask(sets, y):
    flat = dict.fromkeys(("W_Q", "W_K"), np.zeros((3, 4)))
    model = regressor(mask=NAMES["mask"], init=flat, max_iter=0).fit(sets, y)
    advice = attention_diagnostics(model, sets)["advice"]
    assert advice.str.contains("the mean of its neighbours").all()


def test_a_mask_that_counts_no_copies_refuses_token_weights(sets, y):
    X = RaggedArray.from_list(sets, [np.full(len(tokens), 2.0) for tokens in sets])
    for mask in (NAMES["mask"], Window()):
        with pytest.raises(ValueError, match="Token weights other than 0 and 1 have no meaning"):
            regressor(mask=mask).fit(X, y)


def test_a_mask_is_about_one_set(rng):
    with pytest.raises(ValueError, match="mask='own mask' applies to the tokens of one set"):
        regressor(mask=NAMES["mask"]).fit(pair_of(rng), np.arange(7.0))


@pytest.mark.parametrize("init", ["tied", "identity", "glorot", {"log_temperature": [1.0, -1.0]}])
def test_a_parameter_of_attention_has_a_start(sets, y, init):
    model = regressor(attention=NAMES["attention"], init=init, max_iter=0).fit(sets, y)
    given = init["log_temperature"] if isinstance(init, dict) else [0.0, 0.0]
    assert_array_equal(model.log_temperature_, given)
    with pytest.raises(ValueError, match=r"log_temperature to start from has shape \(3,\)"):
        model.set_params(init={"log_temperature": np.zeros(3)}).fit(sets, y)


def test_a_warm_start_takes_it_along(sets, y, choice):
    model = regressor(warm_start=True, **choice).fit(sets, y)
    before = model.loss_
    model.fit(sets, y)
    assert_allclose(model.loss_curve_[0], before, rtol=1e-10)
    assert model.loss_ < before


def test_tokens_are_reconstructed_by_it(sets):
    settings = {"n_heads": 2, "d_k": 2, "d_v": 2, "alpha": 0.1, "max_iter": 4, "random_state": 0}
    plain = AttentionContextualizer(loss="reconstruction", **settings).fit(sets)
    own = clone(plain).set_params(attention=NAMES["attention"]).fit(sets)
    assert_array_equal(own.log_temperature_, np.zeros(2))  # scores are not learned there
    assert_allclose(own.transform(sets), plain.transform(sets), rtol=1e-12)
