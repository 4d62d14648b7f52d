"""Law 5, over every environment found by inspection; and the published instances."""

import inspect

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits import environments
from kernel_bandits.loop import Simulation

# A table has no instances to draw; test_table.py states the same of it.
ENVIRONMENTS = [
    kind
    for _, kind in inspect.getmembers(environments, inspect.isclass)
    if issubclass(kind, environments.Environment) and not inspect.isabstract(kind) and kind is not environments.Table
]


@pytest.fixture(params=ENVIRONMENTS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


def play(environment, choose, rounds=300):
    """Regrets of playing by expected rewards, which no policy sees."""
    simulation = Simulation(environment, seed=0)
    regrets = []
    for _ in range(rounds):
        offer = simulation.offer()
        actions = corners(environment, offer) if isinstance(offer.actions, kb.Box) else offer.actions
        row = int(choose(environment.expected_rewards(offer.context, actions)))
        regrets.append(simulation.play(actions[row] if isinstance(offer.actions, kb.Box) else row).regret)
    return np.array(regrets)


def corners(environment, offer):
    """The best point of a box, and its corner that is farthest from there."""
    box, best = offer.actions, environment.best_action(offer.context)
    return np.array([best, np.where(best > (box.low + box.high) / 2, box.low, box.high)])


def test_environments_were_found():
    names = {kind.__name__ for kind in ENVIRONMENTS}
    assert names >= {"Bump", "Chessboard", "StepDiagonal", "MovingOptimum", "MovingPeak"}


@pytest.mark.parametrize("instance", [{}, {"instance_seed": 3}])
def test_the_optimum_is_the_noise_free_maximum_over_the_offered_actions(kind, instance):
    environment = kind(**instance)
    np.testing.assert_array_equal(play(environment, np.argmax), np.zeros(300))
    worst = play(environment, np.argmin)
    assert (worst >= 0).all()
    assert worst.sum() > 30


def test_noise_is_gaussian_with_its_standard_deviation(kind):
    environment = kind()
    generator = np.random.default_rng(0)
    draws = np.array([environment.noise(generator) for _ in range(20_000)])
    assert abs(draws.mean()) < 5 * environment.noise_std / np.sqrt(20_000)
    assert draws.std() == pytest.approx(environment.noise_std, rel=0.03)


def test_instances_differ_and_repeat(kind):
    def instance(seed):
        environment = kind(instance_seed=seed)
        offer = environment.next_round(np.random.default_rng(0))
        return environment.best_action(offer.context) if isinstance(offer.actions, kb.Box) else offer.actions

    np.testing.assert_array_equal(instance(1), instance(1))
    assert not np.array_equal(instance(1), instance(2))
    assert repr(kind(instance_seed=1)) == repr(kind(instance_seed=1)) != repr(kind(instance_seed=2))


def test_the_environment_gives_away_copies(kind):
    environment = kind()
    offer = environment.next_round(np.random.default_rng(0))
    if isinstance(offer.actions, kb.Box):
        assert not offer.actions.low.flags.writeable
        return
    offer.actions[:] = 7.0
    assert environment.next_round(np.random.default_rng(0)).actions.max() <= 1.0


def test_published_instances_are_what_the_legacy_generator_draws():
    legacy = np.random.RandomState(123)
    actions = legacy.choice(np.arange(0, 1, 0.01), size=10, replace=False)
    bump = kb.environments.Bump()
    np.testing.assert_allclose(bump.actions[:, 0], actions, atol=1e-12)
    best = legacy.choice(actions)
    assert bump.best_action == pytest.approx(best)
    np.testing.assert_allclose(bump.centre, legacy.random_sample(5), atol=1e-8)
    np.testing.assert_allclose(bump.weights, 2 * legacy.random_sample(5) - 1, atol=1e-8)
    for plane in (kb.environments.Chessboard(), kb.environments.StepDiagonal()):
        np.testing.assert_array_equal(plane.actions, bump.actions)


def test_bump_by_hand():
    bump = kb.environments.Bump()
    at_centre = bump.expected_rewards(bump.centre, np.array([[0.81], [0.31], [0.0]]))
    np.testing.assert_allclose(at_centre, [1.0, 0.5, 0.19])
    along = bump.centre + bump.weights / (bump.weights @ bump.weights)
    np.testing.assert_allclose(bump.expected_rewards(along, np.array([[0.81], [0.5]])), [0.0, 0.0], atol=1e-12)


def test_chessboard_by_hand():
    """1 on (¼–½, 0–¼), (¼–½, ½–¾), (¾–1, ½–¾); ½ on (0–¼, ¼–½), (½–¾, ¼–½), (½–¾, ¾–1); 0 elsewhere."""
    centres = np.array([[0.125], [0.375], [0.625], [0.875]])
    board = [kb.environments.Chessboard().expected_rewards(x, centres).tolist() for x in centres]
    assert board == [[0, 0.5, 0, 0], [1, 0, 1, 0], [0, 0.5, 0, 0.5], [0, 0, 1, 0]]


def test_step_diagonal_by_hand():
    actions = np.array([[0.35], [0.65], [0.5], [0.2], [0.26]])
    rewards = kb.environments.StepDiagonal().expected_rewards(np.array([0.5]), actions)
    np.testing.assert_array_equal(rewards, [1.0, 0.5, 0.0, 0.0, 1.0])


def test_the_offered_actions_do_not_always_hold_a_reward_of_one():
    """Why the optimum must be over the offered actions: a constant 1 overstates Chessboard's regret by ¼."""
    environment = kb.environments.Chessboard()
    contexts = np.random.default_rng(0)
    best = []
    for _ in range(4000):
        offer = environment.next_round(contexts)
        best.append(environment.expected_rewards(offer.context, offer.actions).max())
    assert 1 - np.mean(best) == pytest.approx(0.251, abs=0.02)


def test_the_moving_optimum_moves_in_every_dimension_and_bumps_does_not():
    def best_actions(environment):
        contexts = np.random.default_rng(0)
        offers = [environment.next_round(contexts) for _ in range(500)]
        return {int(environment.expected_rewards(o.context, o.actions).argmax()) for o in offers}

    assert len(best_actions(kb.environments.Bump())) == 1
    moving = kb.environments.MovingOptimum()
    assert len(best_actions(moving)) >= 10
    origin = np.full(3, 0.5)
    for dimension in range(3):
        moved = origin.copy()
        moved[dimension] = 1.0
        assert (np.abs(moving.best_place(moved) - moving.best_place(origin)) > 0.01).all()


CONTINUOUS = [kind for kind in ENVIRONMENTS if issubclass(kind, environments.ContinuousEnvironment)]


@pytest.mark.parametrize("kind", CONTINUOUS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("instance_seed", [0, 3])
def test_no_point_of_the_box_is_better_than_the_best_action(kind, instance_seed):
    """The optimum is attained, in the box; among 20,000 points none is better, and some come near it."""
    environment = kind(instance_seed=instance_seed)
    generator = np.random.default_rng(0)
    for _ in range(20):
        offer = environment.next_round(generator)
        best = environment.best_action(offer.context)
        assert offer.actions.contains(best[None, :]).all()
        optimum = environment.expected_rewards(offer.context, best[None, :])[0]
        others = environment.expected_rewards(offer.context, offer.actions.sample(generator, 20_000))
        assert optimum - 0.05 < others.max() <= optimum


def test_the_peak_moves_as_the_moving_optimum_does():
    peak, moving = kb.environments.MovingPeak(4, instance_seed=5), kb.environments.MovingOptimum(4, instance_seed=5)
    context = np.full(4, 0.3)
    np.testing.assert_array_equal(peak.best_action(context), moving.best_place(context))
    np.testing.assert_array_equal(
        peak.expected_rewards(context, moving.actions), moving.expected_rewards(context, moving.actions)
    )


def test_rows_of_a_round():
    offer = kb.environments.Chessboard().next_round(np.random.default_rng(0))
    assert offer.rows is offer.actions
    with pytest.raises(kb.InputError, match=r"expected rows, and this round offers Box\(\[0.0, 0.0\], \[1.0, 1.0\]\)"):
        _ = kb.environments.MovingPeak().next_round(np.random.default_rng(0)).rows


def test_an_environment_that_offers_a_box_must_know_its_optimum():
    class Silent(kb.environments.Environment):
        def next_round(self, contexts):
            return kb.environments.Round(contexts.random(1), kb.Box(0, 1))

        def expected_rewards(self, context, actions):  # noqa: ARG002 (the same in every context)
            return actions[:, 0]

    with pytest.raises(kb.InputError, match="subclass ContinuousEnvironment"):
        kb.run(kb.uniform(seed=0), Silent(), 1, seed=0)


def test_regret_in_a_box_by_hand():
    """The reward is the action, up to 1: the regret of uniform play grows by ½ a round, and the action is recorded."""

    class Slope(kb.environments.ContinuousEnvironment):
        noise_std = 0.0

        def next_round(self, contexts):
            return kb.environments.Round(contexts.random(1), kb.Box(0, 1))

        def expected_rewards(self, context, actions):  # noqa: ARG002 (the same in every context)
            return actions[:, 0]

        def best_action(self, context):  # noqa: ARG002
            return np.ones(1)

    result = kb.run(kb.uniform(seed=0), Slope(), 500, seed=0)
    np.testing.assert_allclose(result.regret, np.cumsum(1 - result.actions[:, 0]))
    np.testing.assert_array_equal(result.rewards, result.actions[:, 0])
    assert result.regret[-1] == pytest.approx(250, abs=20)
    assert (result.action_indices == -1).all()
    assert kb.run(kb.lin_ucb(seed=0), Slope(), 50, seed=0).regret[-1] < 2
