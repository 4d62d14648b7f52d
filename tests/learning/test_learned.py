"""A posterior that learns its kernel: the same numbers as one built with that kernel, and when and how it changes."""

import dataclasses
import math

import dense
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernel_bandits as kb
from kernel_bandits.posterior import ExactPosterior
from kernel_bandits.values import evolve


def learning(preset, **defaults):
    """A preset that, without a kernel, learns a Matérn kernel from scratch."""

    def build(*kernel, learn_kernel=None, **options):
        if kernel:
            return preset(*kernel, learn_kernel=learn_kernel, **{**defaults, **options})
        fresh = dataclasses.replace(learn_kernel or kb.KernelLearning(), from_scratch=True)
        return preset(kb.Matern(), learn_kernel=fresh, **{**defaults, **options})

    return build


ek_ucb, k_ucb = learning(kb.ek_ucb), learning(kb.k_ucb)
PRESETS = {
    "ek_ucb": ek_ucb,
    "k_ucb": k_ucb,
    "history-free": learning(kb.ek_ucb, dictionary=kb.Kors(history="none")),
}


def reward(point, generator, noise=0.1):
    return 2.0 + math.sin(6.0 * point[0]) * math.cos(3.0 * point[-1]) + noise * generator.normal()


def from_scratch(posterior):
    """Return the exact posterior of what a learned one has observed, with its kernel, λ and prior mean."""
    centred = posterior.observed_rewards - posterior.prior_mean
    return ExactPosterior(posterior.kernel, posterior.regularization).learned(posterior.observed_points, centred)


def play(policy, count, seed=0, reward=reward, scale=1.0, height=1.0):
    """Decisions of a run in which contexts (2,) and rewards are multiplied by constants."""
    generator = np.random.default_rng(seed)
    decisions = []
    for _ in range(count):
        context, actions = generator.random(2), generator.random((6, 1))
        decision = policy.select(scale * context, actions)
        point = np.append(context, decision.action)
        policy.update(scale * context, decision.action, height * reward(point, generator))
        decisions.append(decision)
    return decisions


def test_predictions_are_those_of_the_learned_kernel_from_scratch():
    policy = k_ucb(seed=0)
    play(policy, 100)
    posterior = policy.posterior
    scratch = from_scratch(posterior)
    generator = np.random.default_rng(1)
    context, actions = generator.random(2), generator.random((50, 1))
    prediction, expected = policy.predict(context, actions), scratch.predict(kb.actions.pair(context, actions))
    np.testing.assert_allclose(prediction.mean, expected.mean + posterior.prior_mean, atol=1e-9)
    np.testing.assert_allclose(prediction.std, expected.std, atol=1e-9)
    for quantity in ("log_determinant", "effective_dimension", "residual_trace", "round_index"):
        assert getattr(posterior, quantity) == pytest.approx(getattr(scratch, quantity), abs=1e-8)
    # and they are good
    truth = [reward(np.append(context, action), generator, noise=0.0) for action in actions]
    assert np.abs(prediction.mean - truth).mean() < 0.15


@pytest.mark.parametrize("name", PRESETS)
def test_a_policy_without_a_kernel_simply_works(name):
    policy = PRESETS[name](seed=0)
    first = policy.select([3.0, 4.0], [[0.1], [0.2]])
    assert (first.mean, first.std) == (0.0, 1.0)
    decisions = play(policy, 150)
    late = [decision.mean for decision in decisions[-30:]]
    assert np.mean(late) > np.mean([decision.mean for decision in decisions[20:50]]) - 0.2
    assert 0.03 < policy.posterior.regularization**0.5 < 0.3
    assert policy.posterior.prior_mean == pytest.approx(2.0, abs=1.0)


