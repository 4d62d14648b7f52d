"""Write the results of ``kernel-bandits reproduce`` into ``docs/reproduce.md`` and ``docs/reproduce-details.md``.

Run from the repository: python -m reproduce.page RESULTS

Only the text between ``<!-- NAME -->`` and ``<!-- end NAME -->`` is replaced. Figures are written to ``docs/figures``.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_bandits_lab import Record, Results, group, read_results, summarize
from kernel_bandits_lab.reproduce import claims as paper
from kernel_bandits_lab.reproduce.claims import Claim, corrected, number_of_tests
from kernel_bandits_lab.reproduce.lambda_grid import HIDDEN, LAMBDAS, by_family
from kernel_bandits_lab.reproduce.settings import LIBRARY, PAPER, STYLES
from kernel_bandits_lab.tables import Table, as_markdown

from kernel_bandits.loop import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1] / "docs"
GRIDS = {"chessboard": "Chessboard", "step_diagonal": "Step Diagonal", "bump": "Bump"}
SWEEPS = ("bump_projection", *GRIDS)
MEASURED = ("environments", "table_1")
HORIZON = 2000
COLOURS = 96


def main(folder: Path) -> None:
    """Write the blocks of the page and its figures from a folder of results."""
    results = {name: read_results(folder / name) for name in SWEEPS}
    claims = {name: _claims(name, found.records) for name, found in results.items()}
    claims |= {name: _claims(name, folder / name) for name in MEASURED}
    blocks = {
        "runs": _runs(list(results.values())),
        "common": _common_claims(claims),
        **{f"{name} grid": _grid_table(results[name].records) for name in GRIDS},
        **{name: _list(claims[name]) for name in ("bump_projection", "environments")},
        "table_1 tables": as_markdown(_module("table_1").tables(folder / "table_1")[0]).rstrip(),
    }
    for page in pages(DOCS):
        text = page.read_text(encoding="utf-8")
        for name, block in blocks.items():
            text = replaced(text, name, block)
        page.write_text(text, encoding="utf-8")
    verdicts = {claim.statement: claim.verdict for found in claims.values() for claim in found if claim.findings}
    paper.VERDICTS.write_text(json.dumps(verdicts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name in SWEEPS:
        _save(_module(name).figure(results[name].records), f"reproduce-{name}")
    for name in MEASURED:
        _save(_module(name).figure(folder / name), f"reproduce-{name}")


def pages(docs: Path) -> list[Path]:
    """Return the page of verdicts and the page of details."""
    return [docs / "reproduce.md", docs / "reproduce-details.md"]


def replaced(text: str, name: str, block: str) -> str:
    """Return the text with the block of this name replaced, if it has one."""
    pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{block}\n{match[2]}", text)


def _module(name: str):  # type: ignore[no-untyped-def] # a module of functions, known by convention
    return import_module(f"kernel_bandits_lab.reproduce.{name}.figure")


def _claims(name: str, material: Sequence[Record] | Path) -> list[Claim]:
    found: list[Claim] = _module(name).claims(material)
    return found


def _runs(results: Sequence[Results]) -> str:
    # The figures of Bump share runs.
    records = list({record.run.id: record for found in results for record in found.records}.values())
    missing = sum(len(found.missing) for found in results)
    seconds = sum(float(record.result.seconds[-1]) for record in records)
    lacking = f" {missing} runs are missing." if missing else ""
    processors = sorted({str(record.provenance["processor"]) for record in records if "processor" in record.provenance})
    return (
        f"{len(records)} runs, {seconds / 60:.0f} minutes of processor time in `select` and `update` "
        f"({'; '.join(processors)}).{lacking}"
    )


def _by_statement(claims: dict[str, list[Claim]]) -> dict[str, dict[str, Claim]]:
    """Return the claims about several environments, by what they say and by environment."""
    found: dict[str, dict[str, Claim]] = {}
    for name, label in GRIDS.items():
        for claim in claims[name]:
            found.setdefault(claim.statement.removeprefix(f"{label}: "), {})[name] = claim
    return found


def _common_claims(claims: dict[str, list[Claim]]) -> str:
    """Return the claims about several environments, with a column for each environment and settings."""
    every = [claim for name in GRIDS for claim in claims[name]]
    sure = iter(corrected(every))
    holm = {name: [next(sure) for _ in claims[name]] for name in GRIDS}
    by_statement, strict = _by_statement(claims), _by_statement(holm)
    heads = ["claim", *(f"{label}, {short}" for label in GRIDS.values() for short in ("paper's", "library"))]
    rows = [
        [
            f"{number}: {statement}",
            *(
                _short(found.get(name), strict[statement].get(name), settings)
                for name in GRIDS
                for settings in (PAPER, LIBRARY)
            ),
        ]
        for number, (statement, found) in enumerate(by_statement.items(), start=1)
    ]
    agreeing = [
        str(number) for number, found in enumerate(by_statement.values(), start=1) if _agree(list(found.values()))
    ]
    shared = sum(len(found) == len(GRIDS) for found in by_statement.values())
    note = (
        f"{number_of_tests(every)} comparisons. In brackets: how many of the decided ones remain so after Holm's "
        "correction over all of them, where fewer do. The three environments have the same verdict, over both "
        f"settings, on {len(agreeing)} of the {shared} claims that are made for all three: {', '.join(agreeing)}."
    )
    return as_markdown(Table("", heads, rows, note)).rstrip()


def _agree(claims: Sequence[Claim]) -> bool:
    return len(claims) == len(GRIDS) and len({claim.verdict for claim in claims}) == 1


def _short(claim: Claim | None, strict: Claim | None, settings: str) -> str:
    """Return a short verdict: how many comparisons are as claimed, how many are open, and what Holm leaves."""
    if claim is None or strict is None or settings not in claim.findings:
        return "–"
    outcomes = [finding.outcome for finding in claim.findings[settings]]
    yes, left = outcomes.count(True), outcomes.count(None)
    if left == len(outcomes):
        return "open"
    verdict = "**yes**" if yes == len(outcomes) else f"{yes} of {len(outcomes)}" if yes else "**no**"
    verdict = f"{verdict}, {left} open" if left else verdict
    still = sum(finding.outcome is not None for finding in strict.findings[settings])
    return verdict if still == len(outcomes) - left else f"{verdict} [{still}]"


def _list(claims: Sequence[Claim]) -> str:
    return _rows(["claim", "verdict"], [[claim.statement, f"**{claim.verdict}**"] for claim in claims])


def _grid_table(records: Sequence[Record]) -> str:
    """Return a table with a row for each algorithm and a column for each settings and λ; the report has all of them."""
    groups = group(records)
    columns = [(settings, number) for settings in (PAPER, LIBRARY) for number in LAMBDAS]
    shown = {column: by_family(groups, *column) for column in columns}
    heads = ["", *(f"{settings.partition(' ')[0]}, λ = {number}" for settings, number in columns)]
    left_out = (*HIDDEN, "SupKernelUCB η = 1", "uniform")
    families = [one for one in STYLES if one not in left_out and any(one in found for found in shown.values())]
    rows = [[family, *(_cell(shown[column].get(family, ())) for column in columns)] for family in families]
    return _rows(heads, rows)


def _cell(runs: Sequence[RunResult]) -> str:
    """Return regret, time and dictionary size, and the number of rounds if there are fewer than usual."""
    if not runs:
        return "–"
    summary = summarize(runs)
    cost = f"{summary.round_microseconds:.0f}, {summary.dictionary_size:.0f}"
    rounds = "" if runs[0].horizon == HORIZON else f" [{runs[0].horizon}]"
    return f"{summary.regret:.0f}±{summary.regret_interval:.0f}, {cost}{rounds}"


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return as_markdown(Table("", heads, rows)).rstrip()


def _save(figure: Figure, name: str) -> None:
    """Save a figure with few colours, to keep the file small."""
    from PIL import Image  # which matplotlib brings

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=80)
    Image.open(buffer).convert("RGB").quantize(COLOURS).save(DOCS / "figures" / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
