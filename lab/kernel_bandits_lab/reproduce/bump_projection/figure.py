"""Figure 1 of the paper: Bump with λ = 10 and three μ, against the other algorithms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernel_bandits_lab import Record, group, plots
from kernel_bandits_lab.reproduce.claims import Claim, Finding, Pairs, above, below
from kernel_bandits_lab.reproduce.settings import ANY, EVERY, LIBRARY, MARGIN, PAPER, STYLES, draw_panels, shorter_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOTH = (PAPER, LIBRARY)
PLACE = "section 5, Results"
OWN = "EK-UCB μ = 10"
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
        draw_panels(axes, by_policy, f"{settings}, λ = 10")
    plots.finish(drawn, grid, STYLES, shorter_runs(records))
    return drawn


def claims(records: Sequence[Record]) -> list[Claim]:
    """Check what section 5 claims about Figure 1."""
    pairs = Pairs(records)

    def less_regret(settings: str, first: str, second: str) -> Finding:
        return below(f"{first} against {second}", pairs.regret_difference(f"Bump, {settings}", first, second))

    def similar(settings: str, first: str, second: str) -> Finding:
        return below(f"{first} against {second}", pairs.relative_regret(f"Bump, {settings}", first, second), MARGIN)

    def slower(settings: str, first: str, second: str, times: float = 1.0) -> Finding:
        ratio = pairs.time_ratio(f"Bump, {settings}", first, second, alike=_alike(first, second))
        return above(f"{first} against {second}", ratio, times)

    def compromise(settings: str, rival: str) -> Finding:
        ratio = pairs.product_ratio(f"Bump, {settings}", OWN, rival, alike=_alike(OWN, rival))
        return below(rival, ratio, 1.0)

    def claim(statement: str, measure: str, findings: Callable[[str], list[Finding]], place: str = PLACE) -> Claim:
        return Claim(f"Figure 1: {statement}", place, {settings: findings(settings) for settings in BOTH}, measure)

    chain = (("EK-UCB μ = 1", OWN), (OWN, "EK-UCB μ = 100"))
    full = ("EK-UCB μ = 1", "CBKB")
    return [
        claim(
            "for a smaller μ EK-UCB achieves a better regret.",
            "paired difference of the final regrets of neighbouring μ",
            lambda settings: [less_regret(settings, *pair) for pair in chain],
            f"{PLACE}; caption of Figure 1",
        ),
        claim(
            "for a smaller μ EK-UCB takes more time.",
            "ratio of processor times of neighbouring μ",
            lambda settings: [slower(settings, *pair) for pair in chain],
            f"{PLACE}; caption of Figure 1",
        ),
        claim(
            "μ = λ is a good trade-off between regret and time.",
            f"regret at most {MARGIN:.0%} above that of μ = 1 in less time, and less regret than μ = 100",
            lambda settings: [
                similar(settings, OWN, "EK-UCB μ = 1"),
                slower(settings, "EK-UCB μ = 1", OWN),
                less_regret(settings, OWN, "EK-UCB μ = 100"),
            ],
            f"{PLACE}; caption of Figure 1",
        ),
        claim(
            "EK-UCB achieves low regret while running in low computational time.",
            f"at μ = λ: regret at most {MARGIN:.0%} above K-UCB's in less time",
            lambda settings: [similar(settings, OWN, "K-UCB"), slower(settings, "K-UCB", OWN)],
        ),
        claim(
            "K-UCB obtains the best regret.",
            "paired difference of the final regrets",
            lambda settings: [less_regret(settings, "K-UCB", rival) for rival in (OWN, *RIVALS[:-1])],
        ),
        claim(
            "EK-UCB with μ = 1 and CBKB essentially take the full dictionary, m ≈ T.",
            "final m over T, at least 90 %",
            lambda settings: [above(policy, pairs.kept(f"Bump, {settings}", policy), 0.9) for policy in full],
        ),
        claim(
            "EK-UCB with μ = 1 and CBKB match K-UCB's regret.",
            f"regret at most {MARGIN:.0%} above K-UCB's",
            lambda settings: [similar(settings, policy, "K-UCB") for policy in full],
        ),
        claim(
            "EK-UCB with μ = 1 and CBKB cost more time than K-UCB.",
            "ratio of processor times",
            lambda settings: [slower(settings, policy, "K-UCB") for policy in full],
        ),
        claim(
            "CBKB runs much slower than CBBKB.",
            "at least twice the processor time",
            lambda settings: [slower(settings, "CBKB", "CBBKB C = 10", 2.0)],
        ),
        claim(
            "SupKernelUCB performs poorly.",
            f"regret more than {MARGIN:.0%} above K-UCB's",
            lambda settings: [
                above("against K-UCB", pairs.relative_regret(f"Bump, {settings}", "SupKernelUCB", "K-UCB"), MARGIN)
            ],
        ),
        claim(
            "SupKernelUCB is too slow in practice.",
            "more processor time than K-UCB",
            lambda settings: [slower(settings, "SupKernelUCB", "K-UCB")],
        ),
        Claim(
            "CGP-UCB and K-UCB differ only in β.",
            "section 5, Baselines",
            {EVERY: [Finding("by construction", "`cgp_ucb` is `k_ucb` with the radius of Krause & Ong", True)]},
            "nothing: with one radius they are one policy here",
        ),
        Claim(
            "SupKernelUCB's elimination might be beneficial for large T.",
            PLACE,
            {},
            "no run: 2000 rounds are not large, and its exact stages cost too much beyond",
        ),
        claim(
            "EK-UCB with μ = λ matches the best compromise between regret and time.",
            "regret × time below that of every other algorithm",
            lambda settings: [compromise(settings, rival) for rival in RIVALS],
            "caption of Figure 1",
        ),
    ]


def _alike(first: str, second: str) -> bool:
    """Return whether both are EK-UCB, whose μ makes no difference where every point is kept."""
    return first.startswith("EK-UCB") and second.startswith("EK-UCB")
