"""A newcomer's first minute: start with nothing, curl a record in, see it, stop, start, see it again."""

import json
import re
import subprocess

from weir import wait_for


def test_the_printed_curl_line_works_as_printed(gateway):
    weir = gateway(start=False).start(wait=False)
    lines = []
    while not any("listening on http://127.0.0.1:" in line for line in lines):
        lines.append(weir.output.get(timeout=20))
    weir.port = int(re.search(r"127\.0\.0\.1:(\d+)", [l for l in lines if "listening" in l][0])[1])
    while not any("curl " in line for line in lines):
        lines.append(weir.output.get(timeout=20))
    text = "\n".join(lines)
    assert str(weir.data) in text or "weir.data" in text or "data" in text
    command = [line for line in lines if "curl " in line][0]
    command = command[command.index("curl "):]
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["ack"] == "durable" and answer["id"] and answer["position"]
    weir.wait_count(1)


def test_a_record_is_there_after_a_restart(gateway):
    weir = gateway()
    answer = weir.post({"id": "a-1", "n": 1})
    assert answer.status_code == 202
    weir.stop()
    weir.start()
    weir.wait_count(1)
    read = weir.get("/v1/streams/events/a-1")
    assert read.status_code == 200 and read.json() == {"id": "a-1", "n": 1}


def test_one_process_owns_a_data_directory(weir):
    second = weir.run("serve", "--data", weir.data, "--listen", "127.0.0.1:0")
    assert second.returncode != 0
    assert str(weir.process.pid) in second.stderr or "another" in second.stderr


def test_a_taken_port_says_what_to_do(weir, tmp_path):
    second = weir.run("serve", "--data", tmp_path / "other", "--listen", f"127.0.0.1:{weir.port}")
    assert second.returncode in (2, 3)
    assert str(weir.port) in second.stderr and "--listen" in second.stderr


def test_status_and_version_speak(weir):
    weir.post({"id": "a"})
    weir.wait_count(1)
    text = weir.run("status", "--url", weir.url, check=0).stdout
    assert "events" in text or "main" in text
    version = weir.run("version", check=0).stdout
    assert "weir" in version and "sqlite" in version.lower() and "cpu" in version.lower()
    assert weir.run("nonsense").returncode == 2
    assert weir.run("serve", "--nonsense").returncode == 2


def test_meta_of_a_newer_weir_is_refused(gateway):
    weir = gateway()
    weir.post({"id": "a"})
    weir.stop()
    meta = weir.data / "META"
    meta.write_text(meta.read_text().replace("format 1", "format 2"))
    again = weir.run("serve", "--data", weir.data, "--listen", "127.0.0.1:0")
    assert again.returncode != 0 and "META" in again.stderr


def ceiling(weir):
    return int(re.search(r"^version_ceiling (\d+)$", (weir.data / "META").read_text(), re.M)[1])


def test_a_restart_begins_above_all_that_may_have_been_used(gateway):
    """As if the clock had been set back meanwhile: versions up to the ceiling in META may be out there."""
    weir = gateway()
    for _ in range(2):
        weir.post({"id": "a"})
        weir.kill()
        most = ceiling(weir)
        weir.start()
        assert weir.post({"id": "a"}).json()["version"] > most


def test_versions_never_go_backwards_over_restarts(gateway):
    weir = gateway()
    seen = []
    for _ in range(3):
        for n in range(20):
            seen.append(weir.post({"id": f"v{n}"}).json()["version"])
        weir.kill()
        weir.start()
    seen.append(weir.post({"id": "last"}).json()["version"])
    assert seen == sorted(seen) and len(set(seen)) == len(seen)
    wait_for(lambda: weir.count() == 21, "all there")
    weir.stop()
