"""Stopping: in time, with nothing lost, whatever the stores do."""

import json
import re
import signal
import socket
import sqlite3
import subprocess
import threading
import time

import pytest
import requests

from weir import SLOW, wait_for


def test_sigterm_under_load_loses_nothing_it_answered(gateway):
    weir = gateway()
    acked = []
    stop = threading.Event()

    def client(c):
        session = requests.Session()
        session.trust_env = False
        n = 0
        while not stop.is_set():
            try:
                answer = session.post(f"{weir.url}/v1/streams/events", json={"id": f"{c}-{n}"}, timeout=10)
                if answer.status_code == 202:
                    acked.append(answer.json()["id"])
                n += 1
            except requests.RequestException:
                return

    clients = [threading.Thread(target=client, args=(c,)) for c in range(8)]
    for thread in clients:
        thread.start()
    wait_for(lambda: len(acked) > 500, "load runs")
    weir.stop()
    stop.set()
    for thread in clients:
        thread.join()
    weir.start()
    wait_for(lambda: set(acked) <= set(weir.rows()), "every answered record is there")


CONFIG = """
version: 1
streams: {events: {id: /id, sinks: [main], ack_timeout: 60s}}
sinks: {main: {kind: sqlite, retry_min: 5s, retry_max: 60s}}
limits: {drain_timeout: 5s}
"""


def wait_closed(weir):
    """Until it takes no connection any more: it has begun to stop."""
    def refused():
        try:
            weir.socket().close()
        except ConnectionRefusedError:
            return True
    wait_for(refused, "it stops accepting")


