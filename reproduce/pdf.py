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
# a tag, or code with its text; the parts between are prose
MARKUP = re.compile(r"(<code>.*?</code>|<[^>]*>)", re.DOTALL)
SUBSCRIPT = re.compile(r"(?<=\S)_(eff|[a-zA-Z])\b")
STYLE = """
@page { size: A4; margin: 20mm 18mm; @bottom-center { content: counter(page); font: 8pt 'DejaVu Sans', sans-serif; } }
body { font: 9.2pt/1.38 'DejaVu Serif', 'Liberation Serif', serif; text-align: justify; }
h1 { font-size: 17pt; margin: 0 0 4mm; text-align: left; }
h2 { font-size: 12.5pt; margin: 6mm 0 2mm; break-after: avoid; }
h3 { font-size: 10.5pt; margin: 4mm 0 1.5mm; break-after: avoid; }
p { margin: 0 0 2.2mm; } p:has(+ table), p:has(img):has(+ p > em:first-child) { break-after: avoid; }
ul { margin: 0 0 2mm; padding-left: 5mm; } li { margin-bottom: 1mm; }
table { border-collapse: collapse; width: 100%; margin: 1.5mm 0 3mm; text-align: left; break-inside: avoid; }
table { font: 6.9pt/1.25 'DejaVu Sans', sans-serif; }
th, td { border-bottom: 0.3pt solid #999; padding: 0.7mm 1.2mm; vertical-align: top; }
th { border-bottom: 0.8pt solid #333; } tr { break-inside: avoid; }
code { font: 0.88em 'DejaVu Sans Mono', monospace; }
sub { font-size: 0.75em; line-height: 0; vertical-align: -0.25em; }
img { max-width: 100%; max-height: 125mm; display: block; margin: 2mm auto; }
img[alt="reproduce-environments"] { max-height: 50mm; }
img[alt="reproduce-bump_projection"], img[alt="reproduce-table_1"] { max-height: 100mm; }
"""


def markdown(text: str, docs: Path = DOCS) -> str:
    """Return the text with its blocks and figures filled in."""
    blocks = dict(block for page in pages(docs) for block in BLOCK.findall(page.read_text(encoding="utf-8")))

    def filled(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if kind == "figure":
            return f"![{name}]({docs / 'figures' / name}.png)"
        return blocks[name].strip()

    return MARK.sub(filled, text)


def with_subscripts(html: str) -> str:
    """Return the page with ``μ_t`` and ``d_eff`` in its prose set with subscripts."""
    parts = MARKUP.split(html)
    return "".join(part if part.startswith("<") else SUBSCRIPT.sub(r"<sub>\1</sub>", part) for part in parts)


def main(target: Path) -> None:
    """Write the report to a file."""
    try:
        from markdown import markdown as to_html
        from weasyprint import CSS, HTML
    except (ImportError, OSError) as reason:  # OSError: Pango is missing
        raise MissingPackageError(
            "report: WeasyPrint (with the system library Pango) and Markdown are needed; "
            "pip install 'kernel-bandits-lab[report]'."
        ) from reason
    body = to_html(markdown(TEXT.read_text(encoding="utf-8")), extensions=["tables", "fenced_code", "sane_lists"])
    page = (
        f"<html lang='en'><head><title>Efficient Kernel UCB, reproduced and extended</title></head><body>"
        f"{with_subscripts(body)}</body>"
    )
    HTML(string=page, base_url=str(DOCS)).write_pdf(str(target), stylesheets=[CSS(string=STYLE)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
