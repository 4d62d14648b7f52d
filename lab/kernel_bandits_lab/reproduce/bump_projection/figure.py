"""Figure 1 of the paper: Bump with λ = 10 and three μ, against the other algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernel_bandits_lab import Record, group, plots
from kernel_bandits_lab.reproduce.claims import Claim, Finding, Pairs, above, below
from kernel_bandits_lab.reproduce.settings import ANY, EVERY, LIBRARY, MARGIN, PAPER, STYLES, shorter_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOTH = (PAPER, LIBRARY)
RIVALS = ("EK-UCB μ = 1", "EK-UCB μ = 100", "CBBKB C = 10", "CBKB", "SupKernelUCB", "K-UCB")


def figure(records: Sequence[Record]) -> Figure:
    """Draw regret and processor time: the paper's settings in the first row, the library's in the second."""
    plots.require_matplotlib()
    from matplotlib.figure import Figure

    groups = group(records)
    drawn = Figure(figsize=(9.5, 7.5), layout="constrained")
    grid = drawn.subplots(2, 2, sharex=True)
    for axes, settings in zip(grid, BOTH, strict=True):
        by_policy = {
            label: runs
            for place, policies in groups.items()
            for label, runs in policies.items()
            if place.endswith((settings, ANY))
        }
        if by_policy:
            plots.draw_regret(axes[0], by_policy, STYLES)
            plots.draw_time(axes[1], by_policy, STYLES, scale="log")
            plots.panel_title(axes[0], f"{settings}, λ = 10")
            axes[1].set_ylabel("cumulative processor time (s)")
    plots.finish(drawn, grid, STYLES, shorter_runs(records))
    return drawn


def claims(records: Sequence[Record]) -> list[Claim]:
    """Check what section 5 claims about Figure 1."""
    pairs = Pairs(records)
    return [*_projection(pairs), *_exact(pairs), *_others(pairs)]


def _difference(pairs: Pairs, settings: str, first: str, second: str) -> Finding:
    estimate = pairs.regret_difference(f"Bump, {settings}", first, second)
    return below(f"{first} against {second}", estimate)


def _similar(pairs: Pairs, settings: str, first: str, second: str) -> Finding:
    return below(f"{first} against {second}", pairs.relative_regret(f"Bump, {settings}", first, second), MARGIN)


def _slower(pairs: Pairs, settings: str, first: str, second: str) -> Finding:
    ratio = pairs.time_ratio(f"Bump, {settings}", first, second, alike=_alike(first, second))
    return above(f"{first} against {second}", ratio, 1.0)


def _alike(first: str, second: str) -> bool:
    """Return whether both are EK-UCB, whose μ makes no difference where every point is kept."""
    return first.startswith("EK-UCB") and second.startswith("EK-UCB")


def _projection(pairs: Pairs) -> list[Claim]:
    """Claims about μ."""
    chain = (("EK-UCB μ = 1", "EK-UCB μ = 10"), ("EK-UCB μ = 10", "EK-UCB μ = 100"))
    return [
        Claim(
            "Figure 1: for a smaller μ EK-UCB achieves a better regret.",
            "section 5, Results; caption of Figure 1",
            {settings: [_difference(pairs, settings, *pair) for pair in chain] for settings in BOTH},
            "paired difference of the final regrets of neighbouring μ",
        ),
        Claim(
            "Figure 1: for a smaller μ EK-UCB takes more time.",
            "section 5, Results; caption of Figure 1",
            {settings: [_slower(pairs, settings, *pair) for pair in chain] for settings in BOTH},
            "ratio of processor times of neighbouring μ",
        ),
        Claim(
            "Figure 1: μ = λ is a good trade-off between regret and time.",
            "section 5, Results; caption of Figure 1",
            {
                settings: [
                    _similar(pairs, settings, "EK-UCB μ = 10", "EK-UCB μ = 1"),
                    _slower(pairs, settings, "EK-UCB μ = 1", "EK-UCB μ = 10"),
                    _difference(pairs, settings, "EK-UCB μ = 10", "EK-UCB μ = 100"),
                ]
                for settings in BOTH
            },
            f"regret at most {MARGIN:.0%} above that of μ = 1 in less time, and less regret than μ = 100",
        ),
    ]


def _exact(pairs: Pairs) -> list[Claim]:
    """Claims that compare with the exact algorithm."""
    full = ("EK-UCB μ = 1", "CBKB")
    return [
        Claim(
            "Figure 1: EK-UCB achieves low regret while running in low computational time.",
            "section 5, Results",
            {
                settings: [
                    _similar(pairs, settings, "EK-UCB μ = 10", "K-UCB"),
                    _slower(pairs, settings, "K-UCB", "EK-UCB μ = 10"),
                ]
                for settings in BOTH
            },
            f"at μ = λ: regret at most {MARGIN:.0%} above K-UCB's in less time",
        ),
        Claim(
            "Figure 1: K-UCB obtains the best regret.",
            "section 5, Results",
            {
                settings: [_difference(pairs, settings, "K-UCB", rival) for rival in ("EK-UCB μ = 10", *RIVALS[:-1])]
                for settings in BOTH
            },
            "paired difference of the final regrets",
        ),
        Claim(
            "Figure 1: EK-UCB with μ = 1 and CBKB essentially take the full dictionary, m ≈ T.",
            "section 5, Results",
            {
                settings: [above(policy, pairs.kept(f"Bump, {settings}", policy), 0.9) for policy in full]
                for settings in BOTH
            },
            "final m over T, at least 90 %",
        ),
        Claim(
            "Figure 1: EK-UCB with μ = 1 and CBKB match K-UCB's regret.",
            "section 5, Results",
            {settings: [_similar(pairs, settings, policy, "K-UCB") for policy in full] for settings in BOTH},
            f"regret at most {MARGIN:.0%} above K-UCB's",
        ),
        Claim(
            "Figure 1: EK-UCB with μ = 1 and CBKB cost more time than K-UCB.",
            "section 5, Results",
            {settings: [_slower(pairs, settings, policy, "K-UCB") for policy in full] for settings in BOTH},
            "ratio of processor times",
        ),
    ]


def _others(pairs: Pairs) -> list[Claim]:
    """CBKB, SupKernelUCB and the compromise."""

    def compromise(settings: str, rival: str) -> Finding:
        own = "EK-UCB μ = 10"
        return below(rival, pairs.product_ratio(f"Bump, {settings}", own, rival, alike=_alike(own, rival)), 1.0)

    return [
        Claim(
            "Figure 1: CBKB runs much slower than CBBKB.",
            "section 5, Results",
            {
                settings: [above("C = 10", pairs.time_ratio(f"Bump, {settings}", "CBKB", "CBBKB C = 10"), 2.0)]
                for settings in BOTH
            },
            "at least twice the processor time",
        ),
        Claim(
            "Figure 1: SupKernelUCB performs poorly.",
            "section 5, Results",
            {
                settings: [
                    above(
                        "against K-UCB",
                        pairs.relative_regret(f"Bump, {settings}", "SupKernelUCB", "K-UCB"),
                        MARGIN,
                    )
                ]
                for settings in BOTH
            },
            f"regret more than {MARGIN:.0%} above K-UCB's",
        ),
        Claim(
            "Figure 1: SupKernelUCB is too slow in practice.",
            "section 5, Results",
            {settings: [_slower(pairs, settings, "SupKernelUCB", "K-UCB")] for settings in BOTH},
            "more processor time than K-UCB",
        ),
        Claim(
            "CGP-UCB and K-UCB differ only in β.",
            "section 5, Baselines",
            {EVERY: [Finding("by construction", "`cgp_ucb` is `k_ucb` with the radius of Krause & Ong", True)]},
            "nothing: with one radius they are one policy here",
        ),
        Claim(
            "SupKernelUCB's elimination might be beneficial for large T.",
            "section 5, Results",
            {},
            "no run: 2000 rounds are not large, and its exact stages cost too much beyond",
        ),
        Claim(
            "Figure 1: EK-UCB with μ = λ matches the best compromise between regret and time.",
            "caption of Figure 1",
            {settings: [compromise(settings, rival) for rival in RIVALS] for settings in BOTH},
            "regret × time below that of every other algorithm",
        ),
    ]