@pytest.mark.parametrize(("scale", "height"), [(1000.0, 1000.0), (1.0 / 4096.0, 1.0), (1.0, 1e-6)])
@pytest.mark.parametrize("name", PRESETS)
def test_the_units_of_the_data_do_not_matter(name, scale, height):
    """The same actions are played, and the kernel and every number the user sees come in the new units."""
    plain, scaled = PRESETS[name](seed=0), PRESETS[name](seed=0)
    # before anything is learned the units are unknown: both start from the same log
    generator = np.random.default_rng(5)
    contexts, actions = generator.random((20, 2)), generator.random((20, 1))
    rewards = np.array([reward(point, generator) for point in np.hstack([contexts, actions])])
    plain.update_many(contexts, actions, rewards)
    scaled.update_many(scale * contexts, actions, height * rewards)
    one, other = play(plain, 130), play(scaled, 130, scale=scale, height=height)
    assert [decision.index for decision in one] == [decision.index for decision in other]
    for quantity in ("mean", "std", "upper_bound"):
        np.testing.assert_allclose(
            [height * getattr(decision, quantity) for decision in one],
            [getattr(decision, quantity) for decision in other],
            rtol=1e-6,
        )
    np.testing.assert_allclose(
        scaled.posterior.kernel.right.lengthscale, [scale, scale, 1.0] * plain.posterior.kernel.right.lengthscale
    )
    np.testing.assert_allclose(scaled.dictionary_points, [scale, scale, 1.0] * plain.dictionary_points)
    assert scaled.posterior.regularization == pytest.approx(height**2 * plain.posterior.regularization)
    told, expected = (policy.explain(decision) for policy, decision in ((scaled, other[-1]), (plain, one[-1])))
    for quantity in ("mean", "exploration", "contributions", "rest"):
        np.testing.assert_allclose(
            getattr(told, quantity), height * getattr(expected, quantity), rtol=1e-4, atol=1e-6 * height
        )
    ours, theirs = scaled.diagnostics(), plain.diagnostics()
    assert ours.prior_mean == pytest.approx(height * theirs.prior_mean)
    assert ours.residual == pytest.approx(height**2 * theirs.residual, rel=1e-4, abs=1e-9 * height**2)
    # evidence and information are pure numbers
    for quantity in ("effective_dimension", "information_gain"):
        assert getattr(ours, quantity) == pytest.approx(getattr(theirs, quantity), rel=1e-6)
    np.testing.assert_allclose(
        [change.evidence_gained for change in ours.kernel_changes],
        [change.evidence_gained for change in theirs.kernel_changes],
        rtol=1e-3,
    )


def test_the_kernel_changes_at_doubling_times_alone_and_every_change_is_told():
    policy = kb.ek_ucb(kb.Gaussian(5.0), learn_kernel=kb.KernelLearning(first_round=5, growth=2.0), seed=0)
    generator = np.random.default_rng(0)
    kernels = [policy.posterior.kernel]
    for _ in range(170):
        context, actions = generator.random(2), generator.random((6, 1))
        decision = policy.select(context, actions)
        policy.update(context, decision.action, reward(np.append(context, decision.action), generator))
        kernels.append(policy.posterior.kernel)
    changed = [t for t in range(1, 171) if kernels[t] is not kernels[t - 1]]
    assert changed == [change.round_index for change in policy.posterior.kernel_changes]
    assert set(changed) <= {5, 10, 20, 40, 80, 160}
    assert changed
    assert [kernels[t] for t in changed] == [change.kernel for change in policy.posterior.kernel_changes]
    assert all(change.evidence_gained >= 1.0 for change in policy.posterior.kernel_changes)
    assert policy.posterior.kernel_changes[-1].regularization == policy.posterior.regularization
    assert isinstance(kernels[-1].right, kb.Gaussian)


