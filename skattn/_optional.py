"""Optional libraries, imported where they are used."""

import importlib


def import_optional(name, extra):
    """The module of that name, or an ImportError that names the extra which brings it."""
    library = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise  # it is there, but something that it needs is not
        raise ImportError(
            f"This needs {library}, which is not installed. It comes with the extra {extra!r}: "
            f"pip install 'skattn[{extra}]'"
        ) from error
