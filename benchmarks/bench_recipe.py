"""Which members `set_pipeline` should have, judged inside the training sets.

Run as ``python -m benchmarks.bench_recipe [--sets PART,...] [--splits N] [--cache FOLDER]``.
On the first splits of each task of `accuracy_data`, every member and every candidate predicts the
training sets out of fold and the test sets by a fit on all of them. From these any choice of
members can be mixed as `set_pipeline` mixes them. A choice is judged by its *inner* loss: the
mixture is fitted on four fifths of the out-of-fold predictions and scored on the last, in turn,
which no test set of the split enters. Yet what one split tests another may train on: so for what a
choice is worth on sets that had no say in it, each task's test score is told for the members that
the inner losses of all other tasks choose.

Predictions are kept in the cache folder of `bench_accuracy`, which shares them, and says how to
forget them after a change of code. Prints the tables and, without `--sets` and `--splits`, writes
them to ``benchmarks/results/recipe.md``.
"""

import argparse
import functools
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import SVR
from threadpoolctl import threadpool_limits

from skattn import SetPooler
from skattn.pipelines import set_pipeline
from skattn.pipelines._mixtures import FLOOR, PRIOR
from skattn.pipelines._recipe import STATISTICS, _kernel_machine, _lift, _ridge

from .accuracy_data import TASKS
from .accuracy_members import remembered_member
from .bench_accuracy import CACHE, HEADLINE, MEMBERS, chosen
from .pages import RESULTS, machine, markdown, number, publish

PRIORS = (0.1, 0.3, 1.0, 3.0, 10.0)
N_SPLITS = 3  # of a task, the first ones
OFFSET = 0.01  # of a loss; below it a task is all but solved
WORTH = 0.002  # of the mean log loss, for which a member is kept
NOISE = 0.002  # of a task's log loss, below which a change is none


def shipped(classifies, seed):
    """The members of `set_pipeline` by name, and how it mixes them."""
    stack = set_pipeline("classifier" if classifies else "regressor", random_state=seed)
    return dict(stack.estimators), stack.final_estimator, stack.cv


def candidates(classifies, seed):
    """What else could be a member, by name."""

    def linear(C):
        return LogisticRegression(C=C, max_iter=300) if classifies else _ridge()

    found = {
        "mean_linear": make_pipeline(SetPooler(("mean",)), StandardScaler(), linear(0.1)),
        "kernel_mean_16": make_pipeline(
            _lift(300, 16, seed), SetPooler(("mean",)), *_kernel_machine(classifies, seed)
        ),
        "set_kernel": make_pipeline(
            _lift(500, 4, seed), SetPooler(("mean",)), Normalizer(), linear(100)
        ),
    }
    if not classifies:
        found["statistics_svm"] = make_pipeline(SetPooler(STATISTICS), StandardScaler(), SVR(C=10))
    return found


