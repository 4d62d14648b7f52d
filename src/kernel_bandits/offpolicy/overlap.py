"""How much a log can say about a candidate: diagnostics of the weights, and warnings in words."""

from dataclasses import dataclass, replace

import numpy as np

from kernel_bandits.arrays import FloatArray

# Fewer effective rounds than this cannot carry an interval.
FEW_EFFECTIVE = 100.0
# A round with more than this share of all weight decides the estimate.
HEAVY_SHARE = 0.05
# More than this share of the candidate's probability on actions that were never played leaves the answer to the model.
UNSEEN_SHARE = 0.02
# More than this share of decisions without a reward could hide what the others do not show.
LEFT_OUT_SHARE = 0.05
# The mean weight is 1 if the propensities are right; this many standard errors off, they are not.
MEAN_WEIGHT_ERRORS = 5.0


@dataclass(frozen=True, slots=True)
class Overlap:
    """Diagnostics of the weights w = π(a)/p(a) of n rounds.

    Attributes:
        rounds: n.
        effective_sample_size: (Σw)²/Σw²: rounds of equal weight that would carry as much.
        largest_weight: max w.
        heaviest_round: the row of the largest weight.
        mean_weight: w̄; 1 in expectation where the log has tried all that the candidate does.
        used: the share of rounds with a weight above 0.
        unseen: the candidate's mean probability of actions that the log never played.
        left_out: decisions without a reward, which are not among the rounds.
        warnings: what the log cannot say, in words.
    """

    rounds: int
    effective_sample_size: float
    largest_weight: float
    heaviest_round: int
    mean_weight: float
    used: float
    unseen: float
    left_out: int = 0
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.effective_sample_size:,.0f} of {self.rounds:,} rounds effective, {100 * self.used:.0f} % used",
            f"largest weight {self.largest_weight:.3g} (row {self.heaviest_round}), mean weight {self.mean_weight:.3g}",
        ]
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])


def overlap_of(weights: FloatArray, unseen: float = 0.0, left_out: int = 0) -> Overlap:
    """Return the diagnostics of weights (n,)."""
    count, total, squares = len(weights), float(weights.sum()), float(weights @ weights)
    size = total * total / squares if squares else 0.0
    heaviest = int(weights.argmax())
    found = Overlap(
        rounds=count,
        effective_sample_size=size,
        largest_weight=float(weights[heaviest]),
        heaviest_round=heaviest,
        mean_weight=total / count,
        used=float(np.count_nonzero(weights)) / count,
        unseen=unseen,
        left_out=left_out,
    )
    return replace(found, warnings=tuple(_warnings(found, weights)))


def _warnings(found: Overlap, weights: FloatArray) -> list[str]:
    words = []
    if found.effective_sample_size < FEW_EFFECTIVE:
        words.append(
            f"the log can hardly answer: it holds {found.effective_sample_size:,.0f} effective rounds of "
            f"{found.rounds:,}, and fewer than {FEW_EFFECTIVE:g} make intervals too short. Log more, with more "
            "exploration, or ask about a candidate closer to what was played."
        )
    share = found.largest_weight / weights.sum() if weights.any() else 0.0
    if share > HEAVY_SHARE:
        words.append(
            f"row {found.heaviest_round} alone has {100 * share:.0f} % of all weight; the inverse-propensity estimates "
            "depend on its reward. Prefer the shrunk or switched estimate."
        )
    if found.unseen > UNSEEN_SHARE:
        words.append(
            f"the candidate plays actions that the log never played with probability {found.unseen:.2f}; there only "
            "the model speaks, without data."
        )
    if found.left_out > LEFT_OUT_SHARE * (found.rounds + found.left_out):
        words.append(
            f"{found.left_out:,} of {found.rounds + found.left_out:,} decisions have no reward and are left out; if "
            "good rewards come sooner than bad ones, or the other way round, the rest is not like them."
        )
    error = float(weights.std()) / np.sqrt(found.rounds)
    if abs(found.mean_weight - 1.0) > MEAN_WEIGHT_ERRORS * error + 1e-9 and found.unseen <= UNSEEN_SHARE:
        words.append(
            f"the mean weight is {found.mean_weight:.3g} and should be 1 (± {error:.2g}): the propensities in the log "
            "are not those of the play, or some actions had probability 0."
        )
    return words
