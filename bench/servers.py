"""The servers that the benchmarks compare, each a real process on 127.0.0.1, stopped by its own process
id; and what /proc says of them."""
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

CPUS = len(os.sched_getaffinity(0))
TICK = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(condition, what, seconds=60, every=0.02):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"did not happen within {seconds} s: {what}")
        time.sleep(every)


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def busy_s():
    """CPU time that the whole machine has spent on anything so far."""
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICK


def children_s():
    """CPU time of the generators that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Server:
    """`with Server(...) as s:` runs it; s.url, s.cpu_s(), s.memory("VmHWM")."""

    name = ""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.process = None
        self.port = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def spawn(self, command, **more):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.errors = open(self.folder / "stderr", "ab")
        self.process = subprocess.Popen([str(c) for c in command], stderr=self.errors, **more)

    def stop(self, seconds=60):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._close()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self):
        if self.process.stdout:
            self.process.stdout.close()
        self.errors.close()
        self.process = None

    def pids(self):
        """The process and its children (nginx has workers)."""
        found, look = [], [self.process.pid]
        while look:
            pid = look.pop()
            found.append(pid)
            look += map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return found

    def cpu_s(self):
        """User and system time of all its processes so far."""
        ticks = 0
        for pid in self.pids():
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / TICK

    def memory(self, what):
        """VmHWM or VmRSS, summed, in bytes."""
        total = 0
        for pid in self.pids():
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            total += int(re.search(rf"{what}:\s+(\d+) kB", status).group(1)) * 1024
        return total

    def reset_peak(self):
        for pid in self.pids():
            pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")

    def counters(self):
        return {}

    def settle(self):
        """Waits until work that was accepted is done."""


class Nginx(Server):
    """Answers 202 from its configuration. It reads a body and throws it away (`return` never hands it to
    anything), so it does the least that an HTTP server can do with a POST."""

    name = "nginx"

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        temporary = "\n".join(f"  {kind}_temp_path {self.folder}/{kind};"
                              for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        config = self.folder / "nginx.conf"
        config.write_text(f"""
daemon off; worker_processes {CPUS}; pid {self.folder}/nginx.pid; error_log {self.folder}/error.log crit;
worker_rlimit_nofile 20000;
events {{ worker_connections 8192; }}
http {{
{temporary}
  access_log off; keepalive_requests 1000000000; client_body_buffer_size 64k; client_max_body_size 64m;
  server {{
    listen 127.0.0.1:{self.port} reuseport backlog=4096;
    location / {{ default_type application/json; return 202 '{{"status":"ok"}}'; }}
  }}
}}
""")
        program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        self.spawn([program, "-p", self.folder, "-c", config], stdout=subprocess.DEVNULL)
        wait_until(lambda: connects(self.port), "nginx listens")


class Program(Server):
    """One of our bench programs, which prints its port first."""

    def __init__(self, folder, name, path):
        super().__init__(folder)
        self.name, self.path = name, path

    def start(self):
        self.spawn([self.path, 0, CPUS], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.strip().isdigit():
            raise RuntimeError(f"{self.path} did not start")
        self.port = int(line)


class FluentBit(Server):
    name = "fluent-bit"

    @staticmethod
    def find():
        return shutil.which("fluent-bit", path=os.environ.get("PATH", "") + ":/opt/fluent-bit/bin")

    def start(self):
        self.port = free_port()
        self.spawn([self.find(), "-q", "-i", "http", "-p", "listen=127.0.0.1", "-p", f"port={self.port}",
                    "-o", "null", "-m", "*"], stdout=subprocess.DEVNULL)
        wait_until(lambda: connects(self.port), "fluent-bit listens")


class Weir(Server):
    """A gateway with its own folder. `sink` is null or sqlite; `ack` the stream's level."""

    def __init__(self, folder, binary, name="weir", ack="durable", sink="null", max_bytes="10GiB",
                 pause_file=None, port=0):
        super().__init__(folder)
        self.binary, self.name, self.want_port = binary, name, port
        options = f', pause_file: "{pause_file}"' if pause_file else ""
        self.config = f"""
version: 1
log: {{kind: journal, max_bytes: {max_bytes}}}
streams:
  events: {{id: /id, ack: {ack}, primary: main, sinks: [main]}}
sinks:
  main: {{kind: "{sink}"{options}}}
"""

    def command(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "weir.yaml").write_text(self.config)
        return [self.binary, "serve", "-c", self.folder / "weir.yaml", "--data", self.folder / "data",
                "--listen", f"127.0.0.1:{self.want_port}"]

    def start(self):
        self.spawn(self.command(), stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                return
        raise RuntimeError(f"weir did not start: {(self.folder / 'stderr').read_text()[-2000:]}")

    def metrics(self):
        """{"name{labels}": value}"""
        text = urllib.request.urlopen(self.url + "/metrics", timeout=60).read().decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in text.split("\n") if line and line[0] != "#"}

    def counters(self):
        """What a run changes: syncs of the log, groups by size, batches to the sink."""
        return {name: value for name, value in self.metrics().items()
                if name.startswith(("weir_log_flushes", "weir_log_group_records", "weir_sink_batches",
                                    "weir_stored", "weir_refused_total", "weir_accepted_records"))}

    def lag(self):
        return sum(value for name, value in self.metrics().items() if name.startswith("weir_lag_records"))

    def settle(self, seconds=300):
        wait_until(lambda: self.lag() == 0, "the sink has everything", seconds, 0.1)


def groups(before, after):
    """The distribution of records in a flush between two counters(): mean, p50, p90, and the shares by
    bucket; {} where there is none."""
    prefix = 'weir_log_group_records_bucket{le="'
    n = after.get("weir_log_group_records_count", 0) - before.get("weir_log_group_records_count", 0)
    if n <= 0:
        return {}
    total = after["weir_log_group_records_sum"] - before["weir_log_group_records_sum"]
    bounds = sorted((float(name[len(prefix):-2].replace("+Inf", "inf")), value - before.get(name, 0))
                    for name, value in after.items() if name.startswith(prefix))
    result, last, shares = {"count": int(n), "mean": total / n}, 0, {}
    for bound, below in bounds:
        for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            if name not in result and below >= q * n:
                result[name] = bound
        if below > last:
            shares[f"<={bound:g}"] = round((below - last) / n, 4)
        last = below
    result["shares"] = shares
    return result
