"""A part of one's own in a study takes fewer than thirty lines, and runs in workers that cannot import it."""

from pathlib import Path

import pytest
from kernel_bandits_lab import load_study, read_results
from sweeping import command

EXAMPLES = Path(__file__).parents[2] / "examples"
# The others are scripts of their own.
STUDIES = [path for path in sorted(EXAMPLES.glob("own_*.py")) if "\nstudy = " in path.read_text()]


def test_the_parts_that_studies_name_have_one():
    assert {path.stem for path in STUDIES} >= {"own_dictionary_rule", "own_environment", "own_kernel", "own_policy"}


@pytest.mark.parametrize("path", [*STUDIES, EXAMPLES / "study.toml"], ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(path.read_text().splitlines()) < 30
    answer = command("sweep", path, "--seeds", 2, "--horizon", 30, "--jobs", 2)
    assert answer.process.returncode == 0, answer.stderr
    results = read_results(tmp_path / "results" / path.stem)
    assert len(results.records) == len(load_study(path).capped(seeds=2).runs)
    assert (tmp_path / "results" / path.stem / "figure.png").read_bytes().startswith(b"\x89PNG")
