"""Detect when rewards leave their predictions for good, and since when."""

from __future__ import annotations

from dataclasses import dataclass

# A residual beyond this many standard deviations counts as this many: one outlier is no change.
LARGEST = 3.0


@dataclass(frozen=True)
class Cusum:
    """Two-sided CUSUM test of standardised residuals (Page 1954); frozen, so that a failed update changes nothing.

    Attributes:
        tolerated: shifts below this many standard deviations are no change.
        limit: of the statistics.
        above: the statistic of rewards above what was predicted.
        below: the same below.
        above_since: the round after which the statistic has been positive, where a change would have been.
        below_since: the same of the other.
    """

    tolerated: float
    limit: float
    above: float = 0.0
    below: float = 0.0
    above_since: int = 0
    below_since: int = 0

    def after(self, z: float, time: int) -> Cusum:
        """Return the test with one more residual, of a decision made at a time in rounds."""
        z = max(-LARGEST, min(z, LARGEST))
        above, below = max(0.0, self.above + z - self.tolerated), max(0.0, self.below - z - self.tolerated)
        return Cusum(
            self.tolerated,
            self.limit,
            above,
            below,
            self.above_since if above else time + 1,
            self.below_since if below else time + 1,
        )

    @property
    def changed_at(self) -> int | None:
        """The round of the change; None if there was none."""
        if max(self.above, self.below) <= self.limit:
            return None
        return self.above_since if self.above > self.below else self.below_since

    def anew(self, time: int) -> Cusum:
        """Return a test that has seen nothing yet."""
        return Cusum(self.tolerated, self.limit, above_since=time, below_since=time)
