"""Exported surfaces: the code of the examples evaluates them to what the policy predicts."""

import json
import shutil
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import kernel_bandits as kb
from examples import exported_surface
from kernel_bandits.kernels import Bends, Shear

RETURNING = np.array([[0.2, 0.7], [0.6, 0.1]])
JAVASCRIPT = Path(__file__).parents[2] / "examples" / "exported_surface.js"
KERNELS = [
    kb.Gaussian(0.5),
    2.0 * kb.Matern([0.5, 1.0, 2.0], smoothness=1.5) + 0.5 * kb.Linear(),
    kb.TensorProduct(kb.Exponential(0.7), kb.Matern(0.6), 1) * kb.Polynomial(2, offset=1.0),
    kb.TensorProduct(kb.Exponential(0.7), kb.Matern(0.6), 1, Shear(np.array([[0.5], [-2.0]]), np.array([0.3]))),
    kb.Mixed(1.0, 0.5, 2.0, 0.7, centre=[0.5, 0.4, 0.3], scale=[1.0, 2.0, 0.5]),
    kb.PerArm(kb.Mixed(0.5, 0.4, 0.5, bends=Bends([0], [0.4], [0.1])), 1),
    kb.TensorProduct(kb.Exponential(0.7), kb.Mixed(0.5, 0.0, 0.5, scale=[1.0, 2.0], own=1.5), 1),
]


class Ramp(kb.Kernel):
    """A kernel of a user's own: ⟨x, y⟩ + 1 on all columns."""

    def __call__(self, X, Y=None):
        return X @ (X if Y is None else Y).T + 1.0

    def diag(self, X):
        return np.vecdot(X, X) + 1.0

    def portable(self, start, stop):
        return kb.Linear(offset=1.0).portable(start, stop)


KERNELS.insert(1, kb.TensorProduct(kb.Exponential(0.7), Ramp(), 1))
PRICE = {"price": kb.Numeric()}


