"""Fixtures of the scenario and crash tests. With REQUIRE=all in the environment nothing may be skipped."""

import os
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from weir import Weir  # noqa: E402


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("REQUIRE") == "all":
        report.outcome = "failed"
        report.longrepr = f"REQUIRE=all and this was skipped: {report.longrepr}"


@pytest.fixture
def gateway(tmp_path):
    """A factory: gateway() starts one with the built-in default, gateway(config=...) with a file."""
    made = []

    def make(config=None, start=True, name="", **more):
        folder = tmp_path / (name or f"weir{len(made)}")
        folder.mkdir(exist_ok=True)
        weir = Weir(folder, config=config, **more)
        made.append(weir)
        return weir.start() if start else weir

    yield make
    for weir in made:
        if weir.process and weir.process.poll() is None:
            weir.stop()
        weir.session.close()


@pytest.fixture
def weir(gateway):
    """One gateway with the built-in default: journal, SQLite, stream `events`."""
    return gateway()


@pytest.fixture(scope="session")
def fixtures():
    """The folder with the shared JSON documents and strings."""
    folder = os.environ.get("WEIR_FIXTURES")
    if not folder or not pathlib.Path(folder).is_dir():
        pytest.skip("WEIR_FIXTURES does not name the folder with the test documents")
    return pathlib.Path(folder)


@pytest.fixture
def seed():
    """Of everything random in the test; printed, and taken from WEIR_SEED."""
    value = os.environ.get("WEIR_SEED") or str(random.randrange(1 << 32))
    print(f"WEIR_SEED={value}")
    return value


@pytest.fixture
def cycles():
    """How often a crash test crashes."""
    return int(os.environ.get("WEIR_CYCLES", "50"))
