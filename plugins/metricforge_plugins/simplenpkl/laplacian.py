"""The Laplacian of a graph as the hinge losses use it: products with matrices of n rows and few columns.

These matrices are arrays, or row chunks on the workers: see `metricforge.eigen.columns`, whose operations they share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from metricforge.eigen import Block, Columns
from metricforge.rows import Array

from .pairs import SignedPairs

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Laplacian(ABC):
    """L, and the matrices A(α) = Σ α_ij t_ij (E_ij + E_ji)/2 − L.

    Attributes
    ----------
    columns : Columns
        The operations on the blocks that L multiplies.
    trace : float
    here : bool
        Whether it is in this process, so that an eigenproblem costs no rounds of tasks.
    """

    columns: Columns
    trace: float
    here: bool

    @abstractmethod
    def times(self, X: Block) -> Block:
        """Return LX."""

    @abstractmethod
    def matrix(self, pairs: SignedPairs, alpha: Array) -> Any:
        """Return A(α) as `metricforge.eigen.top` takes it."""

    @abstractmethod
    def block(self, V: Any, r: int) -> Block:
        """Return the first r columns of an array of eigenvectors."""

    @abstractmethod
    def array(self, X: Block) -> Any:
        """Return a block as an array of eigenvectors."""

    def settled(self, V: Any, r: int) -> Any:
        """Return the first r columns of an array of eigenvectors, without the tasks that have computed them."""
        return V[:, :r]


class LaplacianInMemory(Laplacian):
    """A Laplacian in this process."""

    here = True

    def __init__(self, L: csr_array) -> None:
        self.L = L
        self.columns = Columns(L.shape[0])
        self.trace = float(L.diagonal().sum())

    def times(self, X: Block) -> Block:
        """Return LX."""
        return np.asarray(self.L @ X)

    def matrix(self, pairs: SignedPairs, alpha: Array) -> Any:
        """Return A(α)."""
        return pairs.matrix(alpha) - self.L

    def block(self, V: Any, r: int) -> Block:
        """Return the first r columns."""
        return V[:, :r]

    def array(self, X: Block) -> Any:
        """Return the block itself."""
        return X
