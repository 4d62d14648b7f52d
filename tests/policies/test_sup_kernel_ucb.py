import numpy as np
import pytest

import kernel_bandits as kb

ARMS = np.eye(2)


def stage_counts(policy):
    return [stage.round_index for stage in policy.stages]


def by_hand(radius, rewards, rounds):
    """Two orthogonal arms, λ = 1: after n plays of an arm at a stage, mean Σr/(n + 1) and σ = 1/√(n + 1)."""
    policy = kb.sup_kernel_ucb(
        kb.Linear(), horizon=16, regularization=1.0, confidence=kb.ConstantRadius(radius), seed=0
    )
    played = []
    for _ in range(rounds):
        decision = policy.select([], ARMS)
        policy.update([], decision.action, rewards[decision.index])
        played.append(decision)
    return policy, played


def test_first_stage_passes_second_learns_then_nothing_is_recorded():
    """T = 16: stages of width ½, ¼, ⅛, final width ¼. η = ½: w = ½/√(n + 1).

    Stage 1 holds nothing and w = ½ ≤ ½: all arms go on (branch 2). Stage 2: w = ½ > ¼, the wider arm is played and
    recorded (branch 3) until each arm has n = 3 and w = ¼; from round 7 on, w ≤ 1/√T: the best bound is played and
    nothing is recorded (branch 1).
    """
    policy, played = by_hand(0.5, rewards=[1.0, 0.0], rounds=10)
    assert policy.number_of_stages == 3
    assert stage_counts(policy) == [0, 6]
    plays = np.array([decision.index for decision in played])
    # two by two, each arm once: the one played is narrower then
    assert [set(plays[i : i + 2]) for i in (0, 2, 4)] == [{0, 1}] * 3
    for t, decision in enumerate(played[:6]):
        n = t // 2
        assert decision.std == pytest.approx(1 / np.sqrt(n + 1))
        assert decision.upper_bound == pytest.approx(decision.mean + 0.5 / np.sqrt(n + 1))
        assert decision.mean == pytest.approx(n / (n + 1) if decision.index == 0 else 0.0)
    # branch 1: arm 0 has mean 3/4, arm 1 has 0
    assert list(plays[6:]) == [0, 0, 0, 0]
    assert played[9].upper_bound == pytest.approx(3 / 4 + 1 / 4)


def test_an_arm_is_eliminated_when_its_bound_is_too_low():
    """η = 1: w = 1/√(n + 1). Stage 1 learns until n = 3 and w = ½; means are then 3 and 0, more than 2^{1−1} = 1 apart.

    Arm 1 is dropped (branch 2); stage 2 knows nothing, w = 1 > ¼, so arm 0 is played and recorded there (branch 3)
    until n = 15 and w = ¼ = 1/√T; then nothing is recorded (branch 1).
    """
    policy, played = by_hand(1.0, rewards=[4.0, 0.0], rounds=25)
    plays = [decision.index for decision in played]
    assert sorted(plays[:6]) == [0, 0, 0, 1, 1, 1]
    assert plays[6:] == [0] * 19
    assert stage_counts(policy) == [6, 15]
    assert played[6].mean == 0.0
    assert played[7].mean == pytest.approx(4 / 2)
    assert played[-1].mean == pytest.approx(15 * 4 / 16)


def test_close_arms_stay_together():
    """As above with means 0.75 and 0 after stage 1, closer than 1: both arms go on to stage 2."""
    policy, played = by_hand(1.0, rewards=[1.0, 0.0], rounds=8)
    assert {decision.index for decision in played[6:8]} == {0, 1}
    assert stage_counts(policy) == [6, 2]


def test_stage_sets_are_disjoint_and_hold_played_points_only():
    policy = kb.sup_kernel_ucb(kb.Gaussian(0.1), horizon=600, regularization=0.01, seed=0)
    result = kb.run(policy, kb.environments.Chessboard(), 600, seed=0)
    played = [tuple(point) for point in np.hstack([result.contexts, result.actions])]
    recorded = [tuple(point) for stage in policy.stages for point in stage.observed_points]
    assert len(set(played)) == 600
    assert len(set(recorded)) == len(recorded) <= 600
    assert set(recorded) <= set(played)
    assert len(policy.stages) <= policy.number_of_stages
    assert min(stage_counts(policy)[:3]) > 0
    assert policy.dictionary_size == len(recorded)


