"""Sets that attend to a context: the kernels, then the estimators."""

import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from models import Y7, pair_of, regressor, unfinished
from numpy.testing import assert_allclose, assert_array_equal
from reference import central, check_gradient, layer, layers, make_objective, targets_of
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline

import skattn
from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionContextualizerCV,
    RaggedArray,
    RaggedPair,
)
from skattn._sets import Sets
from skattn.attention import INITS, Attention
from skattn.losses import LOSSES
from skattn.pooling import POOLINGS

SHAPES = [  # (b, n, m, d, d_c): one query, one key, no key, no query, either side the wider
    (3, 1, 5, 4, 2),
    (2, 4, 1, 3, 9),
    (4, 3, 0, 3, 2),
    (2, 0, 3, 2, 3),
    (5, 7, 4, 5, 5),
    (1, 6, 12, 20, 3),
]


def make(rng, shape, dtype=np.float64, weighted=False, **kwargs):
    """A layer, parameters, X (b, n, d), C (b, m, d_c) and token weights of C, or None."""
    b, n, m, d, d_c = shape
    attention = Attention(**{"n_heads": 2, "d_k": 3, "d_v": 4, "n_context_features": d_c} | kwargs)
    params = {name: 0.7 * rng.normal(size=s) for name, s in attention.shapes(d).items()}
    X, C = rng.normal(size=(b, n, d)).astype(dtype), rng.normal(size=(b, m, d_c)).astype(dtype)
    return attention, params, X, C, rng.uniform(0.3, 4, size=(b, m)) if weighted else None


# The layer


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d_k", [2, 6])  # both sides of the choice between M and Q, K
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("score_statistics", [False, True])
def test_outputs_equal_the_formula(shape, d_k, weighted, score_statistics):
    rng = np.random.default_rng(0)
    attention, params, X, C, w = make(
        rng, shape, weighted=weighted, d_k=d_k, score_statistics=score_statistics
    )
    folded, block = attention.fold(params, X.dtype), attention.block(X, w, C)
    expected, A = layers(attention, params, X, w, C)
    assert expected.shape[2] == attention.n_features_out == 2 * (4 + score_statistics)
    assert_allclose(attention.forward(folded, block)[0], expected, atol=1e-12)
    assert_allclose(attention.weights(folded, block), A, atol=1e-13)
    p = rng.uniform(size=X.shape[:2])
    pooled, _ = attention.attend_pool(folded, block, p)
    assert_allclose(pooled, np.einsum("bn,bnk->bk", p, expected), atol=1e-12)


def test_a_set_as_its_own_context_is_self_attention():
    rng = np.random.default_rng(1)
    shape = (3, 5, 5, 4, 4)
    attention, params, X, _, _ = make(rng, shape)
    own = replace(attention, n_context_features=None)
    w, p = rng.uniform(0.3, 4, size=X.shape[:2]), rng.uniform(size=X.shape[:2])
    folded = own.fold(params, X.dtype)
    k = attention.n_features_out
    assert own.n_features_out == k + own.n_heads  # the self-weights, last
    block, own_block = attention.block(X, w, X.copy()), own.block(X, w)
    out, cache = attention.forward(folded, block)
    own_out, own_cache = own.forward(folded, own_block)
    assert_array_equal(out, own_out[..., :k])
    d_out = rng.normal(size=out.shape)
    grads = attention.backward(folded, cache, d_out)
    no_d_self = np.zeros((*X.shape[:2], own.n_heads))
    own_grads = own.backward(folded, own_cache, np.concatenate([d_out, no_d_self], axis=2))
    pooled, cache = attention.attend_pool(folded, block, p)
    own_pooled, own_cache = own.attend_pool(folded, own_block, p)
    assert_array_equal(pooled, own_pooled[:, :k])
    d_pooled, no_d_self = rng.normal(size=pooled.shape), np.zeros((len(X), own.n_heads))
    pooled_grads = attention.attend_pool_backward(folded, cache, d_pooled)
    own_pooled_grads = own.attend_pool_backward(
        folded, own_cache, np.concatenate([d_pooled, no_d_self], axis=1)
    )
    for ours, theirs in ((grads, own_grads), (pooled_grads, own_pooled_grads)):
        for name, expected in attention.unfold(params, theirs).items():
            assert_allclose(attention.unfold(params, ours)[name], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if 0 not in shape])
