"""The page of results: filled from records, and complete as it is in the docs."""

import re
from importlib import import_module

import pytest
from kernel_bandits_lab import Study, write_record
from kernel_bandits_lab.reproduce import claims as paper_claims
from kernel_bandits_lab.reproduce.table_1 import measurements
from kernel_bandits_lab.reproduce.table_1.measurements import Case
from kernel_bandits_lab.results import manifest_of, write_manifest
from short_runs import records

from reproduce import budgets, page

DOCS = page.DOCS
PAGES = page.pages(DOCS)
BLOCK = re.compile(r"<!-- (?!end )(.*?) -->\n(.*?)<!-- end \1 -->", re.DOTALL)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for name in page.SWEEPS:
        own = folder / name
        own.mkdir()
        write_manifest(own, manifest_of(Study(name, name, tuple(record.run for record in records(name)))))
        for record in records(name):
            write_record(own, record)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measurements, "cases", lambda quick: [Case("T", "EK-UCB", 16, 0.5, 5, 0)])  # noqa: ARG005
        measurements.measure(folder / "table_1", True, lambda done, total, label: None)  # noqa: ARG005
    return folder


def test_every_block_is_written_from_the_records(results, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "DOCS", tmp_path)
    monkeypatch.setattr(paper_claims, "VERDICTS", tmp_path / "verdicts.json")
    (tmp_path / "figures").mkdir()
    (tmp_path / "reproduce").mkdir()
    emptied = {}
    for path in PAGES:
        own = tmp_path / path.relative_to(DOCS)
        emptied[own] = BLOCK.sub(lambda match: f"<!-- {match[1]} -->\n<!-- end {match[1]} -->", path.read_text())
        own.write_text(emptied[own])
    page.main(results)
    blocks = {}
    for own, before in emptied.items():
        written = own.read_text()
        found = dict(BLOCK.findall(written))
        assert len(found) == len(BLOCK.findall(before))
        assert all(text.strip() for text in found.values()), own
        # what is not between marks is the author's
        assert BLOCK.sub("", written) == BLOCK.sub("", before)
        for name in re.findall(r"figures/(reproduce-[\w-]+\.png)", written):
            assert (tmp_path / "figures" / name).read_bytes().startswith(b"\x89PNG")
        assert not set(found) & set(blocks)
        blocks |= found
    ours = [record for record in records("chessboard") if record.run.policy.label == "K-UCB, λ = 10"]
    mean = sum(record.result.regret[-1] for record in ours[::2]) / 2
    row = next(line for line in blocks["chessboard grid"].splitlines() if line.startswith("| K-UCB |"))
    assert row.split("|")[3].strip().startswith(f"{mean:.0f}±")


def test_budgets_count_the_cases_of_claims_11_and_12(results, capsys):
    budgets.main(results)
    first, second = capsys.readouterr().out.split("\n\n")
    rows = [line.split(" | ") for line in first.splitlines()[2:]]
    assert len(rows) == 15
    assert len(second.splitlines()) == 2 + 3 * 3 * 3
    assert "not measured" not in second
    for name, row in zip(page.GRIDS, rows[::5], strict=True):
        claims = import_module(f"kernel_bandits_lab.reproduce.{name}.figure").claims(records(name))
        for words, cell in (("lower than CBBKB's", row[2]), ("faster than CBBKB", row[3])):
            (claim,) = [one for one in claims if words in one.statement]
            assert cell.removesuffix(" |") == budgets.counts(claim.findings["paper's settings"])


def test_the_pages_in_the_docs_are_filled():
    blocks = {}
    for path in PAGES:
        blocks |= dict(BLOCK.findall(path.read_text()))
        assert "not measured" not in path.read_text()
        assert "runs are missing" not in path.read_text()
    assert {"runs", "common", "bump_projection", "environments", "table_1 tables"} <= set(blocks)
    assert all(text.strip() for text in blocks.values())


def test_the_page_of_verdicts_fits_on_a_screen_or_two():
    """A reader sees the verdicts without scrolling through every comparison."""
    assert len(PAGES[0].read_text().splitlines()) <= 120
