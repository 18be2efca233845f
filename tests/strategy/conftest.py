"""Fixtures of the parity suite."""

from collections.abc import Callable, Iterator

import pytest

from harness.release import flower
from harness.workspace import Workspace
from provision import CannotBeHad
from strategy.peers import OFFICIAL, Official, Ours, Peer, example


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    made = Workspace(tmp_path_factory.mktemp("strategy"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def ours(desk: Workspace) -> Iterator[Ours]:
    if not example().exists():
        pytest.skip(f"{example()} does not exist: cargo build -p trellis-strategy --example case")
    peer = Peer([str(example())], desk.env(), desk.logs / "ours.log")
    yield Ours(peer)
    peer.close()


@pytest.fixture(scope="session")
def official(desk: Workspace) -> Iterator[Callable[[str], Official]]:
    """The classes of a release, in one process for the session."""
    known: dict[str, Official] = {}

    def of(version: str) -> Official:
        if version not in known:
            try:
                release = flower(version)
            except CannotBeHad as why:
                pytest.skip(str(why))
            argv = [release.command("python"), str(OFFICIAL)]
            known[version] = Official(release, Peer(argv, desk.env(release), desk.logs / f"official-{version}.log"))
        return known[version]

    yield of
    for one in known.values():
        one.peer.close()
