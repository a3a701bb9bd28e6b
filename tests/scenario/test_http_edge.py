"""HTTP at its edges, over raw sockets: framing that is in doubt is 400 and closed, everything else works."""

import json
import os
import re
import socket
import threading

import pytest

from weir import SLOW, raw_exchange, wait_for

POST = b"POST /v1/streams/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def body(record, extra=b""):
    text = json.dumps(record).encode()
    return POST + extra + b"Content-Length: %d\r\n\r\n%s" % (len(text), text)


def statuses(answer):
    return [int(s) for s in re.findall(rb"HTTP/1\.1 (\d{3})", answer)]


T = b'{"id":"bad"}'
DOUBT = {
    "length with transfer coding": POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nc\r\n" + T + b"\r\n0\r\n\r\n",
    "transfer coding with length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 12\r\n\r\n" + T,
    "two lengths": POST + b"Content-Length: 12\r\nContent-Length: 13\r\n\r\n" + T,
    "two equal lengths": POST + b"Content-Length: 12\r\nContent-Length: 12\r\n\r\n" + T,
    "listed length": POST + b"Content-Length: 12, 12\r\n\r\n" + T,
    "signed length": POST + b"Content-Length: +12\r\n\r\n" + T,
    "negative length": POST + b"Content-Length: -12\r\n\r\n" + T,
    "hex length": POST + b"Content-Length: 0xc\r\n\r\n" + T,
    "empty length": POST + b"Content-Length: \r\n\r\n" + T,
    "overflowing length": POST + b"Content-Length: 18446744073709551628\r\n\r\n" + T,
    "no host": POST.replace(b"Host: x\r\n", b"") + b"Content-Length: 12\r\n\r\n" + T,
    "two hosts": POST + b"Host: y\r\nContent-Length: 12\r\n\r\n" + T,
    "folded header": POST + b"X-A: b\r\n c\r\nContent-Length: 12\r\n\r\n" + T,
    "folded first": b"POST /v1/streams/events HTTP/1.1\r\n Host: x\r\nHost: x\r\nContent-Length: 12\r\n\r\n" + T,
    "bare LF": POST.replace(b"Host: x\r\n", b"Host: x\n") + b"Content-Length: 12\r\n\r\n" + T,
    "bare LF end": POST + b"Content-Length: 12\n\n" + T,
    "bare CR": POST + b"X-A: b\rc\r\nContent-Length: 12\r\n\r\n" + T,
    "NUL in value": POST + b"X-A: b\0c\r\nContent-Length: 12\r\n\r\n" + T,
    "NUL in name": POST + b"X\0A: b\r\nContent-Length: 12\r\n\r\n" + T,
    "space before colon": POST + b"Content-Length : 12\r\n\r\n" + T,
    "empty name": POST + b": b\r\nContent-Length: 12\r\n\r\n" + T,
    "no colon": POST + b"Nonsense\r\nContent-Length: 12\r\n\r\n" + T,
    "unknown coding": POST + b"Transfer-Encoding: gzip\r\n\r\n" + T,
    "coding twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\nc\r\n" + T + b"\r\n0\r\n\r\n",
    "coding obfuscated": POST + b"Transfer-Encoding: xchunked\r\n\r\nc\r\n" + T + b"\r\n0\r\n\r\n",
    "coding identity": POST + b"Transfer-Encoding: identity\r\nContent-Length: 12\r\n\r\n" + T,
    "chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + T + b"\r\n0\r\n\r\n",
    "chunk signed": POST + b"Transfer-Encoding: chunked\r\n\r\n+c\r\n" + T + b"\r\n0\r\n\r\n",
    "chunk prefixed": POST + b"Transfer-Encoding: chunked\r\n\r\n0xc\r\n" + T + b"\r\n0\r\n\r\n",
    "chunk overflowing": POST + b"Transfer-Encoding: chunked\r\n\r\n1000000000000000c\r\n" + T + b"\r\n0\r\n\r\n",
    "chunk bare LF": POST + b"Transfer-Encoding: chunked\r\n\r\nc\n" + T + b"\n0\n\n",
    "chunk without CRLF": POST + b"Transfer-Encoding: chunked\r\n\r\nc\r\n" + T + b"0\r\n\r\n",
    "bad version": b"POST /v1/streams/events HTTP/1.x\r\nHost: x\r\nContent-Length: 12\r\n\r\n" + T,
    "two spaces": b"POST  /v1/streams/events HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n" + T,
}


@pytest.mark.parametrize("name", DOUBT)
def test_framing_in_doubt_is_400_and_closed(weir, name):
    smuggled = body({"id": "smuggled"})
    answer = raw_exchange(weir, DOUBT[name] + smuggled)
    assert statuses(answer) == [400], answer
    assert b"application/problem+json" in answer and b"onnection: close" in answer
    weir.post({"id": "after"}, query="?ack=stored")
    assert list(weir.rows()) == ["after"]


def test_pipelined_requests_in_one_segment(weir):
    many = b"".join(body({"id": f"p{n}"}) for n in range(200))
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = raw_exchange(weir, many + last)
    assert statuses(answer) == [202] * 200 + [200]
    assert re.findall(rb'"id":"(p\d+)"', answer) == [b"p%d" % n for n in range(200)]
    weir.wait_count(200)


def test_the_request_after_a_refused_one_is_parsed_cleanly(weir):
    bad = POST + b"Content-Length: 9\r\n\r\n{\"id\":}  "
    last = body({"id": "good"}, b"Connection: close\r\n")
    assert statuses(raw_exchange(weir, bad + last)) == [400, 202]
    weir.wait_count(1)


