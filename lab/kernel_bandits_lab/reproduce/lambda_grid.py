"""The figure and the claims that Chessboard, Step Diagonal and Bump share: λ = μ in {1, 10, 100}, C = 3, 10, 30.

The paper draws a figure for each C. Here one figure shows all three, with a row for each λ and the paper's settings
on the left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

import kernel_bandits as kb
from kernel_bandits import environments, theory
from kernel_bandits.arrays import FloatArray
from kernel_bandits.loop import RunResult
from kernel_bandits_lab import Record, group, plots
from kernel_bandits_lab.reproduce.claims import Claim, Finding, Pairs, above, below
from kernel_bandits_lab.reproduce.settings import (
    ANY,
    BUDGETS,
    LIBRARY,
    MARGIN,
    PAPER,
    STYLES,
    draw_panels,
    shorter_runs,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAMBDAS = (1, 10, 100)
LIMITS = (3, 10, 30)
FAMILIES = ("EK-UCB", *(f"CBBKB C = {limit}" for limit in LIMITS), "CBKB", "SupKernelUCB", "K-UCB")
SENSITIVITY = tuple(f"EK-UCB γ = {budget:g}·λ" for budget in BUDGETS)
HIDDEN = SENSITIVITY[1:]
BATCHED = [(number, f"CBBKB C = {limit}") for number in LAMBDAS for limit in LIMITS]


def figure(records: Sequence[Record]) -> Figure:
    """Draw a row for each λ: regret and processor time with the paper's settings, then with the library's."""
    plots.require_matplotlib()
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(15.0, 10.5), layout="constrained")
    grid = drawn.subplots(len(LAMBDAS), 4, sharex=True)
    groups = group(records)
    for row, number in zip(grid, LAMBDAS, strict=True):
        for axes, settings in zip((row[:2], row[2:]), (PAPER, LIBRARY), strict=True):
            found = by_family(groups, settings, number)
            # of the budgets of the published code, the largest stands for all
            shown = {family: runs for family, runs in found.items() if family not in HIDDEN}
            draw_panels(axes, shown, f"{settings}, λ = μ = {number}")
    plots.finish(drawn, grid, STYLES, shorter_runs(records))
    return drawn


def by_family(
    groups: Mapping[str, Mapping[str, Sequence[RunResult]]], settings: str, number: int
) -> dict[str, Sequence[RunResult]]:
    """Return the runs with these settings and this λ by algorithm, including uniform."""
    suffix = f", λ = {number}"
    return {
        label.removesuffix(suffix): runs
        for place, by_policy in groups.items()
        for label, runs in by_policy.items()
        if (place.endswith(settings) and label.endswith(suffix)) or place.endswith(ANY)
    }


def claims(environment: str, records: Sequence[Record]) -> list[Claim]:
    """Check what section 5 and the appendix claim about this environment."""
    grid = _Grid(environment, Pairs(records))
    return [
        *grid.regularization(),
        *grid.against_k_ucb(),
        *grid.exploration(),
        *grid.against_cbbkb(),
        *grid.batches(),
        *grid.compromises(),
    ]


class _Grid:
    """The comparisons of one environment, with both settings."""

    def __init__(self, environment: str, pairs: Pairs) -> None:
        self.environment = environment
        self.pairs = pairs

    def claim(
        self,
        statement: str,
        place: str,
        measure: str,
        findings: Callable[[str], list[Finding]],
        settings: Sequence[str] = (PAPER, LIBRARY),
    ) -> Claim:
        """Return a claim about this environment; ``findings`` makes its comparisons for one of the settings."""
        return Claim(f"{self.environment}: {statement}", place, {name: findings(name) for name in settings}, measure)

    def place(self, settings: str) -> str:
        return f"{self.environment}, {settings}"

    def regret(self, settings: str, number: int, first: str, second: str) -> Finding:
        """At one λ: the first algorithm's regret is below the second's."""
        estimate = self.pairs.regret_difference(self.place(settings), *_at(number, first, second))
        return below(f"λ = {number}, {first} against {second}", estimate)

    def similar(self, settings: str, number: int, first: str, second: str) -> Finding:
        """At one λ: the first algorithm's regret is at most a margin above the second's."""
        estimate = self.pairs.relative_regret(self.place(settings), *_at(number, first, second))
        return below(f"λ = {number}, regret of {first} against {second}", estimate, MARGIN)

    def faster(self, settings: str, number: int, first: str, second: str) -> Finding:
        """At one λ: the first algorithm takes less time than the second."""
        estimate = self.pairs.time_ratio(self.place(settings), *_at(number, first, second))
        return below(f"λ = {number}, time of {first} against {second}", estimate, 1.0)

    def slower(self, settings: str, number: int, first: str, second: str, times: float = 1.0) -> Finding:
        """At one λ: the first algorithm takes more than ``times`` times as long as the second."""
        estimate = self.pairs.time_ratio(self.place(settings), *_at(number, first, second))
        return above(f"λ = {number}, time of {first} against {second}", estimate, times)

    def less_with_less(self, settings: str, family: str, low: int, high: int) -> Finding:
        """The lower λ has less regret."""
        policies = f"{family}, λ = {low}", f"{family}, λ = {high}"
        what = f"{family}, λ = {low} against {high}"
        return below(what, self.pairs.regret_difference(self.place(settings), *policies))

    def plays_uniformly(self, settings: str, policy: str) -> bool:
        """Whether a policy is no better than uniform play, and so trivially on the front of regret and time."""
        any_place = f"{self.environment}, {ANY}"
        estimate = self.pairs.relative_regret(self.place(settings), policy, "uniform", any_place)
        return estimate.value > -0.1

    def regularization(self) -> list[Claim]:
        """Claims about λ."""
        chain = list(pairwise(LAMBDAS))
        others = [family for family in FAMILIES if family not in ("EK-UCB", "SupKernelUCB")]

        def slower_with_less(settings: str) -> list[Finding]:
            return [
                above(
                    f"λ = {low} against {high}",
                    self.pairs.time_ratio(self.place(settings), f"EK-UCB, λ = {low}", f"EK-UCB, λ = {high}"),
                    1.0,
                )
                for low, high in chain
            ]

        return [
            self.claim(
                "the lower λ = μ, the better the regret of EK-UCB.",
                "appendix, “The regularization parameter controls …”; Figure 2",
                "paired difference of the final regrets of neighbouring λ",
                lambda settings: [self.less_with_less(settings, "EK-UCB", *pair) for pair in chain],
            ),
            self.claim(
                "the lower λ = μ, the slower EK-UCB.",
                "appendix, “The regularization parameter controls …”; Figure 2",
                "ratio of processor times of neighbouring λ",
                slower_with_less,
            ),
            self.claim(
                "low λ gives better regret for the other methods too.",
                "caption of Figure 2, for Chessboard",
                "paired difference of the final regrets of neighbouring λ",
                lambda settings: [self.less_with_less(settings, family, *pair) for family in others for pair in chain],
            ),
            self.claim(
                "λ ≈ √T with μ = λ has the smallest guarantee.",
                "section 5, Results; appendix, “The regularization parameter controls …”",
                "the bound of Theorem 3.1, corrected, at λ = √T against λ = 1, 10 and 100, with B = R = 1 and the "
                "effective dimension of uniformly drawn points; no test, the numbers are computed",
                lambda settings: guarantees(self.environment, settings, self.pairs.longest),
            ),
        ]

    def against_k_ucb(self) -> list[Claim]:
        """Claims that compare with the exact algorithm."""
        return [
            self.claim(
                "EK-UCB is faster than K-UCB.",
                "section 5, Results; appendix",
                "ratio of processor times at the same λ",
                lambda settings: [self.faster(settings, number, "EK-UCB", "K-UCB") for number in LAMBDAS],
            ),
            self.claim(
                "EK-UCB's regret is as low as K-UCB's.",
                "section 5: “achieves low regret while running in low computational time”",
                f"regret at most {MARGIN:.0%} above K-UCB's at the same λ",
                lambda settings: [self.similar(settings, number, "EK-UCB", "K-UCB") for number in LAMBDAS],
            ),
            self.claim(
                "CBBKB improves upon K-UCB's time too.",
                "section 5, Results, for Chessboard; the appendix says “unlike CBBKB”",
                "ratio of processor times at the same λ",
                lambda settings: [self.faster(settings, number, family, "K-UCB") for number, family in BATCHED],
            ),
            self.claim(
                "K-UCB is faster than strategies whose dictionaries cost too much to build.",
                "appendix, “More dictionary updates …”",
                "ratio of processor times of K-UCB and CBKB at the same λ",
                lambda settings: [self.faster(settings, number, "K-UCB", "CBKB") for number in LAMBDAS],
            ),
        ]

    def exploration(self) -> list[Claim]:
        """Claims about γ and β."""

        def budget(settings: str) -> list[Finding]:
            return [self.regret(settings, number, "EK-UCB", other) for number in LAMBDAS for other in SENSITIVITY]

        def radius(_settings: str) -> list[Finding]:
            ours, theirs = self.place(LIBRARY), self.place(PAPER)
            policies = [f"K-UCB, λ = {number}" for number in LAMBDAS]
            return [
                below(f"{policy}, β = 0.1", self.pairs.relative_regret(theirs, policy, policy, ours), MARGIN)
                for policy in policies
            ]

        found = [
            self.claim(
                "a KORS budget of γ ≈ λ performs well.",
                "appendix, Empirical setting",
                "regret at γ = λ against the budgets of the published code, 0.1·λ, 0.05·λ, 0.02·λ and 0.001·λ",
                budget,
                [PAPER],
            )
        ]
        if self.environment != "Bump":  # where the lengthscales differ as well
            found.append(
                self.claim(
                    "a fixed radius (β = 0.1) performs well.",
                    "section 4.3: “choosing a fixed value has shown to perform well in our experiments”",
                    f"regret of K-UCB at most {MARGIN:.0%} above that with one standard deviation, at the same λ",
                    radius,
                    [PAPER],
                )
            )
        return found

    def against_cbbkb(self) -> list[Claim]:
        """Claims that compare EK-UCB with batches."""
        return [
            self.claim(
                "EK-UCB is faster than CBBKB for all C and λ.",
                "section 5, Results (C = 10); appendix (all C)",
                "ratio of processor times at the same λ",
                lambda settings: [self.faster(settings, number, "EK-UCB", family) for number, family in BATCHED],
            ),
            self.claim(
                "EK-UCB's regret is lower than CBBKB's for all C and λ.",
                "section 5, Results (C = 10), for Chessboard",
                "paired difference of the final regrets at the same λ",
                lambda settings: [self.regret(settings, number, "EK-UCB", family) for number, family in BATCHED],
            ),
            self.claim(
                "EK-UCB's regret is similar to CBBKB's or better, especially at C = 30.",
                "appendix, “More dictionary updates …”, for Bump",
                f"regret at most {MARGIN:.0%} above CBBKB's at the same λ",
                lambda settings: [self.similar(settings, number, "EK-UCB", family) for number, family in BATCHED],
            ),
        ]

    def batches(self) -> list[Claim]:
        """Claims about C, where CBKB is C = 1."""
        ladder = ("CBKB", *(f"CBBKB C = {limit}" for limit in LIMITS))
        steps = [(number, low, high) for number in LAMBDAS for low, high in pairwise(ladder)]

        def satisfactory(settings: str) -> list[Finding]:
            return [
                finding
                for number in LAMBDAS
                for finding in (
                    self.similar(settings, number, "CBKB", "K-UCB"),
                    self.slower(settings, number, "CBKB", "EK-UCB", times=2.0),
                )
            ]

        return [
            self.claim(
                "the lower C, the slower CBBKB (CBKB is C = 1).",
                "section 5, Results; appendix",
                "ratio of processor times of neighbouring C at the same λ",
                lambda settings: [self.slower(settings, *step) for step in steps],
            ),
            self.claim(
                "the lower C, the better its regret.",
                "appendix, which says “often” for Chessboard and Step Diagonal",
                "paired difference of the final regrets of neighbouring C at the same λ",
                lambda settings: [self.regret(settings, *step) for step in steps],
            ),
            self.claim(
                "CBKB runs much slower than CBBKB.",
                "section 5, Results: “in all experiments”",
                "at least twice the processor time at the same λ",
                lambda settings: [self.slower(settings, number, "CBKB", family, 2.0) for number, family in BATCHED],
            ),
            self.claim(
                "CBKB has satisfactory regret at a drastically higher cost.",
                "appendix, “More dictionary updates …”",
                f"regret at most {MARGIN:.0%} above K-UCB's; at least twice the processor time of EK-UCB",
                satisfactory,
            ),
        ]

    def compromises(self) -> list[Claim]:
        """SupKernelUCB, and the compromise over all."""
        rivals = [family for family in FAMILIES if family != "EK-UCB"]

        def poor(settings: str, number: int, name: str) -> Finding:
            policies = _at(number, name, "K-UCB")
            return above(f"λ = {number}, {name}", self.pairs.relative_regret(self.place(settings), *policies), MARGIN)

        def compromise(settings: str, number: int, rival: str) -> Finding | None:
            place, policies = self.place(settings), _at(number, "EK-UCB", rival)
            if self.plays_uniformly(settings, policies[1]):
                return None
            return below(f"λ = {number}, against {rival}", self.pairs.product_ratio(place, *policies), 1.0)

        def compromises(settings: str) -> list[Finding]:
            found = [compromise(settings, number, rival) for number in LAMBDAS for rival in rivals]
            return [finding for finding in found if finding is not None]

        def poorly(settings: str) -> list[Finding]:
            names = ["SupKernelUCB", *(["SupKernelUCB η = 1"] if settings == PAPER else [])]
            return [poor(settings, number, name) for name in names for number in LAMBDAS]

        return [
            self.claim(
                "SupKernelUCB performs poorly for all λ.",
                "section 5, Results; appendix",
                f"regret more than {MARGIN:.0%} above K-UCB's at the same λ",
                poorly,
            ),
            self.claim(
                "EK-UCB is the best compromise between regret and time, for all λ.",
                "captions of Figure 2 and of the appendix's figures",
                "regret × time below that of every other algorithm at the same λ that beats uniform play by at least a "
                "tenth",
                compromises,
            ),
        ]


def _at(number: int, first: str, second: str) -> tuple[str, str]:
    """The labels of two algorithms at one λ."""
    return f"{first}, λ = {number}", f"{second}, λ = {number}"


ENVIRONMENTS: dict[str, Callable[[], environments.Environment]] = {
    "Chessboard": environments.Chessboard,
    "Step Diagonal": environments.StepDiagonal,
    "Bump": environments.Bump,
}
# Effective dimensions are taken on this many points at most, with λ scaled so that T/λ is that of the horizon.
POINTS = 500


@cache
def bounds(environment: str, settings: str, horizon: int) -> dict[str, float]:
    """Return the corrected bound of Theorem 3.1 with B = R = 1, by λ."""
    count = min(horizon, POINTS)
    lengthscale = 1.0 if environment == "Bump" and settings != PAPER else 0.1
    points = _points(environment, count)
    gram = kb.Gaussian(lengthscale)(points, points)
    root = math.sqrt(horizon)
    values = {"1": 1.0, "10": 10.0, "√T": root, "100": 100.0}
    return {
        name: theory.k_ucb_regret_bound(
            horizon=horizon,
            regularization=value,
            norm_bound=1.0,
            effective_dimension=theory.effective_dimension(gram, value * count / horizon),
        )
        for name, value in values.items()
    }


def _points(environment: str, count: int) -> FloatArray:
    """Return joint points of uniform play."""
    generator = np.random.default_rng(0)
    problem = ENVIRONMENTS[environment]()
    rows = []
    for _ in range(count):
        offer = problem.next_round(generator)
        rows.append(np.concatenate([offer.context, offer.rows[int(generator.integers(len(offer.rows)))]]))
    return np.array(rows)


def guarantees(environment: str, settings: str, horizon: int) -> list[Finding]:
    """Compare the bound at λ = √T with those at the λ of the grid."""
    if horizon < 2:
        return []
    found = bounds(environment, settings, horizon)
    return [
        Finding(
            f"λ = √T against {name}", f"bound {found['√T']:.0f} against {found[name]:.0f}", found["√T"] < found[name]
        )
        for name in ("1", "10", "100")
    ]
