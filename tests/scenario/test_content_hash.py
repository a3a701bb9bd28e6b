"""The Python function in docs/content-hash.md gives the hash that weir compares by."""

import json
import pathlib
import re

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "content-hash.md"

DOCS = [
    '{"id":"plain","b":[1.50,"\\u00e9"],"a":1}',
    '{"id":"numbers","v":[0,-0,-0.0,1.0,1e5,1e15,1e16,1.2345e16,0.0001,0.00001,5e-324,1.7976931348623157e308,'
    '9223372036854775807,-9223372036854775808,0.1,100]}',
    '{"id":"names","\\ud83d\\ude00":1,"\\uff5e":2,"Z":3,"a":4,"":5,"aa":6}',
    '{"id":"strings","v":"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f\\u007f\\"\\\\\\/\\u2028 \\ud83d\\ude00"}',
    '{ "id" : "space" , "v" : { "z" : [ ] , "y" : { } , "x" : [ null , true , false ] } }',
]


def documented():
    scope = {}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S).group(1), scope)
    return scope["content_hash"]


def test_the_documented_function(weir):
    content_hash = documented()
    rows = []
    for doc in DOCS:
        answer = weir.post(data=doc.encode())
        assert answer.status_code == 202, answer.text
        rows.append({"stream": "events", "id": answer.json()["id"], "version": answer.json()["version"],
                     "hash": content_hash(doc)})
    weir.wait_count(len(DOCS))
    path = weir.folder / "ids"

    def reconcile():
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return weir.run("reconcile", "--data", weir.data, "--ids", path).returncode

    assert reconcile() == 0
    for row in rows:
        good, row["hash"] = row["hash"], content_hash('{"id":"other"}')
        assert reconcile() == 1, row
        row["hash"] = good
