"""Importing the library loads NumPy, SciPy and the standard library, and the public names are what they say."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import kernel_bandits as kb


def test_names_are_loaded_on_first_use():
    program = (
        "import sys, kernel_bandits as kb; assert set(kb.__all__) <= set(dir(kb)); "
        "print(*sorted(name for name in sys.modules if name.startswith(('numpy', 'kernel_bandits'))))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["kernel_bandits", "kernel_bandits.version"]


def test_a_name_is_what_type_checkers_take_it_for():
    block = next(node for node in ast.parse(Path(kb.__file__).read_text()).body if isinstance(node, ast.If))
    declared = {alias.name: node.module for node in block.body for alias in node.names}
    assert {*declared, "__version__"} == {*kb.__all__, "plots"}
    for name, module in declared.items():
        home = importlib.import_module(module)
        expected = getattr(home, name) if home is not kb else importlib.import_module(f"{module}.{name}")
        assert getattr(kb, name) is expected
    with pytest.raises(AttributeError, match="no attribute 'ek_ucbs'"):
        _ = kb.ek_ucbs


def test_the_public_names_load_only_numpy_and_scipy():
    program = (
        "import sys; before = set(sys.modules); from kernel_bandits import *; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    foreign = [
        name for name in loaded if name not in sys.stdlib_module_names and not name.startswith(("_", "kernel_bandits"))
    ]
    # SciPy brings modules of its own that are installed beside it, and NumPy's f2py, which it loads, takes
    # charset_normalizer where that is installed
    assert set(foreign) <= {"numpy", "scipy", "cython_runtime", "charset_normalizer"}


def test_import_leaves_the_large_parts_of_scipy_until_they_are_needed():
    program = "import sys; from kernel_bandits import *; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {f"scipy.{part}" for part in ("optimize", "spatial", "special", "stats")} & set(loaded) == set()


def test_public_names_exist_and_are_sorted():
    assert list(kb.__all__) == sorted(kb.__all__)
    assert all(hasattr(kb, name) for name in kb.__all__)


def test_names_of_the_lab_are_loaded_on_first_use():
    import kernel_bandits_lab as lab

    homes = [name for names in lab._MODULES.values() for name in names]
    assert sorted(homes) == sorted(lab.__all__)
    assert all(callable(getattr(lab, name)) for name in homes)
