"""Reports: one self-contained HTML page with figures, tables, settings and provenance."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernel_bandits.errors import needs
from kernel_bandits.io import atomic_write
from kernel_bandits.loop import RunResult
from kernel_bandits.policy.diagnostics import crowding
from kernel_bandits_lab.results import Record, Results
from kernel_bandits_lab.tables import Table, difference_table, differences, summary_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"
# These differ from run to run; the page summarizes them in words.
_PER_RUN = ("started", "seconds", "host", "process")
# Longer summaries are folded.
_SHOWN_ROWS = 12


@dataclass(frozen=True)
class Check:
    """A statement that was checked against the records of a study.

    Attributes:
        statement: in one sentence.
        verdict: on it, in a few words.
        kind: of the verdict: ``"yes"``, ``"no"``, ``"partly"`` or ``"undecided"``.
        by_settings: the verdict for each of the settings.
        place: where the statement is made.
        measure: how it is turned into comparisons.
        findings: settings, their verdict, and the comparisons: whether each is as stated, and its numbers.
        in_full: the verdict of a run with all rounds and seeds, where it is known.
    """

    statement: str
    verdict: str
    kind: str
    by_settings: str = ""
    place: str = ""
    measure: str = ""
    findings: Sequence[tuple[str, str, Sequence[tuple[str, str]]]] = ()
    in_full: str = ""

    @property
    def line(self) -> str:
        """Verdict and statement, for the terminal."""
        return f"{self.verdict}: {self.statement}"


@dataclass(frozen=True)
class Section:
    """The part of the page about one study."""

    title: str  # the heading
    results: Results | None  # the records of the study; None if the figures need none
    figures: Sequence[tuple[str, Figure]]  # captions and figures
    checks: Sequence[Check] = ()  # statements about the study
    tables: Sequence[Table] = ()  # in addition to the summary of the records
    headline: str = ""  # the result in one sentence
    shortened: str = ""  # what was left out, in words; empty for a full run
    narrow: Figure | None = None  # the first figure for a narrow screen


def write_report(path: Path, title: str, sections: Sequence[Section], full_command: str = "") -> None:
    """Write the page to an HTML file, atomically."""
    with atomic_write(path) as file:
        file.write(page(title, sections, full_command).encode())


def page(title: str, sections: Sequence[Section], full_command: str = "") -> str:
    """Return the page as text; ``full_command`` is what runs shortened studies in full."""
    with needs("Jinja2", "kernel-bandits-lab"):
        import jinja2
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    checks = [(number, check) for number, section in enumerate(sections, 1) for check in section.checks]
    shortened = dict.fromkeys(section.shortened for section in sections if section.shortened)
    return environment.get_template("report.html").render(
        title=title,
        shortened="".join(shortened) if len(shortened) < 2 else "fewer rounds and seeds, as each figure says",
        full_command=full_command,
        headlines=[section.headline for section in sections if section.headline],
        runs=_runs(sections),
        checks=checks,
        tally=tally([check for _, check in checks]),
        sections=[_as_data(section) for section in sections],
    )


def tally(checks: Sequence[Check]) -> str:
    """Return the verdicts and how many statements have each, in words."""
    counts = Counter(check.verdict for check in checks)
    return ", ".join(f"{verdict} ({count})" for verdict, count in counts.most_common())


def _as_data(section: Section) -> dict[str, Any]:
    pictures = [{"caption": caption, "source": _as_uri(figure), "narrow": ""} for caption, figure in section.figures]
    if pictures and section.narrow is not None:
        pictures[0]["narrow"] = _as_uri(section.narrow)
    of_results = [] if section.results is None or not section.results.records else _tables(section.results)
    tables = [*section.tables, *of_results]
    first = next((one for one in tables if one.title == "Summary" and len(one.rows) <= _SHOWN_ROWS), None)
    return {
        "title": section.title,
        "pictures": pictures,
        "shortened": section.shortened,
        "problems": [] if section.results is None else _problems(section.results),
        "first_table": first,
        "checks": section.checks,
        "tally": tally(section.checks),
        "tables": [one for one in tables if one is not first],
    }


def _runs(sections: Sequence[Section]) -> str:
    # Studies may share runs.
    found = {record.run.id: record for one in sections if one.results for record in one.results.records}
    if not found:
        return ""
    minutes = round(sum(float(record.result.seconds[-1]) for record in found.values()) / 60)
    started = [str(record.provenance["started"]) for record in found.values() if "started" in record.provenance]
    since = f", started {min(started)}" if started else ""
    return f"{len(found)} runs, {minutes} minute{'' if minutes == 1 else 's'} of processor time{since}."


def _problems(results: Results) -> list[str]:
    missing = [f"{len(results.missing)} of the study's runs have no record yet."] if results.missing else []
    damaged = [f"The record of {run} is damaged: {reason}" for run, reason in results.damaged.items()]
    return missing + damaged + _crowded(results.records)


def _crowded(records: Sequence[Record]) -> list[str]:
    """Return in words where EK-UCB with a given kernel had nearly as many anchors as rounds."""
    sizes: dict[tuple[str, str], list[RunResult]] = {}
    for record in records:
        settings = record.run.policy.settings
        if settings["name"] == "ek_ucb" and settings.get("kernel") is not None:
            sizes.setdefault(record.run.cell, []).append(record.result)
    found = {
        cell: crowding(float(np.mean([run.dictionary_size[-1] for run in runs])), len(runs[0].dictionary_size))
        for cell, runs in sizes.items()
    }
    return [f"{policy} in {environment}: {words}" for (environment, policy), words in found.items() if words]


def _tables(results: Results) -> list[Table]:
    compared = [one for one in differences(results.records) if one.pairs > 1]
    return [
        summary_table(results.records),
        *([difference_table(compared)] if compared else []),
        _settings(results.records),
        _provenance(results.records),
    ]


def _settings(records: Sequence[Record]) -> Table:
    rows: dict[tuple[str, str], tuple[str, ...]] = {}
    seeds: dict[tuple[str, str], list[int]] = {}
    for record in records:
        run = record.run
        seeds.setdefault(run.cell, []).append(run.seed)
        rows[run.cell] = (*run.cell, _in_words(run.environment.settings), _in_words(run.policy.settings))
    heads = ("environment", "policy", "environment's settings", "policy's settings", "seeds")
    return Table("Settings", heads, tuple((*row, _ranges(seeds[cell])) for cell, row in rows.items()))


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
    rows = tuple((key, "; ".join(found)) for key, found in values.items())
    return Table("Versions and machine", ("name", "value"), rows)


def _as_uri(figure: Figure) -> str:
    """Return the figure as an SVG data URI: sharp in print, and separate from the page's other figures."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    # With a fixed salt and no date the same records give the same page.
    with mpl.rc_context({"svg.hashsalt": "kernel-bandits"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
