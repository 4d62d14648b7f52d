"""A warning of a change: when it is raised, and when it ends."""

import numpy as np

from kernel_bandits.learning.defaults import FIRST_TESTED_ROUND as FIRST_TESTED
from kernel_bandits.learning.defaults import TOLERATED_SHIFT as TOLERATED
from kernel_bandits.policy.diagnostics import CALM, LIMIT, Residuals

RIDGE = 0.25


def compared(residuals, deviations, start=FIRST_TESTED):
    """Residuals after rewards that were this many standard deviations above what was predicted of them."""
    for number, z in enumerate(deviations):
        residuals = residuals.after([(3.0 + 0.5 * z, 3.0, 0.0, RIDGE, 1.0, start + number, 0)])
    return residuals


def test_a_warning_says_when_and_ends_once_rewards_are_as_predicted_again():
    calm = compared(Residuals(), np.resize([0.5, -0.5], 200))
    assert calm.warning("do this") is None
    changed = compared(calm, [-2.0] * 20, start=FIRST_TESTED + 200)
    assert f"around observation {changed.changed_at}" in changed.warning("do this")
    assert "below" in changed.warning("do this")
    assert changed.warning("do this").endswith("do this.")
    assert FIRST_TESTED + 200 < changed.changed_at < FIRST_TESTED + 220
    again = compared(changed, [0.5, -0.5] * (CALM // 2 - 10), start=FIRST_TESTED + 220)
    assert again.warning("do this") is not None
    assert compared(again, [0.5, -0.5] * 10, start=FIRST_TESTED + 264).warning("do this") is None


def test_a_warning_stays_for_as_long_as_rewards_stay_away():
    # the statistic grows by the shift less what is tolerated
    shift = TOLERATED + 1.2 * LIMIT / CALM
    residuals = Residuals()
    for number in range(6):
        residuals = compared(residuals, [shift] * CALM, start=FIRST_TESTED + CALM * number)
        assert "above" in residuals.warning(False)


def test_a_shift_that_stays_is_warned_of_among_noise():
    generator, warned = np.random.default_rng(0), []
    for _ in range(10):
        residuals = compared(Residuals(), generator.standard_normal(300))
        residuals = compared(residuals, 1.25 + generator.standard_normal(100), start=FIRST_TESTED + 300)
        for number in range(300):
            residuals = compared(residuals, [1.25 + generator.standard_normal()], start=FIRST_TESTED + 400 + number)
            warned.append(residuals.warning(False) is not None)
    assert np.mean(warned) > 0.99


def test_a_model_that_is_too_sure_of_itself_is_no_change():
    # three times the standard deviation that the model expects, on either side
    deviations = 3.0 * np.random.default_rng(0).standard_normal(300)
    residuals = compared(Residuals(), deviations)
    assert residuals.mean_square > 3.0
    assert residuals.changed_at is None


def test_one_by_one_is_together():
    deviations = np.random.default_rng(1).standard_normal(80)
    predicted = [(z, 0.0, 0.0, 1.0, 1.0, number, 0) for number, z in enumerate(deviations)]
    assert Residuals().after(predicted) == Residuals().after(predicted[:30]).after(predicted[30:])
