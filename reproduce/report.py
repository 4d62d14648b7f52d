"""Claims of the paper in the report."""

from __future__ import annotations

from html import escape

from kernel_bandits.experiments.report import Check
from reproduce.claims import FAILS, HOLDS, UNDECIDED, Claim

_MARKS = {True: "yes", False: "no", None: "undecided"}
# With more findings than this, a click opens the list.
_SHOWN_FINDINGS = 3


def check_of(claim: Claim) -> Check:
    """Return a claim as the report shows it."""
    by_settings = "; ".join(f"{settings}: {claim.verdict_with(settings)}" for settings in claim.findings)
    return Check(
        line=f"{claim.verdict}: {claim.statement}",
        cells=(escape(claim.statement), _badge(claim.verdict), escape(by_settings)),
        block=_block(claim),
    )


def _block(claim: Claim) -> str:
    lines = [f'<div class="claim"><p><b>{escape(claim.statement)}</b> {_badge(claim.verdict)}<br>']
    lines.append(f"<small>{escape(claim.place)}. Measured as: {escape(claim.measure)}.</small></p>")
    for settings, findings in claim.findings.items():
        items = "".join(f'<li class="{_MARKS[finding.outcome]}">{escape(str(finding))}</li>' for finding in findings)
        summary = f"<summary>{escape(settings)}: {escape(claim.verdict_with(settings))}</summary>"
        state = " open" if len(findings) <= _SHOWN_FINDINGS else ""
        lines.append(f"<details{state}>{summary}<ul>{items}</ul></details>")
    return "\n".join([*lines, "</div>"])


def _badge(verdict: str) -> str:
    kind = {HOLDS: "yes", FAILS: "no", UNDECIDED: "undecided"}.get(verdict, "partly")
    return f'<span class="badge {kind}">{escape(verdict)}</span>'
