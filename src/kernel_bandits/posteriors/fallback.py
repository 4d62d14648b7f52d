"""When a learned model no longer holds: notice that a policy earns less than it expects, and since when.

A policy plays what its model promises. If rewards stay below what was predicted of them, the model is wrong where it
matters, and play may be worse than chance. What was learned before the fall then counts for nothing, and the model
begins again from its prior, the simplest there is. Rewards above their predictions do no harm: the next fit finds them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_bandits.arrays import FloatArray
from kernel_bandits.learning.defaults import FALL_LIMIT as LIMIT
from kernel_bandits.learning.defaults import FALL_LIMIT_GROWTH as GROWTH
from kernel_bandits.learning.defaults import FALL_SUSPECT_SHARE as SUSPECT
from kernel_bandits.learning.defaults import FIRST_TESTED_ROUND as FIRST_TESTED
from kernel_bandits.learning.defaults import TOLERATED_SHIFT as TOLERATED
from kernel_bandits.posteriors.changes import Cusum, residual
from kernel_bandits.posteriors.facts import Facts

# The weight of an observation that no longer counts. Not 0: the history divides by it. A million of them weigh as much
# as a thousandth of one that counts.
FORGOTTEN = 1e-9
# A test that has seen nothing yet.
_FRESH = Cusum(TOLERATED, LIMIT)


@dataclass(frozen=True)
class Trust:
    """Which observations a learned model rests on; frozen, so that a failed update changes nothing.

    Attributes:
        is_watched: whether rewards are tested at all.
        since: observations before this one count for nothing.
        test: of the rewards that came after it.
    """

    is_watched: bool = True
    since: int = 0
    test: Cusum = _FRESH

    def after(self, reward: float, mean: float, std: float, facts: Facts) -> Trust:
        """Return it with one more reward, and what a posterior with such facts predicted of it."""
        if not self.is_watched or facts.is_provisional or facts.round_index - self.since < FIRST_TESTED:
            return self
        z = residual(reward, mean, std, facts.regularization, facts.unit)
        # A fit begins the test again, unless it is close to an alarm: the fit then learns from both sides of a change.
        is_suspect = self.test.below > SUSPECT * LIMIT
        changes = self.test.kernel_changes if is_suspect else len(facts.kernel_changes)
        test = self.test.after(z, facts.round_index, changes)
        return Trust(self.is_watched, self.since, test)

    @property
    def lost_at(self) -> int | None:
        """The observation from which on rewards fell short for too long to be chance; None if they did not."""
        limit = max(self.test.limit, GROWTH * math.log(max(self.test.count, 1)))
        return self.test.below_since if self.test.below > limit else None

    def again(self) -> Trust:
        """Return the trust in what came from there on alone."""
        since = self.lost_at
        return self if since is None else Trust(self.is_watched, since, self.test.anew(since))

    def weights(self, given: FloatArray | None, count: int) -> FloatArray | None:
        """Return the weights of all observations so far, shape (count,), of those they were given; None for 1 each."""
        if not self.since:
            return given
        weights = np.ones(count) if given is None else given.copy()
        weights[: self.since] = np.minimum(weights[: self.since], FORGOTTEN)
        return weights
