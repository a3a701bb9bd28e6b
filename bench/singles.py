"""The figures that are not rates of a loaded gateway: the generator against wrk, a lone client against what the
machine can do, the start, idle memory, and a backlog."""
import json
import re
import shutil
import socket
import subprocess
import time
from statistics import median

from servers import Program, Weir, children_s, free_port

ORDER = ('{"id":"01KBASR13K0000000007","order_no":"01KBASR13K0000000007","address_id":123321123321123,'
         '"merchant_id":123321123321123,"user_id":123321123321123,"order_amount":123123}')
# One order as the journal writes it: group, unit and record headers, id, key, document, trailer.
LONE_GROUP_BYTES = 80 + 24 + 24 + 20 + 20 + 170 + 6 + 8


def wrk(bench, url, connections, seconds):
    script = bench.work / "post.lua"
    script.write_text(f"wrk.method='POST'\nwrk.body='{ORDER}'\nwrk.headers['Content-Type']='application/json'\n")
    out = subprocess.run(["wrk", "-t", str(bench.threads), "-c", str(connections), "-d", f"{seconds}s",
                          "-s", str(script), url + "/v1/streams/events"], text=True, capture_output=True, check=True)
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out.stdout).group(1))


def generator(bench):
    """wrk sends one body that never changes; weir load makes a record each time."""
    if not shutil.which("wrk"):
        print("\nwrk is not installed: weir load is not compared with it.")
        return
    print(f"\nGenerator: weir load against wrk on the bare libmicrohttpd server, {bench.threads} threads each\n")
    rows, seconds = [], max(1, round(bench.seconds))  # wrk takes whole seconds
    with Program(bench.work / "generator", "libmicrohttpd", bench.programs / "mhd_server") as server:
        for connections in (64, 250):
            rates, costs = {"ours": [], "wrk": []}, {"ours": [], "wrk": []}
            for number in range(bench.rounds):
                for which in (("ours", "wrk") if number % 2 else ("wrk", "ours")):
                    cpu = children_s()
                    if which == "ours":
                        rate = bench.load(server.url, "--closed", "--connections", connections,
                                          "--duration", seconds)["rate_per_s"]
                    else:
                        rate = wrk(bench, server.url, connections, seconds)
                    rates[which].append(rate)
                    costs[which].append((children_s() - cpu) * 1e6 / (rate * seconds))
                ours, theirs = rates["ours"], rates["wrk"]
                bench.report.line("generator", connections=connections, round=number, weir_load=ours[-1], wrk=theirs[-1],
                                  weir_load_cpu_us=costs["ours"][-1], wrk_cpu_us=costs["wrk"][-1])
                bench.progress(f"generator, {connections} connections: weir load {ours[-1]:.0f}/s, wrk {theirs[-1]:.0f}/s")
            rows.append([connections, f"{median(ours):.0f}", f"{median(theirs):.0f}", f"{median(costs['ours']):.2f}",
                         f"{median(costs['wrk']):.2f}"])
            bench.report.verdict(f"weir load / wrk, {connections} connections",
                                 [a / b for a, b in zip(ours, theirs)], 0.9, value=median(ours) / median(theirs))
    bench.progress("")
    bench.report.table(rows, ["connections", "weir load/s", "wrk/s", "weir load CPU us/req", "wrk CPU us/req"])


def lone(bench):
    """A lone client's durable p50 against its parts, all in one run."""
    print("\nLone client: one connection, durable, null sink; microseconds at p50\n")
    seconds = max(0.5, bench.seconds / 2)
    rows, ratios = [], []
    with Program(bench.work / "lone-bare", "libmicrohttpd", bench.programs / "mhd_server") as bare, \
            Weir(bench.work / "lone", bench.weir) as weir:
        for number in range(bench.rounds):
            def p50(server):
                return bench.load(server.url, "--closed", "--connections", 1, "--threads", 1, "--duration",
                                  seconds)["latency_us"]["p50"]
            trip = p50(bare)
            done = subprocess.run([bench.programs / "floor", "--dir", bench.work, "--bytes", str(LONE_GROUP_BYTES),
                                   "--seconds", str(seconds)], text=True, capture_output=True, check=True)
            floor = json.loads(done.stdout)
            wakes, sync = floor["two_wakes_us"]["p50"], floor["write_sync_us"]["p50"]
            durable = p50(weir)
            bound = trip + wakes + 1.3 * sync
            ratios.append(durable / bound)
            rows.append([number + 1, f"{trip:.1f}", f"{wakes:.1f}", f"{sync:.1f}", f"{bound:.1f}", f"{durable:.1f}"])
            bench.report.line("lone", round=number, bare_us=trip, two_wakes_us=wakes, write_sync_us=sync, bound_us=bound,
                              durable_us=durable)
            bench.progress(f"lone client, round {number + 1}: durable {durable:.0f} us, bound {bound:.0f} us")
        weir.settle()
    bench.progress("")
    bench.report.table(rows, ["round", "bare round trip", "two wakes", "write+fdatasync", "bound", "durable"])
    bench.report.verdict("lone durable p50 / (bare + two wakes + 1.3 write+fdatasync)", ratios, 1.0, at_most=True)


