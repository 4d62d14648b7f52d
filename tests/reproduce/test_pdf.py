"""The report: every block and figure it names exists, and it becomes a PDF."""

import re

import pytest

from reproduce import pdf


def test_every_block_and_figure_of_the_report_is_filled_in():
    text = pdf.markdown(pdf.TEXT.read_text())
    assert not pdf.MARK.search(text)
    assert "<details>" not in text
    figures = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert len(figures) == 4
    for path in figures:
        with open(path, "rb") as file:
            assert file.read(4) == b"\x89PNG"
    # the verdicts and the regrets are tables of the pages
    assert text.count("| --- |") + text.count("|---|") >= 4


def test_the_report_is_written(tmp_path, monkeypatch):
    try:
        import weasyprint  # noqa: F401 (it loads a library of the system)
    except OSError as reason:
        pytest.skip(f"WeasyPrint needs the system library Pango: {reason}")
    source = tmp_path / "report.md"
    source.write_text("# Verdicts\n\nRegret Σ min(σ̃², 1) ≤ G_s.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    monkeypatch.setattr(pdf, "TEXT", source)
    pdf.main(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
