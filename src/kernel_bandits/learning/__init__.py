"""Learning a kernel from rewards: when (:class:`KernelLearning`), by what evidence and prior, and the best model."""

from kernel_bandits.learning.fit import KernelLearning

__all__ = ["KernelLearning"]
