"""Start the service: check the file, refuse what is unsafe, hand over to uvicorn."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from kernel_bandits.errors import InputError, needs
from kernel_bandits.numerics.blas_threads import single_threaded
from kernel_bandits_server.app import build_app
from kernel_bandits_server.keys import VARIABLE, read_keys
from kernel_bandits_server.link import Link
from kernel_bandits_server.local import is_loopback
from kernel_bandits_server.peer import Peer
from kernel_bandits_server.process import collect_rarely, configure_log, stop_with
from kernel_bandits_server.settings import read_settings

with needs("uvicorn", "kernel-bandits-server"):
    import uvicorn

# What worker processes start with.
_PLAN = "KERNEL_BANDITS_SERVE"
GRACE_SECONDS = 10


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
    configure_log(verbose)
    _limit_threads()
    names = ", ".join(settings.loops)
    print(f"Serving {names} on http://{host}:{port} (Ctrl-C stops it)", file=sys.stderr, flush=True)
    if processes > 1:
        os.environ[_PLAN] = json.dumps(plan)
        uvicorn.run("kernel_bandits_server.serve:application", factory=True, workers=processes, **options)
        return
    link = Link(settings, str(plan["database"]), partial(Peer, verbose))
    link.launch()
    server = uvicorn.Server(uvicorn.Config(build_app(link, found), **options))
    # those who watch are let go when the server is told to stop, and not after all others
    link.is_stopping = lambda: server.should_exit
    collect_rarely()
    server.run()
    if not server.started:
        raise InputError(f"port: {host}:{port} cannot be bound; choose another port.")


def application() -> Any:
    """Return the application of one of several processes."""
    plan = json.loads(os.environ[_PLAN])
    configure_log(plan["verbose"])
    _limit_threads()
    stop_with(plan["parent"])
    keys = read_keys(None if plan["keys"] is None else Path(plan["keys"]))
    link = Link(read_settings(plan["file"]), plan["database"], partial(Peer, plan["verbose"]))
    link.launch()
    app = build_app(link, keys)
    collect_rarely()
    return app


def _limit_threads() -> None:
    """Keep matrix products in one thread where the models share this process: the same bits in every process."""
    if os.name == "nt":
        single_threaded().__enter__()
