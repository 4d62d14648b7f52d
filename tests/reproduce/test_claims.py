import numpy as np
import pytest
from kernel_bandits_lab import Record, Run
from kernel_bandits_lab.reproduce.claims import (
    FAILS,
    HOLDS,
    MISSING,
    MOSTLY,
    PARTLY,
    UNDECIDED,
    Claim,
    Estimate,
    Finding,
    Pairs,
    above,
    below,
    corrected,
    number_of_tests,
)
from kernel_bandits_lab.study import reference
from scipy import stats

from kernel_bandits import RunResult

HORIZON = 10


def record(policy, seed, slope, seconds=1e-3, horizon=HORIZON, size=0):
    """A run whose regret grows by ``slope`` and whose time by ``seconds`` at every round."""
    zeros, sizes = np.zeros(horizon), np.full(horizon, size)
    result = RunResult(
        regret=slope * np.arange(1, horizon + 1),
        rewards=zeros,
        action_indices=sizes,
        actions=zeros[:, None],
        contexts=zeros[:, None],
        dictionary_size=sizes,
        select_seconds=np.full(horizon, 0.25 * seconds),
        update_seconds=np.full(horizon, 0.75 * seconds),
    )
    return Record(Run(reference("Bump", label="place"), reference(policy), seed, horizon), result, {})


def ends(estimate):
    return [estimate.low, estimate.value, estimate.high]


def test_regret_differences_are_those_of_the_paired_t_test():
    first, second = [3.0, 1.0, 4.0, 1.5], [2.0, 2.0, 2.5, 1.0]
    records = [record("one", seed, slope) for seed, slope in enumerate(first)]
    records += [record("other", seed, slope) for seed, slope in enumerate(second)]
    differences = HORIZON * (np.array(first) - second)
    low, high = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose(
        ends(Pairs(records).regret_difference("place", "one", "other")), [low, differences.mean(), high]
    )
    relative = Pairs(records).relative_regret("place", "one", "other")
    np.testing.assert_allclose(ends(relative), np.array([low, differences.mean(), high]) / (HORIZON * np.mean(second)))


def test_pairs_are_the_seeds_both_played():
    records = [record("one", seed, slope) for seed, slope in ((0, 1.0), (1, 2.0), (7, 100.0))]
    records += [record("other", seed, 0.5) for seed in (1, 0, 3)]
    assert Pairs(records).regret_difference("place", "one", "other").value == pytest.approx(HORIZON * 1.0)


def test_shorter_runs_are_compared_at_their_end_and_it_is_said():
    records = [record("one", seed, 1.0 + seed) for seed in range(3)]
    records += [record("other", seed, 0.5, horizon=4, size=2) for seed in range(3)]
    pairs = Pairs(records)
    found = pairs.regret_difference("place", "one", "other")
    assert found.value == pytest.approx(4 * 1.5)
    assert found.note == "T = 4"
    assert pairs.kept("place", "other").value == pytest.approx(0.5)
    assert not pairs.kept("place", "one").note


def test_time_ratios_are_geometric_means():
    records = [record("one", seed, 1.0, seconds) for seed, seconds in enumerate((1e-3, 4e-3))]
    records += [record("other", seed, 1.0, 1e-3) for seed in range(2)]
    found, back = (Pairs(records).time_ratio("place", *pair) for pair in (("one", "other"), ("other", "one")))
    assert found.value == pytest.approx(2.0)
    np.testing.assert_allclose(ends(found), 1.0 / np.array(ends(back))[::-1])


def test_runs_that_are_the_same_take_the_same_time():
    """Two settings of one algorithm that keep every point: what their clocks say is noise, and decides no claim."""
    records = [record("one", seed, 1.0 + seed, seconds) for seed, seconds in enumerate((1.10e-3, 1.11e-3, 1.12e-3))]
    records += [record("other", seed, 1.0 + seed, 1e-3) for seed in range(3)]
    records += [record("larger", seed, 1.0 + seed, 1e-3, size=1) for seed in range(3)]
    pairs = Pairs(records)
    for measured in (pairs.time_ratio, pairs.product_ratio):
        assert measured("place", "one", "other").low > 1.05
        found = measured("place", "one", "other", alike=True)
        assert str(found) == "× 1 [1, 1] (the same runs)"
        assert above("case", found, 1.0).outcome is below("case", found, 1.0).outcome is False
        assert np.isnan(above("case", found, 1.0).p_value)
        # another dictionary, or other decisions, are another run
        assert measured("place", "one", "larger", alike=True) == measured("place", "one", "larger")


def test_what_was_not_measured_decides_nothing():
    pairs = Pairs([record("one", 0, 1.0), record("other", 0, 2.0), record("other", 1, 2.0)])
    for found in (
        pairs.regret_difference("place", "one", "other"),
        pairs.time_ratio("place", "one", "missing"),
        pairs.kept("elsewhere", "one"),
        MISSING,
    ):
        assert str(found) == "not measured"
        assert below("case", found).outcome is None
        assert above("case", found).outcome is None
        assert np.isnan(below("case", found).p_value)


