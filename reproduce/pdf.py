"""Write the report *Efficient Kernel UCB, reproduced and extended* as a PDF.

Run from the repository: python -m reproduce.pdf report.pdf

The text is ``reproduce/report.md``. A line ``{block NAME}`` stands for a generated block of the docs, which
``python -m reproduce.page RESULTS`` writes from the records, and ``{figure NAME}`` for one of its figures.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from kernel_bandits.errors import MissingPackageError
from reproduce.page import DOCS, pages

TEXT = Path(__file__).with_name("report.md")
MARK = re.compile(r"^\{(block|figure) (.*?)\}$", re.MULTILINE)
BLOCK = re.compile(r"<!-- (?!end )(.*?) -->\n(.*?)<!-- end \1 -->", re.DOTALL)
# Combining marks that a PDF font sets beside their letter, and what is printed instead.
PLAIN = {"K̃": "K~", "Ṽ": "V~", "θ̃": "θ~", "σ̃": "σ~", "W̃": "W~", "L̃": "L~", "q̄": "q'", "η̄": "η'", "θ̂": "θ^"}
SIZES = {"h1": 17, "h2": 13, "h3": 11}
MARGIN, WIDTH = 20.0, 170.0


def markdown(text: str, docs: Path = DOCS) -> str:
    """Return the text with its blocks and figures filled in."""
    blocks = dict(block for page in pages(docs) for block in BLOCK.findall(page.read_text(encoding="utf-8")))

    def filled(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if kind == "figure":
            return f"![{name}]({docs / 'figures' / name}.png)"
        return re.sub(r"<details>.*</details>", "", blocks[name], flags=re.DOTALL).strip()

    return MARK.sub(filled, text)


def main(target: Path) -> None:
    """Write the report to a file."""
    try:
        import matplotlib
        from fpdf import FPDF
        from fpdf.fonts import FontFace, TextStyle
        from markdown import markdown as to_html
    except ImportError as reason:
        raise MissingPackageError(
            "report: fpdf2, Markdown and matplotlib are needed; pip install 'kernel-bandits[report]'."
        ) from reason
    text = markdown(TEXT.read_text(encoding="utf-8"))
    for marked, plain in PLAIN.items():
        text = text.replace(marked, plain)
    page = to_html(text, extensions=["tables", "fenced_code", "sane_lists"])
    # the width of an image is that of the page, and table cells hold plain text
    page = re.sub(r'<img alt="(.*?)" src="(.*?)" ?/?>', r'<img src="\2" width="480">', page)
    page = re.sub(r"<(/?)(th|td)( style=\".*?\")?>", r"<\1\2>", page)
    page = page.replace("<table>", '<table width="100%" border="1" cellpadding="2">')
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    document = FPDF(format="A4")
    document.set_margin(MARGIN)
    document.set_auto_page_break(True, MARGIN)
    for family, stem in (("Sans", "DejaVuSans"), ("Mono", "DejaVuSansMono")):
        for style, suffix in (("", ""), ("B", "-Bold"), ("I", "-Oblique"), ("BI", "-BoldOblique")):
            document.add_font(family, style, fonts / f"{stem}{suffix}.ttf")
    document.set_title("Efficient Kernel UCB, reproduced and extended")
    document.add_page()
    document.set_font("Sans", size=9)
    styles: dict[str, FontFace] = {
        name: TextStyle(font_family="Sans", font_style="B", font_size_pt=size, t_margin=4, b_margin=1.5, color=0)
        for name, size in SIZES.items()
    }
    styles["code"] = FontFace(family="Mono", size_pt=8)
    styles["pre"] = TextStyle(font_family="Mono", font_size_pt=7.5, t_margin=1.5, b_margin=1.5)
    document.write_html(page, font_family="Sans", tag_styles=styles, table_line_separators=True)
    document.output(str(target))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
