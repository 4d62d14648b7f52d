"""The HTTP process's end of the channel, with a process of the models that says nothing or does not start."""

import asyncio
import socket
import time

import pytest
from kernel_bandits_server.channel import reply_frame
from kernel_bandits_server.commands import RefusedError
from kernel_bandits_server.exchange import Call, Reply
from kernel_bandits_server.link import Link
from kernel_bandits_server.settings import parse_settings
from serving import LOOP


class Deaf:
    """A process that has started, and says nothing any more until it is killed."""

    def __init__(self):
        self.channel, self._theirs = socket.socketpair()
        self._theirs.sendall(reply_frame(0, Reply({})))
        self.started, self.killed = time.monotonic(), False

    def wait(self, seconds=None):
        del seconds  # it is deaf for good
        return -9 if self.killed else None

    def kill(self):
        self.killed = True
        self._theirs.close()


def linked(new_peer, talk, **limits):
    """Return what a conversation over a link returns."""
    text = LOOP.replace("lag", f"limits = {{ {', '.join(f'{k} = {v}' for k, v in limits.items())} }}\nlag")
    link = Link(parse_settings(text), "", new_peer)
    link.launch()

    async def attached():
        await link.attach()
        try:
            return await talk(link)
        finally:
            await link.stop()

    return asyncio.run(attached())


def test_a_model_that_says_nothing_gets_no_more_than_may_wait_and_is_killed(monkeypatch):
    monkeypatch.setattr("kernel_bandits_server.link.READS", 0)
    monkeypatch.setattr("kernel_bandits_server.link.STALLED", 0.3)
    monkeypatch.setattr("kernel_bandits_server.link.LOOK", 0.05)
    made = []

    async def talk(link):
        asked = [asyncio.ensure_future(link.ask("decide", Call({"loop": "offers"}, {}, b"x"))) for _ in range(30)]
        done, _ = await asyncio.wait(asked, timeout=0.1)
        busy = [one.exception().code for one in done]
        others, _ = await asyncio.wait(set(asked) - done)
        return busy, [one.exception().code for one in others]

    def new_peer():
        made.append(Deaf())
        return made[-1]

    busy, ended = linked(new_peer, talk, waiting=20)
    assert (set(busy), len(busy)) == ({"busy"}, 10)
    assert (set(ended), len(ended)) == ({"model_ended"}, 20)
    assert made[0].killed


def test_bytes_that_cannot_be_sent_are_refused_beyond_a_limit(monkeypatch):
    monkeypatch.setattr("kernel_bandits_server.link.MOST_BYTES", 100_000)
    made = []

    async def talk(link):
        codes = []
        for _ in range(40):
            one = asyncio.ensure_future(link.ask("decide", Call({"loop": "offers"}, {}, b"x" * 100_000)))
            await asyncio.sleep(0.01)
            if one.done():
                codes.append(one.exception().code)
        made[0].kill()
        return codes

    def new_peer():
        made.append(Deaf())
        return made[-1]

    codes = linked(new_peer, talk)
    assert set(codes) == {"busy"}
    assert len(codes) > 20


def test_a_stop_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr("kernel_bandits_server.link.GRACE", 0.1)
    made = []

    async def talk(link):
        return link.settings is not None

    def new_peer():
        made.append(Deaf())
        return made[-1]

    assert linked(new_peer, talk)
    assert made[0].killed


@pytest.mark.parametrize("error", [OSError("no more files"), RuntimeError("no more threads")], ids=lambda one: str(one))
def test_a_model_that_cannot_be_started_is_tried_again_with_growing_pauses(monkeypatch, error):
    monkeypatch.setattr("kernel_bandits_server.link.PAUSE", 0.05)
    made, attempts = [], []

    def new_peer():
        if made and len(attempts) < 3:
            attempts.append(time.monotonic())
            raise error
        made.append(Deaf())
        return made[-1]

    async def talk(link):
        made[0].kill()
        codes, messages = set(), set()
        while len(made) < 2:
            try:
                await asyncio.wait_for(link.ask("decide", Call({"loop": "offers"}, {}, b"x")), 0.01)
            except RefusedError as reason:
                codes.add(reason.code)
                messages.add(str(reason))
            except TimeoutError:
                pass
            await asyncio.sleep(0.005)
        made[1].kill()
        return codes, messages

    monkeypatch.setattr("kernel_bandits_server.link.GRACE", 0.1)
    codes, messages = linked(new_peer, talk)
    assert "starting" in codes
    assert any(("no more files" if isinstance(error, OSError) else "RuntimeError") in one for one in messages)
    first, second, third = attempts
    assert second - first >= 0.05
    assert third - second >= 0.1
