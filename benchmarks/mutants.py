"""Sample one-operator mutants of the numerical core, and of what the service plans, and count those its tests kill.

A mutant is a package with one operator, comparison, sign or number changed. A test that fails kills it; tests that
do not end are counted apart, since a busy machine or an endless loop may be the reason. Survivors are printed as the
lines they change: a test is missing, or both lines mean the same. With ``--results`` every fate is kept with the test
that decided it, and a run that was stopped goes on where it was.
"""

import argparse
import ast
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, TypeAlias

ROOT = Path(__file__).parents[1]
# The packages, by the folder that is on the path.
SOURCES = {"kernel_bandits": ROOT / "src", "kernel_bandits_server": ROOT / "server"}
# Loaded once, before a process is forked per mutant; never the library itself.
PRELOADED = [
    "pytest",
    "hypothesis.strategies",
    "numpy",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
]
# The modules of the core, and the tests that state their laws; the quickest to fail first.
CORE = {
    "kernel_bandits/values.py": ("test_values.py",),
    "kernel_bandits/numerics": ("numerics", "posteriors/test_posteriors.py", "posteriors/test_bulk.py"),
    "kernel_bandits/kernels": ("kernels", "learning", "posteriors/test_gradients.py"),
    "kernel_bandits/posterior": (
        "posteriors",
        "policies/test_policy_contract.py",
        "policies/test_ask_tell.py",
        "policies/test_batches.py",
        "policies/test_pruning.py",
        "policies/test_any_units.py",
        "logs/test_learn_logs.py",
    ),
    "kernel_bandits/dictionaries": ("dictionaries", "posteriors/test_posteriors.py"),
    "kernel_bandits/offpolicy": ("offpolicy",),
    "kernel_bandits/learning": ("learning", "posteriors/test_learned.py", "posteriors/test_learned_limits.py"),
    "kernel_bandits/policy": ("policies",),
    "kernel_bandits/boxes": (
        "boxes",
        "policies/test_box.py",
        "policies/test_box_design.py",
        "policies/test_constraints.py",
    ),
    "kernel_bandits/confidence.py": ("test_confidence.py", "policies/test_sup_kernel_ucb.py"),
    "kernel_bandits/theory.py": ("test_theory.py", "test_new_results.py"),
    "kernel_bandits/actions.py": ("test_actions.py", "policies/test_box.py", "policies/test_masks.py"),
    "kernel_bandits_server/planning.py": ("server/test_planning.py", "server/test_api.py", "server/test_offers.py"),
}
SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}


Fate: TypeAlias = Literal["killed", "survived", "did not end"]
Change: TypeAlias = tuple[Callable[[], None], Callable[[], None]]


@dataclass(frozen=True)
class Mutant:
    """A module, by its path below a folder of sources, with one place changed."""

    module: Path
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}\n  - {self.before}\n  + {self.after}"


def text_of(module: Path) -> str:
    """Return a module as it is."""
    return (SOURCES[module.parts[0]] / module).read_text(encoding="utf-8")


def modules() -> dict[Path, Sequence[str]]:
    """Return every module that may change, with its tests."""
    found: dict[Path, Sequence[str]] = {}
    for name, tests in CORE.items():
        sources = SOURCES[Path(name).parts[0]]
        for file in sorted((sources / name).rglob("*.py")) if (sources / name).is_dir() else [sources / name]:
            found[file.relative_to(sources)] = tests
    return found


