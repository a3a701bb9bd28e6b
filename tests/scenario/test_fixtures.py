"""The JSON documents and strings that break naive software: each is taken and comes back exactly, or
refused; what is neither is a defect."""

import json
import urllib.parse

REFUSED_BY_DESIGN = ("y_object_duplicated_key", "y_object_escaped_null_in_key")


def test_json_test_suite(weir, fixtures):
    documents = sorted((fixtures / "json-test-suite" / "test_parsing").glob("*.json"))
    assert len(documents) > 300
    accepted = {}
    for path in documents:
        body = b'{"id":"%s","v":%s}' % (path.name.encode(), path.read_bytes())
        answer = weir.post(data=body)
        assert answer.status_code in (202, 400), (path.name, answer.status_code)
        if path.name.startswith("y_") and not path.name.startswith(REFUSED_BY_DESIGN):
            assert answer.status_code == 202, (path.name, answer.text)
        elif not path.name.startswith("i_"):
            # an n_ document may become valid inside the wrapper only if json itself agrees
            try:
                json.loads(body)
                valid = path.name.startswith("n_")
            except (ValueError, RecursionError):
                valid = False
            assert answer.status_code == 400 or valid, path.name
        if answer.status_code == 202:
            accepted[answer.json()["id"]] = body
    weir.wait_count(len(accepted))
    rows = weir.rows()
    for name, body in accepted.items():
        assert rows[name][1].encode() == body.strip(b" \t\r\n"), name


def test_naughty_strings_as_values_ids_and_keys(gateway, fixtures):
    weir = gateway(config="""
version: 1
streams: {events: {id: /id, key: /key, sinks: [main]}}
sinks: {main: {kind: sqlite}}
""")
    strings = json.loads((fixtures / "naughty-strings.json").read_text())
    assert len(strings) > 490
    sent = {}
    for n, text in enumerate(strings):
        fits = 1 <= len(text.encode()) <= 512 and "\0" not in text
        record = {"id": text if fits else f"n{n}", "key": text if fits else "k", "v": text}
        for ascii_only in (True, False):
            body = json.dumps(record, ensure_ascii=ascii_only).encode()
            answer = weir.post(data=body)
            assert answer.status_code == 202, (text, answer.text)
            assert answer.json()["id"] == record["id"]
        sent[record["id"]] = (record["key"], body.decode())
    weir.wait_count(len(sent))
    from weir import wait_for
    wait_for(lambda: weir.rows(columns="id, key, doc") == sent, "every string as it went in")
    for text in list(sent)[::7]:
        path = "/v1/streams/events/" + urllib.parse.quote(text, safe="")
        read = weir.session.send(weir.session.prepare_request(__import__("requests").Request("GET", weir.url + path)))
        assert read.status_code == 200 and read.content.decode() == sent[text][1], text
