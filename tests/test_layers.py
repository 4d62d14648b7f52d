"""The order of the layers: a module imports what stands above it, never below.

``LAYERS`` is the one place where that order is written. Every import in ``src`` is checked against it: at the top of a
file, inside a function, for type checkers only (a type is a dependency too) and by ``importlib`` with a literal name.
The table in ``docs/inside/architecture.md`` is drawn from it; ``python tests/test_layers.py`` draws it again.
"""

import ast
import dataclasses
import graphlib
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import kernel_bandits

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "kernel_bandits"
PAGE = ROOT / "docs" / "inside" / "architecture.md"
PACKAGE = "kernel_bandits"
# Modules and packages, each with what it holds; the first imports nothing, the last may import all.
LAYERS = {
    "version": "the version",
    "errors": "every error raised on purpose",
    "arrays": "shapes, and the checks of every input",
    "values": "values that change by being replaced, and two that grow without being copied",
    "rng": "independent random streams from one seed",
    "io": "atomic file writes",
    "actions": "boxes, masks, and pairs of context and action as joint points",
    "persistence": "one file per policy, without pickle",
    "numerics": "linear algebra, one identity per function; a matrix that grows; BLAS threads",
    "kernels": "covariance functions, their gradients, and explicit feature maps; any scikit-learn kernel fits too",
    "dictionaries": "the rules that choose anchors: `Kors`, `PosteriorVariance`, `Fixed`, `Resampling`",
    "posterior": "the models: exact, projected on anchors, on explicit features, one for each arm",
    "learning": "a posterior whose kernel and noise are learned: evidence, priors, fits, what is tried once more",
    "drift": "the test of residuals, and the rules that forget",
    "boxes": "continuous actions: search, first designs, densities, constraints",
    "theory": "effective dimensions and regret bounds",
    "confidence": "the radii β",
    "policy": "the rules that choose actions",
    "tables": "columns of a table as joint points, and the policy over a table",
    "presets": "the algorithms by name, each assembled from the parts above",
    "environments": "problems to play: the paper's, and others",
    "logs": "logs of decisions: in memory, in files, and larger than memory",
    "offpolicy": "the value of a candidate policy from a log",
    "loop": "a policy in an environment, and the result of its run",
    "plots": "figures of a policy, with matplotlib",
    "integrations": "adapters to other libraries, each imported only when asked for",
    "__init__": "the public names",
}
ORDER = list(LAYERS)


def module_of(path, source):
    """The parts of a module's name below the package: ("policy", "base"), or ("policy",) for its __init__."""
    parts = path.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts


def modules(source):
    return {module_of(path, source): path for path in sorted(source.rglob("*.py"))}


