"""Copies of a policy: whole or refused, and nothing is shared."""

import copy
import pickle

import numpy as np
import pytest
from faults.injection import fingerprint
from faults.scenes import CONTEXTS, KERNEL, NEWER, OFFERS, POLICIES, played

import kernel_bandits as kb


class Unlocked(kb.kernels.Kernel):
    """A kernel at which another thread changes the policy, once, while the policy is copied."""

    def __init__(self):
        self.intrude = None

    def __call__(self, X, Y=None):
        return KERNEL(X, Y)

    def diag(self, X):
        return KERNEL.diag(X)

    def __deepcopy__(self, memo):
        intrude, self.intrude = self.intrude, None
        if intrude is not None:
            intrude()
        return self


COPIES = {"deepcopy": copy.deepcopy, "copy": copy.copy, "pickle": lambda policy: pickle.loads(pickle.dumps(policy))}


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("make", [kb.ek_ucb, kb.k_ucb], ids=["ek_ucb", "k_ucb"])
def test_a_policy_that_changes_while_it_is_copied_is_not_copied(make, copied):
    kernel = Unlocked()
    policy = played(lambda: make(kernel, seed=0), 15)
    kernel.intrude = lambda: policy.update(CONTEXTS[72], [0.9], 0.25)
    with pytest.raises(kb.UnavailableError, match="another thread"):
        COPIES[copied](policy)
    twin = COPIES[copied](policy)
    assert policy.round_index == twin.round_index == 16
    np.testing.assert_array_equal(*(one.predict(CONTEXTS[75], OFFERS[75]).mean for one in (policy, twin)))


@pytest.mark.parametrize("copied", COPIES)
def test_a_table_that_changes_while_it_is_copied_is_not_copied(copied):
    described = {"age": kb.Numeric((0.0, 1.0)), "town": kb.Categorical()}
    kernel, features = Unlocked(), kb.Features(context=described, actions=kb.Arms(["red"]))
    policy = kb.k_ucb(kernel, seed=0, features=features)
    row = {"age": 0.5, "town": "Graz"}
    policy.update(row, "red", 0.5)
    kernel.intrude = lambda: policy.update(row | {"town": "Linz"}, "blue", 0.25)
    with pytest.raises(kb.UnavailableError, match="another thread"):
        COPIES[copied](policy)
    twin = COPIES[copied](policy)
    assert (twin.round_index, twin.arms) == (2, ("red", "blue"))
    np.testing.assert_array_equal(twin.predict(row).mean, policy.predict(row).mean)


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("name", ["ek_ucb", "thompson_sampling", "family_ucb"])
def test_a_copy_of_a_policy_shares_nothing_with_it(name, copied):
    policy = played({**POLICIES, **NEWER}[name], 15)
    before = fingerprint(policy)
    twin = COPIES[copied](policy)
    twin.update(CONTEXTS[72], [0.9], 0.25)
    twin.ask(CONTEXTS[73], OFFERS[73])
    assert fingerprint(policy) == before
    policy.update(CONTEXTS[72], [0.9], 0.25)
    policy.ask(CONTEXTS[73], OFFERS[73])
    assert fingerprint(policy) == fingerprint(twin)
