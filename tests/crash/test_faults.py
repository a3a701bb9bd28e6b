"""The Nth file operation fails, N swept over a whole run: no false acknowledgement, no crash, a clear message;
and a disk that fills and empties again."""

import os
import random
import re

import pytest
from ledger import Ledger
from weir import FAULT_BIN, SLOW, wait_for

CONFIG = """
version: 1
log: {kind: journal, segment: 1MiB, max_bytes: 64MiB}
limits: {drain_timeout: 3s}
streams: {events: {id: /id, sinks: [main], ack_timeout: 1s}}
sinks:
  main: {kind: sqlite, retry_min: 10ms, retry_max: 50ms}
"""
POINTS = int(os.environ.get("WEIR_FAULT_POINTS", "40"))


def run_once(weir, ledger, rng, plan):
    """Start, a fixed series of requests, stop; returns (exit code, statuses)."""
    weir.env["WEIR_FAULT"] = plan
    weir.errors.clear()
    statuses = []
    weir.start(wait=False)
    try:
        weir.wait_listening()
    except AssertionError:
        pass
    else:
        import http.client
        connection = http.client.HTTPConnection("127.0.0.1", weir.port, timeout=20 * SLOW)
        for _ in range(25):
            try:
                statuses.append(ledger._exchange(connection, rng))
            except (OSError, http.client.HTTPException):
                connection.close()
        connection.close()
        weir.process.terminate()
    code = weir.process.wait(60 * SLOW)
    weir._joined()
    weir.env.pop("WEIR_FAULT")
    return code, statuses


def operations(weir, ledger, rng):
    code, _ = run_once(weir, ledger, rng, "count")
    assert code == 0, weir.errors
    return int([re.search(r"fs_fault: (\d+) operations", e)[1] for e in weir.errors if e and "operations" in e][-1])


@pytest.mark.parametrize("fault", ["EIO", "ENOSPC", "SHORT"])
def test_the_nth_operation_fails(gateway, seed, fault):
    rng = random.Random(f"{seed}{fault}")
    total = operations(gateway(config=CONFIG, start=False, binary=FAULT_BIN), Ledger(seed), rng)
    assert total > 50
    fresh = sorted(rng.sample(range(1, total + 1), min(POINTS, total)))
    for n in fresh:
        ledger = Ledger(f"{seed}{n}")
        weir = gateway(config=CONFIG, start=False, binary=FAULT_BIN, name=f"{fault}{n}")
        code, statuses = run_once(weir, ledger, rng, f"fail={fault}@{n}")
        said = [e for e in weir.errors if e and not e.startswith("fs_fault")]
        assert code >= 0, f"operation {n}: ended by signal {-code}: {said}"
        assert code in (0, 1, 2, 3), (n, code, said)
        if code or any(s not in (201, 202) for s in statuses):
            assert said, f"operation {n}: not a word about it"
        weir.start()
        wait_for(lambda: all(c["lag"] == 0 for c in weir.status()["consumers"]), "delivered", 30)
        ledger.check(weir.rows(), everything=True)
        weir.stop()


def test_a_full_disk_refuses_and_recovers_by_itself(gateway, seed):
    weir = gateway(config=CONFIG, start=False, binary=FAULT_BIN)
    weir.env["WEIR_FAULT"] = "ops=write;path=journal;fail=ENOSPC@60-120"
    weir.start()
    ledger = Ledger(seed)
    refused = []
    rng = random.Random(seed)

    def work():
        import http.client
        connection = http.client.HTTPConnection("127.0.0.1", weir.port, timeout=20 * SLOW)
        status = ledger._exchange(connection, rng)
        connection.close()
        if status == 503:
            refused.append(status)
        return refused and status in (201, 202)

    wait_for(work, "refuses, then takes again", 90)
    assert any("space" in e.lower() for e in weir.errors if e)
    wait_for(lambda: all(c["lag"] == 0 for c in weir.status()["consumers"]), "delivered", 30)
    ledger.check(weir.rows(), everything=True)
    weir.stop()
    weir.env.pop("WEIR_FAULT")
    weir.start()
    wait_for(lambda: all(c["lag"] == 0 for c in weir.status()["consumers"]), "delivered", 30)
    ledger.check(weir.rows(), everything=True)


def test_after_a_failed_sync_nothing_is_acknowledged_until_restart(gateway, seed):
    weir = gateway(config=CONFIG, start=False, binary=FAULT_BIN)
    weir.env["WEIR_FAULT"] = "ops=sync;path=journal;fail=EIO@40"
    weir.start()
    ledger = Ledger(seed)
    rng = random.Random(seed)
    import http.client
    statuses = []

    def work():
        connection = http.client.HTTPConnection("127.0.0.1", weir.port, timeout=20 * SLOW)
        statuses.append(ledger._exchange(connection, rng))
        connection.close()
        return statuses[-1] in (503, 504)

    wait_for(work, "the sync fails", 60)
    for n in range(20):
        assert weir.post({"id": f"never{n}"}).status_code in (503, 504)
    assert weir.get("/readyz").status_code == 503
    assert any("sync" in e.lower() and "restart" in e.lower() for e in weir.errors if e), weir.errors
    weir.process.terminate()
    weir.process.wait(30 * SLOW)
    weir._joined()
    weir.env.pop("WEIR_FAULT")
    weir.start()
    assert weir.post({"id": "works again"}, query="?ack=stored").status_code == 201
    wait_for(lambda: all(c["lag"] == 0 for c in weir.status()["consumers"]), "delivered", 30)
    rows = weir.rows()
    rows.pop("works again")
    ledger.check({k: v for k, v in rows.items() if not k.startswith("never")}, everything=True)