def test_what_a_change_of_kernel_gained_is_a_number_of_nats_but_for_the_first():
    generator = np.random.default_rng(0)
    points = generator.random((40, 2))
    rewards = np.sin(6.0 * points[:, 0]) + 0.1 * generator.normal(size=40)
    unknown, given = (
        policy.posterior.learned(points, rewards)
        for policy in (kb.k_ucb(seed=0), kb.k_ucb(kb.Gaussian(5.0), learn_kernel=True, seed=0))
    )
    # where nothing was known before, there is nothing to compare with
    first, *later = (change.evidence_gained for change in unknown.kernel_changes)
    assert first == np.inf
    assert len(later) > 0
    assert np.isfinite(later).all()
    gains = [change.evidence_gained for change in given.kernel_changes]
    assert len(gains) > 0
    assert np.isfinite(gains).all()


@pytest.mark.parametrize("rule", [kb.Kors(), kb.PosteriorVariance(), kb.Kors(max_size=7)], ids=str)
def test_late_rewards_survive_a_change_of_dictionary(rule):
    """With decisions pending all the time, the posterior is the dense one of the kernel and anchors it has now."""
    policy = ek_ucb(seed=0, dictionary=rule)
    generator = np.random.default_rng(0)
    waiting = []
    for number in range(140):
        context, actions = generator.random(2), generator.random((6, 1))
        decision = policy.ask(context, actions)
        waiting.append((decision.id, np.append(context, decision.action)))
        if number >= 5:
            # told out of order
            key, point = waiting.pop(int(generator.integers(len(waiting))))
            policy.tell(key, reward(point, generator))
    posterior = policy.posterior
    assert len(posterior.kernel_changes) >= 3
    # some of what was told waits for earlier decisions
    points, rewards = posterior.observed_points, posterior.observed_rewards
    assert len(points) > 120
    queries = generator.random((20, 3))
    arguments = (posterior.regularization, queries)
    told = dense.nystrom(
        posterior.kernel, posterior.dictionary_points, points, rewards - posterior.prior_mean, *arguments
    )
    everything = np.vstack([points, *posterior.awaited_points.values()])
    assert len(everything) == 140
    asked = dense.nystrom(
        posterior.kernel, posterior.dictionary_points, everything, np.zeros(len(everything)), *arguments
    )
    prediction = posterior.predict(queries)
    np.testing.assert_allclose(prediction.mean, told.mean + posterior.prior_mean, atol=1e-8)
    np.testing.assert_allclose(prediction.std, asked.std, atol=1e-8)


@pytest.mark.parametrize("history", ["all", "none"])
def test_a_dictionary_that_is_empty_when_the_kernel_is_learned(history):
    learning = kb.KernelLearning(first_round=8, sample_size=4)
    policy = ek_ucb(seed=0, dictionary=kb.Kors(leverage_regularization=1e6, history=history), learn_kernel=learning)
    play(policy, 7)
    assert policy.dictionary_size == 0
    play(policy, 20, seed=1)
    assert policy.posterior.round_index == 27
    assert policy.posterior.kernel_changes


def test_rewards_that_are_mostly_noise_are_taken_for_noise():
    """A kernel so rough that no reward tells of another explains them as well, makes every point an anchor and
    learns nothing."""
    policy = ek_ucb(seed=0)
    generator = np.random.default_rng(0)
    for _ in range(300):
        context, actions = generator.random(4), generator.random((6, 1))
        decision = policy.select(context, actions)
        policy.update(context, decision.action, -2.0 * abs(float(decision.action[0]) - 0.3) + generator.normal())
    assert policy.dictionary_size < 200
    assert policy.posterior.regularization**0.5 == pytest.approx(1.0, abs=0.2)
    grid = np.linspace(0.0, 1.0, 21)[:, None]
    means = np.mean([policy.predict(generator.random(4), grid).mean for _ in range(50)], axis=0)
    assert grid[means.argmax(), 0] < 0.6


