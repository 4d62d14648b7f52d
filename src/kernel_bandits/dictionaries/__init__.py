"""Which past points carry the Nyström posterior.

Swappable: :class:`Kors` draws by online ridge leverage scores (the paper's rule), :class:`PosteriorVariance` reuses the
posterior variance as the score, :class:`Fixed` keeps the anchors it is given, and :class:`Resampling` draws the whole
dictionary anew, every round (BKB) or batch by batch (BBKB).
"""

from kernel_bandits.dictionaries.base import Candidate, Dictionary, Proposal
from kernel_bandits.dictionaries.fixed import Fixed
from kernel_bandits.dictionaries.leverage import Kors, LeverageSampling, PosteriorVariance
from kernel_bandits.dictionaries.resampling import Resampling

__all__ = [
    "Candidate",
    "Dictionary",
    "Fixed",
    "Kors",
    "LeverageSampling",
    "PosteriorVariance",
    "Proposal",
    "Resampling",
]
