"""Serialize runs for other processes and machines, with the study's own code.

Installed packages are pickled by name. Modules in the folders of the study's own code are pickled by value, so a worker
on another machine needs neither the files nor a shared folder.
"""

import hashlib
import pickle
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_bandits.errors import needs
from kernel_bandits_lab.study.components import Component
from kernel_bandits_lab.study.specification import Run

_INSTALLED = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


def serialize(runs: Iterable[Run]) -> list[bytes]:
    """Return the runs as bytes that :func:`deserialize` reads in any process that has this library."""
    with needs("cloudpickle", "kernel-bandits-lab"):
        import cloudpickle
    runs = list(runs)
    with _by_value(cloudpickle, _modules_in(_own_folders(runs))):
        return [cloudpickle.dumps(run) for run in runs]


def deserialize(payload: bytes) -> Run:
    """Return the run that :func:`serialize` wrote."""
    return pickle.loads(payload)


def code_digests(runs: Iterable[Run]) -> dict[str, str]:
    """Return, by run id, a digest of the study's own code that the run uses; empty if it uses none."""
    digests: dict[frozenset[Path], str] = {}
    found = {}
    for run in runs:
        folders = _own_folders([run])
        if folders not in digests:
            files = sorted({Path(module.__file__ or "") for module in _modules_in(folders)})
            content = b"".join(file.read_bytes() for file in files if file.is_file())
            digests[folders] = hashlib.sha256(content).hexdigest()[:12] if files else ""
        found[run.id] = digests[folders]
    return found


def own_files(runs: Iterable[Run]) -> list[Path]:
    """Return the files of the study's own code that runs use."""
    files = {Path(module.__file__ or "") for module in _modules_in(_own_folders(runs))}
    return sorted(file for file in files if file.is_file())


@contextmanager
def _by_value(cloudpickle: Any, modules: Iterable[ModuleType]) -> Iterator[None]:
    registered = [module for module in modules if module.__name__ not in cloudpickle.list_registry_pickle_by_value()]
    for module in registered:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _own_folders(runs: Iterable[Run]) -> frozenset[Path]:
    """Return the folders that the study's own factories were imported from."""
    factories = {id(factory): factory for run in runs for factory in _factories((run.environment, run.policy))}
    names = {getattr(factory, "__module__", None) for factory in factories.values()}
    folders = (_folder(sys.modules[name]) for name in names if name in sys.modules)
    return frozenset(folder for folder in folders if folder is not None)


def _modules_in(folders: frozenset[Path]) -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if _folder(module) in folders] if folders else []


def _factories(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Component):
            yield value.factory
            yield from _factories(value.options.values())
        elif isinstance(value, tuple):
            yield from _factories(value)


def _folder(module: ModuleType) -> Path | None:
    """Return the folder of a module; None if it is installed, built in, or part of this library."""
    top = sys.modules.get(getattr(module, "__name__", "").partition(".")[0])
    file = getattr(top, "__file__", None)
    if top is None or file is None or top.__name__ in ("kernel_bandits", "__main__"):
        return None
    path = Path(file)
    folder = path.parent.parent if path.stem == "__init__" else path.parent
    return None if folder in _INSTALLED else folder
