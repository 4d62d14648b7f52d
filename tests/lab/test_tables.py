"""Tables for a paper: paired differences, Holm's correction, and three formats."""

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_bandits_lab import Record, Run
from kernel_bandits_lab.study import reference
from kernel_bandits_lab.tables import (
    Table,
    as_csv,
    as_latex,
    as_markdown,
    difference_table,
    differences,
    holm,
    paper_table,
)
from scipy import stats
from test_plots import record as result

from kernel_bandits import InputError


def records(slopes, place="Place"):
    """Runs with these slopes of regret, a seed each, by policy."""
    return [
        Record(Run(reference("Bump", {}, place), reference("uniform", {}, label), seed, 40), result(slope), {})
        for label, row in slopes.items()
        for seed, slope in enumerate(row)
    ]


SLOPES = {"base": [1.0, 2.0, 3.0, 4.0], "other λ & 5%": [1.5, 2.4, 3.7, 4.2], "same": [1.0, 2.0, 3.0, 4.0]}


def test_differences_are_those_of_the_paired_t_test():
    first, second = differences(records(SLOPES))
    ours, theirs = 40 * np.array(SLOPES["other λ & 5%"]), 40 * np.array(SLOPES["base"])
    expected = stats.ttest_rel(ours, theirs)
    assert (first.policy, first.reference, first.pairs, first.rounds) == ("other λ & 5%", "base", 4, 40)
    assert first.mean == pytest.approx((ours - theirs).mean())
    assert first.p_value == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval(0.95)
    assert (first.mean - first.half_width, first.mean + first.half_width) == pytest.approx((low, high))
    assert first.adjusted_p_value == pytest.approx(2 * expected.pvalue)
    assert (second.mean, second.p_value, second.adjusted_p_value) == (0.0, 1.0, 1.0)


def test_only_shared_seeds_and_the_rounds_of_the_shorter_runs_count():
    long = records({"base": [1.0, 2.0, 5.0]})
    runs = [(seed, slope) for seed, slope in ((1, 3.0), (2, 4.0), (7, 9.0))]
    short = [
        Record(
            Run(reference("Bump", {}, "Place"), reference("uniform", {}, "short"), seed, 10),
            result(slope, horizon=10),
            {},
        )
        for seed, slope in runs
    ]
    (found,) = differences(long + short)
    assert (found.pairs, found.rounds) == (2, 10)
    assert found.mean == pytest.approx(10 * np.mean([3.0 - 2.0, 4.0 - 5.0]))


def test_a_single_pair_has_no_interval_and_does_not_count():
    slopes = {"base": [1.0, 2.0], "often": [1.1, 2.3], "once": [3.0]}
    often, once = differences(records(slopes))
    assert np.isnan([once.half_width, once.p_value, once.adjusted_p_value]).all()
    assert often.adjusted_p_value == often.p_value
    assert difference_table([once]).rows[0][-2:] == ("+80.0", "–")


def test_a_reference_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"no policy 'bse'; did you mean 'base'\?"):
        differences(records(SLOPES), "bse")


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_rejects_what_its_step_down_rule_rejects(p_values):
    adjusted = holm(p_values)
    assert all(new >= old for new, old in zip(adjusted, p_values, strict=True))
    assert all(0 <= one <= 1 for one in adjusted)
    for level in (0.01, 0.05, 0.5):
        order = sorted(range(len(p_values)), key=lambda i: p_values[i])
        rejected = set()
        for rank, i in enumerate(order):
            if min(1.0, (len(order) - rank) * p_values[i]) > level:
                break
            rejected.add(i)
        assert {i for i, one in enumerate(adjusted) if one <= level} == rejected


def test_latex_is_escaped_and_booktabs():
    text = as_latex(paper_table(records(SLOPES), "base"))
    assert r"other $\lambda$ \& 5\% & 118.0 $\pm$" in text
    assert text.count(r"\\") == 1 + len(SLOPES)
    for rule in ("toprule", "midrule", "bottomrule"):
        assert f"\\{rule}" in text
    assert text.isascii()
    # what all rows share is said once
    assert "runs: 4; rounds: 40" in text
    heads = text.splitlines()[3]
    assert heads.startswith("policy & regret")


def test_latex_groups_environments():
    both = records(SLOPES, "First") + records(SLOPES, "Second")
    text = as_latex(paper_table(both))
    assert text.count("First") == text.count("Second") == 1
    assert r"\addlinespace" in text


def test_markdown_keeps_its_columns():
    text = as_markdown(Table("", ("a|b", "c"), (("1|2", "3"),), "a note"))
    assert text == "| a\\|b | c |\n| --- | --- |\n| 1\\|2 | 3 |\n\na note\n"


def test_csv_has_the_numbers_in_full():
    rows = list(csv.DictReader(io.StringIO(as_csv(records(SLOPES), "base"))))
    by_policy = {row["policy"]: row for row in rows}
    assert float(by_policy["base"]["regret"]) == 40 * np.mean(SLOPES["base"])
    assert by_policy["base"]["difference"] == ""
    (found, _) = differences(records(SLOPES), "base")
    assert float(by_policy["other λ & 5%"]["p_value"]) == found.p_value
    assert float(by_policy["other λ & 5%"]["difference_interval"]) == found.half_width
