"""The scripts behind the figures run, here with few rounds; what they draw is looked at by people.

Parts of a user's own are short and use public names only; that their studies run is tested with the other studies.
"""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = {
    "continuous_actions": {"HORIZON": 15, "SEEDS": range(2), "LAST": 5},
    "learned_kernel": {"HORIZON": 20, "SEEDS": range(2)},
    "table": {"ROUNDS": 30, "SEEDS": range(1)},
    "dosage": {"HORIZON": 30, "SEEDS": range(2), "WINDOW": 10, "GRID": np.linspace(0, 1, 11)[:, None]},
}


@pytest.mark.parametrize("name", SHORT)
def test_a_figure_is_drawn(name, tmp_path, monkeypatch, capsys):
    specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    for setting, value in SHORT[name].items():
        assert hasattr(script, setting)
        monkeypatch.setattr(script, setting, value)
    path = tmp_path / "figure.png"
    monkeypatch.setattr("sys.argv", [name, str(path)])
    script.main()
    assert image.imread(path)[..., :3].std() > 0.05
    assert "nan" not in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("own_*.py")), ids=lambda path: path.stem)
def test_own_parts_take_under_30_lines_and_public_names_only(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 30
    names = {
        name
        for node in ast.walk(ast.parse(text))
        for name in [getattr(node, "attr", None), getattr(node, "name", None), getattr(node, "module", None)]
        if isinstance(name, str)
    }
    private = {name for name in names if any(part.startswith("_") for part in name.split("."))}
    assert private <= {"__init__", "__call__"}
