"""The process of the models: it owns the loops and the database, and carries out what the process of HTTP lets in.

It does what it is told over a socket, and ends with the other end of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from kernel_bandits.errors import KernelBanditsError
from kernel_bandits.numerics.blas_threads import single_threaded
from kernel_bandits_server import api, personalizer
from kernel_bandits_server.channel import CHUNK, Frame, Frames, read_request, reply_frame
from kernel_bandits_server.commands import Command, Unread
from kernel_bandits_server.exchange import Call, Reply, error_reply
from kernel_bandits_server.process import collect_rarely, configure_log, keep_freed_memory
from kernel_bandits_server.reading import READERS, Reader
from kernel_bandits_server.runtime import Runtime
from kernel_bandits_server.settings import parse_settings

MAKERS = {**api.MAKERS, **personalizer.MAKERS}
# Bytes from which on a body is read apart from the loop.
LARGE = 10_000
# What the other process says last.
STOP = "stop"
_log = logging.getLogger("kernel_bandits_server")


class Host:
    """Carries out requests that arrive on a socket.

    Args:
        runtime: the loops.
        channel: to the process of HTTP.
        lost: is called when that process is gone; without it the host stops as if it had been told to.
    """

    def __init__(self, runtime: Runtime, channel: socket.socket, lost: Callable[[], None] | None = None) -> None:
        self.runtime = runtime
        self._channel = channel
        self._lost = lost
        self._writing = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        runtime.answer = self._answer

    async def run(self) -> None:
        """Serve until the other process says that it is enough; then finish, write snapshots and close the database."""
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self.runtime.start()
        threading.Thread(target=self._read, name="channel", daemon=True).start()
        await self._ended.wait()
        # not behind what waits for a thread
        with ThreadPoolExecutor(1) as pool:
            await self._loop.run_in_executor(pool, self.runtime.stop)

    def _read(self) -> None:
        try:
            told = self._read_requests()
        except Exception:
            # a process that hears nothing is of no use
            _log.exception("the channel cannot be read")
            told = False
        if not told and self._lost is not None:
            self._lost()
        self._loop.call_soon_threadsafe(self._ended.set)

    def _read_requests(self) -> bool:
        """Hand requests over until the other process is gone; return whether it said that it is enough."""
        frames = Frames()
        while data := _received(self._channel):
            for frame in frames.take(data):
                name, call = read_request(frame)
                if name == STOP:
                    return True
                reader = READERS.get(name)
                if reader is None:
                    self._submit(frame.number, name, call)
                else:
                    self._loop.call_soon_threadsafe(self._begin, frame.number, reader, call)
        return False

    def _submit(self, number: int, name: str, call: Call) -> None:
        """Hand a request over to its loop, without an event loop in between."""
        try:
            worker = self.runtime.worker(api.loop_of(self.runtime.settings, call))
            worker.require_room()
            request = Unread(self._made, name, call, number=number)
            # a large body is read while the loop computes
            worker.submit(self._made(request) if len(call.content) > LARGE else request)
        except Exception as reason:
            self._send(_frame(number, error_reply(reason)))

    def _made(self, request: Unread) -> Command:
        try:
            command, view = MAKERS[request.name](self.runtime.settings, request.call)
        except Exception as reason:
            request.error = reason
            return request
        command.number, command.view = request.number, view
        return command

    def _answer(self, commands: Sequence[Command]) -> None:
        self._send(b"".join([_frame(command.number, _reply_to(command)) for command in commands]))

    def _begin(self, number: int, reader: Reader, call: Call) -> None:
        task = self._loop.create_task(self._look_up(number, reader, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_up(self, number: int, reader: Reader, call: Call) -> None:
        try:
            reply = await reader(self.runtime, call)
        except Exception as reason:
            reply = error_reply(reason)
        self._send(_frame(number, reply))

    def _send(self, frames: bytes) -> None:
        with self._writing:
            try:
                self._channel.sendall(frames)
            except OSError:
                # nobody is there to be told; the thread that reads notices as well
                return


def _reply_to(command: Command) -> Reply:
    try:
        if command.error is not None:
            raise command.error
        assert command.view is not None
        reply = command.view(command.result)
        assert isinstance(reply, Reply)
        return reply
    except Exception as reason:
        return error_reply(reason)


def _frame(number: int, reply: Reply) -> bytes:
    """Return the frame of a reply, or of an error if it cannot be encoded, which is no matter of its batch."""
    try:
        return reply_frame(number, reply)
    except Exception as reason:
        return reply_frame(number, error_reply(reason))


def _received(channel: socket.socket) -> bytes:
    try:
        return channel.recv(CHUNK)
    except OSError:
        return b""


def serve_channel(
    channel: socket.socket, lost: Callable[[], None] | None = None, opened: Callable[[Runtime], None] = lambda _: None
) -> None:
    """Take the settings from a channel, say whether they can be used, and serve it to its end.

    Args:
        channel: to the process of HTTP.
        lost: is called when that process is gone without a word.
        opened: is called with the loops before they start.
    """
    with channel:
        reading = Frames()
        frames: list[Frame] = []
        while not frames:
            data = _received(channel)
            if not data:
                return
            frames = reading.take(data)
        plan = read_request(frames[0])[1].json()
        try:
            runtime = Runtime(parse_settings(plan["text"]), plan["database"])
        except KernelBanditsError as reason:
            with suppress(OSError):
                channel.sendall(reply_frame(0, Reply({"reason": str(reason)}, 503)))
            return
        host = Host(runtime, channel, lost)
        opened(runtime)
        # whether somebody is still there shows when the channel is read
        with suppress(OSError):
            channel.sendall(reply_frame(0, Reply({})))
        asyncio.run(host.run())


def main() -> None:
    """Serve the socket that is the standard input of this process."""
    configure_log("--verbose" in sys.argv)
    # for the life of the process: the same bits in every process, and no threads that wait for each other
    single_threaded().__enter__()

    def settle(_: Runtime) -> None:
        keep_freed_memory()
        collect_rarely()

    # as in a crash: the log has all that was acknowledged, and the locks of the database end with the process
    serve_channel(socket.socket(fileno=os.dup(0)), lambda: os._exit(1), settle)
