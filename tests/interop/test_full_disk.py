"""A disk without space: the SuperLink says that it cannot serve, loses nobody, and goes on when there is space again."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.waiting import wait_for

SMALL_DISK_BYTES = 16 << 20
HEALTH_LIMIT_S = 30.0


@pytest.fixture
def small_disk(workspace) -> Iterator[Path]:
    """A small file system of its own at the place of the state directory."""
    place = workspace.root / "superlink-state"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "none", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to mount a small file system here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> Path:
    """Take all space away, to the last byte."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for piece in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * piece)
            except OSError:
                continue
    return filler


@pytest.mark.trellis_only
def test_a_full_disk_is_told_and_survived(federation, small_disk, reference):
    fed = federation().start()
    ids, pids = sorted(node.wait_connected() for node in fed.nodes), fed.node_pids()

    filler = fill(small_disk)
    wait_for("the SuperLink to say that it cannot serve", lambda: not fed.superlink.is_serving(), HEALTH_LIMIT_S)

    filler.unlink()
    wait_for("the SuperLink to serve again", fed.superlink.is_serving, HEALTH_LIMIT_S)
    run_id = fed.cli.submit(result_path=fed.result_path())
    assert fed.wait_finished(run_id).status == "finished:completed"
    assert fed.result()["sha256"] == reference(rounds=3)
    assert sorted(fed.superlink.control.online_nodes()) == ids
    assert (fed.dead_nodes(), fed.node_pids()) == ([], pids)