def test_efficient_variant_plays_the_same_when_its_dictionaries_span_the_data():
    environment = kb.environments.StepDiagonal()
    options = {"horizon": 150, "regularization": 0.05, "seed": 1}
    exact = kb.sup_kernel_ucb(kb.Exponential(0.3), **options)
    efficient = kb.sup_kernel_ucb(kb.Exponential(0.3), dictionary=kb.Kors(oversampling=1e12), **options)
    one, other = kb.run(exact, environment, 150, seed=1), kb.run(efficient, environment, 150, seed=1)
    np.testing.assert_array_equal(one.action_indices, other.action_indices)
    assert stage_counts(exact) == stage_counts(efficient)
    assert efficient.dictionary_size == exact.dictionary_size


def test_efficient_variant_is_carried_by_fewer_points_at_like_regret():
    environment = kb.environments.Chessboard()
    options = {"horizon": 600, "regularization": 0.01}
    exact, efficient = [], []
    for seed in range(5):
        policy = kb.sup_kernel_ucb(kb.Gaussian(0.1), seed=seed, **options)
        exact.append((kb.run(policy, environment, 600, seed).regret[-1], policy.dictionary_size))
        policy = kb.sup_kernel_ucb(kb.Gaussian(0.1), dictionary=kb.Kors(), seed=seed, **options)
        efficient.append((kb.run(policy, environment, 600, seed).regret[-1], policy.dictionary_size))
    exact, efficient = np.array(exact), np.array(efficient)
    assert (efficient[:, 1] < 0.8 * exact[:, 1]).all()
    assert efficient[:, 0].mean() < 1.2 * exact[:, 0].mean()


def test_a_point_that_was_not_chosen_joins_the_stage_it_would_be_played_at():
    policy = kb.sup_kernel_ucb(kb.Linear(), horizon=16, regularization=1.0, confidence=kb.ConstantRadius(1.0), seed=0)
    for _ in range(5):
        policy.update([], [1.0, 0.0], 1.0)
    # stage 1 takes three (w = 1, 0.71, 0.58 > ½), then w = ½ passes and stage 2 takes the rest
    assert stage_counts(policy) == [3, 2]


def test_stages_may_be_skipped():
    """A kernel so small that the first stages pass without data."""
    policy = kb.sup_kernel_ucb(0.01 * kb.Gaussian(1.0), horizon=10_000, regularization=1.0, seed=0)
    decision = policy.select([0.5], [[0.5]])
    policy.update([0.5], decision.action, 1.0)
    # σ = 0.1·1: widths 0.1 pass ½, ¼, ⅛ and exceed 1/16
    assert stage_counts(policy) == [0, 0, 0, 1]


def test_when_all_is_known_well_enough_the_largest_upper_bound_is_played():
    """T = 16 and η = ¼: the widths of actions of length 1 and ½ are ¼ and ⅛, all at most 1/√T, and the means are 0."""
    policy = kb.sup_kernel_ucb(kb.Linear(), horizon=16, regularization=1.0, confidence=kb.ConstantRadius(0.25), seed=0)
    for _ in range(5):
        decision = policy.select([], [[0.5, 0.0], [0.0, 1.0]])
        assert decision.index == 1
        assert decision.upper_bound == pytest.approx(0.25)


@pytest.mark.parametrize("horizon", [0, -1, 2.5])
def test_bad_horizons_are_named(horizon):
    with pytest.raises(kb.InputError, match="horizon"):
        kb.sup_kernel_ucb(kb.Gaussian(), horizon=horizon)
    with pytest.raises(kb.InputError, match="dictionary"):
        kb.sup_kernel_ucb(kb.Gaussian(), horizon=10, dictionary=np.zeros((1, 1)))
