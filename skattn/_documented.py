"""Docstrings that share descriptions of parameters."""

import inspect
import re

SECTION = "Parameters\n----------\n"


def with_parameters_of(source, without=()):
    """A decorator that adds the parameters of `source` to a class's docstring.

    Parameters that only the class has come first. Its own description of a parameter replaces the
    one from `source`. Parameters named in `without` are left out.
    """
    if source.__doc__ is None:  # python -OO
        return lambda cls: cls
    shared = _entries(inspect.cleandoc(source.__doc__).partition(SECTION)[2])

    def document(cls):
        before, _, after = inspect.cleandoc(cls.__doc__).partition("Attributes\n")
        before, _, own = before.partition(SECTION)
        own = _entries(own)
        merged = {name: entry for name, entry in own.items() if name not in shared}
        merged |= {name: own.get(name, shared[name]) for name in shared if name not in without}
        cls.__doc__ = "\n".join(
            [before.rstrip(), "", SECTION + "\n".join(merged.values()), "", "Attributes", after]
        )
        return cls

    return document


def _entries(section):
    """The entries of a section of parameters, by name."""
    text = section.partition("\nAttributes\n")[0].rstrip()
    entries = re.split(r"\n(?=\S)", text) if text else []
    return {entry.partition(" :")[0]: entry for entry in entries}
