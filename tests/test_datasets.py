"""The generators make what their docstrings say, and what the docstrings prove."""

import functools

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import AttentionClassifier, AttentionContextualizer
from skattn.datasets import (
    load_digit_bags,
    make_distinct_counts,
    make_lookup,
    make_matching_pairs,
    make_odd_one_out,
    make_word_senses,
)

MAKERS = [
    make_lookup,
    make_matching_pairs,
    make_distinct_counts,
    make_odd_one_out,
    functools.partial(make_word_senses, per_token=False),
]


def pooled_statistics(X):
    """Mean, standard deviation, extremes and number of tokens of each set."""
    return np.array([np.r_[x.mean(0), x.std(0), x.min(0), x.max(0), len(x)] for x in X])


def pooled_baselines():
    linear = make_pipeline(StandardScaler(), LogisticRegression())
    return [linear, RandomForestClassifier(random_state=0)]


@pytest.mark.parametrize("make", MAKERS)
def test_makers_give_lists_of_float64_sets_and_a_target_each(make):
    X, y = make(30, random_state=0)
    assert isinstance(X, list) and len(X) == 30 and y.shape == (30,)
    assert {x.dtype for x in X} == {np.dtype(np.float64)}
    assert len({x.shape[1] for x in X}) == 1
    assert all(np.isfinite(x).all() for x in X)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "seeded",
    [lambda: 3, lambda: np.random.RandomState(3), lambda: np.random.default_rng(3)],
    ids=["int", "RandomState", "Generator"],
)
def test_a_seed_fixes_the_draw_and_the_global_state_is_untouched(make, seeded):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    (X, y), (again, y_again) = make(10, random_state=seeded()), make(10, random_state=seeded())
    np.testing.assert_array_equal(y, y_again)
    for x, x_again in zip(X, again, strict=True):
        np.testing.assert_array_equal(x, x_again)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("make", MAKERS)
def test_different_seeds_differ(make):
    (X, _), (other, _) = make(10, random_state=0), make(10, random_state=1)
    assert any(x.shape != o.shape or (x != o).any() for x, o in zip(X, other, strict=True))


@pytest.mark.parametrize("make", MAKERS)
def test_no_sets_at_all_is_an_empty_list(make):
    X, y = make(0, random_state=0)
    assert X == [] and y.shape == (0,)


def test_lookup_label_is_the_value_behind_the_querys_key():
    X, y = make_lookup(200, random_state=0)
    for x, label in zip(X, y, strict=True):
        query, items = x[x[:, 7] == 1], x[x[:, 7] == 0]
        assert len(query) == 1 and query[0, 6] == 0
        assert len(np.unique(items[:, :6], axis=0)) == 6
        [asked] = items[(items[:, :6] == query[0, :6]).all(axis=1)]
        assert label == (asked[6] == 1)


def test_lookup_values_are_three_of_each_sign_whatever_the_label():
    X, _ = make_lookup(200, random_state=0)
    for x in X:
        np.testing.assert_array_equal(np.sort(x[:, 6]), [-1, -1, -1, 0, 1, 1, 1])


def test_lookup_features_one_by_one_are_the_same_with_the_other_label():
    # The proof's step 2, made concrete: exchange the values of the asked item and of one of the
    # other sign. The label flips and every feature keeps its multiset of values.
    X, _ = make_lookup(50, random_state=1)
    for x in X:
        query = x[x[:, 7] == 1, :6]
        asked = np.flatnonzero((x[:, :6] == query).all(axis=1) & (x[:, 7] == 0))[0]
        other = np.flatnonzero(x[:, 6] == -x[asked, 6])[0]
        flipped = x.copy()
        flipped[[asked, other], 6] = x[[other, asked], 6]
        assert flipped[asked, 6] == -x[asked, 6]
        np.testing.assert_array_equal(np.sort(flipped, axis=0), np.sort(x, axis=0))


