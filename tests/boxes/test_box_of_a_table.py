"""Boxes by name: described to a table, offered to it, written as TOML, saved, drawn and exported."""

import json

import numpy as np
import pytest

import kernel_bandits as kb

BOX = kb.Box(
    {
        "temperature": kb.Range(150.0, 250.0, unit="°C"),
        "flow": kb.Range(0.1, 10.0, logarithm=True),
        "stirrers": kb.Range(1, 4, whole=True),
        "acid": (0.0, 0.6),
        "water": (0.2, 1.0),
        "nozzle": ["round", "flat", "slit"],
        "vents": kb.Choice([1, 2, 4]),
        "grade": kb.Choice(["coarse", "medium", "fine"], ordered=True),
    },
    sides={"nozzle": {"slit": {"temperature": (150.0, 180.0)}}, "vents": {4: {"flow": (0.1, 1.0)}}},
    limits=[kb.LinearLimit({"acid": 1.0, "water": 1.0}, 1.0, 1.0)],
)
SENSORS = {"sensor": kb.Numeric(), "shift": kb.Categorical(["early", "late"])}
FEATURES = kb.Features(context=SENSORS, actions=BOX)
ROW = {"sensor": 0.3, "shift": "late"}


def yields(action):
    away = ((action["temperature"] - 200.0) / 30.0) ** 2 + np.log(action["flow"]) ** 2
    return 50.0 + (40.0 if action["nozzle"] == "flat" else 25.0) * np.exp(-away)


def keeps(action):
    assert set(action) == set(BOX.names)
    assert isinstance(action["stirrers"], int)
    assert action["acid"] + action["water"] == pytest.approx(1.0)
    assert action["nozzle"] != "slit" or action["temperature"] <= 180.0 + 1e-9
    assert action["vents"] != 4 or action["flow"] <= 1.0 + 1e-9
    return BOX.contains(BOX.encode(action)[None, :])[0]


def tuned(policy, count=24):
    generator = np.random.default_rng(0)
    for number in range(count):
        row = {"sensor": float(generator.standard_normal()), "shift": ["early", "late"][number % 2]}
        for decision in policy.ask_many([row, row]):
            assert keeps(decision.action)
            policy.tell(decision, yields(decision.action) + generator.standard_normal())
    return policy


@pytest.fixture(scope="module")
def plant():
    return tuned(kb.ek_ucb(features=FEATURES, seed=0))


def test_the_description_is_written_as_toml_and_as_python():
    assert kb.Features.from_toml(FEATURES.to_toml()) == FEATURES
    assert eval(str(FEATURES), {"kb": kb}) == FEATURES
    assert kb.Features.from_toml(FEATURES.to_toml()).offer == BOX
    assert kb.Features(context=SENSORS, actions=FEATURES.actions) != FEATURES


def test_a_described_box_is_on_offer_and_tuned(plant):
    best = plant.best(ROW)
    assert keeps(best.action)
    assert yields(best.action) > 80.0
    assert plant.outlook(ROW, experiments=3).best.action == best.action


def test_a_saved_policy_goes_on_in_the_same_box(plant, tmp_path):
    plant.save(tmp_path / "plant.kb")
    loaded = kb.load(tmp_path / "plant.kb")
    assert loaded.features == FEATURES
    assert loaded.preview(ROW).action == plant.preview(ROW).action


def test_pending_settings_and_past_ones_are_named(plant):
    decision = plant.ask(ROW)
    row, action = plant.awaited[decision.id]
    assert row == ROW
    assert action == {name: pytest.approx(value) for name, value in decision.action.items()}
    assert isinstance(action["stirrers"], int)
    text = str(plant.explain(decision, 2))
    assert "nozzle flat" in text
    assert "shift" in text
    plant.expire(decision)
    assert not plant.awaited


def test_it_is_drawn_and_exported(plant, tmp_path):
    pytest.importorskip("matplotlib")
    assert len(kb.plots.surface(plant, ROW, BOX, axes=["temperature", "nozzle"]).axes) >= 3
    assert len(kb.plots.history(plant, BOX).axes) == 9
    plant.export(tmp_path / "surface.json")
    surface = json.loads((tmp_path / "surface.json").read_text())
    assert "nozzle=flat" in surface["columns"]


