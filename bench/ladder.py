"""The ladder: from a server that does nothing with a record to one that has it in SQLite before it answers.
Interleaved rounds: every server once per round, in random order, a fresh process and a fresh folder each."""
import random
import shutil
import time
from statistics import median

from servers import CPUS, FluentBit, Nginx, Program, Weir, busy_s, children_s, groups

CONNECTIONS = (64, 250, 2000)


DISTURBED = 0.1


class Ladder:
    def __init__(self, bench):
        self.bench = bench
        weir = bench.weir
        self.arms = {
            "nginx": lambda d: Nginx(d),
            "libmicrohttpd": lambda d: Program(d, "libmicrohttpd", bench.programs / "mhd_server"),
            "weir http only": lambda d: Program(d, "weir http only", bench.programs / "http_server"),
            "received, null": lambda d: Weir(d, weir, ack="received"),
            "durable, null": lambda d: Weir(d, weir, ack="durable"),
            "stored, null": lambda d: Weir(d, weir, ack="stored"),
            "durable, sqlite": lambda d: Weir(d, weir, ack="durable", sink="sqlite"),
            "stored, sqlite": lambda d: Weir(d, weir, ack="stored", sink="sqlite"),
            "stored, sqlite, random ids": lambda d: Weir(d, weir, ack="stored", sink="sqlite"),
        }
        if FluentBit.find():
            self.arms["fluent-bit"] = lambda d: FluentBit(d)
        if bench.arms:
            self.arms = {name: make for name, make in self.arms.items() if name in bench.arms}
        self.sizes = [n for n in CONNECTIONS if not bench.connections or n in bench.connections]
        self.points = {}  # (arm, connections) -> one result a round

    def one(self, server, arm, connections, seconds):
        more = ["--random-ids"] if "random" in arm else []
        before = server.counters()
        server.reset_peak()
        cpu, busy, own, begin = server.cpu_s(), busy_s(), children_s(), time.monotonic()
        result = self.bench.load(server.url, "--closed", "--connections", connections, "--duration", seconds, *more)
        cpu, busy, own = server.cpu_s() - cpu, busy_s() - busy, children_s() - own
        elapsed = time.monotonic() - begin
        result["cpu_us_per_request"] = cpu * 1e6 / max(result["ok"], 1)
        result["others_share"] = max(0, busy - cpu - own) / elapsed / CPUS
        result["peak_bytes"] = server.memory("VmHWM")
        after = server.counters()
        flushes = after.get("weir_log_flushes_total", 0) - before.get("weir_log_flushes_total", 0)
        result["flushes_per_s"] = flushes / result["duration_s"]
        result["groups"] = groups(before, after)
        result["batches"] = sum(v - before.get(k, 0) for k, v in after.items() if "weir_sink_batches" in k)
        begin = time.monotonic()
        server.settle()
        result["drain_s"] = time.monotonic() - begin
        return result

    def quietest(self, server, arm, connections, seconds):
        """Measures again while other processes disturb, and keeps the least disturbed."""
        results = []
        for _ in range(1 + self.bench.patience):
            results.append(self.one(server, arm, connections, seconds))
            if results[-1]["others_share"] <= DISTURBED:
                break
        return min(results, key=lambda result: result["others_share"])

    def run(self):
        bench = self.bench
        order = random.Random(bench.seed)
        print(f"\nLadder: {bench.rounds} rounds of {bench.seconds:g} s, the order record (170 bytes), closed loop, "
              f"{bench.threads} load threads, servers on {CPUS} CPUs\n")
        for number in range(bench.rounds):
            arms = list(self.arms)
            order.shuffle(arms)
            for arm in arms:
                folder = bench.work / f"ladder-{number}-{arm.replace(', ', '-').replace(' ', '-')}"
                with self.arms[arm](folder) as server:
                    bench.load(server.url, "--closed", "--connections", 64, "--duration", 0.3)  # warm-up
                    server.settle()
                    sizes = list(self.sizes)
                    order.shuffle(sizes)
                    for connections in sizes:
                        result = self.quietest(server, arm, connections, bench.seconds)
                        self.points.setdefault((arm, connections), []).append(result)
                        bench.report.line("ladder", **{"arm": arm, "round": number, **result})
                        bench.progress(f"round {number + 1}/{bench.rounds}  {arm}, {connections} connections: "
                                       f"{result['rate_per_s']:.0f}/s")
                shutil.rmtree(folder, ignore_errors=True)
        bench.progress("")
        self.show()
        self.judge()

    def rates(self, arm, connections):
        return [r["rate_per_s"] for r in self.points[arm, connections]]

    def show(self):
        for connections in self.sizes:
            rows = []
            base = median(self.rates("libmicrohttpd", connections)) if "libmicrohttpd" in self.arms else 0
            for arm in self.arms:
                results = self.points[arm, connections]

                def mid(get):
                    return median(get(r) for r in results)
                sizes = [r["groups"] for r in results if r["groups"]]
                group = ""
                if sizes:
                    group = f"{median(g['mean'] for g in sizes):.0f} / {median(g['p50'] for g in sizes):g} / " \
                            f"{median(g['p99'] for g in sizes):g}"
                errors = sum(sum(r["errors"].values()) for r in results)
                rates = self.rates(arm, connections)
                rows.append([arm, f"{median(rates):.0f}", f"{min(rates):.0f}-{max(rates):.0f}",
                             f"{median(rates) / base:.2f}" if base else "",
                             f"{mid(lambda r: r['latency_us']['p50']) / 1000:.2f}",
                             f"{mid(lambda r: r['latency_us']['p99']) / 1000:.2f}",
                             f"{mid(lambda r: r['cpu_us_per_request']):.1f}",
                             f"{max(r['peak_bytes'] for r in results) / 2**20:.0f}",
                             f"{mid(lambda r: r['flushes_per_s']):.0f}" if group else "", group,
                             errors or "", sum(r["limited_by_generator"] for r in results) or ""])
            print(f"\n{connections} connections\n")
            self.bench.report.table(rows, ["server", "rate/s", "range", "to mhd", "p50 ms", "p99 ms", "CPU us/req",
                                           "peak MiB", "fsync/s", "group mean/p50/p99", "errors", "gen. limited"])
        disturbed = [r["others_share"] for results in self.points.values() for r in results
                     if r["others_share"] > DISTURBED]
        if disturbed:
            print(f"\n  The machine was not quiet: in {len(disturbed)} of {sum(map(len, self.points.values()))} measurements "
                  f"other processes used over {DISTURBED:.0%} of the CPUs (up to {max(disturbed):.0%}). Ratios of such "
                  "runs say little.")
        print("\n  gen. limited: rounds in which the generator had no CPU to spare: it shares the CPUs with the server.")

    def ratio(self, name, arm, other, connections, target=None):
        if arm not in self.arms or other not in self.arms:
            return
        pairs = [a / b for a, b in zip(self.rates(arm, connections), self.rates(other, connections))]
        value = median(self.rates(arm, connections)) / median(self.rates(other, connections))
        self.bench.report.verdict(f"{name}, {connections} connections", pairs, target, value=value)

    def judge(self):
        for connections in self.sizes:
            self.ratio("received / libmicrohttpd", "received, null", "libmicrohttpd", connections, 0.85)
        for connections in self.sizes:
            self.ratio("durable / received", "durable, null", "received, null", connections,
                       {64: None, 250: 0.80, 2000: 0.70}[connections])
        for connections in self.sizes:
            self.ratio("stored in SQLite / received", "stored, sqlite", "received, null", connections, 0.5)
        for connections in self.sizes:
            self.ratio("the same with random ids", "stored, sqlite, random ids", "received, null", connections)
        for connections in self.sizes:
            self.ratio("durable / nginx", "durable, null", "nginx", connections)
        if "fluent-bit" in self.arms:
            for connections in set(self.sizes) - {2000}:
                self.ratio("durable / Fluent Bit", "durable, null", "fluent-bit", connections, 3)
        else:
            print("\n  Fluent Bit is not installed: its target (durable at least 3 times its HTTP input into its null "
                  "output) is left out.")
