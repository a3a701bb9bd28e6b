"""Where the figures go: JSON lines under bench/results, and tables with each target and whether it is met."""
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if "model name" in line), "?")
    memory = int(next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal")))
    return {"cpu": model, "cpus": len(os.sched_getaffinity(0)), "memory_mib": memory // 1024,
            "kernel": platform.release(), "load_before": os.getloadavg()[0]}


def commit(root):
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=root, text=True, capture_output=True)
    return done.stdout.strip() or "unknown"


def median_range(values):
    return statistics.median(values), min(values), max(values)


class Report:
    def __init__(self, root, folder, seed, quick):
        folder.mkdir(parents=True, exist_ok=True)
        now = datetime.datetime.now(datetime.timezone.utc)
        self.path = pathlib.Path(folder) / now.strftime("%Y%m%d-%H%M%S.jsonl")
        self.verdicts = []
        self.line("session", time=now.isoformat(timespec="seconds"), commit=commit(root), seed=seed,
                  quick=quick, **machine())

    def line(self, kind, **fields):
        with open(self.path, "a") as out:
            out.write(json.dumps({"kind": kind, **fields}) + "\n")

    def verdict(self, name, values, target=None, at_most=False, unit="", digits=2, value=None):
        """values: one per round; `value` stands for their median when the figure is a ratio of medians.
        target None: reported only."""
        middle, low, high = median_range(values)
        value = middle if value is None else value
        met = None if target is None else (value <= target if at_most else value >= target)
        self.verdicts.append((name, value, low, high, target, at_most, met, unit, digits))
        self.line("verdict", name=name, value=value, min=low, max=high, rounds=len(values), target=target,
                  at_most=at_most, met=met, unit=unit)

    def table(self, rows, head):
        rows = [head] + [[str(cell) for cell in row] for row in rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        for number, row in enumerate(rows):
            print("  " + "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                                   for i, (cell, width) in enumerate(zip(row, widths))).rstrip())
            if number == 0:
                print("  " + "-" * (sum(widths) + 2 * len(widths) - 2))

    def summary(self):
        if not self.verdicts:
            return True
        print("\nFigures and targets (ratios are of medians; the range is that of single rounds)\n")
        rows = []
        for name, value, low, high, target, at_most, met, unit, digits in self.verdicts:
            figure = f"{value:.{digits}f}{unit}"
            span = f"{low:.{digits}f} to {high:.{digits}f}"
            want = "" if target is None else f"{'at most' if at_most else 'at least'} {target:.{digits}f}{unit}"
            rows.append([name, figure, span, want, {None: "", True: "met", False: "over" if at_most else "below"}[met]])
        self.table(rows, ["figure", "value", "range", "target", ""])
        print(f"\nEvery round: {self.path}")
        return all(row[6] is not False for row in self.verdicts)
