"""weir load: what it says it did is what the gateway and the store saw."""

import json
import signal

from weir import wait_for


def load(weir, *args, check=0, **more):
    done = weir.run("load", "--url", f"{weir.url}/v1/streams/{weir.stream}", "--json", *args, check=check, **more)
    return json.loads(done.stdout)


def test_closed_load_counts_and_ids(weir):
    ids = weir.folder / "ids"
    result = load(weir, "--closed", "-n", "5000", "--connections", "20", "--ids", ids)
    assert result["sent"] == result["ok"] == 5000 and not any(result["errors"].values())
    assert set(result["latency_us"]) >= {"p50", "p90", "p99", "p999", "p9999", "max"}
    assert result["rate_per_s"] > 0 and result["limited_by_generator"] in (True, False)
    lines = [json.loads(line) for line in ids.read_text().splitlines()]
    assert len(lines) == 5000 and len({line["id"] for line in lines}) == 5000
    weir.wait_count(5000)
    rows = weir.rows()
    assert all(rows[line["id"]][0] == line["version"] for line in lines)
    weir.run("reconcile", "--data", weir.data, "--ids", ids, check=0)


def test_open_load_keeps_its_rate(weir):
    result = load(weir, "--rate", "500", "--duration", "2", "--connections", "10")
    assert result["sent"] == result["ok"] == 1000


def test_the_default_record_is_the_order(weir):
    load(weir, "--closed", "-n", "3")
    weir.wait_count(3)
    for _, doc in weir.rows().values():
        assert {"order_no", "address_id", "merchant_id", "user_id", "order_amount"} <= set(json.loads(doc))
        assert 120 < len(doc) < 260


def test_ids_are_in_order_of_time_unless_random(weir):
    ids = weir.folder / "ids"
    load(weir, "--closed", "-n", "200", "--connections", "1", "--ids", ids)
    names = [json.loads(line)["id"] for line in ids.read_text().splitlines()]
    assert names == sorted(names)
    load(weir, "--closed", "-n", "200", "--connections", "1", "--ids", ids, "--random-ids")
    names = [json.loads(line)["id"] for line in ids.read_text().splitlines()]
    assert names != sorted(names) and len(set(names)) == 200


def test_templates_batches_and_levels(weir):
    load(weir, "--closed", "-n", "40", "--template", '{"id":"{id}","seq":{seq}}', "--batch", "10", "--ack", "stored")
    assert weir.count() in (40, 400)
    assert all({"id", "seq"} == set(json.loads(doc)) for _, doc in weir.rows().values())


def test_merge(weir):
    for n in (1, 2):
        load(weir, "--closed", "-n", "300", "--hist", weir.folder / f"h{n}", "--seed", n)
    done = weir.run("load", "merge", "--json", weir.folder / "h1", weir.folder / "h2", check=0)
    assert json.loads(done.stdout)["ok"] == 600


def test_errors_are_not_counted_as_success(weir):
    weir.stream = "nothere"
    result = json.loads(weir.run("load", "--url", f"{weir.url}/v1/streams/nothere", "--json", "--closed", "-n", "50").stdout)
    assert result["ok"] == 0 and result["rate_per_s"] == 0 and sum(result["errors"].values()) == 50


def test_a_refusal_is_told_in_the_gateways_words(weir):
    done = weir.run("load", "--url", f"{weir.url}/v1/streams/nothere", "-n", "50", "-c", "1", check=1)
    assert "status 404: 50" in done.stdout and "there is no stream nothere" in done.stdout


def test_nothing_listens(gateway):
    weir = gateway(start=False)
    done = weir.run("load", "--url", "http://127.0.0.1:1", "--closed", "-n", "10")
    assert done.returncode == 3 and "127.0.0.1:1" in done.stderr


def test_a_paused_server_shows_in_open_loop_latency(weir):
    import subprocess
    from weir import BIN
    run = subprocess.Popen([BIN, "load", "--url", weir.url, "--rate", "200", "--duration", "4", "--json"],
                           stdout=subprocess.PIPE, text=True)
    wait_for(lambda: weir.count() > 100, "load runs")
    weir.process.send_signal(signal.SIGSTOP)
    try:
        run.wait(1)
    except subprocess.TimeoutExpired:
        pass
    weir.process.send_signal(signal.SIGCONT)
    result = json.loads(run.communicate(timeout=60)[0])
    assert result["latency_us"]["p90"] > 100_000 and result["latency_us"]["max"] > 900_000
