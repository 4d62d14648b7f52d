"""Table 1 of the paper, measured: how time and memory grow with T, with the anchors m and with the actions A."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from kernel_bandits_lab import plots
from kernel_bandits_lab.reproduce import settings
from kernel_bandits_lab.reproduce.claims import MISSING, Claim, Estimate, Finding, below
from kernel_bandits_lab.reproduce.table_1.measurements import (
    ACTIONS,
    ALGORITHMS,
    LENGTHSCALE,
    Axis,
    Measurement,
    cases,
    measure,
    read,
)
from kernel_bandits_lab.tables import Table, mean_interval

from kernel_bandits.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["claims", "figure", "is_quick", "measure", "tables"]

TITLE = "Table 1 measured"
Quantity: TypeAlias = Literal["time", "memory"]
AXES: tuple[tuple[Axis, str], ...] = (("T", "rounds T"), ("m", "anchors m"), ("A", "actions A"))
STYLES = {
    algorithm.label: settings.STYLES[style]
    for algorithm, style in zip(
        ALGORITHMS, ("K-UCB", "SupKernelUCB", "CBKB", "CBBKB C = 10", "EK-UCB", "EK-UCB γ = 0.1·λ"), strict=True
    )
}
MEASURED = "measured"
# A fitted exponent may exceed the paper's by this much.
TOLERANCE = 0.15
# The paper's time and space, and the exponents of T, m and A in its leading terms (C is the number of actions there).
PAPER: dict[str, tuple[str, str, dict[tuple[Quantity, Axis], float]]] = {
    "K-UCB, CGP-UCB": ("C·T³", "T²", {("time", "T"): 3, ("time", "A"): 1, ("memory", "T"): 2}),
    "SupKernelUCB": ("C·T³", "T²", {("time", "T"): 3, ("time", "A"): 1, ("memory", "T"): 2}),
    "CBKB": (
        "T²·m² + C·T·m²",
        "T·m",
        {("time", "T"): 2, ("time", "m"): 2, ("time", "A"): 1, ("memory", "T"): 1, ("memory", "m"): 1},
    ),
    "CBBKB, C = 10": (
        "T·m³ + C·T·m²",
        "T·m",
        {("time", "T"): 1, ("time", "m"): 3, ("time", "A"): 1, ("memory", "T"): 1, ("memory", "m"): 1},
    ),
    "EK-UCB": (
        "C·T·m²",
        "T·m",
        {("time", "T"): 1, ("time", "m"): 2, ("time", "A"): 1, ("memory", "T"): 1, ("memory", "m"): 1},
    ),
    "EK-UCB, no history": ("–", "–", {}),
}

# Where this library stores something else than the paper assumes.
_OURS: dict[tuple[str, str], str] = {
    (label, "memory"): "; kept here are m² and T·d numbers instead of T·m"
    for label in ("CBKB", "CBBKB, C = 10", "EK-UCB")
}


def points(measurements: Sequence[Measurement], axis: Axis, quantity: Quantity) -> list[tuple[float, float]]:
    """Return abscissa and ordinate (s or MB) of one algorithm and seed on an axis, in order."""
    found = []
    for measurement in measurements:
        if measurement.case.axis != axis:
            continue
        values = measurement.seconds if quantity == "time" else tuple(size / 1e6 for size in measurement.peak_bytes)
        if axis == "T":
            found += list(zip(measurement.rounds, values, strict=True))
        else:
            abscissa = measurement.sizes[-1] if axis == "m" else measurement.case.actions
            found.append((abscissa, values[-1]))
    return sorted(found)


def exponent(measurements: Sequence[Measurement], label: str, axis: Axis, quantity: Quantity) -> Estimate:
    """Fit the slope of the logarithms over the three largest abscissae for each seed; the interval is over seeds."""
    slopes = []
    for seed in sorted({one.case.seed for one in measurements}):
        own = [one for one in measurements if one.case.seed == seed and one.case.algorithm == label]
        places = points(own, axis, quantity)[-3:]
        if len(places) == 3:
            logs = np.log(np.array(places))
            slopes.append(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    if len(slopes) < 2:
        return MISSING
    mean, half = mean_interval(np.array(slopes))
    return Estimate(float(mean), float(mean - half), float(mean + half))


def is_quick(folder: Path) -> bool:
    """Return whether some of the planned cases were not measured."""
    return not set(cases(quick=False)) <= {measurement.case for measurement in read(folder)}


def figure(folder: Path) -> Figure:
    """Draw time and peak memory against T, m and A with logarithmic axes; medians over seeds."""
    plots.require_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    measurements = read(folder)
    drawn = Figure(figsize=(13.0, 7.5), layout="constrained")
    grid = drawn.subplots(2, 3, sharex="col")
    rows: tuple[tuple[Quantity, str], ...] = (("time", "processor time (s)"), ("memory", "peak memory (MB)"))
    for row, (quantity, name) in zip(grid, rows, strict=True):
        for axes, (axis, what) in zip(row, AXES, strict=True):
            for label, style in STYLES.items():
                own = [one for one in measurements if one.case.algorithm == label]
                curve = _medians(own, axis, quantity)
                if len(curve):
                    (line,) = axes.plot(*curve.T, color=style.colour, linewidth=style.width, label=label)
                    line.set(marker=style.marker or "h", markersize=5)
                    if style.dashes:
                        line.set_dashes(style.dashes)
            axes.set(xscale="log", yscale="log", ylabel=name, xlabel=what if quantity == "memory" else "")
            for scale in (axes.xaxis, axes.yaxis):
                scale.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                scale.set_major_formatter(StrMethodFormatter("{x:g}"))
                scale.set_minor_formatter(NullFormatter())
            axes.grid(color="#DDDDDD", linewidth=0.5)
            axes.spines[["top", "right"]].set_visible(False)
    plots.finish(drawn, grid, STYLES, _note(measurements))
    for axes, (_, what) in zip(grid[-1], AXES, strict=True):
        axes.set_xlabel(what)
    return drawn


def _medians(measurements: Sequence[Measurement], axis: Axis, quantity: Quantity) -> FloatArray:
    """Return the medians over seeds of abscissa and ordinate at each step of an axis, shape (steps, 2)."""
    seeds = sorted({one.case.seed for one in measurements})
    curves = [points([one for one in measurements if one.case.seed == seed], axis, quantity) for seed in seeds]
    longest = max((len(curve) for curve in curves), default=0)
    whole = [curve for curve in curves if len(curve) == longest]
    return np.median(np.array(whole), axis=0) if longest else np.empty((0, 2))


def _note(measurements: Sequence[Measurement]) -> str:
    seeds = len({one.case.seed for one in measurements})
    by_axis = {(one.case.axis, one.case.algorithm): one.case.horizon for one in measurements}
    fixed = "; ".join(
        f"against {axis}: " + ", ".join(f"{label} {rounds}" for (of, label), rounds in by_axis.items() if of == axis)
        for axis in ("m", "A")
    )
    return (
        f"MovingOptimum, medians of {seeds} seeds, {ACTIONS} actions and lengthscale {LENGTHSCALE:g} unless varied; "
        f"m is varied by the lengthscale. Rounds {fixed}. Processor time of one thread; peak of traced memory."
    )


def tables(folder: Path) -> list[Table]:
    """Return the fitted exponents beside the paper's complexities."""
    measurements = read(folder)
    heads = ["algorithm", "paper: time", "paper: space"]
    heads += [f"{quantity}: {axis}" for quantity in ("time", "memory") for axis, _ in AXES]
    rows = []
    for label, (time, space, _) in PAPER.items():
        fitted = [_cell(measurements, label, axis, quantity) for quantity in _QUANTITIES for axis, _ in AXES]
        rows.append([label, time, space, *fitted])
    note = (
        "Exponents fitted to the three largest points of each curve (T: the last two doublings), mean ± 95 % interval "
        "over seeds; in brackets the exponent of the paper's leading term. In the paper's columns C is the number of "
        "actions, and m stands for d_eff."
    )
    return [Table("Fitted exponents", tuple(heads), tuple(map(tuple, rows)), note)]


