"""Files of studies: what they expand to, ids that depend on what a run does alone, and mistakes that are named."""

import itertools
import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernel_bandits as kb
from kernel_bandits.experiments import Run, Study, load_study, study_of
from kernel_bandits.experiments.study import catalogue, reference

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
SMALL = {"environments": [{"name": "Bump"}], "policies": [{"name": "uniform"}], "seeds": 2, "horizon": 10}


def written(folder, text, name="study.toml"):
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


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
    presets = {name for name in kb.policies.__all__ if name.islower()} - {"load"}
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
    assert isinstance(policy.posterior, kb.posteriors.ExactPosterior)


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
        from kernel_bandits.experiments import study_of

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


BAD_TOML = {
    "unknown policy": (
        'policies = [{ name = "ekucb" }]',
        "policies[1]: unknown policy 'ekucb'; did you mean 'ek_ucb'?",
    ),
    "unknown environment": (
        'environments = [{ name = "Bumps" }]',
        "environments[1]: unknown environment 'Bumps'; did you",
    ),
    "unknown kernel": (
        'policies = [{ name = "k_ucb", options = { kernel = { name = "Gauss" } } }]',
        "'Gauss'; did you mean",
    ),
    "wrong option": (
        'policies = [{ name = "ek_ucb", options = { regularisation = 1 } }]',
        "ek_ucb: unknown option 'regularisation'; did you mean 'regularization'?",
    ),
    "wrong kernel option": (
        'policies = [{ name = "k_ucb", options = { kernel = { name = "Gaussian", length = 1 } } }]',
        "Gaussian: unknown option 'length'; did you mean 'lengthscale'?",
    ),
    "an option of a rule": (
        'policies = [{ name = "ek_ucb", options = { oversampling = 1 } }]',
        "ek_ucb: unknown option 'oversampling'; write dictionary = { rule = 'Kors', oversampling = … }.",
    ),
    "an option of a rule under its old name": (
        'policies = [{ name = "ek_ucb", options = { max_dictionary_size = 10 } }]',
        "write dictionary = { rule = 'Kors', max_size = … }.",
    ),
    "unknown rule": (
        'policies = [{ name = "ek_ucb", options = { dictionary = { rule = "Gaussian" } } }]',
        "dictionary: unknown rule 'Gaussian'",
    ),
    "name and rule": (
        'policies = [{ name = "ek_ucb", options = { dictionary = { rule = "Kors", name = "Kors" } } }]',
        "dictionary: expected a table with a name, such as {rule = 'Kors', …}",
    ),
    "wrong option of a rule": (
        'policies = [{ name = "ek_ucb", options = { dictionary = { rule = "Kors", oversample = 1 } } }]',
        "Kors: unknown option 'oversample'; did you mean 'oversampling'?",
    ),
    "table without a name": (
        'policies = [{ name = "k_ucb", options = { kernel = { lengthscale = 1 } } }]',
        "kernel: expected a table with a name",
    ),
    "negative horizon": ("horizon = -5", "horizon: expected a whole number of at least 1, got -5"),
    "horizon of a policy": ('policies = [{ name = "uniform", horizon = 0 }]', "policies[1].horizon: expected a whole"),
    "no seeds": ("seeds = 0", "seeds: expected a whole number of at least 1, got 0"),
    "twice the same seed": ("seeds = [1, 1]", "seeds: expected different whole numbers of at least 0, got [1, 1]"),
    "empty list of seeds": ("seeds = []", "seeds: expected different whole numbers"),
    "unknown entry": ("horizons = 5", "unknown entry 'horizons'; did you mean 'horizon'?"),
    "unknown entry of a policy": (
        'policies = [{ name = "uniform", option = {} }]',
        "unknown entry 'option'; did you mean",
    ),
    "policy without a name": ("policies = [{ label = 'x' }]", "policies[1]: the entry 'name' is missing"),
    "no policies": ("policies = []", "policies: expected one or more tables"),
    "policies that are no tables": ("policies = ['ek_ucb']", "policies[1]: expected a table, got 'ek_ucb'"),
    "grid without a list": (
        'policies = [{ name = "ek_ucb", grid = { regularization = 1 } }]',
        "policies[1].grid.regularization: expected a list of values, got 1",
    ),
    "option in the grid too": (
        'policies = [{ name = "cbkb", options = { oversampling = 1 }, grid = { oversampling = [1, 2] } }]',
        "'oversampling' is both an option and in the grid",
    ),
    "same label twice": (
        'policies = [{ name = "uniform" }, { name = "uniform" }]',
        "policies in Bump: two of them are called 'uniform'",
    ),
    "label that a grid does not vary": (
        'policies = [{ name = "cbkb", label = "x", grid = { oversampling = [1, 2] } }]',
        "two of them are called 'x'",
    ),
    "label with an unknown option": ('policies = [{ name = "uniform", label = "{gamma}" }]', "label: '{gamma}' cannot"),
    "label that is no text": ('policies = [{ name = "uniform", label = 3 }]', "label: expected a text, got 3"),
    "unknown place to play": (
        'policies = [{ name = "uniform", environments = ["bump"] }]',
        "policies[1].environments: there is no environment 'bump'; did you mean 'Bump'?",
    ),
    "default that nobody takes": (
        "[defaults]\nregularisation = 1",
        "defaults: no policy takes an option 'regularisation'",
    ),
    "unknown cap": ("quick = { rounds = 3 }", "quick: unknown entry 'rounds'"),
    "module that is not there": ('policies = [{ name = "nowhere:policy" }]', "nowhere:policy: cannot be imported"),
    "attribute that is not there": ('policies = [{ name = "math:policy" }]', "math:policy: cannot be imported"),
    "not TOML": ("horizon = = 3", "not a TOML file"),
}


