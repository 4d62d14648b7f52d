"""The command line: what it prints, what it leaves, and exit codes."""

from pathlib import Path

import pytest
from kernel_bandits_lab import cli, group, load_study, read_results, summarize
from kernel_bandits_lab.study import catalogue
from sweeping import command
from typer.testing import CliRunner

import kernel_bandits as kb

COMMANDS = [
    "run",
    "sweep",
    "reproduce",
    "plot",
    "report",
    "table",
    "cite",
    "export",
    "check",
    "evaluate",
    "verdict",
    "serve",
    "list",
]
STUDY = """
title = "Small"
horizon = 25
seeds = 3
quick = { horizon = 10, seeds = 2 }
environments = [{ name = "Bump" }, { name = "Chessboard" }]
policies = [{ name = "ek_ucb", label = "EK-UCB" }, { name = "uniform" }]
"""
FIGURE = '''
"""The drawing of the small study."""

from kernel_bandits_lab import plots
from kernel_bandits_lab import group
from kernel_bandits_lab.reproduce.claims import Claim, Finding


def figure(records):
    return plots.comparison_figure(group(records))


def claims(records):
    return [Claim("There are records.", "nowhere", {"any": [Finding("records", str(len(records)), len(records) > 0)]})]
'''
MEASURED = '''
"""Nothing but a picture."""

TITLE = "A picture"


def measure(folder, quick, progress):
    progress(0, 1, "")
    (folder / "measured.txt").write_text(str(quick))
    progress(1, 1, "the only one")


def figure(folder):
    from matplotlib.figure import Figure

    assert (folder / "measured.txt").exists()
    return Figure()
'''


def invoke(*arguments):
    # A log, whatever the terminal of whoever runs the tests.
    log = {"FORCE_COLOR": None, "TTY_COMPATIBLE": None, "COLUMNS": "120"}
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], env=log)