def first_answer(server):
    """Starts the server on its port and returns the seconds until a record was answered 202."""
    request = (f"POST /v1/streams/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
               f"Content-Length: {len(ORDER)}\r\n\r\n{ORDER}").encode()
    command = server.command()
    begin = time.monotonic()
    server.spawn(command, stdout=subprocess.DEVNULL)
    server.port = server.want_port
    while True:
        try:
            with socket.create_connection(("127.0.0.1", server.port), 10) as s:
                s.settimeout(60)
                s.sendall(request)
                answer = s.recv(4096)
            if answer.startswith((b"HTTP/1.1 202", b"HTTP/1.1 201")):
                return time.monotonic() - begin
        except ConnectionError:
            pass
        if server.process.poll() is not None:
            raise RuntimeError(f"weir ended: {(server.folder / 'stderr').read_text()[-2000:]}")
        if time.monotonic() - begin > 120:
            raise RuntimeError("weir did not answer within 120 s")
        time.sleep(0.0005)


def start(bench):
    print("\nStart and idle memory: default configuration (journal, SQLite)\n")
    fresh, again, idle = [], [], []
    for number in range(bench.rounds):
        folder = bench.work / f"start-{number}"
        server = Weir(folder, bench.weir, sink="sqlite", port=free_port())
        fresh.append(first_answer(server) * 1000)
        server.settle()
        server.stop()
        again.append(first_answer(server) * 1000)
        server.settle()
        time.sleep(1)
        idle.append(server.memory("VmRSS") / 2**20)
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        bench.report.line("start", round=number, fresh_ms=fresh[-1], again_ms=again[-1], idle_mib=idle[-1])
    bench.report.verdict("start to first answer, new folder", fresh, 100, at_most=True, unit=" ms", digits=1)
    bench.report.verdict("start to first answer, folder of an earlier run", again, 100, at_most=True, unit=" ms", digits=1)
    bench.report.verdict("idle memory", idle, 32, at_most=True, unit=" MiB", digits=1)
    print(f"  fresh {median(fresh):.0f} ms, again {median(again):.0f} ms, idle {median(idle):.1f} MiB")


def backlog(bench):
    """Fills the log while the sink takes nothing, then starts again twice: after SIGTERM and after kill -9."""
    size = bench.backlog_bytes
    count = size // 16384
    free = shutil.disk_usage(bench.work).free
    print(f"\nBacklog: {size / 2**30:.1f} GiB in {count} records of 16 KiB, null sink paused\n")
    if free < size * 1.3 + 2**30:
        print(f"  skipped: it needs {size * 1.3 / 2**30 + 1:.0f} GiB of disk, and {free / 2**30:.0f} are free "
              "(--backlog makes it smaller)")
        return
    folder = bench.work / "backlog"
    pause = folder / "paused"
    folder.mkdir()
    pause.touch()
    server = Weir(folder, bench.weir, max_bytes=f"{size * 5 // 4 // 2**20 + 1024}MiB", pause_file=pause, port=free_port())
    first_answer(server)
    begin = time.monotonic()
    result = bench.load(server.url, "--closed", "--connections", 64, "-n", count, "--template",
                        '{"id":"{id}","pad":"{pad:16346}"}')
    fill_s = time.monotonic() - begin
    lag = server.lag()
    peak_fill = server.memory("VmHWM")
    assert lag >= result["ok"], (lag, result)
    server.stop()
    start_stop = first_answer(server)
    peak_stop = server.memory("VmHWM")
    server.kill()
    start_kill = first_answer(server)
    kept = server.lag()
    pause.unlink()
    begin = time.monotonic()
    server.settle(1800)
    drain_s = time.monotonic() - begin
    peak_drain = server.memory("VmHWM")
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)
    fields = {"bytes": size, "records": count, "ok": result["ok"], "errors": result["errors"], "fill_s": fill_s,
              "lag": lag, "lag_after_kill": kept, "start_after_stop_s": start_stop, "start_after_kill_s": start_kill,
              "peak_fill_bytes": peak_fill, "peak_start_bytes": peak_stop, "peak_drain_bytes": peak_drain,
              "drain_s": drain_s}
    bench.report.line("backlog", **fields)
    print(f"  filled in {fill_s:.0f} s ({result['rate_per_s'] * 16384 / 2**20:.0f} MiB/s), drained in {drain_s:.0f} s "
          f"({size / 2**20 / max(drain_s, 0.1):.0f} MiB/s)")
    peak = max(peak_fill, peak_stop, peak_drain) / 2**20
    bench.report.verdict("backlog: peak memory (filling, starting, draining)", [peak], 256, at_most=True, unit=" MiB", digits=0)
    bench.report.verdict("backlog: start after a stop", [start_stop], 2, at_most=True, unit=" s")
    bench.report.verdict("backlog: start after kill -9", [start_kill], 2, at_most=True, unit=" s")
    bench.report.verdict("backlog: records not lost", [kept / lag], 1)