def test_lookup_query_and_label_are_uniform():
    X, y = make_lookup(4000, random_state=2)
    assert abs(y.mean() - 0.5) < 0.03
    position = np.array([np.flatnonzero(x[:, 7])[0] for x in X])
    np.testing.assert_allclose(np.bincount(position, minlength=7) / 4000, 1 / 7, atol=0.025)


@pytest.mark.parametrize("make, limit", [(make_lookup, 0.55), (make_matching_pairs, 0.62)])
def test_pooled_statistics_hardly_help_where_the_interaction_is_the_label(make, limit):
    (X, y), (X_test, y_test) = make(500, random_state=0), make(1000, random_state=1)
    for model in pooled_baselines():
        accuracy = model.fit(pooled_statistics(X), y).score(pooled_statistics(X_test), y_test)
        assert accuracy < limit, model


def test_matching_pairs_hold_a_close_pair_where_the_label_says_so():
    X, y = make_matching_pairs(300, random_state=0)
    closest = np.array([np.max(x @ x.T - 2 * np.eye(len(x))) for x in X])
    assert closest[y == 1].min() > 0.97
    assert (closest[y == 0] > 0.98).mean() < 0.1
    assert {len(x) for x in X} == set(range(8, 13))
    np.testing.assert_allclose([np.linalg.norm(x, axis=1).max() for x in X], 1.0)
    assert abs(y.mean() - 0.5) < 0.1


def test_matching_pairs_without_noise_repeat_a_token():
    X, y = make_matching_pairs(50, n_features=3, noise=0.0, random_state=0)
    rounded = [np.unique(x.round(12), axis=0) for x in X]
    n_repeats = [len(x) - len(distinct) for x, distinct in zip(X, rounded, strict=True)]
    assert n_repeats == y.tolist()
    assert X[0].shape[1] == 3


def test_distinct_counts_are_the_numbers_of_distinct_rows():
    X, y = make_distinct_counts(300, random_state=0)
    assert [len(np.unique(x, axis=0)) for x in X] == y.tolist()
    assert y.dtype == np.float64
    assert {len(x) for x in X} == set(range(4, 13))


def test_word_senses_are_those_of_the_cues_for_the_ambiguous_word():
    X, y = make_word_senses(3000, random_state=0)
    _, senses = make_word_senses(3000, per_token=False, random_state=0)
    assert {len(x) for x in X} == set(range(7, 12))
    labels = np.concatenate(y)
    is_word = labels != None  # noqa: E711
    assert [len(a) for a in y] == [len(x) for x in X] and is_word.sum() == 3000
    np.testing.assert_array_equal(labels[is_word].astype(int), senses)
    tokens = np.vstack(X)
    vectors, word = np.unique(tokens[is_word], axis=0, return_inverse=True)
    assert len(vectors) == 4
    others, other = np.unique(tokens[~is_word], axis=0, return_inverse=True)
    assert len(others) == 16 + 20
    # of the words beside an ambiguous one, four never stand with its one sense: the other's cues
    beside = np.zeros((4, 2, len(others)))
    of_sentence = np.repeat(np.arange(3000), [len(x) for x in X])
    np.add.at(beside, (word[of_sentence[~is_word]], senses[of_sentence[~is_word]], other), 1)
    assert ((beside == 0).sum(axis=2) == 2).all()
    assert (beside.sum(axis=(0, 1)) > 0).all()


def test_own_token_of_an_ambiguous_word_says_nothing_and_its_sentence_all():
    (X, y), (X_test, y_test) = (
        make_word_senses(n, random_state=seed) for n, seed in ((400, 0), (1000, 1))
    )

    def own(X, y):
        return np.vstack([x[labels != None] for x, labels in zip(X, y, strict=True)])  # noqa: E711

    senses, senses_test = (
        make_word_senses(n, per_token=False, random_state=seed)[1]
        for n, seed in ((400, 0), (1000, 1))
    )
    for model in pooled_baselines():
        accuracy = model.fit(own(X, y), senses).score(own(X_test, y_test), senses_test)
        assert abs(accuracy - 0.5) < 0.05
        pooled = model.fit(pooled_statistics(X), senses)
        assert pooled.score(pooled_statistics(X_test), senses_test) < 0.8
    model = AttentionClassifier(pooling=None, random_state=0).fit(X, y)
    assert model.score(X_test, y_test) >= 0.97


