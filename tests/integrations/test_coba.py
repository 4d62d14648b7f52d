from functools import partial

import coba
import numpy as np
import pytest
from coba.primitives import Categorical
from coba.safety import SafeLearner

import kernel_bandits as kb
from kernel_bandits.integrations.coba import KernelBanditLearner


def kernel():
    return kb.Gaussian(1.0) + kb.Constant(1.0)


def run(environments, learners, record=("reward", "action", "probability")):
    return coba.Experiment(environments, learners, coba.SequentialCB(record=list(record))).run(quiet=True)


def interactions(result):
    """One row per interaction; coba logs what a learner raises and goes on, so none may be missing."""
    return list(result.interactions.to_dicts())


def test_in_coba_s_experiment_next_to_its_own_learners():
    environments = coba.Environments.from_kernel_synthetic(200, seed=[1, 2, 3])
    learners = [
        KernelBanditLearner(kb.ek_ucb(kernel(), seed=0), "EK-UCB"),
        coba.LinUCBLearner(),
        coba.VowpalEpsilonLearner(),
        coba.RandomLearner(),
    ]
    result = run(environments, learners)
    assert len(result.interactions) == 3 * 4 * 200
    assert next(result.learners.to_dicts())["family"] == "EK-UCB"
    table = result.interactions.to_pandas()
    rewards = table.groupby("learner_id")["reward"].mean()
    assert rewards[0] == rewards.max()
    assert rewards[0] > rewards[3] + 0.05


@pytest.mark.parametrize(
    "build",
    [kb.ek_ucb, kb.cbbkb, partial(kb.ek_ucb, exploration_floor=0.5), kb.thompson_sampling],
    ids=["ek_ucb", "cbbkb", "mixture", "thompson_sampling"],
)
def test_choices_and_probabilities_are_those_of_the_policy_played_by_hand(build):
    environment = coba.Environments.from_kernel_synthetic(80, n_actions=4, seed=5)
    rows = interactions(run(environment, [KernelBanditLearner(build(kernel(), seed=3))]))
    policy = build(kernel(), seed=3)
    for interaction, row in zip(environment[0].read(), rows, strict=True):
        decision = policy.select(interaction["context"], interaction["actions"])
        reward = interaction["rewards"](interaction["actions"][decision.index])
        policy.update(interaction["context"], decision.action, reward)
        assert row["reward"] == pytest.approx(reward, abs=1e-5)
        np.testing.assert_allclose(row["action"], decision.action, atol=1e-5)
        assert row.get("probability") == pytest.approx(decision.propensity, abs=1e-5)


def test_a_learner_of_several_environments_starts_anew_in_each():
    environments = coba.Environments.from_kernel_synthetic(50, seed=[1, 2])
    learner = KernelBanditLearner(kb.ek_ucb(kernel(), seed=0))
    both = [row["reward"] for row in interactions(run(environments, [learner]))]
    assert learner.policy.round_index == 0
    alone = [row["reward"] for row in interactions(run(environments[1], [learner]))]
    assert both[50:] == alone
    assert learner.policy.round_index == 50


KINDS = {
    "no context": (coba.Environments.from_kernel_synthetic(40, n_context_features=0), 5),
    "one-hot actions": (coba.Environments.from_kernel_synthetic(40, n_action_features=0), 10),
    "one feature": (coba.Environments.from_kernel_synthetic(40, n_context_features=1, n_action_features=1), 2),
    "two of everything": (coba.Environments.from_kernel_synthetic(40, 2, 2, 2), 4),
    "batches": (coba.Environments.from_kernel_synthetic(40).batch(4), 10),
    "numbers": (coba.Environments.from_lambda(40, lambda i: i / 40, lambda *_: [0, 1, 2], lambda _, __, a: a / 2), 2),
    "categories": (
        coba.Environments.from_lambda(
            40,
            lambda index: (0.5, Categorical("ab"[index % 2], ["a", "b"])),
            lambda *_: [Categorical(level, ["u", "v", "w"]) for level in "uvw"],
            lambda _, __, action: float(action == "v"),
        ),
        6,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_contexts_and_actions_of_every_dense_kind(kind):
    environment, columns = KINDS[kind]
    learner = KernelBanditLearner(kb.ek_ucb(kernel(), seed=0))
    rows = interactions(run(environment, [learner]))
    np.testing.assert_allclose(learner.policy.posterior.observed_rewards, [row["reward"] for row in rows], atol=1e-5)
    assert learner.policy.observed_points.shape == (40, columns)


def test_what_a_kernel_cannot_compare_is_named():
    learner = SafeLearner(KernelBanditLearner(kb.ek_ucb(kernel(), seed=0)))
    with pytest.raises(kb.InputError, match=r"Environments\.dense"):
        learner.predict({"age": 3}, [[1.0], [2.0]])
    with pytest.raises(kb.InputError, match="action: expected real numbers, got str"):
        learner.predict([1.0], ["left", "right"])
    with pytest.raises(kb.InputError, match="as many numbers for each action"):
        learner.predict([1.0], [[1.0], [2.0, 3.0]])


def test_names():
    assert KernelBanditLearner(kb.uniform(seed=0)).params == {"family": "Uniform"}
    assert SafeLearner(KernelBanditLearner(kb.uniform(seed=0), "chance")).full_name == "chance"
