"""A configuration that changed over data that is there already: streams and sinks that are no longer named,
or named anew. Nothing crashes, nothing goes to the wrong place, nothing is given up without a word."""

import sqlite3
import subprocess

from weir import wait_for

BOTH = """
version: 1
streams:
  events: {id: /id, sinks: [main]}
  orders: {id: /id, sinks: [main, copy]}
sinks:
  main: {kind: sqlite, retry_min: 10ms, retry_max: 100ms}
  copy: {kind: sqlite, retry_min: 10ms, retry_max: 100ms}
"""
EVENTS_ONLY = BOTH.replace("  orders: {id: /id, sinks: [main, copy]}\n", "")
ORDERS_TO_MAIN = BOTH.replace("[main, copy]", "[main]")


def reconfigure(weir, config):
    weir.config.write_text(config)
    weir.start()


def lag(weir, name):
    return [c for c in weir.status()["consumers"] if c["name"] == name][0]["lag"]


def refuse_bad(weir, sink):
    """Its table refuses the id "bad" from now on."""
    with sqlite3.connect(weir.data / f"{sink}.db") as db:
        db.execute("CREATE TRIGGER t BEFORE INSERT ON orders WHEN new.id = 'bad' "
                   "BEGIN SELECT raise(ABORT, 'not this one'); END")
    db.close()


def test_a_log_whose_META_is_lost_is_not_guessed_at(gateway):
    """Records name their stream by a number that only META explains."""
    weir = gateway(config=BOTH)
    assert weir.post({"id": "a"}, stream="orders").status_code == 202
    weir.kill()
    meta = (weir.data / "META").read_bytes()
    (weir.data / "META").unlink()
    again = weir.run(*weir.command()[1:])
    assert again.returncode == 3 and "META" in again.stderr
    (weir.data / "META").write_bytes(meta)
    weir.start()
    weir.wait_count(1, "copy", "orders")


def test_a_dead_letter_of_a_stream_that_left_its_sink(gateway):
    weir = gateway(config=BOTH)
    weir.post({"id": "good"}, stream="orders", query="?ack=everywhere")
    refuse_bad(weir, "copy")
    weir.post({"id": "bad"}, stream="orders")
    wait_for(lambda: weir.status()["sinks"][1]["dead_letters"] == 1, "a dead letter")
    weir.stop()
    reconfigure(weir, ORDERS_TO_MAIN)
    replay = ["dead", "replay", "--sink", "copy", "--all", "--data", weir.data, "-c", weir.config]
    done = weir.run(*replay, check=1)
    assert "does not go to this sink" in done.stderr + done.stdout
    assert weir.status()["sinks"][1]["dead_letters"] == 1
    weir.stop()
    weir.run(*replay, check=1)  # the same on the files themselves
    with sqlite3.connect(weir.data / "copy.db") as db:
        db.execute("DROP TRIGGER t")
    db.close()
    reconfigure(weir, BOTH)
    weir.run(*replay, check=0)
    assert set(weir.rows("copy", "orders")) == {"good", "bad"}


def test_a_repair_of_a_stream_that_does_not_go_to_the_sink(gateway):
    weir = gateway(config=BOTH)
    done = subprocess.run(["curl", "-s", "--unix-socket", weir.data / "weir.sock", "--data-binary",
                           '{"id":"a","key":"a","version":1,"doc":"{}"}\n',
                           "http://localhost/v1/admin/repair/copy/events"],
                          capture_output=True, text=True, check=True).stdout
    assert '"status":404' in done and "does not go" in done
    assert weir.get("/healthz").status_code == 200


def test_records_of_a_stream_that_is_gone_are_not_passed_over_in_silence(gateway):
    weir = gateway(config=BOTH)
    weir.post({"id": "first"}, stream="orders", query="?ack=everywhere")
    lock = sqlite3.connect(weir.data / "main.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    for i in range(5):
        assert weir.post({"id": str(i)}, stream="orders").status_code == 202
    assert weir.post({"id": "e"}, stream="events").status_code == 202
    weir.kill()
    lock.close()
    reconfigure(weir, EVENTS_ONLY)
    wait_for(lambda: lag(weir, "main") == 0, "the others are delivered")
    assert weir.count("main", "events") == 1
    said = wait_for(lambda: [line for line in weir.errors if line and "orders" in line and "main" in line],
                    "a word about the records of the stream that is gone")
    assert any("not in the configuration" in line for line in said), said


def test_a_sink_that_was_renamed_gets_what_the_old_one_had_not(gateway):
    weir = gateway(config=BOTH)
    weir.post({"id": "first"}, stream="orders", query="?ack=everywhere")
    lock = sqlite3.connect(weir.data / "copy.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    for i in range(20):
        assert weir.post({"id": str(i)}, stream="orders").status_code == 202
    wait_for(lambda: lag(weir, "main") == 0, "the other sink has them")
    weir.kill()
    lock.close()
    reconfigure(weir, BOTH.replace("copy", "second").replace(
        "second: {kind: sqlite", "second: {kind: sqlite, path: copy.db"))
    weir.wait_count(21, "copy", "orders")
    weir.stop()


def test_a_sink_that_is_gone_is_not_forgotten_in_silence(gateway):
    """Its cursor does not hold the log back; what it misses, and its dead letters, are told of at the start."""
    weir = gateway(config=BOTH)
    weir.post({"id": "first"}, stream="orders", query="?ack=everywhere")
    refuse_bad(weir, "copy")
    weir.post({"id": "bad"}, stream="orders")
    wait_for(lambda: weir.status()["sinks"][1]["dead_letters"] == 1, "a dead letter")
    lock = sqlite3.connect(weir.data / "copy.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    for i in range(20):
        assert weir.post({"id": str(i)}, stream="orders").status_code == 202
    wait_for(lambda: lag(weir, "main") == 0, "the other sink has them")
    weir.stop()
    lock.close()
    weir.errors.clear()
    without = ORDERS_TO_MAIN.replace("  copy: {kind: sqlite, retry_min: 10ms, retry_max: 100ms}\n", "")
    reconfigure(weir, without)
    assert weir.post({"id": "more"}, stream="orders", query="?ack=everywhere").status_code == 201
    weir.stop()
    said = [line for line in weir.errors if line and "copy" in line]
    assert any("20 records behind" in line for line in said), said
    assert any("1 dead letter:" in line for line in said), said
    (weir.data / "cursors/copy").unlink()
    weir.errors.clear()
    weir.start()
    weir.stop()
    assert not [line for line in weir.errors if line and "behind" in line]
