"""Speed against PyTorch on the CPU: loss and gradient, transform, fit, memory, scaling.

Run as ``python -m benchmarks.bench_speed [--fast] [--only W1,W2] [--parts peers,fit]``. Sizes are
those of `workloads`, the baselines PyTorch's forms in `torch_peers`: padded batches, padded batches
of sets sorted by length, and buckets of exactly one length. Everything but the two-core part runs
on one core, BLAS and PyTorch on one thread, competitors in turns; a ratio is the median time of
PyTorch over ours, and ours is timed with its checks: through the public `transform` and `fit`, and
for loss and gradient the objective that `fit` minimises. Of PyTorch's forms the best counts, and
gradients are checked to agree before anything is timed. A full run prints its tables and writes
them to ``benchmarks/results/speed.md``.
"""

import argparse
import ctypes
import gc
import json
import math
import os
import re
import subprocess
import sys
import time
import timeit
import tracemalloc
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from skattn import AttentionContextualizer, as_ragged
from skattn._network import LinearHead, Network
from skattn._objective import Objective
from skattn._sets import Sets
from skattn.attention import Attention
from skattn.losses import LogLoss
from skattn.pooling import MeanPooling

from .pages import RESULTS, machine, markdown, publish
from .torch_peers import FORMS, TorchModel, fit_adam, fit_lbfgs
from .workloads import WORKLOADS, Workload

DTYPES = {"f64": np.float64, "f32": np.float32}
KINDS = ("grad", "pooled", "tokens")
NAMES = {"grad": "loss + gradient", "pooled": "pooled transform", "tokens": "token transform"}
MISSED = " ✗"

# Least ratios for (loss and gradient, pooled, tokens), by workload, heads and outputs
TARGETS = {
    "padded": {
        ("W1", 1, 1): (6, 5.5, 4),
        ("W2", 1, 1): (12, 12, 9),
        ("W1", 4, 5): (4, 4, 3),
        ("W2", 4, 5): (4, 4, 3),
    },
    "buckets": {
        ("W1", 1, 1): (2.7, 2.5, 1.7),
        ("W2", 1, 1): (2.0, 1.5, 1.1),
        ("W3", 1, 1): (1.7, 1.15, 0.8),
        ("W1", 4, 5): (2.0, 1.8, 1.2),
        ("W2", 4, 5): (2.0, 1.8, 1.2),
    },
}


@dataclass(frozen=True)
class Settings:
    """How much to measure: share of the sets, rounds, and seconds after which three do."""

    share: float = 1.0
    repeats: int = 7
    seconds: float = 8.0
    only: tuple = ("W1", "W2", "W3")
    fast: bool = False


# Timing


def interleaved(calls, repeats, seconds=math.inf, warm_up=True):
    """Median seconds of each of the named calls, made in turns after one to warm up.

    Up to three times each, and more within so many seconds.
    """
    times = {name: [] for name in calls}
    for call in calls.values() if warm_up else ():
        call()
    begin = time.perf_counter()
    for i in range(repeats):
        if i >= 3 and time.perf_counter() - begin > seconds:
            break
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(spent)) for name, spent in times.items()}


