"""The estimators against coba's, on random logs: what coba calls IPS, DM and DR are rewards of every action."""

import numpy as np
import pytest
from coba.environments.filters import OpeRewards

from kernel_bandits import offpolicy
from kernel_bandits.offpolicy import Rounds


def random_log(seed):
    """Return contexts, the played actions with their rewards and propensities, and a candidate's probabilities."""
    generator = np.random.default_rng(seed)
    count, actions = int(generator.integers(50, 200)), int(generator.integers(2, 6))
    behaviour, target = (generator.dirichlet(np.ones(actions), size=count) for _ in range(2))
    played = np.array([generator.choice(actions, p=row) for row in behaviour])
    propensities = behaviour[np.arange(count), played]
    return generator.random((count, 2)), played, generator.normal(size=count), propensities, target


def estimated(kind, log):
    """Return coba's estimates of the rewards of every action, shape (n, A), in the order of the log."""
    contexts, played, rewards, propensities, target = log
    names = [f"action {place}" for place in range(target.shape[1])]
    rows = zip(contexts.tolist(), played.tolist(), rewards.tolist(), propensities.tolist(), strict=True)
    interactions = [
        {"context": context, "actions": names, "action": names[action], "reward": reward, "probability": probability}
        for context, action, reward, probability in rows
    ]
    # coba's model has learned all rounds when the first estimate is there
    found = list(OpeRewards(kind).filter(interactions))
    return np.array([[one["rewards"](name) for name in names] for one in found])


@pytest.mark.parametrize("seed", range(5))
def test_estimates_equal_those_of_coba_with_its_model(seed):
    log = random_log(seed)
    _, played, rewards, propensities, target = log
    each = np.arange(len(played))
    model = estimated("DM", log)
    rounds = Rounds(target[each, played] / propensities, rewards, model[each, played], (target * model).sum(axis=1))
    ours = {
        "IPS": offpolicy.inverse_propensity(rounds),
        "DM": offpolicy.direct_method(rounds),
        "DR": offpolicy.doubly_robust(rounds),
    }
    for kind, terms in ours.items():
        theirs = (target * estimated(kind, log)).sum(axis=1)
        np.testing.assert_allclose(terms, theirs, rtol=1e-10, atol=1e-10)
