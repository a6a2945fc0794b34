"""Transformers of sets: vectors of words, positions, any transformer of tokens, statistics."""

from ._embedder import TokenEmbedder
from ._pooler import STATISTICS, SetPooler
from ._positions import ENCODINGS, PositionalEncoder
from ._tokens import TokenTransformer

__all__ = [
    "ENCODINGS",
    "STATISTICS",
    "PositionalEncoder",
    "SetPooler",
    "TokenEmbedder",
    "TokenTransformer",
]
