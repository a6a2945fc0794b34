"""Field cases of text: F19, words without a vector and documents without words."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skattn import AttentionContextualizer, TokenEmbedder

DOCUMENTS = ["cat dog phone", "cat zzz", "zzz", ""]


@pytest.fixture
def table(seed_tokens):
    """The textbook's three words and their vectors."""
    return dict(zip(["cat", "dog", "phone"], seed_tokens, strict=True))


def formula(**params):
    """Attention with identity projections, on the raw tokens."""
    return AttentionContextualizer(
        n_heads=1,
        d_k=2,
        d_v=2,
        init="identity",
        standardize=False,
        score_statistics=False,
        max_iter=0,
        **params,
    )


# Documents as texts, as lists of words, and with the unknown word in other places.
FORMS = {
    "texts": DOCUMENTS,
    "words": [text.split() for text in DOCUMENTS],
    "unknown first": ["cat dog phone", "zzz cat", "zzz zzz", " "],
}
forms = pytest.mark.parametrize("documents", FORMS.values(), ids=FORMS)


@forms
def test_f19_unknown_words_are_no_tokens(documents, table):
    model = make_pipeline(TokenEmbedder(table), formula(pooling=None))
    out = model.fit(documents).transform(documents)
    assert_array_equal(out.lengths, [3, 1, 0, 0])
    assert_allclose(out[0][0], [0.654218, 0.628224], atol=5e-7)
    assert_allclose(out[1], [[1, 0.5]], rtol=1e-12)


@forms
def test_f19_documents_without_known_words_are_empty_sets(documents, table):
    model = make_pipeline(TokenEmbedder(table), formula(pooling="mean"))
    out = model.fit(documents).transform(documents)
    assert_array_equal(out[2:], 0)
    contextual = [[0.654218, 0.628224], [0.601719, 0.645381], [0.155590, 0.789868]]
    assert_allclose(out[0], np.mean(contextual, axis=0), atol=5e-7)
    as_nan = model.set_params(attentioncontextualizer__empty="nan").fit(documents)
    assert_array_equal(
        np.isnan(as_nan.transform(documents)).all(axis=1), [False, False, True, True]
    )
    strict = model.set_params(attentioncontextualizer__empty="error")
    with pytest.raises(ValueError, match=r"Sets \[2, 3\] have no tokens"):
        strict.fit(documents)


def test_f19_the_other_documents_are_as_without_the_empty_ones(table):
    model = make_pipeline(TokenEmbedder(table), formula(pooling="stats")).fit(DOCUMENTS)
    assert_array_equal(model.transform(DOCUMENTS)[:2], model.transform(DOCUMENTS[:2]))


def test_f19_a_model_learns_beside_empty_documents(table):
    texts, y = ["cat", "dog cat", "phone", "phone phone zzz", "", "zzz"], [1, 1, 0, 0, 0, 0]
    contextualizer = AttentionContextualizer(n_heads=1, d_k=2, d_v=2, random_state=0)
    model = make_pipeline(TokenEmbedder(table), contextualizer, LogisticRegression(C=100))
    probability = model.fit(texts, y).predict_proba(texts)
    assert np.isfinite(probability).all()
    assert model.score(texts, y) == 1
    assert np.isfinite(model[1].loss_)


def test_f19_the_share_of_unknown_words_is_reported(table):
    embedder = TokenEmbedder(table).fit(DOCUMENTS)
    assert embedder.unknown_share_ == 2 / 6
    assert embedder.unknown_share(DOCUMENTS[2:]) == 1
    assert embedder.unknown_share([""]) == 0


def test_f19_a_setting_raises_naming_set_and_word(table):
    strict = TokenEmbedder(table, unknown="error")
    with pytest.raises(ValueError, match="Token 1 of set 1 is 'zzz', .* 2 of 6 tokens have none"):
        strict.fit(DOCUMENTS)
    with pytest.raises(ValueError, match="Token 0 of set 0 is 'zzz'"):
        strict.fit(DOCUMENTS[:1]).transform(["zzz", ""])
    assert_array_equal(strict.transform(["", "cat"]).lengths, [0, 1])  # empty is not unknown
