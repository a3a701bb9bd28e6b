"""The crash tests use the scenario tests' harness."""

import os
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "scenario"))
from conftest import gateway, pytest_runtest_makereport  # noqa: E402,F401


@pytest.fixture
def seed():
    """Of everything random in the test; printed, and taken from WEIR_SEED."""
    value = os.environ.get("WEIR_SEED") or str(random.randrange(1 << 32))
    print(f"WEIR_SEED={value}")
    return value


@pytest.fixture
def cycles():
    return int(os.environ.get("WEIR_CYCLES", "50"))
