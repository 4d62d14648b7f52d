"""Values from simulated logs: truth, intervals, warnings, candidates of every kind, and damaged logs."""

import pickle

import numpy as np
import pytest
from simulated import expected_rewards, logging_table, simulated_log, target_table, true_value

import kernel_bandits as kb
from kernel_bandits import offpolicy
from kernel_bandits.offpolicy import ContinuousLog, Log, RewardModel

MODEL = RewardModel(kb.Gaussian(0.7), regularization=0.05, most_rows=600)
TRUTH = true_value(target_table)


@pytest.fixture(scope="module")
def log():
    return simulated_log(3000, seed=0)


def test_all_estimators_find_the_truth(log):
    found = offpolicy.evaluate(log, target_table(log.contexts), model=MODEL)
    assert set(found.estimates) == {
        *("inverse propensity", "self-normalised", "direct method"),
        *("doubly robust", "shrunk doubly robust", "switch doubly robust"),
    }
    for name, one in found.estimates.items():
        assert one.value == pytest.approx(TRUTH, abs=0.03), name
        assert one.low < one.value < one.high
    assert found.warnings == ()
    assert found.recommended is found.estimates["doubly robust"]
    assert found.logged_value == log.rewards.mean()
    assert "95 % interval" in str(found)
    robust, weighted = found.estimates["doubly robust"], found.estimates["inverse propensity"]
    assert robust.standard_error < 0.7 * weighted.standard_error


@pytest.mark.parametrize("shrinkage", [0.0, 1.0, 1e9])
def test_the_interval_of_a_shrunk_estimate_allows_for_its_bias(log, shrinkage):
    """With the model alone, λ = 0, the estimate is as biased as can be; with a huge λ it is doubly robust."""
    some, broken = log.rows(slice(0, 500)), RewardModel(kb.Gaussian(0.7), regularization=100.0)
    found = offpolicy.evaluate(some, target_table(some.contexts), model=broken, shrinkage=shrinkage).estimates
    shrunk, robust = found["shrunk doubly robust"], found["doubly robust"]
    assert shrunk.low <= min(shrunk.value, robust.value)
    assert shrunk.high >= max(shrunk.value, robust.value)
    if shrinkage == 1e9:
        assert (shrunk.low, shrunk.high) == pytest.approx((robust.low, robust.high), abs=1e-6)
    else:
        assert abs(robust.value - shrunk.value) > 0.01


def test_one_fit_serves_several_candidates(log):
    some = log.rows(slice(0, 300))
    fitted = offpolicy.fitted_model(some, MODEL)
    assert offpolicy.evaluate(some, 1, model=fitted).estimates == offpolicy.evaluate(some, 1, model=MODEL).estimates
    with pytest.raises(kb.InputError, match="fitted to 300 rows, and the log has 3000"):
        offpolicy.evaluate(log, 1, model=fitted)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """A quick version of benchmarks/off_policy_coverage.py: 150 logs, binomial 5σ."""
    held = 0
    for seed in range(150):
        log = simulated_log(400, seed)
        one = offpolicy.evaluate(log, target_table(log.contexts), model=None, seed=seed).estimates["self-normalised"]
        held += one.low <= TRUTH <= one.high
    assert held / 150 > 0.95 - 5 * np.sqrt(0.95 * 0.05 / 150)


def test_a_broken_model_or_broken_propensities_break_one_estimator_and_not_doubly_robust(log):
    table = target_table(log.contexts)
    wrong_model = RewardModel(1e-6 * kb.Gaussian(0.7), regularization=1.0)
    found = offpolicy.evaluate(log, table, model=wrong_model).estimates
    assert abs(found["direct method"].value - TRUTH) > 0.3
    assert found["doubly robust"].value == pytest.approx(TRUTH, abs=0.03)
    uniform = Log(log.contexts, log.played, log.rewards, np.full(len(log), 0.25))
    broken = offpolicy.evaluate(uniform, table, model=MODEL)
    assert abs(broken.estimates["inverse propensity"].value - TRUTH) > 0.03
    assert broken.estimates["doubly robust"].value == pytest.approx(TRUTH, abs=0.02)
    assert any("mean weight" in warning for warning in broken.warnings)