def test_empty_header_value(weir):
    assert statuses(raw_exchange(weir, body({"id": "a"}, b"X-Empty:\r\nConnection: close\r\n"))) == [202]


def test_expect_continue_before_the_body(weir):
    text = b'{"id":"expected"}'
    with weir.socket() as raw:
        raw.sendall(POST + b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(text))
        assert b"HTTP/1.1 100" in raw.recv(4096)
        raw.sendall(text)
        answer = b""
        while piece := raw.recv(4096):
            answer += piece
    assert statuses(answer) == [202]
    assert statuses(raw_exchange(weir, POST + b"Expect: tea\r\nContent-Length: 2\r\n\r\n"))[:1] == [417]


def test_too_large_with_expect_is_refused_unread(weir):
    answer = raw_exchange(weir, POST + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n")
    assert statuses(answer) == [413] and b"onnection: close" in answer


def test_chunks_of_one_byte_with_extension_and_trailer(weir):
    text = b'{"id":"chunky","x":"' + b"y" * 300 + b'"}'
    pieces = b"".join(b"1;a=b\r\n" + bytes([c]) + b"\r\n" for c in text)
    answer = raw_exchange(weir, POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\nX-T: 1\r\n\r\n")
    assert statuses(answer) == [202]
    weir.wait_count(1)
    assert weir.rows()["chunky"][1].encode() == text


def test_every_split_of_a_request_gives_the_same(weir):
    whole = body({"id": "split"}, b"Connection: close\r\n")
    for n in range(1, len(whole), 3):
        with weir.socket() as raw:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.sendall(whole[:n])
            raw.sendall(whole[n:])
            answer = b""
            while piece := raw.recv(4096):
                answer += piece
        assert statuses(answer) == [202], n
    weir.wait_count(1)


def test_heads_beyond_the_limits(weir):
    assert statuses(raw_exchange(weir, b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"))[:1] in ([431], [414])
    assert statuses(raw_exchange(weir, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 5000 + b"\r\n"))[:1] == [431]


def test_http_1_0_and_2(weir):
    assert statuses(raw_exchange(weir, b"GET /healthz HTTP/1.0\r\n\r\n")) == [200]
    assert statuses(raw_exchange(weir, b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n")) == [505]
    answer = raw_exchange(weir, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert statuses(answer) == [200] and answer.endswith(b"\r\n\r\n")


SLOW_CONFIG = """
version: 1
limits: {head_timeout: 300ms, body_timeout: 300ms, idle_timeout: 500ms}
streams: {events: {id: /id, sinks: [main]}}
sinks: {main: {kind: sqlite}}
"""


def test_slow_heads_and_bodies_meet_their_deadlines(gateway):
    weir = gateway(config=SLOW_CONFIG)
    assert statuses(raw_exchange(weir, b"POST /v1/streams/ev")) == [408]
    assert statuses(raw_exchange(weir, POST + b"Content-Length: 100\r\n\r\n{")) == [408]
    assert raw_exchange(weir, b"") == b""  # idle: closed without a word
    assert weir.post({"id": "a"}).status_code == 202


def open_files(weir):
    return len(os.listdir(f"/proc/{weir.process.pid}/fd"))


def test_many_slow_clients_do_not_keep_others_waiting(gateway):
    weir = gateway(config=SLOW_CONFIG)
    weir.post({"id": "warm"}, query="?ack=stored")  # all files of the sink are open
    base = open_files(weir)
    stop = threading.Event()
    held = []
    for _ in range(500):
        raw = weir.socket()
        raw.sendall(b"P")
        held.append(raw)
    for n in range(50):
        assert weir.post({"id": f"served{n}"}).status_code == 202
    stop.set()
    wait_for(lambda: open_files(weir) <= base + 5, "slow clients cut off", 20)
    for raw in held:
        raw.close()


def test_clients_that_close_in_mid_body_leave_nothing(weir):
    weir.post({"id": "warm"}, query="?ack=stored")  # all files of the sink are open
    base = open_files(weir)
    for _ in range(2000):
        with weir.socket() as raw:
            raw.sendall(POST + b"Content-Length: 1000\r\n\r\n{\"id\":")
    wait_for(lambda: open_files(weir) <= base + 5, "descriptors come back", 20)
    assert weir.post({"id": "after"}, query="?ack=stored").status_code == 201
    assert weir.count() == 2


def test_a_client_that_never_reads_harms_nobody(weir):
    with weir.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(0.5 * SLOW)
        try:
            for n in range(20000):
                raw.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        except TimeoutError:
            pass  # it stopped reading from us: good
        for n in range(100):
            assert weir.post({"id": f"x{n}"}).status_code == 202
    weir.wait_count(100)


def test_records_that_are_read_by_the_deaf_are_bounded(gateway):
    """Each asks for large records and reads none of them: the others get 503, and all is well once they leave."""
    weir = gateway(config="version: 1\nlimits: {body: 2MiB, memory: 8MiB}\nstreams: {events: {id: /id}}\n"
                          "sinks: {main: {kind: sqlite}}\n")
    weir.post({"id": "large", "text": "x" * (1 << 20)}, query="?ack=stored")
    deaf = []

    def refused():
        if len(deaf) < 200:
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", weir.port))
            raw.sendall(b"GET /v1/streams/events/large HTTP/1.1\r\nHost: x\r\n\r\n" * 8)
            deaf.append(raw)
        return weir.get("/v1/streams/events/large").status_code == 503

    wait_for(refused, "it is refused")
    assert weir.get("/healthz").ok
    for raw in deaf:
        raw.close()
    wait_for(lambda: weir.get("/v1/streams/events/large").ok, "it is read again")
