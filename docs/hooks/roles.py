"""Show Sphinx roles in docstrings, which editors understand, as plain names."""

import re

ROLE = re.compile(r":(?:class|func|meth|mod|attr):<code>~?([\w.]+)</code>")


def on_page_content(html, **_):
    """Replace each Sphinx role by the last part of its name."""
    return ROLE.sub(lambda match: f"<code>{match[1].rpartition('.')[2]}</code>", html)
