"""Policies: what to play, given what was learned.

Swappable: one :class:`UpperConfidenceBound` rule over any posterior and any radius, assembled by
:mod:`~kernel_bandits.presets`; :class:`ThompsonSampling` draws from any posterior, :class:`InverseGapWeighting` uses
its means, :class:`SupKernelUCB` and :class:`FamilyUpperConfidenceBound` have a control flow of their own, and
:class:`Uniform` learns nothing. A policy of your own derives from :class:`Policy` and implements ``choose`` over a
model, such as a posterior.
"""

from kernel_bandits.policy.diagnostics import Diagnostics
from kernel_bandits.policy.family import FamilyUpperConfidenceBound
from kernel_bandits.policy.inverse_gap import InformationSharpness, InverseGapWeighting, PowerSharpness, Sharpness
from kernel_bandits.policy.loading import load
from kernel_bandits.policy.outlook import Outlook
from kernel_bandits.policy.policy import Choice, Decision, Explanation, Policy
from kernel_bandits.policy.sup_kernel_ucb import SupKernelUCB
from kernel_bandits.policy.thompson import ThompsonSampling
from kernel_bandits.policy.ucb import UpperConfidenceBound
from kernel_bandits.policy.uniform import Uniform

__all__ = [
    "Choice",
    "Decision",
    "Diagnostics",
    "Explanation",
    "FamilyUpperConfidenceBound",
    "InformationSharpness",
    "InverseGapWeighting",
    "Outlook",
    "Policy",
    "PowerSharpness",
    "Sharpness",
    "SupKernelUCB",
    "ThompsonSampling",
    "Uniform",
    "UpperConfidenceBound",
    "load",
]
