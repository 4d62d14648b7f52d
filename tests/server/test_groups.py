"""Control group and challenger: who decides, with which probability, and what is said of them."""

from collections import Counter

import numpy as np
import pytest
from kernel_bandits_server import insight
from kernel_bandits_server.choosing import draft_all, place_of
from kernel_bandits_server.events import Event
from kernel_bandits_server.messages import DecisionRequest
from kernel_bandits_server.planning import Decide
from kernel_bandits_server.replica import TOGETHER, Replica
from kernel_bandits_server.settings import parse_settings
from kernel_bandits_server.tally import estimates
from kernel_bandits_server.trial import MISMATCH, STEPS, _evidence

from kernel_bandits.errors import InputError

LOOP = """\
[loops.shop]
policy = "{policy}"
exploration_floor = {floor}
anticipates = false
{groups}
[loops.shop.context]
age = {{ kind = "Numeric", range = [0, 100] }}
[loops.shop.arms]
names = ["red", "blue", "green"]
"""


def loop_of(groups, policy="uniform", floor=0.0):
    text = LOOP.format(groups=groups, policy=policy, floor=floor)
    return parse_settings(text.replace("exploration_floor = 0.0\n", "")).loops["shop"]


def decide(replica, count, generator, prefix="d", **options):
    """Decisions of a replica with their drafts; nothing is appended."""
    commands = [
        Decide(f"{prefix}{i}", False, DecisionRequest({"age": float(generator.uniform(0, 100))}, **options))
        for i in range(count)
    ]
    draft_all(commands, replica)
    for command in commands:
        if command.error:
            raise command.error
    return commands


def play(replica, commands, rates, generator, time=None):
    """Append decisions and the rewards that arms and groups earn."""
    time = replica.time + 60.0 if time is None else time
    decisions = [Event("decision", command.id, command.draft) for command in commands]
    rewards = [
        Event("reward", command.id, {"reward": float(generator.random() < rates(command.draft)), "source": "caller"})
        for command in commands
    ]
    first = replica.applied + 1
    replica.apply([event._replace(number=first + i, time=time) for i, event in enumerate([*decisions, *rewards])])


def test_the_control_group_has_its_share_and_plays_its_rule():
    replica = Replica(loop_of('control = { share = 0.25, rule = "fixed", arm = "red" }'))
    made = decide(replica, 4000, np.random.default_rng(0))
    groups = Counter(command.draft["group"] for command in made)
    # four standard deviations of a binomial
    assert abs(groups["control"] - 1000) < 4 * np.sqrt(4000 * 0.25 * 0.75)
    assert {one.draft["arm"] for one in made if one.draft["group"] == "control"} == {"red"}
    assert {one.draft["arm"] for one in made if one.draft["group"] == "policy"} == {"red", "blue", "green"}
    # m = s·q + (1 − s)·p
    for one in made:
        assert one.draft["probabilities"] == pytest.approx([0.5, 0.25, 0.25])
        assert one.draft["propensity"] == one.draft["probabilities"][["red", "blue", "green"].index(one.draft["arm"])]


def test_a_visitor_stays_in_one_group_in_every_process():
    settings, generator = loop_of('control = { share = 0.5, rule = "uniform" }'), np.random.default_rng(1)
    for visitor in ("anna", "bert", "carl", "dora"):
        made = [one for _ in range(2) for one in decide(Replica(settings), 20, generator, visitor, visitor=visitor)]
        assert len({one.draft["group"] for one in made}) == 1
    assert place_of("shop", "anna") == place_of("shop", "anna") != place_of("other", "anna")


def test_the_current_choice_of_the_caller_is_played_by_the_control_group():
    replica, generator = Replica(loop_of('control = { share = 0.5, rule = "current" }')), np.random.default_rng(2)
    made = decide(replica, 200, generator, current="green")
    assert {one.draft["arm"] for one in made if one.draft["group"] == "control"} == {"green"}
    with pytest.raises(InputError, match="what is played today"):
        decide(replica, 1, generator)
    with pytest.raises(InputError, match="'gold' is not on offer"):
        decide(replica, 1, generator, current="gold")


