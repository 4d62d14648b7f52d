"""Tables of results: as texts for pages and terminals, and as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_bandits_lab.differences import Difference, differences
from kernel_bandits_lab.results import Record
from kernel_bandits_lab.summary import group, summarize

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
    return _condensed(Table("Results", heads, tuple(rows), note))


def _condensed(table: Table) -> Table:
    """Return a table without the columns of labels and counts that say the same in every row; the note says it once."""
    same = [
        number
        for number, head in enumerate(table.heads)
        if head in ("environment", "runs", "rounds") and len({row[number] for row in table.rows}) == 1
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
