import numpy as np
import pytest
from kernel_bandits_lab import executor, group, mean_interval, study_of, summarize
from scipy import stats

HORIZON = 20


@pytest.fixture(scope="module")
def records():
    study = study_of(
        {
            "environments": [{"name": "Bump"}, {"name": "Chessboard"}],
            "policies": [{"name": "k_ucb", "label": "K-UCB"}, {"name": "uniform"}],
            "seeds": 3,
            "horizon": HORIZON,
        }
    )
    return list(executor()(study.runs))


def test_the_summary_is_what_numpy_and_scipy_say(records):
    runs = [record.result for record in records if record.run.policy.label == "K-UCB"]
    summary = summarize(runs)
    finals = np.array([run.regret[-1] for run in runs])
    low, high = stats.t.interval(0.95, df=len(finals) - 1, loc=np.mean(finals), scale=stats.sem(finals))
    rounds = np.concatenate([np.diff(run.seconds, prepend=0.0) for run in runs])
    assert summary.runs == 6
    assert summary.regret == pytest.approx((low + high) / 2)
    assert summary.regret_interval == pytest.approx((high - low) / 2)
    assert summary.dictionary_size == HORIZON  # an exact posterior keeps every point
    assert summary.round_microseconds == pytest.approx(1e6 * np.mean(rounds))


def test_one_run_has_no_interval(records):
    summary = summarize([records[0].result])
    assert summary.regret == records[0].result.regret[-1]
    assert np.isnan(summary.regret_interval)


def test_the_interval_is_taken_column_by_column():
    samples = np.array([[1.0, 10.0], [3.0, 10.0]])
    mean, half_width = mean_interval(samples)
    np.testing.assert_array_equal(mean, [2.0, 10.0])
    # two samples at distance 2: standard error 1, and the quantile of Student's law with one degree of freedom
    np.testing.assert_allclose(half_width, [12.706204736, 0.0])


def test_groups_are_by_environment_then_policy_then_seed(records):
    groups = group(records)
    assert {place: list(by_policy) for place, by_policy in groups.items()} == {
        "Bump": ["K-UCB", "uniform"],
        "Chessboard": ["K-UCB", "uniform"],
    }
    for record in records:
        assert groups[record.run.environment.label][record.run.policy.label][record.run.seed] is record.result


def test_policies_with_one_seed_meet_the_same_contexts_and_seeds_differ(records):
    for by_policy in group(records).values():
        for one, other in zip(by_policy["K-UCB"], by_policy["uniform"], strict=True):
            np.testing.assert_array_equal(one.contexts, other.contexts)
        first, second, _ = by_policy["uniform"]
        assert (first.contexts != second.contexts).all()
