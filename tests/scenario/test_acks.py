"""Ack levels: nothing is ever answered with more than what happened."""

import sqlite3
import threading

import pytest

from weir import SLOW, wait_for

TWO = """
version: 1
streams:
  events: {id: /id, primary: main, sinks: [main, copy], ack_timeout: 1s}
sinks:
  main: {kind: sqlite}
  copy: {kind: sqlite, retry_min: 20ms, retry_max: 200ms}
"""


def locked(weir, sink):
    """Takes the store's write lock, as a backup or a colleague's shell would."""
    db = sqlite3.connect(weir.data / f"{sink}.db", isolation_level=None, timeout=10)
    db.execute("BEGIN IMMEDIATE")
    return db


def test_stored_and_everywhere_are_committed_when_answered(gateway):
    weir = gateway(config=TWO)
    for n in range(50):
        level = ("stored", "everywhere")[n % 2]
        answer = weir.post({"id": f"a{n}"}, query=f"?ack={level}")
        assert answer.status_code == 201 and answer.json()["ack"] == level
        assert f"a{n}" in weir.rows("main")
        if level == "everywhere":
            assert f"a{n}" in weir.rows("copy")


def test_array_answers_each_record(gateway):
    weir = gateway(config=TWO)
    answer = weir.post([{"id": f"a{n}"} for n in range(100)], query="?ack=everywhere")
    assert answer.status_code == 201
    assert [r["outcome"] for r in answer.json()["records"]] == ["stored"] * 100
    assert weir.count("main") == weir.count("copy") == 100


def test_honest_downgrade_while_a_store_is_locked(gateway):
    weir = gateway(config=TWO)
    weir.post({"id": "first"}, query="?ack=everywhere")
    lock = locked(weir, "copy")
    answer = weir.post({"id": "late"}, query="?ack=everywhere")
    assert answer.status_code == 202 and answer.json()["ack"] == "durable" and answer.json()["position"]
    assert weir.post({"id": "primary"}, query="?ack=stored").status_code == 201  # the other sink is well
    # once its breaker is open nobody waits for it
    wait_for(lambda: [s for s in weir.status()["sinks"] if s["name"] == "copy"][0]["breaker_open"], "breaker")
    answer = weir.post({"id": "later"}, query="?ack=everywhere")
    assert answer.status_code == 202 and answer.json()["ack"] == "durable"
    assert answer.elapsed.total_seconds() < 0.9 * SLOW
    lock.execute("COMMIT")
    weir.wait_count(4, "copy")
    wait_for(lambda: weir.post({"id": "again"}, query="?ack=everywhere").status_code == 201, "breaker closes")


REFUSING = """
CREATE TABLE events(id TEXT PRIMARY KEY NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, doc TEXT NOT NULL,
                    attributes TEXT, CHECK (doc NOT LIKE '%poison%'))
"""


@pytest.fixture
def refusing(gateway):
    weir = gateway(config=TWO, start=False)
    weir.data.mkdir()
    with sqlite3.connect(weir.data / "main.db") as db:
        db.execute(REFUSING)
    return weir.start()


def test_refused_by_a_store_that_was_asked(refusing):
    weir = refusing
    answer = weir.post({"id": "bad", "x": "poison"}, query="?ack=stored")
    assert answer.status_code == 422 and "constraint" in answer.text.lower()
    assert weir.post({"id": "ok"}, query="?ack=stored").status_code == 201
    answer = weir.post([{"id": "g1"}, {"id": "b1", "x": "poison"}, {"id": "g2"}], query="?ack=everywhere")
    assert answer.status_code == 207
    assert [r["outcome"] for r in answer.json()["records"]] == ["stored", "refused", "stored"]
    # durable says what it is: accepted, and a dead letter where it was refused
    assert weir.post({"id": "bad2", "x": "poison"}).status_code == 202
    weir.wait_count(5, "copy") if False else wait_for(lambda: weir.count("copy") == 6, "the other store has all")
    assert sorted(weir.rows("main")) == ["g1", "g2", "ok"]
    listed = weir.run("dead", "list", "-c", weir.config, "--data", weir.data, "--json", check=0)
    assert listed.stdout.count("bad") >= 2


def test_received_is_flushed_without_anybody_waiting(weir):
    answer = weir.post({"id": "r"}, query="?ack=received")
    assert answer.status_code == 202 and answer.json()["ack"] == "received" and "position" not in answer.json()
    weir.wait_count(1)


def test_many_clients_each_get_their_own_answer(weir):
    wrong = []

    def client(c):
        session = __import__("requests").Session()
        session.trust_env = False
        for n in range(60):
            level = ("received", "durable", "stored", "everywhere")[n % 4]
            answer = session.post(f"{weir.url}/v1/streams/events?ack={level}", json={"id": f"c{c}-{n}"})
            if answer.json()["id"] != f"c{c}-{n}" or answer.json()["ack"] != level:
                wrong.append(answer.text)

    clients = [threading.Thread(target=client, args=(c,)) for c in range(16)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert not wrong
    weir.wait_count(16 * 60)


def test_what_waits_is_charged_with_all_that_it_holds(gateway):
    """A small body may be much in the log: ids that weir gives, and the trace of the request at each record."""
    weir = gateway(config=TWO.replace("id: /id, ", "").replace("1s", "30s"))
    weir.post({}, query="?ack=everywhere")
    lock = locked(weir, "main")
    n, state = 1000, "a=" + "x" * 500
    answers = []
    headers = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01", "tracestate": state}
    client = threading.Thread(
        target=lambda: answers.append(weir.post([{}] * n, query="?ack=stored", headers=headers)))
    client.start()
    used = lambda: weir.get("/v1/status").json()["memory"]["used_bytes"]  # noqa: E731
    wait_for(lambda: used() > n * (len(state) + 55 + 36), "it is charged")
    lock.execute("ROLLBACK")
    client.join(30 * SLOW)
    assert answers[0].status_code == 201
    wait_for(lambda: used() == 0, "and given back")
