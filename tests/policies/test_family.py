"""UCB over a family of kernels: the statements behind its guarantee, and coverage under attack."""

import copy
import math
from dataclasses import replace

import kernel_family as family
import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.policy.family import Played
from kernel_bandits.values import evolve

KERNELS = [kb.Gaussian(0.15), kb.Gaussian(0.5), kb.Gaussian(2.0)]
B, R, DELTA, RIDGE = 1.5, 0.2, 0.1, 0.05
RADIUS = kb.Tightened(norm_bound=B, noise_bound=R, failure_probability=DELTA)


def played(dictionary, rounds=60, kernels=KERNELS, **options):
    policy = kb.family_ucb(kernels, confidence=RADIUS, regularization=RIDGE, dictionary=dictionary, seed=0, **options)
    kb.run(policy, kb.environments.StepDiagonal(), rounds, seed=0)
    return policy


@pytest.mark.parametrize("dictionary", [None, kb.Kors(oversampling=8.0)], ids=["exact", "projected"])
def test_misfit_and_evidence_by_their_dense_formulas(dictionary):
    policy = played(dictionary, rounds=61)
    points, rewards = (np.array(policy.posteriors[0].observed_points), np.array(policy.posteriors[0].observed_rewards))
    for member in policy.members:
        gram = member.posterior.kernel(points)
        covariance = gram + RIDGE * np.eye(61)
        least = RIDGE * rewards @ np.linalg.solve(covariance, rewards)
        if dictionary is None:
            assert member.misfit == pytest.approx(least, rel=1e-8)
            # log N(r; 0, (R²/λ)(K + λI)) less its normaliser at noise R²
            log_determinant = np.linalg.slogdet(covariance / RIDGE)[1]
            assert member.evidence == pytest.approx(-0.5 * (least / R**2 + log_determinant), rel=1e-8)
        elif not member.is_refuted:
            # what no θ of norm at most B can beat: the exact minimum over the ball is at least that
            for norm in (0.0, B / 2, B):
                best = smallest_error(gram, rewards, norm)
                assert best >= member.misfit - RIDGE * B**2 - 1e-9


def smallest_error(gram, rewards, norm):
    """min ‖r − Kα‖² over αᵀKα ≤ norm², by the multiplier."""
    values, vectors = np.linalg.eigh(gram)
    coordinates = vectors.T @ rewards
    values = np.maximum(values, 0.0)

    def at(multiplier):
        shrunk = values / (values + multiplier) * coordinates
        with np.errstate(invalid="ignore", divide="ignore"):
            length = np.where(values > 1e-12, shrunk**2 / values, 0.0).sum()
        return length, ((coordinates - shrunk) ** 2).sum()

    low, high = 1e-12, 1e12
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at(middle)[0] > norm**2 else (low, middle)
    return at(high)[1]


def test_the_allowance_is_the_mixture_of_all_kernels():
    policy = played(None, weights=[1.0, 2.0, 5.0])
    evidence = np.array([member.evidence for member in policy.members])
    mixed = math.log(np.array([0.125, 0.25, 0.625]) @ np.exp(evidence - evidence.max())) + evidence.max()
    sizes = 0.25 / 2.0 ** np.arange(6)
    noise = min((math.log(24 / DELTA) - 30 * math.log(1 - 2 * s)) / s for s in sizes)
    explained = 2 * (math.log(4 / DELTA) - mixed)
    assert policy.model.allowance == pytest.approx(R**2 * min(explained, noise))
    # a kernel costs 2R²·log(1/w) at most, against the set that it would have alone
    for place, member in enumerate(policy.members):
        alone = kb.Tightened(norm_bound=B, noise_bound=R, failure_probability=DELTA / 2).radius(member.posterior)
        assert policy.model.radius(place) <= alone
        combined = policy.model.allowance + RIDGE * B**2 - member.misfit
        own = alone if member.is_refuted else min(alone, math.sqrt(max(combined, 0.0)))
        assert policy.model.radius(place) == pytest.approx(own)
        assert combined <= alone**2 + 2 * R**2 * math.log(2 / policy.model.weights[place]) + 1e-9


