"""The journal: full and free again, verified and dumped, damaged and honest about it."""

import json

from weir import wait_for

SMALL = """
version: 1
log: {{kind: journal, segment: 1MiB, max_bytes: 8MiB}}
streams: {{events: {{id: /id, sinks: [nowhere]}}}}
sinks: {{nowhere: {{kind: "null", pause_file: "{pause}"}}}}
"""


def segments(weir):
    return sorted(p for p in (weir.data / "journal").iterdir() if p.is_file())


def test_a_full_log_refuses_with_retry_after_and_recovers(gateway, tmp_path):
    pause = tmp_path / "pause"
    pause.write_text("")
    weir = gateway(config=SMALL.format(pause=pause))
    accepted = 0
    for n in range(3000):
        answer = weir.post({"id": f"f{n}", "pad": "x" * 10000})
        if answer.status_code == 503:
            break
        assert answer.status_code == 202
        accepted += 1
    else:
        raise AssertionError("the log never filled")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert "full" in answer.json()["detail"]
    wait_for(lambda: weir.get("/readyz").status_code == 503, "not ready")
    assert 'cause="log_full"' in weir.get("/metrics").text
    size = sum(p.stat().st_size for p in segments(weir))
    assert size <= 12 << 20
    pause.unlink()
    wait_for(lambda: weir.post({"id": "again"}).status_code == 202, "space comes back")
    wait_for(lambda: sum(c["lag"] for c in weir.status()["consumers"]) == 0, "drained")
    weir.stop()
    weir.run("journal", "verify", weir.data, check=0)


def test_trim_keeps_the_journal_small(gateway):
    weir = gateway(config="""
version: 1
log: {kind: journal, segment: 1MiB, max_bytes: 8MiB}
streams: {events: {id: /id, sinks: [main]}}
sinks: {main: {kind: sqlite}}
""")
    for n in range(400):
        def sent():
            return weir.post([{"id": f"t{n}-{i}", "pad": "y" * 10000} for i in range(10)]).status_code == 202
        wait_for(sent, "taken")
    weir.wait_count(4000)
    wait_for(lambda: len(segments(weir)) <= 4, f"trimmed: {segments(weir)}")


def test_verify_and_dump(gateway):
    weir = gateway()
    docs = [{"id": f"d{n}", "t": "é"} for n in range(50)]
    answers = [weir.post(doc).json() for doc in docs]
    more = [{"id": f"e{n}"} for n in range(20)]
    answers += weir.post(more).json()["records"]
    weir.stop()
    assert weir.run("journal", "verify", weir.data, check=0).stdout
    dumped = [json.loads(line) for line in weir.run("journal", "dump", weir.data, check=0).stdout.splitlines()]
    assert [d["id"] for d in dumped] == [d["id"] for d in docs + more]
    assert [(d["id"], d["version"], d["position"]) for d in dumped] == \
        [(a["id"], a["version"], a["position"]) for a in answers]  # what was answered is where it lies
    assert all(d["version"] and d["position"] for d in dumped)


def written_segment(weir):
    """The segment that holds data, and where its bytes are."""
    for path in segments(weir):
        data = path.read_bytes()
        if b'"d0"' in data:
            return path, data
    raise AssertionError("no segment holds the records")


def test_a_torn_tail_is_cut_and_weir_starts(gateway):
    weir = gateway()
    for n in range(20):
        weir.post({"id": f"d{n}"})
    weir.wait_count(20)
    weir.kill()
    path, data = written_segment(weir)
    last = data.rindex(b'"d19"')
    with open(path, "r+b") as file:
        file.seek(last)
        file.write(b"\xff" * 6)
    weir.start()
    assert weir.post({"id": "after"}, query="?ack=stored").status_code == 201


def test_damage_in_the_middle_is_named_and_stops_only_its_reader(gateway, tmp_path):
    pause = tmp_path / "pause"
    pause.write_text("")
    weir = gateway(config=SMALL.format(pause=pause))
    for n in range(300):
        assert weir.post({"id": f"d{n}", "pad": "x" * 8000}).status_code == 202
    weir.kill()
    path, data = written_segment(weir)
    spot = data.index(b'"d5"')
    with open(path, "r+b") as file:
        file.seek(spot)
        file.write(b"XXXX")
    done = weir.run("journal", "verify", weir.data, check=1)
    assert path.name in done.stdout + done.stderr
    pause.unlink()
    weir.start()
    assert weir.post({"id": "goes on"}).status_code == 202
    stopped = wait_for(lambda: [c for c in weir.status()["consumers"] if c["stopped"]], "the reader stops")
    assert path.name in stopped[0]["why_stopped"]
    weir.stop()  # and it can still be stopped


def test_partitions_of_a_filled_directory_cannot_change(gateway):
    weir = gateway(config=SMALL.format(pause="/nonexistent/pause"))
    weir.post({"id": "a"})
    weir.stop()
    weir.config.write_text(weir.config.read_text().replace("kind: journal,", "kind: journal, partitions: 8,"))
    done = weir.run("serve", "-c", weir.config, "--data", weir.data, "--listen", "127.0.0.1:0")
    assert done.returncode == 2 and "partitions" in done.stderr


def test_another_segment_size_over_old_data(gateway):
    weir = gateway(config=SMALL.format(pause="/nonexistent/pause"))
    for n in range(300):
        weir.post({"id": f"s{n}", "pad": "x" * 8000})
    weir.stop()
    for size in ("2MiB", "1MiB"):
        weir.config.write_text(weir.config.read_text().replace("1MiB", "SIZE").replace("2MiB", "SIZE").replace("SIZE", size))
        weir.start()
        for n in range(300):
            assert weir.post({"id": f"{size}{n}", "pad": "x" * 8000}).status_code == 202
        wait_for(lambda: sum(c["lag"] for c in weir.status()["consumers"]) == 0, "drained")
        weir.stop()
        weir.run("journal", "verify", weir.data, check=0)
