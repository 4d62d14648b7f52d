"""Start the service: check the file, refuse what is unsafe, hand over to uvicorn."""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernel_bandits.errors import InputError, needs
from kernel_bandits.numerics.blas_threads import single_threaded
from kernel_bandits.service.app import build_app
from kernel_bandits.service.keys import VARIABLE, read_keys
from kernel_bandits.service.local import is_loopback
from kernel_bandits.service.runtime import Runtime
from kernel_bandits.service.settings import read_settings

with needs("uvicorn", "service"):
    import uvicorn

# What worker processes start with.
_PLAN = "KERNEL_BANDITS_SERVE"
GRACE_SECONDS = 10
# Seconds between two looks at whether the process that started this one is still there.
PARENT_SECONDS = 1.0
# New objects at which Python looks for garbage that reference counts do not find: above those of a batch of requests.
NEW_OBJECTS = 20_000
# Options of glibc's mallopt: free memory at the end of the heap that is kept, and the size from which on blocks are
# mapped one by one; the largest that it takes.
_TRIM_THRESHOLD, _MAP_THRESHOLD, KEPT_BYTES = -1, -3, 2**25
_STANDARD = frozenset(vars(logging.makeLogRecord({})))


class JsonLines(logging.Formatter):
    """Writes each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{
                name: value for name, value in vars(record).items() if name not in _STANDARD and name != "color_message"
            },
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def check(file: Path) -> str:
    """Return what a file describes; raise an error with one line for each mistake."""
    settings = read_settings(file)
    lines = []
    for name, loop in settings.loops.items():
        silence = loop.silence
        after = f"after {silence.after:g} s"
        missing = f"{after} nothing is learned" if silence.reward is None else f"{silence.reward:g} {after}"
        columns = ", ".join(variable for _, variable in loop.features.layout.variables)
        watches = ", watches only" if loop.apprentice else ""
        lines.append(
            f"{name}: {loop.policy.name} over {columns}; exploration floor {loop.exploration_floor:g}; "
            f"no reward: {missing}{watches}"
        )
    return "\n".join(lines)


def serve(
    file: Path,
    host: str = "127.0.0.1",
    port: int = 8080,
    database: str | None = None,
    keys: Path | None = None,
    processes: int = 1,
    verbose: bool = False,
) -> None:
    """Serve the loops of a file until the process is told to stop.

    Args:
        file: the loops.
        host: the address to bind to; anything but loopback needs keys.
        port: the port to bind to.
        database: ``sqlite:///…`` or ``postgresql://…``; by default a SQLite file beside ``file``.
        keys: a file of API keys; otherwise they come from the environment.
        processes: that decide; one of them leads.
        verbose: whether every request is logged, and not only refused ones.
    """
    settings = read_settings(file)
    found = read_keys(keys)
    if not found and not is_loopback(host):
        raise InputError(
            f"host: {host} can be reached from outside, and there are no API keys; give --keys FILE or set {VARIABLE}, "
            "or bind to 127.0.0.1."
        )
    plan = {
        "file": str(file),
        "database": database or str(file.with_suffix(".db")),
        "keys": None if keys is None else str(keys),
        "verbose": verbose,
        "parent": os.getpid(),
    }
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "timeout_graceful_shutdown": GRACE_SECONDS,
    }
    _configure_log(verbose)
    names = ", ".join(settings.loops)
    print(f"Serving {names} on http://{host}:{port} (Ctrl-C stops it)", file=sys.stderr, flush=True)
    if processes > 1:
        os.environ[_PLAN] = json.dumps(plan)
        uvicorn.run("kernel_bandits.service.serve:application", factory=True, workers=processes, **options)
        return
    with single_threaded():
        runtime = Runtime(settings, str(plan["database"]))
        server = uvicorn.Server(uvicorn.Config(build_app(runtime, found), **options))
        # those who watch are let go when the server is told to stop, and not after all others
        runtime.is_stopping = lambda: server.should_exit
        keep_freed_memory()
        collect_rarely()
        server.run()
    if not server.started:
        raise InputError(f"port: {host}:{port} cannot be bound; choose another port.")


def application() -> Any:
    """Return the application of one of several processes."""
    plan = json.loads(os.environ[_PLAN])
    _configure_log(plan["verbose"])
    stop_with(plan["parent"])
    # for the life of the process: the same bits in every process, and no threads that wait for each other
    single_threaded().__enter__()
    keys = read_keys(None if plan["keys"] is None else Path(plan["keys"]))
    app = build_app(Runtime(read_settings(plan["file"]), plan["database"]), keys)
    keep_freed_memory()
    collect_rarely()
    return app


def stop_with(parent: int) -> None:
    """Stop this process when the one that started it is gone.

    It would keep the port, and serve the old settings, while the service is started again.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        logging.getLogger("kernel_bandits.service").warning("the process that started this one is gone; stopping")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def collect_rarely() -> None:
    """Leave what was made so far, which stays for the life of the process, out of the search for garbage.

    All modules and settings were looked at again whenever pending decisions had grown by a quarter: pauses of a tenth
    of a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 10, 10)


def keep_freed_memory() -> None:
    """Keep what a batch of requests frees for the next one.

    By default glibc returns matrices of a megabyte to the system, which hands out pages of zeros again a moment later:
    a tenth of a decision's time. Elsewhere nothing changes.
    """
    with suppress(AttributeError, OSError, TypeError):
        allocator = ctypes.CDLL(None)
        for option in (_TRIM_THRESHOLD, _MAP_THRESHOLD):
            allocator.mallopt(option, KEPT_BYTES)


def _configure_log(verbose: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (
        ("kernel_bandits.service", logging.DEBUG if verbose else logging.INFO),
        ("uvicorn", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
