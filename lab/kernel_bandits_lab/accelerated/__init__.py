"""Thousands of replicas of EK-UCB, K-UCB and uniform play in one compiled program.

An optional package that needs JAX. :func:`ek_ucb`, :func:`k_ucb` and :func:`uniform` describe policies;
:func:`run_many` runs them, on a GPU if there is one, and returns the records that ``kernel_bandits.run`` returns for
the same seeds. :class:`PureEnvironment` is an environment of your own, written as a function.
"""

from importlib import import_module

from kernel_bandits.errors import needs

with needs("jax", "kernel-bandits-lab[jax]"):
    import_module("jax")

from kernel_bandits_lab.accelerated.problems import PureEnvironment
from kernel_bandits_lab.accelerated.replicas import Replica, ek_ucb, k_ucb, run_many, uniform

__all__ = ["PureEnvironment", "Replica", "ek_ucb", "k_ucb", "run_many", "uniform"]
