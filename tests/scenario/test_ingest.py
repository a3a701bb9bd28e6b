"""What a POST may carry, and what the answer says. Clients: requests, httpx, curl."""

import gzip
import json
import re
import subprocess
import uuid

import httpx
import pytest

CONFIG = """
version: 1
listen: 127.0.0.1:0
streams:
  orders: {id: /order_no, key: /user_id, primary: main, sinks: [main]}
  loose: {primary: main, sinks: [main]}
  deep: {id: /a/b~1c/0, primary: main, sinks: [main]}
sinks:
  main: {kind: sqlite}
"""


@pytest.fixture
def orders(gateway):
    return gateway(config=CONFIG, stream="orders")


def order(n, **more):
    return {"order_no": f"o-{n}", "user_id": n % 7, "order_amount": 12.5, **more}


def test_one_object(orders):
    answer = orders.post(order(1))
    assert answer.status_code == 202
    body = answer.json()
    assert body["id"] == "o-1" and body["ack"] == "durable" and body["position"]
    assert 0 < body["version"] < 2**63
    orders.wait_count(1, table="orders")


def test_array_every_record_has_its_line(orders):
    answer = orders.post([order(n) for n in range(5)])
    assert answer.status_code == 202
    records = answer.json()["records"]
    assert [r["id"] for r in records] == [f"o-{n}" for n in range(5)]
    versions = [r["version"] for r in records]
    assert versions == sorted(versions) and len(set(versions)) == 5
    assert sum('"id"' in line for line in answer.text.splitlines()) == 5
    orders.wait_count(5, table="orders")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n"])
def test_ndjson_with_httpx(orders, end, last):
    text = end.join(json.dumps(order(n)) for n in range(4)) + (end if last else "")
    with httpx.Client(trust_env=False) as client:
        answer = client.post(f"{orders.url}/v1/streams/orders", content=text,
                             headers={"Content-Type": "application/x-ndjson"})
    assert answer.status_code == 202 and len(answer.json()["records"]) == 4
    orders.wait_count(4, table="orders")


def test_gzip_with_curl(orders, tmp_path):
    path = tmp_path / "body.gz"
    path.write_bytes(gzip.compress(json.dumps([order(n) for n in range(1000)]).encode()))
    done = subprocess.run(["curl", "-s", "-w", "%{http_code}", "-H", "Content-Type: application/json", "-H",
                           "Content-Encoding: gzip", "--data-binary", f"@{path}",
                           f"{orders.url}/v1/streams/orders"], capture_output=True, text=True)
    assert done.stdout.endswith("202"), done.stdout[-200:]
    orders.wait_count(1000, table="orders")


def test_chunked_body_from_a_generator(orders):
    def pieces():
        text = json.dumps(order(1)).encode()
        for byte in text:
            yield bytes([byte])
    answer = orders.session.post(f"{orders.url}/v1/streams/orders", data=pieces(),
                                 headers={"Content-Type": "application/json"})
    assert answer.status_code == 202 and answer.json()["id"] == "o-1"


def test_bytes_come_back_as_they_went_in(orders):
    text = '{ "order_no" : "x\\u00e9" ,"user_id":1,  "z":1.50, "a":1e2, "s":"\\ud83e\\udd17 \U0001F62D", "n":"x\\u0000y" }'
    answer = orders.post(data=("  " + text + " \n").encode())
    assert answer.status_code == 202 and answer.json()["id"] == "xé"
    orders.wait_count(1, table="orders")
    assert orders.rows(table="orders")["xé"][1] == text
    read = orders.get("/v1/streams/orders/x%C3%A9")
    assert read.content.decode() == text and read.headers["Content-Type"].startswith("application/json")


def test_integer_ids_and_keys_become_decimal_text(orders):
    answer = orders.post({"order_no": -9223372036854775808, "user_id": 9223372036854775807})
    assert answer.json()["id"] == "-9223372036854775808"
    orders.wait_count(1, table="orders")
    row = orders.rows(table="orders", columns="id, key")
    assert row == {"-9223372036854775808": ("9223372036854775807",)}


def test_pointer_with_escapes_and_index(orders):
    assert orders.post({"a": {"b/c": ["deep-id"]}}, stream="deep").json()["id"] == "deep-id"


def test_idempotency_key_then_uuid_v7(orders):
    first = orders.post({"x": 1}, stream="loose", headers={"Idempotency-Key": "key-1"}).json()
    again = orders.post({"x": 1}, stream="loose", headers={"Idempotency-Key": "key-1"}).json()
    assert first["id"] == again["id"] == "key-1" and again["version"] > first["version"]
    given = [orders.post({"x": n}, stream="loose").json()["id"] for n in range(50)]
    assert all(uuid.UUID(g).version == 7 for g in given)
    assert given == sorted(given) and len(set(given)) == 50
    orders.wait_count(51, table="loose")


def test_idempotency_key_with_several_records_is_refused(orders):
    answer = orders.post([{"x": 1}, {"x": 2}], stream="loose", headers={"Idempotency-Key": "k"})
    assert answer.status_code == 400 and "Idempotency-Key" in answer.json()["detail"]


def test_the_same_id_again_replaces(orders):
    orders.post(order(1, state="new"))
    orders.post(order(1, state="paid"))
    orders.post([order(1, state="sent"), order(1, state="done")])
    orders.wait_count(1, table="orders")
    last = orders.get("/v1/status").json()
    assert last
    from weir import wait_for
    wait_for(lambda: '"done"' in orders.rows(table="orders")["o-1"][1], "the last one wins")


def test_limits_of_ids(orders):
    ok = orders.post({"order_no": "x" * 512, "user_id": "é" * 256})
    assert ok.status_code == 202
    for bad in ({"order_no": "x" * 513, "user_id": 1}, {"order_no": "", "user_id": 1},
                {"order_no": "a\0b", "user_id": 1}, {"order_no": 1.5, "user_id": 1},
                {"order_no": None, "user_id": 1}, {"order_no": ["a"], "user_id": 1},
                {"user_id": 1}, {"order_no": "a"}, {"order_no": "a", "user_id": "y" * 513}):
        answer = orders.post(bad)
        assert answer.status_code == 400, bad
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert re.search("order_no|user_id", answer.json()["detail"]), answer.text
    orders.wait_count(1, table="orders")


def test_trace_context_is_kept_with_the_record(orders):
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    orders.post(order(1), headers={"traceparent": parent})
    orders.wait_count(1, table="orders")
    kept = orders.rows(table="orders", columns="id, attributes")["o-1"][0]
    assert json.loads(kept) == {"traceparent": parent}


@pytest.mark.parametrize("level,status", [("received", 202), ("durable", 202), ("stored", 201),
                                          ("everywhere", 201)])
def test_ack_by_query(orders, level, status):
    answer = orders.post(order(1), query=f"?ack={level}")
    assert answer.status_code == status and answer.json()["ack"] == level
    assert ("position" in answer.json()) == (level != "received")
    if level in ("stored", "everywhere"):
        assert orders.count(table="orders") == 1  # already there when the answer came


def test_a_body_of_many_records(orders):
    answer = orders.post([order(n, text="t" * 2000) for n in range(5000)])
    assert answer.status_code == 202 and len(answer.json()["records"]) == 5000
    orders.wait_count(5000, table="orders")
