"""The table of modules: imports point one way, and `import skattn` loads little."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import skattn
from skattn.losses import LOSSES
from skattn.masks import MASKS, NoMask
from skattn.pooling import POOLINGS

PACKAGE = Path(skattn.__file__).parent

# A module imports modules of lower levels only.
LEVELS = {
    "_optional": 0,
    "_runtime": 0,
    "_exponential": 0,
    "_documented": 0,
    "_random": 0,
    "_persistence": 0,
    "_start": 0,
    "_arrays": 0,
    "losses": 0,
    "masks": 0,
    "solvers": 0,
    "_frames": 1,
    "_parallel": 1,
    "_callbacks": 1,
    "attention": 1,
    "ragged": 2,
    "_nested": 3,
    "containers": 4,
    "pooling": 3,
    "pairs": 5,
    "_sets": 6,
    "_input": 7,
    "_output": 7,
    "_network": 7,
    "_targets": 8,
    "_objective": 8,
    "_tasks": 9,
    "_parameters": 10,
    "contextualizer": 11,
    "preprocessing": 11,
    "joining": 11,
    "datasets": 11,
    "predictors": 12,
    "tuning": 13,
    "inspection": 13,
    "distributed": 13,
    "pipelines": 14,
    "display": 14,
}
# What is more than a matter of levels: these modules import no others than these.
ONLY = {
    "_optional": set(),
    "_runtime": set(),
    "_exponential": set(),
    "_documented": set(),
    "_random": set(),
    "_persistence": set(),
    "_parallel": {"_runtime"},
    "_callbacks": {"solvers"},
    "_input": {"_arrays", "_frames", "containers", "masks", "pairs", "ragged", "_sets"},
    "_targets": {"_input", "ragged", "_arrays", "_frames"},
    "_output": {"containers", "pairs", "ragged", "_persistence", "_sets"},
    "_sets": {"pairs", "ragged"},
    "_network": {"_parallel", "_runtime", "attention", "ragged"},
    "_objective": {"_network", "_parallel", "_runtime", "attention", "ragged", "solvers"},
    "masks": set(),
    "_start": set(),
    "_arrays": set(),
    "_frames": {"_arrays"},
    "ragged": {"_arrays", "_frames"},
    "losses": set(),
    "solvers": set(),
    "_nested": {"ragged", "_arrays", "_frames"},
    "containers": {"ragged", "_arrays", "_frames", "_nested"},
    "pairs": {"ragged", "containers"},
    "attention": {"_arrays", "masks", "_exponential"},
    "pooling": {"ragged"},
    "preprocessing": {
        "_arrays",
        "ragged",
        "containers",
        "pooling",
        "_input",
        "_output",
        "_parameters",
        "_sets",
        "_targets",
    },
    "joining": {"ragged", "_arrays", "_frames", "_output"},
    "datasets": {"ragged", "_optional", "_random"},
    "inspection": {"pooling", "_network", "_sets", "containers", "_random", "_input"},
    "distributed": {"contextualizer", "_objective", "containers", "ragged", "_optional"},
    "display": {"inspection", "ragged", "containers", "_optional", "_input", "_sets", "_arrays"},
}

# A module is a file, or a folder of files that share one row of the tables.
MODULES = sorted(
    [path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__"]
    + [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
)


def imports_of(module):
    """Modules of skattn that a module imports, anywhere in it."""
    if (PACKAGE / module).is_dir():
        files = [(path, 1) for path in (PACKAGE / module).glob("*.py")]
    else:
        files = [(PACKAGE / f"{module}.py", 0)]
    return set().union(*(_imports(path, depth) for path, depth in files))


def _imports(path, depth):
    """The same of one file, that many folders deep in the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level <= depth + 1, f"{path} reaches out of the package"
            if node.level <= depth:
                continue  # a file beside it
            named = [node.module] if node.module else [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            named = [node.module] if node.module.split(".")[0] == "skattn" else []
        elif isinstance(node, ast.Import):
            named = [a.name for a in node.names if a.name.split(".")[0] == "skattn"]
        else:
            continue
        for name in named:
            parts = [part for part in name.split(".") if part != "skattn"]
            found.add(parts[0] if parts else "skattn")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_its_level(module):
    assert module in LEVELS, f"{module} has no level: give it one in the table, and say why"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_to_lower_levels(module):
    for other in imports_of(module):
        assert other in LEVELS, f"{module} imports {other}, which has no level"
        assert LEVELS[other] < LEVELS[module], f"{module} must not import {other}"
    if module in ONLY:
        assert imports_of(module) <= ONLY[module]


FRAME_LIBRARIES = {"pandas", "polars", "pyarrow", "awkward"}
KNOW_FRAMES = {"_frames", "_nested", "containers"}  # the modules that read containers


@pytest.mark.parametrize("module", [m for m in MODULES if LEVELS[m] < LEVELS["contextualizer"]])
def test_no_pandas_below_the_estimators_but_where_containers_are_read(module):
    code = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(code)))
    names = {n.module for n in nodes if isinstance(n, ast.ImportFrom) and not n.level}
    names |= {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
    looked_at = {n.attr for n in nodes if isinstance(n, ast.Attribute)} & {"iloc", "loc", "schema"}
    if module not in KNOW_FRAMES:
        assert not {name.partition(".")[0] for name in names} & FRAME_LIBRARIES
        assert not looked_at or LEVELS[module] > LEVELS["containers"]


LONGEST_FUNCTION = 60  # lines of code; docstrings, comments and blank lines are not counted


def functions_of(path):
    """Names and lines of code of the functions of a file."""
    text = path.read_text(encoding="utf-8")
    is_code = [bool(line.strip()) and line.strip()[0] != "#" for line in text.splitlines()]
    nodes = list(ast.walk(ast.parse(text)))
    kinds = ast.FunctionDef, ast.ClassDef
    for node in nodes:
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            first, last = node.body[0].lineno, node.body[0].end_lineno
            is_code[first - 1 : last] = [False] * (last - first + 1)
    return {
        node.name: sum(is_code[node.lineno - 1 : node.end_lineno])
        for node in nodes
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_function_is_long(path):
    long = {name: n for name, n in functions_of(path).items() if n > LONGEST_FUNCTION}
    assert not long, f"{path.name} has functions over {LONGEST_FUNCTION} lines: {long}"


def test_a_long_function_would_be_seen(tmp_path):
    path = tmp_path / "long.py"
    body = "    x = 1\n" * (LONGEST_FUNCTION - 1)
    path.write_text(f'def f():\n    """Two\n    lines."""\n\n    # one\n{body}\n    x = 2\n')
    assert functions_of(path) == {"f": LONGEST_FUNCTION + 1}
    with pytest.raises(AssertionError, match=r"long.py has functions over 60 lines: {'f': 61}"):
        test_no_function_is_long(path)


def test_the_contextualizer_is_short():
    """It says how a fit goes; sets, tasks, layers and starts have modules of their own."""
    lines = (PACKAGE / "contextualizer.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 600


# What is chosen from a table is known to others by its properties alone.
TABLES = {"losses": LOSSES, "masks": {**MASKS, None: NoMask}, "pooling": POOLINGS}
CONCRETE = {kind.__name__: home for home, table in TABLES.items() for kind in table.values()}
CONCRETE["ReconstructionError"] = "losses"


KIND_QUESTIONS = ("isinstance", "issubclass")


def asked_for(path):
    """Concrete losses, masks and poolings of other modules whose kind a file asks for."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        parts = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in KIND_QUESTIONS:
            parts = node.args[1:]
        elif isinstance(node, ast.Compare) and any(
            isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops
        ):
            parts = [node.left, *node.comparators]
        for inner in (inner for part in parts for inner in ast.walk(part)):
            found.add(getattr(inner, "id", getattr(inner, "attr", None)))
    return {name for name in found & CONCRETE.keys() if CONCRETE[name] != path.stem}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_module_asks_for_a_concrete_loss_mask_or_pooling(path):
    assert not asked_for(path)


def test_a_question_for_a_concrete_class_would_be_seen(tmp_path):
    path = tmp_path / "asks.py"
    path.write_text(
        "isinstance(a, (losses.HuberLoss, int))\nissubclass(b, Causal)\ntype(c) is MeanPooling\n"
    )
    assert asked_for(path) == {"HuberLoss", "Causal", "MeanPooling"}


def test_imports_have_no_cycle():
    graph = {module: imports_of(module) for module in MODULES}
    while graph:
        free = [module for module, others in graph.items() if not others & graph.keys()]
        assert free, f"a cycle of imports runs through {sorted(graph)}"
        for module in free:
            del graph[module]


def test_a_cycle_would_be_seen(tmp_path, monkeypatch):
    for name, other in (("losses", "solvers"), ("solvers", "losses")):
        (tmp_path / f"{name}.py").write_text(f"def f():\n    from .{other} import g\n")
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    monkeypatch.setitem(globals(), "MODULES", ["losses", "solvers"])
    with pytest.raises(AssertionError, match="cycle"):
        test_imports_have_no_cycle()
    with pytest.raises(AssertionError, match="losses must not import solvers"):
        test_imports_point_to_lower_levels("losses")


def test_imports_of_a_folder_are_those_of_its_files(tmp_path, monkeypatch):
    folder = tmp_path / "pooling"
    folder.mkdir()
    (folder / "__init__.py").write_text("from ._one import f\n")
    (folder / "_one.py").write_text("def f():\n    from ..predictors import g\n")
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    assert imports_of("pooling") == {"predictors"}
    with pytest.raises(AssertionError, match="pooling must not import predictors"):
        test_imports_point_to_lower_levels("pooling")
    (folder / "_one.py").write_text("from ...elsewhere import g\n")
    with pytest.raises(AssertionError, match="reaches out of the package"):
        imports_of("pooling")


PUBLIC = ["skattn", *(f"skattn.{name}" for name in MODULES if not name.startswith("_"))]


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_says_what_is_public(module):
    loaded = importlib.import_module(module)
    assert sorted(set(loaded.__all__)) == sorted(loaded.__all__)
    for name in loaded.__all__:
        assert hasattr(loaded, name)


@pytest.mark.parametrize("module", PUBLIC)
def test_what_is_public_has_a_docstring(module):
    loaded = importlib.import_module(module)
    assert loaded.__doc__
    for name in loaded.__all__:
        item = getattr(loaded, name)
        if callable(item):
            assert item.__doc__, f"{module}.{name} has no docstring"


LOADS = """
import sys
import numpy, scipy, sklearn, sklearn.base, sklearn.preprocessing  # these may load what they like
before = set(sys.modules)
import skattn
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded & {"pandas", "matplotlib", "torch", "polars", "pyarrow", "awkward", "dask"}))
"""


def test_importing_loads_no_optional_library():
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "matplotlib", "torch", "polars", "pyarrow", "awkward", "dask"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import skattn

X, y = [[[1.0], [2.0]], [[3.0], [1.0], [0.0]], []], [0, 1, 0]
skattn.AttentionContextualizer(max_iter=0).fit(X, y).transform(X)
"""


def test_everything_works_without_the_optional_libraries():
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
