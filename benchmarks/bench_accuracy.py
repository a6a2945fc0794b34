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
import inspect
import itertools
import json
import math
import multiprocessing
import os
import re
import shutil
import sys
import threading
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.multioutput import MultiOutputRegressor

from skattn import (
    AttentionClassifier,
    AttentionContextualizerCV,
    AttentionRegressor,
)

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
    from skattn.pipelines import set_pipeline

    wanted = {"random_state": seed}
    if task.metric == "auc":
        wanted["scoring"] = "roc_auc"
    known = inspect.signature(set_pipeline).parameters
    kind = "classifier" if task.is_classification else "regressor"
    model = set_pipeline(kind, **{name: value for name, value in wanted.items() if name in known})
    return MultiOutputRegressor(model) if task.name == "hzz_events" else model  # of two outputs


@dataclass(frozen=True)
class Method:
    """A column of the tables.

    `make(task, seed)` gives an estimator of sets; with `statistics`, `make(task, seed, n_features)`
    gives one of rows of these statistics. `cost` is about the seconds a run takes, for the order
    and the estimate of what is left; `needs` is a module without which there is nothing to run.
    A slow one does only one split in so many, the first ones.
    """

    name: str
    make: callable
    cost: float
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
METHODS = [
    Method("mean + linear", peers.linear, 0.5, ("mean",)),
    Method("stats + linear", peers.linear, 2, STATS),
    Method("stats + RF", peers.forest, 10, STATS),
    Method("stats + HGB", peers.trees, 20, STATS),
    Method("stats + SVM", peers.svm, 6, STATS),
    Method("NSK SVM", peers.SetKernelMachine, 12),
    Method("ABMIL", network("abmil"), 30, needs="torch", one_split_in=3),
    Method("Set Transformer", network("set transformer"), 90, needs="torch", one_split_in=3),
    Method("attention", attention, 5, is_ours=True),
    Method("attention CV", attention_cv, 25, is_ours=True),
    Method("set_pipeline", pipeline, 25, is_ours=True, needs="skattn.pipelines"),
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


def leave_with_parent():
    """End this process when the one that started it does, however that ends."""
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def work(task, method, number, fast, folder):
    """A run in a process of its own; names in, a result or the text of an error out."""
    task = next(t for t in TASKS if t.name == task)
    method = next(m for m in METHODS if m.name == method)
    try:
        return method.run(task, number, fast, folder)
    except Exception:
        return {"error": traceback.format_exc()}


def cost(task, method):
    """About the seconds that a run takes."""
    length = {"mnist_points": 8, "modelnet10_chair_monitor": 5, "nycflights_planes": 2}
    size = min(1, task.n_train / 1500) * length.get(task.name, 1)
    if task.folds * task.repeats >= 5:  # few sets
        size = 0.2
    return 0.1 + method.cost * size


def run_all(todo, cache, n_jobs):
    """Run what is to be done, cheap methods and first splits first; how many failed."""
    todo = sorted(todo, key=lambda job: (METHODS.index(job[1]), job[2], cost(*job[:2])))
    total, done, failed, begin, last = sum(cost(*job[:2]) for job in todo), 0.0, 0, time.time(), 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_jobs, context, leave_with_parent) as pool:
        futures = {
            pool.submit(work, task.name, method.name, number, cache.fast, cache.folder): (
                task,
                method,
                number,
            )
            for task, method, number in todo
        }
        for i, future in enumerate(as_completed(futures), 1):
            task, method, number = job = futures.pop(future)
            result = future.result()
            done += cost(*job[:2])
            if "error" in result:
                failed += 1
                print(f"\n{task.name}, {method.name}, split {number}:\n{result['error']}")
            else:
                cache.put(*job, result)
            spent = time.time() - begin
            if time.time() - last > 5 or i == len(todo):
                last = time.time()
                print(
                    f"{i}/{len(todo)}  {clock(spent)} spent, about "
                    f"{clock(spent / done * (total - done))} left; {task.name}, {method.name}",
                    flush=True,
                )
    return failed


def clock(seconds):
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


# The report


def score_table(tasks, cache, score="score", shown=lambda task: True):
    """Mean scores by task and method, standard errors, the best in bold."""
    lines = [["", *(method.name for method in METHODS)]]
    for task in filter(shown, tasks):
        found = {m.name: cache.of(task, m) for m in METHODS}
        means = {
            name: np.mean([r[score] for r in results]) for name, results in found.items() if results
        }
        if not means:
            continue
        best, cells = max(means.values()), [task.name]
        for method in METHODS:
            if method.name not in means:
                cells.append("")
                continue
            text = number(means[method.name])
            text = f"**{text}**" if f"{means[method.name]:.3f}" == f"{best:.3f}" else text
            if score == "score":
                error = mean_and_error(found[method.name])[1]
                text += "" if np.isnan(error) else f" ± {number(error)}"
                n_found = len(found[method.name])
                text += f" ({n_found})" if n_found < n_splits(task, cache.fast) else ""
            cells.append(text)
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
    for method in METHODS:
        if not method.is_ours:
            continue
        found = [(task.name, duel(task, cache, method)) for task in tasks]
        found = [(name, result) for name, result in found if result]
        verdicts = [result[-1] for _, result in found]
        n_first, n_near = verdicts.count("first"), verdicts.count("within")
        if found:
            tallies.append(
                f"- {method.name}: first or within one paired standard error on "
                f"{n_first + n_near} of {len(found)} (first on {n_first})"
            )
        if method.name == HEADLINE:
            for name, (best, theirs, ours, gap, error, verdict) in found:
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


def against_stored(tasks, cache):
    """Seconds of the headline's fits beside those in the table, where any differ; else nothing."""
    lines = [["", f"{HEADLINE}, seconds", "before", "ratio"]]
    (method,) = (m for m in METHODS if m.name == HEADLINE)
    ratios = []
    for task in tasks:
        both = [
            (result["seconds"], cache.stored[key]["seconds"])
            for result in cache.of(task, method) or []
            if (key := (task.name, HEADLINE, result["split"])) in cache.stored
        ]
        if both:
            now, before = np.median(both, axis=0)
            ratios.append(now / before)
            lines.append([task.name, f"{now:.3g}", f"{before:.3g}", f"{ratios[-1]:.2f}"])
    if not np.any(np.array(ratios) != 1):
        return ""
    lines.append(["*median of the ratios*", "", "", f"{np.median(ratios):.2f}"])
    return f"\nOn the splits that accuracy.csv had before this run:\n\n{markdown(lines)}\n"


def report(tasks, cache):
    """The page of results."""
    missing = [m.name for m in METHODS if not any(cache.of(task, m) for task in tasks)]
    note = f"\nWithout scores so far: {', '.join(missing)}.\n" if missing else ""
    binary = [t for t in tasks if t.is_classification and _has_auc(t, cache)]
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
{against_stored(tasks, cache)}
{machine("one thread a run")}.
Made by `python -m benchmarks.bench_accuracy`.
"""


def _has_auc(task, cache):
    return any("auc" in results[0] for m in METHODS if (results := cache.of(task, m)))


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
