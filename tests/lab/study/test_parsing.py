"""Files of studies: what they expand to, and ids that depend on what a run does alone."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_bandits_lab import Run, Study, load_study, study_of
from kernel_bandits_lab.study import catalogue, reference
from lab.study.files import SMALL, written

import kernel_bandits as kb

FULL = """
title = "Projection"
horizon = 100
seeds = 3
quick = { horizon = 40, seeds = 2 }

[defaults]
regularization = 10
confidence = { name = "ConstantRadius", value = 0.1 }

[[environments]]
name = "Bump"
kernel = { name = "Gaussian", lengthscale = 0.1 }

[[environments]]
name = "Chessboard"
label = "board {instance_seed}"
grid = { instance_seed = [1, 2] }

[[policies]]
name = "ek_ucb"
label = "EK-UCB, μ = {dictionary.leverage_regularization:g}, {kernel.name} {kernel.smoothness}"
options = { kernel = { name = "Matern", smoothness = 1.5 } }
[policies.grid]
dictionary = [
  { rule = "Kors", oversampling = 2, leverage_regularization = 1 },
  { rule = "Kors", oversampling = 2, leverage_regularization = 100.0 },
]

[[policies]]
name = "cbbkb"
environments = ["Bump"]
grid = [{ oversampling = 3.0, batch_variance_limit = 3 }, { oversampling = 30, batch_variance_limit = 10 }]

[[policies]]
name = "sup_kernel_ucb"
seeds = [5, 3]
horizon = 20

