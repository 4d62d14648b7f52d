"""Presets take features=, and return the same policy over a table."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.presets import takes_features

FEATURES = kb.Features({"x": kb.Numeric()}, ["red", "blue"])
PRESETS = {
    "ek_ucb": {},
    "k_ucb": {},
    "lin_ucb": {},
    "inverse_gap_weighting": {},
    "uniform": {},
    "thompson_sampling": {"kernel": kb.Gaussian(1.0)},
    "random_features_ucb": {"kernel": kb.Gaussian(1.0)},
    "cgp_ucb": {"kernel": kb.Gaussian(1.0)},
    "cbkb": {"kernel": kb.Gaussian(1.0)},
    "cbbkb": {"kernel": kb.Gaussian(1.0)},
    "family_ucb": {
        "kernels": [kb.Gaussian(1.0)],
        "confidence": kb.Tightened(norm_bound=1.0, noise_bound=1.0, failure_probability=0.1),
    },
    "sup_kernel_ucb": {"kernel": kb.Gaussian(1.0), "horizon": 30},
}


@pytest.mark.parametrize("name", PRESETS)
def test_decisions_are_those_of_the_preset_over_arrays(name):
    preset = getattr(kb, name)
    assert "features" in inspect.signature(preset).parameters
    named, arrays = preset(features=FEATURES, seed=3, **PRESETS[name]), preset(seed=3, **PRESETS[name])
    assert isinstance(named, kb.TablePolicy)
    for number in range(25):
        x = np.sin(float(number))
        decision, expected = named.select({"x": x}), arrays.select([x], np.eye(2, 10))
        assert (decision.index, decision.mean, decision.std) == (expected.index, expected.mean, expected.std)
        named.update(decision, reward=x * (decision.arm == "red"))
        arrays.update([x], expected.action, x * (decision.arm == "red"))


def test_every_preset_is_among_them():
    assert set(kb.presets.__all__) == set(PRESETS)


def test_an_unknown_feature_map_is_refused():
    with pytest.raises(kb.InputError, match="feature_map: expected 'random' or 'quadrature', got 'cosine'"):
        kb.random_features_ucb(kb.Gaussian(1.0), feature_map="cosine")


def test_the_model_knows_which_columns_encode_one_variable():
    seen = []

    class Noting(type(kb.ek_ucb(seed=0).posterior)):
        __slots__ = ()

        def grouped(self, labels):
            seen.append(labels)
            return super().grouped(labels)

    @takes_features
    def preset(*, seed=None):
        policy = kb.ek_ucb(seed=seed)
        policy.posterior.__class__ = Noting
        return policy

    assert isinstance(preset(features=FEATURES, seed=0), kb.TablePolicy)
    preset(seed=0)
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0], FEATURES.layout.labels)
    assert list(inspect.signature(preset).parameters) == ["seed", "features"]


def test_what_is_no_description_is_refused():
    with pytest.raises(kb.InputError, match=r"features: expected kb.Features\(context=…, actions=…\)"):
        kb.ek_ucb(features={"x": kb.Numeric()})


def test_a_policy_over_a_table_says_what_it_is():
    policy = kb.ek_ucb(kb.Gaussian(1.0), features=FEATURES, seed=0)
    policy.update({"x": 0.0}, "red", 1.0)
    assert repr(policy).startswith("TablePolicy(UpperConfidenceBound(")
    assert repr(policy).endswith("x, arm)")
    diagnostics = policy.diagnostics()
    assert diagnostics.observations == diagnostics.model.observations == 1
    assert "levels of arm: 2" in str(diagnostics)
    assert copy.deepcopy(diagnostics).observations == pickle.loads(pickle.dumps(diagnostics)).observations == 1
    with pytest.raises(AttributeError):
        diagnostics.nothing  # noqa: B018


def test_relevance_finds_what_matters():
    features = kb.Features({"x": kb.Numeric(), "noise": kb.Numeric(), "constant": kb.Numeric()}, ["red", "blue"])
    policy = kb.ek_ucb(kb.Gaussian(1.0), features=features, seed=0)
    generator = np.random.default_rng(0)
    for _ in range(150):
        row = {"x": float(generator.uniform(-1, 1)), "noise": float(generator.uniform(-1, 1)), "constant": 5.0}
        policy.update(row, ["red", "blue"][generator.integers(2)], row["x"])
    found = policy.diagnostics().relevance
    assert next(iter(found)) == "x"
    # x is uniform on [-1, 1], whose standard deviation is 1/√3
    assert found["x"] == pytest.approx(1 / np.sqrt(3), rel=0.15)
    assert found["constant"] == 0.0
    assert max(found["noise"], found["arm"]) < 0.15
    without = kb.ek_ucb(kb.Gaussian(1.0), dictionary=kb.Kors(history="none"), features=features, seed=0)
    without.update({"x": 0.0, "noise": 0.0, "constant": 5.0}, "red", 1.0)
    assert set(without.relevance()) == set(found)


def test_a_column_without_effect_is_not_ranked_first():
    columns = {name: kb.Numeric() for name in ("age", "moon", "tide", "wind", "luck")}
    policy, generator = kb.ek_ucb(features=kb.Features(columns, ["red", "blue"]), seed=0), np.random.default_rng(0)
    rows = [dict(zip(columns, map(float, generator.normal(size=5)), strict=True)) for _ in range(300)]
    arms = [("red", "blue")[number] for number in generator.integers(2, size=300)]
    chances = [0.3 + 0.25 * np.tanh(row["age"]) for row in rows]
    policy.update_many(rows, arms, (generator.random(300) < chances).astype(float))
    found = policy.diagnostics()
    assert next(iter(found.relevance)) == "age"
    assert found.relevance["age"] > 2.0 * found.uncertainty["age"]
    assert all(found.relevance[name] < found.uncertainty[name] for name in ("moon", "tide", "wind", "luck", "arm"))
    clear, rest = str(found).splitlines()[-3:-1]
    assert clear.startswith("relevance: age ")
    assert rest.startswith("no more than chance: ")
    # far from the data a line leaves the range of the rewards
    far = [policy.predict(rows[0] | {"age": age}).mean for age in (-30.0, 30.0)]
    assert np.min(far) >= 0.0
    assert np.max(far) <= 1.0
    assert not 0.0 <= policy.inner.predict(*policy.encode(rows[0] | {"age": 300.0})).mean.max() <= 1.0


@pytest.mark.parametrize("make", [kb.lin_ucb, kb.uniform], ids=["lin_ucb", "uniform"])
def test_a_policy_that_keeps_no_points_has_diagnostics(make):
    policy = make(features=kb.Features({"age": kb.Numeric()}, actions=["red", "blue"]), seed=0)
    policy.update({"age": 30}, "red", 1.0)
    assert policy.diagnostics().relevance == {}
    assert "relevance" not in str(policy.diagnostics())