def test_the_odd_one_out_is_in_neither_crowd():
    X, y = make_odd_one_out(300, noise=0.0, random_state=0)
    for x, has_odd_one in zip(X, y, strict=True):
        _, counts = np.unique(x.round(9), axis=0, return_counts=True)
        assert len(counts) == 2 + has_odd_one
        assert (counts == 1).sum() == has_odd_one
    X, y = make_odd_one_out(300, n_features=4, random_state=0)
    assert {len(x) for x in X} == set(range(8, 13))
    assert X[0].shape[1] == 4
    assert abs(y.mean() - 0.5) < 0.1


def test_reconstruction_finds_the_odd_one_out_where_supervised_attention_does_not():
    (X, y), (X_test, y_test) = (
        make_odd_one_out(500, random_state=0),
        make_odd_one_out(1000, random_state=1),
    )
    attention = AttentionContextualizer(random_state=0).fit(X)
    head = RandomForestClassifier(random_state=0).fit(attention.transform(X), y)
    assert head.score(attention.transform(X_test), y_test) >= 0.83
    for model in pooled_baselines():
        accuracy = model.fit(pooled_statistics(X), y).score(pooled_statistics(X_test), y_test)
        assert accuracy < 0.79
    plain = AttentionClassifier(score_statistics=False, alpha=0.01, random_state=0).fit(X, y)
    assert plain.score(X_test, y_test) < 0.57


def test_digit_bags_are_balanced_and_labelled_by_what_they_hold():
    X_train, y_train, X_test, y_test, digits_train, digits_test = load_digit_bags(
        n_train=60, n_test=90, return_token_labels=True, random_state=0
    )
    for X, y, digits, n_bags in (
        (X_train, y_train, digits_train, 60),
        (X_test, y_test, digits_test, 90),
    ):
        assert len(X) == len(digits) == len(y) == n_bags and y.mean() == 0.5
        assert [9 in d for d in digits] == (y == 1).tolist()
        assert all(x.shape == (len(d), 64) for x, d in zip(X, digits, strict=True))
        assert abs(np.mean([len(x) for x in X]) - 10) < 1 and len({len(x) for x in X}) > 3


def test_digit_bags_share_no_image_between_train_and_test():
    X_train, _, X_test, _ = load_digit_bags(random_state=0)
    images = load_digits().data / 16.0
    assert len(np.unique(images, axis=0)) == len(images)  # so equal rows are the same image
    train, test = ({x.tobytes() for x in np.concatenate(X)} for X in (X_train, X_test))
    assert not train & test
    assert train | test <= {x.tobytes() for x in images}


def test_digit_bags_never_repeat_an_image_within_a_bag():
    X_train, _, _, _ = load_digit_bags(random_state=1)
    assert all(len(np.unique(x, axis=0)) == len(x) for x in X_train)


def test_digit_bags_of_another_digit_and_size():
    _, y, _, _, digits, _ = load_digit_bags(
        n_train=20, n_test=0, bag_size=5, digit=0, return_token_labels=True, random_state=0
    )
    assert [0 in d for d in digits] == (y == 1).tolist()
    assert max(len(d) for d in digits) < 10


def test_digit_bags_refuse_what_no_image_shows():
    with pytest.raises(ValueError, match="digit is 10, but must be one of 0 to 9"):
        load_digit_bags(digit=10)


def test_one_head_learns_the_lookup():
    (X, y), (X_test, y_test) = make_lookup(500, random_state=0), make_lookup(500, random_state=1)
    attention = AttentionContextualizer(n_heads=1, random_state=0).fit(X, y)
    head = LogisticRegression().fit(attention.transform(X), y)
    assert head.score(attention.transform(X_test), y_test) >= 0.98
