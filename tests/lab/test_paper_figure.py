"""Figures for a paper."""

import numpy as np
import pytest
from kernel_bandits_lab.paper_figure import Layout, paper_figure, write
from test_plots import HORIZON, learners, lines

from kernel_bandits import InputError


@pytest.mark.parametrize("font", ["serif", "sans-serif"])
def test_fonts_are_embedded_as_truetype_and_the_width_is_that_asked_for(tmp_path, font):
    figure = paper_figure({"Place λ": learners()}, Layout(width=3.25, font=font))
    write(figure, tmp_path / "figure.pdf")
    content = (tmp_path / "figure.pdf").read_bytes()
    assert b"/Type3" not in content
    assert b"/FontFile2" in content
    assert figure.get_figwidth() == 3.25


def test_every_text_has_the_size_asked_for_and_stays_on_the_paper():
    from matplotlib.text import Text

    figure = paper_figure({"Place": learners()}, Layout(text_size=7.0))
    figure.draw_without_rendering()
    edge = figure.bbox
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            assert text.get_fontsize() == 7.0
            box = text.get_window_extent()
            assert box.x0 >= edge.x0 - 1
            assert box.x1 <= edge.x1 + 1


def test_panels_are_chosen_and_stand_in_one_column_where_it_is_narrow():
    narrow = paper_figure({"Place": learners()}, Layout(panels=("time", "regret")))
    assert [axes.get_ylabel() for axes in narrow.axes] == ["cumulative time (s)", "cumulative regret"]
    assert len({axes.get_subplotspec().colspan.start for axes in narrow.axes}) == 1
    wide = paper_figure({"Place": learners()}, Layout(width=6.75, panels=("regret", "time", "dictionary")))
    assert len({axes.get_subplotspec().colspan.start for axes in wide.axes}) == 3
    np.testing.assert_allclose(lines(wide.axes[0])["one"].get_ydata(), 3.0 * np.arange(1, HORIZON + 1))


def test_axes_are_logarithmic_where_asked_and_no_policy_leaves_the_frame():
    figure = paper_figure({"Place": learners()}, Layout(logarithmic=("time", "round")))
    regret, time = figure.axes
    assert (regret.get_yscale(), time.get_yscale(), time.get_xscale()) == ("linear", "log", "log")
    for axes in figure.axes:
        assert axes.get_ylim()[1] >= max(line.get_ydata().max() for line in axes.get_lines())


def test_lines_have_about_the_same_width():
    figure = paper_figure({"Place": {str(number): learners()["one"] for number in range(9)}})
    widths = [line.get_linewidth() for line in figure.axes[0].get_lines()]
    assert max(widths) / min(widths) < 2.5


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"width": 0.0}, "width"),
        ({"font": "serf"}, "did you mean 'serif'"),
        ({"panels": ("regrets",)}, "did you mean 'regret'"),
        ({"panels": ()}, "at least one"),
        ({"logarithmic": ("rounds",)}, "did you mean 'round'"),
    ],
)
def test_layouts_that_cannot_be_drawn(options, complaint):
    with pytest.raises(InputError, match=complaint):
        Layout(**options)
