"""Attention for set-valued data, in scikit-learn's manner."""

from .attention import scaled_dot_product_attention
from .containers import as_ragged
from .contextualizer import AttentionContextualizer
from .joining import SetJoiner
from .pairs import RaggedPair
from .predictors import AttentionClassifier, AttentionRegressor
from .preprocessing import PositionalEncoder, SetPooler, TokenEmbedder, TokenTransformer
from .ragged import RaggedArray
from .tuning import AttentionContextualizerCV

__version__ = "0.1.0.dev0"
__all__ = [
    "AttentionClassifier",
    "AttentionContextualizer",
    "AttentionContextualizerCV",
    "AttentionRegressor",
    "PositionalEncoder",
    "RaggedArray",
    "RaggedPair",
    "SetJoiner",
    "SetPooler",
    "TokenEmbedder",
    "TokenTransformer",
    "as_ragged",
    "scaled_dot_product_attention",
]
