"""Columns of huge values are learned right, or refused with advice and without harm."""

import numpy as np
import pytest
from faults.injection import fingerprint

import kernel_bandits as kb

CUBIC = kb.Polynomial(degree=3)
# Milliseconds since 1970, a round each second.
NOW = 1.7e12
HUGE = {
    "ek_ucb, cubic": (lambda: kb.ek_ucb(CUBIC, seed=0), 1e5, 0.0),
    "ek_ucb, cubic, no history": (lambda: kb.ek_ucb(CUBIC, dictionary=kb.Kors(history="none"), seed=0), 1e5, 0.0),
    "k_ucb, cubic": (lambda: kb.k_ucb(CUBIC, seed=0), 1e5, 0.0),
    "cbkb, cubic": (lambda: kb.cbkb(CUBIC, seed=0), 1e5, 0.0),
    "thompson_sampling, cubic": (lambda: kb.thompson_sampling(CUBIC, number_of_draws=5, seed=0), 1e5, 0.0),
    "lin_ucb, time": (lambda: kb.lin_ucb(seed=0), 1e3, NOW),
    "lin_ucb, time, no products": (lambda: kb.lin_ucb(interactions=False, seed=0), 1e3, NOW),
    "lin_ucb, time, no intercept": (lambda: kb.lin_ucb(intercept=False, seed=0), 1e3, NOW),
    "ek_ucb, linear, time": (lambda: kb.ek_ucb(kb.Linear(offset=1.0), seed=0), 1e3, NOW),
    "k_ucb, linear, time": (lambda: kb.k_ucb(kb.Linear(offset=1.0), seed=0), 1e3, NOW),
    "k_ucb, gaussian, time": (lambda: kb.k_ucb(kb.Gaussian(1e4), seed=0), 1e3, NOW),
}
ARMS = np.eye(2)


def refused(policy, call, *arguments):
    """Return whether a call is refused, and what it returns; a refusal gives advice and leaves the policy alone."""
    before, reason = fingerprint(policy), None
    try:
        return False, call(*arguments)
    except kb.KernelBanditsError as error:
        reason = str(error)
    assert "cale the columns" in reason
    assert fingerprint(policy) == before
    return True, None


@pytest.mark.parametrize("late", [False, True], ids=["update", "tell"])
@pytest.mark.parametrize("name", HUGE)
def test_huge_columns_are_learned_or_refused_unharmed(name, late):
    make, step, start = HUGE[name]
    policy, generator, earned = make(), np.random.default_rng(0), []
    for t in range(80):
        context = np.array([start + step * t])
        is_refused, decision = refused(policy, policy.ask if late else policy.select, context, ARMS)
        if not is_refused:
            assert np.isfinite([decision.mean, decision.std, decision.upper_bound]).all()
            assert decision.std >= 0.0
            # the second arm is better, always
            reward = float(decision.index) + 0.1 * generator.normal()
            call = (policy.tell, decision, reward) if late else (policy.update, context, decision.action, reward)
            is_refused, _ = refused(policy, *call)
        earned.append(None if is_refused else float(decision.index))
    learned = [one for one in earned if one is not None]
    assert policy.round_index == len(learned)
    # either it goes on being learned, and is right, or what does not fit is refused to the end
    if earned[-1] is not None:
        assert np.mean(learned[-20:]) >= 0.9


def test_a_column_of_milliseconds_is_as_good_as_one_of_seconds():
    """An advance of the clock shows in the rewards, whatever the clock began with."""
    outcomes = []
    for start in (0.0, NOW):
        policy, generator = kb.lin_ucb(seed=0), np.random.default_rng(1)
        for t in range(120):
            context = np.array([start + 10.0 * t])
            decision = policy.select(context, ARMS)
            # the first arm becomes worse and the second better
            reward = (t - 60.0) / 60.0 * (2.0 * decision.index - 1.0) + 0.1 * generator.normal()
            policy.update(context, decision.action, reward)
        outcomes.append(policy.predict(context, ARMS).mean)
    np.testing.assert_allclose(*outcomes, atol=0.05)
    np.testing.assert_allclose(outcomes[0], [-1.0, 1.0], atol=0.3)
