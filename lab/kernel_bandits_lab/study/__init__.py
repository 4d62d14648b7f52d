"""Studies: :mod:`parsing` reads a file into the runs of :mod:`specification`, :mod:`validation` checks them."""

from kernel_bandits_lab.study.catalogue import catalogue
from kernel_bandits_lab.study.components import Component, Reference, reference
from kernel_bandits_lab.study.parsing import importable, load_study, study_of
from kernel_bandits_lab.study.specification import Run, Study
from kernel_bandits_lab.study.validation import validate

__all__ = [
    "Component",
    "Reference",
    "Run",
    "Study",
    "catalogue",
    "importable",
    "load_study",
    "reference",
    "study_of",
    "validate",
]