def test_relative_lengthscales_tell_the_columns_that_matter():
    """In whatever units: of four columns one is noise and one never varies."""
    generator = np.random.default_rng(0)
    policy = ek_ucb(seed=0)
    for _ in range(260):
        context, actions = np.append(1000.0 * generator.random(2), 5.0), generator.random((6, 1))
        decision = policy.select(context, actions)
        policy.update(context, decision.action, math.sin(0.006 * context[0]) * math.cos(3.0 * decision.action[0]))
    last = policy.diagnostics().kernel_changes[-1]
    shares = np.array(last.relative_lengthscales)
    assert (shares[[0, 3]] < 3.0).all()
    assert shares[1] > 5.0
    assert shares[2] == math.inf
    # played contexts are uniform on an interval of length 1000
    assert shares[0] == pytest.approx(policy.posterior.kernel.right.lengthscale[0] / 1000.0, rel=0.1)
    assert f"columns: {shares[0]:.3g}, {shares[1]:.3g}, inf, {shares[3]:.3g}" in str(policy.diagnostics())


def streams():
    """Rewards of very different nature at random points, 3 columns."""
    return st.tuples(
        st.integers(0, 10**6),
        st.sampled_from(["smooth", "noise", "constant", "step", "outliers"]),
        st.sampled_from([0.01, 0.3, 10.0]),
        st.sampled_from([1e-3, 1.0, 1e3]),
    )


def rewards_of(kind, points, generator):
    noise = 0.1 * generator.normal(size=len(points))
    return {
        "smooth": np.sin(4 * points[:, 0]) + noise,
        "noise": 10 * noise,
        "constant": np.full(len(points), 0.7),
        "step": (points[:, 0] > points[:, 2]) + noise,
        "outliers": noise + 20.0 * (generator.random(len(points)) < 0.05),
    }[kind]


@settings(max_examples=25, deadline=None)
@given(stream=streams(), preset=st.sampled_from(["ek_ucb", "k_ucb"]))
def test_widths_never_shrink_by_a_change_of_kernel_without_the_evidence_for_it(stream, preset):
    """No variance falls by more than the Bayes factor of the change, at any observed point."""
    seed, kind, lengthscale, height = stream
    generator = np.random.default_rng(seed)
    points = generator.random((66, 3))
    rewards = height * rewards_of(kind, points, generator)
    posterior = PRESETS[preset](kb.Gaussian(lengthscale), learn_kernel=True, seed=seed).posterior
    for t in range(66):
        known = len(posterior.kernel_changes)
        frozen, posterior = (each.updated(points[t], rewards[t]) for each in (evolve(posterior, _next=None), posterior))
        if len(posterior.kernel_changes) > known:
            before, after = frozen.predict(points[: t + 1]).std, posterior.predict(points[: t + 1]).std
            gained = posterior.kernel_changes[-1].evidence_gained
            assert (2 * np.log(before / after) <= gained + 1e-6).all()
        else:
            np.testing.assert_array_equal(posterior.predict(points).std, frozen.predict(points).std)


def test_late_rewards_survive_a_change_of_kernel():
    """Pending points are carried over: once all are told, the posterior is the one built from scratch."""
    policy = k_ucb(seed=0)
    generator = np.random.default_rng(0)
    waiting, told = [], 0
    for _ in range(60):
        context, actions = generator.random(2), generator.random((6, 1))
        waiting.append(policy.ask(context, actions))
        if len(waiting) == 7:
            decision = waiting.pop(int(generator.integers(7)))
            policy.tell(decision.id, reward(np.append(decision.context, decision.action), generator))
            told += 1
    policy.expire(waiting.pop().id)
    for decision in waiting:
        policy.tell(decision.id, reward(np.append(decision.context, decision.action), generator))
    posterior = policy.posterior
    assert posterior.round_index == told + 5
    assert len(posterior.kernel_changes) >= 2
    scratch = from_scratch(posterior)
    points = generator.random((20, 3))
    np.testing.assert_allclose(
        posterior.predict(points).mean, scratch.predict(points).mean + posterior.prior_mean, atol=1e-8
    )
    np.testing.assert_allclose(posterior.predict(points).std, scratch.predict(points).std, atol=1e-8)


