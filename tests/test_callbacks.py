"""Field case F28, scikit-learn's callbacks: told of each iteration once, whoever fits."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skattn import (
    AttentionClassifier,
    AttentionContextualizer,
    AttentionContextualizerCV,
    AttentionRegressor,
    RaggedPair,
)
from skattn.solvers import SOLVERS

callback = pytest.importorskip(
    "sklearn.callback", reason="scikit-learn has callbacks from 1.9 on, and this one has none"
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

KINDS = (AttentionContextualizer, AttentionClassifier, AttentionRegressor)


class Recorder:
    """Notes every hook that is called, and with what; propagates as ProgressBar does."""

    max_propagation_depth = None

    def __init__(self, stop_after=np.inf):
        self.begun, self.ended, self.open, self.stop_after = [], [], 0, stop_after

    def setup(self, estimator, context):
        self.open += 1

    def teardown(self, estimator, context):
        self.open -= 1

    def on_fit_task_begin(self, estimator, context):
        self.begun.append((context.estimator_name, context.task_name, context))

    def on_fit_task_end(
        self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None
    ):
        self.ended.append((context.estimator_name, context.task_name, context))
        if context.task_name != "iteration":
            return False
        if fitted_estimator is None:  # an iteration that was begun and given up
            self.ended.pop(), self.begun.pop()
            return False
        self.X, self.y, self.metadata = X, y, metadata
        self.models = [*getattr(self, "models", ()), fitted_estimator]
        return self.n_iterations >= self.stop_after

    @property
    def n_iterations(self):
        return self.count("iteration")

    def count(self, task):
        """How many tasks of that name there were, of which all that began have ended."""
        begun = [t[:2] for t in self.begun if t[1] == task]
        assert sorted(begun) == sorted(t[:2] for t in self.ended if t[1] == task)
        return len(begun)


def small(kind, **params):
    return kind(**{"n_heads": 1, "d_k": 2, "d_v": 2, "max_iter": 6, "random_state": 0, **params})


@pytest.fixture
def bags(rng):
    """30 ragged sets and their labels."""
    y = np.arange(30) % 2
    lengths = rng.integers(0, 6, size=30)
    return [rng.normal(size=(n, 3)) + label for n, label in zip(lengths, y, strict=True)], y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_iteration_is_told_once(bags, kind, solver, capsys):
    recorder = Recorder()
    est = small(kind, solver=solver).set_callbacks(recorder).fit(*bags)
    assert recorder.n_iterations == est.n_iter_ > 0
    assert recorder.count("fit") == 1
    assert recorder.open == 0
    assert [model.loss_ for model in recorder.models] == est.loss_curve_[1 : est.n_iter_ + 1]
    assert [model.n_iter_ for model in recorder.models] == list(range(1, est.n_iter_ + 1))
    assert est.loss_ == min(est.loss_curve_)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", KINDS)
def test_callbacks_change_no_bit_of_the_fit(bags, kind):
    told, plain = small(kind).set_callbacks(Recorder()).fit(*bags), small(kind).fit(*bags)
    assert_array_equal(told.transform(bags[0]), plain.transform(bags[0]))
    assert told.loss_curve_ == plain.loss_curve_


@pytest.mark.parametrize(("kind", "method"), [(KINDS[1], "predict_proba"), (KINDS[2], "predict")])
@pytest.mark.parametrize("pooling", ["mean", "attention"])
def test_a_hook_gets_the_model_as_if_the_fit_had_stopped_there(bags, kind, method, pooling):
    X, y = bags
    recorder = Recorder()
    small(kind, pooling=pooling).set_callbacks(recorder).fit(X, 10.0 * y if kind is KINDS[2] else y)
    for k, model in enumerate(recorder.models, start=1):
        stopped = small(kind, pooling=pooling, max_iter=k).fit(
            X, 10.0 * y if kind is KINDS[2] else y
        )
        assert_array_equal(getattr(model, method)(X), getattr(stopped, method)(X))
        assert model.loss_curve_ == stopped.loss_curve_
        assert model.loss_ == stopped.loss_


def test_a_model_that_converged_at_its_start_has_no_iterations(bags):
    recorder = Recorder()
    est = small(KINDS[0], tol=1e6).set_callbacks(recorder).fit(*bags)
    assert est.n_iter_ == recorder.n_iterations == 0
    assert [t[1] for t in recorder.ended] == ["fit"]


def test_a_fit_that_learns_nothing_is_told_too(bags):
    recorder = Recorder()
    small(KINDS[0], max_iter=0).set_callbacks(recorder).fit(bags[0])
    assert [t[:2] for t in recorder.begun] == [("AttentionContextualizer", "fit")]
    assert [t[:2] for t in recorder.ended] == [("AttentionContextualizer", "fit")]


def test_reconstruction_is_told_without_targets(bags):
    recorder = Recorder()
    est = small(KINDS[0]).set_callbacks(recorder).fit(bags[0])
    assert recorder.n_iterations == est.n_iter_
    assert recorder.y is None
    assert_array_equal(recorder.models[-1].transform(bags[0]), est.transform(bags[0]))


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_callback_may_stop_the_fit(bags, solver):
    est = small(KINDS[0], solver=solver, max_iter=50, tol=1e-9)
    est.set_callbacks(Recorder(stop_after=2)).fit(*bags)
    assert est.n_iter_ == 2
    assert not est.converged_


def test_the_hooks_get_what_was_given(bags):
    X, y = bags
    recorder, weight = Recorder(), np.linspace(1, 2, len(y))
    small(KINDS[1]).set_callbacks(recorder).fit(X, y, sample_weight=weight)
    assert recorder.y is y
    assert recorder.metadata["sample_weight"] is weight
    for given, told in zip(X, recorder.X, strict=True):
        assert_array_equal(given, told)


def test_callbacks_are_torn_down_after_an_error(bags):
    class Broken(Recorder):
        def on_fit_task_end(self, estimator, context):
            raise ZeroDivisionError("in a hook")

    broken = Broken()
    est = small(KINDS[0]).set_callbacks(broken)
    with pytest.raises(ZeroDivisionError, match="in a hook"):
        est.fit(*bags)
    assert broken.open == 0
    recorder = Recorder()
    est.set_callbacks(recorder).fit(*bags)
    assert recorder.n_iterations == est.n_iter_


def test_callbacks_are_no_parameters_and_follow_a_clone(bags):
    recorder = Recorder()
    est = small(KINDS[1]).set_callbacks(recorder)
    assert est.get_params() == small(KINDS[1]).get_params()
    clone(est).fit(*bags)
    assert recorder.n_iterations == 6
    est.set_callbacks().fit(*bags)
    assert recorder.n_iterations == 6
    assert set(vars(est)) == set(vars(small(KINDS[1]).fit(*bags)))


# In scikit-learn's tools -----------------------------------------------------------------------


def test_iterations_are_told_from_within_a_search(bags):
    model = make_pipeline(small(KINDS[0], tol=0.0), LogisticRegression())
    search = GridSearchCV(model, {"attentioncontextualizer__alpha": [1e-3, 1e-1]}, cv=3)
    recorder = Recorder()
    search.set_callbacks(recorder).fit(*bags)
    ours = [t for t in recorder.ended if t[:2] == ("AttentionContextualizer", "iteration")]
    assert len(ours) == (2 * 3 + 1) * 6
    assert recorder.open == 0


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_scoring_monitor_in_a_search(bags, kind, n_jobs):
    X, y = bags
    monitor = callback.ScoringMonitor(scoring="accuracy" if kind is KINDS[1] else "r2")
    model = make_pipeline(small(kind, tol=0.0).set_callbacks(monitor))
    grid = {f"{kind.__name__.lower()}__alpha": [1e-3, 1e-1]}
    search = GridSearchCV(model, grid, cv=2, n_jobs=n_jobs).fit(X, y)
    log = monitor.get_logs().data_as_pandas
    own = log[log["task_name"] == "iteration"]
    assert (own.groupby("parent_task_id_path").size() == 6).all()
    refit = log[(log["task_name"] == "fit") & (log["task_id_path"].str.len() == 3)]
    last = own[own["parent_task_id_path"] == refit["task_id_path"].iloc[0]].iloc[-1]
    assert_allclose(last.iloc[-1], search.score(X, y))


def test_scoring_monitor_scores_each_iteration_by_the_weights(bags):
    X, y = bags
    weight = np.linspace(0.1, 2, len(y))
    monitor = callback.ScoringMonitor(scoring="accuracy")
    est = small(KINDS[1]).set_callbacks(monitor).fit(X, y, sample_weight=weight)
    scores = [row["accuracy"] for row in monitor.get_logs().data if row["task_name"] == "iteration"]
    assert len(scores) == est.n_iter_
    assert_allclose(scores[-1], est.score(X, y, weight))
    first = small(KINDS[1], max_iter=1).fit(X, y, sample_weight=weight)
    assert_allclose(scores[0], first.score(X, y, weight))


@pytest.mark.filterwarnings("ignore:No training set:UserWarning")
def test_scoring_monitor_reads_what_fit_reads(bags):
    """A frame of numbers keeps its names, and one of two columns of sets its context."""
    X, y = bags
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["a", "b"])
    pairs = pd.DataFrame({"sets": X, "others": X[::-1]})
    for given, context in (
        (numbers, None),
        (RaggedPair(X, X[::-1]), None),
        (pairs, "others"),
        (pd.Series(X, index=np.arange(30) + 5), None),
    ):
        monitor = callback.ScoringMonitor(scoring="accuracy")
        est = small(KINDS[1], context=context).set_callbacks(monitor).fit(given, y)
        assert monitor.get_logs().data[0]["accuracy"] == est.score(given, y)


def test_scoring_monitor_with_a_target_per_token(bags):
    X, _ = bags
    y = [tokens[:, 0] > 0.5 for tokens in X]

    def of_tokens(model, X, y):
        return {"accuracy": model.score(X, y)}

    monitor = callback.ScoringMonitor(scoring=of_tokens)
    est = small(KINDS[1], pooling=None).set_callbacks(monitor).fit(X, y)
    assert monitor.get_logs().data[0]["accuracy"] == est.score(X, y)


def test_a_model_with_a_monitor_pickles(bags):
    est = small(KINDS[1]).set_callbacks(callback.ScoringMonitor(scoring="accuracy")).fit(*bags)
    again = pickle.loads(pickle.dumps(est))
    assert_array_equal(again.predict_proba(bags[0]), est.predict_proba(bags[0]))


# The search for alpha --------------------------------------------------------------------------


def test_the_search_tells_of_its_folds_and_of_its_refits(bags):
    recorder = Recorder()
    search = small(AttentionContextualizerCV, alphas=(1e-3, 1e-2, 1.0), cv=2, max_iter=8, tol=0.0)
    est = search.set_callbacks(recorder).fit(*bags)
    n_refits = 1 + int(np.sum(est.cv_results_["alpha"] < est.alpha_))
    assert recorder.count("fold") == 2
    assert recorder.count("refit") == n_refits
    of_folds = [t for t in recorder.ended if t[:2] == ("AttentionClassifier", "fit")]
    assert len(of_folds) == 2 * 3
    of_path = 4 + 2 + 2  # half of max_iter, then quarters
    names = [t[0] for t in recorder.ended if t[1] == "iteration"]
    assert names.count("AttentionClassifier") == 2 * of_path
    cut = (4, 2)[: n_refits - 1]
    assert names.count("AttentionContextualizerCV") == sum(cut) + est.n_iter_ == sum(cut) + 8
    assert recorder.open == 0
    plain = small(AttentionContextualizerCV, **{**search.get_params(), "random_state": 0})
    assert_array_equal(plain.fit(*bags).transform(bags[0]), est.transform(bags[0]))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_progress_bars_of_all_estimators(bags, n_jobs, capsys):
    pytest.importorskip("rich", reason="rich is not installed")
    bars = callback.ProgressBar(max_propagation_depth=None)
    for kind in KINDS:
        small(kind).set_callbacks(bars).fit(*bags)
        assert f"{kind.__name__} - fit" in capsys.readouterr().out
    search = small(AttentionContextualizerCV, alphas=(1e-3, 1e-2), cv=2, n_jobs=n_jobs)
    search.set_callbacks(bars).fit(*bags)
    shown = capsys.readouterr().out
    for part in ("fold #0", "fold #1", "AttentionClassifier - fit #1", "refit #2"):
        assert part in shown
    small(KINDS[0]).fit(*bags)
    assert capsys.readouterr().out == ""
