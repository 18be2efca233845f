"""The images FROM scratch: what is in them, that the same program gives the same image, and a training in containers as strict as
pods of the operator."""

import json

import numpy as np
import pytest

from harness.federation import APPS
from harness.images import ContainerFederation, Images, build, build_from, import_debian
from harness.podman import podman
from harness.workspace import Workspace, trellis_binary
from provision import CannotBeHad, releases

ROLES = ("operator", "superlink", "supernode")
NODES = 2
ROUNDS = 2
ARRAY_COUNT, ARRAY_LENGTH = 4, 64
# What python.Dockerfile needs of the image that it builds on.
PYTHON = ("ca-certificates", "python3", "python3-venv")
# Who owns what is around the state, who owns the state, and who may do what with it.
STATE = """
import json, os, stat
own = os.stat("/var/lib/trellis")
print(json.dumps([os.stat("/var/lib").st_uid, own.st_uid, stat.S_IMODE(own.st_mode)]))
"""
# The newest asks for packages that an index may not have yet (versions.ini).
FLOWER = "1.41"

pytestmark = pytest.mark.trellis_only


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    try:
        ready = podman(tmp_path_factory.mktemp("podman"))
        ready.add_buildah()
        made = build(ready, trellis_binary(), *ROLES, builder="buildah")
    except CannotBeHad as why:
        pytest.skip(f"images cannot be made here: {why}")
    yield made
    ready.close()


@pytest.mark.parametrize("role", ROLES)
def test_an_image_has_our_program_and_no_other(images: Images, role):
    settings = json.loads(images.podman.run("image", "inspect", images.name(role)))[0]["Config"]
    assert settings["User"] == "65532:65532"
    entry = ["/usr/bin/trellis"] + (["operator", "run"] if role == "operator" else [role])
    assert settings["Entrypoint"] == entry
    files = images.contents(role)
    programs = [name for name, member in files.items() if member.isfile() and member.mode & 0o111]
    assert programs == ["usr/bin/trellis"]
    assert files["tmp"].mode & 0o7777 == 0o1777
    if role == "operator":
        assert "var/lib/trellis" not in files, "it keeps nothing"
    else:
        assert (files["var/lib/trellis"].uid, files["var/lib/trellis"].mode & 0o777) == (65532, 0o770)


@pytest.mark.parametrize("role", ROLES)
def test_the_program_starts_with_nothing_around_it(images: Images, role):
    assert images.run(role, "--version" if role != "operator" else "--help")


@pytest.mark.parametrize("role", ROLES)
def test_every_image_has_all_commands(images: Images, role):
    """Pods of the operator name the command, so that one image may serve for all."""
    by_name = ("--rm", "--network=none", "--entrypoint", json.dumps(["trellis", "superlink"]))
    assert images.run(role, "--version", flags=by_name)
    as_flower = ("--rm", "--network=none", "--entrypoint", "flower-supernode")
    assert images.run(role, "--version", flags=as_flower)


@pytest.mark.parametrize("builder", ["buildah", "podman"])
def test_the_same_program_gives_the_same_image_by_either_builder(images: Images, builder):
    before = images.digest("superlink")
    images.podman.run("rmi", images.name("superlink"))
    assert build(images.podman, trellis_binary(), "superlink", builder=builder).digest("superlink") == before


@pytest.fixture
def federation(images: Images, workspace: Workspace):
    yield ContainerFederation(images, workspace, NODES)
    images.podman.close()


def test_containers_that_may_nothing_train(federation: ContainerFederation):
    federation.start_nodes("supernode")
    federation.train("native:mlp", ROUNDS)


def test_flower_apps_train_beside_a_python(images: Images, federation: ContainerFederation):
    """python.Dockerfile as it is, on a Debian of our own in place of the image that it names."""
    try:
        base = import_debian(images.podman, "python", PYTHON)
    except CannotBeHad as why:
        pytest.skip(f"a base image cannot be made here: {why}")
    empty = federation.workspace.root / "context"
    empty.mkdir()
    requirements = f"flwr=={releases()[FLOWER].flwr} numpy"
    arguments = {"SUPERNODE": images.name("supernode"), "PYTHON": base, "REQUIREMENTS": requirements}
    build_from(images.podman, "python.Dockerfile", images.name("supernode-python"), empty, **arguments)
    told = images.run("supernode-python", "-c", STATE, flags=("--rm", "--network=none", "--entrypoint=python3"))
    assert json.loads(told) == [0, 65532, 0o770], "the state is ours, and what is around it is not"
    # Pods of the operator have it, too: Python wants a place for temporary files.
    federation.start_nodes("supernode-python", flags=("--tmpfs=/tmp",))
    model = federation.shared / "first.npz"
    np.savez(model, **{str(index): np.zeros(ARRAY_LENGTH, np.float32) for index in range(ARRAY_COUNT)})
    nodes = {f"min_{what}_nodes": NODES for what in ("available", "train", "evaluate")}
    federation.train(str(APPS / "numpy_fedavg"), ROUNDS, initial_model=model.name, **nodes)
