"""Masks: which tokens of its set a token attends to.

A mask is a frozen value. The kernels use `allowed` alone. From its other attributes the estimators
see whether the mask allows token weights, and the diagnostics take their words.
"""

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["MASKS", "Mask"]


@dataclass(frozen=True)
class Mask:
    """Base class of masks; your own mask derives from it and defines `allowed`.

    Attributes
    ----------
    attends_to : str
        What a token attends to, in words that follow "the mean of"; ``{whole}`` stands for "set"
        or "context".
    weights_are_copies : bool, default=False
        Whether a token of weight w may stand for w copies of itself. False if the order or the
        identity of tokens matters; token weights other than 0 and 1 are then refused.
    sees_all : bool, default=False
        Whether every token attends to the same tokens, all of them.
    only_self : bool, default=False
        Whether every token attends to itself alone, which takes O(n) time.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from skattn.masks import Mask
    >>> @dataclass(frozen=True)
    ... class Window(Mask):
    ...     width: int = 1
    ...     attends_to = "its neighbours"
    ...
    ...     def allowed(self, i, j):
    ...         return abs(i - j) <= self.width
    >>> i = np.arange(3)
    >>> Window().allowed(i[:, None], i).astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [0, 1, 1]])
    """

    attends_to: ClassVar[str] = "the tokens that its mask allows"
    weights_are_copies: ClassVar[bool] = False
    sees_all: ClassVar[bool] = False
    only_self: ClassVar[bool] = False

    def allowed(self, i, j):
        """Whether token i attends to token j.

        Parameters
        ----------
        i, j : ndarray of int of shape (n, 1) and (m,)
            Positions of tokens in their set.

        Returns
        -------
        ndarray of bool of shape (n, m) or None
            None where every token attends to every token.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no allowed(i, j).")


@dataclass(frozen=True)
class NoMask(Mask):
    """Every token attends to every token."""

    attends_to = "all tokens of its {whole}"
    weights_are_copies = True
    sees_all = True

    def allowed(self, i, j):
        """None: all are allowed."""
        return None


@dataclass(frozen=True)
class Causal(Mask):
    """Token i attends to itself and to the tokens before it."""

    attends_to = "the tokens up to it"

    def allowed(self, i, j):
        """Whether j is at most i."""
        return j <= i


@dataclass(frozen=True)
class ExcludeSelf(Mask):
    """Token i attends to every token but itself."""

    attends_to = "the other tokens of its set"

    def allowed(self, i, j):
        """Whether i and j differ."""
        return j != i


@dataclass(frozen=True)
class Diagonal(Mask):
    """Token i attends to itself alone: attention switched off."""

    attends_to = "itself"
    weights_are_copies = True
    only_self = True

    def allowed(self, i, j):
        """Whether i and j are equal."""
        return j == i


MASKS = {"causal": Causal, "exclude_self": ExcludeSelf, "diagonal": Diagonal}


def mask_of(mask):
    """The Mask for a name or for None; a Mask itself is returned unchanged."""
    if mask is None:
        return NoMask()
    return MASKS[mask]() if isinstance(mask, str) else mask