def test_what_is_played_today_in_a_box_is_checked_in_both_groups():
    text = LOOP.partition("[loops.shop.arms]")[0].replace("exploration_floor = {floor}\n", "")
    text += '[loops.shop.actions]\nprice = {{ kind = "Numeric", range = [0, 10] }}\n'
    groups = 'control = { share = 0.5, rule = "current" }'
    replica = Replica(parse_settings(text.format(groups=groups, policy="ek_ucb")).loops["shop"])
    box, generator = {"price": [1, 5]}, np.random.default_rng(0)
    made = [one.draft for one in decide(replica, 8, generator, box=box, current={"price": 2.5})]
    assert {one["group"] for one in made} == {"control", "policy"}
    assert all((one["action"] == {"price": 2.5}) == (one["group"] == "control") for one in made)
    for number in range(8):
        with pytest.raises(InputError):
            decide(replica, 1, generator, f"{number}-", box=box, current="red")
        with pytest.raises(InputError, match="current"):
            decide(replica, 1, generator, f"{number}-", box=box)


def test_the_fixed_arm_has_to_be_on_offer_for_both_groups():
    replica = Replica(loop_of('control = { share = 0.1, rule = "fixed", arm = "red" }'))
    with pytest.raises(InputError, match="'red' of the control group is not on offer"):
        decide(replica, 1, np.random.default_rng(0), actions=["blue", "green"])


def test_averages_of_the_log_are_unbiased_for_every_arm():
    replica, generator = (
        Replica(loop_of('control = { share = 0.4, rule = "fixed", arm = "red" }')),
        np.random.default_rng(3),
    )
    rates = {"red": 0.2, "blue": 0.7, "green": 0.4}
    for part in range(10):
        play(replica, decide(replica, 400, generator, f"{part}-"), lambda draft: rates[draft["arm"]], generator)
    found = replica.seen().report()
    for arm in found["arms"]:
        assert arm["low"] < rates[arm["arm"]] < arm["high"]
    assert found["uniform"]["low"] < np.mean(list(rates.values())) < found["uniform"]["high"]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_interval_of_an_average_holds_at_all_times_at_once(weighted):
    generator, runs, count = np.random.default_rng(4), 300, 2_000
    young = generator.random((runs, count)) < 0.4
    rewards = (generator.random((runs, count)) < np.where(young, 0.25, 0.1)).astype(float)
    # an arm that is played mostly where it earns more
    chance = np.where(young, 0.9, 0.1) if weighted else np.ones((runs, count))
    weights = (generator.random((runs, count)) < chance) / chance
    terms = [weights > 0.0, weights, weights * rewards, weights**2, weights**2 * rewards, weights**2 * rewards**2]
    sums, truth, outside = np.cumsum(terms, axis=2), 0.4 * 0.25 + 0.6 * 0.1, np.zeros(runs, dtype=bool)
    for seen in np.unique(np.geomspace(5, count, 60).astype(int)):
        found = estimates(sums[:, :, seen - 1].T, (0.0, 1.0))
        outside |= [one["count"] > 0 and not one["low"] <= truth <= one["high"] for one in found]
    assert outside.mean() <= 0.05


def test_rewards_of_one_size_have_no_interval_until_their_ends_are_known():
    sums = np.array([[100.0, 100.0, 0.0, 100.0, 0.0, 0.0]])
    assert estimates(sums, (0.0, 0.0)) == [{"mean": 0.0, "low": None, "high": None, "count": 100}]
    assert 0.05 < estimates(sums, (0.0, 1.0))[0]["high"] < 0.5


@pytest.mark.parametrize(("floor", "known"), [(0.1, True), (0.0, False)])
def test_probabilities_are_known_where_every_action_can_be_played(floor, known):
    replica = Replica(loop_of('control = { share = 0.4, rule = "fixed", arm = "red" }', "lin_ucb", floor))
    # without a floor nobody plays green where the policy plays blue
    drafts = [one.draft for one in decide(replica, 50, np.random.default_rng(0))]
    assert {one["propensity"] is not None for one in drafts} == {known}
    assert {one["probabilities"] is not None for one in drafts} == {known}
    excluded = [one.draft for one in decide(replica, 20, np.random.default_rng(0), excluded=["blue", "green"])]
    assert {one["propensity"] for one in excluded} == {1.0}


