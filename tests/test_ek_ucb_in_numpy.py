"""The 60 lines of NumPy decide as the library does: the same actions, anchors, means and standard deviations."""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import kernel_bandits as kb

PATH = Path(__file__).parent.parent / "examples" / "ek_ucb_in_numpy.py"


class FewContexts(kb.environments.Chessboard):
    """Three contexts, so that points return and draws add no direction."""

    lengthscale = 0.3

    def next_round(self, contexts):
        return kb.environments.Round(contexts.integers(3, size=1) / 3, self.actions.copy())


@pytest.fixture(scope="module")
def example():
    specification = importlib.util.spec_from_file_location(PATH.stem, PATH)
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    return script


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize(
    ("environment", "regularization"),
    [
        (kb.environments.Chessboard(), 0.01),
        (kb.environments.Bump(), 0.1),
        (kb.environments.StepDiagonal(), 2.0),
        (FewContexts(), 2.0),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_it_decides_as_the_library_does(example, environment, regularization, seed):
    rounds = list(example.play(environment, environment.lengthscale, regularization, 400, seed))
    decisions, plain, sizes = zip(*rounds, strict=True)
    rows, means, stds = zip(*plain, strict=True)
    assert [decision.index for decision in decisions] == list(rows)
    ours, theirs = zip(*sizes, strict=True)
    assert ours == theirs
    assert ours[-1] > 10
    np.testing.assert_allclose([decision.mean for decision in decisions], means, rtol=0, atol=1e-8)
    np.testing.assert_allclose([decision.std for decision in decisions], stds, rtol=0, atol=1e-8)


def test_the_algorithm_takes_60_lines_and_nothing_of_the_library():
    nodes = ast.parse(PATH.read_text(encoding="utf-8")).body
    (algorithm,) = [node for node in nodes if isinstance(node, ast.ClassDef)]
    assert algorithm.end_lineno - algorithm.lineno + 1 <= 60
    assert "kb" not in {node.id for node in ast.walk(algorithm) if isinstance(node, ast.Name)}


def test_the_script_reports_that_decisions_are_equal(example, capsys):
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all("500 of 500 decisions equal" in line for line in lines)