def imported_names(node, module, is_package):
    """The full names that a statement or call imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            here = [PACKAGE, *(() if module == ("__init__",) else module)]
            parent = here[: len(here) - node.level + is_package]
            base = ".".join([*parent, *([node.module] if node.module else [])])
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            return [node.args[0].value]
    return []


def imports(path, source):
    """Pairs of a line and the module of this package that it imports, as for :func:`module_of`."""
    known, module = modules(source), module_of(path, source)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for name in imported_names(node, module, path.name == "__init__.py"):
            first, *parts = name.split(".")
            if first != PACKAGE:
                continue
            # the longest part of the name that is a module; the rest is what is taken from it
            while parts and tuple(parts) not in known:
                parts.pop()
            yield node.lineno, tuple(parts) or ("__init__",)


def violations(source, layer):
    """The imports of a layer from a layer below it, as sentences."""
    found = []
    for module, path in modules(source).items():
        if module[0] != layer:
            continue
        for line, target in imports(path, source):
            if ORDER.index(target[0]) > ORDER.index(layer):
                where = f"{path.relative_to(source)}:{line}"
                found.append(f"{where} imports {'.'.join(target)}, which stands below {layer} in LAYERS")
    return found


def layers_in(source):
    return {module[0] for module in modules(source)}


def test_every_module_has_a_place():
    missing = layers_in(SOURCE) - set(LAYERS)
    assert not missing, f"give {sorted(missing)} a place in LAYERS, below all they import"


@pytest.mark.parametrize("layer", sorted(layers_in(SOURCE) & set(LAYERS), key=ORDER.index))
def test_imports_go_up(layer):
    assert violations(SOURCE, layer) == []


def test_the_packages_import_one_way():
    """The library knows nothing of the lab and the server, and these nothing of each other."""
    below = {
        "src/kernel_bandits": ("kernel_bandits_lab", "kernel_bandits_server"),
        "lab": ("kernel_bandits_server",),
        "server": ("kernel_bandits_lab",),
    }
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} imports {name}"
        for folder, forbidden in below.items()
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in imported_names(node, (), False)
        if name.split(".")[0] in forbidden
    ]
    assert found == []


def test_no_modules_import_each_other():
    graph = {
        module: {target for _, target in imports(path, SOURCE)} - {module} for module, path in modules(SOURCE).items()
    }
    # raises an error that names the modules of a cycle
    graphlib.TopologicalSorter(graph).prepare()


FORBIDDEN = {
    "plain": "import kernel_bandits.policy.policy\n",
    "from": "from kernel_bandits.policy.policy import Policy\n",
    "from the root": "from kernel_bandits import policy\n",
    "a public name": "from kernel_bandits import ek_ucb\n",
    "the root": "import kernel_bandits\n",
    "relative": "from ..policy import base\n",
    "in a function": "def build():\n    from kernel_bandits.policy import base\n",
    "for types": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kernel_bandits.policy.policy import Policy\n"
    ),
    "by importlib": "import importlib\nimportlib.import_module('kernel_bandits.policy.policy')\n",
}


@pytest.mark.parametrize("statement", FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_forbidden_import_is_found(statement, tmp_path):
    source = tmp_path / PACKAGE
    for name, text in {
        "__init__": "from kernel_bandits.kernels import base\n",
        "kernels/__init__": "",
        "kernels/base": statement,
        "policy/__init__": "",
        "policy/base": "from kernel_bandits.kernels import base\nfrom . import other\n",
        "policy/other": "import numpy\n",
    }.items():
        path = source / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (violation,) = violations(source, "kernels")
    assert violation.startswith(f"{Path('kernels', 'base.py')}:{statement.count(chr(10))} imports ")
    assert violations(source, "policy") == violations(source, "__init__") == []


def test_concrete_classes_are_final():
    """Nothing derives from a class that can be built, but errors and plain data."""
    derived = []
    for info in pkgutil.walk_packages(kernel_bandits.__path__, f"{PACKAGE}."):
        if info.name.split(".")[1] in ("integrations", "plots"):
            continue
        for _, cls in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
            if cls.__module__ != info.name:
                continue
            derived += [
                f"{cls.__qualname__} from {base.__qualname__}"
                for base in cls.__bases__
                if base.__module__.startswith(PACKAGE)
                and not inspect.isabstract(base)
                and not getattr(base, "_is_protocol", False)
                and not issubclass(base, Exception)
                and not dataclasses.is_dataclass(base)
            ]
    assert derived == []


def drawing():
    """The table of the architecture page."""
    rows = [f"| `{layer}` | {holds} |" for layer, holds in LAYERS.items() if layer != "__init__"]
    return "\n".join(["| layer | holds |", "|---|---|", *rows]) + "\n"


def drawn(page):
    """The parts of the page before, in and after the table."""
    before, start, rest = page.partition("<!-- layers: drawn by tests/test_layers.py -->\n")
    table, end, after = rest.partition("<!-- end of layers -->")
    return before + start, table, end + after


def test_the_architecture_page_draws_these_layers():
    assert drawn(PAGE.read_text(encoding="utf-8"))[1] == drawing(), "run: python tests/test_layers.py"


if __name__ == "__main__":
    before, _, after = drawn(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(before + drawing() + after, encoding="utf-8")
