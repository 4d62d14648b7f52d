import pytest
from kernel_bandits_server.settings import SettingsError, parse_settings
from kernel_bandits_server.wording import line_of

GOOD = """\
[loops.offers]
policy = "ek_ucb"
exploration_floor = 0.1
silence = { after = 60, reward = 0.0 }

[loops.offers.context]
age = { kind = "Numeric" }
country = { kind = "Categorical" }

[loops.offers.arms]
names = ["red", "blue"]

[service]
lag = 0.5
[service.limits]
actions = 20
"""


def test_a_good_file_is_read():
    settings = parse_settings(GOOD)
    loop = settings.loops["offers"]
    assert (loop.exploration_floor, loop.silence.after, loop.silence.reward) == (0.1, 60.0, 0.0)
    assert list(loop.features.context) == ["age", "country"]
    assert (settings.service.lag, settings.service.limits.actions) == (0.5, 20)
    policy = loop.new_policies()[0]
    decision = policy.select({"age": 1.0, "country": "FR"})
    assert decision.propensity == pytest.approx(0.5)


MISTAKES = {
    "syntax": (GOOD.replace('"ek_ucb"', "ek_ucb"), 2, "expected TOML"),
    "an unknown key": (GOOD.replace("exploration_floor", "explore_floor"), 3, "did you mean 'exploration_floor'"),
    "an unknown kind": (GOOD.replace('"Numeric"', '"Numerc"'), 7, "Numeric"),
    "an unknown preset": (GOOD.replace("ek_ucb", "ek_ucp"), 2, "did you mean 'ek_ucb'"),
    "a preset without its kernel": (GOOD.replace("ek_ucb", "cbkb"), 2, "needs the option 'kernel'"),
    "a floor beyond one": (GOOD.replace("0.1", "1.5"), 3, "a number of at most 1, got 1.5"),
    "a limit": (GOOD.replace("actions = 20", "actions = 0"), 16, "a whole number of at least 1, got 0"),
    "a reward that is no number": (GOOD.replace("reward = 0.0", "reward = nan"), 4, "number"),
    "arms twice": (GOOD.replace('["red", "blue"]', '["red", "red"]'), 10, "names"),
    "no arms": (
        GOOD.partition("[loops.offers.arms]")[0],
        1,
        "expected one of the tables [actions], [arms] and [box.settings]",
    ),
    "an option of the loop": (GOOD.replace('"ek_ucb"', '"ek_ucb"\noptions = { seed = 3 }'), 3, "beside policy"),
    "an unknown kernel": (
        GOOD.replace('"ek_ucb"', '"ek_ucb"\noptions = { kernel = { name = "Gausian" } }'),
        3,
        "did you mean 'Gaussian'",
    ),
    "a share of all": (GOOD.replace("silence", 'control = { share = 1.0, rule = "uniform" }\nsilence'), 4, "below 1"),
    "an unknown rule": (GOOD.replace("silence", 'control = { share = 0.1, rule = "best" }\nsilence'), 4, "'best'"),
    "an arm that is none": (
        GOOD.replace("silence", 'control = { share = 0.1, rule = "fixed", arm = "rd" }\nsilence'),
        4,
        "did you mean 'red'",
    ),
    "a loop that is none": (
        GOOD.replace("silence", 'control = { share = 0.1, rule = "loop", loop = "x" }\nsilence'),
        4,
        "another loop",
    ),
    "a challenger without its kernel": (
        GOOD.replace("silence", 'challenger = { policy = "cbkb" }\nsilence'),
        4,
        "kernel",
    ),
    "silence beyond the rewards": (GOOD.replace("silence", "rewards = [0.5, 1]\nsilence"), 5, "from 0.5 to 1"),
    "an unknown option": (GOOD.replace('"ek_ucb"', '"ek_ucb"\noptions = { sed = 3 }'), 3, "unknown option 'sed'"),
}


@pytest.mark.parametrize(("text", "line", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_line(text, line, words):
    with pytest.raises(SettingsError) as caught:
        parse_settings(text, "shop.toml")
    (problem,) = caught.value.problems
    assert problem.startswith(f"shop.toml:{line}: ")
    assert words in problem


def test_every_key_of_a_loop_is_checked():
    with pytest.raises(SettingsError) as caught:
        parse_settings(GOOD.replace("0.1", "2\nsilense = 3"), "shop.toml")
    assert [problem.partition(": ")[0] for problem in caught.value.problems] == ["shop.toml:3", "shop.toml:4"]


def test_every_loop_is_checked():
    broken = GOOD.replace("offers", "first").replace("0.1", "2") + GOOD.partition("[service]")[0].replace(
        "ek_ucb", "none"
    )
    with pytest.raises(SettingsError) as caught:
        parse_settings(broken)
    assert len(caught.value.problems) == 2


def test_lines_of_dotted_and_quoted_keys():
    text = '[a."b c"]\nd.e = 1\n[[f]]\ng = 2\n'
    assert line_of(text, ("a", "b c", "d", "e")) == 2
    assert line_of(text, ("a", "b c", "x")) == 1
    assert line_of(text, ("f", "g")) == 4
    assert line_of(text, ("z",)) is None


def test_the_fingerprint_is_that_of_the_model():
    base = parse_settings(GOOD).loops["offers"].fingerprint
    assert parse_settings(GOOD.replace("60", "90")).loops["offers"].fingerprint == base
    assert parse_settings(GOOD.replace("0.1", "0.2")).loops["offers"].fingerprint != base
