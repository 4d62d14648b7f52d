"""Files of studies with a mistake: one line names it, and what to write instead."""

import json

import pytest
from kernel_bandits_lab import load_study, study_of
from lab.study.files import SMALL, written

import kernel_bandits as kb

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
