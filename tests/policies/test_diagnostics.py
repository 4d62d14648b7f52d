"""What a policy says of itself."""

import numpy as np
import pytest
from test_policy_contract import VARIANTS, build, rounds, variant_name

import kernel_bandits as kb
from kernel_bandits.persistence import memory_of


def play(policy, count=40):
    for context, actions, noise in rounds(count):
        decision = policy.select(context, actions)
        policy.update(context, decision.action, float(np.sin(3 * decision.action[0]) + noise))
    return policy


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_name)
def test_diagnostics_agree_with_the_models(variant):
    policy = play(build(variant[0], **variant[1]))
    diagnostics = policy.diagnostics()
    models = policy.posteriors
    assert diagnostics.dictionary_size == policy.dictionary_size
    assert diagnostics.observations == policy.round_index == 40
    assert diagnostics.effective_dimension == pytest.approx(sum(model.effective_dimension for model in models))
    assert diagnostics.information_gain == pytest.approx(sum(model.information_gain for model in models))
    assert diagnostics.residual >= 0.0
    assert 0.0 <= diagnostics.drift < 1e-6
    assert diagnostics.pending == 0
    assert {diagnostics.kernel} >= {model.kernel for model in models}
    assert {diagnostics.regularization} >= {model.regularization for model in models}
    assert bool(diagnostics.kernel_changes) == ("learn_kernel" in variant[1])


def test_a_dictionary_no_smaller_than_the_history_is_named():
    """m ≥ 0.8·t from 500 rewards on, where a lengthscale was chosen; K-UCB carries all points by definition."""
    generator = np.random.default_rng(0)
    contexts, actions, rewards = generator.random((600, 2)), generator.random((600, 1)), generator.normal(size=600)

    def warnings(policy, count=600):
        policy.update_many(contexts[:count], actions[:count], rewards[:count])
        return policy.dictionary_size, " ".join(policy.diagnostics().warnings)

    size, short = warnings(kb.ek_ucb(kb.Gaussian(0.01), seed=0))
    assert size == 600
    assert "600 anchors for 600 observations: a longer lengthscale, a larger λ, or k_ucb" in short
    assert "anchors" not in warnings(kb.ek_ucb(kb.Gaussian(0.01), seed=0), 400)[1]
    size, long = warnings(kb.ek_ucb(kb.Gaussian(0.5), seed=0))
    assert 10 < size < 480
    assert "anchors" not in long
    assert "anchors" not in warnings(kb.k_ucb(kb.Gaussian(0.01), seed=0))[1]


def test_memory_counts_every_array_once():
    policy = kb.ek_ucb(kb.Gaussian(0.5), seed=0)
    play(policy)
    m = policy.dictionary_size
    # J, P and Q, of which up to 16 + m/16 columns stand beside the older block, and A and L, half of each at least;
    # one block of the history and of the rows of anchors in it; and little else, such as what waits for A
    waiting, history = 16 + m // 16, 512 * 4 + 512
    least = 8 * (3 * (m * m - m * waiting + waiting**2) + m * m + history)
    most = 8 * (4.5 * m * m + 3 * m * waiting + history)
    assert least <= policy.diagnostics().memory_bytes <= 1.3 * most
    numbers = np.zeros(1000)
    assert memory_of({"view": numbers[10:20], "same": (numbers, [numbers])}) == 8000


@pytest.mark.parametrize("name", ["ek_ucb", "k_ucb", "cbkb", "thompson_sampling", "ek_ucb-history-free"])
def test_contributions_add_up_to_the_mean(name):
    preset, _, history = name.partition("-")
    policy = play(build(preset, **({"dictionary": kb.Kors(history="none")} if history else {})))
    context, actions, _ = next(rounds(1, seed=9))
    decision = policy.select(context, actions)
    everything = policy.explain(decision, count=1000)
    assert everything.mean == pytest.approx(decision.mean, abs=1e-9)
    assert everything.rest == pytest.approx(0.0, abs=1e-9)
    assert everything.exploration == pytest.approx(decision.upper_bound - decision.mean, abs=1e-9)
    few = policy.explain(decision, count=3)
    assert len(few.points) == len(few.contributions) == 3
    assert few.contributions.sum() + few.rest == pytest.approx(decision.mean, abs=1e-9)
    assert (np.abs(few.contributions[:-1]) >= np.abs(few.contributions[1:])).all()
    if history:
        assert few.rewards is None
    else:
        assert len(few.rewards) == 3


