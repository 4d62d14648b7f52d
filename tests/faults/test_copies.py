"""Copies of a policy: of one moment, and nothing is shared."""

import copy
import pickle

import numpy as np
import pytest
from faults.injection import fingerprint
from faults.scenes import CONTEXTS, KERNEL, OFFERS, POLICIES, played

import kernel_bandits as kb


class Watched(kb.kernels.Kernel):
    """A kernel at which somebody changes the policy, once, while the policy is copied."""

    intrude = None

    def __call__(self, X, Y=None):
        return KERNEL(X, Y)

    def diag(self, X):
        return KERNEL.diag(X)

    def __reduce_ex__(self, protocol):
        intrude, Watched.intrude = Watched.intrude, None
        if intrude is not None:
            intrude()
        return Watched, ()


COPIES = {"deepcopy": copy.deepcopy, "copy": copy.copy, "pickle": lambda policy: pickle.loads(pickle.dumps(policy))}


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("make", [kb.ek_ucb, kb.k_ucb], ids=["ek_ucb", "k_ucb"])
def test_a_policy_that_changes_while_it_is_copied_is_copied_as_it_was(make, copied, monkeypatch):
    policy = played(lambda: make(Watched(), seed=0), 15)
    before = policy.predict(CONTEXTS[75], OFFERS[75])
    monkeypatch.setattr(Watched, "intrude", lambda: policy.update(CONTEXTS[72], [0.9], 0.25))
    twin = COPIES[copied](policy)
    assert (policy.round_index, twin.round_index) == (16, 15)
    np.testing.assert_array_equal(twin.predict(CONTEXTS[75], OFFERS[75]).mean, before.mean)
    np.testing.assert_array_equal(twin.predict(CONTEXTS[75], OFFERS[75]).std, before.std)
    # both have the same past and may learn the same from here on
    twin.update(CONTEXTS[72], [0.9], 0.25)
    found, expected = (one.predict(CONTEXTS[75], OFFERS[75]) for one in (twin, policy))
    np.testing.assert_array_equal(found.mean, expected.mean)


@pytest.mark.parametrize("copied", COPIES)
def test_a_table_that_changes_while_it_is_copied_knows_what_its_model_has_learned(copied, monkeypatch):
    described = {"age": kb.Numeric((0.0, 1.0)), "town": kb.Categorical()}
    features = kb.Features(context=described, actions=kb.Arms(["red"]))
    policy = kb.k_ucb(Watched(), seed=0, features=features)
    row = {"age": 0.5, "town": "Graz"}
    policy.update(row, "red", 0.5)
    monkeypatch.setattr(Watched, "intrude", lambda: policy.update(row | {"town": "Linz"}, "blue", 0.25))
    twin = COPIES[copied](policy)
    assert policy.arms == ("red", "blue")
    for one in (policy, twin):
        one.update(row | {"town": "Wien"}, "green", 0.75)
        # every arm and every town has a vector of its own
        assert len(np.unique(one.observed_points[:, -one.dimensions[1] :], axis=0)) == one.round_index
        assert len(np.unique(one.observed_points[:, : one.dimensions[0]], axis=0)) == one.round_index


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("name", ["ek_ucb", "thompson_sampling", "family_ucb"])
def test_a_copy_of_a_policy_shares_nothing_with_it(name, copied):
    policy = played(POLICIES[name], 15)
    before = fingerprint(policy)
    twin = COPIES[copied](policy)
    twin.update(CONTEXTS[72], [0.9], 0.25)
    twin.ask(CONTEXTS[73], OFFERS[73])
    assert fingerprint(policy) == before
    policy.update(CONTEXTS[72], [0.9], 0.25)
    policy.ask(CONTEXTS[73], OFFERS[73])
    assert fingerprint(policy) == fingerprint(twin)
