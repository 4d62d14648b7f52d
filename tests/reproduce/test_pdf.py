"""The report: every block and figure it names exists, and it becomes a PDF."""

import re

import pytest

from reproduce import pdf


def test_every_block_and_figure_of_the_report_is_filled_in():
    text = pdf.markdown(pdf.TEXT.read_text())
    assert not pdf.MARK.search(text)
    figures = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert len(figures) == 4
    for path in figures:
        with open(path, "rb") as file:
            assert file.read(4) == b"\x89PNG"
    # the verdicts and the regrets are tables of the pages
    assert text.count("| --- |") + text.count("|---|") >= 4


def test_subscripts_are_set_in_prose_and_left_alone_in_code_and_paths():
    html = '<p>μ_t ≤ d_eff, <code>mu_t</code> <img src="table_1.png" alt="d_eff"> m_s + E_s/λ, snake_case</p>'
    assert pdf.with_subscripts(html) == (
        '<p>μ<sub>t</sub> ≤ d<sub>eff</sub>, <code>mu_t</code> <img src="table_1.png" alt="d_eff"> '
        "m<sub>s</sub> + E<sub>s</sub>/λ, snake_case</p>"
    )


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
