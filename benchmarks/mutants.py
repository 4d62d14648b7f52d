"""Sample one-operator mutants of the numerical core and count those that its tests kill.

A mutant is the library with one operator, comparison, sign or number changed. A test that fails kills it; tests that
do not end are counted apart, since a busy machine or an endless loop may be the reason. Survivors are printed as the
lines they change: a test is missing, or both lines mean the same.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

ROOT = Path(__file__).parents[1]
LIBRARY = Path("src", "kernel_bandits")
LIMIT = 600.0  # seconds; a loop without an end
# The modules of the core, and the tests that state their laws; the quickest to fail first.
CORE = {
    "numerics": ("numerics", "posteriors/test_posteriors.py", "posteriors/test_bulk.py"),
    "kernels": ("kernels", "learning", "posteriors/test_gradients.py"),
    "posteriors": ("posteriors", "policies/test_policy_contract.py", "policies/test_ask_tell.py"),
    "dictionaries": ("dictionaries", "posteriors/test_posteriors.py"),
    "learning": ("learning", "posteriors/test_learned.py"),
    "policies": ("policies",),
    "confidence.py": ("test_confidence.py",),
    "theory.py": ("test_theory.py",),
    "actions.py": ("test_actions.py", "policies/test_box.py", "policies/test_masks.py"),
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
    """A module with one place changed."""

    module: Path
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}\n  - {self.before}\n  + {self.after}"


def mutants(module: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    tree = ast.parse((ROOT / LIBRARY / module).read_text(encoding="utf-8"))
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
    """Yield the nodes that compute: not types, messages of errors, or how an object is shown."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            is_shown = isinstance(child, ast.FunctionDef) and child.name == "__repr__"
            if isinstance(child, ast.AST) and name not in ("annotation", "returns") and not is_shown:
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


def tests_of(module: Path) -> list[str]:
    """Return the tests that state the laws of a module."""
    return [f"tests/{one}" for one in CORE[module.parts[0]]]


def mirrors_of(module: Path) -> list[str]:
    """Return the tests that are named after a module; those of its part if there are none."""
    folder = ROOT / "tests" / module.parent
    named = sorted(file for file in folder.glob("test_*.py") if module.stem in file.stem)
    return [str(file.relative_to(ROOT)) for file in named] or tests_of(module)


def fate(mutant: Mutant | None, tests: Sequence[str], limit: float | None = None) -> Fate:
    """Return what the tests make of a mutant in place of its module."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / LIBRARY, Path(folder, "kernel_bandits"), ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            Path(folder, "kernel_bandits", mutant.module).write_text(mutant.source, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": folder, "CI": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        options = ["-x", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        try:
            finished = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return "did not end"
        return "killed" if finished.returncode else "survived"


def main() -> None:
    """Print the survivors and how many of the sample were killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many mutants; 200 by default")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests that run at once")
    parser.add_argument("--minutes", type=float, help="start no further mutants after this time")
    parser.add_argument("--mirrors", action="store_true", help="run the tests named after the module alone; quick")
    parser.add_argument("--only", default="", help="part of a module's path, such as kernels/")
    options = parser.parse_args()
    folders = [ROOT / LIBRARY / one for one in CORE]
    files = sorted(file for one in folders for file in ([one] if one.is_file() else one.rglob("*.py")))
    modules = [file.relative_to(ROOT / LIBRARY) for file in files]
    every = [mutant for module in modules if options.only in str(module) for mutant in mutants(module)]
    sample = random.Random(options.seed).sample(every, min(options.count, len(every)))
    print(f"{len(sample)} of {len(every)} mutants", flush=True)
    begun = time.monotonic()
    fates: Counter[str] = Counter()

    def attempt(mutant: Mutant) -> Fate | None:
        if options.minutes is not None and time.monotonic() - begun > 60 * options.minutes:
            return None
        return fate(mutant, (mirrors_of if options.mirrors else tests_of)(mutant.module), LIMIT)

    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, found in zip(sample, pool.map(attempt, sample), strict=True):
            if found is not None:
                fates[found] += 1
                if found != "killed":
                    print(f"{found}: {mutant}", flush=True)
    counted = ", ".join(f"{count} {found}" for found, count in fates.most_common())
    print(f"{counted} in {(time.monotonic() - begun) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
