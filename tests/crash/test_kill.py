"""kill -9 at random moments under load, 50 times (1,000 in `make torture`): nothing acknowledged is lost."""

import random
import threading

from ledger import Ledger
from weir import wait_for

CONFIG = """
version: 1
log: {kind: journal, segment: 4MiB, max_bytes: 1GiB}
streams: {events: {id: /id, sinks: [main, copy]}}
sinks:
  main: {kind: sqlite}
  copy: {kind: sqlite}
"""


def settled(weir):
    return all(c["lag"] == 0 for c in weir.status()["consumers"])


def test_kill_9(gateway, seed, cycles):
    rng = random.Random(seed)
    ledger = Ledger(seed)
    weir = gateway(config=CONFIG, start=False)
    for cycle in range(cycles):
        weir.start()
        finish = ledger.load(weir.port)
        moment = threading.Event()
        moment.wait(rng.choice([0.0, 0.02, 0.1, 0.3, 0.6, 1.0]) * rng.random())
        weir.kill()
        finish()
        if rng.random() < 0.3:  # again, during recovery
            weir.start(wait=False)
            moment.wait(0.08 * rng.random())
            weir.kill()
        weir.start()
        wait_for(lambda: settled(weir), "delivered after the restart", 60)
        every = cycle == cycles - 1 or cycle % 25 == 24
        for store in ("main", "copy"):
            ledger.check(weir.rows(store), everything=every)
        if rng.random() < 0.5:
            weir.kill()
        else:
            weir.stop()
    assert ledger.answers > cycles
    weir.start()
    wait_for(lambda: settled(weir), "delivered")
    for store in ("main", "copy"):
        with weir.database(store) as db:
            total, distinct = db.execute("SELECT count(*), count(DISTINCT id) FROM events").fetchone()
            assert total == distinct
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    weir.run("reconcile", "-c", weir.config, "--data", weir.data, check=0)
    weir.stop()
    weir.run("journal", "verify", weir.data, check=0)
    print(f"{cycles} kills, {len(ledger.acked)} acknowledged ids, all there")
