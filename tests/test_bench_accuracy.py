"""The benchmark of accuracy: scores and their errors, its cache, its splits and its peers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.multioutput import MultiOutputRegressor

from skattn import RaggedArray, SetPooler
from skattn.pipelines import set_pipeline


@pytest.fixture(scope="module")
def bench(from_benchmarks):
    return from_benchmarks("bench_accuracy")


@pytest.fixture
def tasks(bench):
    return {task.name: task for task in bench.TASKS}


@pytest.fixture
def sets(rng):
    """Sixty sets of 1 to 9 tokens of 3 features, and labels that their means tell."""
    lengths = rng.integers(1, 10, size=60)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    X = RaggedArray(rng.normal(size=(offsets[-1], 3)), offsets)
    return X, (X.segment_sum()[:, 0] > 0).astype(int)


class Told:
    """Predictions as given."""

    def __init__(self, predicted):
        self.predicted = predicted

    def predict(self, X):
        return self.predicted

    def decision_function(self, X):
        return self.predicted


def test_parts_have_the_score_as_their_mean(bench, tasks, rng):
    y, guess = rng.normal(size=(2, 40, 2))
    result = bench.scores(tasks["hzz_events"], Told(guess), None, y)
    assert_allclose(result["score"], r2_score(y, guess))
    assert_allclose(np.mean(result["parts"][0]), result["score"], rtol=1e-4)
    labels, ranks = rng.integers(2, size=40), rng.integers(5, size=40)  # with ties
    result = bench.scores(tasks["wsd_bank"], Told(ranks), None, labels)
    assert_allclose(result["score"], roc_auc_score(labels, ranks))
    for part in result["parts"]:
        assert_allclose(np.mean(part), result["score"], rtol=1e-4)


def test_paired_error_of_one_split_is_that_of_the_differences(bench, rng):
    a, b = rng.integers(2, size=(2, 50)).astype(float)
    results = [[{"score": part.mean(), "parts": [part.tolist()]}] for part in (a, b)]
    gap, error = bench.difference(*results)
    assert_allclose(gap, (a - b).mean())
    assert_allclose(error, (a - b).std(ddof=1) / np.sqrt(50))
    assert bench.difference(results[0], results[0]) == (0, 0)


def test_paired_error_over_splits(bench):
    ours, theirs = ([{"score": s} for s in scores] for scores in ([0.9, 0.7, 0.8], [0.8, 0.7, 0.6]))
    gap, error = bench.difference(ours, theirs)
    assert_allclose((gap, error), (0.1, 0.1 / np.sqrt(3)))


def test_cache_outlives_a_run_that_was_killed(bench, tasks, tmp_path):
    musk, method = tasks["musk1"], bench.METHODS[0]
    cache = bench.Cache(tmp_path, fast=False)
    cache.put(musk, method, 0, {"score": 0.5})
    with cache.path.open("a") as file:
        file.write('{"task":"musk1","meth')
    bench.Cache(tmp_path, fast=False).put(musk, method, 1, {"score": 0.25})
    again = bench.Cache(tmp_path, fast=False)
    assert [again.get(musk, method, number)["score"] for number in (0, 1)] == [0.5, 0.25]
    assert again.get(musk, method, 2) is None
    again.put(musk, method, 3, {"score": 0.1})  # after a gap it does not count yet
    assert [result["score"] for result in again.of(musk, method)] == [0.5, 0.25]


def test_scores_of_other_settings_do_not_count(bench, tasks, tmp_path):
    musk, method = tasks["musk1"], bench.METHODS[-3]
    bench.Cache(tmp_path, fast=False).put(musk, method, 0, {"score": 0.5})
    again, fast = (bench.Cache(tmp_path, fast) for fast in (False, True))
    changed = bench.Method(method.name, lambda task, seed: bench.AttentionClassifier(alpha=0.5))
    assert again.get(musk, method, 0) is not None
    assert again.get(musk, changed, 0) is None
    assert fast.get(musk, method, 0) is None


def test_named_methods_come_from_the_table_and_others_do_not(bench, tasks, tmp_path):
    peer, ours = bench.METHODS[0], bench.METHODS[-1]
    table = tmp_path / "accuracy.csv"
    made = bench.Cache(tmp_path / "old", fast=False)
    results = [{"score": 0.5, "auc": 0.25, "seconds": 4.0}, {"score": 0.75, "seconds": 2.0}]
    for number, result in enumerate(results):
        for method in (peer, ours):
            made.put(tasks["musk1"], method, number, result)
    made.put(tasks["trec6"], peer, 0, {"score": 0.9, "seconds": 1.0, "parts": [[0.8, 1.0]]})
    table.write_text(bench.csv(list(tasks.values()), made))
    new, without = (
        bench.Cache(tmp_path / "new", fast=False, table=table, takes_stored=takes)
        for takes in ([peer], [])
    )
    found = new.of(tasks["musk1"], peer)
    assert [{k: v for k, v in r.items() if k != "split"} for r in found] == results
    assert new.of(tasks["musk1"], ours) is None is without.of(tasks["musk1"], peer)
    for number, score in enumerate((0.75, 0.875)):
        new.put(tasks["musk1"], ours, number, {"score": score, "seconds": 1.5})
    assert bench.duel(tasks["musk1"], new, ours)[3:] == (0.1875, 0.0625, "first")
    new.put(tasks["trec6"], ours, 0, {"score": 0.8, "seconds": 1.0, "parts": [[0.8, 0.8]]})
    assert bench.duel(tasks["trec6"], new, ours)[-1] == "behind, error unknown"


@pytest.mark.parametrize("name", ["lookup", "musk1", "wsd_crane", "flavor_compounds", "hzz_events"])
def test_a_split_depends_on_its_number_alone(bench, tasks, name, data_dir, monkeypatch):
    monkeypatch.setenv("SKATTN_DATA", str(data_dir))
    task = tasks[name]
    a, b = task.split(0), task.split(0)
    for ours, theirs in ((a.X, b.X), (a.X_test, b.X_test)):
        assert np.array_equal(ours.values, theirs.values)
        assert np.array_equal(ours.offsets, theirs.offsets)
    assert np.array_equal(a.y, b.y) and np.array_equal(a.y_test, b.y_test)
    assert len(a.X) == len(a.y) <= task.n_train
    assert len(a.X_test) == len(a.y_test) <= task.n_test
    assert task.n_splits == 1 or not np.array_equal(a.X.values, task.split(1).X.values)


def test_folds_test_every_set_once(tasks, data_dir, monkeypatch):
    monkeypatch.setenv("SKATTN_DATA", str(data_dir))
    tested = [task_split.X_test for task_split in map(tasks["musk1"].split, range(10))]
    first_tokens = np.concatenate([sets.values[sets.offsets[:-1]] for sets in tested])
    assert len(first_tokens) == 92 == len(np.unique(first_tokens, axis=0))


def test_the_kernel_is_exact_where_all_tokens_are_landmarks(bench, tasks, sets):
    X, y = sets
    model = bench.peers.SetKernelMachine(tasks["musk1"], 0).fit(X, y)
    gamma = model.best_params_["gamma"] / 3
    tokens = (X.values - X.values.mean(axis=0)) / X.values.std(axis=0)
    similar = np.exp(-gamma * np.sum((tokens[:, None] - tokens) ** 2, axis=2))
    parts = [slice(*pair) for pair in zip(X.offsets[:-1], X.offsets[1:], strict=True)]
    kernel = np.array([[similar[a, b].mean() for b in parts] for a in parts])
    kernel /= np.sqrt(np.outer(kernel.diagonal(), kernel.diagonal()))
    assert_allclose(model._gram(X), kernel, rtol=1e-5)
    assert np.mean(model.predict(X) == y) > 0.9


@pytest.mark.parametrize("kind", ["abmil", "set transformer"])
def test_padding_does_not_change_a_network(bench, tasks, sets, kind):
    pytest.importorskip("torch")
    X, y = sets
    network = bench.peers.SetNetwork(kind, tasks["musk1"], 0, epochs=20, rates=(2e-3,))
    network.set_params(penalties=(1e-4,)).fit(X, y)
    together = network.decision_function(X)
    alone = [network.decision_function(X.take([i]))[0] for i in range(len(X))]
    assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    assert np.mean(network.predict(X) == y) > 0.8


@pytest.mark.parametrize("kind", ["classifier", "regressor", "outputs"])
def test_remembered_members_make_the_same_stack(from_benchmarks, sets, tmp_path, kind, monkeypatch):
    members = from_benchmarks("accuracy_members")
    X, y = sets
    names = ["statistics_kernel", "statistics_forest"]
    model = set_pipeline("classifier" if kind == "classifier" else "regressor", members=names)
    if kind == "outputs":
        model, y = MultiOutputRegressor(model), np.column_stack([y, 1.0 - y])
    ask = "predict_proba" if kind == "classifier" else "predict"
    plain = getattr(clone(model).fit(X[:40], y[:40]), ask)(X[40:])
    kept = members.remembered(model, tmp_path)
    assert np.array_equal(getattr(kept.fit(X[:40], y[:40]), ask)(X[40:]), plain)
    monkeypatch.delattr(SetPooler, "fit")
    before = members.recalled_seconds()
    again = members.remembered(model, tmp_path).fit(X[:40], y[:40])
    assert np.array_equal(getattr(again, ask)(X[40:]), plain)  # although nothing can be fitted
    assert members.recalled_seconds() > before
