"""Docstrings that share the description of their parameters."""

import inspect
import re


def with_parameters_of(source, without=()):
    """Give a class's docstring the parameters of another, after its own.

    The class takes the same parameters, but for those named in `without`.
    """
    if source.__doc__ is None:  # python -OO
        return lambda cls: cls
    _, _, rest = inspect.cleandoc(source.__doc__).partition("Parameters\n----------\n")
    entries = re.split(r"\n(?=\S)", rest.partition("\nAttributes\n")[0].rstrip())
    shared = [entry for entry in entries if entry.partition(" :")[0] not in without]

    def document(cls):
        before, _, after = inspect.cleandoc(cls.__doc__).partition("Attributes\n")
        if "Parameters\n" not in before:
            before += "Parameters\n----------\n"
        parts = [before.rstrip(), *shared]
        cls.__doc__ = "\n".join(parts) + "\n\nAttributes\n" + after
        return cls

    return document
