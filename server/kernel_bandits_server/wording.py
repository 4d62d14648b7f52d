"""Mistakes in our words: what msgspec says of a value, where it stands, and the line of a TOML file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from kernel_bandits.tables.values import nearest, shown

_PLACE = re.compile(r"(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_TYPES = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_HEADER = re.compile(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"([^"]*)"|'([^']*)'""")


def in_words(error: Exception, kind: Any, value: Any = None) -> tuple[list[str], str]:
    """Return where a value does not fit a type, and what was expected there instead of what.

    Args:
        error: of msgspec.
        kind: the type that was expected.
        value: what was read, where it is known: the message shows the part at fault.
    """
    match = _PLACE.fullmatch(str(error))
    text, place = (match[1], match[2] or "") if match else (str(error), "")
    path = [one[0] or one[1] for one in _STEP.findall(place)]
    for step in path:
        kind = _part(kind, step)
        value = value[step] if isinstance(value, dict) and step in value else None
    if found := re.match(r"Object contains unknown field `(.*)`", text):
        known = list(getattr(kind, "__struct_fields__", ()))
        hint = nearest(found[1], known) or "."
        return [*path, found[1]], f"unknown key {shown(found[1])}{hint} It takes {', '.join(known)}."
    if found := re.match(r"Object missing required field `(.*)`", text):
        return path, f"expected {found[1]!r}; it is missing."
    # a pattern says what it stands for in its description
    if "matching regex" in text and (advice := _description(kind)):
        text = f"expected {advice}"
    if text.startswith("Invalid enum value") and (known := [one for one in get_args(kind) if isinstance(one, str)]):
        text = f"expected one of {', '.join(known)}, got {text.rpartition('value ')[2]}"
    for name, word in _TYPES.items():
        text = text.replace(f"`{name}`", word).replace(f"`{name} | null`", word)
    text = text.replace(" of length ", " with a length ")
    for sign, word in {">=": "of at least", "<=": "of at most", " > ": " above ", " < ": " below "}.items():
        text = text.replace(sign, word)
    text = re.sub(r"\.0\b", "", text.replace("Expected", "expected").replace("`", "").replace(" | null", ""))
    if value is not None:
        text = f"{text.partition(', got')[0]}, got {shown(value)}"
    return path, f"{text[:1].lower()}{text[1:]}."


def sentence(error: Exception, kind: Any, value: Any = None) -> str:
    """Return one line that names the place and the mistake."""
    path, words = in_words(error, kind, value)
    if words.startswith("unknown key"):
        path = path[:-1]
    place = "".join(f"[{step}]" if step.isdigit() or step == "..." else f".{step}" for step in path).lstrip(".")
    return f"{place or 'the body'}: {words}"


def _part(kind: Any, step: str) -> Any:
    """Return the type of a field or an item."""
    for one in (kind, *get_args(kind)):
        if step in getattr(one, "__struct_fields__", ()):
            return get_type_hints(one, include_extras=True)[step]
        if get_origin(one) in (list, dict):
            return get_args(one)[-1]
    return None


def _description(kind: Any) -> str:
    for one in (kind, *get_args(kind)):
        if isinstance(one, msgspec.Meta) and one.description:
            return one.description
        if one is not kind and (found := _description(one)):
            return found
    return ""


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the line of a TOML file that defines ``path``, or else the closest table or key around it."""
    best, depth = None, 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            table = found = _parts(header[1])
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
