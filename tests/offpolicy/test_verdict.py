"""Verdicts: whether to switch, from logs of rules that stay and of policies that learn, looked at again and again."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit
from simulated import expected_rewards, logging_table, simulated_log, target_table

import kernel_bandits as kb
from kernel_bandits import offpolicy
from kernel_bandits.offpolicy import CandidateValue, Log, RewardModel, modelled_terms, weighted_terms
from kernel_bandits.offpolicy.reward_model import EarlierMean
from kernel_bandits.offpolicy.sequences import Sums

MODEL = RewardModel(kb.Gaussian(0.7), regularization=0.05, most_rows=300, most_anchors=60)


def clicks(count, seed):
    """A log whose rewards are 0 or 1, with the probabilities of every action."""
    log = simulated_log(count, seed)
    drawn = np.random.default_rng(seed + 1).random(count) < np.clip(log.rewards, 0.0, 1.0)
    return replace(log, rewards=drawn.astype(float))


@given(st.integers(0, 2**32), st.floats(0.0, 20.0))
def test_modelled_terms_have_the_difference_as_expectation_and_a_floor(seed, cap):
    """Summed over the action that may be played, with its probability, for any model at all."""
    generator = np.random.default_rng(seed)
    count, actions, low, high = 6, 4, -1.0, 3.0
    first, second, logged = (generator.dirichlet(np.full(actions, 0.5), count) for _ in range(3))
    predicted, rewards = generator.normal(size=(2, count, actions)) * 3
    rewards = np.clip(rewards, low, high)
    for delta, start in ((first - second, 0.0), (first, low)):
        expected = (delta * rewards).sum(axis=1) - start
        total = [np.zeros(count), np.zeros(count)]
        for action in range(actions):
            played = np.full(count, action)
            terms = modelled_terms(delta, logged, played, rewards[:, action], predicted, low, high, (cap,))
            for place, side in enumerate(terms[:, 0]):
                total[place] += logged[:, action] * side
                assert (side >= -(cap + 1.0) * (high - low) - 1e-9).all()
        np.testing.assert_allclose(total[0], expected, atol=1e-8)
        np.testing.assert_allclose(total[1], -expected, atol=1e-8)


def test_an_uncut_model_is_doubly_robust():
    generator = np.random.default_rng(0)
    target, logged = (generator.dirichlet(np.ones(3), 50) for _ in range(2))
    predicted, played, rewards = generator.random((50, 3)), generator.integers(3, size=50), generator.random(50)
    terms = modelled_terms(target, logged, played, rewards, predicted, 0.0, 1.0, (1e9,))
    each = np.arange(50)
    weights = target[each, played] / logged[each, played]
    robust = (target * predicted).sum(axis=1) + weights * (rewards - predicted[each, played])
    np.testing.assert_allclose(terms[:, 0], [robust, -robust], atol=1e-9)


def test_an_action_that_was_never_tried_counts_as_the_whole_range():
    """The interval is then valid, and does not shrink below the candidate's share of such actions."""
    generator, count = np.random.default_rng(1), 4000
    logged = np.tile([0.5, 0.5, 0.0], (count, 1))
    played = generator.integers(2, size=count)
    target = np.tile([0.5, 0.3, 0.2], (count, 1))
    rewards = (generator.random(count) < 0.4).astype(float)
    terms = modelled_terms(target, logged, played, rewards, np.full((count, 3), 0.4), 0.0, 1.0)
    low, high = CandidateValue().after(terms).interval
    # 0.8·0.4 if the new action earns nothing, 0.2 more if it always does
    assert low < 0.32 < 0.52 < high
    assert high - low < 0.2 + 0.15


@given(st.integers(0, 2**32))
def test_rounds_one_by_one_and_in_blocks_give_one_interval(seed):
    generator = np.random.default_rng(seed)
    weights, rewards = generator.exponential(size=30), generator.random(30)
    start = CandidateValue(paired=True, caps=(0.0,))
    block, single = start.after(weighted_terms(weights, rewards, 0.0, 1.0, True)), start
    for weight, reward in zip(weights, rewards, strict=True):
        single = single.after(weighted_terms(np.array([weight]), np.array([reward]), 0.0, 1.0, True))
    assert single.interval == pytest.approx(block.interval, abs=1e-12)
    assert single.count == 30
    # (w − 1)r on average, counted from either end of the range by its precision: Σ(w − 1) is not 0 in a sample
    low, high = np.mean((weights - 1.0) * rewards), np.mean((weights - 1.0) * (rewards - 1.0))
    shares = 1.0 / block.sums.squares[:, 0]
    assert block.estimate == pytest.approx((shares @ [low, high]) / shares.sum())


