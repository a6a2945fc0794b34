"""Fixtures that the whole suite shares."""

import importlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from models import fitted
from reference import LENGTHS, MASK_NAMES

from skattn.pooling import POOLINGS

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def rng():
    """A generator with a fixed seed, fresh for every test."""
    return np.random.default_rng(0)


@pytest.fixture
def seed_tokens():
    """The textbook's three tokens, cat, dog and phone: array of shape (3, 2)."""
    return np.array([[1.0, 0.5], [0.8, 0.6], [-0.5, 1.0]])


@pytest.fixture
def awkward_sets():
    """Sets of 4, 0, 1, 4, 23, 2 and 0 tokens with 3 features each."""
    generator = np.random.default_rng(1)
    return [generator.normal(size=(n, 3)) for n in (4, 0, 1, 4, 23, 2, 0)]


@pytest.fixture
def sets():
    """Twelve sets of 4, 0, 1, 4, 9, 2, 0, 3, 1, 5, 2 and 3 tokens with 3 features."""
    generator = np.random.default_rng(4)
    return [generator.normal(1.0, 2.0, size=(n, 3)) for n in LENGTHS]


@pytest.fixture(params=[*POOLINGS, "None"])
def pooling(request):
    """Each pooling by name, and none."""
    return None if request.param == "None" else request.param


@pytest.fixture(params=MASK_NAMES, ids=str)
def model(request, sets, pooling, rng):
    """A model of every pooling and mask, at parameters of no symmetry."""
    return fitted(sets, rng, pooling=pooling, mask=request.param)


@pytest.fixture(scope="session")
def data_dir():
    """The folder of real data sets: the variable SKATTN_DATA, else ../shared/data."""
    named = os.environ.get("SKATTN_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"real data not found at {folder}; set SKATTN_DATA to the folder that holds it")
    return folder


@pytest.fixture(scope="module")
def from_benchmarks():
    """Imports a module of the benchmarks by its name; they are no part of the package."""
    if not (REPOSITORY / "benchmarks").is_dir():
        pytest.skip("outside of the source tree there are no benchmarks")
    sys.path.insert(0, str(REPOSITORY))
    try:
        yield lambda name: importlib.import_module(f"benchmarks.{name}")
    finally:
        del sys.path[0]
