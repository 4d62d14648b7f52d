"""Boxes with choices, whole numbers, logarithms, sides that depend on a choice, and linear limits."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

import kernel_bandits as kb
from kernel_bandits.boxes.density import BoxDensity, centres, divisions
from kernel_bandits.boxes.search import finalists

REACTOR = kb.Box(
    {
        "temperature": kb.Range(150.0, 250.0, unit="°C"),
        "stirrers": kb.Range(1, 4, whole=True),
        "pressure": kb.Range(0.01, 100.0, logarithm=True),
        "nozzle": ["round", "flat", "slit"],
        "grade": kb.Choice(["coarse", "medium", "fine"], ordered=True),
    },
    sides={"nozzle": {"slit": {"temperature": (150.0, 180.0)}}},
)
MIXTURE = kb.Box(
    {"water": (0.0, 0.8), "acid": (0.1, 0.6), "salt": (0.0, 0.5), "heat": (20.0, 90.0), "vessel": ["glass", "steel"]},
    limits=[
        kb.LinearLimit({"water": 1.0, "acid": 1.0, "salt": 1.0}, 1.0, 1.0),
        kb.LinearLimit({"acid": 1.0, "salt": 2.0}, most=1.1),
    ],
)
BOXES = {
    "reactor": REACTOR,
    "mixture": MIXTURE,
    "counts": kb.Box({"n": kb.Range(1, 100, whole=True, logarithm=True), "x": (0.0, 1.0)}),
    "levels": kb.Box({"a": ["p", "q"], "b": list(range(5))}),
    "simplex": kb.Box({"a": (0.0, 1.0), "b": (0.0, 1.0)}, limits=[kb.LinearLimit({"a": 1.0, "b": 1.0}, most=1.0)]),
}


@pytest.fixture(params=BOXES.values(), ids=BOXES)
def box(request):
    return request.param


def test_every_point_keeps_what_the_box_says(box):
    points = box.sample(np.random.default_rng(0), 500)
    assert box.contains(points).all()
    for point in points:
        named = box.named(point)
        for name, setting in zip(box.names, box.settings, strict=True):
            if isinstance(setting, kb.Range):
                assert setting.low - 1e-9 <= named[name] <= setting.high + 1e-9
                assert not setting.whole or isinstance(named[name], int)
            else:
                assert named[name] in setting.levels
        for limit in box.limits:
            total = sum(weight * named[name] for name, weight in limit.weights.items())
            assert limit.least - 1e-9 <= total <= limit.most + 1e-9
        if "nozzle" in named and named["nozzle"] == "slit":
            assert named["temperature"] <= 180.0 + 1e-9


def test_names_and_fractions_lead_back_to_the_point(box):
    points = box.sample(np.random.default_rng(1), 200)
    np.testing.assert_allclose(box.at(box.fractions(points)), points, atol=1e-9)
    for point in points[:20]:
        np.testing.assert_allclose(box.encode(box.named(point)), point, rtol=1e-9, atol=1e-9)


def test_it_is_copied_by_pickle_and_equal_by_what_it_holds(box):
    assert pickle.loads(pickle.dumps(box)) == box
    assert box != kb.Box([0.0], [1.0])
    assert "Box(" in repr(box)


def test_levels_and_whole_numbers_come_equally_often():
    points = REACTOR.sample(np.random.default_rng(2), 6000)
    for name, count in (("stirrers", 4), ("nozzle", 3), ("grade", 3)):
        values, counts = np.unique([REACTOR.named(point)[name] for point in points], return_counts=True)
        assert len(values) == count
        assert np.abs(counts / 6000 - 1 / count).max() < 0.03


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(BOXES)))
def test_slopes_are_the_derivatives_of_points(seed, name):
    box, generator = BOXES[name], np.random.default_rng(seed)
    weights, start = generator.standard_normal(box.dimension), generator.uniform(0.05, 0.95, len(box.settings))

    def value(fractions):
        return float(box.at(fractions[None, :], rounded=False)[0] @ weights)

    # on either side of a kink, such as where a setting reaches its end, or of the border of a level
    nearly = [approx_fprime(start, value, step) for step in (1e-7, -1e-7)]
    choices = [isinstance(one, kb.Choice) for one in box.settings]
    found = box.slopes(start[None, :], weights[None, :])[0]
    assert not found[choices].any()
    away = np.min([np.abs(found - np.where(choices, 0.0, one)) for one in nearly], axis=0)
    assert (away <= 1e-5 * np.abs(nearly).max() + 1e-5).all()


def test_a_density_over_a_limited_box_sums_to_one():
    box = BOXES["simplex"]
    ticks = (np.arange(1000) + 0.5) / 1000

    def total(floor, low, high):
        """Sum the density over a fine grid between two corners, inside the triangle a + b ≤ 1."""
        density = BoxDensity.around(box, np.array([0.6, 0.2]), floor)
        grid = np.stack(np.meshgrid(*(low + (high - low) * ticks,) * 2, indexing="ij"), axis=-1).reshape(-1, 2)
        grid += np.array([0.6, 0.2]) if high < 0.5 else 0.0
        inside = grid.sum(axis=1) < 1.0
        return density(grid[inside]).sum() * ((high - low) / 1000) ** 2

    assert total(1.0, 0.0, 1.0) == pytest.approx(1.0, abs=0.01)
    assert total(0.0, -0.03, 0.03) == pytest.approx(1.0, abs=0.01)
    density = BoxDensity.around(box, np.array([0.6, 0.2]), 0.4)
    drawn = np.array([density.draw(np.random.default_rng(seed)) for seed in range(200)])
    assert box.contains(drawn).all()


def test_probabilities_of_levels_sum_to_one():
    box = BOXES["levels"]
    density = BoxDensity.around(box, box.encode({"a": "q", "b": 3}), 0.3)
    points = np.array([box.encode({"a": a, "b": b}) for a in ("p", "q") for b in range(5)])
    probabilities = density(points)
    assert probabilities.sum() == pytest.approx(1.0)
    assert probabilities.argmax() == 8
    assert divisions(box) == (2, 5)
    assert len(centres(divisions(box))) == 10


@pytest.mark.parametrize("seed", range(10))
def test_the_search_finds_the_best_of_all_levels(seed):
    generator = np.random.default_rng(seed)
    box = kb.Box({"x": (0.0, 1.0), "n": kb.Range(1, 9, whole=True), "kind": ["a", "b", "c", "d"], "y": (-5.0, 5.0)})
    kernel = kb.Matern(box.lengthscales(0.3), smoothness=2.5)
    posterior = kb.posterior.ExactPosterior(kernel, 0.01)
    points = box.sample(generator, 40)
    posterior = posterior.learned(points, generator.standard_normal(40))
    found = finalists(posterior, 2.0, np.empty(0), box, generator)

    def bounds(rows):
        prediction = posterior.predict(rows)
        return prediction.mean + 2.0 * prediction.std

    assert box.contains(found).all()
    others = bounds(box.sample(generator, 30_000)).max()
    assert bounds(found).max() >= others - 1e-3 * abs(others)


def test_a_design_plays_every_level():
    policy = kb.ek_ucb(seed=0)
    box = kb.Box({"x": (0.0, 1.0), "kind": ["a", "b", "c", "d", "e"], "grade": ["p", "q"]})
    played = [box.named(policy.ask([], box).action) for _ in range(12)]
    assert {one["kind"] for one in played} == set("abcde")
    assert {one["grade"] for one in played} == {"p", "q"}


@pytest.mark.parametrize(
    "build",
    [
        lambda: kb.Box({"x": (1.0, 0.0)}),
        lambda: kb.Box({"x": "ab"}),
        lambda: kb.Box({}),
        lambda: kb.Box({"x": ["a", "a"]}),
        lambda: kb.Box({"x": kb.Range(0.0, 1.0, logarithm=True)}),
        lambda: kb.Box({"x": kb.Range(0.5, 2.0, whole=True)}),
        lambda: kb.Box({"x": (0.0, 1.0)}, names=["y"]),
        lambda: kb.Box([0.0]),
        lambda: kb.Box({"x": (0.0, 1.0)}, sides={"y": {"a": {"x": (0.0, 0.5)}}}),
        lambda: kb.Box({"x": (0.0, 1.0), "k": ["a"]}, sides={"k": {"b": {"x": (0.0, 0.5)}}}),
        lambda: kb.Box({"x": (0.0, 1.0), "k": ["a"]}, sides={"k": {"a": {"x": (0.0, 1.5)}}}),
        lambda: kb.Box({"x": (0.0, 1.0)}, limits=[kb.LinearLimit({"x": 1.0}, most=-1.0)]),
        lambda: kb.Box({"k": ["a"], "x": (0.0, 1.0)}, limits=[kb.LinearLimit({"k": 1.0}, most=1.0)]),
        lambda: kb.LinearLimit({}, most=1.0),
        lambda: kb.LinearLimit({"x": float("nan")}, most=1.0),
        lambda: kb.LinearLimit({"x": "1"}, most=1.0),
        lambda: kb.Box({"x": (0.0, 1.0)}, limits=kb.LinearLimit({"x": 1.0}, most=1.0)),
        lambda: kb.Box({"x": [["a"], ["b"]]}),
        lambda: kb.Box({"x": [None, "a"]}),
        lambda: REACTOR.encode({"temperature": 200.0}),
    ],
)
def test_what_makes_no_box_is_refused(build):
    with pytest.raises(kb.InputError):
        build()


@pytest.mark.parametrize(
    "box",
    [
        kb.Box({"x": (1.0, 1.0), "kind": ["a"]}),
        kb.Box({"n": kb.Range(3, 3, whole=True), "m": kb.Range(0, 1, whole=True)}),
        kb.Box({"kind": list("abc")}),
        kb.Box({"a": (0.2, 0.2), "b": (0.0, 1.0)}, limits=[kb.LinearLimit({"a": 1.0, "b": 1.0}, 1.0, 1.0)]),
        kb.Box({"a": (0.0, 1.0), "kind": ["p", "q"]}, sides={"kind": {"p": {"a": (0.5, 0.5)}}}),
    ],
    ids=["all fixed", "two numbers", "levels", "given by a sum", "fixed by a level"],
)
def test_boxes_with_hardly_a_choice_are_played(box):
    policy = kb.ek_ucb(seed=0)
    for number in range(15):
        decision = policy.ask([], box)
        assert box.contains(decision.action[None, :])[0]
        policy.tell(decision, float(number % 4))
    assert box.contains(policy.best([], box).action[None, :])[0]
    assert np.isfinite(policy.outlook([], box).expected_left)


def test_the_best_setting_is_tried_at_every_other_level():
    # a level with a low plateau everywhere but a higher peak than the level that was found first
    box = kb.Box({"x": (0.0, 1.0), "y": (0.0, 1.0), "kind": list("abcd")})
    heights = dict(zip("abcd", (40.0, 44.0, 36.0, 32.0), strict=True))
    policy, generator, last = kb.ek_ucb(seed=0), np.random.default_rng(0), []
    for _ in range(60):
        decision = policy.ask([], box)
        named = box.named(decision.action)
        away = (named["x"] - 0.5) ** 2 + (named["y"] - 0.6) ** 2
        last.append(heights[named["kind"]] * np.exp(-away / 0.03))
        policy.tell(decision, last[-1] + generator.standard_normal())
    near = [box.named(point) for point in policy.observed_points if abs(point[0] - 0.5) < 0.2 > abs(point[1] - 0.6)]
    assert {one["kind"] for one in near} == set("abcd")
    assert np.mean(last[-10:]) > 42.0


@pytest.mark.parametrize("seed", range(3))
def test_a_hint_of_a_higher_peak_at_another_level_is_followed(seed):
    box = kb.Box({"x": (0.0, 1.0), "y": (0.0, 1.0), "kind": list("abc")})
    peaks = {"a": (20.0, 0.75, 0.7), "b": (25.0, 0.6, 0.2), "c": (40.0, 0.25, 0.45)}
    policy, generator, last = kb.ek_ucb(seed=seed), np.random.default_rng(seed), []

    def height(named):
        most, x, y = peaks[named["kind"]]
        return most * np.exp(-((named["x"] - x) ** 2 + (named["y"] - y) ** 2) / 0.03)

    # what is known at first is the lower peak of one level, and one reward on the flank of the highest
    known = [{"x": x, "y": y, "kind": "a"} for x in (0.65, 0.75, 0.85) for y in (0.6, 0.7, 0.8)]
    known += [{"x": x, "y": y, "kind": kind} for x, y in ((0.9, 0.1), (0.1, 0.9), (0.9, 0.95)) for kind in "bc"]
    known.append({"x": 0.35, "y": 0.6, "kind": "c"})
    policy.update_many(
        np.empty((16, 0)),
        [box.encode(one) for one in known],
        [50.0 + height(one) + generator.standard_normal() for one in known],
    )
    for _ in range(50):
        decision = policy.ask([], box)
        last.append(height(box.named(decision.action)))
        policy.tell(decision, 50.0 + last[-1] + generator.standard_normal())
    assert np.mean(last[-10:]) > 36.0


def test_with_a_limit_the_design_goes_as_far_as_is_allowed():
    # without a design the first experiments are the allowed corners, where this plant yields nothing
    box = kb.Box({"heat": (0.0, 1.0), "feed": (0.0, 1.0), "nozzle": ["round", "flat"]})
    limit = kb.Below(1.0, 4.0 * kb.Matern([1.0, 1.0, 100.0, 100.0]), regularization=1e-4)
    policy = kb.ek_ucb(seed=0).constrained(
        {"pressure": limit}, safe_actions=[box.encode({"heat": 0.1, "feed": 0.1, "nozzle": "flat"})]
    )
    generator, played, broken = np.random.default_rng(0), [], 0
    for _ in range(30):
        decision = policy.select([], box)
        settings = box.named(decision.action)
        at = np.array([settings["heat"], settings["feed"]])
        broken += at.sum() > 1.0
        played.append(np.exp(-np.sum((at - 0.4) ** 2) / 0.05) * (1.0 if settings["nozzle"] == "round" else 0.8))
        output = {"pressure": at.sum() + 0.01 * generator.standard_normal()}
        policy.update([], decision.action, 40.0 * played[-1] + generator.standard_normal(), outputs=output)
    assert broken == 0
    corners = [np.isin(row[:2], [0.0, 1.0]).all() for row in policy.observed_points[:12]]
    assert sum(corners) < 4
    assert np.median(played[-10:]) > 0.9


def test_rows_with_a_limit_follow_the_design_among_those_allowed():
    box = kb.Box([0.0, 0.0], [1.0, 1.0])
    rows = box.sample(np.random.default_rng(1), 300)
    rows[0] = 0.1, 0.1
    limit = kb.Below(1.0, 4.0 * kb.Matern(1.0), regularization=1e-4)
    policy = kb.ek_ucb(seed=0).constrained({"pressure": limit}, safe_actions=rows[:1])
    for _ in range(15):
        decision = policy.select([], rows)
        assert decision.action.sum() <= 1.0
        assert decision.safe
        policy.update([], decision.action, 0.0, outputs={"pressure": decision.action.sum()})
    places = policy.observed_points
    assert len(np.unique(places, axis=0)) == 15
    # corners are left alone: a quarter of the plays at most lies at a wall
    assert ((places < 0.05) | (places > 0.95)).any(axis=1).sum() <= 4
