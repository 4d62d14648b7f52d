"""Add README and its like as pages, show names plainly, link papers and pictures.

Beside each page lies its plain text, and ``llms.txt`` lists them.
"""

import re
from pathlib import Path
from posixpath import relpath

from kernel_bandits_lab.citations import papers
from mkdocs.structure.files import File

# What stands beside docs/ is a page of the site too.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "inside/changelog.md",
    "CONTRIBUTING.md": "inside/contributing.md",
}
LINK = re.compile(r"\]\((?!https?:|#)([\w/.-]+)")
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
PICTURE = re.compile(r'<img [^>]*\bsrc="([^"]+)"[^>]*>')
# What must not be linked: code, links, headings and the tags themselves.
FIXED = re.compile(
    r"(<pre.*?</pre>|<code.*?</code>|<a\b.*?</a>|<h[1-6].*?</h[1-6]>|<[^>]+>)",
    re.DOTALL,
)
# a mention may be broken between two lines
AUTHORS = r"[A-Z][\w.-]+(?:(?:,\s[A-Z]\w+)?\s(?:&amp;|and)\s[A-Z]\w+|\set\sal\.)?"
YEAR = r"(?:19|20)\d\d"
PAPER = re.compile(rf"({AUTHORS}),?\s+(?:\(({YEAR})\)|({YEAR})\b)")

texts: dict[str, tuple[str, str]] = {}


def on_files(files, config, **_):
    """Add the pages that stand beside docs/, with links from where they are shown."""
    root = Path(config["docs_dir"]).parent
    for name, shown in PAGES.items():
        here = Path(shown).parent.as_posix()

        def moved(match, here=here):
            target = PAGES.get(match[1], match[1].removeprefix("docs/"))
            return f"]({relpath(target, here)}"

        text = LINK.sub(moved, (root / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, shown, content=text))


def on_nav(nav, **_):
    """List pages in the order of the navigation."""
    texts.update({page.file.src_path: ("", "") for page in nav.pages})


def on_page_markdown(markdown, page, **_):
    """List the papers on the page "Cite"."""
    if page.file.src_path == "cite.md":
        shown = (
            f"### {paper.heading} {{ #{key} }}\n\n```bibtex\n{paper.entry}\n```"
            for key, paper in papers().items()
        )
        markdown = markdown.replace("<!-- papers -->", "\n\n".join(shown))
    texts[page.file.src_path] = (page.title, markdown)
    return markdown


def on_post_build(config, **_):
    """Write each page as plain text too, and the list of them."""
    site = Path(config["site_dir"])
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    for path, (title, text) in texts.items():
        (site / path).write_text(text, encoding="utf-8")
        lines.append(f"- [{title}]({path})")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def on_page_content(html, page, **_):
    """Show names plainly, and link pages, pictures and each mention of a paper."""
    here = page.file.dest_uri.rpartition("/")[0] or "."
    html = ROLE.sub(lambda match: f"<code>{match[1].rpartition('.')[2]}</code>", html)
    html = DEFAULT.sub(lambda match: DEFAULTS[match[1]], html)
    html = PRIVATE_BASE.sub("", html)
    html = PAGE.sub(lambda match: _page(match[1], here), html)
    html = PICTURE.sub(lambda match: f'<a href="{match[1]}">{match[0]}</a>', html)
    if page.file.src_path == "cite.md":
        return html
    known = {
        _plain(paper.heading.partition(":")[0]): key for key, paper in papers().items()
    }
    cite = relpath("cite.html", here)
    parts = FIXED.split(html)
    parts[::2] = [
        PAPER.sub(lambda match: _linked(match, cite, known), part)
        for part in parts[::2]
    ]
    return "".join(parts)


def _page(name, here):
    path = relpath(f"{name}.html", here)
    return f'<a href="{path}"><code>{name}</code></a>'


def _linked(match, cite, known):
    anchor = known.get(_plain(f"{match[1]} {match[2] or match[3]}"))
    return match[0] if anchor is None else f'<a href="{cite}#{anchor}">{match[0]}</a>'


def _plain(name):
    return " ".join(name.replace("&amp;", "&").replace(",", "").split())
