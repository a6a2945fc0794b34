"""Validate the docstrings of skattn's public API with numpydoc.

Public is what a module without a leading underscore lists in `__all__`, and the public methods and
properties that its classes define. The checks stand in pyproject.toml, [tool.numpydoc_validation].
"""

import importlib
import inspect
import pkgutil
import sys
import tomllib
from collections import Counter
from functools import cached_property
from pathlib import Path

from numpydoc.validate import validate

import skattn

# Layers, losses and solvers follow one protocol each: their methods need a sentence, not the
# protocol's parameters once more.
PROTOCOL_MODULES = ("skattn.attention.", "skattn.pooling.", "skattn.losses.", "skattn.solvers.")


def public_names():
    """Dotted names of modules, their public objects, and these objects' own members."""
    names = {"skattn": "module"}  # its own names are listed where they are defined
    for module_info in pkgutil.iter_modules(skattn.__path__, "skattn."):
        if module_info.name.rpartition(".")[2].startswith("_"):
            continue
        module = importlib.import_module(module_info.name)
        names[module.__name__] = "module"
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue  # a table
            if not f"{value.__module__}.".startswith(f"{module.__name__}."):
                continue  # listed where it is defined: the module, or a file of the folder it is
            names[f"{module.__name__}.{name}"] = "object"
            if inspect.isclass(value):
                for member, definition in vars(value).items():
                    if member.startswith("_"):
                        continue
                    if inspect.isfunction(definition) or isinstance(
                        definition, (property, cached_property, classmethod, staticmethod)
                    ):
                        names[f"{module.__name__}.{name}.{member}"] = "member"
    return names


def errors(name, kind):
    """numpydoc's findings, (code, message) pairs; a module only needs to have a docstring."""
    if kind == "module":
        return [] if sys.modules[name].__doc__ else [("GL08", "The module has no docstring")]
    return validate(name)["errors"]


def main():
    """Print every finding and the counts; exit 1 where there is one."""
    pyproject = Path(__file__).resolve().parents[1] / "pyproject.toml"
    checks = set(tomllib.loads(pyproject.read_text())["tool"]["numpydoc_validation"]["checks"])
    names, found = public_names(), Counter()
    for name, kind in names.items():
        wanted = checks
        if kind == "member":
            wanted = checks - {"EX01"}
            if name.startswith(PROTOCOL_MODULES):
                wanted = {code for code in wanted if code.startswith(("GL", "SS"))}
        for code, message in errors(name, kind):
            if code in wanted:
                found[code] += 1
                print(f"{name}: {code} {message}")
    kinds = Counter(names.values())
    print(
        f"{len(names)} public docstrings checked ({kinds['module']} modules, {kinds['object']} "
        f"classes and functions, {kinds['member']} methods and properties): "
        f"{found.total()} findings {dict(sorted(found.items())) or ''}"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
