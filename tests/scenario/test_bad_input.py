"""Bad input: an error that names the place, nothing stored, the connection usable again."""

import gzip
import json
import zlib

import pytest

from weir import wait_for

BAD = {  # name: (body, content type, what the detail must name)
    "truncated": (b'{"id":"a"', "application/json", ("10", "9", "end")),
    "truncated array": (b'[{"a":1},{"a":2}', "application/json", ("end", "16", "17")),
    "second element bad": (b'[{"id":"a"},{"id":}]', "application/json", ("18", "1")),
    "not an object": (b"17", "application/json", ("object",)),
    "element not an object": (b'[{"id":"a"},17]', "application/json", ("1",)),
    "empty": (b"", "application/json", ("empty",)),
    "blank": (b" \n ", "application/json", ("empty",)),
    "empty array": (b"[]", "application/json", ("empty",)),
    "concatenated": (b'{"a":1}{"b":2}', "application/json", ("ndjson", "--data-binary")),
    "concatenated lines": (b'{"a":1}{"b":2}', "application/x-ndjson", ("--data-binary",)),
    "ndjson second line": (b'{"id":"a"}\n{"id":}\n', "application/x-ndjson", ("line 2",)),
    "ndjson array line": (b'{"id":"a"}\n[1]\n', "application/x-ndjson", ("line 2",)),
    "duplicate names": (b'{"id":"a","x":1,"x":2}', "application/json", ("duplicate", "x")),
    "integer too large": (b'{"id":"a","x":9223372036854775808}', "application/json", ("integer",)),
    "huge exponent": (b'{"id":"a","x":1e999}', "application/json", ()),
    "lone surrogate": (b'{"id":"a","x":"\\ud800"}', "application/json", ("surrogate",)),
    "invalid UTF-8": (b'{"id":"a","x":"\xff"}', "application/json", ("UTF-8",)),
    "NUL in a name": (b'{"id":"a","x\\u0000y":1}', "application/json", ("0000",)),
    "BOM": (b'\xef\xbb\xbf{"id":"a"}', "application/json", ()),
    "comment": (b'{"id":"a"/*x*/}', "application/json", ()),
    "not gzip": None,
}


@pytest.mark.parametrize("name", [n for n in BAD if BAD[n]])
def test_refused_with_the_place_and_nothing_stored(weir, name):
    body, content_type, words = BAD[name]
    answer = weir.post(data=body, headers={"Content-Type": content_type})
    assert answer.status_code == 400, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == 400 and problem["title"] and problem["detail"]
    assert not words or any(word.lower() in json.dumps(problem).lower() for word in words), problem
    # the same connection carries the next request, and only that one is stored
    assert weir.post({"id": "good"}).status_code == 202
    weir.wait_count(1)


def test_a_bad_element_anywhere_stores_nothing(weir):
    body = [{"id": f"r{n}"} for n in range(1000)]
    body[777] = {"id": 1.5}
    answer = weir.post(body)
    assert answer.status_code == 400 and "777" in answer.text
    weir.post({"id": "marker"}, query="?ack=stored")
    assert weir.count() == 1


def test_content_types(weir):
    for bad in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"):
        answer = weir.post(data=b'{"id":"a"}', headers={"Content-Type": bad})
        assert answer.status_code == 415, bad
        assert "application/json" in answer.json()["detail"]
    for good in ("application/json; charset=utf-8", "application/JSON", "application/vnd.x+json"):
        assert weir.post(data=b'{"id":"a"}', headers={"Content-Type": good}).status_code == 202, good
    answer = weir.post(data=b'{"id":"a"}', headers={"Content-Encoding": "br"})
    assert answer.status_code == 415 and "gzip" in answer.json()["detail"]


def test_bad_gzip(weir):
    good = gzip.compress(b'{"id":"a"}')
    for bad in (b"plain", good[:-5], good[:10], good + b"junk", zlib.compress(b'{"id":"a"}'),
                good[:-8] + b"\0\0\0\0" + good[-4:]):
        answer = weir.post(data=bad, headers={"Content-Encoding": "gzip"})
        assert answer.status_code == 400 and "gzip" in answer.json()["detail"], bad
    assert weir.post(data=good, headers={"Content-Encoding": "gzip"}).status_code == 202
    weir.wait_count(1)


def resident_kib(weir):
    for line in open(f"/proc/{weir.process.pid}/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1])


def test_a_gzip_bomb_is_413_with_flat_memory(weir):
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(1024)) + packer.flush()
    assert len(bomb) < 2 << 20
    weir.post({"id": "warm"})
    before = resident_kib(weir)
    for _ in range(3):
        answer = weir.post(data=bomb, headers={"Content-Encoding": "gzip"})
        assert answer.status_code == 413, answer.text
    if "build-" not in weir.binary:  # a sanitizer's memory is its own
        assert resident_kib(weir) - before < 64 * 1024


def test_too_large_is_413(gateway):
    weir = gateway(config="""
version: 1
limits: {body: 1MiB, records: 10}
streams: {events: {id: /id, sinks: [main]}}
sinks: {main: {kind: sqlite}}
""")
    assert weir.post({"id": "a", "x": "y" * (1 << 20)}).status_code == 413
    assert weir.post([{"id": str(n)} for n in range(11)]).status_code == 413
    assert weir.post([{"id": str(n)} for n in range(10)]).status_code == 202
    weir.wait_count(10)


def test_larger_than_a_segment_is_413(gateway):
    weir = gateway(config="""
version: 1
log: {kind: journal, segment: 1MiB, max_bytes: 64MiB}
streams: {events: {id: /id, sinks: [main]}}
sinks: {main: {kind: sqlite}}
""")
    assert weir.post({"id": "a", "x": "y" * (2 << 20)}).status_code == 413
    assert weir.post({"id": "b", "x": "y" * (300 << 10)}).status_code == 202
    weir.wait_count(1)


def test_paths_and_methods(weir):
    assert weir.post({"id": "a"}, stream="nothere").status_code == 404
    assert "nothere" in weir.post({"id": "a"}, stream="nothere").json()["detail"]
    assert weir.get("/nowhere").status_code == 404
    answer = weir.session.delete(weir.url + "/v1/streams/events")
    assert answer.status_code == 405 and "POST" in answer.headers["Allow"]
    assert weir.post({"id": "a"}, query="?ack=maybe").status_code == 400
    assert weir.get("/v1/streams/events/missing").status_code == 404
    with weir.socket() as raw:
        raw.sendall(b"GET /v1/streams/events/%zz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_deep_nesting(weir):
    ok = b'{"id":"deep","v":' + b"[" * 900 + b"]" * 900 + b"}"
    assert weir.post(data=ok).status_code == 202
    for depth in (5000, 200000):
        bad = b'{"id":"deep2","v":' + b"[" * depth + b"]" * depth + b"}"
        assert weir.post(data=bad).status_code == 400
    weir.wait_count(1)


def test_every_truncation_of_a_record_is_refused(weir):
    text = '{"id":"a","x":[1,2.5,true,null,"s\\n\\u00e9é"],"y":{"z":-1e-5}}'.encode()
    for n in range(len(text)):
        answer = weir.post(data=text[:n])
        assert answer.status_code == 400, text[:n]
    assert weir.post(data=text).status_code == 202
    weir.wait_count(1)
    wait_for(lambda: weir.rows()["a"][1].encode() == text, "exact")
