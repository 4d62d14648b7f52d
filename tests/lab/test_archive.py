"""A study in one file: replayed bit for bit, and refused once it was touched."""

import json
import zipfile

import pytest
from kernel_bandits_lab import archive
from kernel_bandits_lab.cli import app
from kernel_bandits_lab.results import read_record, record_path, write_record
from sweeping import BESIDE
from typer.testing import CliRunner

import kernel_bandits as kb

TOML = """
seeds = 2
horizon = 12
[[environments]]
name = "Chessboard"
[[policies]]
name = "ek_ucb"
options = { dictionary = { rule = "Kors", oversampling = 2.0 } }
[[policies]]
name = "k_ucb"
[[policies]]
name = "uniform"
"""
OWN = """
from beside import greedy
study = {"environments": [{"name": "Bump"}], "policies": [{"name": greedy}], "seeds": 1, "horizon": 5}
"""


def command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    (folder / "little.toml").write_text(TOML)
    done = command("sweep", folder / "little.toml", "--jobs", 1, "--out", folder / "out")
    assert done.exit_code == 0, done.output
    assert "Paired differences" in done.output or "p (Holm)" in done.output
    exported = command("export", folder / "out", folder / "little.zip")
    assert exported.exit_code == 0, exported.output
    return folder


def test_an_archive_is_checked_and_replayed_with_one_command(swept):
    with zipfile.ZipFile(swept / "little.zip") as opened:
        names = set(opened.namelist())
    assert {"study.json", "source/little.toml", "versions.json", "checksums.json", "README.txt", "figure.png"} <= names
    assert sum(name.startswith("runs/") for name in names) == 6
    checked = command("check", swept / "little.zip")
    assert checked.exit_code == 0, checked.output
    assert "6 of 6 runs were played again, bit for bit the same." in checked.output


def test_the_same_results_make_the_same_archive(swept):
    command("export", swept / "out", swept / "again.zip")
    assert (swept / "again.zip").read_bytes() == (swept / "little.zip").read_bytes()


def rezipped(swept, tmp_path, change):
    with zipfile.ZipFile(swept / "little.zip") as opened:
        files = {name: opened.read(name) for name in opened.namelist()}
    change(files)
    with zipfile.ZipFile(tmp_path / "changed.zip", "w") as written:
        for name, content in files.items():
            written.writestr(name, content)
    return tmp_path / "changed.zip"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda files: files.update({"study.json": files["study.json"] + b" "}), "was changed"),
        (lambda files: files.pop("study.json"), "missing or were added"),
        (lambda files: files.update({"more.txt": b""}), "missing or were added"),
        (lambda files: files.pop("checksums.json"), "not an archive"),
        (lambda files: files.update({"checksums.json": b"[" * 10**5}), "not an archive"),
    ],
)
def test_an_archive_that_was_touched_is_refused(swept, tmp_path, change, complaint):
    checked = command("check", rezipped(swept, tmp_path, change))
    assert checked.exit_code == 2
    assert complaint in checked.stderr


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "a/../../escaped", "c:\\escaped"])
def test_files_outside_of_the_archive_are_refused(swept, tmp_path, name):
    import hashlib

    def change(files):
        sums = json.loads(files["checksums.json"])
        files[name] = b"x"
        files["checksums.json"] = json.dumps({**sums, name: hashlib.sha256(b"x").hexdigest()}).encode()

    with pytest.raises(kb.InputError, match="outside of the archive"):
        archive.unpack(rezipped(swept, tmp_path, change), tmp_path / "unpacked")


def test_a_record_that_was_made_up_is_found_by_replaying(swept, tmp_path):
    archive.unpack(swept / "little.zip", tmp_path)
    results = archive.read_results(tmp_path)
    forged = read_record(record_path(tmp_path, results.records[0].run))
    forged.result.regret[5:] -= 1.0
    write_record(tmp_path, forged)
    first, *others = archive.replay(tmp_path)
    assert (first.same, first.first_difference) == (False, 6)
    assert all(one.same for one in others)


def test_code_of_the_study_is_run_only_if_it_is_trusted(tmp_path):
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "own_code_study.py").write_text(OWN)
    out = tmp_path / "out"
    assert command("sweep", tmp_path / "own_code_study.py", "--jobs", 1, "--out", out).exit_code == 0
    assert command("export", out, tmp_path / "own.zip").exit_code == 0
    refused = command("check", tmp_path / "own.zip")
    assert refused.exit_code == 2
    assert "--trust-code" in refused.stderr
    trusted = command("check", tmp_path / "own.zip", "--trust-code")
    assert trusted.exit_code == 0, trusted.output


def test_an_unfinished_study_is_not_exported(swept, tmp_path):
    archive.unpack(swept / "little.zip", tmp_path)
    next((tmp_path / "runs").iterdir()).unlink()
    assert "1 runs have no record" in command("export", tmp_path, tmp_path / "x.zip").stderr


def test_what_a_study_used_is_cited(swept):
    cited = command("cite", swept / "out").output
    assert all(key in cited for key in ("zenati2022", "valko2013", "calandriello2017", "@software{kernel-bandits"))
    assert "krause2011" not in cited
    assert command("cite", swept / "little.toml").output == cited
    assert "krause2011" in command("cite").output


def test_tables_and_figures_of_chosen_policies(swept, tmp_path):
    out = swept / "out"
    printed = command("table", out, "--latex", "--reference", "k_ucb", "--policy", "k_ucb", "--policy", "ek_ucb")
    assert printed.output.index(r"k\_ucb &") < printed.output.index(r"ek\_ucb &")
    assert "uniform" not in printed.output
    assert command("table", out, "--csv", "--latex").exit_code == 2
    assert "There are" in command("table", out, "--policy", "kucb").stderr
    drawn = command("plot", out, "--width", 3.25, "--font", "serif", "--log", "time", "--out", tmp_path / "f.pdf")
    assert drawn.exit_code == 0, drawn.output
    assert b"/Type3" not in (tmp_path / "f.pdf").read_bytes()


def test_version_and_list():
    assert command("--version").output.strip() == f"kernel-bandits {kb.__version__}"
    listed = command("list").output
    assert "``" not in listed
    assert ":class:" not in listed
    for heading in ("policies:", "environments:", "kernels:", "radii", "dictionary rules", "figures"):
        assert heading in listed
    assert "figure1" in listed


def test_figures_have_the_numbers_of_the_paper():
    from kernel_bandits_lab.figures import Figures

    figures = Figures()
    assert figures.find("figure1") == "bump_projection"
    assert figures.find("Figure 2") == figures.find("figure_7") == "chessboard"
    assert figures.find("table1") == "table_1"
    assert figures.find("figure99") is None
    assert figures.names[0] == "overview"
