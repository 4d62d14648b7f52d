"""A kernel that fails in the middle of a call: the call is as if it had not been."""

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
    "ask_many": lambda policy: policy.ask_many([[0.5], [0.6], [0.1]], ACTIONS),
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
        posterior = policy.posterior
        assert posterior.log_determinant_with_pending == pytest.approx(posterior.log_determinant, abs=1e-12)
