"""What a shortened run may say about the paper's claims."""

from importlib import import_module

import pytest
from kernel_bandits_lab.figures import Figures
from kernel_bandits_lab.report import Section, page
from kernel_bandits_lab.reproduce.claims import NEEDS_THE_FULL_RUN, Claim, Finding, check_of, verdicts
from kernel_bandits_lab.results import Results
from short_runs import records


def claim(*outcomes, statement="It is faster."):
    return Claim(statement, "section 5", {"settings": [Finding("λ = 1", "0.5", outcome) for outcome in outcomes]})


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ((True, True), "holds"),
        ((True, None), NEEDS_THE_FULL_RUN),
        ((False, False), NEEDS_THE_FULL_RUN),
        ((True, False), NEEDS_THE_FULL_RUN),
        ((None,), NEEDS_THE_FULL_RUN),
    ],
)
def test_a_shortened_run_never_says_that_a_claim_does_not_hold(outcomes, verdict):
    check = check_of(claim(*outcomes), shortened=True)
    assert check.verdict == verdict
    assert check.kind in ("yes", "undecided")
    # a full run says what it has found
    assert check_of(claim(*outcomes)).verdict == claim(*outcomes).verdict


def test_it_does_not_contradict_the_full_run():
    statement = next(one for one, verdict in verdicts().items() if verdict == "does not hold")
    check = check_of(claim(True, statement=statement), shortened=True)
    assert (check.verdict, check.in_full) == (NEEDS_THE_FULL_RUN, "does not hold")


@pytest.mark.parametrize("name", ["bump_projection", "chessboard", "step_diagonal", "bump"])
def test_the_full_run_has_a_verdict_on_every_claim(name):
    for one in import_module(f"kernel_bandits_lab.reproduce.{name}.figure").claims(records(name)):
        assert not one.findings or one.statement in verdicts()


def test_the_page_says_that_it_is_shortened_and_how_to_run_in_full(tmp_path):
    figures = Figures()
    folder = tmp_path / "bump_projection"
    short = records("bump_projection")
    results = Results("bump_projection", "Figure 1", tuple(short), (), {})
    section = figures.section(folder, results)
    assert section.shortened.endswith("of 20 seeds")
    text = page("Report", [section], "kernel-bandits reproduce")
    assert "<b>Shortened:</b>" in text
    assert "<code>kernel-bandits reproduce</code>" in text
    assert "in the full run" in text
    assert 'class="badge no"' not in text
    # the figure comes before any claim
    assert text.index("<img") < text.index("Claims")


def test_a_full_run_has_no_banner():
    section = Section("Study", None, [], [check_of(claim(True, True))])
    text = page("Report", [section])
    assert "Shortened" not in text
    assert "by settings" in text
