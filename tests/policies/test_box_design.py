"""With nothing set in a box: a first design that fills it, units of the box, and no run that stays on the walls."""

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.boxes.design import BESIDES, IN_ALL, PER_COORDINATE, _surplus, later
from kernel_bandits.learning.mixed import CURVED, FLAT

BOX = kb.Box([150.0, 1.0, 20.0], [250.0, 5.0, 80.0])
SIZE = 3 * PER_COORDINATE + BESIDES


def design(policy, rounds=SIZE, batch=1, box=BOX):
    generator, actions = np.random.default_rng(0), []
    while len(actions) < rounds:
        decisions = [policy.ask(generator.standard_normal(2), box) for _ in range(batch)]
        actions += [decision.action for decision in decisions]
        for decision in decisions:
            policy.tell(decision.id, float(generator.standard_normal()))
    return np.array(actions)


def test_the_first_actions_fill_the_box():
    fractions = BOX.fractions(design(kb.ek_ucb(seed=0)))
    # every half of every coordinate gets its share, and no two actions are neighbours
    assert (np.abs((fractions < 0.5).mean(axis=0) - 0.5) < 0.2).all()
    distances = np.linalg.norm(fractions[:, None] - fractions[None], axis=2)[~np.eye(SIZE, dtype=bool)]
    assert distances.min() > 0.15
    assert ((fractions > 0.0) & (fractions < 1.0)).all()


@pytest.mark.parametrize("make", [kb.ek_ucb, kb.k_ucb])
def test_batches_and_late_rewards_play_the_same_design(make):
    np.testing.assert_array_equal(design(make(seed=3)), design(make(seed=3), batch=4)[:SIZE])
    policy, generator = make(seed=3), np.random.default_rng(0)
    updated = []
    for _ in range(SIZE):
        context = generator.standard_normal(2)
        updated.append(policy.select(context, BOX).action)
        policy.update(context, updated[-1], float(generator.standard_normal()))
    np.testing.assert_array_equal(updated, design(make(seed=3)))
    assert not np.array_equal(design(make(seed=3)), design(make(seed=4)))


def test_an_expired_decision_repeats_none_that_is_pending():
    policy = kb.ek_ucb(seed=0)
    first = [policy.ask([0.0], BOX) for _ in range(4)]
    policy.expire(first[1].id)
    following = policy.ask([0.0], BOX)
    assert all(not np.array_equal(following.action, each.action) for each in (first[0], *first[2:]))


def test_a_given_kernel_and_a_long_log_need_no_design():
    assert kb.ek_ucb(kb.Matern(1.0), seed=0).design is None
    policy, generator = kb.ek_ucb(seed=0), np.random.default_rng(0)
    actions = BOX.sample(generator, 40)
    policy.update_many(np.zeros((40, 1)), actions, generator.standard_normal(40))
    assert policy.design.next_action(policy.posterior, np.zeros(1), BOX) is None


@pytest.mark.parametrize("make", [kb.ek_ucb, kb.k_ucb])
def test_the_first_decision_is_made_with_a_kernel_in_units_of_the_box(make):
    far = kb.Box([1.0, 0.0, 0.0], [1e6, 1.0, 1e-6])
    policy = make(seed=0)
    first = policy.ask([300.0], far)
    following = policy.ask([310.0], far)
    # variance 1 of what is unknown, in units of the box: neither the sensor nor 1e6 counts as such
    for decision in (first, following):
        assert 0.0 < decision.std < 3.0
    assert policy.posterior.kernel.action_kernel.scale[0] == pytest.approx((1e6 - 1.0) / np.sqrt(12.0))


def test_a_failed_first_choice_leaves_no_box_behind():
    policy, other = kb.ek_ucb(seed=0), kb.ek_ucb(seed=0)
    with pytest.raises(kb.InputError):
        policy.select([np.nan], kb.Box([0.0, 0.0], [9.0, 9.0]))
    policy.select([0.0], kb.Box([0.0, 0.0], [7.0, 7.0]))
    unit = kb.Box([0.0, 0.0], [1.0, 1.0])
    one, two = policy.ask([0.0], unit), other.ask([0.0], unit)
    np.testing.assert_array_equal(policy.posterior.kernel.action_kernel.scale, np.full(2, 1 / np.sqrt(12.0)))
    assert one.std == two.std


def test_the_low_corner_of_a_box_is_no_arm():
    box = kb.Box([0.0, 1.0], [1.0, 2.0])
    for make in (kb.lin_ucb, kb.ek_ucb, kb.thompson_sampling):
        policy, generator = make(seed=0), np.random.default_rng(0)
        for _ in range(20):
            context = generator.random(1)
            action = policy.select(context, box).action
            policy.update(context, action, float(action.sum()))
        low, high = policy.predict([0.5], [[0.1, 1.1], [0.9, 1.9]]).mean
        assert high - low == pytest.approx(1.6, abs=0.4)


def test_a_fixed_coordinate_needs_no_points():
    fixed = kb.Box([0.0, 2.0], [1.0, 2.0])
    policy = kb.ek_ucb(seed=0)
    actions = design(policy, PER_COORDINATE + BESIDES, box=fixed)
    assert (actions[:, 1] == 2.0).all()
    assert policy.design.next_action(policy.posterior, np.zeros(2), fixed) is None


