"""The figures of the Step Diagonal setting in the appendix."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_bandits_lab import Record
from kernel_bandits_lab.reproduce import lambda_grid
from kernel_bandits_lab.reproduce.claims import Claim

figure = lambda_grid.figure


def claims(records: Sequence[Record]) -> list[Claim]:
    """Check the paper's claims about Step Diagonal."""
    return lambda_grid.claims("Step Diagonal", records)
