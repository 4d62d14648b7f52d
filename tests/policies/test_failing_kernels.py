"""A kernel that fails in the middle of a call: the call is as if it had not been, or has done whole decisions."""

import dense
import numpy as np
import pytest

import kernel_bandits as kb


class Failing:
    """A Gaussian kernel whose n-th use from now on fails."""

    def __init__(self):
        self.kernel, self.left = kb.Gaussian(0.2), None

    def _use(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise RuntimeError("the kernel failed")

    def __call__(self, X, Y=None):
        self._use()
        return self.kernel(X, X if Y is None else Y)

    def diag(self, X):
        self._use()
        return self.kernel.diag(X)


FAILING_CALLS = {
    "tell": lambda policy: policy.tell(policy.pending[0], 1.0),
    "expire": lambda policy: policy.expire(policy.pending[0]),
    "update": lambda policy: policy.update([0.5], [0.5], 1.0),
    "ask": lambda policy: policy.ask([0.5], ACTIONS),
}
ACTIONS = np.linspace(0, 1, 5)[:, None]


@pytest.mark.parametrize("call", FAILING_CALLS)
@pytest.mark.parametrize(
    ("preset", "options"),
    [(kb.ek_ucb, {}), (kb.ek_ucb, {"dictionary": kb.Kors(history="none")}), (kb.k_ucb, {}), (kb.cbkb, {})],
    ids=["ek_ucb", "history-free", "k_ucb", "cbkb"],
)
def test_a_kernel_that_fails_leaves_pending_decisions_as_they_were(preset, options, call):
    generator = np.random.default_rng(0)
    for fails_at in range(12):
        kernel = Failing()
        policy = preset(kernel, regularization=0.05, seed=0, **options)
        for x in generator.random(6):
            policy.update([x], [1 - x], x)
        for x in generator.random(4):
            policy.ask([x], ACTIONS)
        pending, rounds_learned, before = policy.pending, policy.round_index, policy.predict([0.4], ACTIONS)
        kernel.left = fails_at
        try:
            FAILING_CALLS[call](policy)
        except RuntimeError:
            kernel.left = None
            after = policy.predict([0.4], ACTIONS)
            assert (policy.pending, policy.round_index) == (pending, rounds_learned)
            np.testing.assert_allclose(after.mean, before.mean, rtol=0, atol=1e-12)
            np.testing.assert_allclose(after.std, before.std, rtol=0, atol=1e-12)
        kernel.left = None
        for key in policy.pending:
            policy.expire(key)
        assert policy.posterior._pending.ahead is policy.posterior._pending.settled


@pytest.mark.parametrize("fails_at", range(1, 40, 2))
def test_a_batch_whose_kernel_fails_keeps_what_was_decided(fails_at):
    kernel = Failing()
    policy = kb.ek_ucb(kernel, regularization=0.01, seed=0)
    generator = np.random.default_rng(1)
    for x in generator.random(6):
        policy.update([x], [1 - x], x)
    asked = [policy.ask([x], ACTIONS).id for x in generator.random(4)]
    kernel.left = fails_at
    try:
        batch = [
            decision.id for decision in policy.select_batch(generator.random((6, 1)), ACTIONS, batch_variance_limit=1e3)
        ]
    except RuntimeError:
        batch = list(policy.pending[4:])
    kernel.left = None
    assert policy.pending == (*asked, *batch)
    for key in policy.pending:
        policy.expire(key)
    points, rewards = policy.observed_points, policy.posterior.observed_rewards
    queries = np.hstack([np.full((5, 1), 0.4), ACTIONS])
    expected = dense.nystrom(kb.Gaussian(0.2), policy.dictionary_points, points, rewards, 0.01, queries)
    if policy.posterior._model.postponed is None and len(batch) == 6:
        np.testing.assert_allclose(policy.predict([0.4], ACTIONS).mean, expected.mean, rtol=0, atol=1e-6)
    assert np.isfinite(policy.predict([0.4], ACTIONS).std).all()
