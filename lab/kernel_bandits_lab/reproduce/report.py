"""Claims of the paper in the report."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from kernel_bandits_lab.report import Check
from kernel_bandits_lab.reproduce.claims import FAILS, HOLDS, UNDECIDED, Claim

_MARKS = {True: "yes", False: "no", None: "undecided"}
# The verdicts of the full run, which ``python -m reproduce.page`` writes.
VERDICTS = Path(__file__).parent / "verdicts.json"
NEEDS_THE_FULL_RUN = "needs the full run"
_KINDS = {HOLDS: "yes", FAILS: "no", UNDECIDED: "undecided", NEEDS_THE_FULL_RUN: "undecided"}


@cache
def verdicts() -> dict[str, str]:
    """Return the verdicts of the full run by statement."""
    found: dict[str, str] = json.loads(VERDICTS.read_text(encoding="utf-8"))
    return found


def check_of(claim: Claim, shortened: bool = False) -> Check:
    """Return a claim as the report shows it.

    A shortened run decides a claim only if all of its comparisons are decided and agree with the full run: times and
    regrets grow with T at different rates, so that what is slower after 300 rounds may be faster after 2000.
    """
    in_full = verdicts().get(claim.statement, "")
    verdict = claim.verdict
    if shortened and not (verdict == HOLDS and in_full in (HOLDS, "")):
        verdict = NEEDS_THE_FULL_RUN
    return Check(
        statement=claim.statement,
        verdict=verdict,
        kind=_KINDS.get(verdict, "partly"),
        by_settings="; ".join(f"{settings}: {claim.verdict_with(settings)}" for settings in claim.findings),
        place=claim.place,
        measure=claim.measure,
        findings=[
            (settings, claim.verdict_with(settings), [(_MARKS[one.outcome], str(one)) for one in found])
            for settings, found in claim.findings.items()
        ],
        in_full=in_full,
    )
