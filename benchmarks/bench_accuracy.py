"""Accuracy on sets, generated and real, against tuned peers.

Run as ``python -m benchmarks.bench_accuracy [--jobs 2] [--sets musk1,fox] [--methods ours] [--fresh
ours] [--stored peers] [--fast] [--report] [--cache FOLDER]``. Tasks, splits and their sizes are
those of `accuracy_data`, the peers those of `accuracy_peers`. A run is one method on one split of
one task; its scores are kept as a line of a file in the cache folder, so that a run that was killed
goes on where it was, and only what `--fresh` names is computed again. A line counts only for the
settings it was made with: what changed since is run again. A change of code is no change of
settings: ``--fresh ours`` is for that, and forgets what members of stacks predicted, too. Splits
that the cache lacks of methods that `--stored` names are taken from ``accuracy.csv``, whatever
settings they were made with: ``--fresh set_pipeline --stored peers,attention`` runs nothing but
set_pipeline. `--sets` and `--methods` take parts of names ("peers" and "ours" are all of either
kind), `--report` runs nothing. What is missing then is left blank in the report. A run without
filters writes the tables to ``benchmarks/results/accuracy.md`` and the scores of all splits to
``accuracy.csv`` beside it; any other run prints them. The real sets are found as `accuracy_data`
says; `--fast` takes less than ten minutes on some of the tasks, with smaller sets, at most two
splits and untuned networks.
"""

import argparse
import functools
import hashlib
import importlib.util
import itertools
import json
import math
import os
import re
import shutil
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.multioutput import MultiOutputRegressor
from threadpoolctl import threadpool_limits

from skattn import AttentionClassifier, AttentionContextualizerCV, AttentionRegressor
from skattn.pipelines import set_pipeline

from . import accuracy_peers as peers
from .accuracy_data import TASKS, data_folder
from .accuracy_members import recalled_seconds, remembered
from .pages import RESULTS, machine, markdown, number, publish

TABLE = RESULTS / "accuracy.csv"
CACHE = RESULTS.parent / ".accuracy_cache"
MEMBERS = "members"  # the folder in the cache's of what members of stacks predict
PROTOCOL = 1  # to be raised when data, splits or scores change in a way that settings do not show
FAST = "lookup matching_pairs digit_bags musk1 mutagenesis188_atoms japanese_vowels mnist_points"
FAST = {*FAST.split(), "wsd_crane", "ms_pesticides", "cdnow_customers"}


# Methods


class WithHead(BaseEstimator):
    """A contextualizer and the predictions of the head that it was fitted with."""

    def __init__(self, contextualizer):
        self.contextualizer = contextualizer

    def fit(self, X, y):
        self.contextualizer.fit(X, y)
        return self

    def decision_function(self, X):
        model = self.contextualizer
        raw = model.transform(X) @ model.coef_.T + model.intercept_
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def predict(self, X):
        raw = self.decision_function(X)
        if not hasattr(self.contextualizer, "classes_"):
            return raw
        index = (raw > 0).astype(int) if raw.ndim == 1 else raw.argmax(axis=1)
        return self.contextualizer.classes_[index]


def attention(task, seed):
    """The defaults, with the head."""
    kind = AttentionClassifier if task.is_classification else AttentionRegressor
    return kind(random_state=seed)


def attention_cv(task, seed):
    """The penalty tuned on its default grid, all else by default."""
    model = AttentionContextualizerCV(
        cv=peers.folds(task, seed),
        scoring="roc_auc" if task.metric == "auc" else None,
        random_state=seed,
    )
    return WithHead(model)


def pipeline(task, seed):
    """What `set_pipeline` makes of nothing but the kind of target."""
    kind = "classifier" if task.is_classification else "regressor"
    model = set_pipeline(kind, random_state=seed)
    return MultiOutputRegressor(model) if task.name == "hzz_events" else model  # of two outputs


