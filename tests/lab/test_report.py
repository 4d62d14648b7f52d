"""The report as a browser shows it."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from kernel_bandits_lab import Results, Run, execute, group, plots, study_of
from kernel_bandits_lab.report import Section, page, write_report
from kernel_bandits_lab.reproduce.claims import Claim, Finding, check_of
from kernel_bandits_lab.study import reference
from kernel_bandits_lab.tables import Table
from matplotlib.image import imread

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
GROUNDS = {"light": (255, 255, 255), "dark": (0x17, 0x18, 0x1A)}  # --ground of the page's style
NASTY = "<b>&\"'"


@pytest.fixture(scope="module")
def records():
    study = study_of(
        {
            "horizon": 30,
            "seeds": 3,
            "environments": [{"name": "Chessboard"}],
            "policies": [{"name": "ek_ucb", "label": "EK-UCB " + NASTY}, {"name": "uniform"}],
        }
    )
    return tuple(execute(run) for run in study.runs)


@pytest.fixture(scope="module")
def sections(records):
    missing = (Run(reference("Chessboard"), reference("uniform"), 3, 30),)
    results = Results("study", "Study " + NASTY, records, missing, {"run": "its content is not what was written"})
    claims = [
        Claim("It learns.", "section 5", {"settings": [Finding("λ = 1", "−3.0 ± 0.5", True)]}, "paired difference"),
        Claim("It " + NASTY, "appendix", {"settings": [Finding("a", "b", False)] * 9}),
    ]
    figure = plots.comparison_figure(group(records))
    table = Table("Extra " + NASTY, ("what", "value"), (("one", "1"),), "a note")
    return [
        Section(results.title, results, [("caption " + NASTY, figure)], [check_of(claim) for claim in claims]),
        Section("Second", None, [("again", figure)], (), [table]),
    ]


class Reader(HTMLParser):
    """Collects addresses, tags that never close, and text."""

    VOID = ("meta", "link", "img", "br", "source")

    def __init__(self):
        super().__init__()
        self.addresses, self.open, self.text, self.targets = [], [], "", set()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.addresses += [values[name] for name in ("src", "href", "srcset", "data") if values.get(name)]
        self.targets |= {values["id"]} if "id" in values else set()
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data


def test_a_dictionary_no_smaller_than_the_history_is_named():
    """Of the policies with a dictionary, and not of those that carry every point by definition."""
    study = study_of(
        {
            "horizon": 500,
            "seeds": 1,
            "environments": [{"name": "MovingOptimum"}],
            "policies": [
                {"name": "ek_ucb", "label": "short", "options": {"kernel": {"name": "Gaussian", "lengthscale": 0.01}}},
                {"name": "ek_ucb", "label": "long", "options": {"kernel": {"name": "Gaussian", "lengthscale": 2.0}}},
                {"name": "k_ucb", "options": {"kernel": {"name": "Gaussian", "lengthscale": 0.01}}},
            ],
        }
    )
    results = Results("study", "Study", tuple(execute(run) for run in study.runs), (), {})
    (problem,) = re.findall(r'<p class="warning">(.*?)</p>', page("Report", [Section("Study", results, [])]))
    assert problem.startswith(
        "short in MovingOptimum: the dictionary is no smaller than the history, 500 anchors for 500"
    )


@pytest.fixture(scope="module")
def read(sections):
    reader = Reader()
    reader.feed(page("Report " + NASTY, sections))
    return reader


def test_the_page_is_well_formed_and_says_what_was_found(read, records):
    assert not read.open
    final = np.array([record.result.regret[-1] for record in records if "EK-UCB" in record.run.policy.label])
    for told in (
        "Report " + NASTY,
        "EK-UCB " + NASTY,
        "caption " + NASTY,
        "λ = 1: −3.0 ± 0.5, yes",
        "1 of the study's runs have no record yet",
        "its content is not what was written",
        "ek_ucb(kernel=Gaussian(lengthscale=0.1))",
        "0–2",
        f"{final.mean():.1f} ± ",
        records[0].provenance["numpy"],
        "a note",
    ):
        assert told in read.text
    assert records[0].provenance["host"] not in read.text.split()


def test_the_page_needs_nothing_beside_it(read, sections):
    inside = [address for address in read.addresses if address.startswith("#")]
    assert all(address.startswith(("data:", "#")) for address in read.addresses)
    assert {address[1:] for address in inside} <= read.targets
    assert not re.search(r"url\(|@import|<script", page("Report", sections))


def test_the_same_records_make_the_same_page(sections):
    assert page("Report", sections) == page("Report", sections)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
class TestInChromium:
    @pytest.fixture
    def report(self, tmp_path, sections):
        path = tmp_path / "report.html"
        write_report(path, "Report " + NASTY, sections)
        return path

    def chromium(self, *arguments):
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000")
        return subprocess.run([CHROMIUM, *options, *arguments], capture_output=True, text=True, check=True, timeout=120)

    def test_every_figure_is_drawn_and_nothing_is_wider_than_the_window(self, report):
        probe = """<script>onload = () => document.title = JSON.stringify([
            [...document.images].map(image => image.naturalWidth > 100 && image.width > 100),
            document.documentElement.scrollWidth <= innerWidth])</script></body>"""
        report.write_text(report.read_text().replace("</body>", probe))
        dom = self.chromium("--dump-dom", "--window-size=700,900", report.as_uri()).stdout
        assert re.search(r"<title>(.*?)</title>", dom).group(1) == "[[true,true],true]"

    @pytest.mark.parametrize("scheme", GROUNDS)
    def test_light_and_dark(self, report, tmp_path, scheme):
        shot = tmp_path / "shot.png"
        setting = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
        self.chromium(f"--screenshot={shot}", "--window-size=900,1600", setting, report.as_uri())
        pixels = (255 * imread(shot)[..., :3]).round().astype(int)
        assert tuple(pixels[5, 5]) == GROUNDS[scheme]
        # the figures keep their white paper, and their ink
        colours = {tuple(pixel) for pixel in pixels.reshape(-1, 3)}
        assert (255, 255, 255) in colours
        assert any(abs(np.array(colour) - (0x00, 0x72, 0xB2)).max() < 8 for colour in colours)


def test_runs_that_two_studies_share_are_counted_once(sections):
    assert "<p>6 runs, " in page("Both", [sections[0], sections[0]])
