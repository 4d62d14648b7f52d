"""Load on servers that are killed, and the check that nothing acknowledged is lost."""

import http.client
import json
import random
import threading
import time
import uuid
from itertools import chain, pairwise

from kernel_bandits_server.replica import Replica
from kernel_bandits_server.settings import read_settings
from kernel_bandits_server.store import Store
from kernel_bandits_server.worker import replay

LOOP = """\
[loops.offers]
exploration_floor = 0.2
silence = { after = 2, reward = 0.0 }
control = { share = 0.3, rule = "uniform" }
challenger = { policy = "uniform" }
options = { kernel = { name = "Gaussian", lengthscale = 0.5 }, dictionary = { rule = "Kors", max_size = 30 } }
[loops.offers.context]
age = { kind = "Numeric", range = [0, 100] }
[loops.offers.arms]
names = ["red", "blue", "green"]
[service]
lag = 0.05
snapshot_events = 150
"""


class Load:
    """Callers that decide and reward until they are stopped, and remember what was acknowledged."""

    def __init__(self, ports, callers=4, seed=0):
        self.ports, self.stopping = ports, threading.Event()
        self.decided, self.rewarded, self.errors = {}, {}, []
        self.threads = [threading.Thread(target=self.run, args=(seed + number,)) for number in range(callers)]
        for thread in self.threads:
            thread.start()

    def run(self, seed):
        connections = {}
        try:
            self.call(random.Random(seed), connections)
        finally:
            for connection in connections.values():
                connection.close()

    def call(self, chance, connections):
        waiting = []
        while not self.stopping.is_set():
            try:
                id = uuid.uuid4().hex
                made = self.insist(
                    chance, connections, "/decisions", {"id": id, "context": {"age": chance.random() * 100}}
                )
                self.decided[id] = made["action"]
                waiting.append(id)
                if len(waiting) > 5 and chance.random() < 0.9:
                    rewarded = waiting.pop(chance.randrange(len(waiting)))
                    reward = float(chance.random() < 0.5)
                    done = self.insist(chance, connections, f"/decisions/{rewarded}/reward", {"reward": reward})
                    if done["status"] != "late":
                        self.rewarded[rewarded] = reward
                time.sleep(0.002)
            except InterruptedError:
                return
            except Exception as reason:
                self.errors.append(repr(reason))
                return

    def insist(self, chance, connections, path, body):
        """Send a request until it is acknowledged, to whichever server responds."""
        payload = json.dumps(body)
        while not self.stopping.is_set():
            port = chance.choice(self.ports)
            try:
                connection = connections.get(port) or http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                connections[port] = connection
                connection.request("POST", f"/v1/loops/offers{path}", payload, {"content-type": "application/json"})
                response = connection.getresponse()
                content = json.loads(response.read())
            except (OSError, http.client.HTTPException, ValueError):
                connection.close()
                connections.pop(port, None)
                time.sleep(0.02)
                continue
            if response.status < 300:
                return content
            if response.status not in (500, 503):
                raise AssertionError((response.status, content))
            time.sleep(0.02)
        raise InterruptedError

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)
        assert self.errors == []


def recovered(settings, store):
    """The state as a process takes it from the latest snapshot and the events after it."""
    snapshot = store.latest_snapshot("offers", settings.fingerprint)
    replica = Replica(settings, snapshot)
    for events in store.read_blocks("offers", replica.applied):
        replica.apply(events)
    return replica


def check_log(file, address, load):
    """Everything acknowledged is in the log once, and the recovered state is that of a replay; returns its digest."""
    settings = read_settings(file).loops["offers"]
    store = Store(address)
    events = list(chain.from_iterable(store.read_blocks("offers")))
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert all(one.time <= other.time for one, other in pairwise(events))
    once = {(event.decision, event.kind) for event in events}
    assert len(once) == len(events)
    decisions = {event.decision: event.body["action"] for event in events if event.kind == "decision"}
    rewards = {
        event.decision: event.body["reward"]
        for event in events
        if event.kind == "reward" and event.body["source"] == "caller"
    }
    lost = {id for id, action in load.decided.items() if decisions.get(id) != action}
    assert lost == set()
    lost = {id for id, reward in load.rewarded.items() if rewards.get(id) != reward}
    assert lost == set()
    full = replay(settings, store)
    assert recovered(settings, store).digest() == full.digest()
    assert full.tally.counts["unlearned"] == 0
    store.close()
    return len(events), full.digest()
