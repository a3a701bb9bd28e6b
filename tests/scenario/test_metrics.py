"""What weir says of itself: /metrics read by a Prometheus parser, /v1/status, health and readiness."""

from prometheus_client.parser import text_string_to_metric_families

from weir import wait_for


def metrics(weir):
    answer = weir.get("/metrics")
    assert answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    return families


def value(families, name, **labels):
    return sum(sample.value for family in families.values() for sample in family.samples
               if sample.name == name and labels.items() <= sample.labels.items())


def test_metrics_parse_and_count(weir):
    for n in range(30):
        weir.post({"id": f"m{n}"})
    weir.post([{"id": f"a{n}"} for n in range(12)])
    weir.post(data=b"{")
    weir.wait_count(42)
    families = metrics(weir)
    assert all(f.documentation and f.type != "unknown" for f in families.values())
    assert all(name.startswith("weir_") for name in families)
    samples = {sample.name for family in families.values() for sample in family.samples}
    assert value(families, "weir_accepted_records_total") == 42, sorted(samples)
    wait_for(lambda: value(metrics(weir), "weir_stored_records_total", sink="main") == 42, "stored is counted")
    wait_for(lambda: value(metrics(weir), "weir_lag_records", consumer="main") == 0, "no lag")
    for family in families.values():  # histograms are cumulative and end in +Inf
        if family.type == "histogram":
            buckets = [s for s in family.samples if s.name.endswith("_bucket")]
            assert buckets[-1].labels["le"] == "+Inf" or any(b.labels["le"] == "+Inf" for b in buckets)


def test_counters_never_fall(weir):
    before = metrics(weir)
    for n in range(20):
        weir.post({"id": f"m{n}"})
    after = metrics(weir)
    for name, family in before.items():
        if family.type == "counter":
            for sample in family.samples:
                assert value(after, sample.name, **sample.labels) >= sample.value, name


def test_status_tells_accepted_but_not_delivered(gateway, tmp_path):
    pause = tmp_path / "pause"
    pause.write_text("")
    weir = gateway(config=f"""
version: 1
streams: {{events: {{id: /id, sinks: [nowhere]}}}}
sinks: {{nowhere: {{kind: "null", pause_file: "{pause}"}}}}
""")
    for n in range(25):
        weir.post({"id": f"s{n}"})

    def lag():
        return [c["lag"] for c in weir.status()["consumers"] if c["name"] == "nowhere"][0]

    wait_for(lambda: lag() == 25, "25 wait")
    pause.unlink()
    wait_for(lambda: lag() == 0, "none waits")


def test_health_and_readiness(weir):
    assert weir.get("/healthz").status_code == 200
    assert weir.get("/readyz").status_code == 200
