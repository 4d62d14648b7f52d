"""What one adds of one's own takes fewer than thirty lines, and runs in worker processes that cannot import it."""

from pathlib import Path

import pytest
from kernel_bandits_lab import load_study, read_results
from sweeping import command

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "path", [*sorted(EXAMPLES.glob("own_*.py")), EXAMPLES / "study.toml"], ids=lambda path: path.stem
)
def test_an_example_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(path.read_text().splitlines()) < 30
    answer = command("sweep", path, "--seeds", 2, "--horizon", 30, "--jobs", 2)
    assert answer.process.returncode == 0, answer.stderr
    results = read_results(tmp_path / "results" / path.stem)
    assert len(results.records) == len(load_study(path).capped(seeds=2).runs)
    assert (tmp_path / "results" / path.stem / "figure.png").read_bytes().startswith(b"\x89PNG")
