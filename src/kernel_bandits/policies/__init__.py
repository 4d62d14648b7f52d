"""Policies: what to play, given what was learned.

Swappable: one :class:`UpperConfidenceBound` rule over any posterior and any radius, assembled by the presets
:func:`k_ucb` and :func:`ek_ucb`; :func:`uniform` plays at random.
"""

from kernel_bandits.policies.base import Decision, Policy
from kernel_bandits.policies.presets import ek_ucb, k_ucb, uniform
from kernel_bandits.policies.ucb import UpperConfidenceBound
from kernel_bandits.policies.uniform import Uniform

__all__ = ["Decision", "Policy", "Uniform", "UpperConfidenceBound", "ek_ucb", "k_ucb", "uniform"]