def test_candidates_of_every_kind(log):
    log = log.rows(slice(0, 400))

    def value(candidate):
        return offpolicy.evaluate(log, candidate, model=None).estimates["inverse propensity"].value

    certain = np.zeros((400, 4))
    certain[:, 2] = 1.0
    expected = value(certain)
    assert value(2) == value(lambda *_: 2) == value(lambda *_: certain[0]) == expected
    named = Log(log.contexts, log.played, log.rewards, log.propensities, names=("a", "b", "c", "d"))
    assert offpolicy.evaluate(named, "c", model=None).estimates["inverse propensity"].value == expected
    policy = kb.ek_ucb(kb.Gaussian(0.5), exploration_floor=0.2, seed=0)
    policy.update_many(log.contexts[:50], log.actions[log.played[:50]], log.rewards[:50])
    before = pickle.dumps(policy)
    from_policy = value(policy)
    assert pickle.dumps(policy) == before
    table = np.array([policy.select(context, log.actions).probabilities for context in log.contexts])
    assert from_policy == pytest.approx(value(table), abs=1e-12)
    with pytest.raises(kb.InputError, match="one of the actions"):
        value(7)
    with pytest.raises(kb.InputError, match=r"shape \(400, 4\)"):
        value(np.ones((3, 4)))
    with pytest.raises(kb.InputError, match="in row 3 of the log"):
        value(np.where(np.arange(400)[:, None] == 3, 0.9, certain))
    with pytest.raises(kb.InputError, match="row from 0 to 3"):
        value(lambda *_: 9)


def test_a_log_that_cannot_answer_is_said_to():
    log = simulated_log(400, seed=1, sharpness=12.0)
    against = 1.0 - logging_table(log.contexts, 12.0)
    found = offpolicy.evaluate(log, against / against.sum(axis=1, keepdims=True), model=None)
    assert any("rounds are effective" in warning for warning in found.warnings)
    few = Log(log.contexts, np.minimum(log.played, 2), log.rewards, log.propensities, actions=np.eye(4))
    unseen = offpolicy.evaluate(few, 3, model=None)
    assert any("never played" in warning for warning in unseen.warnings)
    assert np.isnan(unseen.estimates["self-normalised"].value)
    heavy = Log(np.empty((0, 0)), np.zeros(300, int), np.ones(300), np.append(np.full(299, 1.0), 0.001))
    assert any("row 299 alone" in warning for warning in offpolicy.evaluate(heavy, 0, model=None).warnings)
    assert "The log cannot answer" in offpolicy.evaluate(few, 3, 0, model=None).verdict


def test_a_paired_difference_is_sharper_than_two_values(log):
    better = target_table(log.contexts, sharpness=6.0)
    found = offpolicy.evaluate(log, better, target_table(log.contexts), model=MODEL)
    truth = true_value(lambda contexts: target_table(contexts, 6.0)) - TRUTH
    one = found.gain
    assert one is found.gains["doubly robust"]
    assert one.low < truth < one.high
    apart = np.hypot(*(each.recommended.standard_error for each in (found, found.baseline)))
    assert one.standard_error < 0.8 * apart
    assert found.verdict.startswith("Switch")
    assert offpolicy.evaluate(log, target_table(log.contexts), better, model=None).gain.value < 0.0
    same = offpolicy.evaluate(log, better, better, model=None)
    assert same.verdict.startswith("Undecided")
    assert same.gain.value == 0.0


def test_replay_meets_the_rewards_of_online_play():
    log = simulated_log(1500, seed=3, sharpness=1.0)
    found = offpolicy.replay(kb.uniform(seed=0), log)
    uniform = float(expected_rewards(np.random.default_rng(5).random((50_000, 2))).mean())
    assert found.value == pytest.approx(uniform, abs=0.06)
    assert found.low < uniform < found.high
    policy = kb.ek_ucb(kb.Gaussian(0.7), seed=0)
    learned = offpolicy.replay(policy, log)
    assert policy.round_index == len(learned.rewards) < learned.rounds == 1500
    assert learned.value > found.value
    with pytest.raises(kb.InputError, match="expected a policy"):
        offpolicy.replay(3, log)


