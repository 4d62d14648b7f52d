"""Runs on their way to another process or machine, with the code of the study's own that they need.

What is installed travels by name. Modules that lie where the study's own code lies are sent along by value, so that a
worker on another machine needs neither the files nor a shared folder.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_bandits.errors import missing
from kernel_bandits.experiments.parts import Part
from kernel_bandits.experiments.study import Run

_INSTALLED = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


def pack(runs: Iterable[Run]) -> list[bytes]:
    """The runs as bytes that :func:`unpack` reads in any process that has this library."""
    try:
        import cloudpickle
    except ImportError as reason:
        raise missing("cloudpickle", "experiments") from reason
    runs = list(runs)
    with _by_value(cloudpickle, _modules_in(_own_places(runs))):
        return [cloudpickle.dumps(run) for run in runs]


def unpack(payload: bytes) -> Run:
    """The run that :func:`pack` made the bytes of."""
    run: Run = pickle.loads(payload)
    return run


def own_code(runs: Iterable[Run]) -> dict[str, str]:
    """By run id, a digest of the files of the study's own code that a run uses; empty where it uses none."""
    digests: dict[frozenset[Path], str] = {}
    found = {}
    for run in runs:
        places = _own_places([run])
        if places not in digests:
            files = sorted({Path(module.__file__ or "") for module in _modules_in(places)})
            content = b"".join(file.read_bytes() for file in files if file.is_file())
            digests[places] = hashlib.sha256(content).hexdigest()[:12] if files else ""
        found[run.id] = digests[places]
    return found


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


def _own_places(runs: Iterable[Run]) -> frozenset[Path]:
    """The folders that the study's own factories were imported from."""
    factories = {id(factory): factory for run in runs for factory in _factories((run.environment, run.policy))}
    names = {getattr(factory, "__module__", None) for factory in factories.values()}
    places = (_place(sys.modules[name]) for name in names if name in sys.modules)
    return frozenset(place for place in places if place is not None)


def _modules_in(places: frozenset[Path]) -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if _place(module) in places] if places else []


def _factories(parts: Iterable[Any]) -> Iterator[Any]:
    for part in parts:
        if isinstance(part, Part):
            yield part.factory
            yield from _factories(part.options.values())
        elif isinstance(part, tuple):
            yield from _factories(part)


def _place(module: ModuleType) -> Path | None:
    """The folder a module was imported from; None for what is installed, built in, or this library."""
    top = sys.modules.get(getattr(module, "__name__", "").partition(".")[0])
    file = getattr(top, "__file__", None)
    if top is None or file is None or top.__name__ in ("kernel_bandits", "__main__"):
        return None
    path = Path(file)
    folder = path.parent.parent if path.stem == "__init__" else path.parent
    return None if folder in _INSTALLED else folder