def test_the_nearest_observation_speaks_loudest():
    policy = kb.ek_ucb(kb.Gaussian(0.05), regularization=0.01, seed=0)
    for action, reward in ((0.1, 1.0), (0.5, 3.0), (0.9, -2.0)):
        policy.update([0.2], [action], reward)
    explanation = policy.explain(policy.select([0.2], [[0.52]]), count=1)
    np.testing.assert_array_equal(explanation.points, [[0.2, 0.5]])
    np.testing.assert_array_equal(explanation.rewards, [3.0])


def test_what_cannot_be_explained():
    policy = play(kb.lin_ucb(seed=0))
    context, actions, _ = next(rounds(1))
    with pytest.raises(kb.UnavailableError, match="explicit features"):
        policy.explain(policy.select(context, actions))
    with pytest.raises(kb.InputError, match="expected what select or ask returned"):
        play(kb.ek_ucb(kb.Gaussian(0.5), seed=0)).explain(3)
    policy = play(kb.ek_ucb(kb.Gaussian(0.5), seed=0))
    decision = policy.select(context, actions)
    with pytest.raises(kb.InputError, match="count"):
        policy.explain(decision, count=0)


def test_diagnostics_in_words():
    policy = kb.ek_ucb(seed=0)
    for number in range(16):
        policy.update([0.1 * (number % 7)], [0.3 * (number % 5)], np.sin(number))
    policy.ask([0.1], [[0.3], [0.6]])
    state = policy.diagnostics()
    lines = str(state).splitlines()
    assert lines[0] == "learned: 16 rewards; 1 decision without one"
    shares = dict(state.kernel_changes[-1].shares)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert lines[1].startswith(f"explained: {1.0 - shares['noise']:.0%} of how rewards differ (")
    assert f"expected where nothing is known: {state.prior_mean:.3g}" in lines
    ratios = state.kernel_changes[-1].relative_lengthscales
    assert lines[-1] == f"lengthscales over the spread of their columns: {ratios[0]:.3g}, {ratios[1]:.3g}"
    assert "kernel" not in str(kb.uniform(seed=0).diagnostics())


def test_diagnostics_say_whether_rewards_are_as_predicted():
    calm, sure = (kb.k_ucb(kb.Gaussian(0.5), regularization=noise, seed=0) for noise in (1.0, 0.01))
    generator = np.random.default_rng(0)
    assert "as predicted: not known yet" in str(calm.diagnostics())
    for _ in range(100):
        action, reward = generator.random(1), generator.standard_normal()
        for policy in (calm, sure):
            policy.update([], action, float(reward))
    assert "as predicted: yes; errors are" in str(calm.diagnostics())
    assert "as predicted: no, a model that is too sure of itself" in str(sure.diagnostics())


EXPLAINED = {
    "ek_ucb": kb.ek_ucb,
    "k_ucb": kb.k_ucb,
    "resampled": lambda seed: kb.ek_ucb(dictionary=kb.Resampling(), seed=seed),
    "resampled, given": lambda seed: kb.ek_ucb(
        kb.Gaussian(0.5), learn_kernel=True, dictionary=kb.Resampling(), seed=seed
    ),
    "window": lambda seed: kb.ek_ucb(forgetting=kb.Window(20), seed=seed),
    "thompson_sampling": kb.thompson_sampling,
}


@pytest.mark.parametrize("repeats", [False, True], ids=["different", "repeated"])
@pytest.mark.parametrize("actions", [np.eye(3), np.array([[0.0], [0.5], [1.0]])], ids=["arms", "described"])
@pytest.mark.parametrize("name", EXPLAINED)
def test_the_rewards_of_an_explanation_are_those_of_its_points(name, actions, repeats):
    policy, generator, earned = EXPLAINED[name](seed=0), np.random.default_rng(0), {}
    for number in range(30):
        context = np.array([number % 3 / 2.0]) if repeats else generator.random(1)
        decision = policy.select(context, actions)
        reward = 10.0 * decision.index + generator.random()
        policy.update(context, decision.action, reward)
        earned.setdefault((*context, *decision.action), []).append(reward)
    explanation = policy.explain(policy.select([0.5], actions), count=1000)
    assert len(explanation.points) == len(explanation.rewards) > 0
    for point, reward in zip(explanation.points, explanation.rewards, strict=True):
        known = earned[tuple(point)]
        assert any(reward == pytest.approx(each, rel=1e-9) for each in [*known, np.mean(known)])


def test_without_a_history_an_arm_that_was_never_played_is_explained_by_nothing():
    policy = kb.ek_ucb(dictionary=kb.Kors(history="none"), seed=0)
    policy.update([0.5], [1.0, 0.0], 1.0)
    decision = policy.select([0.5], [[0.0, 1.0]])
    explanation = policy.explain(decision)
    assert (len(explanation.points), explanation.rewards, explanation.mean) == (0, None, decision.mean)