@pytest.mark.parametrize(("better", "word"), [(0.3, "switch"), (-0.3, "stay"), (0.0, "keep going")])
def test_the_verdict_says_what_is_true(better, word):
    replica, generator = Replica(loop_of('control = { share = 0.5, rule = "uniform" }')), np.random.default_rng(4)
    for part in range(8):
        made = decide(replica, 250, generator, f"{part}-")
        play(
            replica, made, lambda draft: 0.4 + better * (draft["group"] != "control"), generator, 86_400.0 * (part + 1)
        )
    found = insight.verdicts(replica)
    assert found["verdict"] == word
    assert found["low"] <= better <= found["high"]
    assert found["words"].lower().startswith(word)
    assert found["split"]["balanced"]
    assert sum(found["counts"].values()) == 2000
    lows = [one["low"] for one in found["segments"]["age"] if one["low"] is not None]
    # five ranges, and those before the ranges were known
    assert len(lows) == 6
    # a segment knows less than all together
    assert all(low <= found["low"] for low in lows) or word != "switch"


def test_a_sample_ratio_mismatch_is_found_and_no_verdict_given():
    replica, generator = Replica(loop_of('control = { share = 0.5, rule = "uniform" }')), np.random.default_rng(5)
    made = decide(replica, 2000, generator)
    kept = [one for place, one in enumerate(made) if one.draft["group"] != "control" or place % 4]
    play(replica, kept, lambda draft: 0.9 if draft["group"] == "policy" else 0.1, generator)
    found = insight.verdicts(replica)
    assert found["verdict"] == "check the split"
    assert any("sample-ratio mismatch" in warning for warning in insight.summary(replica)["warnings"])


def test_a_fair_split_is_hardly_ever_called_a_mismatch():
    generator, wrong = np.random.default_rng(6), 0
    for _ in range(200):
        control = np.cumsum(generator.random(2000) < 0.1)
        wrong += any(_evidence(int(control[n - 1]), n, 0.1) > np.log(MISMATCH) for n in range(50, 2001, 50))
    # the probability is below one in a thousand each
    assert wrong <= 2


def test_no_verdict_without_a_control_group():
    assert insight.verdicts(Replica(loop_of("")))["verdict"] == "no control group"


def test_averages_wait_for_the_first_decision_that_is_not_settled():
    replica, generator = Replica(loop_of("silence = { after = 3600, reward = 0.0 }")), np.random.default_rng(7)
    made = decide(replica, 4, generator)
    events = [Event("decision", one.id, one.draft) for one in made]
    # purchases are told at once; the first visitor is silent so far
    events += [Event("reward", one.id, {"reward": 1.0, "source": "caller"}) for one in made[1:]]
    replica.apply([event._replace(number=place, time=1.0) for place, event in enumerate(events, 1)])
    found = insight.summary(replica)
    assert (found["reward"]["count"], found["maturity"]["counted"], found["pending"]) == (0, 0, 1)
    assert found["maturity"]["words"].startswith("The averages count 0 of 4 decisions")
    replica.apply([Event("reward", made[0].id, {"reward": 0.0, "source": "silence"}, 3700.0, replica.applied + 1)])
    found = insight.summary(replica)
    assert (found["reward"]["mean"], found["reward"]["count"]) == (0.75, 4)
    # silence is configured as a reward: no warning
    assert found["warnings"] == []


def test_the_challenger_is_estimated_from_the_log_of_the_policy():
    replica, generator = Replica(loop_of('challenger = { policy = "lin_ucb" }')), np.random.default_rng(8)
    rates = {"red": 0.1, "blue": 0.9, "green": 0.1}
    for part in range(12):
        play(replica, decide(replica, 100, generator, f"{part}-"), lambda draft: rates[draft["arm"]], generator)
    found = insight.summary(replica)["challenger"]
    # it has learned to play blue; the policy plays all arms alike
    assert found["low"] > 0.0
    assert found["gain"] == pytest.approx(0.9 - 1.1 / 3, abs=0.15)
    assert found["share"] == 0.0
    assert replica.seen().trial.next_share(0.0) == STEPS[1]