def test_the_value_of_a_candidate_stays_inside_at_all_times():
    """200 logs of a rule that plays more of what looks best, 500 rounds: at most 5 % leave, and it is no wonder."""
    generator, shares = np.random.default_rng(2), {}
    runs, count = 200, 500
    plays, sums = np.ones((runs, 2)), np.full((runs, 2), 0.5)
    terms = np.zeros((2, 1, runs, count))
    for t in range(count):
        ahead = (sums[:, 1] / plays[:, 1] > sums[:, 0] / plays[:, 0]).astype(float)
        share = 0.1 + 0.8 * ahead
        second = generator.random(runs) < share
        reward = (generator.random(runs) < 0.5).astype(float)
        weight = second / share
        terms[..., t] = weighted_terms(weight, reward, 0.0, 1.0, False)
        played = second.astype(int)
        plays[np.arange(runs), played] += 1
        sums[np.arange(runs), played] += reward
    start = Sums(0, np.zeros((2, 1, runs)), np.zeros((2, 1, runs)))
    for level in (0.95, 0.3):
        low, high = CandidateValue(caps=(0.0,), level=level, sums=start).path(terms).interval
        shares[level] = ((low > 0.5) | (high < 0.5)).any(axis=1).mean()
    assert shares[0.95] <= 0.05
    assert shares[0.3] > 0.02


def test_a_clear_difference_is_a_switch_and_its_reverse_a_stay():
    log = clicks(2000, 0)
    fitted = offpolicy.fitted_model(log, MODEL, "learning")
    better = kb.verdict(log, 0, 3, model=fitted)
    assert (better.decision, better.rounds_needed, better.overlap.wrong) == ("switch", 0, ())
    truth = 0.5 + 0.4 * np.mean(np.sin(3 * np.random.default_rng(0).random(10**5))) - 0.45
    assert better.low < truth < better.high
    assert better.sentence.startswith("Switch: the candidate earns")
    worse = kb.verdict(log, 3, 0, model=fitted)
    assert worse.decision == "stay"
    assert (worse.low, worse.high) == pytest.approx((-better.high, -better.low), abs=1e-9)
    same = kb.verdict(log, 3, 3, model=fitted)
    assert (same.decision, same.lift) == ("keep logging", pytest.approx(0.0, abs=1e-12))
    assert same.rounds_needed is None
    assert "cannot be told" in same.sentence


def test_the_forecast_is_met():
    """The rounds that a verdict asks for decide it, on average over logs."""
    needed, asked = [], []
    for seed in range(6):
        long = clicks(4000, seed)
        short = kb.verdict(long.rows(slice(0, 300)), 0, 3, model=None)
        if short.decision == "keep logging" and short.rounds_needed is not None:
            asked.append(300 + short.rounds_needed)
        path = kb.verdict(long, 0, 3, model=None)
        decided = np.flatnonzero(path.lows > 0.0)
        needed.append(path.times[decided[0]] if len(decided) else 4000)
    assert 0.3 < np.median(asked) / np.median(needed) < 3.0


def test_against_what_was_played():
    """The log's own policy has no lift, and a better one has one, with probabilities and without."""
    log = clicks(1500, 4)
    own = kb.verdict(log, logging_table(log.contexts), model=MODEL)
    assert own.decision == "keep logging"
    assert own.lift == pytest.approx(0.0, abs=1e-9)
    better = target_table(log.contexts, 8.0)
    alone = replace(log, probabilities=None)
    for one, model in ((log, MODEL), (alone, MODEL), (alone, None)):
        found = kb.verdict(one, better, model=model)
        truth = np.mean(((better - logging_table(log.contexts)) * expected_rewards(log.contexts)).sum(axis=1))
        assert found.low < truth < found.high
        assert (found.overlap.ratio_probability is None) == (one is alone)


def test_a_log_with_wrong_propensities_is_no_answer():
    log = clicks(1500, 5)
    wrong = replace(log, probabilities=None, propensities=np.full(1500, 0.25))
    found = kb.verdict(wrong, 0, model=None)
    # four shares of a quarter are those of a trial, and the plays are not even
    assert found.overlap.ratio_probability < 1e-6
    assert found.decision == "keep logging"
    assert "cannot answer" in found.sentence
    honest = [kb.verdict(clicks(300, seed), 0, model=None).overlap.ratio_probability for seed in range(40)]
    assert np.mean(np.array(honest) < 0.5) == pytest.approx(0.5, abs=0.3)
    assert min(honest) > 1e-3


