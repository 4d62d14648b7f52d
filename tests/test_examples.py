"""The scripts behind the figures run, here with few rounds; what they draw is looked at by people.

Parts of a user's own are short and use public names only; that their studies run is tested with the other studies.
"""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

import kernel_bandits as kb
from kernel_bandits.policy import UpperConfidenceBound

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = {
    "continuous_actions": {"HORIZON": 15, "SEEDS": range(2), "LAST": 5},
    "learned_kernel": {"HORIZON": 20, "SEEDS": range(2)},
    "table": {"ROUNDS": 30, "SEEDS": range(1)},
}


@pytest.mark.parametrize("name", SHORT)
def test_a_figure_is_drawn(name, tmp_path, monkeypatch, capsys):
    specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    for setting, value in SHORT[name].items():
        assert hasattr(script, setting)
        monkeypatch.setattr(script, setting, value)
    path = tmp_path / "figure.png"
    monkeypatch.setattr("sys.argv", [name, str(path)])
    script.main()
    assert image.imread(path)[..., :3].std() > 0.05
    assert "nan" not in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("own_*.py")), ids=lambda path: path.stem)
def test_own_parts_are_short_and_use_public_names_only(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < (60 if path.stem == "own_posterior" else 30)
    names = {
        name
        for node in ast.walk(ast.parse(text))
        for name in [getattr(node, "attr", None), getattr(node, "name", None), getattr(node, "module", None)]
        if isinstance(name, str)
    }
    private = {name for name in names if any(part.startswith("_") for part in name.split("."))}
    assert private <= {"__init__", "__call__"}


def test_a_posterior_of_ones_own_is_the_same_one_by_one_and_at_once_and_learns():
    specification = importlib.util.spec_from_file_location("own_posterior", EXAMPLES / "own_posterior.py")
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    generator = np.random.default_rng(0)
    points, rewards = generator.random((30, 2)), generator.normal(size=30)
    empty = script.PolynomialRegression(2, 0.1)
    one_by_one = empty
    for point, reward in zip(points, rewards, strict=True):
        one_by_one = one_by_one.learned(point[None, :], np.array([reward]))
    # ridge regression on the features, computed densely
    features, queries = script.polynomial(points, 2), generator.random((5, 2))
    weights = np.linalg.solve(features.T @ features + 0.1 * np.eye(features.shape[1]), features.T @ rewards)
    for posterior in (one_by_one, empty.learned(points, rewards)):
        np.testing.assert_allclose(posterior.predict(queries).mean, script.polynomial(queries, 2) @ weights, atol=1e-8)
    assert not empty.round_index
    policy = UpperConfidenceBound(script.PolynomialRegression(4, 0.01), kb.StandardDeviations(), generator)
    environment = kb.environments.Bump()
    played = kb.run(policy, environment, horizon=200, seed=0).regret[-1]
    assert played < 0.5 * kb.run(kb.uniform(seed=0), environment, horizon=200, seed=0).regret[-1]
    assert policy.ask([0.5] * 5, np.array([[0.1], [0.2]])).id == 0


def test_a_column_of_ones_own_is_learned_from(capsys):
    exec(compile((EXAMPLES / "own_column.py").read_text(encoding="utf-8"), "own_column", "exec"), {"__name__": "own"})
    assert capsys.readouterr().out == "{'#ffffff': 'dark text', '#202040': 'light text'}\n"
