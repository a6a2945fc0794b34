"""A target for every token, with pooling=None: field case F26 and the laws that hold."""

import functools
import pickle

import numpy as np
import pandas as pd
import pytest
from models import assert_same_fit
from numpy.testing import assert_allclose, assert_array_equal
from reference import (
    COUNTING_MASKS,
    LENGTHS,
    MASK_NAMES,
    check_gradient,
    layer,
    make_objective,
    penalised_loss,
    targets_of,
)
from sklearn.base import clone
from sklearn.metrics import accuracy_score, f1_score, r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline

import skattn.contextualizer
from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionContextualizerCV,
    AttentionRegressor,
    RaggedArray,
    _objective,
)
from skattn._targets import by_set
from skattn.attention import ATTENTIONS, Attention
from skattn.losses import LOSSES
from skattn.pooling import POOLINGS, MeanPooling

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SMALL = {"n_heads": 2, "d_k": 2, "d_v": 2, "alpha": 0.1, "random_state": 0, "pooling": None}


@pytest.fixture
def numbers(sets):
    """A number for each token: its own first feature plus its set's mean."""
    return [x[:, 0] + x[:, 1].sum() / max(len(x), 1) for x in sets]


@pytest.fixture
def labels(numbers):
    """A label for each token, 0 or 1."""
    return [(y > 1).astype(int) for y in numbers]


def contextualizer(**params):
    return AttentionContextualizer(**SMALL | {"max_iter": 3} | params)


def classifier(**params):
    return AttentionClassifier(**SMALL | {"max_iter": 3} | params)


def regressor(**params):
    return AttentionRegressor(**SMALL | {"max_iter": 3} | params)


def with_missing(labels, i=4, j=slice(None)):
    """The labels as floats, of which those at j in set i are NaN."""
    out = [y.astype(float) for y in labels]
    out[i][j] = np.nan
    return out


# The objective


def objective_of(sets, loss="squared_error", n_outputs=2, token_weights=False, **params):
    rng = np.random.default_rng(0)
    weights = [rng.integers(1, 4, size=len(x)) for x in sets] if token_weights else None
    X = RaggedArray.from_list(sets, weights)
    rows = np.flatnonzero(rng.uniform(size=X.n_tokens) < 0.7)
    return make_objective(
        X,
        targets_of(LOSSES[loss](), len(rows), n_outputs, rng),
        rng.uniform(0.5, 2, size=len(rows)),
        n_outputs,
        Attention(d_k=2, d_v=2, **{"n_heads": 2} | params),
        MeanPooling(),
        LOSSES[loss](),
        alpha=0.1,
        rows=rows,
    )


def check(objective, rng):
    check_gradient(objective, 0.5 * rng.normal(size=objective.layout.size), rng)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_gradient_for_every_loss(sets, loss, n_outputs, rng):
    check(objective_of(sets, loss, n_outputs), rng)


@pytest.mark.parametrize("mask", MASK_NAMES)
@pytest.mark.parametrize("score_statistics", [True, False])
@pytest.mark.parametrize("chunk_bytes", [1, 2**19])
def test_gradient_for_every_mask(sets, mask, score_statistics, chunk_bytes, rng):
    settings = {"mask": mask, "score_statistics": score_statistics, "chunk_bytes": chunk_bytes}
    check(objective_of(sets, **settings), rng)


@pytest.mark.parametrize("mask", COUNTING_MASKS)
def test_gradient_with_token_weights(sets, mask, rng):
    check(objective_of(sets, mask=mask, token_weights=True), rng)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mask", MASK_NAMES)
