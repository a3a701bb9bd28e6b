"""Power cuts: the fault file system forgets what was not synced, a random subset of pages, at a random moment."""

import random

from ledger import Ledger
from test_kill import CONFIG, settled
from weir import FAULT_BIN, SLOW, wait_for


def test_power_cuts(gateway, seed, cycles):
    rng = random.Random(seed)
    ledger = Ledger(seed)
    weir = gateway(config=CONFIG, start=False)
    weir.binary = FAULT_BIN
    cuts = 0
    for cycle in range(cycles):
        kind = rng.choice(["powercut", "powercut", "powercut-ms"])
        at = rng.randrange(1, 3000) if kind == "powercut" else rng.randrange(1, 1500)
        weir.env["WEIR_FAULT"] = f"seed={rng.randrange(1 << 31)};{kind}={at}"
        weir.start(wait=False)
        try:
            weir.wait_listening()
        except AssertionError:
            assert weir.process.wait(20 * SLOW) == 137, weir.errors[-10:]
            cuts += 1
        else:
            finish = ledger.load(weir.port)
            assert weir.process.wait(120 * SLOW) == 137, weir.errors[-10:]
            cuts += 1
            finish()
        weir._joined()
        weir.env.pop("WEIR_FAULT")
        weir.start()
        wait_for(lambda: settled(weir), "delivered after the restart", 60)
        for store in ("main", "copy"):
            ledger.check(weir.rows(store), everything=True)
            with weir.database(store) as db:
                assert db.execute("PRAGMA quick_check").fetchone() == ("ok",)
        weir.stop()
    assert cuts == cycles and ledger.answers > cycles
    print(f"{cuts} power cuts, {len(ledger.acked)} acknowledged ids, all there")
