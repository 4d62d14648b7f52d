"""What every process of the service sets for itself: its log, its memory, and that it ends with its parent."""

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
from typing import Any

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


def stop_with(parent: int) -> None:
    """Stop this process when the one that started it is gone.

    It would keep the port, and serve the old settings, while the service is started again.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        logging.getLogger("kernel_bandits_server").warning("the process that started this one is gone; stopping")
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


def configure_log(verbose: bool) -> None:
    """Write the log to standard error, one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (
        ("kernel_bandits_server", logging.DEBUG if verbose else logging.INFO),
        ("uvicorn", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
