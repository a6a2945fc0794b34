"""What scikit-learn's `set_output` does to transformers whose output may be ragged."""

import functools

from sklearn.base import TransformerMixin

from ._persistence import VersionStampMixin
from ._sets import Sets
from .containers import is_pandas
from .pairs import RaggedPair
from .ragged import RaggedArray


class RaggedOutputMixin(VersionStampMixin, TransformerMixin):
    """A transformer whose output is wrapped by `set_output` unless it is ragged."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for name in ("transform", "fit_transform"):
            wrapped = getattr(cls, name)  # by scikit-learn, in the class that defines it
            if hasattr(wrapped, "__wrapped__"):
                setattr(cls, name, _unless_ragged(wrapped.__wrapped__, wrapped))

    def _is_ragged_out(self):
        """Whether `transform` gives a RaggedArray."""
        return False


def _unless_ragged(plain, wrapped):
    """The method as `set_output` wraps it, or as it was where the output is ragged."""

    @functools.wraps(plain)
    def method(self, X, *args, **kwargs):
        if self._is_ragged_out():
            return plain(self, X, *args, **kwargs)
        out = wrapped(self, X, *args, **kwargs)
        if is_pandas(out, "DataFrame"):
            if is_pandas(X, "Series"):
                out.index = X.index  # scikit-learn before 1.7 does so for frames only
            elif isinstance(X, (RaggedArray, RaggedPair)):
                index = Sets.of(X).queries.index
                out.index = out.index if index is None else index
        return out

    return method