def test_sigterm_while_a_store_is_down_ends_in_time_and_keeps_the_backlog(gateway):
    weir = gateway(config=CONFIG)
    weir.post({"id": "first"}, query="?ack=stored")
    lock = sqlite3.connect(weir.data / "main.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    for n in range(100):
        weir.post({"id": f"b{n}"})
    wait_for(lambda: weir.status()["sinks"][0]["retries"] > 0, "it retries")
    began = time.monotonic()
    weir.stop()
    assert time.monotonic() - began < 10 * SLOW
    lock.execute("ROLLBACK")
    weir.start()
    weir.wait_count(101)


def test_requests_that_wait_for_a_store_are_answered_at_sigterm(gateway):
    weir = gateway(config=CONFIG)
    weir.post({"id": "first"}, query="?ack=stored")
    lock = sqlite3.connect(weir.data / "main.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(weir.post({"id": "w"}, query="?ack=stored")))
    thread.start()
    wait_for(lambda: any(c["lag"] for c in requests.get(weir.url + "/v1/status", timeout=20).json()["consumers"]), "it waits")
    began = time.monotonic()
    weir.stop()
    assert time.monotonic() - began < 10 * SLOW
    thread.join(20)
    lock.execute("ROLLBACK")
    assert answers and answers[0].status_code in (201, 202)
    assert answers[0].json()["ack"] in ("durable", "stored")


def test_a_store_that_comes_back_while_stopping_is_still_answered_for(gateway):
    weir = gateway(config=CONFIG.replace("retry_min: 5s, retry_max: 60s", "retry_min: 10ms, retry_max: 50ms")
                   .replace("drain_timeout: 5s", "drain_timeout: 60s"))
    weir.post({"id": "first"}, query="?ack=stored")
    lock = sqlite3.connect(weir.data / "main.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(weir.post({"id": "w"}, query="?ack=stored")))
    thread.start()
    wait_for(lambda: any(c["lag"] for c in requests.get(weir.url + "/v1/status", timeout=20).json()["consumers"]), "it waits")
    weir.process.send_signal(signal.SIGTERM)
    wait_closed(weir)
    lock.execute("ROLLBACK")
    thread.join(60 * SLOW)
    assert answers and answers[0].status_code == 201 and answers[0].json()["ack"] == "stored"
    assert weir.process.wait(60 * SLOW) == 0
    weir._joined()


def test_a_request_that_is_half_sent_at_sigterm_is_answered(weir):
    body = b'{"id":"half"}'
    with weir.socket() as raw:
        raw.sendall(b"POST /v1/streams/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n" % len(body) + body[:5])
        wait_for(lambda: weir.get("/healthz").ok, "the loops have read it")
        weir.process.send_signal(signal.SIGTERM)
        wait_closed(weir)
        raw.sendall(body[5:])
        assert raw.recv(4096).startswith(b"HTTP/1.1 202 ")
    assert weir.process.wait(60 * SLOW) == 0
    weir._joined()
    weir.start()
    weir.wait_count(1)


def test_a_call_that_hangs_in_a_store_does_not_hold_the_stop(gateway):
    weir = gateway(config=CONFIG.replace("kind: sqlite", "kind: sqlite, busy_timeout: 60s"))
    weir.post({"id": "first"}, query="?ack=stored")
    lock = sqlite3.connect(weir.data / "main.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    weir.post({"id": "b"})
    wait_for(lambda: weir.status()["consumers"][0]["lag"], "it is being written")
    began = time.monotonic()
    weir.stop()
    assert time.monotonic() - began < 10 * SLOW
    lock.execute("ROLLBACK")
    weir.start()
    weir.wait_count(2)


def test_a_second_signal_ends_at_once(gateway, tmp_path):
    pause = tmp_path / "pause"
    weir = gateway(config=CONFIG.replace("5s}", "60s}"))
    weir.post({"id": "first"}, query="?ack=stored")
    lock = sqlite3.connect(weir.data / "main.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    weir.post({"id": "b"})
    with weir.socket() as raw:  # a request that never completes keeps the drain waiting
        raw.sendall(b"POST /v1/streams/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
        weir.process.send_signal(signal.SIGTERM)
        weir.process.send_signal(signal.SIGINT)
        weir.process.wait(20 * SLOW)
    weir._joined()
    assert not pause.exists()
    lock.execute("ROLLBACK")
    weir.start()
    weir.wait_count(2)


def test_an_idle_gateway_stops_at_once(gateway):
    weir = gateway()
    began = time.monotonic()
    weir.stop()
    assert time.monotonic() - began < 3 * SLOW


def test_the_socket_file_of_a_killed_gateway_is_no_obstacle(gateway):
    weir = gateway()
    weir.kill()
    assert (weir.data / "weir.sock").exists()
    weir.start()
    assert weir.post({"id": "a"}).status_code == 202


def test_sighup_rereads_tokens(gateway):
    weir = gateway(config="""
version: 1
tokens: tokens.txt
streams: {events: {id: /id, sinks: [main]}}
sinks: {main: {kind: sqlite}}
""", start=False)
    path = weir.folder / "tokens.txt"
    path.write_text("firstfirstfirst1 write\n")
    path.chmod(0o600)
    weir.start()
    old, new = ({"Authorization": f"Bearer {t}"} for t in ("firstfirstfirst1", "secondsecond2222"))
    assert weir.post({"id": "a"}, headers=old).status_code == 202
    path.write_text("secondsecond2222 write\n")
    weir.process.send_signal(signal.SIGHUP)
    wait_for(lambda: weir.post({"id": "b"}, headers=new).status_code == 202, "the new token works")
    assert weir.post({"id": "c"}, headers=old).status_code == 401


def test_a_large_answer_leaves_whole(gateway):
    """Its client reads slowly; the kernel takes only a part of it at once."""
    weir = gateway()
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    raw.connect(("127.0.0.1", weir.port))
    raw.settimeout(20 * SLOW)
    n = 100_000
    body = b'{"a":1}\n' * n
    raw.sendall(b"POST /v1/streams/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body)
    wait_for(lambda: weir.status()["answers"].get("202"), "it is answered")
    weir.process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):  # it does not end before its reader has it
        weir.process.wait(3)
    got = bytearray()
    while piece := raw.recv(65536):
        got += piece
    head, text = bytes(got).split(b"\r\n\r\n", 1)
    assert len(text) == int(re.search(rb"Content-Length: (\d+)", head)[1])
    assert len(json.loads(text)["records"]) == n
    raw.close()
    assert weir.process.wait(30 * SLOW) == 0


def test_requests_that_come_while_it_ends_are_answered(gateway):
    """Connections whose requests were half sent; each is completed at another moment of the stop, which a
    hanging store makes long."""
    weir = gateway(config=CONFIG.replace("kind: sqlite", "kind: sqlite, busy_timeout: 60s"))
    weir.post({"id": "first"}, query="?ack=stored")
    lock = sqlite3.connect(weir.data / "main.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    weir.post({"id": "b"})
    wait_for(lambda: weir.status()["consumers"][0]["lag"], "it is being written")
    paths = ["/v1/status", "/metrics", "/v1/streams/events/first", "/readyz"]
    raws = []
    for i in range(80):
        raws.append(weir.socket())
        raws[-1].sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n" % paths[i % 4].encode())
    wait_for(lambda: weir.get("/healthz").ok, "the loops have read it")
    weir.process.send_signal(signal.SIGTERM)
    wait_closed(weir)
    answered = 0
    for raw in raws:
        try:
            weir.process.wait(0.08)  # at another moment
            break
        except subprocess.TimeoutExpired:
            pass
        try:
            raw.sendall(b"\r\n")
            answer = raw.recv(65536)
        except ConnectionError:
            continue  # it has just ended
        assert not answer or answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 ")), answer
        answered += bool(answer)
    assert weir.process.wait(30 * SLOW) == 0
    weir._joined()
    assert answered > 10
    lock.execute("ROLLBACK")
    for raw in raws:
        raw.close()


def test_a_long_replay_of_dead_letters_ends_early(gateway):
    weir = gateway()
    weir.post({"id": "first"}, query="?ack=stored")
    with sqlite3.connect(weir.data / "main.db") as db:
        db.execute("CREATE TRIGGER t BEFORE INSERT ON events BEGIN SELECT raise(ABORT, 'no'); END")
    n = 20_000
    weir.post([{"id": str(i)} for i in range(n)])
    dead = lambda: weir.status()["sinks"][0]["dead_letters"]  # noqa: E731
    wait_for(lambda: dead() == n, "all are dead letters", 60)
    with sqlite3.connect(weir.data / "main.db") as db:
        db.execute("DROP TRIGGER t")
    db.close()
    replay = subprocess.Popen([weir.binary, "dead", "replay", "--all", "--data", weir.data], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for(lambda: dead() < n, "it has begun")
    weir.stop()
    said = replay.communicate()[0]
    assert replay.returncode == 3 and "stopping" in said, said
    weir.start()
    assert 0 < dead() < n
    assert dead() + weir.count() - 1 in (n, n + 1)  # one may have been stored and not dropped yet