def test_the_range_of_the_rewards_is_never_read_off_the_log():
    log = simulated_log(300, 0)
    with pytest.raises(kb.InputError, match="reward_range: expected the lowest and the highest"):
        kb.verdict(log, 0, model=None)
    with pytest.raises(kb.InputError, match=r"reward_range: row \d+ has the reward"):
        kb.verdict(log, 0, reward_range=(0.0, 0.5), model=None)
    one = kb.verdict(log, 0, reward_range=(-1.0, 2.0), model=None)
    scaled = replace(log, rewards=10.0 * log.rewards + 5.0)
    ten = kb.verdict(scaled, 0, reward_range=(-5.0, 25.0), model=None)
    assert (ten.low, ten.high) == pytest.approx((10 * one.low, 10 * one.high), rel=1e-9)


def test_a_preset_knows_earlier_rounds_alone():
    """Changing the later half of a log changes nothing of the verdict on the first half's moments."""
    log = clicks(400, 6)
    other = replace(log, rewards=np.where(np.arange(400) < 210, log.rewards, 1.0 - log.rewards))
    one, two = (kb.verdict(each, "lin_ucb", model=MODEL) for each in (log, other))
    early = one.times <= 210
    np.testing.assert_array_equal(one.lows[early], two.lows[early])
    assert one.low != two.low
    with pytest.raises(kb.InputError, match="written_by='fixed'"):
        kb.verdict(log, 0, model=offpolicy.fitted_model(log, MODEL))


def test_rare_rewards_are_counted_from_their_own_end():
    """One click in 200: what varies is the weights, and a mean of earlier rewards takes that out."""
    generator, count = np.random.default_rng(9), 4000
    played = generator.integers(10, size=count)
    rewards = (generator.random(count) < 0.005).astype(float)
    log = Log(np.empty((0, 0)), played, rewards, np.full(count, 0.1), np.eye(10))
    table = np.tile(generator.dirichlet(np.ones(10)), (count, 1))
    table[:, 0] += generator.random(count) * 1e-9  # not a share of the log
    table /= table.sum(axis=1, keepdims=True)
    found = kb.verdict(log, table, model=None)
    gain = np.mean((table[np.arange(count), played] / 0.1 - 1.0) * rewards)
    assert found.lift == pytest.approx(gain, abs=0.002)
    assert found.low < 0.0 < found.high
    assert found.high - found.low < 0.05
    # the reward of the round itself is not among those before it
    np.testing.assert_allclose(EarlierMean.of(np.array([1.0, 0.0, 1.0]), 0.5).means, [0.5, 0.75, 0.5])


def test_errors_of_a_verdict_say_what_to_do():
    log = clicks(60, 1)
    for bad in ((1.0, 0.0), (0.0, np.nan), 5, (0.0,)):
        with pytest.raises(kb.InputError, match=r"reward_range: expected \(lowest, highest\)"):
            kb.verdict(log, 0, reward_range=bad, model=None)
    for written_by in ("fixed", "learning"):
        with pytest.raises(kb.InputError, match="level: expected a probability"):
            offpolicy.evaluate(log, 0, level=95, model=None, written_by=written_by)
    with pytest.raises(kb.InputError, match=r"sum 1, got \[0\.5, 0\.0, 0\.0, 0\.0\] in row 0 of the log"):
        kb.verdict(log, np.tile([0.5, 0.0, 0.0, 0.0], (60, 1)), model=None)
    with pytest.raises(kb.InputError, match="name an action that was never played by actions="):
        kb.verdict(log, "mauve", model=None)
    with pytest.raises(kb.InputError, match="expected a policy that learns in place"):
        offpolicy.replay("ek_ucb", log)
    with pytest.raises(kb.InputError, match="log: expected at least one row, got none"):
        Log(np.empty((0, 2)), [], [], [])


def test_one_round_and_absurd_weights_decide_nothing():
    log = clicks(1, 3)
    found = kb.verdict(log, 0, model=None)
    assert (found.decision, found.low, found.high) == ("keep logging", -1.0, 1.0)
    wild = replace(clicks(300, 3), probabilities=None, propensities=np.full(300, 1e-12))
    found = kb.verdict(wild, 0, model=None)
    assert found.decision == "keep logging"
    assert "cannot answer" in found.sentence


def test_the_picture_ends_at_the_interval():
    found = kb.verdict(clicks(300, 7), 1, model=None)
    assert (found.times[0], found.times[-1]) == (1, 300)
    assert (found.lows[-1], found.highs[-1]) == (found.low, found.high)
    assert found.highs[0] - found.lows[0] == 2.0
    axes = found.plot()
    assert axes.get_xlabel() == "round"
    lift = next(line for line in axes.get_lines() if line.get_label() == "lift")
    assert (lift.get_xdata()[0], lift.get_ydata()[0]) == (300, found.lift)
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == found.lows.min()


