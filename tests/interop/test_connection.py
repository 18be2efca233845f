"""`trellis connect NAME`, and then the official `flwr run . NAME` of every release finds the federation, with TLS."""

import json

import pytest

from harness.connection import Person
from harness.federation import APPS, TLS
from harness.release import flower
from provision import CannotBeHad

NAME = "local"
QUICK = [pytest.param(version, marks=pytest.mark.quick) for version in ("1.25", "1.42")]
OTHERS = ["1.26", "1.30", "1.37"]

pytestmark = pytest.mark.trellis_only


@pytest.fixture
def person(workspace):
    def make(version: str, app: str = "faulty") -> Person:
        try:
            return Person(workspace, flower(version), workspace.copy_app(APPS / app, f"{app}-of-a-person"))
        except CannotBeHad as why:
            pytest.skip(str(why))

    return make


@pytest.mark.parametrize("version", [*QUICK, *OTHERS])
def test_flwr_run_finds_the_federation_by_name(federation, person, version):
    fed = federation(security=TLS, app="faulty", nodes=0, runtime=version).start()
    someone = person(version)

    told = someone.connect(NAME, fed.superlink)
    assert told.code == 0, told.text
    assert f"`flwr run . {NAME}` uses this federation" in told.stdout

    ran = someone.flwr("run", ".", NAME, "--stream")
    assert ran.code == 0, ran.text
    assert "faulty: nothing to do" in ran.text

    where = (NAME,) if someone.release.cli_reads_home else (".", NAME)
    listed = json.loads(someone.flwr("ls", *where, "--format", "json").stdout)
    assert [run["status"] for run in listed["runs"]] == ["finished:completed"]


@pytest.mark.parametrize("version", [pytest.param("1.25", marks=pytest.mark.quick), "1.26", "1.42"])
def test_what_was_written_goes_without_a_trace(federation, person, version):
    fed = federation(security=TLS, app="faulty", nodes=0, runtime=version).start()
    someone = person(version)
    before = someone.pyproject.read_text()
    assert someone.connect(NAME, fed.superlink).code == 0
    assert (someone.pyproject.read_text() == before) == someone.release.cli_reads_home

    assert someone.disconnect(NAME, fed.superlink).code == 0

    assert someone.pyproject.read_text() == before
    assert not someone.config.exists()


@pytest.mark.parametrize("version", ["1.26", "1.30", "1.42"])
def test_the_entry_that_flwr_makes_itself_gives_way_and_comes_back(federation, person, version):
    """A `flwr` that was used before has a `local` of its own, which starts a simulation."""
    fed = federation(security=TLS, app="faulty", nodes=0, runtime=version).start()
    someone = person(version)
    someone.flwr("ls", "nobody")
    before = someone.config.read_text()
    assert "[superlink.local]" in before

    assert someone.connect(NAME, fed.superlink).code == 0
    ran = someone.flwr("run", ".", NAME, "--stream")
    assert ran.code == 0 and "faulty: nothing to do" in ran.text, ran.text

    assert someone.disconnect(NAME, fed.superlink).code == 0
    assert someone.config.read_text() == before


def test_a_file_that_flwr_rewrote_is_known_again(federation, person):
    """From 1.26 on `flwr run` moves connections of old apps into its own file, and loses every comment in it."""
    fed = federation(security=TLS, app="faulty", nodes=0, runtime="1.42").start()
    someone = person("1.42")
    assert someone.connect(NAME, fed.superlink).code == 0
    with someone.pyproject.open("a") as app:
        app.write('\n[tool.flwr.federations]\ndefault = "other"\nother.address = "127.0.0.1:1"\n')
    ran = someone.flwr("run", ".", NAME, "--stream")
    assert ran.code == 0, ran.text
    assert "#" not in someone.config.read_text()

    assert someone.disconnect(NAME, fed.superlink).code == 0

    left = someone.config.read_text()
    assert "[superlink.other]" in left and f"[superlink.{NAME}]" not in left


def test_an_app_of_1_25_goes_on_with_a_newer_flower(federation, person):
    """What was written into the app for 1.25 is something that later ones can move."""
    fed = federation(security=TLS, app="faulty", nodes=0, runtime="1.42").start()
    old = person("1.25")
    assert old.connect(NAME, fed.superlink).code == 0
    new = Person(old.workspace, flower("1.42"), old.app)

    ran = new.flwr("run", ".", NAME, "--stream")

    assert ran.code == 0 and "faulty: nothing to do" in ran.text, ran.text