@contextmanager
def one_core():
    """This process on one core where the system allows it, BLAS and PyTorch on one thread."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else None
    n_threads = torch.get_num_threads()
    if cores:
        os.sched_setaffinity(0, {max(cores)})
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(n_threads)
        if cores:
            os.sched_setaffinity(0, cores)


def gemm_peak(dtype, size=1024):
    """Flops a second of the product of two square matrices, the best of some."""
    A = np.ones((size, size), dtype)
    return 2 * size**3 / min(timeit.repeat(lambda: A @ A, number=1, repeat=15))


# The model in both# The model in both libraries


class Case:
    """A workload with labels and parameters, in our form and in PyTorch's."""

    def __init__(self, workload, dtype, n_heads=1, n_outputs=1, share=1.0, spread=0.3):
        self.key = (workload, n_heads, n_outputs)
        self.workload = WORKLOADS[workload] if isinstance(workload, str) else workload
        self.n_heads, self.n_outputs = n_heads, n_outputs
        self.X = self.workload.sets(dtype, share)
        rng = np.random.default_rng(1)
        self.y = rng.integers(0, max(2, n_outputs), size=len(self.X))
        self.theta = spread * rng.normal(size=self.objective.layout.size)
        self.params = self.objective.layout.unpack(self.theta)

    def network(self, score_statistics=False):
        width = self.workload.d_k
        attention = Attention(self.n_heads, width, width, score_statistics=score_statistics)
        return Network(attention, MeanPooling(), LinearHead(self.n_outputs))

    def make_objective(self, score_statistics=False):
        network, weight = self.network(score_statistics), np.ones(len(self.X))
        return Objective(Sets.of(self.X), self.y, weight, network, LogLoss(), 0.0)

    @cached_property
    def objective(self):
        return self.make_objective()

    def estimator(self, **kwargs):
        """An estimator of this shape, of the peers' model and with these parameters to start."""
        width = self.workload.d_k
        arrays = {name: self.params[name] for name in ("W_Q", "W_K", "W_V")}
        settings = {"score_statistics": False, "standardize": False, "init": arrays, "max_iter": 0}
        return AttentionContextualizer(
            n_heads=self.n_heads, d_k=width, d_v=width, **settings | kwargs
        )

    def ours(self, kind):
        """Our way to do what `kind` says, as a function."""
        if kind == "grad":
            return lambda: self.objective.value_and_grad(self.theta)
        pooling = "mean" if kind == "pooled" else None
        estimator = self.estimator(pooling=pooling).fit(self.X)
        return lambda: estimator.transform(self.X)

    def forms(self, family):
        """PyTorch's forms of a family that make sense for these sets."""
        if self.workload.padded_batch == 1:  # nothing to pad, and weights of a set at a time
            return [("exact chunks", True)] if family == "buckets" else []
        return FORMS[family]

    def peer(self, batching, sdpa):
        shape = {"n_heads": self.n_heads, "d_k": self.workload.d_k, "d_v": self.workload.d_k}
        shape |= {"batching": batching, "sdpa": sdpa, "padded_batch": self.workload.padded_batch}
        return TorchModel(self.X, self.y, self.params, **shape)

    def check(self, peer):
        """Refuse a peer whose loss, gradients or outputs are not ours."""
        tolerance = 1e-4 if self.X.dtype == np.float32 else 1e-10
        value, grad = self.objective.value_and_grad(self.theta)
        peer_value, peer_grads = peer.loss_and_grad()
        grads = self.objective.layout.unpack(grad)
        pooled = np.concatenate([part.numpy() for part in peer.pooled()])
        pairs = [(peer_grads[name], grads[name]) for name in grads]
        pairs += [(peer_value, value), (pooled, self.ours("pooled")()[peer.order])]
        for theirs, ours in pairs:
            error = np.abs(theirs - ours).max() / np.abs(ours).max()
            if not error <= tolerance:
                raise AssertionError(f"{self.key}: PyTorch and we differ by {error:.1e}")

    def flops(self):
        """Flops of the matrix products of loss and gradient: 3 n^2 d_k and 2 n d^2 a head."""
        n, d = self.X.lengths.astype(float), self.workload.n_features
        return 2 * self.n_heads * (3 * np.sum(n**2) * self.workload.d_k + 2 * np.sum(n) * d**2)


def cases(settings, without="W3"):
    """A name and a case for each workload and type, one head."""
    for workload in settings.only:
        for name, dtype in DTYPES.items():
            if workload != without:
                yield f"{workload} {name}", Case(workload, dtype, share=settings.share)


def label(batching, sdpa):
    return f"{batching}, {'SDPA' if sdpa else 'matmul'}"


PEER_CALLS = {"grad": "loss_and_grad", "pooled": "pooled", "tokens": "tokens"}


def best_form(case, family, kind="grad"):
    """PyTorch's best form of a family, tried out: its label and the model."""
    calls = {form: case.peer(*form) for form in case.forms(family)}
    seconds = interleaved({f: getattr(p, PEER_CALLS[kind]) for f, p in calls.items()}, 2)
    form = min(seconds, key=seconds.get)
    return label(*form), calls[form]


# Loss and gradient, and transforms, against PyTorch