_QUANTITIES: tuple[Quantity, ...] = ("time", "memory")


def _cell(measurements: Sequence[Measurement], label: str, axis: Axis, quantity: Quantity) -> str:
    found = exponent(measurements, label, axis, quantity)
    expected = PAPER[label][2].get((quantity, axis))
    if not np.isfinite(found.value):
        return "–"
    return f"{found} [{expected:g}]" if expected is not None else str(found)


def claims(folder: Path) -> list[Claim]:
    """Check the complexities of Table 1 as upper bounds on fitted exponents, and the claim about rank-one updates."""
    measurements = read(folder)
    found = []
    for label, (time, space, exponents) in PAPER.items():
        for quantity, formula in (("time", time), ("memory", space)):
            findings = [
                below(f"{axis}{_power(expected)}", exponent(measurements, label, axis, of), expected + TOLERANCE)
                for (of, axis), expected in exponents.items()
                if of == quantity
            ]
            if findings:
                found.append(
                    Claim(
                        f"{label}: {quantity} grows as {formula} at most.",
                        "Table 1",
                        {MEASURED: findings},
                        f"fitted exponents at most {TOLERANCE:g} above the paper's" + _OURS.get((label, quantity), ""),
                    )
                )
    return [*found, _rank_one(measurements)]


def _power(expected: float) -> str:
    return "" if expected == 1 else {2.0: "²", 3.0: "³"}[float(expected)]


def _rank_one(measurements: Sequence[Measurement]) -> Claim:
    """Compare the times of EK-UCB and CBBKB at the same m, where both curves have points."""
    sizes = (75.0, 150.0)
    findings = [_ratio_at(measurements, size) for size in sizes]
    return Claim(
        "Rank-one updates contribute to EK-UCB's speed-up over CBBKB.",
        "section 5, Results",
        {MEASURED: findings},
        "processor time of EK-UCB over CBBKB's at the same m, read off the curves against m",
    )


def _ratio_at(measurements: Sequence[Measurement], size: float) -> Finding:
    ratios = []
    for seed in sorted({one.case.seed for one in measurements}):
        logs = []
        for label in ("EK-UCB", "CBBKB, C = 10"):
            own = [one for one in measurements if one.case.seed == seed and one.case.algorithm == label]
            places = np.log(np.array(points(own, "m", "time") or [(np.nan, np.nan)]))
            inside = places[0, 0] <= np.log(size) <= places[-1, 0]
            logs.append(float(np.interp(np.log(size), places[:, 0], places[:, 1])) if inside else np.nan)
        ratios.append(logs[0] - logs[1])
    usable = np.array([ratio for ratio in ratios if np.isfinite(ratio)])
    if len(usable) < 2:
        return below(f"m = {size:g}", MISSING)
    mean, half = mean_interval(usable)
    ends = (float(np.exp(end)) for end in (mean, mean - half, mean + half))
    value, low, high = ends
    return below(f"m = {size:g}", Estimate(value, low, high, "ratio"), 1.0)