@pytest.mark.parametrize("d_k", [2, 6])
def test_outputs_and_gradients_equal_pytorch(shape, d_k):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rng = np.random.default_rng(2)
    attention, params, X, C, _ = make(rng, shape, d_k=d_k, score_statistics=False)
    theirs = {name: torch.tensor(array, requires_grad=True) for name, array in params.items()}

    def by_head(tokens, name, bias=0):
        projected = torch.tensor(tokens) @ theirs[name] + bias
        return projected.reshape(*tokens.shape[:2], attention.n_heads, -1).transpose(1, 2)

    Z = torch.nn.functional.scaled_dot_product_attention(
        by_head(X, "W_Q"), by_head(C, "W_K"), by_head(C, "W_V", theirs["b_V"])
    )
    expected = Z.transpose(1, 2).reshape(*X.shape[:2], -1)
    folded, block = attention.fold(params, X.dtype), attention.block(X, None, C)
    out, cache = attention.forward(folded, block)
    assert_allclose(out, expected.detach(), rtol=0, atol=1e-12)
    d_out = rng.normal(size=out.shape)
    expected.backward(torch.tensor(d_out))
    grads = attention.unfold(params, attention.backward(folded, cache, d_out))
    for name, tensor in theirs.items():
        assert_allclose(grads[name], tensor.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d_k", [2, 6])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("score_statistics", [False, True])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("chunk_bytes", [2**19, 200])  # 200: row by row blocks
def test_backward_is_the_derivative_of_forward(
    shape, d_k, weighted, score_statistics, fused, chunk_bytes, monkeypatch
):
    monkeypatch.setattr("skattn.attention.LONG_FACTOR", 1)
    rng = np.random.default_rng(3)
    b = shape[0] if chunk_bytes > 200 else 1
    attention, params, X, C, w = make(
        rng,
        (b, *shape[1:]),
        weighted=weighted,
        d_k=d_k,
        score_statistics=score_statistics,
        chunk_bytes=chunk_bytes,
    )
    p, block = rng.uniform(size=X.shape[:2]), attention.block(X, w, C)

    def run(params):
        folded = attention.fold(params, X.dtype)
        if fused:
            return attention.attend_pool(folded, block, p)
        return attention.forward(folded, block)

    out, cache = run(params)
    d_out = rng.normal(size=out.shape)
    back = attention.attend_pool_backward if fused else attention.backward
    grads = attention.unfold(params, back(attention.fold(params, X.dtype), cache, d_out))
    assert set(grads) == set(params)
    for name in params:
        assert grads[name].shape == params[name].shape
        direction = {k: np.zeros_like(v) for k, v in params.items()}
        direction[name] = rng.normal(size=params[name].shape)
        numeric = central(lambda q: np.sum(d_out * run(q)[0]), params, direction)
        analytic = np.sum(grads[name] * direction[name])
        assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("toward", [True, False])
def test_a_long_set_is_swept_by_rows(toward, monkeypatch):
    monkeypatch.setattr("skattn.attention.LONG_FACTOR", 1)
    rng = np.random.default_rng(4)
    attention, params, X, C, w = make(rng, (1, 50, 30, 5, 4), weighted=True)
    small = replace(attention, chunk_bytes=2**12)
    assert len(small._row_blocks(1, 50, 30, 8)) > 3
    folded, p = attention.fold(params, X.dtype), np.full((1, 50), 0.02)
    direction = rng.normal(size=attention.n_features_out) if toward else None
    d_pooled = rng.normal(size=(1, attention.n_features_out)) if direction is None else [direction]
    results = []
    for one in (attention, small):
        pooled, cache = one.attend_pool(folded, one.block(X, w, C), p, direction)
        grads = one.attend_pool_backward(folded, cache, 3 * np.array(d_pooled))
        results.append([pooled, *(grads[name] for name in sorted(grads))])
    for whole, parts in zip(*results, strict=True):
        assert_allclose(parts, whole, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("factor", [1, 30, 1e4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_any_finite_scores_are_safe(factor, dtype):
    rng = np.random.default_rng(5)
    attention, params, X, C, _ = make(rng, (3, 6, 4, 4, 3), dtype)
    C *= np.array([0.1, 1, factor], dtype)[:, None, None]
    C[1] = C[1, :1] * 10
    folded, block = attention.fold(params, dtype), attention.block(X, None, C)
    out, cache = attention.forward(folded, block)
    expected, _ = layers(attention, params, X, None, C)
    if dtype is np.float64:
        assert_allclose(out, expected, rtol=1e-10 + 1e-16 * factor**2, atol=1e-10)
    else:
        assert_allclose(out[:2], expected[:2], rtol=1e-3, atol=1e-3)
    pooled, pooled_cache = attention.attend_pool(folded, block, np.ones((3, 6), dtype))
    for part in (
        attention.backward(folded, cache, np.ones_like(out)),
        attention.attend_pool_backward(folded, pooled_cache, np.ones_like(pooled)),
    ):
        assert all(np.all(np.isfinite(array)) for array in part.values())


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("widths", [(3, 20), (20, 3), (5, 5), (1, 2)])
def test_starts_have_the_shapes_of_the_parameters(init, widths):
    d, d_c = widths
    attention = Attention(n_heads=5, d_k=8, d_v=4, n_context_features=d_c)
    params = attention.init_params(d, np.random.default_rng(0), init)
    assert {name: array.shape for name, array in params.items()} == attention.shapes(d)


def test_tied_start_of_equal_widths_is_that_of_self_attention():
    starts = [
        Attention(n_context_features=d_c).init_params(7, np.random.default_rng(0))
        for d_c in (None, 7)
    ]
    for name, array in starts[0].items():
        assert_array_equal(array, starts[1][name])


def test_tied_start_of_other_widths_is_semi_orthogonal_on_both_sides():
    attention = Attention(n_heads=5, d_k=3, d_v=2, n_context_features=4)
    params = attention.init_params(7, np.random.default_rng(0))
    for name in ("W_Q", "W_K"):
        for scale, W in zip((0.3, 1, 2, 4, 0.3), np.split(params[name], 5, axis=1), strict=True):
            assert_allclose(W.T @ W, scale**2 * np.eye(3), atol=1e-12)


# The objective


def objective_of(rng, X, pooling="mean", loss="log_loss", n_outputs=1, rows=None, **params):
    n = len(X) if rows is None else len(rows)
    attention = Attention(**{"n_heads": 2, "d_k": 2, "d_v": 2, "n_context_features": 3} | params)
    return make_objective(
        X,
        targets_of(LOSSES[loss](), n, n_outputs, rng),
        rng.uniform(0.5, 2, size=n),
        n_outputs,
        attention,
        POOLINGS[pooling](),
        LOSSES[loss](),
        alpha=0.1,
        rows=rows,
    )


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(("loss", "n_outputs"), [("log_loss", 1), ("log_loss", 3), ("huber", 2)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d_k", [1, 6])
@pytest.mark.parametrize("of_tokens", [False, True])
def test_gradient_of_the_objective(pooling, loss, n_outputs, weighted, d_k, of_tokens, rng):
    X = pair_of(rng, weighted=weighted)
    rows = np.array([0, 3, 4, 8, 9, 11]) if of_tokens else None
    objective = objective_of(rng, X, pooling, loss, n_outputs, rows, d_k=d_k)
    theta = 0.5 * rng.normal(size=objective.layout.size)
    check_gradient(objective, theta, rng, atol=1e-8)


def test_chunks_hold_samples_of_the_same_two_lengths(rng):
    X = pair_of(rng)
    objective = objective_of(rng, X)
    for chunk, _ in objective.chunks:
        assert isinstance(chunk.sets, slice)
        assert np.shares_memory(chunk.block.C, objective.sets.keys.values) or not chunk.block.C.size
    shapes = [chunk.block.X.shape[:2] + chunk.block.C.shape[1:2] for chunk, _ in objective.chunks]
    assert shapes == [(1, 0, 2), (1, 1, 1), (1, 1, 5), (2, 2, 3), (1, 3, 0), (1, 4, 5)]
    by_position = list(objective.network.chunks(Sets.of(X)))
    assert sorted(np.concatenate([chunk.sets for chunk in by_position])) == list(range(len(X)))
    assert list(objective.network.chunks(Sets.of(X[:0]))) == []


@pytest.mark.parametrize("chunk_bytes", [1, 300, 2**19])
def test_chunks_change_nothing(chunk_bytes, rng):
    X = pair_of(rng, [(2, 3)] * 9 + [(1, 4)] * 5, weighted=True)
    states = np.random.default_rng(0), np.random.default_rng(0)
    whole = objective_of(states[0], X)
    parts = objective_of(states[1], X, chunk_bytes=chunk_bytes)
    assert len(parts.chunks) == {1: 14, 300: 5, 2**19: 2}[chunk_bytes]
    theta = rng.normal(size=whole.layout.size)
    for one, other in zip(whole.value_and_grad(theta), parts.value_and_grad(theta), strict=True):
        assert_allclose(one, other, rtol=1e-12, atol=1e-13)


def test_integer_token_weights_equal_repeated_tokens(rng):
    X = pair_of(rng)
    counts = [rng.integers(1, 4, size=side.n_tokens) for side in (X.queries, X.context)]
    weighted = RaggedPair(
        *(
            RaggedArray(side.values, side.offsets, count.astype(float))
            for side, count in zip((X.queries, X.context), counts, strict=True)
        )
    )
    repeated = RaggedPair(
        *(
            [np.repeat(tokens, count[a:b], axis=0) for tokens, a, b in
             zip(side, side.offsets[:-1], side.offsets[1:], strict=True)]
            for side, count in zip((X.queries, X.context), counts, strict=True)
        )
    )  # fmt: skip
    results = []
    for sets in (weighted, repeated):
        objective = objective_of(np.random.default_rng(0), sets)
        theta = np.random.default_rng(1).normal(size=objective.layout.size)
        results.append(objective.value_and_grad(theta))
    for one, other in zip(*results, strict=True):
        assert_allclose(one, other, rtol=1e-12, atol=1e-13)
    models = [regressor().fit(sets, Y7) for sets in (weighted, repeated)]
    for name in ("token_mean_", "token_scale_", "context_mean_", "context_scale_", "W_K_"):
        assert_allclose(getattr(models[0], name), getattr(models[1], name), rtol=1e-6, atol=1e-8)
    assert_allclose(models[0].predict(weighted), models[1].predict(repeated), rtol=1e-6, atol=1e-8)


# The estimators


def make_questions(n_samples, random_state):
    """A question (entity, attribute), a passage of facts, and the value of the fact asked for."""
    rng = np.random.default_rng(random_state)
    questions, passages, answers = [], [], []
    for _ in range(n_samples):
        n_facts = rng.integers(3, 7)
        facts = rng.choice(12, size=n_facts, replace=False)
        values = rng.integers(3, size=n_facts)
        asked = rng.integers(n_facts)
        entities, attributes = np.eye(4)[facts // 3], np.eye(3)[facts % 3]
        questions.append(np.hstack([entities, attributes])[[asked]])
        passages.append(np.hstack([entities, attributes, np.eye(3)[values]]))
        answers.append("xyz"[values[asked]])
    return RaggedPair(questions, passages), np.array(answers)


@pytest.fixture(scope="module")
def questions():
    return make_questions(300, 0)


@pytest.fixture(scope="module")
def classifier(questions):
    X, y = questions
    return AttentionClassifier(n_heads=2, d_k=4, d_v=4, random_state=0).fit(X, y)


def test_it_learns_which_token_of_the_context_answers(classifier):
    X, y = make_questions(500, 1)
    assert classifier.score(X, y) > 0.97
    right = [
        A[:, 0].mean(axis=0).argmax() == (C[:, :7] == q[0]).all(axis=1).argmax()
        for A, (q, C) in zip(classifier.attention_weights(X), X, strict=True)
    ]
    assert np.mean(right) > 0.97
    shuffled = RaggedPair(X.queries[::-1], X.context)  # the right passage to another question
    assert classifier.score(shuffled, y) < 0.6


@pytest.mark.parametrize("pooling", [*POOLINGS, None])
@pytest.mark.parametrize("standardize", [True, False])
@unfinished
def test_outputs_of_the_estimator_equal_the_formula(pooling, standardize, rng):
    X = pair_of(rng)
    model = AttentionContextualizer(
        n_heads=2, d_k=3, d_v=2, pooling=pooling, standardize=standardize, alpha=0.1, tol=1e-2
    ).fit(X, Y7)
    params = {name: getattr(model, name + "_") for name in ("W_Q", "W_K", "W_V", "b_V")}
    token_sets = [(q - model.token_mean_) / model.token_scale_ for q, _ in X]
    contexts = [(c - model.context_mean_) / model.context_scale_ for _, c in X]
    if standardize:
        for side, name in ((X.queries, "token"), (X.context, "context")):
            assert_allclose(getattr(model, f"{name}_mean_"), side.values.mean(axis=0), atol=1e-14)
            assert_allclose(getattr(model, f"{name}_scale_"), side.values.std(axis=0), atol=1e-14)
    else:
        assert_array_equal(model.context_scale_, np.ones(3))
    expected = [
        layer(params, q, None, c, n_heads=2) for q, c in zip(token_sets, contexts, strict=True)
    ]
    tokens = RaggedArray.from_list([out for out, _ in expected])
    contextual = model.contextualize(X)
    assert_array_equal(contextual.offsets, tokens.offsets)
    assert_allclose(contextual.values, tokens.values, atol=1e-12)
    for A, (_, A_expected), (n, m) in zip(
        model.attention_weights(X), expected, zip(X.lengths, X.context.lengths, strict=True),
        strict=True,
    ):  # fmt: skip
        assert A.shape == (2, n, m)
        assert_allclose(A, A_expected, atol=1e-13)
        assert_allclose(A.sum(axis=2), 1 if m else 0, atol=1e-12)
    out = model.transform(X)
    if pooling is None:
        assert_array_equal(out.values, contextual.values)
    else:
        pooled, _ = POOLINGS[pooling]().forward(model.pooling_params_, tokens)
        assert_allclose(out, pooled, atol=1e-12)
        assert out.shape[1] == len(model.get_feature_names_out())
        assert_array_equal(out[[2, 4]], 0)  # no query, no context


def test_order_of_the_context_changes_nothing_and_that_of_the_queries_their_rows(rng):
    X = pair_of(rng)
    model = regressor().fit(X, Y7)
    orders = [[rng.permutation(len(tokens)) for tokens in side] for side in (X.queries, X.context)]
    moved = RaggedPair(
        *(
            [tokens[order] for tokens, order in zip(side, of_side, strict=True)]
            for side, of_side in zip((X.queries, X.context), orders, strict=True)
        )
    )
    assert_allclose(model.transform(moved), model.transform(X), atol=1e-12)
    for one, other, order in zip(
        model.contextualize(moved), model.contextualize(X), orders[0], strict=True
    ):
        assert_allclose(one, other[order], atol=1e-12)
    for one, other, rows, columns in zip(
        model.attention_weights(moved), model.attention_weights(X), *orders, strict=True
    ):
        assert_allclose(one, other[:, rows][:, :, columns], atol=1e-12)


def test_other_samples_change_nothing(rng):
    X = pair_of(rng, weighted=True)
    model = regressor().fit(X, Y7)
    together, weights = model.transform(X), model.attention_weights(X)
    for i in range(len(X)):
        alone = X[i : i + 1]
        assert_allclose(model.transform(alone)[0], together[i], rtol=1e-12, atol=1e-14)
        assert_allclose(model.attention_weights(alone)[0], weights[i], rtol=1e-12, atol=1e-14)
    order = rng.permutation(len(X))
    assert_allclose(model.transform(X[order]), together[order], rtol=1e-12, atol=1e-14)
    assert model.transform(X[:0]).shape == (0, together.shape[1])
    assert model.attention_weights(X[:0]) == []


def test_sets_as_their_own_contexts_are_self_attention(rng):
    sets = [rng.normal(size=(n, 4)) for n in (3, 1, 5, 2, 5, 3, 4)]
    own = regressor(max_iter=0).fit(sets, Y7)
    crossed = regressor(max_iter=0).fit(RaggedPair(sets, sets), Y7)
    k = crossed.transform(RaggedPair(sets, sets)).shape[1]
    assert_array_equal(crossed.W_K_, own.W_K_)
    assert_array_equal(crossed.transform(RaggedPair(sets, sets)), own.transform(sets)[:, :k])
    plain = {"score_statistics": False, "tol": 1e-6}
    own, crossed = (
        regressor(**plain).fit(sets, Y7),
        regressor(**plain).fit(RaggedPair(sets, sets), Y7),
    )
    assert_allclose(crossed.predict(RaggedPair(sets, sets)), own.predict(sets), rtol=1e-9)


def test_features_out_have_no_self_weights(rng):
    X = pair_of(rng)
    model = AttentionContextualizer(n_heads=3, d_k=2, d_v=2, max_iter=0).fit(X)
    assert model.transform(X).shape == (7, 3 * (2 + 1))
    assert np.all(model.transform(X).std(axis=0) > 0)
    assert (model.n_features_in_, model.n_context_features_in_) == (4, 3)


# What X may be


def test_a_frame_names_its_context(rng):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    X = pair_of(rng)
    expected = regressor().fit(X, Y7)
    for columns in (["words", "passage"], ["passage", "words"]):
        frame = pd.DataFrame({"words": X.queries.to_list(), "passage": X.context.to_list()})
        frame = frame[columns]
        model = regressor(context="passage").fit(frame, Y7)
        assert_array_equal(model.predict(frame), expected.predict(X))
        assert_array_equal(model.predict(X), expected.predict(X))
        for A, A_expected in zip(
            model.attention_weights(frame), expected.attention_weights(X), strict=True
        ):
            assert_array_equal(A, A_expected)
        assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_other_frames_name_their_context(kind, rng):
    library = pytest.importorskip(kind, reason=f"{kind} is not installed")
    X = pair_of(rng)
    cells = {
        "words": [tokens.tolist() for tokens in X.queries],
        "passage": [tokens.tolist() for tokens in X.context],
    }
    frame = library.DataFrame(cells) if kind == "polars" else library.table(cells)
    with pytest.raises(ValueError, match="frame of 2 columns; .* by the attention's context="):
        regressor().fit(frame, Y7)
    model = regressor(context="passage").fit(frame, Y7)
    expected = regressor().fit(X, Y7)
    assert_allclose(model.predict(frame), expected.predict(X), rtol=1e-12)


def test_padding_and_lists_give_the_same(rng):
    X = pair_of(rng)
    model = regressor().fit(X, Y7)
    padded = RaggedPair(X.queries.to_padded(), X.context.to_padded())
    listed = RaggedPair(X.queries.to_list(), [tokens.tolist() for tokens in X.context])
    for other in (padded, listed):
        assert_array_equal(model.transform(other), model.transform(X))
        again = regressor().fit(other, Y7)
        assert_array_equal(again.W_K_, model.W_K_)


@pytest.mark.parametrize("loss", ["auto", "reconstruction"])
def test_nothing_is_learned_without_targets(loss, rng):
    with pytest.raises(ValueError, match="loss='reconstruction' applies to .* give y, and a loss"):
        AttentionContextualizer(loss=loss).fit(pair_of(rng))


@pytest.mark.parametrize(
    ("params", "X", "error", "match"),
    [
        ({"mask": "causal"}, None, ValueError, "mask='causal' applies to .* choose mask=None"),
        ({"context": "b"}, [[[1.0]], [[2.0]]], TypeError, "context='b' names a column, but X is"),
    ],
)
def test_what_does_not_go_with_a_context_is_refused(params, X, error, match, rng):
    X = pair_of(rng, [(2, 3), (1, 2)]) if X is None else X
    with pytest.raises(error, match=match):
        regressor(**params).fit(X, [0.0, 1.0])


def test_a_frame_without_the_context_is_refused(rng):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    cells = [rng.normal(size=(2, 3)) for _ in range(2)]
    for columns in (["a"], ["a", "c"], ["a", "b", "c"]):
        frame = pd.DataFrame({name: cells for name in columns})
        with pytest.raises(ValueError, match=r"X has the columns \[.*must have two: 'b'"):
            regressor(context="b").fit(frame, [0.0, 1.0])
    with pytest.raises(ValueError, match="frame of 2 columns; .* by the attention's context="):
        regressor().fit(pd.DataFrame({"a": cells, "b": cells}), [0.0, 1.0])


def test_another_kind_or_width_than_in_fit_is_refused(rng):
    X, sets = pair_of(rng), [rng.normal(size=(3, 4)) for _ in range(7)]
    crossed, own = regressor(max_iter=0).fit(X, Y7), regressor(max_iter=0)
    own.fit(sets, Y7)
    with pytest.raises(TypeError, match="without a context, but this AttentionRegressor was"):
        crossed.predict(sets)
    with pytest.raises(TypeError, match="has contexts, but this AttentionRegressor was"):
        own.predict(X)
    with pytest.raises(ValueError, match="The queries of X has 5 features.* expecting 4"):
        crossed.predict(RaggedPair(np.ones((2, 5)), np.ones((2, 3))))
    with pytest.raises(ValueError, match="The context of X has 5 features.* expecting 3"):
        crossed.predict(RaggedPair(np.ones((2, 4)), np.ones((2, 5))))
    no_context = RaggedPair(np.ones((2, 4)), [[], []])
    assert_allclose(crossed.predict(no_context), crossed.intercept_[0])
    with pytest.raises(
        ValueError, match=r"0 feature\(s\).* is required: The context of X has none"
    ):
        regressor().fit(RaggedPair(np.ones((2, 4)), [[], []]), [0.0, 1.0])
    with pytest.raises(ValueError, match="W_K to start from has shape"):
        regressor(init={"W_K": np.ones((4, 4))}).fit(X, Y7)


def test_refits_change_the_kind(rng):
    X, sets = pair_of(rng), [rng.normal(size=(3, 4)) for _ in range(7)]
    model = regressor(max_iter=0).fit(X, Y7).fit(sets, Y7)
    assert model.transform(sets).shape == (7, 2 * (2 + 2))
    for name in ("context_mean_", "context_scale_", "n_context_features_in_"):
        assert not hasattr(model, name)
    assert model.fit(X, Y7).transform(X).shape == (7, 2 * (2 + 1))


def test_contexts_of_one_token_are_warned_of():
    X = RaggedPair([[[1.0], [2.0]], [[3.0]]], np.eye(2))
    with pytest.warns(UserWarning, match="No context has more than one token"):
        regressor(max_iter=0).fit(X, [0.0, 1.0])


# In scikit-learn


def test_pipelines_scorers_and_searches(questions):
    X, y = questions
    model = AttentionContextualizer(n_heads=1, d_k=4, d_v=4, random_state=0, tol=1e-2)
    pipeline = make_pipeline(model, LogisticRegression())
    for scoring in ("accuracy", "roc_auc_ovr", "neg_log_loss"):
        assert np.all(np.isfinite(cross_val_score(pipeline, X, y, cv=2, scoring=scoring)))
    search = GridSearchCV(
        pipeline,
        {"attentioncontextualizer__alpha": [1e-3, 1e-1]},
        cv=StratifiedKFold(2),
        scoring="neg_log_loss",
    ).fit(X, y)
    assert search.score(X, y) > -0.3  # chance is -1.1
    assert search.predict(X[:3]).shape == (3,)


def test_predictors_in_scikit_learn(questions, classifier):
    X, y = questions
    quick = clone(classifier).set_params(tol=1e-2)
    probabilities = cross_val_predict(quick, X, y, cv=2, method="predict_proba")
    assert_allclose(probabilities.sum(axis=1), 1)
    again = pickle.loads(pickle.dumps(classifier))
    assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_columns_of_a_table(rng):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    X = pair_of(rng)
    frame = pd.DataFrame(
        {"words": X.queries.to_list(), "passage": X.context.to_list(), "size": np.arange(7.0)},
        index=list("gfedcba"),
    )
    attention = AttentionContextualizer(
        n_heads=2, d_k=2, d_v=2, max_iter=0, context="passage", random_state=0
    )
    table = ColumnTransformer(
        [("attention", attention, ["words", "passage"]), ("rest", "passthrough", ["size"])]
    ).set_output(transform="pandas")
    out = table.fit_transform(frame, Y7)
    assert out.shape == (7, 2 * (2 + 1) + 1)
    assert list(out.index) == list("gfedcba")
    expected = clone(attention).fit(X, Y7).transform(X)
    assert_array_equal(out.to_numpy()[:, :-1], expected)
    pair = RaggedPair(frame["words"], frame["passage"])
    out = clone(attention).set_output(transform="pandas").fit_transform(pair, Y7)
    assert list(out.index) == list("gfedcba")
    assert_array_equal(out, expected)


def test_the_penalty_is_chosen_over_splits_of_pairs(questions):
    X, y = questions
    groups = np.arange(len(y)) % 4
    model = AttentionContextualizerCV(
        alphas=(1e-3, 1.0), cv=GroupKFold(2), n_heads=1, d_k=4, d_v=4, random_state=0,
        max_iter=40, tol=1e-2,
    ).fit(X, y, groups=groups)  # fmt: skip
    assert model.alpha_ == 1e-3
    assert model.transform(X).shape == (300, 5)


def test_a_frame_in_the_search_for_the_penalty(questions):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    X, y = questions
    X, y = X[:60], y[:60]
    frame = pd.DataFrame({"q": X.queries.to_list(), "c": X.context.to_list()})
    params = {"alphas": (1e-2, 1e-1), "cv": 2, "n_heads": 1, "random_state": 0, "tol": 1e-2}
    models = [
        AttentionContextualizerCV(**params, context=context).fit(sets, y)
        for sets, context in ((X, None), (frame, "c"))
    ]
    assert_array_equal(
        models[0].cv_results_["split_test_scores"], models[1].cv_results_["split_test_scores"]
    )


def test_targets_of_tokens(rng):
    """Each query token has a target: the value of the key nearest to it."""
    queries, contexts, y = [], [], []
    for _ in range(150):
        keys = rng.choice(6, size=4, replace=False)
        values, asked = rng.integers(2, size=4), rng.integers(4, size=rng.integers(1, 4))
        queries.append(np.eye(6)[keys[asked]])
        contexts.append(np.column_stack([np.eye(6)[keys], values]))
        y.append(values[asked])
    X = RaggedPair(queries, contexts)
    model = AttentionClassifier(pooling=None, n_heads=2, random_state=0).fit(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.97
    assert [len(p) for p in model.predict(X)] == X.lengths.tolist()


def test_only_the_tokens_that_have_a_target_are_scored(rng):
    """They attend by themselves: the same fit as without the others, which set scales alone."""
    X = pair_of(rng, [(2, 3), (3, 2), (2, 5), (1, 4)])
    y = [[0.5, None], [-0.3, None, None], [1.2, None], [0.1]]
    model = regressor(pooling=None, standardize=False).fit(X, y)
    first = RaggedPair([tokens[:1] for tokens in X.queries], X.context)
    alone = regressor(standardize=False).fit(first, [0.5, -0.3, 1.2, 0.1])
    assert_allclose(model.W_K_, alone.W_K_, rtol=1e-6, atol=1e-9)
    predicted = [tokens[0] for tokens in model.predict(X)]
    assert_allclose(predicted, alone.predict(first), rtol=1e-6, atol=1e-9)


def test_processes_and_threads_change_nothing(rng, monkeypatch):
    monkeypatch.setattr("skattn._objective.WORK_OF_A_PIECE", 1e3)  # many parts
    monkeypatch.setattr("skattn._network.MANY_TOKENS", 10)
    X, y = make_questions(60, 0)
    fits = [
        AttentionClassifier(n_heads=2, random_state=0, tol=0.05, n_jobs=n).fit(X, y) for n in (1, 2)
    ]
    assert fits[0].n_iter_ > 3
    assert_array_equal(fits[0].W_K_, fits[1].W_K_)
    assert_array_equal(fits[0].predict_proba(X), fits[1].predict_proba(X))


def test_warm_start_goes_on(questions):
    X, y = questions
    model = AttentionClassifier(n_heads=1, random_state=0, tol=0.02, warm_start=True)
    first = model.fit(X, y).loss_
    assert model.n_iter_ > 3
    assert model.fit(X, y).loss_curve_[0] == pytest.approx(first)


@pytest.mark.parametrize("name", ["AttentionContextualizer", "AttentionClassifier"])
def test_samples_of_weight_zero_are_left_out(name, questions):
    X, y = questions[0][:40], questions[1][:40]
    weight = (np.arange(40) % 3).astype(float)
    used = np.flatnonzero(weight)
    params = {"n_heads": 1, "random_state": 0, "tol": 0.02}
    kind = getattr(skattn, name)
    one = kind(**params).fit(X, y, sample_weight=weight)
    other = kind(**params).fit(X[used], y[used], sample_weight=weight[used])
    assert one.n_iter_ > 3
    assert_array_equal(one.W_K_, other.W_K_)
    assert_array_equal(one.context_mean_, other.context_mean_)


# Long ones


def test_memory_does_not_grow_with_the_product_of_the_lengths(rng):
    n, m = 3000, 4000
    X = RaggedPair([rng.normal(size=(n, 4))], [rng.normal(size=(m, 3))])
    model = AttentionContextualizer(n_heads=2, d_k=2, d_v=2, max_iter=0).fit(X)
    tracemalloc.start()
    model.transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.2 * n * m * 2 * 8
    first = RaggedPair([X.queries.values[:50]], X.context)
    assert_allclose(
        model.contextualize(X)[0][:50], model.contextualize(first)[0], rtol=1e-12, atol=1e-13
    )


def test_weights_that_are_too_many_are_refused(rng, monkeypatch):
    monkeypatch.setattr("skattn._network.WEIGHTS_LIMIT", 2 * 8 * 49)
    X = pair_of(rng, [(5, 10), (1, 2)])
    model = AttentionContextualizer(n_heads=2, max_iter=0).fit(X)
    with pytest.raises(ValueError, match="the longest of 10 tokens"):
        model.attention_weights(X)
    assert model.attention_weights(X[1:])[0].shape == (2, 1, 2)
