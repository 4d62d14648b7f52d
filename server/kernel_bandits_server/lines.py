"""The line of a TOML file that a key stands on, since the standard parser does not keep it."""

import re
from collections.abc import Sequence

_HEADER = re.compile(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"([^"]*)"|'([^']*)'""")


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the number of the line that defines ``path``, or else the closest table or key around it."""
    best, depth = None, 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            table = _parts(header[1])
            found = table
        elif key:
            found = (*table, *_parts(key[1]))
        else:
            continue
        shared = min(len(found), len(path))
        # a header that goes beyond the path defines it only where nothing else does
        if shared > depth and found[:shared] == tuple(path[:shared]):
            best, depth = number, shared
    return best


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(match[1] or match[2] or match[0] for match in _PART.finditer(dotted))
