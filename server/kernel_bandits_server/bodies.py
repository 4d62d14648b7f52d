"""Bodies of requests: strict JSON, and the checks of what it holds."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from kernel_bandits.errors import InputError, needs
from kernel_bandits.tables.arms import ARM
from kernel_bandits.tables.values import LARGEST, nearest, shown
from kernel_bandits_server.commands import RefusedError

with needs("orjson", "kernel-bandits-server"):
    import orjson

DEEPEST = 50
_OTHERS = bytes(set(range(256)) - set(b'[]{}"'))
ID = re.compile(r"[A-Za-z0-9._~:@=+-]{1,256}")
# They mean other paths: clients and proxies remove them from an address before they send it.
NO_IDS = (".", "..")


def parse_json(body: bytes) -> Any:
    """Return what a body holds; refuse anything but JSON in UTF-8 with finite numbers and valid text."""
    try:
        value = orjson.loads(body)
        brackets = body.count(b"{") + body.count(b"[")
        if brackets > DEEPEST and not _is_shallow(body) and _depth(value) > DEEPEST:
            raise RecursionError
    except (ValueError, RecursionError) as reason:
        detail = "nested too deeply" if isinstance(reason, RecursionError) else str(reason)[:200]
        raise RefusedError(400, "not_json", f"the body: expected JSON, got something else ({detail}).") from reason
    return value


def to_json(value: Any) -> bytes:
    """Return a value as JSON; numbers that are not finite as null."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def _is_shallow(body: bytes) -> bool:
    """Return True if valid JSON is nested at most ``DEEPEST`` deep, where that shows without a look at its values."""
    # quotes stand in pairs but around brackets in text, which could hide a level; nobody knows where escaped ones end
    brackets = body.translate(None, _OTHERS).replace(b'""', b"")
    if b'"' in brackets or b"\\" in body:
        return False
    for _ in range(DEEPEST // 2):
        if not brackets:
            break
        # at most two levels
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    return not brackets


def _depth(value: Any) -> int:
    """Return how deeply lists and objects are nested."""
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, (dict, list))]:
        depth += 1
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]
    return depth


def as_object(
    value: Any, known: Collection[str], required: Collection[str] = (), place: str = "the body"
) -> dict[str, Any]:
    """Return an object with these keys and no others."""
    if not isinstance(value, dict):
        raise InputError(f"{place}: expected an object, got {shown(value)}.")
    for key in value:
        if key not in known:
            raise InputError(f"{place}: unknown key {shown(key)}{nearest(key, known)} It takes {', '.join(known)}.")
    for key in required:
        if key not in value:
            raise InputError(f"{place}: expected {key!r}; it is missing.")
    return value


def as_id(value: Any, place: str = "id", is_new: bool = False) -> str:
    """Return the id of a decision, or of one that is to be made."""
    if not isinstance(value, str) or not ID.fullmatch(value) or (is_new and value in NO_IDS):
        raise InputError(
            f"{place}: expected 1 to 256 letters, digits or any of . _ ~ : @ = + -, and neither . nor .. alone, got "
            f"{shown(value)}."
        )
    return value


def as_number(value: Any, place: str) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -LARGEST <= value <= LARGEST:
        raise InputError(f"{place}: expected a number of at most {LARGEST:g} in size, got {shown(value)}.")
    return float(value)


def as_rewards(items: list[Any], place: str) -> list[tuple[str, float]]:
    """Return the id and the reward of each of many objects; name the first that is malformed."""
    try:
        # all at once, in a third of the time
        ids, numbers = [item["id"] for item in items], [item["reward"] for item in items]
        if (
            {*map(len, items)} <= {2}
            and {*map(type, ids)} <= {str}
            and {*map(type, numbers)} <= {int, float}
            and all(map(ID.fullmatch, ids))
            and all(-LARGEST <= number <= LARGEST for number in numbers)
        ):
            return list(zip(ids, map(float, numbers), strict=True))
    except (KeyError, TypeError):
        pass
    # says what is wrong with one of them
    pairs = []
    for number, item in enumerate(items):
        here = f"{place}[{number}]"
        checked = as_object(item, ("id", "reward"), ("id", "reward"), here)
        pairs.append((as_id(checked["id"], f"{here}.id"), as_number(checked["reward"], f"{here}.reward")))
    return pairs


def as_flag(value: Any, place: str) -> bool:
    """Return a boolean."""
    if not isinstance(value, bool):
        raise InputError(f"{place}: expected true or false, got {shown(value)}.")
    return value


def as_list(value: Any, place: str, most: int) -> list[Any]:
    """Return a list of limited length."""
    if not isinstance(value, list):
        raise InputError(f"{place}: expected a list, got {shown(value)}.")
    if len(value) > most:
        raise RefusedError(413, "too_many", f"{place}: expected at most {most}, got {len(value)}.")
    return value


def as_offer(value: Any, place: str, most: int, has_arms: bool = True) -> list[Any] | dict[str, Any] | None:
    """Return actions on offer: names of arms, rows, or rows by name; ``has_arms`` if a row may name an arm."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        if len(value) > most:
            raise RefusedError(413, "too_many", f"{place}: expected at most {most}, got {len(value)}.")
        for name, row in value.items():
            if not isinstance(row, dict):
                raise InputError(f"{place}: expected a row of features for {shown(name)}, got {shown(row)}.")
        offer: Any = dict(value)
    else:
        offer = as_list(value, place, most)
        for action in offer:
            _require_action(action, place)
        require_distinct(offer, place, has_arms)
    if not offer:
        raise InputError(f"{place}: expected at least one action, got none.")
    return offer


def _require_action(action: Any, place: str) -> None:
    if isinstance(action, (str, int, float, dict)):
        return
    raise InputError(f"{place}: expected the name of an arm or a row of features, got {shown(action)}.")


def require_distinct(offer: list[Any], place: str, has_arms: bool = True) -> None:
    """Refuse an action that stands there twice: each place would have a part of its probability."""
    keys = offer
    try:
        # 1, 1.0 and true are one arm, as they are one key of a set
        if len(set(keys)) == len(offer):
            return
    except TypeError:
        # there are rows
        keys = [_key_of(action, has_arms) for action in offer]
    seen = set()
    for key, action in zip(keys, offer, strict=True):
        if key in seen:
            raise InputError(f"{place}: expected each action once, got {shown(action)} again; leave the repeats out.")
        seen.add(key)


def _key_of(action: Any, has_arms: bool) -> Any:
    """Return what equal actions have in common, and others do not."""
    if not isinstance(action, dict):
        return action
    if has_arms and ARM in action and not isinstance(action[ARM], (dict, list)):
        # another way to name an arm, whatever its features are this time
        return action[ARM]
    try:
        return frozenset(action.items())
    except TypeError:
        # columns that hold lists
        return "row", repr(sorted(action.items()))


def as_action(value: Any, place: str) -> Any:
    """Return one action: the name of an arm, or a row."""
    _require_action(value, place)
    return value
