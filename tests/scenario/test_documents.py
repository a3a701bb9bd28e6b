"""The documents are true: their examples pass, the tests, threads and files that they name are there."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TESTS = ROOT / "tests"


def read(name):
    return (ROOT / name).read_text()


def example(page):
    """The indented block that begins with `version: 1`."""
    block = re.search(r"^    version: 1\n(?:    .*\n)+", read(page), re.M).group(0)
    return re.sub(r"^    ", "", block, flags=re.M)


@pytest.mark.parametrize("page", ["README.md", "docs/configuration.md"])
def test_the_example_of_a_configuration_is_good(gateway, page):
    weir = gateway(start=False)
    path = weir.folder / "weir.yaml"
    path.write_text(example(page))
    assert "is good" in weir.run("check", "-c", path, check=0).stdout


@pytest.mark.parametrize("page", ["README.md", "docs/promises.md"])
def test_every_test_that_is_named_exists(page):
    names = re.findall(r"`(?:tests/)?((?:scenario|crash|unit|fuzz)/[^`]*)`", read(page))
    assert names
    for name in names:
        path, _, test = name.partition("::")
        assert (TESTS / path).exists(), name
        assert not test or re.search(rf"^def {test}\(", (TESTS / path).read_text(), re.M), name


def test_links_lead_somewhere():
    for page in ["README.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))]:
        for link in re.findall(r"\]\(([^)#]+)\)", read(page)):
            assert link.startswith("http") or ((ROOT / page).parent / link).exists(), (page, link)


def test_commands_of_the_readme_are_those_there_are(gateway):
    block = read("README.md").split("## Commands\n")[1].split("\n\n")[0]
    named = set(re.findall(r"weir (\w+)(?:  |$)", block, re.M))
    known = re.findall(r"^  (\w+)", gateway(start=False).run("help", check=0).stdout, re.M)
    assert named == set(known)


def test_threads_have_the_names_of_the_architecture(weir):
    table = read("docs/architecture.md").split("## Threads\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    known = [re.escape(name).replace("NAME", "main").replace("N", r"\d+") for row in rows
             for name in re.findall(r"`([^`]+)`", row)] + ["main"]  # the sink's lane has its name
    assert weir.post({"id": "a"}, query="?ack=stored").status_code == 201
    process = pathlib.Path(f"/proc/{weir.process.pid}")
    known.append(re.escape((process / "comm").read_text().strip()))  # main, and one that was born just now
    names = [(task / "comm").read_text().strip() for task in (process / "task").iterdir()]
    assert len(names) > 5
    for name in names:
        assert any(re.fullmatch(pattern, name) for pattern in known), (name, known)


def test_the_data_directory_is_as_the_architecture_lists_it(weir):
    block = read("docs/architecture.md").split("## What lies in the data directory\n\n")[1].split("\n\n")[0]
    listed = {line.split()[0].rstrip("/").replace("NAME", "main") for line in block.splitlines()}
    assert weir.post({"id": "a"}, query="?ack=stored").status_code == 201
    there = {path.name.rstrip("~") for path in weir.data.iterdir()} - {"main.db-wal", "main.db-shm"}
    assert there <= listed and listed - there <= {"dead"}, (there, listed)