def test_a_box_may_be_offered_to_columns_that_were_described_otherwise():
    columns = {
        "nozzle": kb.Categorical(["flat", "other kind", "round"]),
        "heat": kb.Numeric(range=(0.0, 500.0)),
        "feed": kb.Numeric(logarithm=True),
        "open": kb.Boolean(),
        "size": kb.Ordered(["s", "m", "l"]),
        "count": kb.Numeric(),
    }
    box = kb.Box(
        {
            "heat": (100.0, 200.0),
            "feed": (0.01, 100.0),
            "nozzle": ["round", "flat"],
            "open": [False, True],
            "size": ["m", "l"],
            "count": kb.Choice([1, 2, 4]),
        },
        sides={"nozzle": {"round": {"heat": (100.0, 120.0)}}},
    )
    policy, seen = kb.ek_ucb(features=kb.Features(context={}, actions=columns), seed=0), []
    for number in range(30):
        action = policy.ask({}, box).action
        seen.append(action)
        assert box.contains(box.encode(action)[None, :])[0]
        policy.tell(number, -abs(action["heat"] - 110.0) / 50.0 + (action["nozzle"] == "round"))
    assert {one["open"] for one in seen} == {False, True}
    assert {one["size"] for one in seen} == {"m", "l"}
    assert {one["count"] for one in seen} == {1, 2, 4}
    assert min(one["feed"] for one in seen) < 0.1
    # a narrower box, and rows of the same columns, go on with the same model
    narrow = kb.Box({**dict(zip(box.names, box.settings, strict=True)), "size": ["l"]})
    assert policy.select({}, narrow).action["size"] == "l"
    assert policy.select({}, seen[:5]).index >= 0


@pytest.mark.parametrize(
    ("columns", "settings", "words"),
    [
        ({"x": kb.Categorical()}, {"x": ["a", "b"]}, "all levels"),
        ({"x": kb.Categorical(["a"])}, {"x": ["a", "b"]}, "all levels"),
        ({"x": kb.Numeric()}, {"x": kb.Range(0.1, 1.0, logarithm=True)}, "logarithm=True"),
        ({"x": kb.Ordered(["a", "b"])}, {"x": (0.0, 1.0)}, "kb.Numeric"),
        ({"x": kb.Cyclic(24.0)}, {"x": (0.0, 1.0)}, "kb.Numeric"),
        ({"x": kb.Numeric(missing=True)}, {"x": (0.0, 1.0)}, "gaps"),
        ({"x": kb.Numeric()}, {"y": (0.0, 1.0)}, "named x"),
        ({"x": kb.Embedding(2)}, {"x": ["a", "b"]}, "choice"),
    ],
)
def test_a_box_that_does_not_fit_its_columns_is_refused(columns, settings, words):
    policy = kb.ek_ucb(features=kb.Features(context={}, actions=columns), seed=0)
    with pytest.raises(kb.InputError, match=words):
        policy.select({}, kb.Box(settings))


def test_a_limit_on_an_output_is_kept_and_exported(tmp_path):
    box = kb.Box({"heat": (0.0, 1.0), "feed": (0.0, 1.0), "nozzle": ["round", "flat"]})
    features = kb.Features(context={}, actions=box)
    # the last three columns are round, flat and other
    limit = kb.Below(1.0, 4.0 * kb.Matern([1.0, 1.0, 100.0, 100.0, 100.0]), regularization=1e-4)
    policy = kb.ek_ucb(features=features, seed=0)
    policy.constrained({"pressure": limit}, safe_actions=[{"heat": 0.1, "feed": 0.1, "nozzle": "flat"}])
    for _ in range(15):
        action = policy.ask({}).action
        assert action["heat"] + action["feed"] <= 1.0
        measured = {"pressure": action["heat"] + action["feed"]}
        policy.tell(policy.pending[0], 40.0 * action["heat"], outputs=measured)
    policy.export(tmp_path / "surface.json")
    output = json.loads((tmp_path / "surface.json").read_text())["outputs"]["pressure"]
    assert (output["limit"], output["side"], output["deviations"]) == (1.0, "below", 2.0)
    # k_Z, φ = J k_Z and mean = c + φᵀw, as for the reward
    action = policy.best({}).action
    _, vectors = policy.encode({}, [action])
    features_at = np.array(output["J"]) @ limit.kernel(np.array(output["anchors"]), vectors)[:, 0]
    mean = output["prior_mean"] + features_at @ np.array(output["w"])
    assert mean == pytest.approx(policy.predict_outputs({}, [action])["pressure"].mean[0], abs=1e-6)


def test_an_explanation_over_arrays_names_settings():
    box = kb.Box({"heat": (0.0, 1.0), "nozzle": ["round", "flat"]})
    policy = kb.ek_ucb(seed=0)
    for number in range(12):
        policy.update([0.5], policy.select([0.5], box).action, float(number % 3))
    decision = policy.ask([0.5], box)
    context, action = policy.awaited[decision.id]
    assert context.tolist() == [0.5]
    assert action.tolist() == decision.action.tolist()
    named, plain = str(policy.explain(decision, 2, box=box)), str(policy.explain(decision, 2))
    assert "heat" in named
    assert "nozzle" in named
    assert "for 0.5, which earned" in plain
    assert plain.count("\n") == named.count("\n") == 5
