"""A ledger of what weir acknowledged, kept outside the process that may die.

Clients send single records, arrays and NDJSON at several ack levels, re-use ids, and note before sending
what they send and after the answer what was acknowledged. After a crash the store must agree:
no acknowledged record missing or older, no row that nobody sent, none different, none twice.
"""

import http.client
import json
import random
import threading


class Ledger:
    def __init__(self, seed):
        self.seed = seed
        self.lock = threading.Lock()
        self.sent = {}  # id: set of docs ever sent
        self.acked = {}  # id: (version, doc), the highest version acknowledged at durable or above
        self.touched = set()  # ids sent since the last check
        self.answers = 0
        self.serial = 0

    def _doc(self, rng):
        """A new doc, now and then for an id that was used before."""
        with self.lock:
            self.serial += 1
            n = self.serial
            if n > 50 and rng.random() < 0.15:
                name = f"r{rng.randrange(max(1, n - 2000), n)}"
            else:
                name = f"r{n}"
        pad = "\U0001F62Dé" * rng.randrange(0, 40) if rng.random() < 0.9 else "p" * rng.randrange(20000)
        doc = json.dumps({"id": name, "n": n, "pad": pad}, ensure_ascii=rng.random() < 0.5)
        with self.lock:
            self.sent.setdefault(name, set()).add(doc)
            self.touched.add(name)
        return name, doc

    def _exchange(self, connection, rng):
        count = 1 if rng.random() < 0.5 else rng.randrange(2, 60)
        docs = [self._doc(rng) for _ in range(count)]
        form = "application/json"
        if count == 1:
            body = docs[0][1]
        elif rng.random() < 0.5:
            body = "[" + ",".join(d for _, d in docs) + "]"
        else:
            form, body = "application/x-ndjson", "\n".join(d for _, d in docs)
        level = rng.choice(["received", "durable", "durable", "durable", "stored", "everywhere"])
        connection.request("POST", f"/v1/streams/events?ack={level}", body.encode(), {"Content-Type": form})
        response = connection.getresponse()
        text = response.read()
        if response.status not in (201, 202):
            return response.status
        answer = json.loads(text)
        if answer["ack"] == "received":
            return response.status
        lines = answer.get("records", [answer])
        with self.lock:
            self.answers += 1
            for (name, doc), line in zip(docs, lines):
                assert line["id"] == name
                if line["version"] > self.acked.get(name, (0, ""))[0]:
                    self.acked[name] = (line["version"], doc)
        return response.status

    def _client(self, port, stop, rng, refused):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while not stop.is_set():
            try:
                status = self._exchange(connection, rng)
                if status not in (201, 202):
                    refused.append(status)
            except (OSError, http.client.HTTPException, ValueError):
                connection.close()
                if stop.wait(0.01):
                    return

    def load(self, port, clients=6):
        """Starts clients; returns a function that stops them and gives the statuses that were not 2xx."""
        stop = threading.Event()
        refused = []
        with self.lock:
            start = self.serial
        threads = [threading.Thread(target=self._client, daemon=True,
                                    args=(port, stop, random.Random(f"{self.seed}/{start}/{c}"), refused))
                   for c in range(clients)]
        for thread in threads:
            thread.start()

        def finish():
            stop.set()
            for thread in threads:
                thread.join(90)
                assert not thread.is_alive(), "a request was never answered"
            return refused

        return finish

    def check(self, rows, everything=False):
        """rows: {id: (version, doc)} of a store in which nothing is waiting any more."""
        names = self.acked if everything else [n for n in self.touched if n in self.acked]
        for name in names:
            version, doc = self.acked[name]
            assert name in rows, f"seed {self.seed}: {name} was acknowledged and is missing"
            stored_version, stored_doc = rows[name]
            assert stored_version >= version, f"seed {self.seed}: {name} is older than acknowledged"
            if stored_version == version:
                assert stored_doc == doc, f"seed {self.seed}: {name} differs: {stored_doc[:200]}"
        for name, (_, doc) in rows.items():
            assert doc in self.sent.get(name, ()), f"seed {self.seed}: {name} holds what nobody sent: {doc[:200]}"
        self.touched.clear()