def test_without_a_history_the_kernel_is_learned_in_a_warm_up_and_then_frozen():
    policy = ek_ucb(dictionary=kb.Kors(history="none"), learn_kernel=kb.KernelLearning(warm_up=64), seed=0)
    play(policy, 64)
    kernel, changes = policy.posterior.kernel, policy.posterior.kernel_changes
    assert changes
    held = policy.diagnostics().memory_bytes
    play(policy, 300, seed=1)
    assert policy.posterior.kernel is kernel
    assert policy.posterior.kernel_changes == changes
    with pytest.raises(kb.UnavailableError):
        _ = policy.observed_points
    fixed = kb.ek_ucb(
        kernel, regularization=policy.posterior.regularization, dictionary=kb.Kors(history="none"), seed=0
    )
    play(fixed, 364)
    grown = policy.dictionary_size / fixed.dictionary_size
    # nothing is left of the warm-up: as much memory as a policy that never learned its kernel
    assert policy.diagnostics().memory_bytes < 1.1 * max(grown, 1.0) ** 2 * fixed.diagnostics().memory_bytes + 10_000
    assert held < policy.diagnostics().memory_bytes + 8 * 512 * 4


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("offset", [50.0, -50.0, 0.0])
def test_before_the_first_learning_the_level_of_rewards_decides_nothing(name, offset):
    policy = PRESETS[name](seed=0)
    rows = np.array([[10.0, 900.0], [35.0, 30.0], [20.0, 400.0], [0.0, 0.0], [40.0, 1200.0]])
    played = []
    for _ in range(4):
        decision = policy.select([], rows)
        assert decision.mean == 0.0
        played.append(decision.index)
        policy.update([], decision.action, offset + 0.01 * decision.action[0])
    # four different rows, whatever they earned, and only then a kernel
    assert len(set(played)) == 4
    assert [change.round_index for change in policy.posterior.kernel_changes] == [4]
    assert policy.posterior.prior_mean == pytest.approx(offset + 0.15, abs=0.5)
    assert policy.predict([], rows).mean == pytest.approx(offset, abs=1.0)


def test_rewards_are_kept_before_the_first_learning():
    policy = ek_ucb(seed=0)
    for number in range(3):
        decision = policy.ask([0.1 * number], [[0.2], [0.9]])
        policy.tell(decision.id, 7.0 + number)
    np.testing.assert_array_equal(policy.posterior.observed_rewards, [7.0, 8.0, 9.0])
    explanation = policy.explain(policy.select([0.5], [[0.2], [0.9]]))
    assert sorted(explanation.rewards) == [7.0, 8.0, 9.0]
    assert (explanation.mean, explanation.prior_mean) == (0.0, 0.0)
    policy.update([0.5], [0.9], 10.0)
    np.testing.assert_allclose(policy.posterior.observed_rewards, [7.0, 8.0, 9.0, 10.0])
    assert policy.posterior.prior_mean != 0.0


def test_explanations_and_gradients_count_the_prior_mean_in():
    policy = ek_ucb(seed=0)
    play(policy, 60)
    decision = policy.select([0.3, 0.4], [[0.1], [0.5], [0.9]])
    explanation = policy.explain(decision, count=1000)
    assert explanation.mean == pytest.approx(decision.mean, abs=1e-9)
    assert explanation.rest == pytest.approx(0.0, abs=1e-9)
    assert explanation.prior_mean == policy.posterior.prior_mean != 0.0
    posterior, points = policy.posterior, np.random.default_rng(0).random((4, 3))
    gradient = posterior.gradient(points, posterior.evaluate(points), 1.0)
    for column in range(3):
        step = np.zeros(3)
        step[column] = 1e-6
        above, below = posterior.predict(points + step), posterior.predict(points - step)
        rise = (above.mean + above.std - below.mean - below.std) / 2e-6
        np.testing.assert_allclose(gradient[:, column], rise, rtol=1e-3, atol=1e-4)