def compare(case, kinds, families, settings, peak):
    """Our seconds by kind, ratios by family and kind, the best forms, and how near the peak."""
    models = {family: {f: case.peer(*f) for f in case.forms(family)} for family in families}
    for peers in models.values():
        for peer in peers.values():
            case.check(peer)
    out = {"ours": {}, "ratios": {}, "forms": {}}
    for kind in kinds:
        calls = {("ours", None): case.ours(kind)}
        if kind == "grad":
            with_statistics = case.make_objective(score_statistics=True)
            theta = np.random.default_rng(2).normal(size=with_statistics.layout.size, scale=0.3)
            calls["statistics", None] = lambda w=with_statistics, t=theta: w.value_and_grad(t)
        for call in calls.values():  # to warm up; the peers are
            call()
        for family, peers in models.items():
            timed = {(family, form): getattr(p, PEER_CALLS[kind]) for form, p in peers.items()}
            trial = interleaved(timed, 1, warm_up=False)
            close = 1.15 * min(trial.values(), default=0)  # of these one may turn out the best
            calls |= {form: timed[form] for form, seconds in trial.items() if seconds <= close}
        median = interleaved(calls, settings.repeats, settings.seconds, warm_up=False)
        ours = out["ours"][kind] = median["ours", None]
        if kind == "grad":
            out["statistics"] = median["statistics", None] / ours
            out["peak"] = case.flops() / ours / peak
        for family in models:
            timed = {form: seconds for (of, form), seconds in median.items() if of == family}
            if timed:
                best = min(timed, key=timed.get)
                out["ratios"][family, kind] = timed[best] / ours
                out["forms"][family, kind] = label(*best)
    return out


def show(cells):
    """Print a line of a table as soon as it is there."""
    print("  ".join(cells), flush=True)
    return cells


def peers_part(settings):
    """The table of ratios."""
    peaks = {name: gemm_peak(dtype) for name, dtype in DTYPES.items()}
    lines, forms = [], []
    shapes = (1, 1), (4, 5), (1, 5), (4, 1)
    for workload, name, (n_heads, n_outputs) in product(settings.only, DTYPES, shapes):
        whole = (n_heads, n_outputs) in ((1, 1), (4, 5))
        if workload == "W3" and ((settings.fast and n_heads > 1) or not whole):
            continue
        share = settings.share / (2 if n_heads > 1 else 1)
        case = Case(workload, DTYPES[name], n_heads, n_outputs, share)
        kinds = KINDS if whole else ("grad",)
        families = tuple(FORMS) if whole else ("buckets",)
        out = compare(case, kinds, families, settings, peaks[name])
        cells = [workload, name, f"{n_heads}, {n_outputs}"]
        cells.append(" / ".join(f"{1e3 * out['ours'][kind]:.4g}" for kind in kinds))
        for family in FORMS:
            target = TARGETS.get(family, {}).get(case.key)
            cells.append(ratios(out["ratios"], family, kinds, target))
            if family != "sorted":
                cells.append(" / ".join(map(str, target)) if target else "")
        cells += [f"{100 * out['peak']:.0f} %", f"{out['statistics']:.2f}"]
        lines.append(show(cells))
        best = (out["forms"].get(("buckets", kind)) for kind in kinds)
        forms.append(f"{workload} {name} {n_heads}, {n_outputs}: {' / '.join(best)}")
    header = ["", "type", "heads, outputs", "ours, ms", "÷ padded", "target", "÷ sorted"]
    header += ["÷ buckets", "target", "of peak", "with statistics"]
    peaks = ", ".join(f"{name} {peak / 1e9:.0f}" for name, peak in peaks.items())
    return f"""## Against PyTorch

Loss + gradient / pooled transform / token transform. *÷ padded*, *÷ sorted*, *÷ buckets*: time of
PyTorch's best form of that family over ours (W3: scaled_dot_product_attention, a set at a time).
With four heads half as many sets as with one.
*of peak*: flops a second of loss and gradient, 2 heads (3 n² d_k + 2 n d²) a set, as a share of a
1024 x 1024 product's ({peaks} Gflop/s). *with statistics*: time of loss and gradient with
score statistics, PyTorch's model having none, over that without. {MISSED.strip()}: target missed.

{markdown([header, *lines])}

Best bucket forms: {"; ".join(forms)}.
"""


def ratios(found, family, kinds, target):
    """The ratios of a family in one cell, those below target marked."""
    if (family, kinds[0]) not in found:
        return ""
    cells = []
    for i, kind in enumerate(kinds):
        ratio = found[family, kind]
        cells.append(f"{ratio:.2f}" + (MISSED if target and ratio < target[i] else ""))
    return " / ".join(cells)


# Claims: a measured number, and what it has to be


