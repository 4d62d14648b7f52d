"""The process of HTTP's end of the channel: it starts the process of the models, asks it, and starts it again."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.service.bodies import parse_json, to_json
from kernel_bandits.service.channel import CHUNK, LARGEST_NUMBER, Frames, read_reply, request_frame
from kernel_bandits.service.commands import RefusedError
from kernel_bandits.service.exchange import Call, Reply
from kernel_bandits.service.host import STOP, serve_channel
from kernel_bandits.service.runtime import Runtime
from kernel_bandits.service.settings import ServiceSettings

# Seconds before a process that ended at once is started again.
PAUSE = 1.0
_log = logging.getLogger("kernel_bandits.service")


class ModelError(KernelBanditsError, RuntimeError):
    """The process of the models could not be started."""


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
        command = [sys.executable, "-m", "kernel_bandits.service.host", *(["--verbose"] if verbose else [])]
        with theirs:
            # a group of its own: Ctrl-C is for the process of HTTP, which says when to stop
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, process_group=0)

    def wait(self) -> int:
        """Wait for its end, and return its exit status."""
        if self._process is not None:
            return self._process.wait()
        self._thread.join()
        return 0


class Link(asyncio.Protocol):
    """Asks the process of the models; many requests, and many replies, are one write.

    Args:
        settings: of the service.
        database: its address.
        new_peer: starts the process.
    """

    def __init__(self, settings: ServiceSettings, database: str, new_peer: Callable[[], Peer] = Peer) -> None:
        self.settings = settings
        self.is_stopping: Callable[[], bool] = lambda: False
        self._plan = to_json({"text": settings.text, "database": database})
        self._new_peer = new_peer
        self._peer: Peer | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._frames = Frames()
        self._number = 0
        self._asked: dict[int, asyncio.Future[Reply]] = {}
        self._outgoing: list[bytes] = []
        self._stops = False
        self._starting: asyncio.Task[None] | None = None

    def launch(self) -> None:
        """Start the process, and wait until it has opened the database; raise an error if it cannot."""
        self._peer = peer = self._new_peer()
        peer.channel.sendall(request_frame(0, "start", Call({}, {}, self._plan)))
        reason = _first_words(peer.channel)
        if reason == "":
            return
        peer.channel.close()
        status = peer.wait()
        raise ModelError(reason or f"the process of the models ended with status {status}; the reason is in the log.")

    async def attach(self) -> None:
        """Take requests; to be called where an event loop runs."""
        assert self._peer is not None
        self._loop, self._frames = asyncio.get_running_loop(), Frames()
        self._transport, _ = await self._loop.create_connection(lambda: self, sock=self._peer.channel)

    async def ask(self, name: str, call: Call) -> Reply:
        """Return the reply to a request; refuse it, to be repeated, if the process ends before that."""
        if self._transport is None:
            raise RefusedError(503, "starting", "the process of the models is being started; repeat the request later.")
        self._number = number = self._number % LARGEST_NUMBER + 1
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._asked[number] = future
        if not self._outgoing:
            # after the requests that arrived together with this one
            self._loop.call_soon(self._flush)
        self._outgoing.append(request_frame(number, name, call))
        return await future

    def _flush(self) -> None:
        frames, self._outgoing = self._outgoing, []
        if self._transport is not None:
            self._transport.write(b"".join(frames))

    def data_received(self, data: bytes) -> None:
        """Hand replies to those who wait for them."""
        for frame in self._frames.take(data):
            future = self._asked.pop(frame.number)
            if not future.done():
                future.set_result(read_reply(frame))

    def connection_lost(self, _: Exception | None) -> None:
        """Refuse what was asked, and start the process again."""
        self._transport = None
        asked, self._asked = self._asked, {}
        message = "the process of the models ended; nothing acknowledged was lost, repeat the request."
        for future in asked.values():
            if not future.done():
                future.set_exception(RefusedError(503, "model_ended", message))
        if not self._stops:
            self._starting = self._loop.create_task(self._start_again())

    async def _start_again(self) -> None:
        assert self._peer is not None
        status = await asyncio.to_thread(self._peer.wait)
        _log.error("the process of the models ended; starting it again", extra={"exit_status": status})
        while not self._stops:
            # not again and again at once
            await asyncio.sleep(max(0.0, self._peer.started + PAUSE - time.monotonic()))
            try:
                await asyncio.to_thread(self.launch)
                await self.attach()
                return
            except (KernelBanditsError, OSError) as reason:
                _log.error("the process of the models does not start: %s", reason)

    async def stop(self) -> None:
        """Let the process finish what was asked, write snapshots and end."""
        self._stops = True
        self.is_stopping = lambda: True
        if self._starting is not None:
            self._starting.cancel()
        if self._transport is not None and self._peer is not None:
            self._flush()
            self._transport.write(request_frame(0, STOP, Call({}, {})))
            await asyncio.to_thread(self._peer.wait)
            if self._transport is not None:
                self._transport.close()


def _first_words(channel: socket.socket) -> str | None:
    """Return why the process of the models cannot start; nothing if it has started, None if it has ended."""
    frames = Frames()
    while data := channel.recv(CHUNK):
        for frame in frames.take(data):
            return "" if frame.status == 200 else str(parse_json(frame.content)["reason"])
    return None
