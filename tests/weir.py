"""Runs real weir processes for the scenario tests. Every process has its own temporary folder, listens
on a free port of 127.0.0.1, and is stopped by its own process id."""

import os
import pathlib
import queue
import signal
import socket
import sqlite3
import subprocess
import threading
import time

import requests

BIN = os.environ.get("WEIR_BIN", "build/weir")
FAULT_BIN = os.environ.get("WEIR_FAULT_BIN", "build/weir-fault")
SLOW = float(os.environ.get("WEIR_SLOW", "1"))  # sanitizers: patience is multiplied, nothing else
REPORTS = ("AddressSanitizer", "ThreadSanitizer", "runtime error:", "LeakSanitizer", "Assertion")


def wait_for(condition, what, timeout=20.0):
    """Waits until condition() is true and returns what it gave."""
    end = time.monotonic() + timeout * SLOW
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {timeout * SLOW:.0f} s: {what}")
        time.sleep(0.01)  # poll interval


class Weir:
    """One gateway: `with Weir(folder) as weir: weir.post({...})`."""

    def __init__(self, folder, config=None, binary=None, env=None, args=(), stream="events"):
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "data"
        self.binary = binary or BIN
        self.env = dict(os.environ, **(env or {}))
        self.args = list(args)
        self.stream = stream
        self.process = None
        self.port = None
        self.errors = []  # lines of standard error of every run
        self.session = requests.Session()
        self.session.trust_env = False
        self.config = None
        if config is not None:
            self.config = self.folder / "weir.yaml"
            # Two loops on any machine: what they share is shared in the tests too.
            self.config.write_text(config if "loops:" in config else config + "\nloops: 2\n")

    # -- the process

    def command(self):
        command = [self.binary, "serve", "--listen", "127.0.0.1:0", "--data", str(self.data)]
        if self.config:
            command += ["-c", str(self.config)]
        return command + self.args

    def start(self, wait=True):
        self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=self.env,
                                        cwd=self.folder, errors="replace")
        self.output = queue.Queue()
        self.readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.output.put), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self.errors.append), daemon=True)]
        for reader in self.readers:
            reader.start()
        if wait:
            self.wait_listening()
        return self

    @staticmethod
    def _read(stream, take):
        for line in stream:
            take(line.rstrip("\n"))
        take(None) if take.__name__ == "put" else None

    def wait_listening(self):
        mark = "listening on http://127.0.0.1:"
        lines = []
        while True:
            try:
                line = self.output.get(timeout=20 * SLOW)
            except queue.Empty:
                raise AssertionError(f"weir did not listen: {lines} {self.errors}") from None
            if line is None:
                raise AssertionError(f"weir ended ({self.process.wait()}): {lines} {self.errors}")
            lines.append(line)
            if mark in line:
                self.port = int(line.split(mark)[1].split()[0].rstrip("/"))
                return

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def stop(self, timeout=60):
        """SIGTERM; it must end by itself with 0 and without a sanitizer's report."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout * SLOW)
        self._joined()
        assert code == 0, f"weir ended with {code}: {self.errors[-20:]}"

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._joined()

    def _joined(self):
        for reader in self.readers:
            reader.join(10)
        self.check_reports()

    def check_reports(self):
        bad = [line for line in self.errors if line and any(r in line for r in REPORTS)]
        assert not bad, "\n".join(line for line in self.errors if line)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        if self.process and self.process.poll() is None:
            if kind is None:
                self.stop()
            else:
                self.kill()
        self.session.close()

    # -- talking to it

    def post(self, records=None, query="", stream=None, headers=None, **more):
        """POST of JSON (a Python object) or of `data=` bytes."""
        headers = dict(headers or {})
        if records is not None:
            more["json"] = records
        elif "content-type" not in {h.lower() for h in headers}:
            headers["Content-Type"] = "application/json"
        return self.session.post(f"{self.url}/v1/streams/{stream or self.stream}{query}",
                                 headers=headers, timeout=60 * SLOW, **more)

    def get(self, path, **more):
        return self.session.get(self.url + path, timeout=30 * SLOW, **more)

    def status(self):
        answer = self.get("/v1/status")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def socket(self):
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=20 * SLOW)
        return raw

    # -- looking at what it did

    def database(self, sink="main"):
        path = self.data / f"{sink}.db"
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)

    def rows(self, sink="main", table=None, columns="id, version, doc"):
        """{id: (version, doc), ...} as the store holds them; {} before there is a table."""
        try:
            with self.database(sink) as db:
                found = db.execute(f'SELECT {columns} FROM "{table or self.stream}"').fetchall()
        except sqlite3.OperationalError:
            return {}
        return {row[0]: row[1:] for row in found}

    def count(self, sink="main", table=None):
        try:
            with self.database(sink) as db:
                return db.execute(f'SELECT count(*) FROM "{table or self.stream}"').fetchone()[0]
        except sqlite3.OperationalError:
            return 0

    def wait_count(self, n, sink="main", table=None, timeout=30):
        wait_for(lambda: self.count(sink, table) >= n, f"{n} rows in {sink}", timeout)
        assert self.count(sink, table) == n

    def run(self, *args, binary=None, check=None, timeout=120, env=None):
        """Another weir command; returns the finished process."""
        done = subprocess.run([binary or BIN, *map(str, args)], text=True, capture_output=True,
                              timeout=timeout * SLOW, cwd=self.folder, env=env or self.env)
        assert not any(r in done.stderr for r in REPORTS), done.stderr
        if check is not None:
            assert done.returncode == check, (args, done.returncode, done.stdout, done.stderr)
        return done


def raw_exchange(weir, data, until_close=True, timeout=10):
    """Sends bytes on a new connection, returns all that comes back until the server closes."""
    with weir.socket() as raw:
        raw.settimeout(timeout * SLOW)
        raw.sendall(data)
        got = b""
        while True:
            try:
                piece = raw.recv(65536)
            except ConnectionResetError:
                return got
            if not piece:
                return got
            got += piece
            if not until_close:
                return got
