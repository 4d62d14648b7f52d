"""What a learned kernel makes of degenerate streams, and settings that it refuses."""

import math

import numpy as np
import pytest
from test_learned import PRESETS

import kernel_bandits as kb


def degenerate(stream, t, generator):
    """Context, action and reward of a round."""
    context, action = generator.random(2), generator.random(1)
    return {
        "constant reward": (context, action, 4.0),
        "zero reward": (context, action, 0.0),
        "one repeated point": ([0.5, 0.5], [0.5], generator.normal()),
        "nothing varies": ([0.5, 0.5], [0.5], 1.0),
        "no noise": ([t / 40, 0.0], [t / 40], math.sin(t / 5)),
        "a growing trend": ([float(t), t**2], [2.0**t], 3.0**t),
        "a jump of scale": (context, action, 10.0 ** (t // 5)),
    }[stream]


STREAMS = ["constant reward", "zero reward", "one repeated point", "nothing varies", "no noise", "a growing trend"]


@pytest.mark.parametrize("count", [1, 2, 3, 40])
@pytest.mark.parametrize("stream", [*STREAMS, "a jump of scale"])
@pytest.mark.parametrize("name", PRESETS)
def test_degenerate_streams_leave_a_finite_sensible_kernel(name, stream, count):
    policy, generator = PRESETS[name](seed=0), np.random.default_rng(0)
    rewards = []
    for t in range(count):
        context, action, value = degenerate(stream, t, generator)
        policy.update(context, action, value)
        rewards.append(value)
        decision = policy.select(context, [action, np.asarray(action) + 0.25])
        assert np.isfinite([decision.mean, decision.std, decision.upper_bound]).all()
        assert decision.std > 0.0
    posterior = policy.posterior
    assert len(posterior.kernel_changes) >= (count >= 4)
    for change in posterior.kernel_changes:
        seen = np.array(rewards[: change.round_index])
        spread = np.std(seen) or abs(np.mean(seen)) or 1.0
        variance = change.kernel.diag(np.zeros((1, 3))).item()
        assert np.isfinite(change.kernel.right.lengthscale).all()
        # the spread of an earlier sample may have been larger
        assert 1e-3 * spread**2 < variance < 1e3 * max(spread, np.ptp(seen)) ** 2
        assert change.regularization < 10.0 * max(spread, np.ptp(seen)) ** 2
        assert abs(change.prior_mean - np.mean(seen)) < 3.0 * max(spread, np.ptp(seen))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"first_round": 1}, "first_round"),
        ({"growth": 1.0}, "growth"),
        ({"sample_size": 0}, "sample_size"),
        ({"groups": [0, 2]}, "groups"),
        ({"groups": []}, "groups"),
        ({"warm_up": 1.5}, "warm_up"),
        ({"warm_up": 32, "first_round": 64}, "warm_up: expected at least first_round=64"),
        ({"groups": list("aabb")}, "groups: expected labels"),
        ({"groups": 3}, "groups: expected labels"),
    ],
)
def test_bad_settings_are_named(options, words):
    with pytest.raises(kb.InputError, match=words):
        kb.KernelLearning(**options)


def test_two_rounds_are_enough():
    assert kb.KernelLearning(first_round=2, sample_size=2, warm_up=2).first_round == 2


@pytest.mark.parametrize("actions", [np.eye(2), kb.Box([0.0], [1.0])], ids=["arms", "box"])
@pytest.mark.parametrize(
    ("learning", "rounds"),
    [
        (kb.KernelLearning(growth=8.0), {"arms": [4, 32], "box": [4, 32]}),
        (
            kb.KernelLearning(),
            {"arms": [4, 6, 9, 13, 19, 27, 38], "box": [4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40]},
        ),
    ],
    ids=["given", "default"],
)
def test_a_given_growth_holds_from_the_start(learning, rounds, actions):
    generator, policy = np.random.default_rng(0), kb.ek_ucb(seed=0, learn_kernel=learning)
    for _ in range(40):
        context = generator.normal(size=1)
        decision = policy.select(context, actions)
        policy.update(context, decision.action, context[0] * decision.action[0] + 0.1 * generator.normal())
    changes = [change.round_index for change in policy.posterior.kernel_changes]
    assert changes == rounds["box" if isinstance(actions, kb.Box) else "arms"]


@pytest.mark.parametrize("preset", [kb.ek_ucb, kb.k_ucb])
def test_what_cannot_be_learned_is_named(preset):
    with pytest.raises(kb.InputError, match="without one it has to be learned"):
        preset(learn_kernel=False)
    with pytest.raises(kb.InputError, match="learn_kernel"):
        preset(kb.Linear(), learn_kernel=True)
    with pytest.raises(kb.InputError, match="learn_kernel: expected True, False"):
        preset(learn_kernel="yes")
    policy = preset(learn_kernel=kb.KernelLearning(groups=[0, 1]), seed=0)
    with pytest.raises(kb.InputError, match="groups: 2 labels were given for points with 3 columns"):
        policy.update([0.1, 0.2], [0.3], 1.0)
    assert policy.round_index == 0


def test_a_kernel_that_cannot_be_learned_is_counted_and_said_in_words():
    policy, generator = kb.ek_ucb(kb.Gaussian(1.0), learn_kernel=True, seed=0), np.random.default_rng(0)
    failed = []
    for _ in range(20):
        # √12 standard deviations of these are no floating-point number
        policy.update([1.7e308 * generator.uniform(-1.0, 1.0)], [generator.random()], generator.normal())
        failed.append(policy.diagnostics().failed_refits)
    diagnostics = policy.diagnostics()
    assert (diagnostics.observations, diagnostics.kernel_changes) == (20, ())
    # each is counted once, in the round in which it was tried
    rounds = 1 + np.flatnonzero(np.diff(failed, prepend=0))
    assert failed[-1] == len(rounds) > 0
    assert set(rounds.tolist()) <= {4, 8, 16}
    (warning,) = diagnostics.warnings
    times = "once" if failed[-1] == 1 else f"{failed[-1]} times"
    assert warning.startswith(f"the kernel could not be learned {times}, the last time in round {rounds[-1]}: ")
    assert f"warning: {warning}" in str(diagnostics)


@pytest.mark.parametrize("forgetting", [kb.Window(6), kb.Discount(4.0)], ids=["window", "discount"])
def test_failures_to_learn_a_kernel_are_counted_through_what_is_forgotten(forgetting):
    policy = kb.ek_ucb(kb.Gaussian(1.0), learn_kernel=True, forgetting=forgetting, seed=0)
    generator, failed = np.random.default_rng(0), []
    for _ in range(20):
        policy.update([1.7e308 * generator.uniform(-1.0, 1.0)], [generator.random()], generator.normal())
        failed.append(policy.diagnostics().failed_refits)
    changes = np.diff(failed, prepend=0)
    # memory is learned anew several times, and every failure in it counts once more
    assert set(changes.tolist()) == {0, 1}
    assert failed[-1] > 3
    (warning,) = policy.diagnostics().warnings
    assert f"the last time in round {1 + np.flatnonzero(changes)[-1]}: " in warning


def test_before_anything_is_known_far_columns_are_measured_by_their_first_value():
    policy = kb.ek_ucb(seed=0)
    policy.select([4e6, 0.5], [[1.0], [3.0]])
    np.testing.assert_array_equal(policy.posterior.kernel.context_kernel.centre, [4e6, 0.0])
    np.testing.assert_array_equal(policy.posterior.kernel.context_kernel.scale, [4e6, 1.0])
