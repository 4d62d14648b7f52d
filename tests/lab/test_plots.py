import subprocess
import sys

import numpy as np
import pytest
from kernel_bandits_lab.plots import comparison_figure, draw_time, line_styles
from scipy import stats

from kernel_bandits import InputError, KernelBanditsError, RunResult

HORIZON = 40


def record(slope, seconds=1e-3, horizon=HORIZON):
    """A run whose regret grows by ``slope`` and whose time grows by ``seconds`` at every round."""
    zeros = np.zeros(horizon)
    indices = np.zeros(horizon, dtype=np.int64)
    return RunResult(
        regret=slope * np.arange(1, horizon + 1),
        rewards=zeros,
        action_indices=indices,
        actions=zeros[:, None],
        contexts=zeros[:, None],
        dictionary_size=indices,
        select_seconds=np.full(horizon, 0.75 * seconds),
        update_seconds=np.full(horizon, 0.25 * seconds),
    )


def learners():
    return {"one": [record(1.0, 1e-3), record(2.0, 3e-3), record(6.0, 5e-3)], "other": [record(3.0), record(4.0)]}


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_lines_are_means_of_regret_and_cumulative_time():
    regret_axes, time_axes = comparison_figure({"Place": learners()}).axes
    rounds = np.arange(1, HORIZON + 1)
    np.testing.assert_array_equal(lines(regret_axes)["one"].get_xdata(), rounds)
    np.testing.assert_allclose(lines(regret_axes)["one"].get_ydata(), 3.0 * rounds)
    np.testing.assert_allclose(lines(regret_axes)["other"].get_ydata(), 3.5 * rounds)
    np.testing.assert_allclose(lines(time_axes)["one"].get_ydata(), 3e-3 * rounds)


def test_the_band_is_the_student_interval_of_the_mean():
    regret_axes, _ = comparison_figure({"Place": learners()}).axes
    band = regret_axes.collections[0].get_paths()[0].vertices
    finals = HORIZON * np.array([1.0, 2.0, 6.0])
    expected = stats.t.interval(0.95, df=2, loc=finals.mean(), scale=stats.sem(finals))
    at_the_end = band[band[:, 0] == HORIZON, 1]
    np.testing.assert_allclose([at_the_end.min(), at_the_end.max()], expected)


def test_each_environment_has_a_row_with_labels_and_one_legend_names_the_policies():
    figure = comparison_figure({"First": learners(), "Second": learners()})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["First", "", "Second", ""]
    assert [axes.get_ylabel() for axes in figure.axes] == ["cumulative regret", "cumulative time (s)"] * 2
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "round", "round"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "other"]


def test_a_policy_keeps_its_style_in_every_panel_and_styles_differ_in_colour_and_in_dashes_or_width():
    labels = [f"policy {number}" for number in range(6)]
    by_policy = {label: [record(1.0), record(1.1)] for label in labels}
    reversed_order = dict(reversed(by_policy.items()))
    first, *others = comparison_figure({"First": by_policy, "Second": reversed_order}).axes

    def style(line):
        # matplotlib has no public reader of a line's dashes
        return line.get_color(), str(line._unscaled_dash_pattern), line.get_linewidth()

    styles = {label: style(line) for label, line in lines(first).items()}
    assert all({label: style(line) for label, line in lines(axes).items()} == styles for axes in others)
    assert len({colour for colour, _, _ in styles.values()}) == len(labels)
    assert len({(dashes, width) for _, dashes, width in styles.values()}) == len(labels)


def test_a_policy_far_above_the_others_leaves_the_frame_and_its_end_is_written():
    by_policy = {**learners(), "hopeless": [record(50.0), record(50.0)]}
    regret_axes, time_axes = comparison_figure({"Place": by_policy}).axes
    top = regret_axes.get_ylim()[1]
    assert 3.5 * HORIZON < top < 50.0 * HORIZON
    assert [text.get_text() for text in regret_axes.texts] == ["hopeless ends at 2000"]
    assert not time_axes.texts


def test_short_runs_do_not_push_long_ones_out_of_the_frame():
    short = {str(number): [record(1.0, horizon=4)] * 2 for number in range(5)}
    regret_axes, _ = comparison_figure({"Place": {**learners(), **short}}).axes
    assert regret_axes.get_ylim()[1] > 3.5 * HORIZON
    assert not regret_axes.texts


def test_a_single_run_is_a_line_without_a_band(tmp_path):
    figure = comparison_figure({"Place": {"one": [record(2.0)]}})
    np.testing.assert_allclose(lines(figure.axes[0])["one"].get_ydata(), 2.0 * np.arange(1, HORIZON + 1))
    figure.savefig(tmp_path / "figure.png")
    assert not figure.axes[0].collections[0].get_paths()


def test_the_figure_can_be_written_without_a_display(tmp_path):
    path = tmp_path / "figure.png"
    comparison_figure({"Place": learners()}).savefig(path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "runs", [{}, {"Place": {"one": []}}, {"Place": {"one": [record(1.0), record(1.0, horizon=5)]}}]
)
def test_records_that_make_no_figure_are_refused(runs):
    with pytest.raises(InputError, match="runs: expected"):
        comparison_figure(runs)


def test_a_missing_matplotlib_is_answered_with_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(KernelBanditsError, match=r"pip install 'kernel-bandits-lab'"):
        comparison_figure({"Place": learners()})


def test_importing_the_module_does_not_load_optional_packages():
    program = (
        "import sys, kernel_bandits_lab.plots; print({'matplotlib', 'joblib', 'rich', 'typer'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_fewer_and_shorter_runs_are_said_below_the_panels():
    by_policy = {**learners(), "short": [record(1.0, horizon=20)] * 3, "also short": [record(1.0, horizon=20)] * 3}
    figure = comparison_figure({"Place": by_policy})
    note = "3 runs of 40 rounds; Place, other: 2 of 40 rounds; Place, short, also short: 20 rounds"
    assert figure.get_supxlabel() == note
    assert comparison_figure({"Place": {"one": learners()["one"]}}).get_supxlabel() == "3 runs of 40 rounds"


def test_long_runs_are_drawn_by_few_points_that_lie_on_the_curve():
    axes, _ = comparison_figure({"Place": {"one": [record(2.0, horizon=5000)] * 2}}).axes
    (line,) = axes.get_lines()
    rounds = line.get_xdata()
    assert len(rounds) < 200
    assert (rounds[0], rounds[-1]) == (1, 5000)
    np.testing.assert_allclose(line.get_ydata(), 2.0 * rounds)


def test_a_logarithmic_time_axis_starts_after_the_first_rounds():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    draw_time(axes, {"one": [record(1.0, 1e-3)] * 2}, line_styles(["one"]), scale="log")
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    assert 1e-3 < low < 3e-3
    assert high > 40e-3
