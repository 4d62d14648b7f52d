"""Two tables that scikit-learn ships. A row is a context, its classes are the arms, and the right class earns 1.

Regret is the number of wrong choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from kernel_bandits_lab import Record, group
from kernel_bandits_lab.paper_figure import PANELS, Layout, paper_figure
from kernel_bandits_lab.tables import Table, mean_interval

from kernel_bandits.arrays import FloatArray
from kernel_bandits.loop import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGE = "sklearn"
OURS, LINEAR, TUNED, UNIFORM = "EK-UCB, nothing set", "linear (LinUCB)", "linear, tenth of the bonus", "uniform"


def figure(records: Sequence[Record]) -> Figure:
    """Draw both tables, regret and time."""
    return paper_figure(group(records), Layout(width=9.0, font="sans-serif", text_size=9.0, panels=PANELS[:2]))


def narrow(records: Sequence[Record]) -> Figure:
    """Draw the regret on both tables for a narrow screen."""
    return paper_figure(group(records), Layout(width=4.0, font="sans-serif", text_size=9.0, panels=PANELS[:1]))


def tables(records: Sequence[Record]) -> list[Table]:
    """Return the share of right choices of every policy."""
    rows = []
    for place, by_policy in group(records).items():
        for policy, runs in by_policy.items():
            mean, half_width = mean_interval(_shares(runs))
            last, _ = mean_interval(_shares(runs, last=100))
            interval = "" if len(runs) < 2 else f" ± {half_width:.1%}"
            rows.append((place, policy, str(len(runs)), str(runs[0].horizon), f"{mean:.1%}{interval}", f"{last:.1%}"))
    heads = ("table", "policy", "runs", "rounds", "right choices", "in the last 100")
    return [Table("Right choices", heads, tuple(rows), "Mean ± 95 % interval over runs with different orders of rows.")]


def headline(records: Sequence[Record]) -> str:
    """Return the shares of right choices in one sentence."""
    parts = []
    for place, by_policy in group(records).items():
        shares = {policy: f"{_shares(runs).mean():.0%}" for policy, runs in by_policy.items()}
        others = f"linear {shares[LINEAR]}, with a tenth of the bonus {shares[TUNED]}, uniform {shares[UNIFORM]}"
        parts.append(f"{place} {shares[OURS]} ({others})")
    rounds = records[0].result.horizon
    return f"Right choices on real tables in {rounds} rounds, EK-UCB with nothing set: {'; '.join(parts)}."


def _shares(runs: Sequence[RunResult], last: int | None = None) -> FloatArray:
    """Return the share of rounds with the right class, shape (runs,); rewards are 1 or 0, without noise."""
    return np.array([run.rewards[-(last or 0) :].mean() for run in runs])