@pytest.mark.parametrize(
    ("low", "high", "is_below", "is_above"), [(1.0, 2.0, True, False), (3.0, 4.0, False, True), (2.0, 3.0, None, None)]
)
def test_an_interval_around_the_bound_leaves_it_open(low, high, is_below, is_above):
    estimate = Estimate((low + high) / 2, low, high)
    assert below("case", estimate, 2.5).outcome is is_below
    assert above("case", estimate, 2.5).outcome is is_above


def test_p_values_are_those_of_the_paired_t_test():
    first, second = [3.0, 1.0, 4.0, 1.5], [2.0, 2.0, 2.5, 1.0]
    records = [record("one", seed, slope, 1e-3 * slope) for seed, slope in enumerate(first)]
    records += [record("other", seed, slope, 1e-3 * slope) for seed, slope in enumerate(second)]
    pairs = Pairs(records)
    differences = HORIZON * (np.array(first) - second)
    found = below("case", pairs.regret_difference("place", "one", "other"), 1.5)
    assert found.p_value == pytest.approx(stats.ttest_1samp(differences, 1.5).pvalue)
    logs = np.log(np.array(first) / second)
    found = above("case", pairs.time_ratio("place", "one", "other"), 2.0)
    assert found.p_value == pytest.approx(stats.ttest_1samp(logs, np.log(2.0)).pvalue)
    # regret and time are both proportional to the slope, so their product has twice the logarithm
    product = pairs.product_ratio("place", "one", "other")
    assert product.value == pytest.approx(np.exp(2 * logs.mean()))
    assert below("case", product, 1.0).p_value == pytest.approx(stats.ttest_1samp(2 * logs, 0.0).pvalue)


def test_holms_correction_by_hand():
    """Of p = 0.01, 0.02, 0.04 and 0.03 at 0.05: 0.01 ≤ 0.05/4 passes, 0.02 > 0.05/3 stops."""
    findings = [Finding(f"case {p}", "", True, p) for p in (0.04, 0.01, 0.03, 0.02)]
    untested = Finding("by construction", "", True)
    claims = [
        Claim("It works.", "5", {"ours": findings[:2]}),
        Claim("It too.", "5", {"ours": [*findings[2:], untested]}),
    ]
    assert number_of_tests(claims) == 4
    outcomes = [finding.outcome for claim in corrected(claims) for finding in claim.findings["ours"]]
    assert outcomes == [None, True, None, None, True]
    sure = [Claim("It works.", "5", {"ours": [Finding("case", "", False, 1e-9)]})]
    assert corrected(sure)[0].verdict == FAILS


def test_estimates_in_words():
    assert str(Estimate(-3.0, -3.5, -2.5, "difference")) == "−3.0 ± 0.5"
    assert str(Estimate(-300.0, -350, -250, "difference", "T = 5")) == "−300 ± 50 (T = 5)"
    assert str(Estimate(0.12, 0.1, 0.14, "percent")) == "+12 ± 2 %"
    assert str(Estimate(0.12, 0.1, 0.14, "share")) == "12 ± 2 %"
    assert str(Estimate(0.2, 0.1, 12.4, "ratio")) == "× 0.2 [0.1, 12]"
    assert str(Estimate(2.0, 1.9, 2.1)) == "2.00 ± 0.10"


Y, N, O = True, False, None  # noqa: E741 (as, not as claimed, and open)


@pytest.mark.parametrize(
    ("ours", "theirs", "told", "verdict"),
    [
        ([Y, Y], [Y], HOLDS, HOLDS),
        ([N, N], [N], FAILS, FAILS),
        ([N, O], [N], f"{FAILS}, open in 1", FAILS),
        ([O], [O, O], UNDECIDED, UNDECIDED),
        ([O], [N], UNDECIDED, FAILS),
        ([Y, Y], [N], HOLDS, "only with ours"),
        ([Y, Y], [Y, N], HOLDS, "only with ours"),
        ([Y], [O], HOLDS, "holds with ours, open otherwise"),
        ([Y, O], [Y], "holds in 1 of 2, open in 1", "holds with theirs, open otherwise"),
        ([Y, O], [Y, O], "holds in 1 of 2, open in 1", MOSTLY),
        ([Y, N, O], [N], "holds in 1 of 3, open in 1", PARTLY),
        ([Y, N], [Y, O], "holds in 1 of 2", PARTLY),
    ],
)
def test_verdicts(ours, theirs, told, verdict):
    findings = {
        name: [Finding("case", "", outcome) for outcome in outcomes]
        for name, outcomes in (("ours", ours), ("theirs", theirs))
    }
    claim = Claim("It works.", "section 5", findings)
    assert claim.verdict_with("ours") == told
    assert claim.verdict == verdict


def test_a_claim_without_findings_cannot_be_decided():
    assert Claim("It works.", "section 5").verdict == UNDECIDED
