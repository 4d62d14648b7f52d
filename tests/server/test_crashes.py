import os
import random
import signal
import time

import pytest
from crashing import LOOP, Load, check_log
from serving import Process, call, free_port


def crash(tmp_path, kills, seed=0, most=0.6):
    """Kill a server under load, again and again; return the number of events and of acknowledged calls."""
    file, database = tmp_path / "loop.toml", tmp_path / "loop.db"
    file.write_text(LOOP)
    chance, port = random.Random(seed), free_port()
    load = Load([port], seed=seed)
    try:
        for number in range(kills):
            # sometimes before it is ready
            server = Process(file, port=port, wait=chance.random() < 0.8)
            time.sleep(chance.random() * most)
            server.kill()
            if number % 25 == 24:
                check_log(file, str(database), load)
        server = Process(file, port=port)
        time.sleep(0.5)
    finally:
        load.stop()
    while call(server.address, "GET", "/v1/loops/offers")[1]["pending"]:
        time.sleep(0.2)
    served = call(server.address, "GET", "/v1/loops/offers/digest")[1]
    server.kill(signal.SIGTERM)
    assert server.process.returncode in (0, -signal.SIGTERM)
    assert check_log(file, str(database), load) == (served["events"], served["digest"])
    print(f"{kills} kills, {served['events']} events")
    print(f"{len(load.decided)} decisions and {len(load.rewarded)} rewards")
    return served["events"], load


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path):
    events, load = crash(tmp_path, 2)
    # slow machines manage a few
    assert events > len(load.decided) > 0


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_100_kills(tmp_path):
    # may be run in parts, each with a seed of its own
    kills, seed = (os.environ.get(f"KERNEL_BANDITS_{name}", default) for name, default in (("KILLS", 100), ("SEED", 1)))
    crash(tmp_path, int(kills), int(seed))