@dataclass(frozen=True)
class Method:
    """A column of the tables.

    `make(task, seed)` gives an estimator of sets; with `statistics`, `make(task, seed, n_features)`
    gives one of rows of these statistics. `needs` is a module without which there is nothing to
    run. A slow one does only one split in so many, the first ones.
    """

    name: str
    make: callable
    statistics: tuple = None
    is_ours: bool = False
    needs: str = "sklearn"
    one_split_in: int = 1

    @property
    def is_there(self):
        return importlib.util.find_spec(self.needs) is not None

    def run(self, task, number, fast, folder):
        """One split: scores, what the paired differences need, and seconds of this process.

        A stack keeps its members' predictions in the folder, and tells their seconds as its own.
        """
        split = task.split(number, fast)
        start, recalled = time.process_time(), recalled_seconds()
        inputs = split.X, split.X_test
        if self.statistics is None:
            model = self.make(task, number)
        else:
            inputs = tuple(peers.pooled(split, self.statistics))
            model = self.make(task, number, inputs[0].shape[1])
        if fast and isinstance(model, peers.SetNetwork):
            model.set_params(epochs=20, rates=(1e-3,), penalties=(1e-4,))
        if self.name == HEADLINE:
            model = remembered(model, folder / MEMBERS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(inputs[0], split.y)
            seconds = time.process_time() - start
            found = scores(task, model, inputs[1], split.y_test)
        if self.name == HEADLINE:  # the members were fitted when they were asked
            seconds = time.process_time() - start + recalled_seconds() - recalled
        return found | {"seconds": round(seconds, 2)}


@functools.cache
def settings(method, task):
    """All parameters of a method on a task as text, without the addresses of functions."""
    model = method.make(task, 0, *([1] if method.statistics else []))
    return re.sub(r" at 0x[0-9a-f]+", "", repr(sorted(model.get_params().items())))


def network(kind):
    return lambda task, seed: peers.SetNetwork(kind, task, seed)


STATS = peers.STATISTICS
METHODS = [  # the quick ones first
    Method("mean + linear", peers.linear, ("mean",)),
    Method("stats + linear", peers.linear, STATS),
    Method("stats + RF", peers.forest, STATS),
    Method("stats + HGB", peers.trees, STATS),
    Method("stats + SVM", peers.svm, STATS),
    Method("NSK SVM", peers.SetKernelMachine),
    Method("ABMIL", network("abmil"), needs="torch", one_split_in=3),
    Method("Set Transformer", network("set transformer"), needs="torch", one_split_in=3),
    Method("attention", attention, is_ours=True),
    Method("attention CV", attention_cv, is_ours=True),
    Method("set_pipeline", pipeline, is_ours=True),
]
HEADLINE = "set_pipeline"


# Scores, and what one method has over another


def scores(task, model, X, y):
    """The score of a split and its parts, one per test set, whose mean it is.

    For AUC the parts are each positive's share of negatives below it, and each negative's share
    of positives above it: two lists, and the score is the mean of either.
    """
    predicted = model.predict(X)
    if task.metric == "r2":
        y = y.reshape(len(y), -1)
        errors = (y - predicted.reshape(y.shape)) ** 2
        parts = [1 - np.mean(errors / y.var(axis=0), axis=1)]
        return {"score": float(np.mean(parts[0])), "parts": compact(parts)}
    correct = predicted == y
    out = {"accuracy": float(np.mean(correct)), "score": float(np.mean(correct))}
    parts = [correct.astype(float)]
    if len(np.unique(y)) == 2:
        if hasattr(model, "decision_function"):
            ranks = model.decision_function(X)
        else:
            ranks = model.predict_proba(X)[:, 1]
        out["auc"] = float(roc_auc_score(y, ranks))
        if task.metric == "auc":
            above = np.sign(ranks[y == 1][:, None] - ranks[y == 0]) / 2 + 0.5
            parts = [above.mean(axis=1), above.mean(axis=0)]
            out["score"] = out["auc"]
    return out | {"parts": compact(parts)}


def compact(parts):
    return [[int(v) if v in (0, 1) else float(f"{v:.5g}") for v in part] for part in parts]


def standard_error(parts):
    """Of a mean over test sets; of an AUC by DeLong's formula."""
    return float(np.sqrt(sum(np.var(part, ddof=1) / len(part) for part in parts)))


def mean_and_error(results):
    """Mean score, and its standard error over the splits, or over the test sets of the only one."""
    values = [result["score"] for result in results]
    if len(values) > 1:
        return np.mean(values), np.std(values, ddof=1) / np.sqrt(len(values))
    return values[0], standard_error(results[0]["parts"]) if "parts" in results[0] else math.nan


def difference(ours, theirs):
    """Mean difference of paired scores and its standard error, on the splits of both."""
    if min(len(ours), len(theirs)) > 1:
        values = np.array([a["score"] - b["score"] for a, b in zip(ours, theirs, strict=False)])
        return values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    gap = ours[0]["score"] - theirs[0]["score"]
    if "parts" not in theirs[0]:  # the table keeps scores alone
        return gap, math.nan
    pairs = zip(ours[0]["parts"], theirs[0]["parts"], strict=True)
    return gap, standard_error([np.subtract(a, b) for a, b in pairs])


# The cache


class Cache:
    """Results by (task, method, split), one line of JSON each; a later line replaces a former."""

    def __init__(self, folder, fast, table=TABLE, takes_stored=()):
        self.path, self.folder, self.fast = folder / "scores.jsonl", folder, fast
        folder.mkdir(parents=True, exist_ok=True)
        self.results = {}
        self.stored = {} if fast else stored(table)  # of the table, before it is written again
        self.takes_stored = takes_stored
        for text in self.path.read_text().splitlines() if self.path.exists() else []:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:  # the run was killed while it wrote the line
                continue
            self.results[line["task"], line["method"], line["split"], line["settings"]] = line

    def key(self, task, method, number):
        text = repr((PROTOCOL, task, method.statistics, settings(method, task), self.fast))
        return task.name, method.name, number, hashlib.sha256(text.encode()).hexdigest()[:12]

    def get(self, task, method, number):
        found = self.results.get(self.key(task, method, number))
        if found is None and method in self.takes_stored:
            found = self.stored.get((task.name, method.name, number))
        return found

    def put(self, task, method, number, result):
        key = self.key(task, method, number)
        line = dict(zip(("task", "method", "split", "settings"), key, strict=True)) | result
        self.results[key] = line
        text = json.dumps(line, separators=(",", ":")) + "\n"
        whole = not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n")
        with self.path.open("a") as file:
            file.write(text if whole else "\n" + text)

    def of(self, task, method):
        """The results of the first splits, as far as they are there, or None."""
        if method.is_ours and not method.is_there:
            return None
        found = (self.get(task, method, number) for number in splits(task, method, self.fast))
        return list(itertools.takewhile(lambda result: result is not None, found)) or None


def stored(table):
    """Results by (task, method, split) from a table that `csv` made; they have no parts."""
    results = {}
    for line in table.read_text().splitlines()[1:] if table.exists() else []:
        task, method, split, _, score, auc, seconds = line.split(",")
        result = {"split": int(split), "score": float(score), "seconds": float(seconds)}
        results[task, method, int(split)] = result | ({"auc": float(auc)} if auc else {})
    return results


def n_splits(task, fast):
    return min(task.n_splits, 2) if fast else task.n_splits


def splits(task, method, fast):
    return range(math.ceil(n_splits(task, fast) / method.one_split_in))


# Runs


def work(i_task, i_method, number, fast, folder):
    """A run by its numbers, which come back with the result or the text of an error."""
    try:
        with threadpool_limits(1):
            result = METHODS[i_method].run(TASKS[i_task], number, fast, folder)
    except Exception:
        result = {"error": traceback.format_exc()}
    return i_task, i_method, number, result


def run_all(todo, cache, n_jobs):
    """Run what is to be done, quick methods and first splits first; how many failed."""
    todo = sorted(todo, key=lambda job: (METHODS.index(job[1]), job[2]))
    failed, begin = 0, time.time()
    runs = Parallel(n_jobs, return_as="generator_unordered", batch_size=1)(
        delayed(work)(TASKS.index(task), METHODS.index(method), number, cache.fast, cache.folder)
        for task, method, number in todo
    )
    for i, (i_task, i_method, split, result) in enumerate(runs, 1):
        task, method = TASKS[i_task], METHODS[i_method]
        spent = f"{(time.time() - begin) / 60:.1f} minutes"
        print(f"{i}/{len(todo)} in {spent}: {task.name}, {method.name}", flush=True)
        if "error" in result:
            failed += 1
            print(f"split {split}:\n{result['error']}")
        else:
            cache.put(task, method, split, result)
    return failed


# The report# The report


def score_table(tasks, cache, score="score"):
    """Mean scores by task and method, standard errors, the best in bold."""
    lines = [["", *(method.name for method in METHODS)]]
    for task in tasks:
        found = [cache.of(task, method) for method in METHODS]
        if not any(found):
            continue
        means = [
            number(np.mean([r[score] for r in results])) if results else "" for results in found
        ]
        best, cells = max(means, key=lambda text: float(text or "-inf")), [task.name]
        for results, text in zip(found, means, strict=True):
            cell = f"**{text}**" if text and text == best else text
            if text and score == "score":
                error = mean_and_error(results)[1]
                cell += "" if np.isnan(error) else f" ± {number(error)}"
                cell += f" ({len(results)})" if len(results) < n_splits(task, cache.fast) else ""
            cells.append(cell)
        lines.append(cells)
    return markdown(lines)


def duel(task, cache, method):
    """Best peer, means, difference and its error, and whether we are first, near, or behind.

    The best is the one with the most over us on the splits of both.
    """
    results = {m.name: cache.of(task, m) for m in METHODS if m is method or not m.is_ours}
    ours = results.pop(method.name)
    theirs = {name: result for name, result in results.items() if result}
    if not ours or not theirs:
        return None
    gaps = {name: difference(ours, result) for name, result in theirs.items()}
    best = min(gaps, key=lambda name: gaps[name][0])
    gap, error = gaps[best]
    verdict = "first" if gap >= 0 else "within" if gap >= -error else "behind"
    if verdict == "behind" and np.isnan(error):
        verdict = "behind, error unknown"
    both = [result[: min(len(ours), len(theirs[best]))] for result in (theirs[best], ours)]
    return best, *(mean_and_error(result)[0] for result in both), gap, error, verdict


def duels(tasks, cache):
    """The table of the headline's differences, and every method of ours's tally."""
    lines = [["", "best peer", "its score", HEADLINE, "difference", "paired error", ""]]
    tallies = []
    for method in (method for method in METHODS if method.is_ours):
        found = [(task.name, result) for task in tasks if (result := duel(task, cache, method))]
        verdicts = [result[-1] for _, result in found]
        n_first, n_near = verdicts.count("first"), verdicts.count("within")
        if found:
            tallies.append(
                f"- {method.name}: first or within one paired standard error on "
                f"{n_first + n_near} of {len(found)} (first on {n_first})"
            )
        for name, (best, theirs, ours, gap, error, verdict) in found:
            if method.name == HEADLINE:
                row = [number(theirs), number(ours), f"{gap:+.3f}", f"{error:.3f}", verdict]
                lines.append([name, best, *row])
    return (markdown(lines) + "\n\n" if len(lines) > 1 else "") + "\n".join(tallies)


def times_table(tasks, cache):
    """Median seconds of a fit, tuning included, and minutes of all."""
    lines = [["", *(method.name for method in METHODS)]]
    minutes = np.zeros(len(METHODS))
    for task in tasks:
        found = [cache.of(task, method) for method in METHODS]
        if any(found):
            medians = [
                np.median([r["seconds"] for r in results or []] or np.nan) for results in found
            ]
            lines.append([task.name, *("" if np.isnan(s) else f"{s:.3g}" for s in medians)])
            minutes += [sum(r["seconds"] for r in results or []) / 60 for results in found]
    lines.append(["*minutes of all splits*", *(f"{m:.1f}" for m in minutes)])
    return f"{markdown(lines)}\n\nAll together took {minutes.sum():.0f} minutes."


def report(tasks, cache):
    """The page of results."""
    missing = [m.name for m in METHODS if not any(cache.of(task, m) for task in tasks)]
    note = f"\nWithout scores so far: {', '.join(missing)}.\n" if missing else ""
    binary = [
        t for t in tasks if any("auc" in found[0] for m in METHODS if (found := cache.of(t, m)))
    ]
    return f"""# Accuracy on sets

Accuracy on test sets; area under the ROC curve for wsd_bank, of which 95.6 % are one class; R² for
distinct_counts and the sets from ms_pesticides on. ± is the standard error over the splits, or over
the test sets where there is the set's own split alone (japanese_vowels, mnist_points, trec6 and the
wsd sets); a number in brackets tells of how many splits, where not of all. At most 1,500 sets to
train on and 1,000 to test on, 500 to train on for modelnet10_chair_monitor and 150 to 500 for the
generated tasks. Ten folds for up to 200 sets (five, twice, for ms_pesticides), five for
birds_brown_creeper, three for the others; fresh draws of the generated tasks. Every method sees
the same splits.

- *mean*, *stats*: pooled tokens; stats are mean, deviation, minimum, maximum, quartiles, sum and
  number of tokens and its logarithm. For flavor_compounds, shares and numbers of the categories.
- *linear* is logistic or ridge regression, *RF* a random forest, *HGB* gradient boosting on
  histograms, *SVM* a support vector machine with an RBF kernel.
- *NSK SVM*: the normalised set kernel of RBF, kernel ridge regression for R².
- *ABMIL* (gated) and *Set Transformer* in PyTorch: 60 epochs at most, learning rate, penalty and
  epochs tuned; for their cost on a third of the splits, on which alone a difference to them stands.
- *attention*: AttentionClassifier and AttentionRegressor by default; *attention CV*: the penalty
  tuned, the head's predictions; *set_pipeline*: what it makes by default. Its members were picked
  by hand with an eye on smaller samples of these sets, then sifted by losses inside of training
  sets alone; [recipe.md](recipe.md) tells what it may owe to that.

All tuning is inside the training sets, by rules that are the same for all tasks: on three folds,
the networks on the first of them alone for more than 200 sets, ridge regression by leave-one-out.
Words are GloVe vectors of 50 numbers, and their position is left out; categories are vectors of as
many numbers, learned from what occurs together in the training sets.
{note}
{score_table(tasks, cache)}

## {HEADLINE} against the best peer

The best peer is the one with the most over set_pipeline on the splits of both, chosen on these
test sets, which favours it. The error is that of the paired difference: over the splits, or over
the test sets where both have only one.

{duels(tasks, cache)}

## Area under the ROC curve, two classes

{score_table(binary, cache, "auc")}

## Seconds of a fit

Median over the splits of processor time, tuning included.

{times_table(tasks, cache)}
{machine("one thread a run")}.
Made by `python -m benchmarks.bench_accuracy`.
"""


def csv(tasks, cache):
    """Scores of every split, a line each."""
    lines = ["task,method,split,metric,score,auc,seconds"]
    for task in tasks:
        for method in METHODS:
            for r in cache.of(task, method) or []:
                auc = f"{r['auc']:.4f}" if "auc" in r else ""
                cells = r["split"], task.metric, f"{r['score']:.4f}", auc, r["seconds"]
                lines.append(",".join(map(str, (task.name, method.name, *cells))))
    return "\n".join(lines) + "\n"


def chosen(names, options, of_kind=lambda option: ()):
    """Options whose name holds one of the comma-separated parts, or that are of that kind."""
    if not names:
        return list(options)
    parts = [part.strip() for part in names.split(",")]
    found = [o for o in options if any(part in o.name or part in of_kind(o) for part in parts)]
    if not found:
        raise SystemExit(f"{names!r} is no part of {', '.join(o.name for o in options)}.")
    return found


def kind(method):
    return ("ours",) if method.is_ours else ("peers",)


def main(argv=None):
    """Run what is not in the cache and report; 1 where a run failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--sets", help="only tasks whose name holds one of these parts")
    parser.add_argument("--methods", help='only such methods; "ours" and "peers" are all of a kind')
    parser.add_argument("--fresh", help="methods to compute again, named in the same way")
    parser.add_argument("--stored", help="methods whose missing splits accuracy.csv gives")
    parser.add_argument("--fast", action="store_true", help="some tasks, smaller and untuned")
    parser.add_argument("--report", action="store_true", help="write what the cache holds; no runs")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the scores")
    args = parser.parse_args(argv)
    if not data_folder().is_dir():
        raise SystemExit(
            f"No data at {data_folder()}: set SKATTN_DATA to the folder that holds it."
        )
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # of the processes that are started
    tasks = [task for task in TASKS if not args.fast or task.name in FAST]
    kept = chosen(args.stored, METHODS, kind) if args.stored else []
    cache, failed = Cache(args.cache, args.fast, takes_stored=kept), 0
    fresh = chosen(args.fresh, METHODS, kind) if args.fresh else []
    if not args.report:
        if any(method.name == HEADLINE for method in fresh):
            shutil.rmtree(args.cache / MEMBERS, ignore_errors=True)
        methods = [m for m in chosen(args.methods, METHODS, kind) if m.is_there]
        todo = [
            (task, method, number)
            for task in chosen(args.sets, tasks)
            for method in methods
            for number in splits(task, method, args.fast)
            if method in fresh or cache.get(task, method, number) is None
        ]
        if todo:
            failed = run_all(todo, cache, args.jobs)
    whole = args.report or not (args.fast or args.sets or args.methods)
    publish(report(tasks, cache), RESULTS / "accuracy.md", whole)
    if whole:
        TABLE.write_text(csv(tasks, cache))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
