"""What there is to run, by kind, with a line on each."""

import re
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kernel_bandits import confidence, dictionaries, kernels
from kernel_bandits_lab.figures import Figures
from kernel_bandits_lab.study import catalogue

NAME_WIDTH = 22  # letters
KINDS = {
    "kernels": kernels.Kernel,
    "radii, as confidence =": confidence.Confidence,
    "dictionary rules, as dictionary =": dictionaries.DictionaryRule,
}


def listing(figures: Figures) -> Iterator[str]:
    """Yield the lines of the list."""
    parts = catalogue("kernel, radius or rule")
    for heading, found in (
        ("policies", catalogue("policy")),
        ("environments", catalogue("environment")),
        *_by_kind(parts).items(),
    ):
        yield f"{heading}:"
        for name, factory in sorted(found.items(), key=lambda item: item[0].lower()):
            yield from _entry(name, _summary(factory))
    yield "figures, for `kernel-bandits reproduce`:"
    for name in figures.names:
        yield from _entry(name, figures.description(name))


def _by_kind(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return kernels, radii, rules and the rest apart."""
    groups = {
        heading: {name: one for name, one in found.items() if issubclass(one, base)} for heading, base in KINDS.items()
    }
    rest = {name: one for name, one in found.items() if not any(name in group for group in groups.values())}
    return {**groups, "other parts": rest} if rest else groups


def _summary(factory: Callable[..., Any]) -> str:
    """Return the first line of a docstring without its markup: the last name of a role, and literals as they are."""
    line = (factory.__doc__ or "").partition("\n")[0]
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", line).replace("``", "")


def _entry(name: str, text: str) -> Iterator[str]:
    """Yield a name and what it is, wrapped beside it; a name is never broken."""
    width = max(shutil.get_terminal_size().columns - NAME_WIDTH - 3, 30)
    first, *rest = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    yield f"  {name:<{NAME_WIDTH}} {first}".rstrip()
    yield from (" " * (NAME_WIDTH + 3) + line for line in rest)
