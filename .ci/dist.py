"""Build the release candidate and try it: three wheels and sdists in dist/, each installed into an empty environment.

Run: make dist
"""

import re
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
# In the order in which they need each other: folder, package, what is installed, and a command that must work.
PACKAGES = {
    ".": ("kernel_bandits", "kernel-bandits", ()),
    "lab": ("kernel_bandits_lab", "kernel-bandits-lab", ("kernel-bandits", "reproduce", "--quick", "--out", "quick")),
    "server": (
        "kernel_bandits_server",
        "kernel-bandits-server",
        ("kernel-bandits-server", "--check", ROOT / "examples" / "service" / "loop.toml"),
    ),
}
EXPECTED = re.compile(
    r"(kernel_bandits(_lab|_server)?/.*\.(py|typed|toml|json|bib|html|css|js)|[\w.-]+\.dist-info/.*|"
    r"[\w.-]+/(src/.*|.*\.(md|toml|cff|py|typed|json|bib|html|css|js)|LICENSE|PKG-INFO|\.gitignore))"
)
LIMIT = 1_000_000  # bytes of an archive


def main() -> None:
    """Build, check and try the three packages; end with an error at the first thing that is wrong."""
    DIST.mkdir(exist_ok=True)
    for old in DIST.iterdir():
        old.unlink()
    for folder in PACKAGES:
        call(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT / folder)
    call(sys.executable, "-m", "twine", "check", "--strict", *sorted(DIST.iterdir()))
    for archive in sorted(DIST.iterdir()):
        check_contents(archive)
    with TemporaryDirectory() as folder:
        for package, name, command in PACKAGES.values():
            try_in_an_empty_environment(Path(folder, name), package, name, command)


def check_contents(archive: Path) -> None:
    """List what an archive holds, and refuse tests, results, data and a package without its types or its licence."""
    if archive.suffix == ".whl":
        with ZipFile(archive) as opened:
            names = opened.namelist()
    else:
        with tarfile.open(archive) as opened:
            names = opened.getnames()
    strange = [name for name in names if not EXPECTED.fullmatch(name) or "/tests/" in name or "/results/" in name]
    missing = [end for end in ("/py.typed", "/LICENSE") if not any(name.endswith(end) for name in names)]
    size = archive.stat().st_size
    if strange or missing or size > LIMIT:
        raise SystemExit(f"{archive.name}: unexpected {strange}, missing {missing}, {size} bytes.")
    kinds = sorted({Path(name).suffix or Path(name).name for name in names})
    print(f"{archive.name}: {len(names)} files, {size // 1000} kB: {' '.join(kinds)}", flush=True)


def try_in_an_empty_environment(folder: Path, package: str, name: str, command: tuple[str | Path, ...]) -> None:
    """Install a package from dist/, import it and run its command; print what that took."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    before = packages(python)
    started = perf_counter()
    call(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--find-links", DIST, name)
    seconds = perf_counter() - started
    added = packages(python) - before
    if name == "kernel-bandits" and added != {"kernel-bandits", "numpy", "scipy"}:
        raise SystemExit(f"{name} installs {added}; it needs NumPy and SciPy alone.")
    print(f"{name}: installed in {seconds:.0f} s, {len(added)} packages", flush=True)
    # names are loaded on first use, which is what a program waits for
    for names in (package, "kernel_bandits; kernel_bandits.ek_ucb", "numpy, scipy.linalg"):
        print(f"import {names}: {import_time(python, names, folder):.2f} s", flush=True)
    if command:
        started = perf_counter()
        print(call(folder / "bin" / command[0], *command[1:], cwd=folder).splitlines()[-1])
        print(f"{' '.join(map(str, command))}: {perf_counter() - started:.0f} s", flush=True)


def import_time(python: Path, names: str, cwd: Path) -> float:
    """Return the median processor time of seven imports."""
    timed = f"import time; s = time.process_time(); import {names}; print(time.process_time() - s)"
    return median(float(call(python, "-c", timed, cwd=cwd)) for _ in range(7))


def packages(python: Path) -> set[str]:
    """Return the names of the packages in an environment."""
    found = call(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
    return {line.partition("==")[0] for line in found.splitlines()}


def call(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command and return its output; what it printed is shown if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