@pytest.fixture
def study_toml(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def studies(tmp_path):
    """A folder of figures, as ``reproduce/`` is one."""
    folder = tmp_path / "my_figures"
    for name in ("small", "picture"):
        (folder / name).mkdir(parents=True)
    (folder / "small" / "sweep.toml").write_text(STUDY)
    (folder / "small" / "figure.py").write_text(FIGURE)
    (folder / "picture" / "figure.py").write_text(MEASURED)
    return folder


def test_every_command_has_help():
    overview = invoke("--help").stdout
    assert len(overview.splitlines()) <= 40  # a screen
    for name in COMMANDS:
        assert name in overview
        answer = invoke(name, "--help")
        assert answer.exit_code == 0
        assert "--help" in answer.stdout


def test_the_service_is_found_here_too():
    answer = invoke("serve", "--check", Path(__file__).parents[2] / "examples" / "service" / "loop.toml")
    assert answer.exit_code == 0, answer.output
    assert "ek_ucb" in answer.output


def test_sweep_prints_a_row_per_policy_and_leaves_records_and_a_figure(study_toml, tmp_path):
    out = tmp_path / "deep" / "folder"
    answer = invoke("sweep", study_toml, "--jobs", 1, "--out", out)
    assert answer.exit_code == 0, answer.output
    results = read_results(out)
    assert [record.run for record in results.records] == list(load_study(study_toml).runs)
    assert results.title == "Small"
    for by_policy in group(results.records).values():
        for label, runs in by_policy.items():
            summary = summarize(runs)
            shown = f"{summary.regret:.1f} ± {summary.regret_interval:.1f}"
            assert any(label in line and shown in line for line in answer.stdout.splitlines())
    assert answer.stdout.endswith(f"Figure: {out / 'figure.png'}\n")
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_options_shorten_and_shift_a_sweep(study_toml, tmp_path):
    quick = invoke("sweep", study_toml, "--quick", "--jobs", 1, "--out", tmp_path / "quick")
    assert quick.exit_code == 0, quick.output
    runs = [record.run for record in read_results(tmp_path / "quick").records]
    assert {(run.horizon, run.seed) for run in runs} == {(10, 0), (10, 1)}
    capped = invoke(
        "sweep", study_toml, "--horizon", 7, "--seeds", 1, "--seed", 5, "--jobs", 1, "--out", tmp_path / "capped"
    )
    assert capped.exit_code == 0, capped.output
    runs = [record.run for record in read_results(tmp_path / "capped").records]
    assert {(run.horizon, run.seed) for run in runs} == {(7, 5)}


def test_run_takes_options_as_toml_writes_them(tmp_path):
    answer = invoke(
        *("run", "ek_ucb", "Bump", "--horizon", 8, "--seeds", 2, "--jobs", 1, "--out", tmp_path),
        *("--option", "regularization=0.5", "--option", "dictionary={rule='Kors', history='none'}"),
        *("--option", "kernel={name='Matern', lengthscale=[1, 1, 1, 1, 1, 2]}"),
    )
    assert answer.exit_code == 0, answer.output
    records = read_results(tmp_path).records
    assert [record.run.seed for record in records] == [0, 1]
    assert records[0].run.policy.settings == {
        "name": "ek_ucb",
        "dictionary": {"name": "Kors", "history": "none"},
        "kernel": {"name": "Matern", "lengthscale": [1, 1, 1, 1, 1, 2]},
        "regularization": 0.5,
    }


def test_list_names_everything():
    answer = invoke("list")
    assert answer.exit_code == 0
    shown = answer.stdout.split()
    for kind in ("policy", "environment", "kernel, radius or rule"):
        assert set(catalogue(kind)) <= set(shown)
    assert {"overview", "bump", "bump_projection", "chessboard", "table_1"} <= set(shown)
    assert "Figure 1 of the paper: Bump with λ = 10 and three μ" in " ".join(shown)
    assert ":`" not in answer.stdout
    assert "``" not in answer.stdout


def test_progress_in_a_log_is_a_few_lines(tmp_path):
    answer = invoke("run", "uniform", "--horizon", 1, "--seeds", 32, "--jobs", 1, "--out", tmp_path)
    progress = [line for line in answer.stdout.splitlines() if " of 32, " in line]
    assert len(progress) == 10
    assert progress[-1].startswith("32 of 32, ")
    assert all("about " in line and " s left (Chessboard, uniform, seed" in line for line in progress)


def test_reproduce_measures_draws_judges_and_reports(studies, tmp_path):
    out = tmp_path / "out"
    answer = invoke("reproduce", "--studies", studies, "--quick", "--jobs", 1, "--out", out)
    assert answer.exit_code == 0, answer.output
    assert len(read_results(out / "small").records) == 8
    assert (out / "picture" / "measured.txt").read_text() == "True"
    assert all((out / name / "figure.png").exists() for name in ("small", "picture"))
    assert "Claims of the paper, in this shortened run: holds (1).\n" in answer.stdout
    assert "small: Small; 8 runs of up to 10 rounds\n" in answer.stdout
    assert answer.stdout.endswith(f"Report: {out / 'report.html'}\n")
    page = (out / "report.html").read_text()
    assert "The drawing of the small study." in page
    assert "A picture" in page
    assert "There are records." in page
    one = invoke("reproduce", "small", "--studies", studies, "--quick", "--jobs", 1, "--out", out)
    assert "8 of 8 runs are finished already." in one.stdout
    assert "picture" not in one.stdout


def test_plot_and_report_of_a_folder_and_of_a_folder_of_folders(study_toml, tmp_path):
    out = tmp_path / "results"
    assert invoke("sweep", study_toml, "--jobs", 1, "--out", out / "one").exit_code == 0
    assert invoke("sweep", study_toml, "--quick", "--jobs", 1, "--out", out / "two").exit_code == 0
    answer = invoke("plot", out / "one", "--out", tmp_path / "drawing.svg")
    assert answer.exit_code == 0, answer.output
    assert "<svg" in (tmp_path / "drawing.svg").read_text()
    assert invoke("report", out / "one").stdout.endswith(f"Report: {out / 'one' / 'report.html'}\n")
    assert invoke("report", out).exit_code == 0
    assert (out / "report.html").read_text().count("<section") == 2
    both = invoke("plot", out, "--out", tmp_path / "drawing.svg")
    assert both.exit_code == 2
    assert "holds 2 results" in both.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("sweep", "nowhere.toml"), "nowhere.toml: there is no such file"),
        (("run", "ekucb"), "unknown policy 'ekucb'; did you mean 'ek_ucb'?"),
        (("run", "ek_ucb", "Bumps"), "unknown environment 'Bumps'"),
        (("run", "--option", "regularization"), "option: expected name=value, got 'regularization'"),
        (("run", "--option", "regularization=-1"), "regularization: expected a positive finite number, got -1"),
        (("plot", "nowhere"), "nowhere: expected the results of a study"),
        (("report", "nowhere"), "nowhere: expected the results of a study"),
        (("reproduce", "bumps"), "there is no figure 'bumps'; did you mean 'bump'?"),
        (("reproduce", "--studies", "nowhere"), "nowhere: expected folders with a figure.py each"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    answer = invoke(*arguments)
    assert answer.exit_code == 2
    assert answer.stderr.startswith("error: ")
    assert complaint in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert not answer.stdout
    assert not list(tmp_path.iterdir())


BAD_STUDIES = {
    "unknown policy": ("uniform", "unifrom", "unknown policy 'unifrom'; did you mean 'uniform'?"),
    "wrong parameter": ('label = "EK-UCB"', "options = { lambda = 1 }", "ek_ucb: unknown option 'lambda'"),
    "negative horizon": ("horizon = 25", "horizon = -25", "horizon: expected a whole number of at least 1, got -25"),
    "not TOML": ("seeds = 3", "seeds = ", "not a TOML file"),
}


@pytest.mark.parametrize(("good", "bad", "complaint"), BAD_STUDIES.values(), ids=BAD_STUDIES)
def test_a_bad_study_is_one_line_and_exit_code_2(tmp_path, good, bad, complaint):
    path = tmp_path / "bad.toml"
    path.write_text(STUDY.replace(good, bad))
    answer = command("sweep", path, "--out", tmp_path / "out")
    assert answer.process.returncode == 2
    assert answer.stderr.startswith("error: bad.toml: ")
    assert complaint in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert not answer.stdout
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_said_before_anything_runs(study_toml, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    answer = invoke("sweep", study_toml, "--out", blocked / "below")
    assert answer.exit_code == 2
    assert f"{blocked / 'below'}: cannot be written to" in answer.stderr


def test_a_quick_look_needs_limits(study_toml, tmp_path):
    study_toml.write_text(STUDY.replace("quick =", "# quick ="))
    answer = invoke("sweep", study_toml, "--quick", "--out", tmp_path / "out")
    assert answer.exit_code == 2
    assert "quick: small.toml sets no limits" in answer.stderr


def test_a_figure_that_cannot_be_written_is_said(study_toml, tmp_path):
    assert invoke("sweep", study_toml, "--quick", "--jobs", 1, "--out", tmp_path / "out").exit_code == 0
    answer = invoke("plot", tmp_path / "out", "--out", tmp_path / "figure.nothing")
    assert answer.exit_code == 2
    assert "the figure cannot be written" in answer.stderr
    answer = invoke("report", tmp_path / "out", "--out", tmp_path / "nowhere" / "report.html")
    assert answer.exit_code == 2
    assert "the report cannot be written" in answer.stderr


@pytest.mark.parametrize("package", ["matplotlib.figure", "pyarrow", "joblib.externals", "cloudpickle"])
def test_a_missing_package_is_said_with_the_line_that_installs_it(study_toml, tmp_path, monkeypatch, package):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    answer = invoke("sweep", study_toml, "--jobs", 2, "--out", tmp_path / "out")
    assert answer.exit_code == 1
    assert "pip install 'kernel-bandits-lab" in answer.stderr
    assert not list((tmp_path / "out").glob("runs/*"))


def test_runs_that_fail_are_told_and_the_others_kept(tmp_path):
    path = tmp_path / "failing_study.py"
    path.write_text(
        "import kernel_bandits as kb\n"
        "class Failing(kb.Confidence):\n"
        "    def radius(self, posterior):\n"
        "        return 1.0 / (posterior.round_index - 2)\n"
        "study = {'environments': [{'name': 'Chessboard'}], 'seeds': 2, 'horizon': 3, 'policies': [\n"
        "    {'name': 'ek_ucb', 'options': {'confidence': {'name': Failing}}}, {'name': 'uniform'}]}\n"
    )
    answer = invoke("sweep", path, "--jobs", 1, "--out", tmp_path / "out")
    assert answer.exit_code == 1
    told = answer.stderr.splitlines()
    assert told[0] == "failed: Chessboard, ek_ucb, seed 0: ZeroDivisionError: float division by zero"
    assert told[-1].startswith("error: 2 runs failed; the others are kept")
    assert "in radius" in (tmp_path / "out" / "failures.txt").read_text()
    assert len(read_results(tmp_path / "out").records) == 2


def test_python_m_runs_the_command():
    answer = command("run", "nobody")
    assert answer.process.returncode == 2
    assert answer.stderr.startswith("error: policies[1]: unknown policy 'nobody'")


def test_the_version_in_a_record_is_that_of_the_library(study_toml, tmp_path):
    assert invoke("sweep", study_toml, "--quick", "--jobs", 1, "--out", tmp_path / "out").exit_code == 0
    (record, *_) = read_results(tmp_path / "out").records
    assert record.provenance["kernel_bandits"] == kb.__version__
