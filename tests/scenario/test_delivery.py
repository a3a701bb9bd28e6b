"""Delivery: a slow or dead store delays only itself, bad records fail alone, order and versions hold."""

import json
import os
import sqlite3
import time

import pytest

from weir import wait_for

TWO = """
version: 1
streams:
  events: {id: /id, key: /key, primary: main, sinks: [main, copy], ack_timeout: 20s}
sinks:
  main: {kind: sqlite}
  copy: {kind: sqlite, retry_min: 20ms, retry_max: 500ms}
"""
HOLD_S = 30


def sink(weir, name):
    return [s for s in weir.status()["sinks"] if s["name"] == name][0]


def lag(weir, name):
    return [c for c in weir.status()["consumers"] if c["name"] == name][0]["lag"]


def feed_while(weir, seconds, start=0):
    """Posts at `durable` for some seconds; every one must be taken."""
    end = time.monotonic() + seconds
    n = start
    while time.monotonic() < end:
        answer = weir.post([{"id": f"h{n + i}", "key": f"k{i}"} for i in range(20)])
        assert answer.status_code == 202 and answer.json()["ack"] == "durable"
        assert answer.elapsed.total_seconds() < 5
        n += 20
    return n


def test_a_store_locked_for_30_s_delays_only_itself(gateway):
    weir = gateway(config=TWO)
    weir.post({"id": "first", "key": "k"}, query="?ack=everywhere")
    lock = sqlite3.connect(weir.data / "copy.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    n = feed_while(weir, HOLD_S)
    wait_for(lambda: lag(weir, "copy") >= n, "it shows")
    wait_for(lambda: weir.count("main") == n + 1, "the other store is not delayed")
    assert weir.count("copy") == 1
    assert sink(weir, "copy")["breaker_open"] and "lock" in sink(weir, "copy")["last_error"].lower()
    lock.execute("ROLLBACK")
    weir.wait_count(n + 1, "copy")
    wait_for(lambda: lag(weir, "copy") == 0, "drained")
    assert sink(weir, "copy")["dead_letters"] == 0


def test_a_call_that_hangs_in_a_store_delays_only_itself(gateway):
    weir = gateway(config=TWO.replace("copy: {kind: sqlite,", "copy: {kind: sqlite, busy_timeout: 60s,"))
    weir.post({"id": "first", "key": "k"}, query="?ack=everywhere")
    lock = sqlite3.connect(weir.data / "copy.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    for n in range(100):
        assert weir.post({"id": f"g{n}", "key": f"k{n % 7}"}, query="?ack=stored").status_code == 201
    assert weir.count("main") == 101 and weir.count("copy") == 1
    lock.execute("ROLLBACK")
    weir.wait_count(101, "copy")


def test_a_store_that_cannot_be_written_for_30_s(gateway):
    """Read-only for root too: the database's file is replaced by a directory, as a failed mount would."""
    weir = gateway(config=TWO)
    weir.post({"id": "first", "key": "k"}, query="?ack=everywhere")
    weir.stop()
    for end in ("", "-wal", "-shm"):
        path = weir.data / f"copy.db{end}"
        if path.exists():
            path.rename(weir.data / f"saved{end}")
    (weir.data / "copy.db").mkdir()
    weir.start()
    n = feed_while(weir, HOLD_S)
    wait_for(lambda: weir.count("main") == n + 1, "the other store is not delayed")
    wait_for(lambda: lag(weir, "copy") >= n and sink(weir, "copy")["last_error"], "it shows")
    (weir.data / "copy.db").rmdir()
    for end in ("-shm", "-wal", ""):
        path = weir.data / f"saved{end}"
        if path.exists():
            path.rename(weir.data / f"copy.db{end}")
    weir.wait_count(n + 1, "copy", timeout=60)


def test_one_record_then_silence_is_delivered(weir):
    weir.post({"id": "only"})
    weir.wait_count(1, timeout=5)


def test_the_same_id_with_another_key_while_the_first_is_retried(gateway):
    weir = gateway(config=TWO)
    weir.post({"id": "first", "key": "k"}, query="?ack=everywhere")
    lock = sqlite3.connect(weir.data / "copy.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    versions = [weir.post({"id": "x", "key": f"key{n}", "n": n}).json()["version"] for n in range(40)]
    wait_for(lambda: sink(weir, "copy")["retries"] > 0, "it is being retried")
    lock.execute("ROLLBACK")
    wait_for(lambda: lag(weir, "copy") == 0, "drained")
    for store in ("main", "copy"):
        version, doc = weir.rows(store)["x"]
        assert version == max(versions) and json.loads(doc)["n"] == 39


CHECKED = """
CREATE TABLE events(id TEXT PRIMARY KEY NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, doc TEXT NOT NULL,
                    attributes TEXT, {more})
"""


def with_table(gateway, more, config=TWO):
    weir = gateway(config=config, start=False)
    weir.data.mkdir()
    with sqlite3.connect(weir.data / "main.db") as db:
        db.executescript("CREATE TABLE parents(name TEXT PRIMARY KEY); INSERT INTO parents VALUES ('ok');")
        db.execute(CHECKED.format(more=more))
    return weir.start()


def test_poison_fails_alone_and_is_a_dead_letter(gateway):
    weir = with_table(gateway, "CHECK (doc NOT LIKE '%poison%')")
    body = [{"id": f"r{n}", "key": f"k{n % 5}", "x": "poison" if n % 10 == 3 else "fine"} for n in range(200)]
    assert weir.post(body).status_code == 202
    weir.wait_count(180)
    weir.wait_count(200, "copy")
    wait_for(lambda: lag(weir, "main") == 0, "the cursor passes dead letters")
    assert sink(weir, "main")["dead_letters"] == 20
    listed = json.loads(weir.run("dead", "list", "-c", weir.config, "--data", weir.data, "--json", check=0).stdout)
    letters = listed["letters"] if isinstance(listed, dict) else listed
    assert sorted(letter["id"] for letter in letters) == sorted(b["id"] for b in body if b["x"] == "poison")
    assert all(letter["sink"] == "main" and "CHECK" in letter["reason"] for letter in letters)


def test_a_batch_that_fails_as_a_whole_is_bisected(gateway):
    """A deferred foreign key fails only at COMMIT: the store names no row."""
    weir = with_table(gateway, "parent TEXT GENERATED ALWAYS AS (json_extract(doc, '$.parent')) STORED "
                      "REFERENCES parents(name) DEFERRABLE INITIALLY DEFERRED")
    body = [{"id": f"r{n}", "key": f"k{n % 5}", "parent": "nobody" if n in (17, 18, 150) else "ok"}
            for n in range(200)]
    assert weir.post(body).status_code == 202
    weir.wait_count(197)
    wait_for(lambda: lag(weir, "main") == 0, "settled")
    assert sink(weir, "main")["dead_letters"] == 3
    assert not {"r17", "r18", "r150"} & set(weir.rows("main"))


def test_dead_letters_show_replay_drop(gateway):
    weir = with_table(gateway, "CHECK (doc NOT LIKE '%poison%')")
    first = weir.post({"id": "a", "key": "k", "x": "poison"}).json()["version"]
    weir.post({"id": "b", "key": "k", "x": "poison"})
    wait_for(lambda: sink(weir, "main")["dead_letters"] == 2, "two dead letters")
    at = ("-c", weir.config, "--data", weir.data)
    shown = weir.run("dead", "show", *at, "--sink", "main", "1", check=0).stdout
    assert '"poison"' in shown and "CHECK" in shown
    # replayed while the cause is still there: it stays
    assert weir.run("dead", "replay", *at, "--sink", "main", "1").returncode in (1, 3)
    assert sink(weir, "main")["dead_letters"] == 2
    # the same id is written again, newer, and only then the old letter is replayed: the newer stays
    newer = weir.post({"id": "a", "key": "other", "x": "fine"}).json()["version"]
    wait_for(lambda: "a" in weir.rows("main"), "the newer is there")
    with sqlite3.connect(weir.data / "main.db", timeout=20) as db:
        db.execute("PRAGMA writable_schema=ON")
        db.execute("UPDATE sqlite_schema SET sql = replace(sql, 'CHECK (doc NOT LIKE ''%poison%'')', 'CHECK (1)') WHERE name = 'events'")
        db.execute("PRAGMA schema_version = 77")
    weir.run("dead", "replay", *at, "--sink", "main", "1", check=0)
    assert newer > first and weir.rows("main")["a"][0] == newer
    weir.run("dead", "drop", *at, "--sink", "main", "2", check=0)
    wait_for(lambda: sink(weir, "main")["dead_letters"] == 0, "none is left")
    assert set(weir.rows("main")) == {"a"}
    # without a gateway the same commands work
    weir.stop()
    assert weir.run("dead", "list", *at, check=0).stdout.count("poison") == 0


def test_dead_letters_at_their_cap_stop_the_consumer_and_say_so(gateway):
    config = TWO.replace("version: 1", "version: 1\nlimits: {dead: 64KiB}")
    weir = with_table(gateway, "CHECK (doc NOT LIKE '%poison%')", config)
    for n in range(40):
        weir.post({"id": f"p{n}", "key": "k", "x": "poison", "pad": "y" * 4000})
    weir.post({"id": "behind", "key": "k"})
    stopped = wait_for(lambda: [c for c in weir.status()["consumers"] if c["name"] == "main" and c["stopped"]],
                       "the consumer stops")
    assert "dead" in stopped[0]["why_stopped"]
    weir.wait_count(41, "copy")
    assert "behind" not in weir.rows("main")
    at = ("-c", weir.config, "--data", weir.data)
    weir.run("dead", "drop", *at, "--sink", "main", "--all", check=0)
    wait_for(lambda: sink(weir, "main")["dead_letters"] > 0 or "behind" in weir.rows("main"), "it goes on")
    weir.run("dead", "drop", *at, "--sink", "main", "--all", check=0)
    wait_for(lambda: "behind" in weir.rows("main"), "what was behind is delivered", 30)


def test_key_order_under_failures(gateway):
    """A lock fails calls at times, and more comes meanwhile; the history of each key must still rise."""
    weir = gateway(config=TWO, start=False)
    weir.data.mkdir()
    with sqlite3.connect(weir.data / "copy.db") as db:
        db.execute(CHECKED.format(more="x INTEGER"))
        db.executescript("""
            CREATE TABLE history(n INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, version INTEGER);
            CREATE TRIGGER keep AFTER INSERT ON events BEGIN
                INSERT INTO history(key, version) VALUES (NEW.key, NEW.version); END;
        """)
    weir.start()
    total = 0
    for round_ in range(5):
        weir.post([{"id": f"o{round_}-{n}", "key": f"k{n % 3}"} for n in range(60)])
        total += 60
        lock = sqlite3.connect(weir.data / "copy.db", isolation_level=None, timeout=20)
        lock.execute("BEGIN IMMEDIATE")
        failed = sink(weir, "copy")["retries"]
        for part in "pqr":
            weir.post([{"id": f"{part}{round_}-{n}", "key": f"k{n % 3}"} for n in range(60)])
            total += 60
            if part == "p":
                wait_for(lambda: sink(weir, "copy")["retries"] > failed, "it is being retried")
        lock.execute("ROLLBACK")
        lock.close()
    weir.wait_count(total, "copy")
    with weir.database("copy") as db:
        rows = db.execute("SELECT key, version FROM history ORDER BY n").fetchall()
    assert len(rows) == total
    for key in ("k0", "k1", "k2"):
        versions = [v for k, v in rows if k == key]
        assert versions == sorted(versions)


def test_memory_is_flat_behind_a_dead_store(gateway, tmp_path):
    pause = tmp_path / "pause"
    pause.write_text("")
    weir = gateway(config=f"""
version: 1
streams: {{events: {{id: /id, sinks: [nowhere]}}}}
sinks: {{nowhere: {{kind: "null", pause_file: "{pause}"}}}}
""")

    def resident():
        with open(f"/proc/{weir.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    pad = "x" * 16000
    for n in range(3000):
        assert weir.post([{"id": f"m{n}-{i}", "pad": pad} for i in range(5)]).status_code == 202
        if n == 1500:
            before = resident()
    if "build-" not in weir.binary:
        assert resident() - before < 48 << 20
    pause.unlink()
    wait_for(lambda: lag(weir, "nowhere") == 0, "drained", 60)


@pytest.mark.parametrize("down", [True, False])
def test_an_array_of_ten_thousand_is_all_there(gateway, down):
    weir = gateway(config=TWO)
    lock = sqlite3.connect(weir.data / "copy.db", isolation_level=None) if down else None
    if lock:
        lock.execute("BEGIN IMMEDIATE")
    assert weir.post([{"id": f"t{n}", "key": str(n), "pad": "z" * 1000} for n in range(10000)]).status_code == 202
    if lock:
        lock.execute("ROLLBACK")
    for store in ("main", "copy"):
        weir.wait_count(10000, store, timeout=60)