def test_a_projected_kernel_has_its_own_set_at_half_the_failure_probability():
    policy = played(kb.Kors(oversampling=4.0))
    half = kb.Tightened(norm_bound=B, noise_bound=R, failure_probability=DELTA / 2)
    for place, member in enumerate(policy.members):
        assert policy.model.radius(place) == half.radius(member.posterior)


@pytest.mark.parametrize("play", ["balanced", "largest bound"])
def test_kernels_that_cannot_hold_the_rewards_are_refuted_and_the_right_one_stays(play):
    generator = np.random.default_rng(3)
    truth = family.draw(0.1, generator)
    policy = kb.family_ucb(
        family.FAMILY, confidence=family.RADIUS, regularization=family.RIDGE, play=play, dictionary=None, seed=3
    )
    for _ in range(200):
        context, actions = generator.random(1), generator.random((8, 1))
        decision = policy.select(context, actions)
        value = truth(np.concatenate([context, decision.action])[None, :]).item()
        policy.update(context, decision.action, value + 0.1 * generator.standard_normal())
    assert [member.is_refuted for member in policy.members] == [False, False, True]
    assert not policy.is_misspecified
    lower, upper = policy.interval([0.5], generator.random((30, 1)))
    assert (lower < upper).all()


@pytest.mark.parametrize("dictionary", [None, kb.Kors(oversampling=8.0)], ids=["exact", "projected"])
def test_a_family_without_the_truth_says_so_and_plays_on(dictionary):
    policy = kb.family_ucb(
        [kb.Gaussian(5.0), kb.Gaussian(9.0)],
        confidence=kb.Tightened(norm_bound=0.5, noise_bound=0.05, failure_probability=0.1),
        regularization=0.01,
        dictionary=dictionary,
        seed=0,
    )
    kb.run(policy, kb.environments.Chessboard(), 120, seed=0)
    assert policy.is_misspecified
    assert policy.active == [int(np.argmax([member.evidence for member in policy.members]))]
    assert 0 <= policy.select([0.5], [[0.1], [0.9]]).index < 2


def test_kernels_take_turns_by_the_widths_they_have_spent():
    policy = played(None, rounds=40)
    assert sum(member.plays for member in policy.members) == 40
    left = [policy.members[place] for place in policy.active]
    spent = [member.widths for member in left]
    assert max(spent) - min(spent) <= 2 * B + 1e-9
    together = played(None, rounds=40, play="largest bound")
    bounds = [
        member.posterior.predict([[0.3, 0.4]]).mean[0]
        + together.model.radius(place) * member.posterior.predict([[0.3, 0.4]]).std[0] / math.sqrt(RIDGE)
        for place, member in enumerate(together.members)
        if not member.is_refuted
    ]
    assert together.select([0.3], [[0.4]]).upper_bound == pytest.approx(max(bounds))


def test_the_noise_has_the_size_that_the_allowance_grants():
    """Σε² ≤ R²·min_s (log(24/δ) − ½t·log(1 − 2s))/s for all t at once, in a share 1 − δ/4 of 2000 runs at least."""
    generator = np.random.default_rng(0)
    policy = kb.family_ucb(KERNELS, confidence=RADIUS, dictionary=None, seed=0)
    for noise in (R * generator.standard_normal((2000, 300)), R * generator.choice([-1.0, 1.0], (2000, 300))):
        energy = np.cumsum(noise**2, axis=1)
        silent = tuple(replace(member, evidence=-1e9) for member in policy.members)
        families = [evolve(policy.model, learned_count=t, members=silent) for t in range(1, 301)]
        allowed = [family.allowance for family in families]
        left = (energy > np.array(allowed)).any(axis=1).mean()
        assert left <= DELTA / 4
    # not much more than Σε² itself
    assert allowed[-1] < 1.5 * 300 * R**2


