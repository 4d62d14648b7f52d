"""BibTeX of this library and of the papers behind it, from ``references.bib``."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kernel_bandits.version import __version__

LIBRARY = f"""@software{{kernel-bandits,
  author = {{{{The kernel-bandits developers}}}},
  title = {{kernel-bandits: kernelised contextual bandits that stay fast}},
  version = {{{__version__}}},
  year = {{2026}},
}}"""
# The papers behind the presets, and behind the parts that a study names.
BEHIND = {
    "ek_ucb": ("zenati2022", "calandriello2017"),
    "k_ucb": ("valko2013",),
    "sup_kernel_ucb": ("valko2013",),
    "cgp_ucb": ("krause2011",),
    "cbkb": ("calandriello2019", "zenati2022"),
    "cbbkb": ("calandriello2020", "zenati2022"),
    "thompson_sampling": ("chowdhury2017",),
    "inverse_gap_weighting": ("foster2020",),
    "family_ucb": ("pacchiano2020", "ziomek2024"),
    "lin_ucb": ("abbasi2011", "li2010"),
    "random_features_ucb": ("rahimi2007", "mutny2018"),
    "Kors": ("calandriello2017",),
    "Resampling": ("calandriello2019",),
    "ChowdhuryGopalan": ("chowdhury2017",),
    "KrauseOng": ("krause2011",),
    "Lemma31": ("zenati2022",),
    "Lemma41": ("zenati2022",),
    "Tightened": ("flynn2023",),
    "Bump": ("zenati2022",),
    "Chessboard": ("zenati2022",),
    "StepDiagonal": ("zenati2022",),
}
_PAPER = re.compile(r"^% (?P<heading>.+)\n(?P<entry>@\w+\{(?P<key>\w+),\n(?:  .+\n)+\})$", re.MULTILINE)


class Paper(NamedTuple):
    """An entry of ``references.bib``, and the heading above it."""

    heading: str
    entry: str


@cache
def papers() -> dict[str, Paper]:
    """Return the papers by key, in the order of the file."""
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    return {found["key"]: Paper(found["heading"], found["entry"]) for found in _PAPER.finditer(text)}


def bibliography(names: Iterable[str]) -> str:
    """Return BibTeX of this library and of the papers behind the policies, environments and parts of these names."""
    keys = dict.fromkeys(key for name in names for key in BEHIND.get(name, ()))
    return "\n\n".join([LIBRARY, *(papers()[key].entry for key in keys)])
