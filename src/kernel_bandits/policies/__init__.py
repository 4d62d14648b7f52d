"""Policies: what to play, given what was learned.

Swappable: one :class:`UpperConfidenceBound` rule over any posterior and any radius, assembled by
:mod:`~kernel_bandits.presets`; :class:`ThompsonSampling` draws from any posterior, :class:`InverseGapWeighting` uses
its means, :class:`SupKernelUCB` and :class:`FamilyUpperConfidenceBound` have a control flow of their own, and
:class:`Uniform` learns nothing. A policy of your own derives from :class:`PosteriorPolicy` and implements ``choose``,
or from :class:`Policy` and implements ``learn`` too.
"""

from kernel_bandits.policies.decision import Choice, Decision
from kernel_bandits.policies.diagnostics import Diagnostics
from kernel_bandits.policies.family import FamilyUpperConfidenceBound
from kernel_bandits.policies.inverse_gap import InformationSharpness, InverseGapWeighting, PowerSharpness, Sharpness
from kernel_bandits.policies.loading import load
from kernel_bandits.policies.policy import Policy
from kernel_bandits.policies.posterior_policy import Explanation, PosteriorPolicy
from kernel_bandits.policies.sup_kernel_ucb import SupKernelUCB
from kernel_bandits.policies.thompson import ThompsonSampling
from kernel_bandits.policies.ucb import UpperConfidenceBound
from kernel_bandits.policies.uniform import Uniform

__all__ = [
    "Choice",
    "Decision",
    "Diagnostics",
    "Explanation",
    "FamilyUpperConfidenceBound",
    "InformationSharpness",
    "InverseGapWeighting",
    "Policy",
    "PosteriorPolicy",
    "PowerSharpness",
    "Sharpness",
    "SupKernelUCB",
    "ThompsonSampling",
    "Uniform",
    "UpperConfidenceBound",
    "load",
]
