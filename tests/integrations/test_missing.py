"""An adapter whose library is not there says which line installs it; none is loaded before it is asked for."""

import subprocess
import sys

import pytest

ADAPTERS = {"sklearn": "sklearn", "gymnasium": "gym", "coba": "coba", "river": "river"}


@pytest.mark.parametrize("library", ADAPTERS)
def test_the_install_line_is_in_the_error(library):
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "import kernel_bandits as kb\n"
        f"try: import kernel_bandits.integrations.{library}\n"
        "except kb.MissingPackageError as error: print(isinstance(error, ImportError), error)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("True")
    assert f"pip install 'kernel-bandits[{ADAPTERS[library]}]'" in printed


def test_the_package_loads_no_library():
    program = "import sys, kernel_bandits.integrations; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert set(ADAPTERS).isdisjoint(loaded)