def test_actions_are_measured_by_the_box_and_not_by_what_was_played():
    policy, generator = kb.ek_ucb(seed=0), np.random.default_rng(0)
    near = kb.Box([150.0, 1.0], [250.0, 5.0])
    policy.select([0.0], near)
    for _ in range(20):
        action = near.at(0.5 + 0.05 * generator.standard_normal((1, 2)))[0]
        policy.update(generator.standard_normal(1), action, float(generator.standard_normal()))
    # the units, in which settings may have a weight of their own besides
    np.testing.assert_allclose(policy.posterior.model.actions.spread, np.array([100.0, 4.0]) / np.sqrt(12.0))
    np.testing.assert_allclose(policy.posterior.kernel.action_kernel.centre, [200.0, 3.0])


def test_a_peak_in_a_plateau_is_found():
    box = kb.Box([150.0, 1.0], [250.0, 5.0])
    policy, generator = kb.ek_ucb(seed=1), np.random.default_rng(1)
    shortfalls = []
    for _ in range(12):
        decisions = policy.ask_many(generator.standard_normal((4, 2)), box)
        for decision in decisions:
            offset = box.fractions(decision.action[None])[0] - [0.35 + 0.05 * np.tanh(decision.context[0]), 0.6]
            shortfalls.append(40.0 * (1.0 - np.exp(-offset @ offset / (2 * 0.13**2))))
            policy.tell(decision.id, 90.0 - shortfalls[-1] + generator.standard_normal())
    # the median: one look elsewhere costs 40
    assert np.median(shortfalls[-12:]) < 5.0


def bump(fractions, centre, radius=0.3):
    """A peak of 40 that ends at a radius: nothing is felt beyond."""
    return 40.0 * max(0.0, 1.0 - float(((fractions - centre) ** 2).sum()) / radius**2) ** 2


def test_the_design_goes_on_while_rewards_show_nothing_of_the_settings():
    policy, generator = kb.ek_ucb(seed=0), np.random.default_rng(0)
    fractions = []
    for _ in range(40):
        context = generator.standard_normal(2)
        decision = policy.select(context, BOX)
        fractions.append(BOX.fractions(decision.action[None, :])[0])
        # the sensors matter, the settings do not
        policy.update(context, decision.action, float(50.0 + 5.0 * context[0] + generator.standard_normal()))
    assert policy.posterior.shape == FLAT
    late = np.array(fractions[20:])
    assert ((late < 1e-3) | (late > 1.0 - 1e-3)).any(axis=1).sum() <= 2
    # until a reward stands out
    policy.update(np.zeros(2), BOX.at(np.full((1, 3), 0.5))[0], 90.0)
    for _ in range(8):
        context = generator.standard_normal(2)
        policy.update(context, policy.select(context, BOX).action, float(50.0 + 5.0 * context[0]))
    assert policy.posterior.shape == CURVED


def test_a_higher_peak_is_found_though_a_lower_one_is_known():
    box, low, high = kb.Box([0.0, 0.0], [1.0, 1.0]), np.array([0.25, 0.3]), np.array([0.75, 0.7])

    def height(action):
        return 0.75 * bump(action, low) + bump(action, high)

    for seed in range(3):
        policy, generator = kb.ek_ucb(seed=seed), np.random.default_rng(seed)
        policy.select([], box)
        # everything that is known are the lower peak and the plateau
        known = box.sample(generator, 60)
        known = known[np.linalg.norm(known - high, axis=1) > 0.35][:16]
        rewards = [50.0 + height(action) + float(generator.standard_normal()) for action in known]
        policy.update_many(np.empty((16, 0)), known, rewards)
        heights = []
        for _ in range(50):
            action = policy.select([], box).action
            heights.append(height(action))
            policy.update([], action, 50.0 + heights[-1] + float(generator.standard_normal()))
        assert np.mean(heights[-10:]) > 36.0


@pytest.mark.parametrize("size", [6, 9, 12, 15, 18, 21, 24])
def test_later_points_are_few_and_ever_rarer(size):
    expected = max(0, min(size, IN_ALL - size))
    counts = np.array([later(expected, size, played) for played in range(size, 2000)])
    steps = np.flatnonzero(np.diff(counts))
    assert (np.diff(counts) <= 1).all()
    assert counts[0] == 0
    assert counts[-1] == max(0, expected - 1)
    # the e-th would be played after infinitely many rounds; each takes longer than the one before, but for rounding
    assert (np.diff(steps, 2) >= -1).all()
    # half of them are played by the time that the design was played twice
    assert counts[size] == expected // 2


def test_all_points_together_find_an_eighth_of_the_box():
    assert (7 / 8) ** IN_ALL <= 0.05 < (7 / 8) ** (IN_ALL - 1)


