"""A warning of a change: when it is raised, when it ends, and that it is about decisions and not about delays."""

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.learning.defaults import CHANGE_LIMIT, FIRST_TESTED_ROUND, SUSPECT_SHARE, TOLERATED_SHIFT
from kernel_bandits.policy.diagnostics import CALM, Residuals

RIDGE = 0.25


def compared(residuals, deviations, start=FIRST_TESTED_ROUND, kernel_changes=0):
    """Residuals after rewards that were this many standard deviations above what was predicted of them."""
    for number, z in enumerate(deviations):
        residuals = residuals.after([(3.0 + 0.5 * z, 3.0, 0.0, RIDGE, start + number, kernel_changes)])
    return residuals


def test_a_warning_names_the_change_point_and_ends_once_rewards_are_as_predicted_again():
    calm = compared(Residuals(), np.resize([0.5, -0.5], 200))
    assert calm.warning("do this") is None
    changed = compared(calm, [-2.0] * 10, start=FIRST_TESTED_ROUND + 200)
    # after the last reward that was above its prediction or as predicted
    assert changed.changed_at in range(FIRST_TESTED_ROUND + 199, FIRST_TESTED_ROUND + 202)
    assert f"from observation {changed.changed_at} on were below" in changed.warning("do this")
    assert changed.warning("do this").endswith("do this.")
    again = compared(changed, [0.5, -0.5] * (CALM // 2 - 10), start=FIRST_TESTED_ROUND + 210)
    assert again.warning("do this") is not None
    assert compared(again, [0.5, -0.5] * 20, start=FIRST_TESTED_ROUND + 264).warning("do this") is None


def test_a_warning_stays_for_as_long_as_rewards_stay_away():
    # the statistic grows by the shift less what is tolerated
    shift = TOLERATED_SHIFT + 1.2 * CHANGE_LIMIT / CALM
    residuals = Residuals()
    for number in range(6):
        residuals = compared(residuals, [shift] * CALM, start=FIRST_TESTED_ROUND + CALM * number)
        assert "above" in residuals.warning("")


def test_the_first_rewards_are_not_tested():
    assert compared(Residuals(), [-3.0] * FIRST_TESTED_ROUND, start=0) == Residuals()


def test_a_model_that_is_too_sure_of_itself_is_no_change():
    # three times the standard deviation that the model expects, on either side
    residuals = compared(Residuals(), 3.0 * np.random.default_rng(0).standard_normal(300))
    assert residuals.test.mean_square > 3.0
    assert residuals.changed_at is None


def test_a_fit_begins_the_test_again_unless_it_is_close_to_an_alarm():
    calm = compared(Residuals(), [1.0] * 4)
    assert 0.0 < calm.test.above < SUSPECT_SHARE * CHANGE_LIMIT
    assert compared(calm, [0.0], kernel_changes=1).test.above == 0.0
    suspect = compared(Residuals(), [1.5] * 12)
    assert suspect.changed_at is None
    assert compared(suspect, [2.0], kernel_changes=1).test.above > suspect.test.above > SUSPECT_SHARE * CHANGE_LIMIT


def test_one_by_one_is_together():
    deviations = np.random.default_rng(1).standard_normal(80)
    predicted = [(z, 0.0, 0.0, 1.0, number, 0) for number, z in enumerate(deviations)]
    assert Residuals().after(predicted) == Residuals().after(predicted[:30]).after(predicted[30:])


def after_clicks(late, policy, seed=0, silence=60):
    """Return a policy after 300 visitors of whom a fifth clicks; told late, silences are later than clicks."""
    generator, waiting = np.random.default_rng(seed), []
    for number in range(300):
        decision = policy.ask(generator.standard_normal(2), np.eye(2))
        clicked = float(generator.random() < 0.2)
        waiting.append((number + (3 if clicked and late else silence), decision.id, clicked))
        for one in [one for one in waiting if one[0] <= number]:
            policy.tell(*one[1:])
            waiting.remove(one)
    return policy


def test_early_successes_and_late_silences_are_no_change():
    late, at_once = (after_clicks(late, kb.ek_ucb(seed=0)) for late in (True, False))
    assert late.diagnostics().warnings == ()
    assert late.posterior.observed_rewards.mean() < 0.3
    assert abs(late.posterior.round_index - at_once.posterior.round_index) <= 3


@pytest.mark.parametrize("seed", range(3))
def test_early_successes_and_late_silences_are_no_reason_to_restart(seed):
    # a kernel that is given learns rewards as they come, unless it restarts by them
    policy = kb.ek_ucb(kb.Gaussian(2.0), regularization=0.2, forgetting=kb.Restart(), seed=seed)
    posterior = after_clicks(True, policy, seed, silence=150).posterior
    assert len(posterior.observed_rewards) == posterior.round_index > 140
