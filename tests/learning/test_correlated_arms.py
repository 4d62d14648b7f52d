"""Named arms that say something of each other: opposite, alike, or nothing."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import kernel_bandits as kb
from kernel_bandits.learning import defaults
from kernel_bandits.learning.columns import Columns
from kernel_bandits.learning.defaults import MOST_CORRELATED_ARMS
from kernel_bandits.learning.evidence import Block, Similarity, log_evidence
from kernel_bandits.learning.mixed import MixedSample
from kernel_bandits.numerics.packed import pack, unpack


def block(seed=0, count=20, arms=3):
    generator = np.random.default_rng(seed)
    contexts, arm = generator.normal(size=(count, 2)), generator.integers(arms, size=count)
    other_arm = pack((arm[:, None] != arm).astype(float))
    rewards = generator.normal(size=count)
    similarity = Similarity.of(contexts, 2)
    return Block(similarity, contexts, pack(contexts @ contexts.T), None, rewards, other_arm)


PARAMETERS = np.log([0.3, 0.2, 0.1, 0.5, 0.8, 0.2, 1.3])


def test_evidence_is_that_of_the_dense_gaussian():
    each = block()
    bias, linear, decorrelated, smooth, length, noise, contrast = np.exp(PARAMETERS)
    x = each.contexts.columns
    r = np.sqrt(5.0 / 2.0) / length * np.linalg.norm(x[:, None] - x, axis=2)
    contexts = bias + (linear / 2.0 + decorrelated) * (x @ x.T)
    contexts = contexts + smooth * (1.0 + r + r**2 / 3.0) * np.exp(-r)
    covariance = contexts * (1.0 - contrast * unpack(each.other_arm, 20)) + noise * np.eye(20)
    evidence = log_evidence(PARAMETERS, [each], mean_precision=0.0)
    expected = multivariate_normal(np.full(20, evidence.mean), covariance).logpdf(each.rewards)
    assert evidence.value == pytest.approx(expected, abs=1e-8)


def fitted(effect, arms, count=300, seed=0):
    """The model of rewards whose expectation is effect(context, arm)."""
    generator = np.random.default_rng(seed)
    contexts, arm = generator.normal(size=(count, 3)), generator.integers(arms, size=count)
    rewards = np.array([effect(x, a) for x, a in zip(contexts, arm, strict=True)])
    rewards = rewards + 0.3 * generator.normal(size=count)
    points = np.hstack([contexts, np.eye(arms)[arm]])
    return MixedSample(points, rewards, Columns(3), True, None).fit(None)


DIRECTIONS = np.random.default_rng(1).normal(size=(6, 3))


@pytest.mark.parametrize(
    ("effect", "arms", "low", "high"),
    [
        (lambda x, a: (1.0 - 2.0 * a) * np.sin(x @ DIRECTIONS[0]), 2, -1.0, -0.9),
        (lambda x, a: np.sin(x @ DIRECTIONS[a]), 2, -0.5, 0.5),
        (lambda x, a: np.sin(x @ DIRECTIONS[0]) + 0.1 * a, 2, 0.8, 1.0),
        (lambda x, a: float(np.argmax(DIRECTIONS[:3] @ x) == a), 3, -0.5, -0.3),
    ],
)
def test_the_correlation_of_arms_is_learned(effect, arms, low, high):
    assert low <= fitted(effect, arms).correlation <= high


def test_many_arms_are_carried_apart():
    arms = MOST_CORRELATED_ARMS + 1
    model = fitted(lambda x, a: float(np.argmax(DIRECTIONS[:arms] @ x) == a), arms)
    assert model.correlation == 0.0
    assert isinstance(model.kernel, kb.PerArm)


def test_the_kernel_is_positive_semidefinite_with_arms_never_seen():
    generator = np.random.default_rng(0)
    contexts, arm = generator.normal(size=(200, 2)), generator.integers(2, size=200)
    points = np.hstack([contexts, np.eye(4)[arm]])
    rewards = (1.0 - 2.0 * arm) * contexts[:, 0] + 0.1 * generator.normal(size=200)
    model = MixedSample(points, rewards, Columns(2), True, None).fit(None)
    everyone = np.hstack([np.repeat(contexts[:10], 4, axis=0), np.tile(np.eye(4), (10, 1))])
    gram = model.kernel(everyone)
    assert np.linalg.eigvalsh(gram).min() > -1e-9
    same_context = gram[:4, :4] / gram[0, 0]
    assert same_context[0, 1] == pytest.approx(model.correlation)
    assert same_context[0, 1] < -0.9
    np.testing.assert_array_equal(same_context[2:, :2], 0.0)


def sample_of(arms, count=80, seed=0):
    """Rewards of arms of which the first two are opposites and the third is like the first."""
    generator = np.random.default_rng(seed)
    contexts, arm = generator.normal(size=(count, 2)), generator.integers(arms, size=count)
    rewards = np.array([1.0, -1.0, 1.0])[arm] * np.sin(contexts).sum(axis=1) + 0.1 * generator.normal(size=count)
    return MixedSample(np.hstack([contexts, np.eye(3)[arm]]), rewards, Columns(2), True, None)


def test_two_opposite_arms_may_be_joined_by_a_third():
    before = sample_of(2).fit(None)
    assert before.correlation < -0.9
    sample = sample_of(3)
    found = sample.fit(before)
    # three arms cannot all be opposites
    assert found.correlation > -0.5
    assert np.isfinite(sample.evidence_gained(found, before))
    assert sample.evidence_gained(before, found) == -sample.evidence_gained(found, before)


def test_evidence_is_gained_on_the_same_observations(monkeypatch):
    monkeypatch.setattr(defaults, "CORRELATED_SAMPLE_SIZE", 30)
    sample = sample_of(2)
    correlated = sample.fit(None)
    apart = replace(correlated, parameters=correlated.parameters[:-1])
    barely = replace(correlated, parameters=np.append(apart.parameters, 1e-6))
    assert correlated.correlation < -0.9
    assert barely.correlation < 0.0 == apart.correlation
    assert sample.evidence_gained(apart, barely) == pytest.approx(0.0, abs=1e-3)
    assert sample.evidence_gained(correlated, barely) > 1.0


def right_or_wrong(policy, rounds, seed=0):
    """Play a table of two classes; return how often the right one was played in the second half."""
    generator, right = np.random.default_rng(seed), 0
    for step in range(rounds):
        context = generator.normal(size=5)
        best = int(context[0] * context[1] + context[2] > 0.0)
        decision = policy.select(context, np.eye(2))
        policy.update(context, decision.action, float(decision.index == best))
        right += (decision.index == best) * (step >= rounds // 2)
    return right / (rounds - rounds // 2)


def test_nothing_set_finds_that_one_arm_is_right_where_the_other_is_wrong():
    correlations = []
    for seed in range(3):
        policy = kb.ek_ucb(seed=seed)
        assert right_or_wrong(policy, 400, seed) > 0.8
        correlations.append(policy.posterior.kernel_changes[-1].arm_correlation)
    # a run that is nearly always right sees little of what the other arm would have earned
    assert np.median(correlations) < -0.7


def test_correlated_arms_are_saved_and_resumed(tmp_path):
    policy = kb.ek_ucb(seed=0)
    right_or_wrong(policy, 150)
    assert policy.posterior.kernel_changes[-1].arm_correlation < -0.5
    policy.save(tmp_path / "policy.kb")
    twin = kb.load(tmp_path / "policy.kb")
    for context in np.random.default_rng(2).normal(size=(20, 5)):
        assert policy.select(context, np.eye(2)).mean == twin.select(context, np.eye(2)).mean


def test_correlated_arms_wait_for_late_rewards():
    generator, policy, waiting, right = np.random.default_rng(0), kb.ek_ucb(seed=0), [], 0
    for step in range(400):
        context = generator.normal(size=3)
        decision = policy.ask(context, np.eye(2))
        best = int(context[0] > 0.0)
        waiting.append((decision, float(decision.index == best)))
        right += (decision.index == best) * (step >= 200)
        if len(waiting) > 20:
            decision, reward = waiting.pop(0)
            policy.tell(decision.id, reward)
    assert right / 200 > 0.85
    assert min(change.arm_correlation for change in policy.posterior.kernel_changes) < -0.5
