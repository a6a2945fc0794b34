"""What all pages of results share: tables, numbers, the machine, and how a page is written."""

import importlib.util
import os
import platform
from pathlib import Path

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_info

from skattn import __version__

__all__ = ["RESULTS", "machine", "markdown", "number", "publish"]

RESULTS = Path(__file__).parent / "results"


def markdown(lines):
    """A Markdown table with aligned columns; the first line is its header."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(cells, widths, strict=True)) + " |"
        for cells in [lines[0], rule, *lines[1:]]
    )


def number(value):
    return f"{value:.3f}".replace("0.", ".", 1)


def machine(threads):
    """Processor, caches, SIMD, versions and BLAS, without anything that names the machine."""
    model, cpuinfo = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [s for s in cpuinfo.read_text().splitlines() if s.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    caches = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (index / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            caches.append(f"L{level} {size}")
    simd = np.show_config(mode="dicts")["SIMD Extensions"]  # found when NumPy was imported
    simd = [*simd.get("baseline", []), *simd.get("found", [])]
    versions = {"numpy": np, "scipy": scipy, "scikit-learn": sklearn}
    if importlib.util.find_spec("torch"):
        import torch

        versions["torch"] = torch
    versions = ", ".join(f"{name} {module.__version__}" for name, module in versions.items())
    blas = {
        f"{lib.get('internal_api')} {lib.get('version')} ({lib.get('architecture', 'unknown')})"
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }
    return (
        f"{model} ({', '.join(caches)}), {os.cpu_count()} cores, {threads}; Python "
        f"{platform.python_version()}, {versions}, skattn {__version__}; SIMD of NumPy: "
        f"{' '.join(simd)}; BLAS of NumPy and SciPy: {', '.join(sorted(blas))}"
    )


def publish(page, path, whole):
    """Print a page, and write it down if it is of a whole run."""
    print("\n" + page)
    if whole:
        path.parent.mkdir(exist_ok=True)
        path.write_text(page, encoding="utf-8")