class Unit:
    """One target of one split of a task, and what members say of it."""

    def __init__(self, task, split, output, folder):
        self.task, self.split, self.output, self.folder = task, split, output, folder
        self.members, self.mixture, self.cv = shipped(task.is_classification, split)
        self.members |= candidates(task.is_classification, split)
        self.oof, self.test = {}, {}  # by member
        self._judged = {}

    @functools.cached_property
    def sets(self):
        """Training sets, their targets, test sets, their targets; classes as numbers."""
        split = self.task.split(self.split)
        y, y_test = (y if y.ndim == 1 else y[:, self.output] for y in (split.y, split.y_test))
        if self.task.is_classification:
            classes = np.unique(y)
            y, y_test = np.searchsorted(classes, y), np.searchsorted(classes, y_test)
        return split.X, y, split.X_test, y_test

    def ask(self, name):
        """Let a member predict the training sets out of fold, and the test sets."""
        X, y, X_test, _ = self.sets
        member = remembered_member(self.members[name], self.folder)
        method = "predict_proba" if self.task.is_classification else "predict"
        self.oof[name] = cross_val_predict(member, X, y, cv=self.cv, method=method)
        self.test[name] = getattr(clone(member).fit(X, y), method)(X_test)

    def columns(self, predictions, names):
        """What the stack hands to its last step: of two classes the second alone."""
        columns = [predictions[name] for name in names]
        if self.task.is_classification and columns[0].shape[1] == 2:
            columns = [column[:, 1] for column in columns]
        return np.column_stack(columns)

    def known(self, names):
        """Those of the names that this kind of target has, in one order."""
        return [name for name in self.members if name in names]

    def inner(self, names, prior):
        """Loss of the mixture of these members on training sets that its shares did not see."""
        names = self.known(names)
        key = *names, prior
        if key not in self._judged:
            X, y, columns = *self.sets[:2], self.columns(self.oof, names)
            total = 0.0
            for rest, fold in self.cv.split(np.zeros(len(y)), y):
                mixture = clone(self.mixture).set_params(prior=prior)
                mixture.fit(columns[rest], y[rest])
                total += len(fold) * self.loss(mixture, columns[fold], y[fold])
            self._judged[key] = total / len(X)
        return self._judged[key]

    def outer(self, names, prior):
        """Score of the mixture of these members on the test sets."""
        names = self.known(names)
        _, y, _, y_test = self.sets
        mixture = clone(self.mixture).set_params(prior=prior)
        mixture.fit(self.columns(self.oof, names), y)
        columns = self.columns(self.test, names)
        if self.task.metric == "auc":
            return roc_auc_score(y_test, mixture.predict_proba(columns)[:, 1])
        return mixture.score(columns, y_test)

    def loss(self, mixture, columns, y):
        """Negative log-likelihood, or squared error over the variance of all training targets."""
        if self.task.is_classification:
            chosen = mixture.predict_proba(columns)[np.arange(len(y)), y]
            return -np.mean(np.log(np.maximum(chosen, FLOOR)))
        return np.mean((mixture.predict(columns) - y) ** 2) / self.sets[1].var()


def units(tasks, folder):
    """First splits first, so that a run that is cut short has seen every task."""
    for split in range(N_SPLITS):
        for task in tasks:
            if split < task.n_splits:
                for output in range(2 if task.name == "hzz_events" else 1):
                    yield Unit(task, split, output, folder)


# Judging


class Judge:
    """Losses and scores of choices of members, by task."""

    def __init__(self, units):
        self.by_task = {}
        for unit in units:
            self.by_task.setdefault(unit.task.name, []).append(unit)

    def _reach_all(self, names):
        """Whether each task has one of these members."""
        return all(unit.known(names) for units in self.by_task.values() for unit in units)

    def log_losses(self, names, prior):
        """Log of the inner loss, (n_tasks,); the offset keeps solved tasks from deciding."""
        inner = [[u.inner(names, prior) for u in units] for units in self.by_task.values()]
        return np.array([np.mean(np.log(np.add(OFFSET, losses))) for losses in inner])

    def score(self, task, names, prior):
        """Score on the test sets of one task."""
        return np.mean([unit.outer(names, prior) for unit in self.by_task[task]])

    def scores(self, names, prior):
        """Score on the test sets, (n_tasks,)."""
        return np.array([self.score(task, names, prior) for task in self.by_task])

    def chosen(self, pool, but=None):
        """Members and prior by the inner losses of all tasks but one and its kin.

        The prior is the best for all members; of them those are taken out, one after the other,
        the worst first, that are not worth their cost. Each task keeps one.
        """
        use = np.array([kin(name) != kin(but or "") for name in self.by_task])

        def loss(names, prior):
            return self.log_losses(names, prior)[use].mean()

        prior = min(PRIORS, key=lambda prior: loss(pool, prior))
        names = tuple(pool)
        while True:
            rests = [tuple(n for n in names if n != name) for name in names]
            rests = [rest for rest in rests if self._reach_all(rest)]
            best = min(rests, key=lambda rest: loss(rest, prior), default=names)
            if not rests or loss(best, prior) > loss(names, prior) + WORTH:
                return names, prior
            names = best


def kin(task):
    """The name without its number: musk1 and musk2 share molecules."""
    return task.rstrip("0123456789")


def percent(change):
    return f"{100 * np.expm1(change):+.1f} %"


def points(change):
    return f"{100 * change:+.2f}"


