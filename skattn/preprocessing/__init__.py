"""Transformers around attention: words to token vectors, tokens, plain statistics."""

from ._embedder import TokenEmbedder
from ._pooler import STATISTICS, SetPooler
from ._tokens import TokenTransformer

__all__ = [
    "STATISTICS",
    "SetPooler",
    "TokenEmbedder",
    "TokenTransformer",
]