def test_a_visitor_who_comes_again_stays_in_the_control_group_alone():
    groups = 'control = { share = 0.3, rule = "uniform" }\nchallenger = { policy = "lin_ucb" }'
    replica, generator = Replica(loop_of(groups)), np.random.default_rng(11)
    replica.apply([Event("change", "#x", {"share": 0.5, "by": "hand"}, 1.0, 1)])
    for visitor in range(20):
        made = decide(replica, 40, generator, f"{visitor}-", visitor=f"v{visitor}")
        seen = {one.draft["group"] for one in made}
        assert seen in ({"control"}, {"policy", "challenger"})
        for draft in (one.draft for one in made if one.draft["group"] != "control"):
            policy, rival = draft["weights"]
            # of those whom both may decide, half each
            assert 0.5 * policy + 0.5 * rival == pytest.approx(1.0)
        assert all("weights" not in one.draft for one in made if one.draft["group"] == "control")


def test_a_promoted_challenger_decides_its_share_and_steps_back_when_it_is_worse():
    settings = loop_of('challenger = { policy = "uniform", automatic = true }', "lin_ucb", 0.3)
    replica, generator = Replica(settings), np.random.default_rng(9)
    rates = {"red": 0.05, "blue": 0.95, "green": 0.05}
    for part in range(3):
        play(replica, decide(replica, 100, generator, f"{part}-"), lambda draft: rates[draft["arm"]], generator)
    change = Event("change", "#x", {"share": 0.5, "by": "hand"}, replica.time + 1.0, replica.applied + 1)
    replica.apply([change])
    assert insight.summary(replica)["challenger"]["count"] == 0
    made = decide(replica, 1000, generator, "later-")
    assert 400 < sum(one.draft["group"] == "challenger" for one in made) < 600
    assert {one.draft["arm"] for one in made if one.draft["group"] == "challenger"} == set(rates)
    for part in range(10):
        play(replica, made[100 * part : 100 * part + 100], lambda draft: rates[draft["arm"]], generator)
    assert insight.summary(replica)["challenger"]["high"] < 0.0
    assert replica.seen().trial.next_share(replica.share) == 0.25


def test_the_segments_say_who_gets_what():
    replica, generator = Replica(loop_of("")), np.random.default_rng(10)

    for part in range(10):
        made = decide(replica, 200, generator, f"{part}-")
        play(
            replica,
            made,
            lambda draft: 0.9 if (draft["arm"] == "blue") == (draft["context"]["age"] < 40) else 0.1,
            generator,
        )
    found = insight.segments(replica, "age")["segments"]
    assert len(found) == 6
    young = next(one for one in found if one["segment"].startswith("below"))
    means = {arm["arm"]: arm["mean"] for arm in young["arms"]}
    assert means["blue"] > 0.8 > 0.3 > means["red"]
    assert sum(arm["share"] for arm in young["arms"]) == pytest.approx(1.0)
    assert sum(one["count"] for one in found) == 2000
    with pytest.raises(InputError, match="did you mean 'age'"):
        insight.segments(replica, "ag")


def test_every_play_counts_though_spans_grow_wider():
    replica, generator = Replica(loop_of("")), np.random.default_rng(12)
    for day in range(40):
        play(replica, decide(replica, 5, generator, f"{day}-"), lambda _: 0.5, generator, 86_400.0 * (day + 1))
    found = replica.seen().report()
    assert sum(arm["plays"] for arm in found["arms"]) == found["counts"]["decisions"] == 200
    assert sum(sum(one["plays"].values()) for one in found["series"]) == 200


def test_looking_at_the_averages_leaves_the_state_as_it_is():
    replica, generator = Replica(loop_of('control = { share = 0.5, rule = "uniform" }')), np.random.default_rng(11)
    play(replica, decide(replica, TOGETHER // 2, generator), lambda _: 0.5, generator)
    before = replica.digest()
    insight.summary(replica)
    insight.verdicts(replica)
    assert replica.digest() == before


def test_expected_rewards_stay_within_those_that_are_possible():
    replica, generator = Replica(loop_of("", "lin_ucb")), np.random.default_rng(12)
    play(replica, decide(replica, 200, generator), lambda draft: float(draft["context"]["age"] > 50), generator)
    found = insight.response("age")(replica)()
    for line in found["arms"]:
        assert 0.0 <= min(line["low"]) <= max(line["high"]) <= 1.0
