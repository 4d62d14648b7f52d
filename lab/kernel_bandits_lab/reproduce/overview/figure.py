"""EK-UCB, K-UCB, a linear bandit and uniform play: regret, time and dictionary, with the library's defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernel_bandits_lab import Record, group, summarize
from kernel_bandits_lab.paper_figure import PANELS, Layout, paper_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(records: Sequence[Record]) -> Figure:
    """Draw all environments, three panels each."""
    return paper_figure(group(records), Layout(width=9.0, font="sans-serif", text_size=9.0, panels=PANELS))


def narrow(records: Sequence[Record]) -> Figure:
    """Draw the first environment for a narrow screen."""
    groups = group(records)
    first = next(iter(groups))
    return paper_figure({first: groups[first]}, Layout(width=4.0, font="sans-serif", text_size=9.0, panels=PANELS[:2]))


def headline(records: Sequence[Record]) -> str:
    """Return the result in one sentence, from the first environment."""
    place, by_policy = next(iter(group(records).items()))
    found = {label: summarize(runs) for label, runs in by_policy.items()}
    ours, exact = found["EK-UCB"], found["K-UCB"]
    rounds = by_policy["EK-UCB"][0].horizon
    return (
        f"{place}, {rounds} rounds: EK-UCB's regret is {ours.regret:.0f} (K-UCB {exact.regret:.0f}, linear "
        f"{found['linear (LinUCB)'].regret:.0f}, uniform {found['uniform'].regret:.0f}) at "
        f"{ours.round_microseconds:.0f} µs a round (K-UCB {exact.round_microseconds:.0f}), with "
        f"{ours.dictionary_size:.0f} points instead of {exact.dictionary_size:.0f}."
    )