@pytest.mark.parametrize(("low", "width"), [(0.0, 1.0), (1e8, 1.0), (-3e5, 1e-3)], ids=["unit", "far", "tiny"])
def test_a_peak_that_the_first_points_miss_is_found_in_any_units(low, width):
    box = kb.Box(np.full(2, low), np.full(2, low) + width)
    policy, generator, heights = kb.ek_ucb(seed=4), np.random.default_rng(4), []
    for _ in range(70):
        decision = policy.select([], box)
        heights.append(bump(box.fractions(decision.action[None, :])[0], np.array([0.525, 0.2]), 0.3))
        policy.update([], decision.action, 50.0 + heights[-1] + float(generator.standard_normal()))
    assert max(heights[:9]) == 0.0
    assert np.mean(heights[-15:]) > 35.0


def test_sensors_in_any_units_are_accepted_before_anything_is_learned():
    policy = kb.ek_ucb(seed=0)
    for number in range(6):
        decision = policy.ask([1.7e12 + number, 1e-12 * number], BOX)
        policy.tell(decision.id, float(number))


def test_the_design_goes_on_while_no_reward_has_come_and_while_all_are_equal():
    policy = kb.ek_ucb(seed=0)
    decisions = [policy.ask([0.0], BOX) for _ in range(2 * SIZE)]
    for decision in decisions:
        policy.tell(decision.id, 50.0)
    actions = [decision.action for decision in decisions] + [policy.select([0.0], BOX).action]
    fractions = BOX.fractions(np.array(actions))
    assert ((fractions > 0.0) & (fractions < 1.0)).all()
    assert len(np.unique(fractions, axis=0)) == 2 * SIZE + 1


def test_every_third_point_beyond_the_first_follows_the_strongest_hint():
    policy, generator = kb.ek_ucb(seed=0), np.random.default_rng(0)
    box, hinted = kb.Box([0.0, 0.0], [1.0, 1.0]), np.array([0.3, 0.7])
    policy.select([], box)
    near = hinted + np.array([[0.0, 0.02], [0.02, 0.0], [-0.02, 0.0]])
    known = np.concatenate([box.sample(generator, 18), near])
    # a little more than usual at three neighbours: none of them stands out
    rewards = [*np.resize([-1.0, 1.0, 0.3, -0.3], 18).tolist(), 1.0, 1.0, 1.0]
    for action, reward in zip(known, rewards, strict=True):
        policy.update([], action, reward)
    assert policy.posterior.shape == FLAT
    asked = [policy.ask([], box).action for _ in range(6)]
    distances = np.linalg.norm(np.array(asked) - hinted, axis=1)
    assert distances[0] < 0.2
    # one that is pending does not repeat itself
    assert not np.array_equal(asked[0], asked[3])
    # the others go on with the design
    assert (distances[[1, 2, 4, 5]] > 0.2).any()


def test_a_weak_peak_in_strong_noise_is_found():
    box, peak, heights = kb.Box(np.zeros(4), np.ones(4)), np.array([0.0, 0.4, 0.6, 0.5]), []
    policy, generator = kb.ek_ucb(seed=2), np.random.default_rng(2)
    for _ in range(90):
        action = policy.select([], box).action
        heights.append(40.0 * np.exp(-((action - peak) ** 2).sum() / (2.0 * 0.2**2)))
        policy.update([], action, 50.0 + heights[-1] + 3.0 * float(generator.standard_normal()))
    assert np.mean(heights[-15:]) > 33.0


def test_as_many_sensors_as_rewards_hide_no_hint():
    """A fit that explains everything leaves rounding errors, in which the peak is no longer the largest."""
    generator = np.random.default_rng(0)
    rewards = np.append(10.0, 0.1 * generator.normal(size=11))
    assert _surplus(rewards, generator.normal(size=(12, 20))).argmax() == 0


def test_what_is_linear_in_the_sensors_hides_no_hint():
    generator = np.random.default_rng(0)
    contexts = generator.normal(size=(30, 2))
    rewards = 20.0 * contexts[:, 0] + 0.1 * generator.normal(size=30)
    rewards[contexts[:, 0].argmin()] += 5.0
    assert _surplus(rewards, contexts).argmax() == contexts[:, 0].argmin()


def test_hints_are_followed_beside_fixed_coordinates():
    """A fixed coordinate is at both walls; neighbours that were moved off it are no neighbours."""
    box = kb.Box([0.0, 0.0, *[3.0] * 6], [1.0, 1.0, *[3.0] * 6])
    policy, generator = kb.ek_ucb(seed=0), np.random.default_rng(0)
    policy.select([], box)
    first = np.hstack([generator.random((20, 2)), np.full((20, 6), 3.0)])
    peak = np.array([0.31, 0.72])
    heights = np.exp(-((first[:, :2] - peak) ** 2).sum(axis=1) / 0.02)
    policy.update_many(np.zeros((20, 0)), first, heights + 0.1 * generator.normal(size=20))
    hint = policy.design._hint(policy.posterior, box, 20)
    assert (hint[2:] == 3.0).all()
    assert np.linalg.norm(hint[:2] - first[heights.argmax(), :2]) < 0.2
    # a neighbour of the best of the points that cover the box, and not that point itself
    assert not (policy.design._actions(0, box) == hint).all(axis=1).any()