def test_the_objective_is_a_loop_over_the_tokens_that_are_scored(sets, labels, loss, mask, rng):
    """In the estimator's own words: missing targets, weights of sets, tokens and classes."""
    is_classifier = LOSSES[loss].is_classifier
    y = [a + 1.0 for a in labels]
    y[0][1], y[4][2:5], y[9][:] = np.nan, np.nan, np.nan
    weight = rng.uniform(0.5, 2, size=12)
    is_counting = mask in COUNTING_MASKS
    counts = [rng.integers(1, 4, size=n) for n in LENGTHS] if is_counting else None
    model = contextualizer(
        loss=loss, mask=mask, class_weight={1.0: 2.0, 2.0: 0.5} if is_classifier else None
    ).fit(RaggedArray.from_list(sets, counts), y, sample_weight=weight)
    params = {name: getattr(model, name + "_") for name in ("W_Q", "W_K", "W_V", "b_V")}
    truth, raw, seen_weight = [], [], []
    for i, x in enumerate(sets):
        x = (x - model.token_mean_) / model.token_scale_
        w = np.ones(len(x)) if counts is None else counts[i]
        out = layer(params, x, w, n_heads=2, mask=mask)[0] if len(x) else []
        for j, z in enumerate(out):
            if np.isnan(y[i][j]):
                continue
            at = weight[i] * w[j]
            truth.append([y[i][j]])
            raw.append(model.coef_ @ z + model.intercept_)
            seen_weight.append(at * ({1.0: 2.0, 2.0: 0.5}[y[i][j]] if is_classifier else 1))
    truth = np.ravel(truth).astype(int) - 1 if is_classifier else np.array(truth)
    value = penalised_loss(model, LOSSES[loss](), np.array(raw), truth, np.array(seen_weight))
    assert_allclose(model.loss_, value, rtol=1e-10)


# What y may be


def ragged(y):
    return RaggedArray.from_list([a[:, None] for a in y])


