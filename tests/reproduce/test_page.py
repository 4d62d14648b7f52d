"""The page of results: filled from records, and complete as it is in the docs."""

import re
from importlib import import_module

import pytest
from short_runs import ROOT, records

from kernel_bandits.experiments import Study, write_record
from kernel_bandits.experiments.store import manifest_of, write_manifest
from reproduce import page, report
from reproduce.table_1 import measurements
from reproduce.table_1.measurements import Case

PAGE = ROOT / "docs" / "reproduce.md"
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
    monkeypatch.setattr(report, "VERDICTS", tmp_path / "verdicts.json")
    (tmp_path / "figures").mkdir()
    emptied = BLOCK.sub(lambda match: f"<!-- {match[1]} -->\n<!-- end {match[1]} -->", PAGE.read_text())
    (tmp_path / "reproduce.md").write_text(emptied)
    page.main(results)
    written = (tmp_path / "reproduce.md").read_text()
    blocks = dict(BLOCK.findall(written))
    assert len(blocks) == len(BLOCK.findall(emptied))
    assert all(text.strip() for text in blocks.values())
    # what is not between marks is the author's
    assert BLOCK.sub("", written) == BLOCK.sub("", emptied)
    ours = [record for record in records("chessboard") if record.run.policy.label == "K-UCB, λ = 10"]
    mean = sum(record.result.regret[-1] for record in ours[::2]) / 2
    row = next(line for line in blocks["chessboard regrets"].splitlines() if line.startswith("| K-UCB |"))
    assert row.split("|")[3].strip().startswith(f"{mean:.0f} ±")
    claims = import_module("reproduce.chessboard.figure").claims(records("chessboard"))
    assert blocks["chessboard"].count("<tr>") == sum(len(found) for one in claims for found in one.findings.values())
    for name in re.findall(r"figures/([\w-]+\.png)", written):
        assert (tmp_path / "figures" / name).read_bytes().startswith(b"\x89PNG")


def test_the_page_in_the_docs_is_filled():
    blocks = dict(BLOCK.findall(PAGE.read_text()))
    assert {"runs", "common", *page.SWEEPS, *page.MEASURED} <= set(blocks)
    assert all(text.strip() for text in blocks.values())
    assert "not measured" not in PAGE.read_text()
    assert "runs are missing" not in PAGE.read_text()
