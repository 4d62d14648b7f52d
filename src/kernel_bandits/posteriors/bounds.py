"""An upper bound as a function of the action in one context, for a search."""

from abc import ABC, abstractmethod

from kernel_bandits.arrays import FloatArray


class Bound(ABC):
    """mean + bonus·std in one context, up to a constant and in a unit that suits the posterior."""

    @abstractmethod
    def values(self, actions: FloatArray) -> FloatArray:
        """Return the bound at actions (n, d_a), shape (n,); raise if the kernel is not finite there."""

    @abstractmethod
    def with_gradients(self, actions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the bound (n,) and its gradients (n, d_a) at actions (n, d_a), finite where the kernel is."""