def toml_with(line):
    """A good file in which one entry is replaced, or one added."""
    lines = {
        "horizon": "horizon = 10",
        "seeds": "seeds = 2",
        "environments": "environments = [{ name = 'Bump' }]",
        "policies": "policies = [{ name = 'uniform' }]",
    }
    lines[line.split(" ")[0]] = line
    return "\n".join(sorted(lines.values(), key=lambda text: text.startswith("[")))


@pytest.mark.parametrize(("line", "complaint"), BAD_TOML.values(), ids=BAD_TOML)
def test_a_bad_file_is_told_in_one_line(tmp_path, line, complaint):
    path = written(tmp_path, toml_with(line))
    with pytest.raises(kb.InputError) as raised:
        load_study(path)
    message = str(raised.value)
    assert message.startswith("study.toml: ")
    assert complaint in message
    assert "\n" not in message


def test_a_missing_entry_is_named():
    for key in SMALL:
        with pytest.raises(kb.InputError, match=f"the entry '{key}' is missing"):
            study_of({name: value for name, value in SMALL.items() if name != key})


def test_an_environment_without_a_lengthscale_asks_for_a_kernel(tmp_path):
    (tmp_path / "unscaled.py").write_text(
        "import kernel_bandits as kb\n"
        "class Unscaled(kb.environments.Environment):\n"
        "    def next_round(self, contexts):\n"
        "        raise NotImplementedError\n"
        "    def expected_rewards(self, context, actions):\n"
        "        raise NotImplementedError\n"
        "study = {'environments': [{'name': Unscaled}], 'policies': [{'name': 'cbkb'}], 'seeds': 1, 'horizon': 1}\n"
    )
    with pytest.raises(kb.InputError, match="cbkb: needs the option 'kernel'"):
        load_study(tmp_path / "unscaled.py")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("raise RuntimeError('no')", "the file cannot be run: RuntimeError: no"),
        ("study = 3", "expected it to define `study`"),
        ("studies = {}", "expected it to define `study`"),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        (
            "study = {'environments': [{'name': lambda: 3}], 'policies': [], 'seeds': 1, 'horizon': 1}",
            "top level of a module",
        ),
        (
            "import kernel_bandits as kb\n"
            "study = {'environments': [{'name': 'Bump'}], 'seeds': 1, 'horizon': 1,\n"
            "         'policies': [{'name': 'k_ucb', 'options': {'kernel': kb.Gaussian(1.0)}}]}",
            "settings are data",
        ),
    ],
)
def test_a_bad_python_file_is_told_in_one_line(tmp_path, text, complaint):
    path = written(tmp_path, text, "bad_study.py")
    with pytest.raises(kb.InputError) as raised:
        load_study(path)
    assert complaint in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_may_not_hide_a_module_that_is_loaded(tmp_path):
    with pytest.raises(kb.InputError, match="a module called json is loaded already"):
        load_study(written(tmp_path, "study = {}", "json.py"))
    assert json.loads("1") == 1


@pytest.mark.parametrize("name", ["nowhere.toml", "study.yaml", "."])
def test_a_file_that_is_not_there_or_no_study_is_named(tmp_path, name):
    with pytest.raises(kb.InputError, match=r"there is no such file|expected a study in"):
        load_study(tmp_path / name)


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
