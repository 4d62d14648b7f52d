"""Reports: one self-contained HTML page with figures, tables, settings and provenance."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_bandits.experiments.results import Record
from kernel_bandits.experiments.store import Results
from kernel_bandits.experiments.summary import group, summarize
from kernel_bandits.io import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# These differ from run to run; the page summarizes them in words.
_PER_RUN = ("started", "seconds", "host", "process")


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    title: str  # above it
    heads: Sequence[str]  # of the columns
    rows: Sequence[Sequence[str]]  # of cells
    note: str = ""  # below it


@dataclass(frozen=True)
class Check:
    """A statement that was checked against the records of a study."""

    line: str  # statement and verdict, for the terminal
    cells: tuple[str, str, str]  # the statement, the verdict and a remark, as HTML; a row at the top of the page
    block: str  # the numbers, as HTML; in the section of the study


@dataclass(frozen=True)
class Section:
    """The part of the page about one study."""

    title: str  # the heading
    results: Results | None  # the records of the study; None if the figures need none
    figures: Sequence[tuple[str, Figure]]  # captions and figures
    checks: Sequence[Check] = ()  # statements about the study
    tables: Sequence[Table] = ()  # in addition to the summary of the records


def write_report(path: Path, title: str, sections: Sequence[Section]) -> None:
    """Write the page to an HTML file, atomically."""
    with atomic_write(path) as file:
        file.write(page(title, sections).encode())


def page(title: str, sections: Sequence[Section]) -> str:
    """Return the page as text."""
    body = [f"<h1>{escape(title)}</h1>", *_overview(sections)]
    for number, section in enumerate(sections, start=1):
        body += _section(number, section)
    return _PAGE.format(title=escape(title), style=_STYLE, body="\n".join(body))


def summary_table(results: Results) -> Table:
    """Return runs, regret, dictionary size and time of every policy in every environment."""
    rows = []
    for environment, by_policy in group(results.records).items():
        for policy, runs in by_policy.items():
            summary = summarize(runs)
            interval = "" if len(runs) < 2 else f" ± {summary.regret_interval:.1f}"
            counts = str(summary.runs), str(runs[0].horizon), f"{summary.regret:.1f}{interval}"
            costs = f"{summary.dictionary_size:.0f}", f"{summary.round_microseconds:.0f}"
            rows.append((environment, policy, *counts, *costs))
    heads = ("environment", "policy", "runs", "rounds", "regret", "dictionary", "µs/round")
    note = "Regret: mean ± 95 % interval. Dictionary: mean final size. Time: mean processor time of select and update."
    return Table("Summary", heads, tuple(rows), note)


def _overview(sections: Sequence[Section]) -> Iterator[str]:
    # Studies may share runs.
    found = {record.run.id: record for one in sections if one.results for record in one.results.records}
    records = list(found.values())
    if records:
        seconds = sum(float(record.result.seconds[-1]) for record in records)
        started = [str(record.provenance["started"]) for record in records if "started" in record.provenance]
        since = f", started {min(started)}" if started else ""
        yield f"<p>{len(records)} runs, {seconds / 60:.0f} minutes of processor time{since}.</p>"
    if len(sections) > 1:
        links = (f'<li><a href="#s{n}">{escape(section.title)}</a></li>' for n, section in enumerate(sections, 1))
        yield f"<nav><ol>{''.join(links)}</ol></nav>"
    rows = [
        (f'<a href="#s{number}">{check.cells[0]}</a>', *check.cells[1:])
        for number, section in enumerate(sections, 1)
        for check in section.checks
    ]
    if rows:
        yield "<h2>Claims</h2><p>The sections below have the numbers.</p>"
        yield _html_table(("claim", "verdict", "by settings"), rows, "claims")


def _section(number: int, section: Section) -> Iterator[str]:
    yield f'<section id="s{number}"><h2>{escape(section.title)}</h2>'
    for caption, figure in section.figures:
        yield f'<figure><img alt="{escape(caption, quote=True)}" src="{_as_uri(figure)}">'
        yield f"<figcaption>{escape(caption)}</figcaption></figure>"
    if section.checks:
        yield "<h3>Claims</h3>"
        yield from (check.block for check in section.checks)
    for table in section.tables:
        yield _table(table)
    if section.results is not None:
        yield from _of_results(section.results)
    yield "</section>"


def _of_results(results: Results) -> Iterator[str]:
    if results.missing:
        yield f'<p class="warning">{len(results.missing)} of the study\'s runs have no record yet.</p>'
    for run, reason in results.damaged.items():
        yield f'<p class="warning">The record of {escape(run)} is damaged: {escape(reason)}</p>'
    if not results.records:
        return
    yield _table(summary_table(results))
    yield f"<details><summary>Settings</summary>{_table(_settings(results.records))}</details>"
    yield f"<details><summary>Versions and machine</summary>{_table(_provenance(results.records))}</details>"


def _settings(records: Sequence[Record]) -> Table:
    rows: dict[tuple[str, str], tuple[str, ...]] = {}
    seeds: dict[tuple[str, str], list[int]] = {}
    for record in records:
        run = record.run
        seeds.setdefault(run.cell, []).append(run.seed)
        rows[run.cell] = (*run.cell, _in_words(run.environment.settings), _in_words(run.policy.settings))
    heads = ("environment", "policy", "environment's settings", "policy's settings", "seeds")
    return Table("", heads, tuple((*row, _ranges(seeds[cell])) for cell, row in rows.items()))


def _in_words(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return f"{value['name']}({', '.join(f'{key}={_in_words(item)}' for key, item in value.items() if key != 'name')})"


def _ranges(seeds: Sequence[int]) -> str:
    """Return whole numbers as text, consecutive ones as ``0–19``."""
    ordered = sorted(seeds)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}–{ordered[-1]}"
    return ", ".join(map(str, ordered))


def _provenance(records: Sequence[Record]) -> Table:
    values: dict[str, list[str]] = {}
    for record in records:
        for key, value in record.provenance.items():
            if key not in _PER_RUN and str(value) not in values.setdefault(key, []):
                values[key].append(str(value))
    return Table("", ("name", "value"), tuple((key, "; ".join(found)) for key, found in values.items()))


def _table(table: Table) -> str:
    heading = f"<h3>{escape(table.title)}</h3>" if table.title else ""
    note = f"<p><small>{escape(table.note)}</small></p>" if table.note else ""
    return heading + _html_table(table.heads, [[escape(cell) for cell in row] for row in table.rows]) + note


def _html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _as_uri(figure: Figure) -> str:
    """Return the figure as an SVG data URI: sharp in print, and separate from the page's other figures."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    # With a fixed salt and no date the same records give the same page.
    with mpl.rc_context({"svg.hashsalt": "kernel-bandits"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


_STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --soft: #62646a; --line: #d8dade; --ground: #ffffff;
  --raised: #f5f6f8; --yes: #1b7f4b; --no: #b3261e; --partly: #8a5a00; --undecided: #5f6368; --link: #0b57a4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8ea; --soft: #a3a6ad; --line: #3a3d43; --ground: #17181a;
  --raised: #202226; --yes: #6fd39b; --no: #ff8a80; --partly: #f2c062; --undecided: #b0b3b8; --link: #8ab8f0; } }
body { margin: 0 auto; padding: 1.5rem; max-width: 72rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.3rem; margin-top: 2.5rem; } h3 { font-size: 1.05rem; margin-top: 1.6rem; }
a { color: var(--link); } small, figcaption { color: var(--soft); font-size: .85rem; }
figure { margin: 1rem 0; } figure img { width: 100%; height: auto; background: #fff; border-radius: 6px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 600; } td:nth-child(n+3) { text-align: right; }
table.claims td { text-align: left; }
details { margin: .3rem 0; } summary { cursor: pointer; } details td { text-align: left !important; }
.claim { margin: .8rem 0; padding: .4rem .9rem; background: var(--raised); border-radius: 6px; break-inside: avoid; }
.claim p { margin: .3rem 0; } .claim ul { margin: .2rem 0; font-size: .88rem; }
.badge { padding: 0 .5em; border: 1px solid currentColor; border-radius: 1em; font-size: .82rem; white-space: nowrap; }
.yes.badge, li.yes::marker { color: var(--yes); } .no.badge, li.no::marker, .warning { color: var(--no); }
.partly.badge { color: var(--partly); } .undecided.badge, li.undecided::marker { color: var(--undecided); }
@media print { body { max-width: none; padding: 0; font-size: 11px; } section { break-before: page; } }
"""
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