@dataclass(frozen=True)
class Claim:
    """One line of a part: what was measured, with a bound where there is one."""

    what: str
    value: float
    unit: str = ""
    most: float = math.inf
    least: float = -math.inf
    note: str = ""

    @property
    def cells(self):
        bound = f"≤ {self.most:g}" if self.most < math.inf else ""
        bound = f"≥ {self.least:g}" if self.least > -math.inf else bound
        met = self.least <= self.value <= self.most
        value = f"{self.value:.3g}{self.unit}" + ("" if met else MISSED)
        return [self.what, value, bound, self.note]


def claims(title, text, found):
    """A part's section."""
    lines = [["", "measured", "target", ""], *(show(claim.cells) for claim in found)]
    return f"## {title}\n\n{text}\n\n{markdown(lines)}\n"


@contextmanager
def recorded_evaluations():
    """The calls of `Objective.value_and_grad` that a fit makes."""
    plain = Objective.value_and_grad
    with mock.patch.object(Objective, "value_and_grad", autospec=True, side_effect=plain) as seen:
        yield seen


def overhead_part(settings):
    """The public methods against the kernels they call."""
    found, n_iter = [], 5 if settings.fast else 15
    fit = {"init": "tied", "standardize": True, "score_statistics": True}
    fit |= {"max_iter": n_iter, "tol": 0.0, "random_state": 0}

    def compared(what, public, kernel, repeats, seconds=math.inf, note=""):
        median = interleaved({"public": public, "kernel": kernel}, repeats, seconds)
        extra = 100 * (median["public"] / median["kernel"] - 1)
        unit = f"{median['public']:.2f} s" if note else f"{1e3 * median['public']:.4g} ms"
        found.append(Claim(what, extra, " %", 10, note=note + unit))

    for name, case in cases(settings):
        estimator, sets = case.estimator(**fit), Sets.of(case.X)
        with recorded_evaluations() as seen:
            estimator.fit(case.X, case.y)
        network, thetas = case.network(), [call.args[1] for call in seen.call_args_list]
        again = seen.call_args.args[0].value_and_grad

        def evaluate(again=again, thetas=thetas):
            for theta in thetas:
                again(theta)

        def kernel(case=case, network=network, sets=sets):
            folded = network.fold(case.params | case.objective.held, case.X.dtype)
            out = np.empty((len(sets), network.n_pooled), case.X.dtype)
            for chunk in network.chunks(sets):
                out[chunk.sets] = network.pool(folded, chunk)[0]

        compared(
            f"{name} fit of {n_iter} iterations",
            lambda e=estimator, c=case: e.fit(c.X, c.y),
            evaluate,
            min(3, settings.repeats),
            note=f"{len(thetas)} evaluations, ",
        )
        rounds = 2 * settings.repeats, settings.seconds
        compared(f"{name} pooled transform", case.ours("pooled"), kernel, *rounds)
    text = """Time of the public methods beyond that of the kernels: `fit` (tokens standardised,
score statistics) beyond the evaluations of the objective that it makes, at the same parameters;
`transform` beyond a loop over its blocks."""
    return claims("What the estimator adds", text, found)


def packing_part(settings):
    """Transforms where both sides pack the sets, and where both find them packed."""
    header = ["", "type", "", "ours, ms", "ours in order, ms", "both pack", "PyTorch packed"]
    lines = [[*header, "both packed", "PyTorch's form"]]
    for (name, case), (_, packed) in zip(cases(settings), cases(settings), strict=True):
        order = np.argsort(case.X.lengths, kind="stable")
        packed.X, packed.y = case.X.take(order), case.y[order]
        for kind in ("pooled", "tokens"):
            form, peer = best_form(case, "buckets", kind)
            plain = getattr(peer, PEER_CALLS[kind])
            calls = {"ours": case.ours(kind), "in order": packed.ours(kind), "packed": plain}
            calls["torch"] = lambda p=peer, f=plain: (p.batch(), f())
            ours, in_order, torch_packed, both = interleaved(
                calls, settings.repeats, settings.seconds
            ).values()
            cells = [*name.split(), NAMES[kind], f"{1e3 * ours:.4g}", f"{1e3 * in_order:.4g}"]
            found = both / ours, torch_packed / ours, torch_packed / in_order
            lines.append(show([*cells, *(f"{ratio:.2f}" for ratio in found), form]))
    return f"""## Packing

Above, `transform` gathers the sets of each length from a RaggedArray in random order, PyTorch
finds them in batches. *both pack*: PyTorch too makes its buckets within the time, by one gather
each. *PyTorch packed*: as above. *both packed*: ours is given the sets in order of length, of
which it takes blocks without a copy. One head; time of PyTorch's best bucket form over ours.

{markdown(lines)}
"""


