"""Law 5, over every environment found by inspection; and the published instances."""

import inspect

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits import environments
from kernel_bandits.experiments.loop import Simulation

ENVIRONMENTS = [
    kind
    for _, kind in inspect.getmembers(environments, inspect.isclass)
    if issubclass(kind, environments.Environment) and not inspect.isabstract(kind)
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
        expected = environment.expected_rewards(offer.context, offer.actions)
        regrets.append(simulation.play(int(choose(expected))).regret)
    return np.array(regrets)


def test_environments_were_found():
    assert {kind.__name__ for kind in ENVIRONMENTS} >= {"Bump", "Chessboard", "StepDiagonal", "MovingOptimum"}


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
    generator = np.random.default_rng(0)
    round_ = kind(instance_seed=1).next_round(generator)
    again, other = kind(instance_seed=1), kind(instance_seed=2)
    np.testing.assert_array_equal(round_.actions, again.next_round(np.random.default_rng(0)).actions)
    assert not np.array_equal(round_.actions, other.next_round(np.random.default_rng(0)).actions)
    assert repr(again) == repr(kind(instance_seed=1)) != repr(other)


def test_the_environment_gives_away_copies(kind):
    environment = kind()
    environment.next_round(np.random.default_rng(0)).actions[:] = 7.0
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
