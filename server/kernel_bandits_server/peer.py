"""The process of the models, as the HTTP process starts it, waits for it and ends it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from kernel_bandits_server.host import serve_channel
from kernel_bandits_server.keys import VARIABLE
from kernel_bandits_server.runtime import Runtime

# It imports what this process would import, and nothing that happens to lie in the working directory (-P). Both
# processes may be sent the same signal; the HTTP process says when to stop, from the first moment on.
_START = """
import signal, sys
for one in (signal.SIGINT, signal.SIGTERM):
    signal.signal(one, signal.SIG_IGN)
sys.path[:] = {path!r}
from kernel_bandits_server.host import main
main()
"""


class Peer:
    """The process of the models; a thread of this one where sockets cannot be handed to a process.

    Args:
        verbose: whether it logs every request.
        in_thread: whether it is a thread.
        opened: is called with the loops of a thread before they start.
    """

    def __init__(
        self,
        verbose: bool = False,
        in_thread: bool = os.name == "nt",
        opened: Callable[[Runtime], None] = lambda _: None,
    ) -> None:
        self.channel, theirs = socket.socketpair()
        self.started = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        if in_thread:
            self._thread = threading.Thread(target=serve_channel, args=(theirs, None, opened), daemon=True)
            self._thread.start()
            return
        command = [sys.executable, "-P", "-c", _START.format(path=sys.path), *(["--verbose"] if verbose else [])]
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        try:
            with theirs:
                # a group of its own: Ctrl-C is for the HTTP process
                self._process = subprocess.Popen(
                    command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=environment, process_group=0
                )
        except BaseException:
            self.channel.close()
            raise

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end, and return its exit status; None if it has not ended by then."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(seconds)
            return None
        self._thread.join(seconds)
        return None if self._thread.is_alive() else 0

    def kill(self) -> None:
        """End it at once; the log has all that was acknowledged. A thread is left alone."""
        if self._process is not None:
            self._process.kill()