def sharp_part(settings):
    """Loss and gradient where attention is all but a maximum."""
    found = []
    for name, case in cases(settings, without=None):
        evaluate, scale = case.objective.value_and_grad, 0.3 * math.sqrt(case.workload.n_features)
        soft = {key: value / scale for key, value in case.params.items()}
        sharp = soft | {key: 20 * soft[key] for key in ("W_Q", "W_K")}
        soft, sharp = map(case.objective.layout.pack, (soft, sharp))
        calls = {
            "soft": lambda f=evaluate, t=soft: f(t),
            "sharp": lambda f=evaluate, t=sharp: f(t),
        }
        median = interleaved(calls, settings.repeats, settings.seconds)
        found.append(Claim(name, median["sharp"] / median["soft"], "", 1.5))
    text = "Loss and gradient with W_Q and W_K times 20 over the same with scores of deviation 1."
    return claims("Sharp attention", text, found)


def latency_part(settings):
    """One set of 20 tokens, as a list of one array, through the public methods."""
    case = Case("W4", np.float64)
    sets, found = [np.array(case.X[0])], []
    pooled = case.estimator(init="tied", random_state=0).fit(sets)
    default = AttentionContextualizer(max_iter=0, random_state=0).fit(sets)
    tokens = case.estimator(init="tied", random_state=0, pooling=None).fit(sets)
    network, X = case.network(), Sets.of(as_ragged(sets))
    params = case.params | case.objective.held
    folded, chunk = network.fold(params, X.dtype), next(network.chunks(X))
    x = torch.tensor(sets[0])
    W_Q, W_K, W_V = (torch.tensor(params[name]) for name in ("W_Q", "W_K", "W_V"))

    def peer():
        with torch.inference_mode():
            S = (x @ W_Q) @ (x @ W_K).T / 4
            return (torch.softmax(S, -1) @ (x @ W_V)).mean(0)

    calls = {
        "pooled": lambda: pooled.transform(sets),
        "tokens": lambda: tokens.transform(sets),
        "default": lambda: default.transform(sets),
        "read": lambda: as_ragged(sets),
        "fold": lambda: network.fold(params, X.dtype),
        "blocks": lambda: next(network.chunks(X)),
        "kernel": lambda: network.pool(folded, chunk),
        "torch": peer,
    }
    seconds = interleaved(
        {name: lambda f=call: [f() for _ in range(50)] for name, call in calls.items()},
        10 if settings.fast else 60,
    )
    us = {name: 1e6 * spent / 50 for name, spent in seconds.items()}
    parts = f"read {us['read']:.0f}, fold the parameters {us['fold']:.0f} (unless kept), "
    parts += f"make the block {us['blocks']:.0f}, attend and pool {us['kernel']:.0f}"
    found = [
        Claim("pooled, one head", us["pooled"], " µs", 60, note=parts),
        Claim("tokens, one head", us["tokens"], " µs"),
        Claim("pooled, default parameters", us["default"], " µs", note="four heads, statistics"),
        Claim("PyTorch, bare, matmul and mean", us["torch"], " µs", note="no checks"),
    ]
    text = "`transform` of a fitted estimator, given a list of one array (20, 16); medians."
    return claims("One set of 20 tokens", text, found)


# Scaling


def scaling_part(settings):
    """Time against the number of sets and against their length."""
    found = []

    def study(what, sizes, cases, most):
        for kind in ("grad", "pooled"):
            calls = {size: case.ours(kind) for size, case in zip(sizes, cases, strict=True)}
            median = interleaved(calls, settings.repeats, settings.seconds)
            note = ", ".join(f"{size}: {1e3 * spent:.3g} ms" for size, spent in median.items())
            slope = np.polyfit(np.log(sizes), np.log(list(median.values())), 1)[0]
            found.append(Claim(f"{what}, {NAMES[kind]}", slope, "", most, note=note))

    shares = [share * max(0.2, settings.share) for share in (0.125, 0.25, 0.5, 1)]
    cases = [Case("W1", np.float64, share=share) for share in shares]
    study("number of sets", [len(case.X) for case in cases], cases, 1.1)
    lengths = [128, 256, 512, 1024]
    made = [Workload(8, 32, 32, lambda rng, k, n=n: np.full(k, n), 1) for n in lengths]
    study("length of 8 sets, d = 32", lengths, [Case(w, np.float64) for w in made], 2.1)
    return claims("Scaling", "Slopes of log time, float64, one head.", found)