def learned(policy, rounds=30, seed=0):
    generator = np.random.default_rng(seed)
    for number in range(rounds):
        point = generator.random(3)
        if number % 2 and policy.posterior.kernel is KERNELS[-1]:
            point[1:] = RETURNING[number // 2 % 2]
        policy.update(point[:1], point[1:], float(np.sin(4 * point[1]) + point[0] + 0.1 * generator.standard_normal()))
    return policy


def cases():
    policies = [make(kernel, seed=0) for kernel in KERNELS for make in (kb.ek_ucb, kb.k_ucb)]
    return [*policies, kb.ek_ucb(seed=0), kb.ek_ucb(KERNELS[0], forgetting=kb.Wander(20.0), seed=0)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder, points = tmp_path_factory.mktemp("surfaces"), np.random.default_rng(1).random((6, 3))
    # actions that return, up to rounding
    points[:2, 1:] = RETURNING * (1.0 + 1e-9)
    result = []
    for number, policy in enumerate(cases()):
        learned(policy)
        policy.export(folder / f"{number}.json", columns=["a", "b", "c"])
        result.append((folder / f"{number}.json", points, policy.posterior.predict(points)))
    return result


def test_numpy_evaluates_them(exported):
    for path, points, prediction in exported:
        surface = json.loads(path.read_text())
        values = np.array([exported_surface.predict(surface, point) for point in points])
        np.testing.assert_allclose(values[:, 0], prediction.mean, rtol=0, atol=1e-6)
        np.testing.assert_allclose(values[:, 1], prediction.std, rtol=0, atol=1e-6)
        assert surface["columns"] == ["a", "b", "c"]


def test_described_actions_that_return_keep_what_they_have_of_their_own(tmp_path):
    generator, policy = np.random.default_rng(0), kb.ek_ucb(seed=0)
    actions, values = generator.normal(size=(6, 2)), np.array([0.0, 3.0, -2.0, 1.0, 4.0, -3.0])
    for number in range(60):
        index = number % 6
        policy.update(generator.normal(size=2), actions[index], values[index] + 0.1 * generator.normal())
    assert policy.posterior.kernel.action_kernel.own > 0.0
    policy.export(tmp_path / "surface.json")
    surface, predict = json.loads((tmp_path / "surface.json").read_text()), exported_surface.predict
    context = generator.normal(size=2)
    offered = np.vstack([actions, generator.normal(size=(2, 2))])
    expected = policy.predict(context, offered)
    found = np.array([predict(surface, np.concatenate([context, action])) for action in offered])
    np.testing.assert_allclose(found, np.column_stack([expected.mean, expected.std]), rtol=0, atol=1e-6)


def test_a_table_exports_what_its_arms_have_of_their_own(tmp_path):
    arms = {"red": {"price": 1.0}, "blue": {"price": 2.0}, "white": {"price": 4.0}}
    features = kb.Features(context={"age": kb.Numeric((0.0, 100.0))}, actions=kb.Arms(arms, columns=PRICE))
    policy, generator = kb.ek_ucb(features=features, seed=0), np.random.default_rng(0)
    values = {"red": 0.1, "blue": 3.0, "white": -1.0}
    for number in range(60):
        row, arm = {"age": float(generator.integers(100))}, list(arms)[number % 3]
        policy.update(row, arm, reward=values[arm] + 0.01 * row["age"] + 0.1 * generator.normal())
    assert "own" in repr(policy.inner.posterior.kernel)
    policy.export(tmp_path / "table.json")
    surface = json.loads((tmp_path / "table.json").read_text())
    for arm, described in [*arms.items(), ("green", {"price": 3.0})]:
        expected = policy.predict({"age": 40.0}, {arm: described})
        point = exported_surface.point(surface, {"age": 40.0}, {"arm": arm, **described})
        found = exported_surface.predict(surface, point)
        np.testing.assert_allclose(found, [expected.mean[0], expected.std[0]], rtol=0, atol=1e-6)


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_javascript_evaluates_them(exported, tmp_path):
    points = exported[0][1].tolist()
    script = JAVASCRIPT.read_text() + (
        "const fs = require('fs');\n"
        f"const points = {json.dumps(points)};\n"
        "console.log(JSON.stringify(process.argv.slice(2).map((path) => "
        "points.map((x) => predict(JSON.parse(fs.readFileSync(path)), x)))));\n"
    )
    (tmp_path / "evaluate.js").write_text(script)
    paths = [str(path) for path, _, _ in exported]
    output = subprocess.run(
        ["node", str(tmp_path / "evaluate.js"), *paths], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    for values, (_, _, prediction) in zip(json.loads(output), exported, strict=True):
        np.testing.assert_allclose([value["mean"] for value in values], prediction.mean, rtol=0, atol=1e-6)
        np.testing.assert_allclose([value["std"] for value in values], prediction.std, rtol=0, atol=1e-6)


def test_what_cannot_be_exported_is_an_error(tmp_path):
    with pytest.raises(kb.UnavailableError, match="anchors"):
        kb.ek_ucb(KERNELS[0]).export(tmp_path / "a.json")
    from sklearn.gaussian_process.kernels import RBF

    with pytest.raises(kb.InputError, match="portable"):
        learned(kb.ek_ucb(RBF(0.5))).export(tmp_path / "a.json")
    with pytest.raises(kb.InputError, match="columns"):
        learned(kb.ek_ucb(KERNELS[0])).export(tmp_path / "a.json", columns=["one"])
    assert not list(tmp_path.iterdir())


COLUMNS = {
    "age": kb.Numeric((0.0, 100.0), missing=True),
    "income": kb.Numeric(logarithm=True),
    "late": kb.Numeric(missing=True),
    "size": kb.Ordered(["small", "medium", "large"], missing=True),
    "town": kb.Categorical(missing=True),
    "plan": kb.Categorical(["free", "paid"]),
    "member": kb.Boolean(missing=True),
    "hour": kb.Cyclic(24.0, missing=True),
    "when": kb.Date(missing=True),
    "text": kb.Embedding(3, missing=True),
}
ACTIONS = {
    "arms": kb.Arms(["red", "blue"], room=1),
    "arms with features": kb.Arms(columns={"price": kb.Numeric((0.0, 10.0)), "shape": kb.Categorical()}),
    "features alone": {"price": kb.Numeric((0.0, 10.0)), "shape": kb.Categorical(["round"])},
}


def row_of(generator, number):
    row = {
        "age": float(generator.integers(100)),
        "income": float(np.exp(generator.normal(8.0, 1.0))),
        "late": float(generator.normal(1e3)),
        "size": str(generator.choice(["small", "medium", "large"])),
        "town": f"town {number % 40}",
        "plan": str(generator.choice(["free", "paid", "unheard of"])),
        "member": bool(generator.integers(2)),
        "hour": float(generator.uniform(0.0, 24.0)),
        "when": datetime(2020, 1, 1) + timedelta(hours=float(generator.uniform(0.0, 1e4))),
        "text": generator.normal(size=3),
    }
    gaps = [name for name, column in COLUMNS.items() if column.missing and generator.random() < 0.2]
    return row | dict.fromkeys(gaps)


def action_of(kind, generator):
    features = {"price": float(generator.uniform(0.0, 10.0)), "shape": str(generator.choice(["round", "flat"]))}
    if kind == "features alone":
        return features
    arm = str(generator.choice(["red", "blue", "green", "white"]))
    return {"arm": arm, **(features if kind == "arms with features" else {})}


@pytest.mark.parametrize("kind", ACTIONS)
def test_the_example_encodes_rows_of_a_table(kind, tmp_path):
    policy = kb.k_ucb(kb.Gaussian(2.0), features=kb.Features(context=COLUMNS, actions=ACTIONS[kind]), seed=0)
    generator = np.random.default_rng(0)
    rounds = [(row_of(generator, number), action_of(kind, generator)) for number in range(60)]
    for row, action in rounds[:50]:
        policy.update(row, action, float(generator.normal()))
    policy.export(tmp_path / "table.json")
    surface = json.loads((tmp_path / "table.json").read_text())
    assert surface["columns"] == list(policy.features.layout.names)
    for row, action in rounds:
        # beyond the capacity, a level that was never met has a vector of its own
        known = {level for level, _ in surface["variables"][4]["levels"]}
        if row["town"] is not None and row["town"] not in known:
            assert surface["variables"][4]["other"] is None
            continue
        point = exported_surface.point(surface, row, action)
        context, actions = policy.encode(row, [action])
        np.testing.assert_allclose(point, np.concatenate([context, actions[0]]), rtol=0, atol=1e-12)
        expected = policy.predict(row, [action])
        found = exported_surface.predict(surface, point)
        np.testing.assert_allclose(found, [expected.mean[0], expected.std[0]], rtol=0, atol=1e-6)


def test_a_table_that_a_transformer_encodes_is_not_exported(tmp_path):
    pandas = pytest.importorskip("pandas")
    scaling = pytest.importorskip("sklearn.preprocessing").StandardScaler()
    fitted = scaling.fit(pandas.DataFrame({"age": [20.0, 40.0], "height": [1.6, 1.8]}))
    policy = kb.k_ucb(kb.Gaussian(1.0), features=kb.Features(context=fitted, actions=["red", "blue"]), seed=0)
    policy.update({"age": 30.0, "height": 1.7}, "red", 1.0)
    with pytest.raises(kb.InputError, match=r"transformer .* policy\.inner\.export"):
        policy.export(tmp_path / "table.json")
    assert not list(tmp_path.iterdir())


def test_a_table_without_a_posterior_is_not_exported(tmp_path):
    policy = kb.uniform(features=kb.Features(context={"age": kb.Numeric()}, actions=["red"]))
    with pytest.raises(kb.InputError, match="export: Uniform has no posterior"):
        policy.export(tmp_path / "table.json")
