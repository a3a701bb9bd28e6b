"""Nobody gets in: tokens with scopes; no listening beyond loopback without them."""

import os

CONFIG = """
version: 1
tokens: tokens.txt
streams: {events: {id: /id, sinks: [main]}}
sinks: {main: {kind: sqlite}}
"""


def auth(token):
    return {"Authorization": f"Bearer {token}"}


def secured(gateway):
    weir = gateway(config=CONFIG, start=False)
    path = weir.folder / "tokens.txt"
    path.write_text("# who may do what\nwwwwwwwwwwwwwwww write\nrrrrrrrrrrrrrrrr read\nbbbbbbbbbbbbbbbb write,read\naaaaaaaaaaaaaaaa admin,read,write\n")
    path.chmod(0o600)
    return weir.start()


def test_scopes(gateway):
    weir = secured(gateway)
    w, r, b = "w" * 16, "r" * 16, "b" * 16
    assert weir.post({"id": "x"}).status_code == 401
    assert "Bearer" in weir.post({"id": "x"}).headers["WWW-Authenticate"]
    assert weir.post({"id": "x"}, headers=auth("nonsense")).status_code == 401
    assert weir.post({"id": "x"}, headers=auth(w[:-1])).status_code == 401
    assert weir.post({"id": "x"}, headers={"Authorization": "Basic eA=="}).status_code == 401
    assert weir.post({"id": "x"}, headers=auth(r)).status_code == 403
    assert weir.post({"id": "x"}, headers=auth(w)).status_code == 202
    assert weir.post({"id": "y"}, headers=auth(b)).status_code == 202
    weir.wait_count(2)
    assert weir.get("/v1/streams/events/x", headers=auth(w)).status_code == 403
    assert weir.get("/v1/streams/events/x", headers=auth(r)).status_code == 200
    for path in ("/metrics", "/v1/status"):
        assert weir.get(path).status_code == 401
        assert weir.get(path, headers=auth(r)).status_code == 200
    assert weir.get("/healthz").status_code == 200 and weir.get("/readyz").status_code == 200
    everything = "\n".join(filter(None, weir.errors))
    assert w not in everything and r not in everything


def test_beyond_loopback_needs_tokens_or_the_words(gateway):
    weir = gateway(start=False)
    for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0"):
        done = weir.run("serve", "--data", weir.data, "--listen", address, timeout=20)
        assert done.returncode == 2, address
        assert "tokens" in done.stderr and "insecure: true" in done.stderr


def test_a_token_file_that_others_can_read_is_refused(gateway):
    weir = gateway(config=CONFIG, start=False)
    path = weir.folder / "tokens.txt"
    path.write_text("wwwwwwwwwwwwwwww write\n")
    path.chmod(0o644)
    done = weir.run("check", "-c", weir.config)
    assert done.returncode == 2 and "tokens.txt" in done.stderr and "600" in done.stderr


def test_the_socket_is_private(weir):
    assert os.stat(weir.data / "weir.sock").st_mode & 0o777 == 0o600