# Memory


def peak_of(call):
    """Megabytes that NumPy and Python take beyond what they hold, at most."""
    gc.collect()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def resident_peak_of(call):
    """Megabytes by which the resident memory of this process rises, at most; NaN if unknown."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what earlier work has freed does not count
    except (AttributeError, OSError, TypeError):
        pass  # not the C library of GNU
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark down to what is held
        before = _status("VmRSS")
        call()
        return (_status("VmHWM") - before) / 1e3
    except OSError:
        return math.nan


def _status(name):
    text = Path("/proc/self/status").read_text()
    return float(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)[1])


def memory_child(workload, share, what):
    """In a fresh process: megabytes of calls of one kind, beyond the data they are given."""
    case = Case(workload, np.float64, share=0.5 if workload == "W3" else share)  # one set
    small = Case("W4", np.float64)
    if what != "ours":
        form = ("random", False) if what == "padded" else case.forms("buckets")[0]
        small.peer(*form).loss_and_grad()
        return {"resident": resident_peak_of(case.peer(*form).loss_and_grad)}
    small.ours("grad")(), small.ours("pooled")()
    grad, transform = case.ours("grad"), case.ours("pooled")
    out = {"resident": resident_peak_of(grad)}
    X = case.X if len(case.X) > 1 else case.X.take([0, 0])  # two classes need two sets
    y = case.y if len(case.X) > 1 else np.array([0, 1])
    estimator = case.estimator(max_iter=2, tol=0.0, init="tied", random_state=0)
    calls = {"grad": grad, "transform": transform, "fit": lambda: estimator.fit(X, y)}
    return out | {name: peak_of(call) for name, call in calls.items()}


def memory_part(settings):
    """Peak memory beyond the data, each in a process of its own."""
    lines = []
    header = ["", "loss + gradient", "pooled transform", "fit", "resident, loss + gradient"]
    header += ["PyTorch, exact buckets", "PyTorch, padded"]
    for workload in settings.only[:1] if settings.fast else settings.only:
        found = child("memory", workload, settings.share, "ours")
        cells = [workload if workload != "W3" else "W3, one set"]
        for name in ("grad", "transform"):
            cells.append(f"{found[name]:.1f}" + (MISSED if found[name] > 40 else ""))
        cells += [f"{found['fit']:.1f}", f"{found['resident']:.1f}"]
        for what in ("exact", "padded") if workload != "W3" else ("exact",):
            found = child("memory", workload, settings.share, what)
            cells.append(f"{found['resident']:.1f}")
        cells += [""] * (len(header) - len(cells))
        lines.append(show(cells))
    n = 5_000 if settings.fast else 20_000
    long = Workload(1, 64, 64, lambda rng, k: np.full(k, n), 1)
    case = Case(long, np.float64)
    seconds = time.perf_counter()
    grad = peak_of(case.ours("grad"))
    seconds = time.perf_counter() - seconds
    pooled = peak_of(case.ours("pooled"))
    size = case.X.values.nbytes / 1e6
    return f"""## Memory

Megabytes beyond the data, float64, one head: what NumPy and Python allocate at most. Loss and
gradient find the sets packed, as PyTorch does in its batches; `fit`, two iterations, packs them
too, and on W3 is given two sets. Target for loss and gradient and for transform: ≤ 40. The last
three columns are for loss and gradient, by how much the resident memory of a process rises.

{markdown([header, *lines])}

