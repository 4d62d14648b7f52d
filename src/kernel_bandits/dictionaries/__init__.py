"""Which past points carry the Nyström posterior.

A rule is a frozen specification: :class:`Kors` draws by online ridge leverage scores (the paper's rule),
:class:`PosteriorVariance` reuses the posterior variance as the score, :class:`Fixed` keeps the anchors it is given, and
:class:`Resampling` redraws the whole dictionary, every round (BKB) or batch by batch (BBKB). A rule of your own
derives from :class:`DictionaryRule` and starts a :class:`Dictionary`, its running state.
"""

from kernel_bandits.dictionaries.base import Candidate, Dictionary, DictionaryRule, PlayedPoints, Proposal
from kernel_bandits.dictionaries.fixed import Fixed
from kernel_bandits.dictionaries.kors import Kors, PosteriorVariance
from kernel_bandits.dictionaries.resampling import Resampling

__all__ = [
    "Candidate",
    "Dictionary",
    "DictionaryRule",
    "Fixed",
    "Kors",
    "PlayedPoints",
    "PosteriorVariance",
    "Proposal",
    "Resampling",
]