# what evaluate says of the same logs


def test_adaptive_weights_even_out_variances():
    """Without contexts h is 1/√Σπ²/p of the round itself; with contexts it must not see the round's own."""
    generator, count = np.random.default_rng(0), 400
    share = np.where(np.arange(count) < 200, 0.5, 0.05)
    played = (generator.random(count) < share).astype(int)
    probabilities = np.stack([1.0 - share, share], axis=1)
    rewards = generator.random(count)
    log = Log(np.empty((0, 0)), played, rewards, probabilities[np.arange(count), played], np.eye(2), (), probabilities)
    found = offpolicy.evaluate(log, 1, model=None, written_by="learning")
    np.testing.assert_allclose(found.weights, np.sqrt(share))
    terms = played / share * rewards
    expected = (np.sqrt(share) @ terms) / np.sqrt(share).sum()
    one = found.estimates["inverse propensity"]
    assert one.value == pytest.approx(expected)
    error = np.sqrt((share * (terms - expected) ** 2).sum()) / np.sqrt(share).sum()
    # Student's quantile, since few of the weighted rounds carry the error
    weighted = np.sqrt(share) * played / share
    effective = weighted.sum() ** 2 / (weighted @ weighted)
    half = stdtrit(effective - 1, 0.975) * error
    assert (one.low, one.high) == pytest.approx((expected - half, expected + half), rel=1e-6)
    assert 1.96 < half / error < 2.0
    seen = replace(log, contexts=generator.random((count, 1)))
    weights = offpolicy.evaluate(seen, 1, model=None, written_by="learning").weights
    np.testing.assert_allclose(weights[190], np.sqrt(0.5))
    assert weights[200] == pytest.approx(np.sqrt(0.5))
    assert weights[230] == pytest.approx(np.sqrt(0.05))
    with pytest.raises(kb.InputError, match="written_by"):
        offpolicy.evaluate(log, 1, written_by="a policy")


def test_models_of_a_log_that_was_learned_know_earlier_rounds_alone():
    log = simulated_log(230, 0)
    fitted = offpolicy.fitted_model(log, MODEL, "learning")
    assert fitted.models[0] is None
    np.testing.assert_array_equal(np.bincount(fitted.folds), [50, 50, 100, 30])
    for fold, model in enumerate(fitted.models[1:], 1):
        assert model.round_index == np.flatnonzero(fitted.folds == fold)[0]


def test_marginal_weights_equal_their_sums():
    generator = np.random.default_rng(0)
    target, logged = (generator.dirichlet(np.ones(6), 40) for _ in range(2))
    played, rewards = generator.integers(6, size=40), generator.random(40)
    labels = np.array([0, 0, 1, 2, 1, 1])
    log = Log(np.empty((0, 0)), played, rewards, logged[np.arange(40), played], np.eye(6), (), logged)
    found = offpolicy.evaluate(log, target, model=None, embedding=labels).terms["marginalised"]
    for i in range(40):
        same = [a for a in range(6) if labels[a] == labels[played[i]]]
        weight = sum(target[i, a] for a in same) / sum(logged[i, a] for a in same)
        assert found[i] == pytest.approx(weight * rewards[i])
    plain = offpolicy.evaluate(log, target, model=None, embedding=np.arange(6)).terms
    np.testing.assert_allclose(plain["marginalised"], plain["inverse propensity"])
    with pytest.raises(kb.InputError, match="probabilities of every action"):
        offpolicy.evaluate(replace(log, probabilities=None), target, model=None, embedding=labels)
    with pytest.raises(kb.InputError, match="a row for each of 6 actions"):
        offpolicy.evaluate(log, target, model=None, embedding=[1, 2])


def test_a_thousand_described_actions():
    """Rewards depend on the brand alone, which a twentieth of the actions share; the candidate plays five of them."""
    generator, count, actions, brands = np.random.default_rng(3), 3000, 1000, 20
    brand = np.arange(actions) % brands
    worth = np.linspace(0.1, 0.9, brands)
    logged = np.tile(generator.dirichlet(np.ones(actions)), (count, 1))
    played = generator.choice(actions, count, p=logged[0])
    rewards = (generator.random(count) < worth[brand[played]]).astype(float)
    rows = [{"arm": action, "brand": f"brand {brand[action]}"} for action in range(actions)]
    propensities = logged[0][played]
    log = Log([{"x": 0.0}] * count, played, rewards, propensities, rows).with_probabilities(logged)
    target = np.zeros((count, actions))
    target[:, 15:20] = 0.2
    found = offpolicy.evaluate(log, target, model=None, embedding=["brand"]).estimates
    truth = worth[15:].mean()
    assert abs(found["marginalised"].value - truth) < 0.06
    assert found["marginalised"].low < truth < found["marginalised"].high
    assert found["inverse propensity"].standard_error > 4 * found["marginalised"].standard_error
    with pytest.raises(kb.InputError, match="embedding: expected columns of the actions"):
        offpolicy.evaluate(log, target, model=None, embedding=["price"])