A set of {n:,} tokens of 64 features, {size:.0f} MB, whose scores would take {n * n * 8 / 1e6:,.0f}
MB: loss and gradient {grad:.0f} MB in {seconds:.1f} s, pooled transform {pooled:.0f} MB.
"""


# To the same objective


def planted(dtype, n_sets, seed=3):
    """Sets like those of W1, and labels by an attention layer that is sharper than the start."""
    X = WORKLOADS["W1"].sets(dtype, n_sets / WORKLOADS["W1"].n_sets, seed)
    rng = np.random.default_rng(seed)
    params = {
        "W_Q": 1.5 * rng.normal(size=(16, 4)) / 4,
        "W_K": 1.5 * rng.normal(size=(16, 4)) * 2,
        "W_V": rng.normal(size=(16, 4)),
    }
    shape = {"n_heads": 1, "d_k": 4, "d_v": 4, "standardize": False, "score_statistics": False}
    teacher = AttentionContextualizer(init=params, max_iter=0, **shape)
    raw = teacher.fit(X).transform(X) @ rng.normal(size=4)
    return X, (raw > np.median(raw)).astype(int)


def convergence_part(settings):
    """Seconds to the same objective from the same start, against PyTorch's optimisers."""
    found, alpha = [], 1e-3
    limit = 2.0 if settings.fast else 20.0
    for name, dtype in list(DTYPES.items())[: 1 if settings.fast else None]:
        X, y = planted(dtype, max(200, int(2_000 * settings.share)))
        fixed = {"n_heads": 1, "d_k": 16, "d_v": 16, "standardize": False, "alpha": alpha}
        fixed |= {"score_statistics": False, "random_state": 0, "tol": 1e-5}
        end = AttentionContextualizer(max_iter=1000, **fixed).fit(X, y)
        target = 1.01 * end.loss_
        n_iter = int(np.argmax(np.array(end.loss_curve_) <= target))
        start = AttentionContextualizer(max_iter=0, **fixed).fit(X, y)
        params = {k: getattr(start, k + "_") for k in ("W_Q", "W_K", "W_V", "coef", "intercept")}

        def model(batching, sdpa=False, X=X, y=y, params=params):
            shape = {"n_heads": 1, "d_k": 16, "d_v": 16, "padded_batch": 256}
            return TorchModel(X, y, params, batching=batching, sdpa=sdpa, **shape)

        error = abs(model("exact").objective(alpha) / start.loss_ - 1)
        if not error < (1e-10 if name == "f64" else 1e-5):
            raise AssertionError(f"The objectives differ by {error:.1e} at the start")
        trial = interleaved({f: model(*f).loss_and_grad for f in FORMS["buckets"]}, 3)
        form = min(trial, key=trial.get)
        ours = AttentionContextualizer(max_iter=n_iter, **fixed)
        times = {"ours": [], "L-BFGS": []}
        for _ in range(2 if settings.fast else 3):
            begin = time.perf_counter()
            ours.fit(X, y)
            times["ours"].append(time.perf_counter() - begin)
            times["L-BFGS"].append(fit_lbfgs(model(*form), alpha, target, limit) or math.inf)
        if ours.loss_ > target:
            raise AssertionError(f"fit ended at {ours.loss_}, above {target}")
        seconds = {what: float(np.median(spent)) for what, spent in times.items()}
        limit = min(limit, seconds["L-BFGS"])  # slower than that is of no interest
        adam = {}
        for minibatches, lrs in ((False, (0.01, 0.03, 0.1)), (True, (0.003, 0.01, 0.03))):
            for lr in lrs:
                peer = model("minibatches", form[1]) if minibatches else model(*form)
                rng = np.random.default_rng(0)
                spent = fit_adam(peer, alpha, target, limit, lr, minibatches, rng)
                what = f"Adam, {'minibatches' if minibatches else 'all sets'}, lr {lr}"
                adam[what] = spent or math.inf
        best = min(adam, key=adam.get)
        note = f"{len(X)} sets; objective {start.loss_:.3f} to {target:.4f} in {n_iter} iterations"
        found.append(Claim(f"{name}, ours", seconds["ours"], " s", note=note))
        rivals = {f"L-BFGS, {label(*form)}": seconds["L-BFGS"]}
        rivals[best if adam[best] < math.inf else "Adam, at best"] = adam[best]
        for what, spent in rivals.items():
            bound = 2.0 if spent == min(rivals.values()) else -math.inf
            note = f"{spent:.2f} s" if spent < math.inf else f"not within {limit:.2f} s"
            ratio = min(spent, limit) / seconds["ours"]
            found.append(Claim(f"{name}, PyTorch {what} ÷ ours", ratio, "", least=bound, note=note))
    text = """Log loss and penalty (alpha 1e-3) of one head on sets like those of W1, labels by a
sharper attention layer. Seconds from the same start to 1 % above the objective at which our `fit`
converges, one core. Ours: the public `fit`, whole, with as many iterations as that takes. PyTorch:
exact buckets; L-BFGS with strong Wolfe line search and history 10, up to the first evaluation that
is low enough; Adam with the best of six settings, looks at the objective not counted."""
    return claims("Fit to the same objective", text, found)