[[policies]]
name = "uniform"
"""


@pytest.fixture
def full(tmp_path):
    return load_study(written(tmp_path, FULL, "projection.toml"))


def test_a_study_is_the_product_of_environments_policies_and_seeds(full):
    places = ["Bump", "board 1", "board 2"]
    kernel = "Matern 1.5"
    everywhere = {
        f"EK-UCB, μ = 1, {kernel}": ((0, 1, 2), 100),
        f"EK-UCB, μ = 100, {kernel}": ((0, 1, 2), 100),
        "sup_kernel_ucb": ((5, 3), 20),
        "uniform": ((0, 1, 2), 100),
    }
    bump_only = {
        "cbbkb(oversampling=3, batch_variance_limit=3)": ((0, 1, 2), 100),
        "cbbkb(oversampling=30, batch_variance_limit=10)": ((0, 1, 2), 100),
    }
    expected = {
        (place, label, seed, horizon)
        for place in places
        for label, (seeds, horizon) in (everywhere | (bump_only if place == "Bump" else {})).items()
        for seed in seeds
    }
    found = [(run.environment.label, run.policy.label, run.seed, run.horizon) for run in full.runs]
    assert set(found) == expected
    assert len(found) == len(expected)
    assert (full.name, full.title) == ("projection", "Projection")


def test_seeds_come_first_so_that_a_study_stopped_early_is_balanced(full):
    first = full.runs[: len({(run.environment.label, run.policy.label) for run in full.runs})]
    assert len({(run.environment.label, run.policy.label) for run in first}) == len(first)


def test_policies_get_defaults_where_they_take_them_and_the_kernel_of_the_environment(full):
    by_label = {(run.environment.label, run.policy.label): run.policy.settings for run in full.runs}
    assert by_label["Bump", "sup_kernel_ucb"] == {
        "name": "sup_kernel_ucb",
        "confidence": {"name": "ConstantRadius", "value": 0.1},
        "kernel": {"name": "Gaussian", "lengthscale": 0.1},
        "regularization": 10,
    }
    # the board has no kernel of its own in the file: Gaussian, with the lengthscale the environment names
    assert by_label["board 1", "sup_kernel_ucb"]["kernel"] == {"name": "Gaussian", "lengthscale": 0.1}
    assert kb.environments.Chessboard.lengthscale == 0.1
    assert by_label["Bump", "EK-UCB, μ = 1, Matern 1.5"]["kernel"] == {"name": "Matern", "smoothness": 1.5}
    assert by_label["Bump", "uniform"] == {"name": "uniform"}


def test_precedence_is_policy_then_environment_then_defaults():
    def kernel(defaults, place, options):
        tables = {
            "environments": [{"name": "Bump", **place}],
            "policies": [{"name": "k_ucb", "options": options}],
            "defaults": defaults,
            "seeds": 1,
            "horizon": 1,
        }
        return study_of(tables).runs[0].policy.settings["kernel"]

    levels = [{"kernel": {"name": "Gaussian", "lengthscale": length}} for length in (3, 4, 5)]
    suggested = {"name": "Gaussian", "lengthscale": 1}
    for wishes in itertools.product([False, True], repeat=3):
        chosen = [level if wanted else {} for level, wanted in zip(levels, wishes, strict=True)]
        expected = next((level["kernel"] for level in reversed(chosen) if level), suggested)
        assert kernel(*chosen) == expected


def test_a_run_builds_what_its_settings_say(full):
    (run, *_) = [run for run in full.runs if run.policy.label.startswith("EK-UCB, μ = 100")]
    policy, environment = run.build()
    assert environment.name == "Bump"
    assert policy.posterior.regularization == 10
    assert policy.confidence == kb.ConstantRadius(0.1)
    expected = kb.ek_ucb(
        kb.Matern(smoothness=1.5),
        regularization=10,
        confidence=kb.ConstantRadius(0.1),
        dictionary=kb.Kors(leverage_regularization=100.0),
        seed=run.seed,
    )
    one, other = (kb.run(player, environment, 30, seed=1) for player in (policy, expected))
    np.testing.assert_array_equal(one.regret, other.regret)


def test_nested_kernels_are_built(tmp_path):
    study = load_study(
        written(
            tmp_path,
            """
            horizon = 5
            seeds = 1
            environments = [{ name = "Chessboard" }]
            [[policies]]
            name = "k_ucb"
            [policies.options.kernel]
            name = "TensorProduct"
            context_dimension = 1
            context_kernel.name = "Sum"
            context_kernel.left = { name = "Gaussian", lengthscale = [0.2] }
            context_kernel.right = { name = "Constant", value = 2 }
            action_kernel = { name = "sklearn.gaussian_process.kernels:RBF", length_scale = 0.3 }
            """,
        )
    )
    policy, _ = study.runs[0].build()
    points = np.random.default_rng(0).random((4, 2))
    expected = (kb.Gaussian(0.2)(points[:, :1]) + 2) * kb.Gaussian(0.3)(points[:, 1:])
    np.testing.assert_allclose(policy.posterior.kernel(points, points), expected)


def test_a_kernel_may_be_learned(tmp_path):
    study = load_study(
        written(
            tmp_path,
            """
            horizon = 5
            seeds = 1
            environments = [{ name = "Chessboard" }]
            [[policies]]
            name = "ek_ucb"
            options.learn_kernel = true
            [[policies]]
            name = "k_ucb"
            options.kernel = { name = "Gaussian", lengthscale = 3 }
            options.learn_kernel = true
            [[policies]]
            name = "ek_ucb"
            label = "in groups"
            options.learn_kernel = { name = "KernelLearning", groups = [0, 0] }
            """,
        )
    )
    first, second, third = (run.build()[0].posterior for run in study.runs)
    assert first.learning == second.learning == kb.KernelLearning()
    # the lengthscale that suits the environment is nothing to start from
    assert isinstance(first.kernel, kb.Mixed)
    assert second.kernel.lengthscale == 3.0
    assert third.learning == kb.KernelLearning(groups=(0, 0))


def test_every_policy_environment_and_kernel_of_the_library_is_found():
    presets = set(kb.presets.__all__)
    assert presets == set(catalogue("policy"))
    assert set(catalogue("environment")) >= {"Bump", "Chessboard", "StepDiagonal", "MovingOptimum"}
    assert set(catalogue("kernel, radius or rule")) >= {
        "Gaussian",
        "Sum",
        "TensorProduct",
        "ConstantRadius",
        "Tightened",
    }
    assert not set(catalogue("kernel, radius or rule")) & {"Kernel", "Confidence", "GuaranteedRadius"}


def test_caps_shorten_and_a_shift_changes_every_seed(full):
    short = full.capped(**full.quick)
    cells = {}
    for run in short.runs:
        cells.setdefault((run.environment.label, run.policy.label), []).append(run)
    assert {len(runs) for runs in cells.values()} == {2}
    assert {run.horizon for run in short.runs} == {20, 40}
    assert [run.seed for run in full.shifted(100).runs] == [run.seed + 100 for run in full.runs]
    assert not {run.id for run in full.shifted(100).runs} & {run.id for run in full.runs}


def test_none_is_an_option_as_any_other():
    study = study_of({**SMALL, "policies": [{"name": "thompson_sampling", "options": {"dictionary": None}}]})
    assert study.runs[0].policy.settings["dictionary"] is None
    policy, _ = study.runs[0].build()
    assert isinstance(policy.posterior, kb.posterior.ExactPosterior)


def test_a_dictionary_rule_is_a_table_or_a_name():
    def policy_of(dictionary):
        study = study_of({**SMALL, "policies": [{"name": "sup_kernel_ucb", "options": {"dictionary": dictionary}}]})
        return study.runs[0].policy

    settings_of_rule = {"name": "Kors", "oversampling": 2}
    written_as_rule = policy_of({"rule": "Kors", "oversampling": 2.0})
    assert written_as_rule.settings["dictionary"] == settings_of_rule
    assert written_as_rule.options["dictionary"].factory is kb.Kors
    assert policy_of(settings_of_rule) == written_as_rule
    assert policy_of("PosteriorVariance") == policy_of({"rule": "PosteriorVariance"})
    assert written_as_rule.options["dictionary"].build() == kb.Kors(oversampling=2.0)
    assert policy_of("anything else").options["dictionary"] == "anything else"


def test_a_label_and_a_grid_look_into_rules():
    rules = [{"rule": "Kors", "oversampling": number} for number in (1, 2.5)]
    table = {"name": "sup_kernel_ucb", "label": "γ = {dictionary.oversampling:g}", "grid": {"dictionary": rules}}
    labels = [run.policy.label for run in study_of({**SMALL, "seeds": 1, "policies": [table]}).runs]
    assert labels == ["γ = 1", "γ = 2.5"]


def id_of(options, label="", name="ek_ucb"):
    return Run(reference("Bump"), reference(name, options, label), 3, 50).id


def test_ids_are_the_same_tomorrow_and_elsewhere():
    # written down: a record of today must be found by a later release
    assert (
        id_of({"regularization": 10, "kernel": {"name": "Gaussian", "lengthscale": 0.1}})
        == "Bump-ek_ucb-3-23b57655838e"
    )


options_of_runs = st.dictionaries(
    st.sampled_from(["regularization", "oversampling", "history", "kernel"]),
    st.one_of(
        st.integers(-5, 5),
        st.floats(allow_nan=False),
        st.booleans(),
        st.text(max_size=3),
        st.builds(lambda length: {"name": "Gaussian", "lengthscale": length}, st.floats(0.1, 2)),
    ),
)


@given(options_of_runs, st.randoms(use_true_random=False))
def test_order_and_labels_do_not_enter_an_id(options, random):
    shuffled = list(options.items())
    random.shuffle(shuffled)
    assert id_of(dict(shuffled), label="another") == id_of(options)


@given(options_of_runs, options_of_runs)
@settings(max_examples=300)
def test_other_options_make_another_id(one, other):
    same = reference("ek_ucb", one).settings == reference("ek_ucb", other).settings
    # JSON tells true from 1, and so do ids; Python's equality does not
    same = same and json.dumps(reference("ek_ucb", one).settings) == json.dumps(reference("ek_ucb", other).settings)
    assert (id_of(one) == id_of(other)) == same


def test_whole_numbers_may_be_written_as_decimals():
    assert id_of({"regularization": 10}) == id_of({"regularization": 10.0})
    assert id_of({"regularization": 10}) == id_of({"regularization": np.float64(10)})


def test_a_python_file_is_the_same_tables_with_its_own_code(tmp_path):
    (tmp_path / "helper.py").write_text("LEVEL = 0.25\n")
    path = written(
        tmp_path,
        """
        import kernel_bandits as kb
        from helper import LEVEL

        class Flat(kb.environments.Environment):
            lengthscale = 0.5
            def next_round(self, contexts):
                return kb.environments.Round(contexts.random(1), contexts.random((3, 1)))
            def expected_rewards(self, context, actions):
                return 0 * actions[:, 0] + LEVEL

        study = {"environments": [{"name": Flat}], "policies": [{"name": kb.ek_ucb}], "seeds": 1, "horizon": 4}
        """,
        "flat.py",
    )
    study = load_study(path)
    assert isinstance(study, Study)
    (run,) = study.runs
    assert (run.environment.name, run.policy.name) == ("flat:Flat", "ek_ucb")
    # the same class named in a TOML file beside it is the same run
    toml = written(
        tmp_path,
        """
        seeds = 1
        horizon = 4
        environments = [{ name = "flat:Flat" }]
        policies = [{ name = "ek_ucb" }]
        """,
        "named.toml",
    )
    assert load_study(toml).runs[0].id == run.id


def test_a_study_run_as_a_script_has_the_ids_of_its_file(tmp_path):
    path = written(
        tmp_path,
        """
        import kernel_bandits as kb
        from kernel_bandits_lab import study_of

        def greedy(kernel, seed):
            return kb.k_ucb(kernel, confidence=kb.StandardDeviations(0.0), seed=seed)

        study = {"environments": [{"name": "Bump"}], "policies": [{"name": greedy}], "seeds": 1, "horizon": 4}
        if __name__ == "__main__":
            print(study_of(study).runs[0].id)
        """,
        "greedy_study.py",
    )
    told = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout.strip()
    assert load_study(path).runs[0].id == told


def test_the_study_in_the_documentation_is_one(tmp_path):
    root = Path(__file__).parents[3]
    (text,) = re.findall(r"```toml\n(.*?)```", (root / "docs" / "studies.md").read_text(), re.DOTALL)
    shutil.copy(root / "examples" / "own_environment.py", tmp_path)
    study = load_study(written(tmp_path, text))
    assert {run.environment.label for run in study.runs} == {"Chessboard", "Thermostat"}
    assert len({run.policy.label for run in study.runs}) == 5


def test_a_run_from_a_record_cannot_be_built():
    with pytest.raises(kb.InputError, match="load its study instead"):
        Run(reference("Bump"), reference("uniform"), 0, 1).build()
