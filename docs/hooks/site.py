"""Show Sphinx roles and private names plainly; link papers, pages and pictures."""

import re
from posixpath import relpath

ROLE = re.compile(r":(?:class|func|meth|mod|attr):<code>~?([\w.]+)</code>")
# Defaults that have a private name in the source, as a reader would write them.
DEFAULTS = {
    "_ONE_STANDARD_DEVIATION": "StandardDeviations(1.0)",
    "_KORS": "Kors()",
    "_INFORMATION": "InformationSharpness()",
}
DEFAULT = re.compile(r"\b(" + "|".join(DEFAULTS) + r")\b")
# Base classes with private names, and private types in brackets after a public name.
PRIVATE = r"(?:<[^>]+>)*_\w+(?:<[^>]+>)*"
PRIVATE_BASE = re.compile(
    rf'<p class="doc doc-class-bases">\s*Bases: <code>{PRIVATE}</code></p>'
    rf"|\[{PRIVATE}\](?=</code>)"
)
# A page of these docs, named by its path in a docstring.
PAGE = re.compile(r"<code>docs/([\w/-]+)\.md</code>")
# One of several widths is not linked.
PICTURE = re.compile(
    r'<picture>.*?</picture>|<img [^>]*\bsrc="([^"]+)"[^>]*>', re.DOTALL
)
# What must not be linked: code, links, headings and the tags themselves.
FIXED = re.compile(
    r"(<pre.*?</pre>|<code.*?</code>|<a\b.*?</a>|<h[1-6].*?</h[1-6]>|<[^>]+>)",
    re.DOTALL,
)
# a mention may be broken between two lines
AUTHORS = r"[A-Z][\w.-]+(?:(?:,\s[A-Z]\w+)?\s(?:&amp;|and)\s[A-Z]\w+|\set\sal\.)?"
YEAR = r"(?:19|20)\d\d"
PAPER = re.compile(rf"({AUTHORS}),?\s+(?:\(({YEAR})\)|({YEAR})\b)")
ENTRY = re.compile(r"^### (.+?): .*\{ #(\w+) \}$", re.MULTILINE)

papers: dict[str, str] = {}


def on_files(files, **_):
    """Read which papers the page "Cite" lists."""
    page = next(file for file in files if file.src_path == "cite.md")
    papers.update(
        {_plain(name): anchor for name, anchor in ENTRY.findall(page.content_string)}
    )


def on_page_content(html, page, **_):
    """Show names plainly, and link pages, pictures and each mention of a paper."""
    here = page.file.dest_uri.rpartition("/")[0] or "."
    html = ROLE.sub(lambda match: f"<code>{match[1].rpartition('.')[2]}</code>", html)
    html = DEFAULT.sub(lambda match: DEFAULTS[match[1]], html)
    html = PRIVATE_BASE.sub("", html)
    html = PAGE.sub(lambda match: _page(match[1], here), html)
    html = PICTURE.sub(_to_file, html)
    if page.file.src_path == "cite.md":
        return html
    cite = relpath("cite.html", here)
    parts = FIXED.split(html)
    parts[::2] = [
        PAPER.sub(lambda match: _linked(match, cite), part) for part in parts[::2]
    ]
    return "".join(parts)


def _page(name, here):
    path = relpath(f"{name}.html", here)
    return f'<a href="{path}"><code>{name}</code></a>'


def _to_file(match):
    return f'<a href="{match[1]}">{match[0]}</a>' if match[1] else match[0]


def _linked(match, cite):
    anchor = papers.get(_plain(f"{match[1]} {match[2] or match[3]}"))
    return match[0] if anchor is None else f'<a href="{cite}#{anchor}">{match[0]}</a>'


def _plain(name):
    return " ".join(name.replace("&amp;", "&").replace(",", "").split())