@pytest.mark.parametrize("kind", family.RULES)
def test_the_bounds_hold_against_an_adversary(kind):
    """Skewed noise that pushes where the model errs, contexts where it errs most: at most δ of the runs fail."""
    found = [family.covered(kind, seed, horizon=60) for seed in range(12)]
    assert sum(failed or refuted for failed, refuted, _ in found) <= 12 * family.FAILURE
    assert max(worst for _, _, worst in found) > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("kind", family.RULES)
def test_the_bounds_hold_in_200_attacks(kind):
    found = [family.covered(kind, seed) for seed in range(200)]
    assert sum(failed or refuted for failed, refuted, _ in found) <= 200 * family.FAILURE


def test_late_rewards_count_for_the_kernel_that_asked():
    policy = kb.family_ucb(KERNELS, confidence=RADIUS, dictionary=None, seed=0)
    decisions = [policy.ask([0.1 * i], [[0.2], [0.7]]) for i in range(6)]
    assert sum(member.widths > 0 for member in policy.members) == 3
    for decision in reversed(decisions[1:]):
        policy.tell(decision.id, 0.5)
    policy.expire(decisions[0].id)
    assert [member.posterior.round_index for member in policy.members] == [5, 5, 5]
    assert sum(member.plays for member in policy.members) == 5


def test_select_writes_nothing_and_saving_goes_on(tmp_path):
    policy = played(kb.Kors(), rounds=30)
    before = copy.deepcopy([(member.evidence, member.misfit, member.widths) for member in policy.members])
    policy.select([0.4], [[0.2], [0.9]])
    assert before == [(member.evidence, member.misfit, member.widths) for member in policy.members]
    policy.save(tmp_path / "policy")
    again = kb.load(tmp_path / "policy")
    environment = kb.environments.StepDiagonal()
    first, second = (kb.run(one, environment, 20, seed=1).action_indices for one in (policy, again))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ([], {}, "list of kernels"),
        (KERNELS, {"confidence": kb.StandardDeviations()}, "needs a radius with a guarantee"),
        (KERNELS, {"weights": [1.0, 0.0, 1.0]}, "weights: expected positive"),
        (KERNELS, {"weights": [1.0]}, "weights"),
        (KERNELS, {"dictionary": kb.Kors(history="none")}, "history='all'"),
        (KERNELS, {"play": "best"}, "'balanced' or 'largest bound'"),
        (
            KERNELS,
            {"confidence": kb.Lemma31(norm_bound=1, noise_bound=1, failure_probability=0.1)},
            "is valid for exact",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, options, words):
    with pytest.raises(kb.InputError, match=words):
        kb.family_ucb(arguments, **{"confidence": RADIUS, **options})


@pytest.mark.parametrize("late", [False, True], ids=["update", "tell"])
def test_a_kernel_is_credited_with_what_it_earned(late):
    policy = kb.family_ucb(KERNELS, confidence=RADIUS, regularization=RIDGE, seed=0)
    generator = np.random.default_rng(0)
    for _ in range(15):
        context, actions = generator.random(1), generator.random((4, 1))
        if late:
            policy.tell(policy.ask(context, actions), 0.75)
        else:
            policy.update(context, policy.select(context, actions).action, 0.75)
    assert sum(member.plays for member in policy.members) == 15
    for member in policy.members:
        assert member.rewards == pytest.approx(0.75 * member.plays)