def test_replay_rejects_so_that_every_action_is_met_alike():
    """A policy that learns nothing and chooses uniformly meets the plain mean of the actions, whatever their shares."""
    shares, means = np.array([0.6, 0.39, 0.01]), np.array([0.2, 0.9, 0.5])
    generator = np.random.default_rng(7)
    played = generator.choice(3, 30_000, p=shares)
    rewards = means[played] + 0.1 * generator.normal(size=len(played))
    log = Log(np.empty((0, 0)), played, rewards, shares[played])
    found = offpolicy.replay(kb.uniform(seed=0), log)
    error = means.std() / np.sqrt(len(found.rewards))
    assert found.value == pytest.approx(means.mean(), abs=4 * error)
    # accepted: Σ_a (1/3)·p(a)·(0.01/p(a)) = 0.01 of the rounds
    assert len(found.rewards) == pytest.approx(300, abs=4 * np.sqrt(300))


def test_replay_takes_the_least_propensity_of_all_actions_and_not_of_those_played():
    """60 rounds that happen to hold no play of the third action: c is 0.01 and not 0.39."""
    shares = np.array([0.6, 0.39, 0.01])
    played = np.random.default_rng(0).choice(2, 60, p=[0.6, 0.4])
    log = Log(np.empty((0, 0)), played, np.ones(60), shares[played], np.eye(3), probabilities=np.tile(shares, (60, 1)))
    counts = [len(offpolicy.replay(kb.uniform(seed=seed), log, seed=seed).rewards) for seed in range(40)]
    assert np.mean(counts) < 2.0
    unknown = Log(np.empty((0, 0)), played, np.ones(60), shares[played], np.eye(3))
    with pytest.raises(kb.InputError, match="least_propensity: expected a lower bound"):
        offpolicy.replay(kb.uniform(seed=0), unknown)
    found = offpolicy.replay(kb.uniform(seed=0), unknown, least_propensity=0.01)
    assert len(found.rewards) == counts[0]
    with pytest.raises(kb.InputError, match=r"at most 0\.39"):
        offpolicy.replay(kb.uniform(seed=0), unknown, least_propensity=0.5)
    never = np.tile([0.6, 0.4, 0.0], (60, 1))
    with pytest.raises(kb.InputError, match="some actions had the probability 0"):
        offpolicy.replay(
            kb.uniform(seed=0),
            Log(np.empty((0, 0)), played, np.ones(60), never[0][played], np.eye(3), probabilities=never),
        )


def continuous_log(count, seed):
    """Actions uniform in [0, 2] for half of the rounds and triangular for the others; the best action is 1 + x/2."""
    generator = np.random.default_rng(seed)
    contexts = generator.random((count, 1))
    wide = generator.random(count) < 0.5
    actions = np.where(wide, 2 * generator.random(count), generator.triangular(0.0, 1.0, 2.0, count))
    densities = 0.5 * 0.5 + 0.5 * (1.0 - np.abs(actions - 1.0))
    rewards = 1.0 - (actions - 1.0 - 0.5 * contexts[:, 0]) ** 2 + 0.1 * generator.normal(size=count)
    return ContinuousLog(contexts, actions[:, None], rewards, densities)


