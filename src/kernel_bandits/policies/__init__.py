"""Policies: what to play, given what was learned.

Swappable: one :class:`UpperConfidenceBound` rule over any posterior and any radius, assembled by presets
(:func:`k_ucb`, :func:`cgp_ucb`, :func:`ek_ucb`, :func:`cbkb`, :func:`cbbkb`, :func:`lin_ucb`,
:func:`random_features_ucb`); :class:`ThompsonSampling` draws from any posterior, :class:`InverseGapWeighting` uses
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
from kernel_bandits.policies.presets import (
    cbbkb,
    cbkb,
    cgp_ucb,
    ek_ucb,
    family_ucb,
    inverse_gap_weighting,
    k_ucb,
    lin_ucb,
    random_features_ucb,
    sup_kernel_ucb,
    thompson_sampling,
    uniform,
)
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
    "cbbkb",
    "cbkb",
    "cgp_ucb",
    "ek_ucb",
    "family_ucb",
    "inverse_gap_weighting",
    "k_ucb",
    "lin_ucb",
    "load",
    "random_features_ucb",
    "sup_kernel_ucb",
    "thompson_sampling",
    "uniform",
]
