"""The paper's studies: the settings they claim to have, and figures and claims that find all they look for."""

from importlib import import_module

import pytest
from kernel_bandits_lab.reproduce.settings import ANY, BUDGETS, LIBRARY, PAPER, shorter_runs
from short_runs import records, study

GRIDS = {"bump": "Bump", "chessboard": "Chessboard", "step_diagonal": "Step Diagonal"}
STUDIES = [*GRIDS, "bump_projection"]
LAMBDAS, LIMITS = {1, 10, 100}, {3, 10, 30}


def module(name):
    return import_module(f"kernel_bandits_lab.reproduce.{name}.figure")


def options(run):
    return run.policy.options


def rule(run):
    dictionary = options(run)["dictionary"]
    assert dictionary.name == "Kors"
    return dictionary.options


@pytest.mark.parametrize("name", STUDIES)
def test_every_cell_has_twenty_paired_seeds_and_ten_where_rounds_cost_most(name):
    seeds = {}
    for run in study(name).runs:
        seeds.setdefault((run.environment.label, run.policy.label), set()).add(run.seed)
    for (_, policy), found in seeds.items():
        assert found == set(range(10 if policy.startswith(("K-UCB", "CBKB", "SupKernelUCB")) else 20))
    assert max(run.horizon for run in study(name).runs) == 2000


@pytest.mark.parametrize("name", STUDIES)
def test_the_papers_settings_are_those_of_its_text_and_the_budgets_of_its_code_a_study_of_sensitivity(name):
    runs = [run for run in study(name).runs if run.environment.label.endswith(PAPER)]
    assert {run.policy.name for run in runs} == {"k_ucb", "ek_ucb", "cbkb", "cbbkb", "sup_kernel_ucb"}
    for run in runs:
        assert options(run)["kernel"].settings == {"name": "Gaussian", "lengthscale": 0.1}
        radius = 1.0 if "η = 1" in run.policy.label else 0.1
        assert options(run)["confidence"].settings == {"name": "ConstantRadius", "value": radius}
        regularization = options(run)["regularization"]
        if run.policy.name == "ek_ucb":
            share = next((budget for budget in BUDGETS if f"γ = {budget:g}·λ" in run.policy.label), 1.0)
            assert rule(run)["oversampling"] == pytest.approx(share * regularization)
        if run.policy.name in ("cbkb", "cbbkb"):
            assert options(run)["oversampling"] == 10 * options(run).get("batch_variance_limit", 1)
    assert any("SupKernelUCB η = 1" in run.policy.label for run in runs)


@pytest.mark.parametrize("name", STUDIES)
def test_batches_start_from_the_first_point_as_published(name):
    runs = [run for run in study(name).runs if run.policy.name == "cbbkb"]
    assert runs
    assert all(options(run)["keeps_first"] is True for run in runs)


@pytest.mark.parametrize("name", STUDIES)
def test_the_librarys_settings_are_one_standard_deviation_and_a_lengthscale_that_suits(name):
    runs = [run for run in study(name).runs if run.environment.label.endswith(LIBRARY)]
    assert {run.policy.name for run in runs} == {"k_ucb", "ek_ucb", "cbkb", "cbbkb", "sup_kernel_ucb"}
    lengthscale = 1 if name.startswith("bump") else 0.1
    for run in runs:
        assert options(run)["kernel"].settings == {"name": "Gaussian", "lengthscale": lengthscale}
        assert options(run)["confidence"].settings == {"name": "StandardDeviations", "number": 1}
        if run.policy.name == "ek_ucb":
            assert rule(run)["oversampling"] == 2
        if run.policy.name in ("cbkb", "cbbkb"):
            assert options(run)["oversampling"] == 2


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("settings", [PAPER, LIBRARY])
def test_the_grid_is_the_papers(name, settings):
    runs = [run for run in study(name).runs if run.environment.label.endswith(settings)]
    for policy in ("k_ucb", "ek_ucb", "cbkb", "sup_kernel_ucb"):
        assert {options(run)["regularization"] for run in runs if run.policy.name == policy} == LAMBDAS
    batches = {
        (options(run)["regularization"], options(run)["batch_variance_limit"])
        for run in runs
        if run.policy.name == "cbbkb"
    }
    assert batches == {(number, limit) for number in LAMBDAS for limit in LIMITS}
    own = [run for run in runs if run.policy.name == "ek_ucb"]
    assert not any("leverage_regularization" in rule(run) for run in own)  # which means μ = λ


def test_figure_1_has_three_projections_at_one_regularization():
    runs = [run for run in study("bump_projection").runs if not run.environment.label.endswith(ANY)]
    assert {options(run)["regularization"] for run in runs} == {10}
    for settings in (PAPER, LIBRARY):
        own = [run for run in runs if run.environment.label.endswith(settings) and run.policy.name == "ek_ucb"]
        assert {rule(run)["leverage_regularization"] for run in own} == {1, 10, 100}


@pytest.mark.parametrize("name", STUDIES)
def test_every_comparison_of_every_claim_finds_its_runs(name):
    claims = module(name).claims(records(name))
    findings = [finding for claim in claims for found in claim.findings.values() for finding in found]
    assert len(findings) > 20
    assert not [finding for finding in findings if "not measured" in finding.evidence]
    assert len({claim.statement for claim in claims}) == len(claims)
    for claim in claims:
        for found in claim.findings.values():
            cases = [finding.what for finding in found]
            assert len(set(cases)) == len(cases)


@pytest.mark.parametrize("name", STUDIES)
def test_claims_survive_a_study_that_has_hardly_begun(name):
    some = records(name)[:3]
    assert module(name).claims(some)
    assert module(name).figure(some).axes


@pytest.mark.parametrize("name", GRIDS)
def test_a_figure_has_a_row_for_each_regularization_and_two_panels_for_each_settings(name):
    figure = module(name).figure(records(name))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[::2] == [f"{settings}, λ = μ = {number}" for number in (1, 10, 100) for settings in (PAPER, LIBRARY)]
    for number, axes in enumerate(figure.axes):
        lines = {line.get_label() for line in axes.get_lines()}
        expected = {"EK-UCB", "CBBKB C = 3", "CBBKB C = 10", "CBBKB C = 30", "CBKB", "SupKernelUCB", "K-UCB", "uniform"}
        assert lines == expected | ({"EK-UCB γ = 0.1·λ", "SupKernelUCB η = 1"} if number % 4 < 2 else set())
        assert axes.get_yscale() == ("log" if number % 2 else "linear")


def test_lines_can_be_told_apart_without_colour():
    for axes in module("chessboard").figure(records("chessboard")).axes:
        looks = [
            (str(line._unscaled_dash_pattern), line.get_linewidth(), str(line.get_marker()))
            for line in axes.get_lines()
        ]
        assert len(set(looks)) == len(looks)


@pytest.mark.parametrize("name", STUDIES)
def test_shorter_runs_are_said_on_the_figure(name):
    told = shorter_runs(records(name))
    assert module(name).figure(records(name)).get_supxlabel().replace("\n", " ") == told
    short = {run.policy.label.partition(", λ")[0] for run in study(name).runs if run.horizon < 2000}
    assert f"paired seeds: 2 runs of 16 rounds{'; ' if short else '.'}" in told
    assert all(label in told for label in short)
    whole = {run.policy.label.partition(", λ")[0] for run in study(name).runs} - short
    assert not [label for label in whole if f" {label} (λ" in told or f" {label}:" in told]
