"""set_pipeline: one line to a strong model on sets, made of public parts."""

from ._cross_fitted import CrossFitted
from ._kernel import ScaledNystroem
from ._mixtures import MixtureClassifier, MixtureRegressor
from ._recipe import member_shares, set_pipeline
from ._stack import SetStackClassifier, SetStackRegressor

__all__ = [
    "CrossFitted",
    "MixtureClassifier",
    "MixtureRegressor",
    "ScaledNystroem",
    "SetStackClassifier",
    "SetStackRegressor",
    "member_shares",
    "set_pipeline",
]
