"""The HTTP process's end of the channel: it starts the process of the models, asks it, and starts it again."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable

from kernel_bandits.errors import KernelBanditsError
from kernel_bandits_server.bodies import parse_json, to_json
from kernel_bandits_server.channel import CHUNK, LARGEST_NUMBER, Frames, read_reply, request_frame
from kernel_bandits_server.commands import RefusedError
from kernel_bandits_server.exchange import Call, Reply
from kernel_bandits_server.host import STOP
from kernel_bandits_server.peer import Peer
from kernel_bandits_server.settings import ServiceSettings

# Seconds before a process that ended at once is started again; twice as many after each failed start, up to a most.
PAUSE, LONGEST_PAUSE = 1.0, 30.0
# Seconds without a sign of life after which the process is ended and started again, and between two looks.
STALLED, LOOK = 60.0, 5.0
# Seconds that it has to finish, write snapshots and end.
GRACE = 30.0
# Requests in flight beside those that may wait for loops, and bytes that wait to be sent; beyond that all are refused.
READS, MOST_BYTES = 1_000, 2**26
_log = logging.getLogger("kernel_bandits_server")


class ModelError(KernelBanditsError, RuntimeError):
    """The process of the models could not be started."""


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
        self._watching: asyncio.Task[None] | None = None
        # when something came from the process last, and why it does not start
        self._heard, self._trouble = 0.0, ""
        self._most = settings.limits.waiting * len(settings.loops) + READS

    def launch(self) -> None:
        """Start the process, and wait until it has opened the database; raise an error if it cannot."""
        self._peer = peer = self._new_peer()
        reason = None
        try:
            peer.channel.sendall(request_frame(0, "start", Call({}, {}, self._plan)))
            reason = _first_words(peer.channel)
        except OSError:
            # it ended before it had read everything
            pass
        if reason == "":
            return
        peer.channel.close()
        status = self._end(peer)
        raise ModelError(reason or f"the process of the models ended with status {status}; the reason is in the log.")

    @staticmethod
    def _end(peer: Peer) -> int | None:
        """Return the exit status of a process that has been told to end; kill one that does not."""
        status = peer.wait(GRACE)
        if status is None:
            _log.error("the process of the models does not end; killing it")
            peer.kill()
            status = peer.wait(GRACE)
        return status

    async def attach(self) -> None:
        """Take requests; to be called where an event loop runs."""
        assert self._peer is not None
        self._loop, self._frames = asyncio.get_running_loop(), Frames()
        self._transport, _ = await self._loop.create_connection(lambda: self, sock=self._peer.channel)
        self._heard, self._trouble = time.monotonic(), ""
        self._watching = self._loop.create_task(self._watch(self._peer))

    async def ask(self, name: str, call: Call) -> Reply:
        """Return the reply to a request; refuse it, to be repeated, if the process ends before that."""
        transport = self._transport
        if transport is None:
            trouble = f" ({self._trouble})" if self._trouble else ""
            message = f"the process of the models is being started{trouble}; repeat the request later."
            raise RefusedError(503, "starting", message)
        if len(self._asked) >= self._most or transport.get_write_buffer_size() > MOST_BYTES:
            raise RefusedError(503, "busy", "too many requests wait for the models; repeat the request later.")
        number = self._number % LARGEST_NUMBER + 1
        frame = request_frame(number, name, call)
        self._number = number
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._asked[number] = future
        if not self._outgoing:
            # after the requests that arrived together with this one
            self._loop.call_soon(self._flush)
        self._outgoing.append(frame)
        return await future

    async def _watch(self, peer: Peer) -> None:
        """End a process that is asked and says nothing: its loops may be long at work, but it counts them meanwhile."""
        while True:
            await asyncio.sleep(LOOK)
            if not self._asked:
                self._heard = time.monotonic()
            elif time.monotonic() - self._heard > STALLED:
                _log.error("the process of the models has not responded for %g s; killing it", STALLED)
                peer.kill()
                return
            elif self._transport is not None:
                # nobody waits for the reply, which is one more sign of life
                self._transport.write(request_frame(0, "numbers", Call({}, {})))

    def _flush(self) -> None:
        frames, self._outgoing = self._outgoing, []
        if self._transport is not None:
            self._transport.write(b"".join(frames))

    def data_received(self, data: bytes) -> None:
        """Hand replies to those who wait for them."""
        self._heard = time.monotonic()
        for frame in self._frames.take(data):
            future = self._asked.pop(frame.number, None)
            if future is not None and not future.done():
                future.set_result(read_reply(frame))

    def connection_lost(self, _: Exception | None) -> None:
        """Refuse what was asked, and start the process again."""
        self._transport = None
        if self._watching is not None:
            self._watching.cancel()
        asked, self._asked = self._asked, {}
        message = "the process of the models ended; nothing acknowledged was lost, repeat the request."
        for future in asked.values():
            if not future.done():
                future.set_exception(RefusedError(503, "model_ended", message))
        if not self._stops:
            self._starting = self._loop.create_task(self._start_again())

    async def _start_again(self) -> None:
        assert self._peer is not None
        status = await asyncio.to_thread(self._end, self._peer)
        _log.error("the process of the models ended; starting it again", extra={"exit_status": status})
        # not again and again at once
        pause = max(0.0, self._peer.started + PAUSE - time.monotonic())
        failed = PAUSE
        while not self._stops:
            await asyncio.sleep(pause)
            try:
                await asyncio.to_thread(self.launch)
                await self.attach()
                return
            except (KernelBanditsError, OSError) as reason:
                self._trouble = str(reason)
                _log.error("the process of the models does not start: %s", reason)
            except Exception as reason:
                self._trouble = type(reason).__name__
                _log.exception("the process of the models does not start")
            pause, failed = failed, min(2.0 * failed, LONGEST_PAUSE)

    async def stop(self) -> None:
        """Let the process finish what was asked, write snapshots and end."""
        self._stops = True
        self.is_stopping = lambda: True
        if self._starting is not None:
            self._starting.cancel()
        if self._transport is not None and self._peer is not None:
            self._flush()
            self._transport.write(request_frame(0, STOP, Call({}, {})))
            await asyncio.to_thread(self._end, self._peer)
            if self._transport is not None:
                self._transport.close()


def _first_words(channel: socket.socket) -> str | None:
    """Return why the process of the models cannot start; nothing if it has started, None if it has ended."""
    frames = Frames()
    while data := channel.recv(CHUNK):
        for frame in frames.take(data):
            return "" if frame.status == 200 else str(parse_json(frame.content)["reason"])
    return None