def test_continuous_values_find_the_truth():
    log = continuous_log(4000, 0)
    box = kb.Box([0.0], [2.0])
    model = RewardModel(kb.Gaussian(0.7), regularization=0.01, most_rows=400)
    found = offpolicy.evaluate_continuous(log, lambda context: 0.9 + 0.5 * context[0], model=model, box=box)
    truth = 1.0 - 0.01
    for name, one in found.estimates.items():
        # without a model rewards, and not misfits, are smoothed: a kernel that varies little is biased
        assert one.value == pytest.approx(truth, abs=0.1 if name == "inverse propensity" else 0.02), name
    assert found.recommended is found.estimates["doubly robust"]
    fixed = offpolicy.evaluate_continuous(log, 1.0, model=None, box=box).estimates["self-normalised"]
    assert fixed.value == pytest.approx(1.0 - 0.25 / 3, abs=0.04)
    assert fixed.parameter is not None
    policy = kb.ek_ucb(kb.Gaussian(0.7), regularization=0.01, seed=0)
    policy.update_many(log.contexts[:200], log.actions[:200], log.rewards[:200])
    some = ContinuousLog(log.contexts[200:260], log.actions[200:260], log.rewards[200:260], log.densities[200:260])
    of_policy = offpolicy.evaluate_continuous(some, policy, model=None, box=box)
    assert any("rounds are effective" in warning for warning in of_policy.warnings)
    with pytest.raises(kb.InputError, match="box: expected"):
        offpolicy.evaluate_continuous(log, policy, model=None)


def test_decisions_become_logs():
    policy = kb.inverse_gap_weighting(kb.Gaussian(0.5), seed=0)
    actions = np.eye(3)
    decisions = [policy.select([0.1 * i], actions) for i in range(10)]
    log = Log.of_decisions(decisions, np.arange(10.0), actions)
    assert len(log) == 10
    np.testing.assert_array_equal(log.probabilities[4], decisions[4].probabilities)
    in_box = [kb.uniform(seed=0).select([0.1], kb.Box(0.0, 2.0)) for _ in range(3)]
    assert ContinuousLog.of_decisions(in_box, np.zeros(3)).densities.tolist() == [0.5] * 3
    with pytest.raises(kb.InputError, match="row 0: propensity"):
        Log.of_decisions([kb.k_ucb(kb.Gaussian(0.5)).select([0.1], actions)], [1.0], actions)


GOOD = {"contexts": np.zeros((4, 1)), "played": np.array([0, 1, 0, 1]), "rewards": np.ones(4)}
DAMAGED = [
    ({"propensities": [0.5, 1.2, 0.5, 0.5]}, "row 1: propensity.*1.2"),
    ({"propensities": [0.5, 0.5, 0.0, 0.5]}, "row 2: propensity"),
    ({"propensities": [0.5, 0.5, np.nan, 0.5]}, "row 2: propensity"),
    ({"rewards": [1.0, 1.0, 1.0, np.inf]}, "row 3: reward"),
    ({"rewards": [1.0, 1.0, 1.0]}, "a row is missing"),
    ({"played": np.array([0, 1, 5, 1]), "actions": np.eye(2)}, "row 2: action.*one of 2 actions"),
    ({"played": np.array([0, -1, 0, 1])}, "row 1: action"),
    ({"played": np.array([0.0, 1.5, 0.0, 1.0])}, "row 1: action: expected a whole number"),
    ({"played": ["a", "b", None, "a"]}, "row 2: action: expected an action, got none"),
    ({"played": ["a", "b", "c", "a"], "names": ("a", "b")}, "row 2: action: expected one of a, b, got 'c'"),
    ({"contexts": [[0.0], [0.0], [np.nan], [0.0]]}, "row 2: context"),
    ({"probabilities": [[0.5, 0.5]] * 3 + [[0.5, 0.6]]}, "row 3: probabilities.*sum 1"),
    ({"probabilities": [[0.5, 0.5]] * 3 + [[0.6, 0.4]]}, "row 3: propensity: expected the probability"),
    ({"names": ("a",)}, "names: expected one for each of 2"),
]


@pytest.mark.parametrize(("change", "words"), DAMAGED)
def test_a_damaged_log_is_refused_with_the_row_named(change, words):
    with pytest.raises(kb.InputError, match=words):
        Log(**{"propensities": np.full(4, 0.5), **GOOD, **change})
    with pytest.raises(kb.InputError, match="row 1: density"):
        ContinuousLog(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros(2), np.array([1.0, 0.0]))
