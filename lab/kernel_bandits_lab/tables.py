"""Means, paired differences with corrected p-values, and their tables: Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from scipy.special import stdtr, stdtrit

from kernel_bandits.arrays import FloatArray
from kernel_bandits.errors import InputError
from kernel_bandits.loop import RunResult
from kernel_bandits_lab.results import Record
from kernel_bandits_lab.study import did_you_mean

COVERAGE = 0.95
Groups: TypeAlias = dict[str, dict[str, list[RunResult]]]


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of the runs of one policy in one environment.

    Attributes:
        runs: n, the number of runs.
        regret: mean cumulative regret after the last round, in reward units.
        regret_interval: half-width of its 95 % Student interval over the runs; NaN for a single run.
        dictionary_size: mean number of points that carry the model after the last round.
        round_microseconds: mean time of ``select`` and ``update``, over all rounds.
    """

    runs: int
    regret: float
    regret_interval: float
    dictionary_size: float
    round_microseconds: float


def group(records: Iterable[Record]) -> Groups:
    """Return results by environment label, then by policy label, in order of appearance."""
    groups: Groups = {}
    for record in records:
        environment, policy = record.run.cell
        groups.setdefault(environment, {}).setdefault(policy, []).append(record.result)
    return groups


def mean_interval(samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean of samples (n, …) over their n rows and the half-width of its 95 % Student interval.

    Both have shape (…); the half-width is NaN for n = 1.
    """
    n = len(samples)
    mean = samples.mean(axis=0)
    if n < 2:
        return mean, np.full_like(mean, np.nan)
    quantile = stdtrit(n - 1, 0.5 + COVERAGE / 2)
    return mean, quantile * samples.std(axis=0, ddof=1) / np.sqrt(n)


def summarize(runs: Sequence[RunResult]) -> Summary:
    """Return the summary of one or more runs of one policy in one environment."""
    regret, half_width = mean_interval(np.array([result.regret[-1] for result in runs]))
    round_seconds = np.concatenate([result.select_seconds + result.update_seconds for result in runs])
    return Summary(
        runs=len(runs),
        regret=float(regret),
        regret_interval=float(half_width),
        dictionary_size=float(np.mean([result.dictionary_size[-1] for result in runs])),
        round_microseconds=1e6 * float(np.mean(round_seconds)),
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """The regret of a policy less that of the reference in the same environment, over the seeds that both have.

    Attributes:
        environment: its label.
        policy: its label.
        reference: the label of the other policy.
        pairs: n, the number of seeds that both have.
        rounds: after which regrets are compared, those of the shorter runs.
        mean: of the differences, in units of the reward; negative if the policy is better.
        half_width: of the 95 % Student interval of the mean; NaN for a single pair.
        p_value: of the two-sided paired t-test of no difference; NaN for a single pair.
        adjusted_p_value: after Holm's correction over all differences that were computed together.
    """

    environment: str
    policy: str
    reference: str
    pairs: int
    rounds: int
    mean: float
    half_width: float
    p_value: float
    adjusted_p_value: float


def differences(records: Iterable[Record], reference: str | None = None) -> list[Difference]:
    """Return the differences of all policies to a reference, which is the first of each environment by default."""
    cells: dict[str, dict[str, dict[int, RunResult]]] = {}
    for record in records:
        environment, policy = record.run.cell
        cells.setdefault(environment, {}).setdefault(policy, {})[record.run.seed] = record.result
    labels = {policy: None for by_policy in cells.values() for policy in by_policy}
    if reference is not None and reference not in labels:
        hint = did_you_mean(reference, labels)
        raise InputError(f"reference: there is no policy {reference!r}{hint} There are {', '.join(labels)}.")
    found = []
    for environment, by_policy in cells.items():
        base = next(iter(by_policy)) if reference is None else reference
        for policy in by_policy:
            if base in by_policy and policy != base:
                found += _difference(environment, policy, base, by_policy)
    adjusted = holm([one.p_value for one in found])
    return [replace(one, adjusted_p_value=p_value) for one, p_value in zip(found, adjusted, strict=True)]


def _difference(
    environment: str, policy: str, reference: str, by_policy: dict[str, dict[int, RunResult]]
) -> list[Difference]:
    """Return the difference in a list, which is empty if no seed is shared."""
    ours, theirs = by_policy[policy], by_policy[reference]
    seeds = sorted(set(ours) & set(theirs))
    if not seeds:
        return []
    rounds = min(runs[seed].horizon for runs in (ours, theirs) for seed in seeds)
    samples = np.array([ours[seed].regret[rounds - 1] - theirs[seed].regret[rounds - 1] for seed in seeds])
    mean, half_width = (float(value) for value in mean_interval(samples))
    p_value = _p_value(samples)
    return [Difference(environment, policy, reference, len(seeds), rounds, mean, half_width, p_value, p_value)]


def _p_value(samples: FloatArray) -> float:
    """Return the p-value of Student's t-test that the mean is 0."""
    if len(samples) < 2:
        return float("nan")
    mean, spread = float(samples.mean()), float(samples.std(ddof=1))
    if spread == 0.0:
        return 0.0 if mean else 1.0
    return float(2.0 * stdtr(len(samples) - 1, -abs(mean) / (spread / np.sqrt(len(samples)))))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number as Holm (1979) does; NaN stays, and does not count.

    In increasing order p_(i) becomes max over j ≤ i of min(1, (n − j + 1)·p_(j)): the probability that any true
    hypothesis is rejected at level α is at most α.
    """
    order = sorted((i for i, p in enumerate(p_values) if not np.isnan(p)), key=lambda i: p_values[i])
    adjusted, largest = list(map(float, p_values)), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


_SYMBOLS = {"±": r"$\pm$", "×": r"$\times$", "−": "$-$", "–": "--", "≤": r"$\leq$", "≥": r"$\geq$", "√": r"$\surd$"}
_SYMBOLS |= {"µ": r"$\mu$", "…": r"\ldots{}", "≈": r"$\approx$", "∈": r"$\in$", "→": r"$\to$", "\u00a0": "~"}
_SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"}
_SPECIAL |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"}


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    title: str  # above it
    heads: Sequence[str]  # of the columns
    rows: Sequence[Sequence[str]]  # of cells
    note: str = ""  # below it


def summary_table(records: Sequence[Record]) -> Table:
    """Return runs, regret, dictionary size and time of every policy in every environment."""
    rows = []
    for environment, by_policy in group(records).items():
        for policy, runs in by_policy.items():
            summary = summarize(runs)
            interval = "" if len(runs) < 2 else f" ± {summary.regret_interval:.1f}"
            counts = str(summary.runs), str(runs[0].horizon), f"{summary.regret:.1f}{interval}"
            costs = f"{summary.dictionary_size:.0f}", f"{summary.round_microseconds:.0f}"
            rows.append((environment, policy, *counts, *costs))
    heads = ("environment", "policy", "runs", "rounds", "regret", "dictionary", "µs/round")
    note = "Regret: mean ± 95 % interval. Dictionary: mean final size. Time: mean processor time of select and update."
    return Table("Summary", heads, tuple(rows), note)


def difference_table(found: Sequence[Difference]) -> Table:
    """Return paired differences of regret as a table."""
    rows = []
    for one in found:
        change = f"{one.mean:+.1f}".replace("-", "−")
        interval = "" if one.pairs < 2 else f" ± {one.half_width:.1f}"
        counts = one.reference, str(one.pairs), str(one.rounds)
        rows.append((one.environment, one.policy, *counts, f"{change}{interval}", _p(one.adjusted_p_value)))
    heads = ("environment", "policy", "less", "pairs", "rounds", "difference", "p (Holm)")
    note = (
        "Difference: regret of the policy less that of the other on the same seeds, mean ± 95 % interval. "
        f"p: paired t-test, corrected for {len(rows)} comparisons after Holm."
    )
    return Table("Paired differences", heads, tuple(rows), note)


def paper_table(records: Sequence[Record], reference: str | None = None) -> Table:
    """Return summary and paired differences in one table, as a paper prints it."""
    found = {(one.environment, one.policy): one for one in differences(records, reference)}
    rows = []
    for row in summary_table(records).rows:
        one = found.get((row[0], row[1]))
        shown = ("–", "–") if one is None else difference_table([one]).rows[0][5:]
        rows.append((*row, *shown))
    heads = (*summary_table(()).heads, "difference", "p (Holm)")
    bases = dict.fromkeys(one.reference for one in found.values())
    note = summary_table(()).note
    note += f" Difference: paired by seed, less {'; '.join(bases)}." if bases else ""
    return condensed(Table("Results", heads, tuple(rows), note))


def condensed(table: Table) -> Table:
    """Return a table without the columns of labels and counts that say the same in every row; the note says it once."""
    same = [
        number
        for number, head in enumerate(table.heads)
        if head in ("environment", "less", "pairs", "runs", "rounds") and len({row[number] for row in table.rows}) == 1
    ]
    said = "; ".join(f"{table.heads[number]}: {table.rows[0][number]}" for number in same)
    kept = [number for number in range(len(table.heads)) if number not in same]
    rows = tuple(tuple(row[number] for number in kept) for row in table.rows)
    note = f"{table.note} {said[:1].upper()}{said[1:]}." if said else table.note
    return Table(table.title, tuple(table.heads[number] for number in kept), rows, note)


def as_markdown(table: Table) -> str:
    """Return a table as Markdown."""
    lines = [table.heads, ["---"] * len(table.heads), *table.rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"{text}\n\n{table.note}\n" if table.note else f"{text}\n"


def as_latex(table: Table) -> str:
    """Return a table as LaTeX for the package ``booktabs``; a first cell that repeats is left blank."""
    labels = [head for head in table.heads if head in ("environment", "policy", "less")]
    columns = "l" * len(labels) + "r" * (len(table.heads) - len(labels))
    lines = [f"% {_ascii(table.note)}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [" & ".join(map(_latex, table.heads)) + r" \\", r"\midrule"]
    before = None
    for row in table.rows:
        grouped = table.heads[0] == "environment"
        if grouped and before is not None and row[0] != before:
            lines.append(r"\addlinespace")
        cells = ["" if grouped and row[0] == before else row[0], *row[1:]]
        lines.append(" & ".join(map(_latex, cells)) + r" \\")
        before = row[0]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def as_csv(records: Sequence[Record], reference: str | None = None) -> str:
    """Return summary and paired differences as CSV, with numbers in full."""
    found = {(one.environment, one.policy): one for one in differences(records, reference)}
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    summaries = ("runs", "regret", "regret_interval", "dictionary_size", "round_microseconds")
    compared = ("reference", "pairs", "mean", "half_width", "p_value", "adjusted_p_value")
    names = {"mean": "difference", "half_width": "difference_interval"}
    heads = ("environment", "policy", "rounds", *summaries, *(names.get(name, name) for name in compared))
    writer.writerow(heads)
    for environment, by_policy in group(records).items():
        for policy, runs in by_policy.items():
            summary, one = summarize(runs), found.get((environment, policy))
            values = [getattr(summary, name) for name in summaries]
            values += ["" if one is None else getattr(one, name) for name in compared]
            writer.writerow(
                (environment, policy, runs[0].horizon, *("" if _is_nan(value) else value for value in values))
            )
    return written.getvalue()


def _p(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _latex(text: str) -> str:
    return "".join(_SPECIAL.get(letter) or _SYMBOLS.get(letter) or _greek(letter) for letter in text)


def _greek(letter: str) -> str:
    """Return the command of a Greek letter, and any other letter as it is."""
    match = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(letter, ""))
    if match is None:
        return letter
    name = match[2].lower().replace("lamda", "lambda")
    return f"$\\{name if match[1] == 'SMALL' else name.capitalize()}$"


def _ascii(text: str) -> str:
    return " ".join(
        text.replace("±", "+-").replace("µ", "u").replace("λ", "lambda").encode("ascii", "replace").decode().split()
    )
