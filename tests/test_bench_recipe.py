"""The benchmark of what members set_pipeline should have: mixtures, inner losses and choices."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skattn import RaggedArray
from skattn.pipelines import set_pipeline


@pytest.fixture(scope="module")
def bench(from_benchmarks):
    return from_benchmarks("bench_recipe")


class Named:
    """A unit of one task, whose inner loss is that of its best member."""

    def __init__(self, task, losses):
        self.task, self.losses = SimpleNamespace(name=task), losses

    def known(self, names):
        return [name for name in self.losses if name in names]

    def inner(self, names, prior):
        return min(self.losses[name] for name in self.known(names))


def test_members_are_chosen_by_the_other_tasks(bench):
    judge = bench.Judge(
        [
            Named("one", {"a": 0.1, "b": 0.5, "c": 0.9}),
            Named("two", {"a": 0.5, "b": 0.1, "c": 0.9}),
            Named("three", {"a": 0.5, "b": 0.1, "c": 0.9}),
        ]
    )
    assert judge.chosen("abc")[0] == ("a", "b")
    assert judge.chosen("abc", but="one")[0] == ("b",)
    assert judge.chosen("abc", but="two")[0] == ("a", "b")


def test_tasks_of_the_same_sets_do_not_choose_for_each_other(bench):
    tasks = [Named(name, {"a": 0.1, "b": 0.9}) for name in ("musk1", "musk2")]
    judge = bench.Judge([*tasks, Named("fox", {"a": 0.9, "b": 0.1})])
    assert judge.chosen("ab", but="musk1")[0] == ("b",)
    assert judge.chosen("ab", but="fox")[0] == ("a",)


def test_every_task_keeps_a_member(bench):
    judge = bench.Judge([Named("one", {"a": 0.5, "b": 0.5}), Named("two", {"a": 0.9, "c": 0.1})])
    assert judge.chosen("abc", but="one")[0] == ("b", "c")


def test_one_task_alone_is_refused(bench, tmp_path, capsys):
    with pytest.raises(SystemExit):
        bench.main(["--sets", "musk1", "--cache", str(tmp_path)])
    assert "two tasks at least" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_a_unit_mixes_as_the_stack_does_and_judges_without_test_sets(
    bench, rng, tmp_path, monkeypatch, kind
):
    names = ["statistics_kernel", "kernel_mean_1"]
    stack = set_pipeline(kind, members=names)
    made = dict(stack.estimators), stack.final_estimator, stack.cv
    monkeypatch.setattr(bench, "shipped", lambda *args: made)
    monkeypatch.setattr(bench, "candidates", lambda *args: {})
    X = RaggedArray.from_list([rng.normal(size=(n, 2)) for n in rng.integers(1, 6, size=80)])
    y = X.segment_sum()[:, 0]
    y = np.where(y > 0, "more", "less") if kind == "classifier" else y
    test = X.take(np.arange(60, 80))
    split = SimpleNamespace(X=X.take(np.arange(60)), y=y[:60], X_test=test, y_test=y[60:])
    task = SimpleNamespace(
        name="made",
        metric="accuracy" if kind == "classifier" else "r2",
        is_classification=kind == "classifier",
        split=lambda number: split,
    )
    unit = bench.Unit(task, 0, 0, tmp_path)
    for name in names:
        unit.ask(name)
    stack.fit(split.X, split.y)
    assert_allclose(unit.outer(names, bench.PRIOR), stack.score(test, split.y_test), rtol=1e-12)
    loss = unit.inner(names, bench.PRIOR)
    assert 0 < loss < (np.log(2) if kind == "classifier" else 1)
    unit._judged.clear()
    unit.test.clear()
    split.X_test, split.y_test = None, np.full(20, split.y[0])
    del unit.sets
    assert unit.inner(names, bench.PRIOR) == loss
