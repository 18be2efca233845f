"""Which official SuperNodes work with which official SuperLinks, run for real: the table of crates/base/flower is what happens."""

import json

import pytest

from harness.federation import OFFICIAL
from harness.release import flower
from harness.superlink import LinkOptions, Superlink
from harness.supernode import Supernode
from harness.workspace import TESTS
from provision import CannotBeHad

# SuperLink, SuperNode: whether they work together. Written by a test of crates/base/flower.
SKEW = json.loads((TESTS / "harness" / "skew.json").read_text())
CANNOT_WORK = "cannot work"


@pytest.mark.parametrize("release", SKEW)
def test_nodes_connect_as_the_table_says(workspace, release):
    try:
        releases = {version: flower(version) for version in SKEW}
    except CannotBeHad as why:
        pytest.skip(str(why))
    options = LinkOptions(kind=OFFICIAL, official=release, runtime=release, as_shipped=True)
    superlink = Superlink(workspace, options).start()
    address = superlink.fleet_for(releases[release])
    nodes = {
        version: Supernode(workspace, superlink, partition, len(SKEW), version=version, address=address).start()
        for partition, version in enumerate(SKEW)
    }
    works = [node for version, node in nodes.items() if SKEW[release][version] != CANNOT_WORK]
    for node in works:
        # A node that has its launcher of apps has registered, is activated and asks for messages.
        node.wait_settled()
        assert node.process.alive, f"{node.version} ended"
    for version, node in nodes.items():
        connected = "SuperNode ID" in node.process.log.read_text()
        assert connected == (node in works), f"a node of {version} with a SuperLink of {release}"