FORMS = {
    "list": list,
    "tuple": tuple,
    "nested lists": lambda y: [a.tolist() for a in y],
    "object array": by_set,
    "series": lambda y: pd.Series(by_set(y), index=np.arange(len(y))[::-1]),
    "list of series": lambda y: [pd.Series(a, index=range(5, 5 + len(a))) for a in y],
    "read-only": lambda y: [np.broadcast_to(a, a.shape) for a in y],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("lengths", [LENGTHS, (3,) * 6, (2, 2, 1)], ids=str)
def test_the_form_of_y_does_not_matter(form, lengths, rng):
    """Of equal lengths either, where NumPy would make a table of it."""
    sets = [rng.normal(size=(n, 3)) for n in lengths]
    numbers = [x[:, 0] for x in sets]
    labels = [(x[:, 0] > 0).astype(int) for x in sets]
    for model, y in ((contextualizer(), labels), (contextualizer(), numbers)):
        expected = clone(model).fit(sets, [*y])
        got = model.fit(sets, form(y))
        assert_same_fit(expected, got)
        assert hasattr(got, "classes_") == (y is labels)
    a, b = (regressor().fit(sets, kind(numbers)) for kind in (list, form))
    assert a.score(sets, numbers) == b.score(sets, form(numbers))


def test_a_ragged_array_of_numbers(sets, numbers):
    one, two = regressor().fit(sets, numbers), regressor().fit(sets, ragged(numbers))
    assert_same_fit(one, two)
    assert [p.shape for p in two.predict(sets)] == [(n,) for n in LENGTHS]
    outputs = [np.column_stack([y, y**2]) for y in numbers]
    one, two = (regressor().fit(sets, y) for y in (outputs, RaggedArray.from_list(outputs)))
    assert_same_fit(one, two)
    assert one.coef_.shape == (2, 8)
    assert [p.shape for p in two.predict(sets)] == [(n, 2) for n in LENGTHS]


MISSING = {
    "NaN": lambda y: y.astype(float),
    "None": lambda y: y.astype(object),
    "pandas.NA": lambda y: pd.array(y, dtype="Int64"),
    "masked": lambda y: np.ma.array(y, mask=np.zeros(len(y), bool)),
    "text": lambda y: np.array(["no", "yes"], dtype=object)[y],
    "list": lambda y: y.tolist(),
    "list of text": lambda y: np.array(["no", "yes"])[y].tolist(),
    "booleans": lambda y: (y == 1).astype(object),
    "categorical": lambda y: pd.Categorical.from_codes(y, ["no", "yes"]),
}


@pytest.mark.parametrize("kind", MISSING)
def test_f26_a_missing_label_is_not_scored_in_any_dtype(sets, labels, kind):
    """It is context for the others: as if it had the weight 0."""
    marker = {"None": None, "pandas.NA": pd.NA, "masked": np.ma.masked}.get(kind, np.nan)
    y = [MISSING[kind](cell) for cell in labels]
    weight = [np.ones(n) for n in LENGTHS]
    for i, j in ((0, 1), (4, 3), (7, 0), (7, 1), (7, 2)):
        y[i][j], weight[i][j] = marker, 0
    model = classifier().fit(sets, y)
    expected = classifier().fit(sets, labels, sample_weight=weight)
    assert_same_fit(expected, model)
    assert_allclose(model.score(sets, y), expected.score(sets, labels, weight), rtol=1e-14)
    said = np.concatenate([np.searchsorted(model.classes_, p) for p in model.predict(sets)])
    assert_array_equal(said, np.concatenate(expected.predict(sets)))


def test_a_token_that_is_not_scored_is_context_for_the_others(sets, labels):
    y = with_missing(labels, 4, 3)
    model = classifier().fit(sets, y)
    without = [np.delete(x, 3, axis=0) if len(x) == 9 else x for x in sets]
    fewer = [np.delete(a, 3) if len(a) == 9 else a for a in y]
    assert classifier().fit(without, fewer).loss_ != model.loss_
    assert len(model.predict(sets)[4]) == 9


@pytest.mark.parametrize("loss", LOSSES)
def test_f26_a_set_without_a_scored_token_adds_nothing(sets, labels, loss):
    y = [a + 1 for a in labels]
    for ignored in (np.full(9, np.nan), [None] * 9, np.ma.masked_all(9, int)):
        y[4] = ignored
        model = contextualizer(loss=loss).fit(sets, y)
        others = [i for i in range(12) if i != 4]
        expected = contextualizer(loss=loss).fit([sets[i] for i in others], [y[i] for i in others])
        assert np.isfinite(model.loss_)
        assert_same_fit(expected, model)


def test_labels_stay_integers_where_a_set_is_ignored_throughout(sets, labels):
    y = [*labels[:4], np.full(9, np.nan), *labels[5:]]
    assert contextualizer().fit(sets, y).classes_.dtype == labels[0].dtype


def test_f26_an_ignored_token_that_would_overflow_does_not(sets):
    """0 times an infinite loss would be NaN: what is not scored is not computed."""
    sets[4][3] = 1e6
    y = [np.ones(n) for n in LENGTHS]
    y[4][3], y[0][0] = np.nan, 3.0
    init = {"W_V": np.full((3, 4), 10.0)}
    model = contextualizer(loss="poisson", mask="diagonal", init=init, standardize=False)
    assert np.isfinite(model.fit(sets, y).loss_)


def test_f26_nothing_scored_at_all_is_an_error(sets):
    with pytest.raises(ValueError, match="None of the 34 tokens is scored"):
        classifier().fit(sets, [np.full(n, np.nan) for n in LENGTHS])
    with pytest.raises(ValueError, match="None of the 34 tokens is scored"):
        y = with_missing([np.ones(n) for n in LENGTHS])
        weight = np.zeros(12)
        weight[4] = 1
        classifier().fit(sets, y, sample_weight=weight)


@pytest.mark.parametrize("make", [contextualizer, classifier, regressor])
@pytest.mark.parametrize(
    ("i", "n", "match"),
    [(4, 8, "Set 4 has 9 tokens, but y has 8"), (1, 1, "Set 1 has 0 tokens, but y has 1")],
)
def test_f26_a_mismatch_names_the_set_and_both_lengths(sets, numbers, make, i, n, match):
    y = [np.round(a) for a in numbers]
    fitted = make(loss="auto").fit(sets, y)
    y[i] = np.zeros(n)
    with pytest.raises(ValueError, match=match):
        make().fit(sets, y)
    if make is not contextualizer:
        with pytest.raises(ValueError, match=match):
            fitted.score(sets, y)


@pytest.mark.parametrize(
    ("y", "match"),
    [
        ([[0, 1]], r"inconsistent numbers of samples: \[2, 1\]"),
        ([[0, 1], 1], "y holds an array for some sets, but 1 for set 1"),
        ([[0, 1], np.zeros((1, 2))], r"the shapes \[\(\), \(2,\)\] in different sets"),
        ([[0, 1], np.zeros((1, 1, 1))], r"entry of shape \(1, 1, 1\) for set 1"),
        ([[0, np.inf], [1]], "infinity"),
        ([[0, 0], [0]], "one class"),
    ],
)
def test_targets_of_tokens_that_do_not_fit_are_refused(y, match):
    with pytest.raises(ValueError, match=match):
        classifier().fit([[[1.0], [2.0]], [[3.0]]], y)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_with_a_pooling_a_target_per_token_is_refused(sets, labels, pooling):
    for y in (labels, by_set(labels), ragged(labels)):
        for model in (contextualizer, classifier, regressor):
            with pytest.raises(ValueError, match=f"pooling='{pooling}'.*Choose pooling=None"):
                model(pooling=pooling).fit(sets, y)


@pytest.mark.parametrize("n_outputs", [None, 2])
def test_a_target_per_set_is_still_that(sets, n_outputs, rng):
    y = rng.normal(size=12 if n_outputs is None else (12, n_outputs))
    plain, mean = regressor().fit(sets, y), regressor(pooling="mean").fit(sets, y)
    assert_same_fit(mean, plain)
    assert_array_equal(plain.predict(sets), mean.predict(sets))
    assert plain.predict(sets).shape == y.shape


# Weights


def test_weights_of_tokens_that_are_those_of_their_sets(sets, labels, rng):
    weight = rng.uniform(0.5, 2, size=12)
    weight[[3, 4]] = 0
    per_token = [np.full(n, w) for n, w in zip(LENGTHS, weight, strict=True)]
    one = classifier().fit(sets, labels, sample_weight=weight)
    for form in (list, by_set, ragged):
        two = classifier().fit(sets, labels, sample_weight=form(per_token))
        assert_same_fit(one, two, rtol=1e-9, atol=1e-12)
        scores = one.score(sets, labels, weight), two.score(sets, labels, form(per_token))
        assert_allclose(*scores, rtol=1e-14)
    used = [i for i in range(12) if weight[i]]
    left = classifier().fit(
        [sets[i] for i in used], [labels[i] for i in used], sample_weight=weight[used]
    )
    assert_same_fit(left, one)
    ones = classifier().fit(sets, labels, sample_weight=[np.ones(n) for n in LENGTHS])
    assert_same_fit(classifier().fit(sets, labels), ones)


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_integer_weights_equal_repeated_sets(sets, labels, loss, rng):
    counts = rng.integers(0, 4, size=12)
    model = contextualizer(loss=loss)
    one = clone(model).fit(sets, labels, sample_weight=counts)
    again = np.repeat(np.arange(12), counts)
    two = clone(model).fit([sets[i] for i in again], [labels[i] for i in again])
    assert_same_fit(one, two, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("mask", COUNTING_MASKS)
def test_integer_token_weights_equal_repeated_tokens(sets, labels, mask, class_weight, rng):
    counts = [rng.integers(1, 4, size=n) for n in LENGTHS]
    model = classifier(mask=mask, class_weight=class_weight)

    def repeat(cells):
        return [np.repeat(a, c, axis=0) for a, c in zip(cells, counts, strict=True)]

    X = RaggedArray.from_list(sets, counts)
    one, two = clone(model).fit(X, labels), clone(model).fit(repeat(sets), repeat(labels))
    assert_same_fit(one, two, rtol=1e-7, atol=1e-9)
    assert_allclose(one.score(X, labels), two.score(repeat(sets), repeat(labels)), rtol=1e-12)


def test_tokens_of_weight_zero_are_not_there(sets, labels):
    """They have a target in y, which is not looked at, and no prediction."""
    ghosts = [np.insert(x, len(x) // 2, 1e9, axis=0) for x in sets]
    weights = [np.insert(np.ones(n), n // 2, 0) for n in LENGTHS]
    y = [np.insert(a, len(a) // 2, 7) for a in labels]
    X = RaggedArray.from_list(ghosts, weights)
    one, two = classifier().fit(X, y), classifier().fit(sets, labels)
    assert_same_fit(two, one)
    assert one.score(X, y) == two.score(sets, labels)
    for a, b in zip(one.predict(X), two.predict(sets), strict=True):
        assert_array_equal(a, b)


def test_f26_class_weights_count_tokens(sets, labels):
    """A rare label in a large set is not as common as its set."""
    y = [np.where(np.arange(n) < 2, 0, 1) for n in LENGTHS]
    y[4] = with_missing(y)[4]  # not counted: not scored
    zeros, ones = (sum(int(np.sum(a == c)) for a in y) for c in (0, 1))
    total = zeros + ones
    weights = {0: total / (2 * zeros), 1: total / (2 * ones)}
    balanced = classifier(class_weight="balanced").fit(sets, y)
    named = classifier(class_weight=weights).fit(sets, y)
    assert_same_fit(named, balanced, rtol=1e-9, atol=1e-12)
    by_token = [np.where(a == 1, weights[1], weights[0]) for a in y]
    weighted = classifier().fit(sets, y, sample_weight=by_token)
    assert_same_fit(named, weighted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        ([[1.0]] * 12, "Set 0 has 4 tokens, but sample_weight has 1 entries"),
        ([[1.0]], r"inconsistent numbers of samples: \[12, 1\]"),
        ([np.full(n, -1.0) for n in LENGTHS], "negative"),
        ([np.full(n, np.nan) for n in LENGTHS], "NaN"),
        ([np.zeros(n) for n in LENGTHS], "all are zero"),
    ],
)
def test_weights_of_tokens_that_do_not_fit_are_refused(sets, labels, weight, match):
    with pytest.raises(ValueError, match=match):
        classifier().fit(sets, labels, sample_weight=weight)


def test_weights_of_tokens_want_targets_of_tokens(sets):
    weight = [np.ones(n) for n in LENGTHS]
    with pytest.raises(ValueError, match="weight per token, but the targets are per set"):
        classifier().fit(sets, np.arange(12) % 2, sample_weight=weight)


# What must change nothing


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_order_neighbours_padding_and_chunks(sets, labels, dtype, rng, monkeypatch):
    sets = [x.astype(dtype) for x in sets]
    y = with_missing(labels, 4, slice(1, 3))
    exact = {"rtol": 1e-8, "atol": 1e-10} if dtype == np.float64 else {"rtol": 1e-3, "atol": 1e-4}
    model = classifier().fit(sets, y)
    order = rng.permutation(12)
    mixed = classifier().fit([sets[i] for i in order], [y[i] for i in order])
    assert_same_fit(model, mixed, **exact)
    orders = [rng.permutation(n) for n in LENGTHS]
    turned = classifier().fit(
        [x[o] for x, o in zip(sets, orders, strict=True)],
        [a[o] for a, o in zip(y, orders, strict=True)],
    )
    assert_same_fit(model, turned, **exact)
    padded = RaggedArray.from_list(sets).to_padded()
    assert_same_fit(model, classifier().fit(padded, y))
    assert model.score(padded, y) == model.score(sets, y)
    together = model.decision_function(sets)
    for i, tokens in enumerate(sets):
        assert_allclose(model.decision_function([tokens])[0], together[i], **exact)
    chunked = functools.partial(Attention, chunk_bytes=200)
    monkeypatch.setitem(ATTENTIONS, "scaled_dot_product", chunked)
    assert_same_fit(model, classifier().fit(sets, y), **exact)


def test_empty_sets_change_nothing(sets, labels):
    full = [i for i in range(12) if LENGTHS[i]]
    expected = classifier().fit([sets[i] for i in full], [labels[i] for i in full])
    model = classifier().fit(sets, labels)
    assert_same_fit(expected, model)
    assert model.predict([np.empty((0, 3))])[0].shape == (0,)
    assert model.predict_proba([np.empty((0, 3))])[0].shape == (0, 2)


def test_processes_change_no_bit(rng, monkeypatch):
    monkeypatch.setattr(_objective, "WORK_OF_A_PIECE", 2000.0)
    sets = [rng.normal(size=(n, 3)) for n in [*rng.integers(0, 9, size=40), 60]]
    y = [(x[:, 0] > 0) * 1.0 for x in sets]
    y[3][:] = np.nan
    y[40][::2] = np.nan
    one, two = (classifier(n_jobs=n_jobs, max_iter=8).fit(sets, y) for n_jobs in (1, 2))
    assert one.loss_curve_ == two.loss_curve_
    assert_same_fit(one, two)


def test_names_of_labels_do_not_matter(sets, labels):
    names = np.array(["no", "yes"])
    one, two = classifier().fit(sets, labels), classifier().fit(sets, [names[y] for y in labels])
    assert_same_fit(one, two)
    for a, b in zip(one.predict(sets), two.predict(sets), strict=True):
        assert_array_equal(names[a], b)


@pytest.mark.parametrize("c", [1e-6, 1e6])
def test_predictions_are_in_the_units_of_y(sets, numbers, c):
    one = regressor().fit(sets, numbers)
    two = regressor().fit(sets, [c * y for y in numbers])
    for a, b in zip(one.predict(sets), two.predict(sets), strict=True):
        assert_allclose(b, c * a, rtol=1e-6, atol=1e-9 * c)


def test_inputs_are_left_as_they_are(sets, labels):
    y = with_missing(labels)
    before = pickle.dumps((sets, y))
    for array in [*sets, *y]:
        array.flags.writeable = False
    classifier().fit(sets, y, sample_weight=[np.ones(n) for n in LENGTHS]).score(sets, y)
    assert pickle.dumps(([x.copy() for x in sets], [a.copy() for a in y])) == before


# What comes out


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_classifier_is_the_contextualizer_with_its_head(sets, numbers, n_classes):
    bounds = [1.0] if n_classes == 2 else [0.0, 1.0]
    y = [np.array(["a", "b", "c"])[np.digitize(a, bounds)] for a in numbers]
    model, parts = classifier().fit(sets, y), contextualizer().fit(sets, y)
    tokens = parts.transform(sets)
    assert_array_equal(model.transform(sets).values, tokens.values)
    raw = tokens.values @ parts.coef_.T + parts.intercept_
    decision, probabilities = model.decision_function(sets), model.predict_proba(sets)
    logs, said = model.predict_log_proba(sets), model.predict(sets)
    for out in (decision, probabilities, logs, said):
        assert isinstance(out, list)
        assert [len(a) for a in out] == list(LENGTHS)
    assert_allclose(np.concatenate(decision), raw[:, 0] if n_classes == 2 else raw, atol=1e-12)
    assert np.concatenate(probabilities).shape == (34, n_classes)
    assert_allclose(np.concatenate(probabilities).sum(axis=1), 1, rtol=1e-14)
    assert_allclose(np.exp(np.concatenate(logs)), np.concatenate(probabilities), rtol=1e-12)
    best = np.concatenate(probabilities).argmax(axis=1)
    assert_array_equal(np.concatenate(said), model.classes_[best])
    assert model.score(sets, y) == accuracy_score(np.concatenate(y), np.concatenate(said))
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(np.concatenate(again.predict(sets)), np.concatenate(said))


def test_a_regressor_scores_by_r_squared_over_tokens(sets, numbers):
    model = regressor(max_iter=30).fit(sets, numbers)
    said = np.concatenate(model.predict(sets))
    assert_allclose(model.score(sets, numbers), r2_score(np.concatenate(numbers), said))
    y = [a.copy() for a in numbers]
    y[4][:] = np.nan
    rest = np.concatenate([a for i, a in enumerate(y) if i != 4])
    said = np.concatenate([a for i, a in enumerate(model.predict(sets)) if i != 4])
    assert_allclose(model.score(sets, y), r2_score(rest, said))
    outputs = [np.column_stack([a, -2 * a]) for a in numbers]
    two = regressor(max_iter=30).fit(sets, outputs)
    expected = r2_score(np.concatenate(outputs), np.concatenate(two.predict(sets)))
    assert_allclose(two.score(sets, outputs), expected)


def test_targets_per_set_do_not_score_a_model_of_tokens(sets, labels):
    model = classifier().fit(sets, labels)
    with pytest.raises(ValueError, match="was fitted with a target per token"):
        model.score(sets, np.arange(12) % 2)


def test_a_fit_on_sets_after_one_on_tokens_predicts_sets(sets, labels):
    model = classifier().fit(sets, labels).fit(sets, np.arange(12) % 2)
    assert model.predict(sets).shape == (12,)


def test_a_warm_start_goes_on(sets, labels):
    start = classifier(max_iter=5).fit(sets, labels)
    loss = start.loss_
    start.set_params(warm_start=True).fit(sets, labels)
    assert_allclose(start.loss_curve_[0], loss, rtol=1e-12)


# In scikit-learn


@pytest.mark.parametrize("form", [list, by_set, lambda y: pd.Series(by_set(y))])
def test_f26_cross_validation_and_search(sets, labels, form):
    y = form(labels)
    for X in (sets, by_set(sets)):
        for cv in (2, KFold(2)):
            scores = cross_val_score(classifier(), X, y, cv=cv, error_score="raise")
            expected = [
                classifier()
                .fit([sets[i] for i in train], [labels[i] for i in train])
                .score([sets[i] for i in test], [labels[i] for i in test])
                for train, test in KFold(2).split(sets)
            ]
            assert_allclose(scores, expected, rtol=1e-12)
        search = GridSearchCV(classifier(), {"alpha": [1e-3, 1]}, cv=2, error_score="raise")
        assert search.fit(X, y).score(X, y) == search.best_estimator_.score(sets, labels)


def test_a_ragged_array_of_numbers_is_split_too(sets, numbers):
    y = ragged(numbers)
    scores = cross_val_score(regressor(), sets, y, cv=2, error_score="raise")
    assert_allclose(scores, cross_val_score(regressor(), sets, numbers, cv=2), rtol=1e-12)


def nested(y):
    return [a.tolist() for a in y]


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        *(("labels", form) for form in (list, by_set, nested)),
        ("numbers", list),
        ("numbers", ragged),
    ],
)
def test_f26_the_penalty_is_chosen_on_folds_of_sets(sets, labels, numbers, kind, form):
    y = labels if kind == "labels" else numbers
    weight = [np.ones(n) for n in LENGTHS]
    weight[0][:2] = 3
    settings = SMALL | {"max_iter": 3}
    del settings["alpha"]
    model = AttentionContextualizerCV(alphas=(1e-3, 1e-1), cv=3, **settings)
    model.fit(sets, form(y), sample_weight=weight)
    kind = AttentionClassifier if kind == "labels" else AttentionRegressor
    for k, (train, test) in enumerate(KFold(3).split(sets)):
        path = kind(warm_start=True, **settings)
        for j, alpha in enumerate((1e-3, 1e-1)):
            path.set_params(alpha=alpha, tol=1e-3, max_iter=2 - j)  # cut short
            path.fit([sets[i] for i in train], [y[i] for i in train],
                     sample_weight=[weight[i] for i in train])  # fmt: skip
            score = path.score(
                [sets[i] for i in test], [y[i] for i in test], [weight[i] for i in test]
            )
            assert_allclose(model.cv_results_["split_test_scores"][k, j], score, rtol=1e-12)
    assert model.transform(sets).n_tokens == 34


def test_any_metric_of_tokens_by_the_recipe_of_the_docstring(sets, labels):
    y = with_missing(labels, 4, slice(0, 3))

    def token_f1(model, X, y):
        truth, said = np.concatenate(y), np.concatenate(model.predict(X))
        has_label = ~pd.isna(truth)
        return f1_score(truth[has_label].astype(said.dtype), said[has_label])

    scores = cross_val_score(classifier(), sets, y, cv=2, scoring=token_f1, error_score="raise")
    assert np.all((scores > 0) & (scores <= 1))


def test_tokens_for_a_step_that_follows(sets, labels):
    """What is learned from tokens is of use to sets: pool what comes out."""
    pooled = make_pipeline(contextualizer(), skattn.SetPooler()).fit(sets, labels)
    assert pooled.transform(sets).shape[0] == 12


def test_it_learns_what_the_other_tokens_say():
    """Is there a token of the other sign in the set? One's own vector does not tell."""
    rng = np.random.default_rng(0)
    X = [rng.choice([-1.0, 1.0], size=(3, 1)) for _ in range(150)]
    y = [(np.abs(x.sum()) < 3) * np.ones(3, int) for x in X]
    y = [np.where(rng.uniform(size=3) < 0.3, np.nan, a) for a in y]
    model = AttentionClassifier(pooling=None, alpha=1e-3, random_state=0).fit(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.95
