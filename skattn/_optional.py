"""Optional libraries, imported where they are used."""

import importlib

__all__ = ["require"]


def require(name, extra, purpose):
    """Import an optional library, or say which extra installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs {name}, which is not installed. Install it with "
            f"`pip install skattn[{extra}]`."
        ) from error
