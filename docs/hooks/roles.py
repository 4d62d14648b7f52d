"""Docstrings name other parts by Sphinx roles, which editors understand; the site shows the plain name."""

import re

ROLE = re.compile(r":(?:class|func|meth|mod|attr):<code>~?([\w.]+)</code>")


def on_page_content(html, **_):
    """Replace Sphinx's roles by the last part of the name they carry."""
    return ROLE.sub(lambda match: f"<code>{match[1].rpartition('.')[2]}</code>", html)
