"""Importing the library loads NumPy, SciPy and the standard library, and the public names are what they say."""

import subprocess
import sys

import kernel_bandits as kb


def test_import_loads_only_numpy_and_scipy():
    program = (
        "import sys; before = set(sys.modules); import kernel_bandits; "
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
    program = "import sys, kernel_bandits; print(*sys.modules)"
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
