"""What a person at the terminal gets: messages that name the thing and what to do, and exit codes that tell."""

import json
import subprocess

import pytest

TOKENS = """
version: 1
tokens: tokens.txt
streams: {events: {id: /id, sinks: [main]}}
sinks: {main: {kind: sqlite}}
"""


@pytest.fixture
def elsewhere(gateway):
    """A place where no gateway has run."""
    return gateway(start=False)


def in_folder(weir, *args):
    """With the current directory where weir-data would be."""
    done = weir.run(*args)
    assert done.returncode != 0 and done.stderr, (args, done.stdout)
    return done


def test_every_command_has_help_on_standard_output(elsewhere):
    text = elsewhere.run("help", check=0).stdout
    commands = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert {"serve", "check", "status", "load", "reconcile", "dead", "journal", "version"} <= set(commands)
    for command in commands:
        done = elsewhere.run(command, "--help", check=0)
        assert done.stdout.startswith("usage: weir " + command) and not done.stderr


@pytest.mark.parametrize("command", ["serve", "check", "status", "load", "reconcile", "dead", "journal"])
def test_an_option_that_is_not_known_is_named(elsewhere, command):
    done = elsewhere.run(command, "--bogus", check=2)
    assert done.stderr.startswith(f"weir {command}: ") and "--bogus" in done.stderr.splitlines()[0]
    assert not done.stdout


def test_a_place_where_no_gateway_has_run_is_not_an_empty_one(elsewhere):
    for args in (["dead", "list"], ["dead", "show", "1"], ["reconcile"], ["status"]):
        done = in_folder(elsewhere, *args)
        assert done.returncode == 3 and "weir-data" in done.stderr, (args, done.stderr)
    assert "weir serve" in in_folder(elsewhere, "status").stderr
    for verb in ("verify", "dump"):
        done = elsewhere.run("journal", verb, elsewhere.folder, check=3)
        assert str(elsewhere.folder) in done.stderr and "no data directory" in done.stderr, verb
    assert not (elsewhere.folder / "weir-data").exists()


def test_a_file_where_the_data_directory_should_be(elsewhere):
    elsewhere.data.write_text("mine")
    done = elsewhere.run("serve", "--data", elsewhere.data, "--listen", "127.0.0.1:0", check=3)
    assert str(elsewhere.data) in done.stderr and "a file is there" in done.stderr and "--data" in done.stderr
    assert elsewhere.data.read_text() == "mine"


def test_dead_letters_of_a_sink_that_there_is_not(weir):
    weir.post({"id": "a"})
    weir.wait_count(1)
    assert weir.run("dead", "list", "--data", weir.data, check=0).stdout == "no dead letters\n"
    assert weir.run("dead", "list", "--data", weir.data, "--sink", "main", check=0).stdout == "no dead letters\n"
    # Without a configuration only its files tell of a sink.
    assert "a sink mian" in weir.run("dead", "list", "--data", weir.data, "--sink", "mian", check=0).stderr
    path = weir.folder / "weir.yaml"
    path.write_text("version: 1\nsinks: {main: {kind: sqlite}}\n")
    named = ["dead", "list", "--data", weir.data, "-c", path]
    assert "no sink mian" in weir.run(*named, "--sink", "mian", check=2).stderr
    assert "no dead letters" in weir.run("dead", "show", "--data", weir.data, "1", check=1).stderr


def test_a_comparison_of_nothing_says_that_it_proves_nothing(weir):
    answer = weir.post({"id": "a"}, query="?ack=stored").json()
    assert "nothing was compared" in weir.run("reconcile", "--data", weir.data, check=0).stderr
    ids = weir.folder / "ids"
    ids.write_text(json.dumps({"stream": "events", "id": "a", "version": answer["version"]}) + "\n")
    done = weir.run("reconcile", "--data", weir.data, "--ids", ids, check=0)
    assert "1 equal" in done.stdout and not done.stderr


def test_a_replay_that_is_refused_again_says_so(gateway):
    weir = gateway(start=False)
    weir.data.mkdir()
    table = ("CREATE TABLE events(id TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL, version INTEGER NOT NULL, "
             "doc TEXT NOT NULL CHECK(json_extract(doc, '$.n') < 10), attributes TEXT)")
    subprocess.run(["sqlite3", weir.data / "main.db", table], check=True, timeout=30)
    weir.start()
    assert weir.post({"id": "big", "n": 11}, query="?ack=stored").status_code == 422
    assert "1 dead letter:" in weir.run("status", "--data", weir.data, check=0).stdout
    done = weir.run("dead", "replay", "--data", weir.data, "1", check=1)
    assert "refused again" in done.stderr and "CHECK" in done.stderr


