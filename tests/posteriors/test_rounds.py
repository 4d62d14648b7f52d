"""Contexts with the same arms on offer: what is computed once for all arms is what is computed for each."""

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.posterior.nystrom import Kinship, evaluate_together

ARMS, COLUMNS = 10, 3


def played(kernel, arms=ARMS, count=300):
    """Return a policy that has played the first arms, with rewards that are still to come."""
    policy = kb.ek_ucb(kernel, regularization=0.05, dictionary=kb.Kors(max_size=60), seed=0)
    generator = np.random.default_rng(1)
    contexts, actions = generator.random((count, COLUMNS)), np.eye(ARMS)[generator.integers(arms, size=count)]
    policy.update_many(contexts[40:], actions[40:], generator.random(count - 40))
    policy.await_many(contexts[:40], actions[:40])
    return policy


def offered(actions, count=120):
    contexts = np.random.default_rng(2).random((count, COLUMNS))
    return np.concatenate(
        [np.repeat(contexts[:, None], len(actions), axis=1), np.broadcast_to(actions, (count, *actions.shape))], axis=2
    )


@pytest.mark.parametrize("offer", [range(ARMS), range(2, ARMS)], ids=["all arms", "some"])
@pytest.mark.parametrize("arms", [ARMS, 5], ids=["all played", "some never played"])
def test_arms_are_evaluated_together_as_each_by_itself(arms, offer):
    posterior = played(kb.Gaussian(0.7), arms).posterior
    points = offered(np.eye(ARMS)[list(offer)])
    together = evaluate_together(posterior.model, points, COLUMNS)
    assert together is not None
    alone = posterior.evaluate(points.reshape(-1, points.shape[2]))
    np.testing.assert_allclose(together.mean, alone.mean, atol=1e-12, rtol=0)
    np.testing.assert_allclose(together.std, alone.std, atol=1e-12, rtol=0)
    assert together.round_index == alone.round_index


def test_arms_that_were_never_played_tie_exactly():
    posterior = played(kb.Gaussian(0.7), arms=5).posterior
    together = evaluate_together(posterior.model, offered(np.eye(ARMS)), COLUMNS)
    means, stds = (values.reshape(-1, ARMS)[:, 5:] for values in (together.mean, together.std))
    assert (means == means[:, :1]).all()
    assert (stds == stds[:, :1]).all()


@pytest.mark.parametrize(
    ("kernel", "actions"),
    [
        (kb.Matern(0.7), np.eye(ARMS)),
        (kb.Gaussian([0.7] * COLUMNS + [0.5 + 0.1 * arm for arm in range(ARMS)]), np.eye(ARMS)),
        (kb.Gaussian(0.7), np.eye(ARMS)[[0, 1, 2, 3, 4, 5, 6, 7, 8, 0]]),
        (kb.Gaussian(0.7), np.random.default_rng(3).random((ARMS, ARMS))),
    ],
    ids=["no product", "unequal arms", "an arm twice", "described actions"],
)
def test_other_offers_are_evaluated_one_by_one(kernel, actions):
    posterior = played(kernel).posterior
    points = offered(actions)
    assert evaluate_together(posterior.model, points, COLUMNS) is None
    np.testing.assert_allclose(
        posterior.evaluate_rounds(points, COLUMNS).std, posterior.evaluate(points.reshape(-1, points.shape[2])).std
    )


def test_a_few_rounds_are_not_worth_it():
    posterior = played(kb.Gaussian(0.7)).posterior
    assert evaluate_together(posterior.model, offered(np.eye(ARMS), count=4), COLUMNS) is None


def test_the_kin_of_actions_are_the_anchors_of_their_arm():
    beside = np.full((3, 6), 0.4)
    beside[[2, 0, 2, 1], [0, 1, 3, 4]] = 1.0
    kin = Kinship.of(beside)
    assert kin.common.tolist() == [0.4] * 6
    assert [kin.anchors[start:stop].tolist() for start, stop in zip(kin.starts, kin.starts[1:], strict=False)] == [
        [1],
        [4],
        [0, 3],
    ]
    np.testing.assert_allclose(kin.extra, 0.6)
    beside[1, 0] = 0.5
    assert Kinship.of(beside) is None
