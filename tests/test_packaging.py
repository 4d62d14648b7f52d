"""What the three distributions say of themselves agrees, and each ships its types and its licence."""

import re
import tomllib
from pathlib import Path

import kernel_bandits_lab
import kernel_bandits_server
import pytest

import kernel_bandits as kb

ROOT = Path(__file__).parent.parent
FOLDERS = (".", "lab", "server")


def project(folder):
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_distribution_takes_its_version_from_the_library(folder):
    settings = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())
    assert "version" in settings["project"]["dynamic"]
    path = (ROOT / folder / settings["tool"]["hatch"]["version"]["path"]).resolve()
    assert f'"{kb.__version__}"' in path.read_text()


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_distribution_ships_the_licence_and_is_classified_alike(folder):
    assert (ROOT / folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    own, ours = project(folder), project(".")
    for key in ("license", "requires-python", "authors"):
        assert own[key] == ours[key]
    assert own["urls"]["Source"] == ours["urls"]["Source"]


def test_the_lab_and_the_server_need_the_library_of_their_own_minor_version():
    major, minor, _ = kb.__version__.split(".")
    for folder in ("lab", "server"):
        assert f"kernel-bandits~={major}.{minor}.0" in project(folder)["dependencies"]


@pytest.mark.parametrize("package", [kb, kernel_bandits_lab, kernel_bandits_server])
def test_a_package_ships_its_types(package):
    assert (Path(package.__file__).parent / "py.typed").is_file()


def test_the_citation_has_the_version_and_the_address():
    text = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", text, re.MULTILINE)[1] == kb.__version__
    assert project(".")["urls"]["Source"] in text


def test_every_pinned_version_is_one_that_is_allowed():
    pinned = dict(line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().split())
    lowest = dict(line.split("==") for line in (ROOT / "constraints-lowest.txt").read_text().split())
    assert {name for name in ("numpy", "scipy") if pinned[name] == lowest[name]} == set()
    floors = " ".join(project(".")["dependencies"])
    assert all(f"{name}>={lowest[name].removesuffix('.0')}" in floors for name in ("numpy", "scipy"))