def report(judge):
    """The page of results."""
    own = list(shipped(True, 0)[0] | shipped(False, 0)[0])
    others = [n for n in candidates(True, 0) | candidates(False, 0) if n not in own]
    base, base_score = judge.log_losses(own, PRIOR), judge.scores(own, PRIOR)
    worth = [["member", "inner loss", "tasks better, worse", "test score, points"]]
    for name in (*own, *others):
        changed = [n for n in own if n != name] if name in own else [*own, name]
        sign = -1 if name in own else 1  # of what leaving it out does, the opposite
        gain = sign * (judge.log_losses(changed, PRIOR) - base)
        score = sign * (judge.scores(changed, PRIOR) - base_score)
        counts = f"{np.sum(gain < -NOISE)}, {np.sum(gain > NOISE)}"
        shown = name if name in own else f"*{name}*"
        worth.append([shown, percent(gain.mean()), counts, points(score.mean())])
    priors = [["prior", "inner loss", "test score, points"]]
    for prior in PRIORS:
        loss, score = judge.log_losses(own, prior) - base, judge.scores(own, prior) - base_score
        priors.append([f"{prior:g}", percent(loss.mean()), points(score.mean())])
    pool = (*own, *others)
    everywhere, prior = judge.chosen(pool)
    choices = [judge.chosen(pool, but=task) for task in judge.by_task]
    nested = [
        judge.score(task, *choice) for task, choice in zip(judge.by_task, choices, strict=True)
    ]
    tasks = [["task", "splits", HEADLINE, "chosen on the others", "without"]]
    for i, (task, units) in enumerate(judge.by_task.items()):
        names, its_prior = choices[i]
        row = [task, str(len({unit.split for unit in units})), number(base_score[i])]
        left = [name for name in pool if name not in names]
        tasks.append([*row, number(nested[i]), ", ".join([*left, f"prior {its_prior:g}"])])
    gap = base_score - nested
    error = gap.std(ddof=1) / np.sqrt(len(gap))
    out = ", ".join(name for name in pool if name not in everywhere) or "none"
    change = np.mean(judge.scores(everywhere, prior) - base_score)
    return f"""# Members of set_pipeline

{HEADLINE} mixes members by what they predict out of fold. Here each member, shipped or a
*candidate*, has done so on the first {N_SPLITS} splits of every task of [accuracy.md](accuracy.md),
and any of them can be mixed. What judges a mixture is its inner loss: fitted on four fifths of the
training sets' out-of-fold predictions, scored on the last, in turn; log-loss, or squared error over
the variance of y. The test sets of a split have no part in it, but may be training sets of another:
whole tasks are held out below. Losses are compared as ratios, in the mean over tasks; an offset of
{OFFSET} keeps those that are all but solved from deciding.

## What a member is worth

Change of the inner loss, and of the mean test score, by a member in {HEADLINE}: a shipped one
against the rest, a candidate against none. One for numbers only changes nothing where there are
labels.

{markdown(worth)}

## The prior of the mixture

Against that of {HEADLINE}, which is {PRIOR:g}.

{markdown(priors)}

## Chosen on other tasks

The prior with the least inner loss for all members and candidates, of which those are then left out
that gain less than {100 * WORTH:g} %, one after the other. For each task the inner losses of all
other tasks choose (but those of the other musk set, of the same molecules): its test scores have no
say in what it is scored with.

{markdown(tasks)}

{HEADLINE} has {points(gap.mean())} ± {points(error)[1:]} points more: what it may owe to a choice
that has seen these tasks. By the inner losses of all tasks, there would be a prior of {prior:g}
without {out}: {points(change)} points.

{machine("one thread a run")}.
Made by `python -m benchmarks.bench_recipe`.
"""


def main(argv=None):
    """Ask what was not asked before, and report; without filters to the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sets", help="only tasks whose name holds one of these parts")
    parser.add_argument("--splits", type=int, default=N_SPLITS, help="only so many splits of each")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the predictions")
    args = parser.parse_args(argv)
    tasks = chosen(args.sets, TASKS)
    if len(tasks) < 2:
        parser.error("--sets must leave two tasks at least: the others choose for each.")
    asked = [u for u in units(tasks, args.cache / MEMBERS) if u.split < args.splits]
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for unit in asked:
            start = time.time()
            for name in unit.members:
                unit.ask(name)
            seconds = time.time() - start
            print(f"{unit.task.name}, split {unit.split}: {seconds:.1f} s", flush=True)
        page = report(Judge(asked))
    publish(page, RESULTS / "recipe.md", not args.sets and args.splits == N_SPLITS)


if __name__ == "__main__":
    main()
