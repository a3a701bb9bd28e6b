"""weir check: every mistake is named with its line; a misspelled name suggests the nearest."""

import pytest

GOOD = """version: 1
listen: 127.0.0.1:8080
data: ./weir-data
log: {kind: journal, partitions: 4, segment: 64MiB, max_bytes: 10GiB}
streams:
  orders: {id: /order_no, key: /user_id, ack: durable, primary: main, sinks: [main]}
sinks:
  main: {kind: sqlite}
"""


def check(weir, text):
    path = weir.folder / "checked.yaml"
    path.write_text(text)
    return weir.run("check", "-c", path)


@pytest.fixture
def shell(gateway):
    return gateway(start=False)


def test_a_good_file(shell):
    done = check(shell, GOOD)
    assert done.returncode == 0 and "orders" in done.stdout and "main" in done.stdout
    assert not (shell.folder / "weir-data").exists()  # it connects to nothing and makes nothing


@pytest.mark.parametrize("old,new,line,words", [
    ("streams:", "steams:", 5, ("steams", "streams")),
    ("partitions", "partitons", 4, ("partitons", "partitions")),
    ("primary: main", "primary: mian", 6, ("mian",)),
    ("sinks: [main]", "sinks: [main, cache]", 6, ("cache",)),
    ("kind: sqlite", "kind: sqlit", 8, ("sqlit", "sqlite")),
    ("kind: sqlite", "kind: mysql", 8, ("mysql",)),
    ("{kind: sqlite}", "{kind: sqlite, pth: x}", 8, ("pth", "path")),
    ("ack: durable", "ack: durabel", 6, ("durabel", "durable")),
    ("/order_no", "order_no", 6, ("order_no",)),
    ("64MiB", "64MB0", 4, ("64MB0",)),
    ("64MiB", "-1", 4, ("-1",)),
    ("partitions: 4", "partitions: 0", 4, ("partitions",)),
    ("127.0.0.1:8080", "127.0.0.1", 2, ("127.0.0.1",)),
    ("127.0.0.1:8080", "127.0.0.1:99999", 2, ("99999",)),
    ("127.0.0.1:8080", "0.0.0.0:8080", 2, ("tokens", "insecure: true")),
    ("version: 1", "version: 2", 1, ("version",)),
    ("kind: journal", "kind: kafka", 4, ("kafka",)),
    ("orders:", "or/ders:", 6, ("or/ders",)),
    ("data: ./weir-data", "data: ./weir-data\ndata: ./again", 4, ("data",)),
    ("sinks: [main]}", "sinks: [main]", 7, ()),
    ("{kind: sqlite}", "{kind: sqlite, path: '${WEIR_NOT_SET}'}", 8, ("WEIR_NOT_SET",)),
])
def test_a_mistake_is_named_with_its_line(shell, old, new, line, words):
    assert old in GOOD
    done = check(shell, GOOD.replace(old, new, 1))
    assert done.returncode == 2, done.stdout
    if words:
        assert f"checked.yaml:{line}" in done.stderr, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_all_mistakes_are_named_at_once(shell):
    done = check(shell, GOOD.replace("partitions", "partitons").replace("ack: durable", "ack: soon")
                 .replace("kind: sqlite", "knd: sqlite"))
    for word in ("partitons", "soon", "knd"):
        assert word in done.stderr


def test_no_version_no_file_no_map(shell):
    assert check(shell, GOOD.replace("version: 1\n", "")).returncode == 2
    assert check(shell, "").returncode == 2
    assert check(shell, "- a\n- b\n").returncode == 2
    assert check(shell, "\0\1\2").returncode == 2
    done = shell.run("check", "-c", "/nonexistent/weir.yaml")
    assert done.returncode == 2 and "/nonexistent/weir.yaml" in done.stderr


def test_serve_refuses_what_check_refuses(shell):
    path = shell.folder / "bad.yaml"
    path.write_text(GOOD.replace("primary: main", "primary: mian"))
    done = shell.run("serve", "-c", path)
    assert done.returncode == 2 and "bad.yaml:6" in done.stderr
