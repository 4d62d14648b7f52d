"""The command ``kernel-bandits-server``: check a file, refuse what is unsafe, hand over to uvicorn; import a log."""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import logging
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn

from kernel_bandits.errors import InputError, KernelBanditsError
from kernel_bandits.numerics.linalg import single_threaded
from kernel_bandits_server.access import VARIABLE, is_loopback, read_keys
from kernel_bandits_server.app import build_app
from kernel_bandits_server.settings import read_settings
from kernel_bandits_server.worker import Runtime

# What worker processes, and servers other than uvicorn, start with.
PREFIX = "KERNEL_BANDITS_"
GRACE_SECONDS = 10
# Rows of an imported log in one request; the service takes a megabyte unless told otherwise.
ROWS = 100
_STANDARD = frozenset(vars(logging.makeLogRecord({})))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="kernel-bandits-server", description="Serve decision loops over HTTP.")
    parser.add_argument("file", type=Path, help="the decision loops, a .toml file")
    parser.add_argument("--check", action="store_true", help="only check the file")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind to; other than loopback needs keys")
    parser.add_argument("--port", type=int, default=8080, help="port to bind to")
    parser.add_argument("--database", help="sqlite:///FILE or postgresql://…; a SQLite file beside FILE unless given")
    parser.add_argument("--keys", type=Path, help=f"file of API keys; otherwise {VARIABLE}")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the log; one of them leads")
    parser.add_argument("--import", dest="rows", type=Path, metavar="LOG", help="send a log, a .jsonl file, to --url")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the running service, for --import")
    parser.add_argument("--loop", help="that learns the imported log, where there are several")
    parser.add_argument("--key", default=os.environ.get(f"{PREFIX}KEY"), help="API key for --import")
    given = parser.parse_args(arguments)
    try:
        if given.check:
            print(check(given.file))
        elif given.rows:
            print(import_log(given.rows, given.url, given.loop or _only_loop(given.file), given.key))
        else:
            serve(given)
    except KernelBanditsError as reason:
        raise SystemExit(f"error: {reason}") from reason


def check(file: Path) -> str:
    """Return what a file describes; raise an error with one line for each mistake."""
    lines = []
    for name, loop in read_settings(file).loops.items():
        after = f"after {loop.silence.after:g} s"
        missing = f"{after} nothing is learned" if loop.silence.reward is None else f"{loop.silence.reward:g} {after}"
        columns = ", ".join(variable for _, variable in loop.features.layout.variables)
        parts = [f"{name}: {loop.policy} over {columns}", f"exploration floor {loop.exploration_floor:g}"]
        parts.append(f"no reward: {missing}")
        if loop.control is not None:
            parts.append(f"control group: {loop.control}")
        if loop.challenger is not None:
            parts.append(f"challenger: {loop.challenger.policy}")
        lines.append("; ".join(parts) + (", watches only" if loop.apprentice else ""))
    return "\n".join(lines)


def serve(given: argparse.Namespace) -> None:
    """Serve the loops of a file until the process is told to stop."""
    settings = read_settings(given.file)
    if not read_keys(given.keys) and not is_loopback(given.host):
        raise InputError(
            f"host: {given.host} can be reached from outside, and there are no API keys; give --keys FILE or set "
            f"{VARIABLE}, or bind to 127.0.0.1."
        )
    plan = {"FILE": given.file, "DATABASE": given.database, "KEY_FILE": given.keys}
    os.environ.update({f"{PREFIX}{name}": str(value or "") for name, value in plan.items()})
    options: dict[str, Any] = {
        "host": given.host,
        "port": given.port,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "timeout_graceful_shutdown": GRACE_SECONDS,
    }
    _configure_log()
    place = f"{given.host}:{given.port}"
    print(f"Serving {', '.join(settings.loops)} on http://{place} (Ctrl-C stops it)", file=sys.stderr, flush=True)
    if given.workers > 1:
        uvicorn.run("kernel_bandits_server.serve:application", factory=True, workers=given.workers, **options)
        return
    server = uvicorn.Server(uvicorn.Config(application(), **options))
    server.run()
    if not server.started:
        raise InputError(f"port: {place} cannot be bound; choose another port.")


def application() -> Any:
    """Return the application that the environment describes: ``KERNEL_BANDITS_FILE`` and others."""
    given = {name: os.environ.get(f"{PREFIX}{name}", "") for name in ("FILE", "DATABASE", "KEY_FILE")}
    _configure_log()
    # products in one thread: the same bits in every process, and no threads that wait for each other
    single_threaded().__enter__()
    file = Path(given["FILE"] or "loop.toml")
    runtime = Runtime(read_settings(file), given["DATABASE"] or str(file.with_suffix(".db")))
    app = build_app(runtime, read_keys(given["KEY_FILE"] or None))
    spare_collections()
    return app


def spare_collections() -> None:
    """Keep what was imported out of garbage collections, each of which would stop all requests for 0.1 to 0.4 s."""
    gc.collect()
    gc.freeze()


def import_log(file: Path, url: str, loop: str, key: str | None) -> str:
    """Send a log to a running service, and return how many rounds it learned; a repetition learns nothing twice.

    Each line is an object with ``context``, ``action``, ``reward`` and perhaps ``propensity`` and ``id``. Lines without
    an id get one from the file's content and their number.
    """
    try:
        content = file.read_bytes()
        rows = [json.loads(line) for line in content.splitlines() if line.strip()]
    except (OSError, ValueError) as reason:
        raise InputError(f"{file}: cannot be read ({reason}); expected a JSON object in each line.") from reason
    name, learned = hashlib.sha256(content).hexdigest()[:12], 0
    taken = [
        {"id": row.get("id") or f"{name}-{number}", **{k: v for k, v in row.items() if k != "id"}}
        for number, row in enumerate(rows, 1)
        if row.get("reward") is not None
    ]
    for start in range(0, len(taken), ROWS):
        body = json.dumps({"rows": taken[start : start + ROWS]}).encode()
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
        request = urllib.request.Request(f"{url}/v1/loops/{loop}/import", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=600) as response:
                learned += json.loads(response.read())["imported"]
        except urllib.error.HTTPError as reason:
            raise InputError(json.loads(reason.read())["error"]["message"]) from reason
        except OSError as reason:
            raise InputError(f"url: {url} does not respond ({reason}); start the service first.") from reason
    return f"{learned} of {len(rows)} rounds learned; the others have no reward or were learned before."


def _only_loop(file: Path) -> str:
    names = list(read_settings(file).loops)
    if len(names) > 1:
        raise InputError(f"loop: there are {', '.join(names)}; say which with --loop.")
    return names[0]


class JsonLines(logging.Formatter):
    """Writes each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        own = {name: value for name, value in vars(record).items() if name not in (*_STANDARD, "color_message")}
        line = {"time": round(record.created, 3), "level": record.levelname.lower(), "message": record.getMessage()}
        line |= own
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _configure_log() -> None:
    """Write the log to standard error, one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in {"kernel_bandits_server": logging.INFO, "uvicorn": logging.WARNING}.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
