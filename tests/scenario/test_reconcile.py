"""weir reconcile: finds what is missing, extra or different, tells lag apart, repairs."""

import json
import sqlite3

import xxhash

from weir import wait_for

TWO = """
version: 1
streams:
  events: {id: /id, primary: main, sinks: [main, copy]}
sinks:
  main: {kind: sqlite}
  copy: {kind: sqlite, retry_min: 20ms, retry_max: 200ms}
"""


def write_ids(weir, answers, name="ids"):
    path = weir.folder / name
    with open(path, "w") as out:
        for answer, doc in answers:
            text = json.dumps(doc, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            out.write(json.dumps({"stream": "events", "id": answer["id"], "version": answer["version"],
                                  "hash": xxhash.xxh3_128(text.encode()).hexdigest()}) + "\n")
    return path


def fill(weir, n):
    docs = [{"id": f"r{i}", "n": i, "t": "é\U0001F62D"} for i in range(n)]
    answer = weir.post(docs).json()["records"]
    for store in ("main", "copy"):
        weir.wait_count(n, store)
    return write_ids(weir, zip(answer, docs))


def damage(weir, store, *statements):
    with sqlite3.connect(weir.data / f"{store}.db", timeout=20) as db:
        for statement in statements:
            db.execute(statement)


def test_equal_is_0_beside_a_running_gateway(gateway):
    weir = gateway(config=TWO)
    ids = fill(weir, 500)
    at = ("-c", weir.config, "--data", weir.data)
    weir.run("reconcile", *at, check=0)
    weir.run("reconcile", *at, "--ids", ids, check=0)


def test_each_kind_of_difference_is_found_and_repaired(gateway):
    weir = gateway(config=TWO)
    ids = fill(weir, 300)
    at = ("-c", weir.config, "--data", weir.data)
    damage(weir, "copy", "DELETE FROM events WHERE id IN ('r1', 'r2', 'r3')",
           "UPDATE events SET doc = replace(doc, '\"n\":', '\"n\":1') WHERE id IN ('r10', 'r11')",
           "INSERT INTO events(id, key, version, doc) VALUES ('ghost', 'g', 1, '{\"id\":\"ghost\"}')")
    done = weir.run("reconcile", *at, "--json", check=1)
    found = json.loads(done.stdout)
    text = json.dumps(found)
    for name in ("r1", "r2", "r3", "r10", "r11", "ghost"):
        assert f'"{name}"' in text, text
    part = [p for p in found["sinks"] if p["sink"] == "copy"][0]
    assert (part["missing"], part["different"], part["extra"]) == (3, 2, 1)
    with_ids = json.loads(weir.run("reconcile", *at, "--ids", ids, "--json", check=1).stdout)
    part = [p for p in with_ids["sinks"] if p["sink"] == "copy"][0]
    assert (part["missing"], part["different"]) == (3, 2)
    human = weir.run("reconcile", *at, check=1).stdout
    assert "missing" in human and "r1" in human
    weir.run("reconcile", *at, "--repair")
    damage(weir, "copy", "DELETE FROM events WHERE id = 'ghost'")
    weir.run("reconcile", *at, check=0)
    weir.run("reconcile", *at, "--ids", ids, check=0)
    assert weir.rows("copy") == weir.rows("main")


def test_the_primary_is_repaired_from_the_log_by_an_id_list(gateway):
    weir = gateway(config=TWO)
    ids = fill(weir, 50)
    at = ("-c", weir.config, "--data", weir.data)
    damage(weir, "main", "DELETE FROM events WHERE id IN ('r5', 'r6')")
    weir.run("reconcile", *at, "--ids", ids, check=1)
    weir.run("reconcile", *at, "--ids", ids, "--repair")
    weir.run("reconcile", *at, "--ids", ids, check=0)
    assert weir.rows("copy") == weir.rows("main")


def test_lag_is_told_apart_from_loss(gateway):
    weir = gateway(config=TWO)
    fill(weir, 20)
    lock = sqlite3.connect(weir.data / "copy.db", isolation_level=None, timeout=20)
    lock.execute("BEGIN IMMEDIATE")
    docs = [{"id": f"late{i}"} for i in range(30)]
    answer = weir.post(docs).json()["records"]
    weir.wait_count(50, "main")
    ids = write_ids(weir, zip(answer, docs), "late")
    at = ("-c", weir.config, "--data", weir.data)
    done = weir.run("reconcile", *at, "--ids", ids, "--json", check=0)
    part = [p for p in json.loads(done.stdout)["sinks"] if p["sink"] == "copy"][0]
    assert (part["lag"], part["missing"]) == (30, 0)
    lock.execute("ROLLBACK")
    weir.wait_count(50, "copy")
    wait_for(lambda: json.loads(weir.run("reconcile", *at, "--ids", ids, "--json", check=0).stdout)["sinks"][0]["lag"] == 0, "no lag")


def test_without_a_gateway(gateway):
    weir = gateway(config=TWO)
    ids = fill(weir, 40)
    weir.stop()
    at = ("-c", weir.config, "--data", weir.data)
    weir.run("reconcile", *at, "--ids", ids, check=0)
    damage(weir, "copy", "DELETE FROM events WHERE id = 'r7'")
    weir.run("reconcile", *at, check=1)
    weir.run("reconcile", *at, "--repair")
    weir.run("reconcile", *at, check=0)


def test_bad_id_lists_are_named_with_their_line(gateway):
    weir = gateway(config=TWO)
    path = weir.folder / "bad"
    path.write_text('{"stream":"events","id":"a"}\nnonsense\n')
    done = weir.run("reconcile", "-c", weir.config, "--data", weir.data, "--ids", path, check=2)
    assert ":2" in done.stderr or "line 2" in done.stderr
