"""Real data in, the same bytes out: iso-codes, ieee-data, every package of the Debian archive."""

import csv
import glob
import gzip
import json
import subprocess

import httpx
import pytest

from weir import wait_for

CONFIG = """
version: 1
streams:
  languages: {id: /alpha_3, sinks: [main]}
  countries: {id: /alpha_3, key: /alpha_2, sinks: [main]}
  currencies: {id: /alpha_3, sinks: [main]}
  scripts: {id: /alpha_4, sinks: [main]}
  vendors: {id: /id, key: /Organization Name, sinks: [main]}
  packages: {id: /id, key: /Package, sinks: [main]}
sinks:
  main: {kind: sqlite}
"""


@pytest.fixture
def world(gateway):
    return gateway(config=CONFIG)


def expect(weir, stream, sent):
    weir.wait_count(len(sent), table=stream, timeout=180)
    wait_for(lambda: {k: v[0] for k, v in weir.rows(table=stream, columns="id, doc").items()} == sent,
             f"{stream}: byte for byte", 30)
    ids = weir.folder / "ids"
    with open(ids, "w") as out:
        for name in sent:
            out.write(json.dumps({"stream": stream, "id": name}) + "\n")
    weir.run("reconcile", "-c", weir.config, "--data", weir.data, "--ids", ids, check=0)


@pytest.mark.parametrize("stream,standard", [("languages", "639-3"), ("countries", "3166-1"),
                                             ("currencies", "4217"), ("scripts", "15924")])
def test_iso_codes_with_requests(world, stream, standard):
    with open(f"/usr/share/iso-codes/json/iso_{standard}.json", encoding="utf-8") as file:
        records = json.load(file)[standard]
    key = {"languages": "alpha_3", "countries": "alpha_3", "currencies": "alpha_3", "scripts": "alpha_4"}[stream]
    sent = {}
    for n in range(0, len(records), 100):
        texts = [json.dumps(r, ensure_ascii=n % 200 == 0) for r in records[n:n + 100]]
        body = "[" + ",\n ".join(texts) + "]"
        assert world.post(data=body.encode(), stream=stream).status_code == 202
        sent.update({r[key]: t for r, t in zip(records[n:n + 100], texts)})
    expect(world, stream, sent)


def test_ieee_vendors_with_httpx_as_ndjson(world):
    path = [p for p in glob.glob("/usr/share/ieee-data/oui.csv")][0]
    sent = {}
    with open(path, newline="", encoding="utf-8") as file:
        for n, row in enumerate(csv.DictReader(file)):
            row["id"] = f"{row['Assignment']}-{n}"
            row["Organization Name"] = row["Organization Name"].strip()[:200] or "none"
            sent[row["id"]] = json.dumps(row, ensure_ascii=False)
    assert len(sent) > 30000
    texts = list(sent.values())
    with httpx.Client(trust_env=False, timeout=60) as client:
        for n in range(0, len(texts), 5000):
            answer = client.post(f"{world.url}/v1/streams/vendors",
                                 content="\n".join(texts[n:n + 5000]).encode(),
                                 headers={"Content-Type": "application/x-ndjson"})
            assert answer.status_code == 202, answer.text[:500]
    expect(world, "vendors", sent)


def stanzas():
    dump = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=True).stdout.decode("utf-8")
    for stanza in dump.split("\n\n"):
        record = {}
        name = None
        for line in stanza.split("\n"):
            if line.startswith((" ", "\t")) and name:
                record[name] += "\n" + line
            elif ":" in line:
                name, value = line.split(":", 1)
                record[name] = value.lstrip(" ")
        if record:
            yield record


def test_every_package_of_the_archive_with_curl(world, tmp_path):
    sent = {}
    for record in stanzas():
        record["id"] = f"{record['Package']}_{record['Version']}_{record['Architecture']}"
        sent[record["id"]] = json.dumps(record, ensure_ascii=False)
    assert len(sent) > 60000, "run apt-get update once: apt-cache dumpavail is too short"
    texts = list(sent.values())
    for n in range(0, len(texts), 4000):
        body = tmp_path / "body"
        packed = n % 8000 == 0
        raw = "\n".join(texts[n:n + 4000]).encode()
        body.write_bytes(gzip.compress(raw, 1) if packed else raw)
        command = ["curl", "-sS", "--fail-with-body", "-H", "Content-Type: application/x-ndjson", "--data-binary",
                   f"@{body}", f"{world.url}/v1/streams/packages"]
        if packed:
            command[1:1] = ["-H", "Content-Encoding: gzip"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout[:500] + done.stderr
    expect(world, "packages", sent)