def test_learning_from_a_log_reports_what_the_policy_would_earn():
    log = clicks(700, 8)
    policy = kb.lin_ucb(seed=0)
    found = kb.learn_from(log, policy, model=MODEL)
    assert (policy.round_index, found.policy.round_index, found.weighted) == (0, 700, False)
    plain = kb.lin_ucb(seed=0)
    plain.update_many(log.contexts, log.actions[log.played], log.rewards)
    np.testing.assert_allclose(
        found.policy.predict(log.contexts[0], log.actions).mean, plain.predict(log.contexts[0], log.actions).mean
    )
    fitted = offpolicy.fitted_model(log, MODEL)
    expected = np.empty(700)
    for fold in range(3):
        own = fitted.folds == fold
        part = kb.lin_ucb(seed=0)
        part.update_many(log.contexts[~own], log.actions[log.played[~own]], log.rewards[~own])
        chosen = np.array([one.index for one in part.select_many(log.contexts[own], log.actions)])
        expected[own] = (log.played[own] == chosen) / log.propensities[own] * log.rewards[own]
    np.testing.assert_allclose(found.valuation.terms["inverse propensity"], expected)
    with pytest.raises(kb.InputError, match="learned nothing yet"):
        kb.learn_from(log, found.policy)


def test_weights_undo_what_the_log_knew_and_the_policy_does_not():
    """Arm 1 went to those who buy anyway: the plain regression takes that for the arm's merit."""
    generator, count = np.random.default_rng(9), 900
    keen = generator.random(count) < 0.5
    share = np.where(keen, 0.9, 0.1)
    second = generator.random(count) < share
    rewards = (generator.random(count) < 0.2 + 0.6 * keen - 0.1 * second).astype(float)
    rows = [{"day": 0.5, "keen": bool(one)} for one in keen]
    propensities = np.where(second, share, 1.0 - share)
    log = Log(rows, np.where(second, "b", "a"), rewards, propensities)
    blind = kb.Features({"day": kb.Numeric()}, ["a", "b"])

    def difference(**options):
        policy = kb.ek_ucb(kb.Gaussian(1.0), regularization=0.01, features=blind, seed=0)
        found = kb.learn_from(log, policy, model=None, **options)
        means = found.policy.predict({"day": 0.5}).mean
        return found.weighted, means[1] - means[0]

    weighted, honest = difference()
    assert weighted
    weights = 1.0 / propensities
    sums = [(weights * rewards)[arm].sum() / weights[arm].sum() for arm in (~second, second)]
    assert honest == pytest.approx(sums[1] - sums[0], abs=0.01)
    plain = rewards[second].mean() - rewards[~second].mean()
    assert difference(weighted=False)[1] == pytest.approx(plain, abs=0.01)
    assert plain > 0.3 > honest + 0.2


def test_a_verdict_says_how_much_of_a_candidate_the_log_never_played():
    log = clicks(200, 5)
    few = Log(log.contexts, np.minimum(log.played, 2), log.rewards, log.propensities, actions=np.eye(4))
    candidate = np.tile([0.25, 0.0, 0.0, 0.75], (200, 1))
    assert kb.verdict(few, candidate, model=None).overlap.unseen == pytest.approx(0.75)


def test_as_many_rounds_again_have_as_many_times_the_sums():
    assert Sums(4.0, 2.0, 3.0).times(2.5) == Sums(10.0, 5.0, 7.5)


def test_no_guarantee_covers_weights_of_a_log():
    """The noise of such a round is R, not R/√w: bounds of k_ucb failed in 4 of 30 logs with weights of up to 25."""
    log = simulated_log(40, 2)
    radius = kb.Tightened(norm_bound=1.0, noise_bound=0.2, failure_probability=0.1)
    policy = kb.k_ucb(kb.Gaussian(0.5), regularization=0.1, confidence=radius, seed=0)
    with pytest.raises(kb.InputError, match="rounds weighted by propensities keep their noise"):
        kb.learn_from(log, policy, weighted=True, model=None)
    assert kb.learn_from(log, policy, weighted=False, model=None).policy.round_index == 40