def mutants(module: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    tree = ast.parse(text_of(module))
    before = ast.unparse(tree).splitlines()
    for node in _arithmetic(tree):
        for change, undo in _changes(node):
            change()
            source = ast.unparse(tree)
            undo()
            for one, other in zip(before, source.splitlines(), strict=False):
                if one != other:
                    yield Mutant(module, node.lineno, one.strip(), other.strip(), source)
                    break


def _arithmetic(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the nodes that compute.

    Types, messages of errors and how an object is shown are left out, and so are the numbers that a module names at its
    top: they were chosen by measurement, and the next number is as right.
    """
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            is_shown = isinstance(child, ast.FunctionDef) and child.name == "__repr__"
            is_chosen = isinstance(node, ast.Module) and isinstance(child, (ast.Assign, ast.AnnAssign))
            if isinstance(child, ast.AST) and name not in ("annotation", "returns") and not (is_shown or is_chosen):
                if isinstance(child, (ast.Raise, ast.JoinedStr)):
                    continue
                if isinstance(child, (ast.expr, ast.stmt)):
                    yield child
                yield from _arithmetic(child)


def _changes(node: ast.AST) -> Iterator[Change]:
    """Yield functions that change a node in one place, each with the one that undoes it."""
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)):
        for swap in SWAPS.get(type(node.op), ()):
            yield _setting(node, "op", swap())
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for swap in SWAPS.get(type(node.ops[0]), ()):
            yield _setting(node, "ops", [swap()])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield _setting(node, "op", ast.UAdd())
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield _setting(node, "value", node.value + 1)  # type: ignore[operator]


def _setting(owner: ast.AST, name: str, value: object) -> Change:
    old = getattr(owner, name)
    return (lambda: setattr(owner, name, value)), (lambda: setattr(owner, name, old))


def tests_of(mutant: Mutant) -> list[str]:
    """Return the test files that state the laws of a module: those that speak of what was changed first."""
    paths = [ROOT / "tests" / one for one in modules()[mutant.module]]
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("test_*.py")))]
    # not behind a letter, but behind the underscore of test_…
    words = [re.compile(rf"(?<![^\W_]){re.escape(word)}") for word in (mutant.module.stem, *_names(mutant))]

    def mentions(file: Path) -> int:
        text = file.read_text(encoding="utf-8")
        return sum(bool(word.search(text)) + 3 * len(word.findall(file.stem)) for word in words)

    return [str(file.relative_to(ROOT)) for file in sorted(dict.fromkeys(files), key=mentions, reverse=True)]


def _names(mutant: Mutant) -> list[str]:
    """Return the names of the classes and functions around a place, without underscores."""
    tree = ast.parse(text_of(mutant.module))
    around = [
        node.name.strip("_")
        for node in ast.walk(tree)
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    return [name for name in around if name not in ("init", "call")]


@dataclass(eq=False)
class Witness:
    """A pytest plugin that remembers the first test that fails, or the file that cannot be read."""

    failed: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def _run_tests(folder: str, tests: Sequence[str], limit: int, answer: Connection) -> None:
    """Run tests of the packages in a folder and send the exit code and the first failure; in a process of its own."""
    import pytest

    # processor time, which does not depend on how busy the machine is
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    os.chdir(ROOT)
    sys.path.insert(0, folder)
    os.environ.update(PYTHONPATH=folder, CI="1", PYTHONDONTWRITEBYTECODE="1", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    sys.dont_write_bytecode = True
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    witness = Witness()
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    code = pytest.main([*options, *tests], plugins=[witness])
    answer.send((int(code), witness.failed[:1]))


def fate(mutant: Mutant | None, tests: Sequence[str], limit: int) -> tuple[Fate, str]:
    """Return what the tests make of a mutant in place of its module, and the test that killed it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        for package, sources in SOURCES.items():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(sources / package, Path(folder, package), ignore=ignored)
        if mutant is not None:
            Path(folder, mutant.module).write_text(mutant.source, encoding="utf-8")
        heard, answer = context.Pipe(duplex=False)
        process = context.Process(target=_run_tests, args=(folder, list(tests), limit, answer))
        process.start()
        answer.close()
        process.join()
        if process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
            return "did not end", ""
        try:
            code, failed = heard.recv()
        except EOFError:
            if process.exitcode is None or process.exitcode > 0:
                # no test ran, so that none has failed
                raise RuntimeError(f"the tests of {mutant} did not start: exit code {process.exitcode}") from None
            return "killed", f"the process ended with {process.exitcode}"
        if code and not failed:
            raise RuntimeError(f"pytest ended with code {code} on {tests}: expected tests that run")
        return ("killed" if code else "survived"), "".join(failed)


def recorded(results: Path | None) -> dict[str, tuple[Fate, str]]:
    """Return the fates that an earlier run has kept, by mutant."""
    if results is None or not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return {row["mutant"]: (row["fate"], row["test"]) for row in rows}


def main() -> None:
    """Print the survivors and how many of the sample were killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many mutants; 200 by default")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests that run at once")
    parser.add_argument("--limit", type=int, default=600, help="seconds of processor time per mutant; 600 by default")
    parser.add_argument("--minutes", type=float, help="start no further mutants after this time")
    parser.add_argument("--files", type=int, help="run only this many test files, those nearest to the change; quick")
    parser.add_argument("--only", action="append", help="part of a module's path, such as kernels/; may be repeated")
    parser.add_argument("--results", type=Path, help="a file that keeps every fate; those it has are not tried again")
    options = parser.parse_args()
    chosen = [module for module in sorted(modules()) if any(part in str(module) for part in options.only or [""])]
    every = [mutant for module in chosen for mutant in mutants(module)]
    sample = random.Random(options.seed).sample(every, min(options.count, len(every)))
    print(f"{len(sample)} of {len(every)} mutants", flush=True)
    begun, known = time.monotonic(), recorded(options.results)
    fates: Counter[str] = Counter()

    def attempt(mutant: Mutant) -> tuple[Fate, str] | None:
        if str(mutant) in known:
            return known[str(mutant)]
        if options.minutes is not None and time.monotonic() - begun > 60 * options.minutes:
            return None
        found = fate(mutant, tests_of(mutant)[: options.files], options.limit)
        if options.results is not None:
            row = {"mutant": str(mutant), "fate": found[0], "test": found[1]}
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        return found

    killers = set()
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, found in zip(sample, pool.map(attempt, sample), strict=True):
            if found is not None:
                fates[found[0]] += 1
                killers.add(found[1])
                if found[0] != "killed":
                    print(f"{found[0]}: {mutant}", flush=True)
    counted = ", ".join(f"{count} {found}" for found, count in fates.most_common())
    print(f"{counted} in {(time.monotonic() - begun) / 60:.0f} minutes")
    # a test that fails without a mutant kills nothing
    tests = sorted(one for one in killers if "::" in one)
    unfit, test = fate(None, tests, limit=3600) if tests else ("survived", "")
    if unfit != "survived":
        print(f"{test} fails without a mutant: what it killed does not count")


if __name__ == "__main__":
    main()