# Two cores


def two_cores_child(settings):
    """In a process that may use all cores: fits with n_jobs=2, and PyTorch with two threads."""
    out = []
    n_iter = 5 if settings.fast else 25
    fit = {"init": "tied", "random_state": 0, "max_iter": n_iter, "tol": 0.0}
    for name, case in cases(settings):
        torch.set_num_threads(1)
        one, two = (case.estimator(n_jobs=n_jobs, **fit) for n_jobs in (1, 2))
        with recorded_evaluations() as seen:
            one.fit(case.X, case.y)
        evaluations, begin = seen.call_count, time.perf_counter()
        two.fit(case.X, case.y)
        first = time.perf_counter() - begin
        same = float(abs(one.loss_ / two.loss_ - 1))
        calls = {e.n_jobs: lambda e=e, c=case: e.fit(c.X, c.y) for e in (one, two)}
        median = interleaved(calls, min(3, settings.repeats))
        torch.set_num_threads(2)
        form, peer = best_form(case, "buckets")
        spent = interleaved({"torch": peer.loss_and_grad}, settings.repeats)["torch"]
        note = f"{evaluations} evaluations, {median[1]:.2f} s and {median[2]:.2f} s, "
        note += f"the first {first:.2f} s; objectives differ by {same:.0e}"
        speedup, ahead = median[1] / median[2], spent * evaluations / median[2]
        out.append([f"{name}, n_jobs=1 ÷ n_jobs=2", speedup, 1.5, note])
        out.append([f"{name}, PyTorch ÷ n_jobs=2", ahead, 2, form])
    return out


def two_cores_part(settings):
    """What a second core gives."""
    title = "Two cores"
    if len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))(0)) < 2:
        return f"## {title}\n\nNot measured: there is one core.\n"
    found = [
        Claim(what, value, least=least, note=note)
        for what, value, least, note in child("two_cores", vars(settings))
    ]
    text = """Time of `fit`, whole, with one job over that with two; and of PyTorch's loss and
gradient, two threads, best bucket form, times as many evaluations as that fit makes, over `fit`
with two."""
    return claims(title, text, found)


def child(what, *args):
    """What a function of this module gives in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.bench_speed", "--child", json.dumps([what, *args])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def run_child(what, *args):
    """The other end of `child`."""
    if what == "memory":
        with one_core():
            return memory_child(*args)
    with threadpool_limits(1, user_api="blas"):
        return two_cores_child(Settings(**args[0]))


# The page


PARTS = {
    "peers": peers_part,
    "packing": packing_part,
    "overhead": overhead_part,
    "fit": convergence_part,
    "sharp": sharp_part,
    "latency": latency_part,
    "scaling": scaling_part,
    "memory": memory_part,
    "cores": two_cores_part,
}


def main(argv=None):
    """Run every part, print the tables and write them down."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--fast", action="store_true", help="few sets; nothing is written")
    parser.add_argument("--only", help="workloads, such as W1,W2; nothing is written")
    parser.add_argument("--parts", help=f"of {','.join(PARTS)}; nothing is written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore", ConvergenceWarning)  # fits are cut short on purpose
    if args.child:
        print(json.dumps(run_child(*json.loads(args.child))))
        return
    settings = Settings(share=0.05, repeats=3, seconds=0.5, fast=True) if args.fast else Settings()
    if args.only:
        settings = replace(settings, only=tuple(args.only.split(",")))
    names = args.parts.split(",") if args.parts else list(PARTS)
    note = machine("one thread unless a part tells")
    print(note, flush=True)
    begin, pages = time.perf_counter(), []
    for name in names:
        start = time.perf_counter()
        print(f"\n{name}", flush=True)
        with nullcontext() if name == "cores" else one_core():
            pages.append(PARTS[name](settings))
        print(f"({time.perf_counter() - start:.0f} s)", flush=True)
    page = f"""# Speed

Share {settings.share:g} of the sets of each workload, medians of at most {settings.repeats} rounds,
{time.perf_counter() - begin:.0f} s in all. {note}.

{chr(10).join(pages)}
Made by `python -m benchmarks.bench_speed`.
"""
    publish(page, RESULTS / "speed.md", not (args.fast or args.only or args.parts))


if __name__ == "__main__":
    main()
