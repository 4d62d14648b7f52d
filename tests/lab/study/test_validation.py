"""Mistakes that show only when a policy first meets its environment."""

import pytest
from kernel_bandits_lab import load_study, study_of, validate

import kernel_bandits as kb
from kernel_bandits.environments import Environment, Round

BAD_TOML = {
    "wrong value": (
        'policies = [{ name = "ek_ucb", options = { regularization = -1 } }]',
        "ek_ucb: regularization: expected a positive",
    ),
    "wrong value in a grid": (
        'policies = [{ name = "ek_ucb", grid = { regularization = [1, -1] } }]',
        "expected a positive finite number, got -1",
    ),
    "text for a number": ('policies = [{ name = "k_ucb", options = { regularization = "much" } }]', "got 'much'"),
    "text for a kernel": (
        'policies = [{ name = "k_ucb", options = { kernel = "Gaussian" } }]',
        "k_ucb in Bump: k_ucb: kernel: expected an object with kernel(X, Y)",
    ),
    "something that only playing shows": (
        'policies = [{ name = "ek_ucb", options = { kernel = { name = "fractions:Fraction" } } }]',
        "ek_ucb in Bump: ",
    ),
    "a thing that is no policy": ('policies = [{ name = "fractions:Fraction" }]', "expected a Policy, got"),
    "a thing that is no environment": (
        'environments = [{ name = "fractions:Fraction" }]',
        "expected an Environment",
    ),
    "too many columns for a policy": (
        'policies = [{ name = "random_features_ucb", options = { feature_map = "quadrature" } }]',
        "random_features_ucb in Bump: ",
    ),
}
GOOD = {"environments": "environments = [{ name = 'Bump' }]", "policies": "policies = [{ name = 'uniform' }]"}


@pytest.mark.parametrize(("line", "complaint"), BAD_TOML.values(), ids=BAD_TOML)
def test_a_bad_value_is_told_in_one_line(tmp_path, line, complaint):
    lines = {**GOOD, line.split(" ")[0]: line}
    path = tmp_path / "small.toml"
    path.write_text("\n".join(["horizon = 10", "seeds = 2", *lines.values()]))
    study = load_study(path)
    with pytest.raises(kb.InputError) as raised:
        validate(study)
    message = str(raised.value)
    assert message.startswith("small: ")
    assert complaint in message
    assert "\n" not in message


class Counting(Environment):
    """Counts the rounds of all its instances."""

    lengthscale = 0.5
    rounds = 0

    def next_round(self, contexts):
        Counting.rounds += 1
        return Round(contexts.random(1), contexts.random((3, 1)))

    def expected_rewards(self, context, actions):  # noqa: ARG002 (the same everywhere)
        return actions[:, 0]


def test_reading_plays_nothing_and_validation_one_round_of_each_cell():
    Counting.rounds = 0
    study = study_of(
        {
            "environments": [{"name": Counting, "label": label} for label in ("here", "there")],
            "policies": [{"name": "uniform"}, {"name": "ek_ucb"}, {"name": "k_ucb"}],
            "seeds": 4,
            "horizon": 50,
        }
    )
    assert Counting.rounds == 0
    validate(study)
    assert Counting.rounds == 2 * 3