def test_a_kernel_is_not_refuted_for_what_its_anchors_leave_out():
    """Rewards without noise, of a function of norm B at a place that no anchor sees: nothing of it is in their span."""
    truth, far = np.array([[0.9, 0.9]]), kb.Fixed([[0.0, 0.0]])
    kernel = kb.Gaussian(0.15)
    radius = kb.Tightened(norm_bound=B, noise_bound=0.05, failure_probability=DELTA)
    policy = kb.family_ucb([kernel, kb.Gaussian(5.0)], confidence=radius, regularization=1e-3, dictionary=far, seed=0)
    generator = np.random.default_rng(1)
    for _ in range(60):
        point = np.clip(0.9 + 0.1 * generator.standard_normal(2), 0.0, 1.0)
        policy.update(point[:1], point[1:], B * kernel(point[None, :], truth).item())
    member = policy.members[0]
    rewards, residual = np.array(member.posterior.observed_rewards), member.posterior.residual_trace
    least = rewards @ rewards - rewards @ member.posterior.predict(np.array(member.posterior.observed_points)).mean
    # far more than Q is left by the anchors, and θ* itself leaves nothing
    assert least - 1e-3 * B**2 > policy.model.allowance
    assert math.sqrt(residual) * B > math.sqrt(least)
    assert not member.is_refuted
    # the bound on what the best θ misses: (√(L − λB²) − √ρ·B)²
    family = policy.model
    smaller = evolve(family, confidence=replace(radius, norm_bound=0.1))
    expected = (math.sqrt(least - 1e-3 * 0.01) - math.sqrt(residual) * 0.1) ** 2 + 1e-3 * 0.01
    assert smaller._projected_misfit(member) == pytest.approx(expected, rel=1e-9)


def comparison(first, second, *, third=None, reward=0.0):
    """A family whose kernels have played, and whose first plays once more; each is (rewards, widths, plays)."""
    policy = kb.family_ucb(KERNELS, confidence=RADIUS, regularization=RIDGE, dictionary=None, seed=0)
    point, members = np.array([[0.3, 0.4]]), []
    for member, state in zip(policy.members, (first, second, third or (0.0, 0.0, 0)), strict=True):
        members.append(replace(member, rewards=state[0], widths=state[1], plays=state[2]))
    family = evolve(policy.model, members=tuple(members))
    evaluations = [member.posterior.evaluate_finite(point) for member in members]
    return family.learned(point, np.array([reward]), None, Played(0, 0.0, evaluations, 0))


def slack(plays, tried):
    """Hoeffding for noise R and values in ±B, for all n and kernels that have played."""
    return (R + B) * math.sqrt(2.0 * math.log(4.0 * tried * (plays + 1) ** 2 / DELTA) / plays)


@pytest.mark.parametrize("widths", [0.0, 900.0])
def test_a_kernel_is_dropped_once_it_earned_less_than_widths_and_chance_explain(widths):
    plays, other = 4000, 1000
    # mean + slack + widths/plays < mean' − slack'
    least = slack(plays, 2) + slack(other, 2) + widths / plays
    for gap, is_dropped in ((0.999 * least, False), (1.001 * least, True)):
        family = comparison((-gap * plays, widths, plays - 1), (0.0, 0.0, other))
        assert [member.is_dropped for member in family.members] == [is_dropped, False, False]
        assert family.members[0].plays == plays


def test_a_kernel_that_has_not_played_is_neither_dropped_nor_compared():
    family = comparison((-4000.0, 0.0, 3999), (0.0, 0.0, 0))
    assert not any(member.is_dropped for member in family.members)
    # three that have played share δ among them
    least = slack(4000, 3) + slack(1000, 3)
    for gap, is_dropped in ((0.999 * least, False), (1.001 * least, True)):
        family = comparison((-gap * 4000, 0.0, 3999), (0.0, 0.0, 1000), third=(0.0, 0.0, 1000))
        assert [member.is_dropped for member in family.members] == [is_dropped, False, False]


def test_kernels_come_back_once_those_that_beat_them_are_refuted():
    family = comparison((-4000.0, 0.0, 3999), (0.0, 0.0, 4000))
    assert [member.is_dropped for member in family.members] == [True, False, False]
    one, two, three = family.members
    refuted = evolve(family, members=(one, replace(two, is_refuted=True), replace(three, is_refuted=True)))
    point = np.array([[0.3, 0.4]])
    evaluations = [member.posterior.evaluate_finite(point) for member in refuted.members]
    after = refuted.learned(point, np.array([0.0]), None, Played(0, 0.0, evaluations, 0))
    assert after.active == [0]
    assert not after.members[0].is_dropped
