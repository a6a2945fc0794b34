"""Transformers around attention: tokens through any transformer, and plain pooled statistics."""

from ._pooler import STATISTICS, SetPooler
from ._tokens import TokenTransformer

__all__ = ["STATISTICS", "SetPooler", "TokenTransformer"]