def test_status_with_no_token_or_the_wrong_one_says_which_is_needed(gateway):
    weir = gateway(config=TOKENS, start=False)
    tokens = weir.folder / "tokens.txt"
    tokens.write_text("wwwwwwwwwwwwwwww write\nrrrrrrrrrrrrrrrr read\n")
    tokens.chmod(0o600)
    weir.start()
    done = weir.run("status", "--url", weir.url, check=3)
    assert "--token" in done.stderr and "scope read" in done.stderr and "{" not in done.stderr
    done = weir.run("status", "--url", weir.url, "--token", "w" * 16, check=3)
    assert "scope read" in done.stderr and "w" * 16 not in done.stderr
    assert weir.run("status", "--url", weir.url, "--token", "r" * 16, check=0).stdout


def test_a_dump_of_a_damaged_journal_is_no_whole_dump(gateway):
    weir = gateway()
    for n in range(5):
        weir.post({"id": f"d{n}"})
    weir.stop()
    path = min((weir.data / "journal").iterdir())
    data = bytearray(path.read_bytes())
    at = data.index(b'{"id":"d2"}') if b'{"id":"d2"}' in data else data.index(b'"d2"')
    data[at + 2] ^= 1
    path.write_bytes(data)
    done = weir.run("journal", "dump", weir.data, check=1)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()][:2] == ["d0", "d1"]
    assert str(path) in done.stderr and "damaged at byte" in done.stderr


def test_errors_of_a_request_name_the_limit_and_the_way_out(gateway):
    weir = gateway(config="version: 1\nlimits: {body: 2KiB}\nsinks: {main: {kind: sqlite}}\n")
    whole = b'{"id":"big","pad":"' + b"x" * 3000 + b'"}'
    for body in (whole, iter([whole])):  # with a length, and in chunks
        answer = weir.post(data=body)
        assert answer.status_code == 413 and "2048 bytes" in answer.json()["detail"], answer.text
        assert answer.text.endswith("}\n")
    answer = weir.post({"id": "x"}, stream="nope")
    assert answer.status_code == 404 and "nope" in answer.json()["detail"]
    assert "configuration" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["with spaces", "grüße-データ", "-dash", "quote'\"$x"])
def test_a_data_directory_may_have_any_name(gateway, name):
    weir = gateway(start=False, env={"LC_ALL": "C"})
    weir.env.pop("HOME", None)
    weir.data = weir.folder / name / "data"
    weir.start()
    weir.post({"id": "a"}, query="?ack=stored")
    assert weir.count() == 1
    assert "main" in weir.run("status", "--data", weir.data, check=0).stdout
    weir.stop()
    weir.run("journal", "verify", weir.data, check=0)


def test_a_configuration_from_windows_is_a_configuration(elsewhere):
    path = elsewhere.folder / "weir.yaml"
    text = "version: 1\nstreams: {orders: {id: /no, sinks: [main]}}\nsinks:\n  main: {kind: sqlite}\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert "orders" in elsewhere.run("check", "-c", path, check=0).stdout


@pytest.mark.parametrize("text, hint", [
    ("version: 1\nsinks:\n\tmain: {kind: sqlite}\n", "spaces"),
    ("version: 1\nlimits: {body: ${BODY}}\n", "quotes"),
])
def test_yaml_that_is_none_says_what_it_mostly_is(elsewhere, text, hint):
    path = elsewhere.folder / "weir.yaml"
    path.write_text(text)
    done = elsewhere.run("check", "-c", path, check=2)
    assert hint in done.stderr and f"{path}:{text.count(chr(10))}:" in done.stderr


def test_whoever_reads_its_output_may_go_away(gateway):
    weir = gateway(start=False)
    process = subprocess.Popen(weir.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               cwd=weir.folder)
    line = process.stdout.readline()
    process.stdout.close()
    try:
        weir.port = int(line.rsplit(":", 1)[1])
        weir.post({"id": "a"}, query="?ack=stored")
        assert weir.count() == 1
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
