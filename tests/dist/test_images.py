"""The image archives with podman: as deploy/images/build.sh makes them, trained with, upgraded over the same state, removed."""

import json
import tarfile

import pytest
from dist.conftest import Release
from harness.images import ContainerFederation, Images, build
from harness.podman import Podman, podman
from harness.workspace import Workspace, trellis_binary
from provision import CannotBeHad

pytestmark = pytest.mark.trellis_only

ROLES = ("operator", "superlink", "supernode")
NODES = 2
SETTINGS = ("User", "Env", "Entrypoint", "WorkingDir", "Volumes")


@pytest.fixture(scope="module")
def engine(tmp_path_factory) -> Podman:
    try:
        ready = podman(tmp_path_factory.mktemp("podman"))
        ready.add_buildah()
        return ready
    except CannotBeHad as why:
        pytest.skip(f"no container can be made here: {why}")


def load(engine: Podman, release: Release) -> Images:
    for role in ROLES:
        engine.run("load", "--quiet", "--input", str(release.one(f"trellis-{role}-{release.version}.oci.tar")))
    return Images(engine, release.version)


def described(images: Images, role: str) -> tuple[dict, dict]:
    config = json.loads(images.podman.run("image", "inspect", images.name(role)))[0]["Config"]
    files = {
        name: (member.type, member.mode & 0o7777, member.uid, member.gid, member.linkname, member.size if member.isfile() else 0)
        for name, member in images.contents(role).items()
        if name not in ("", ".")
    }
    return {key: config.get(key) for key in SETTINGS}, files


@pytest.mark.parametrize("role", ROLES)
def test_an_archive_is_what_the_dockerfile_makes(engine: Podman, release: Release, role: str):
    ours = described(load(engine, release), role)
    assert ours == described(build(engine, trellis_binary(), role, builder="buildah"), role)


def test_an_index_has_every_machine_that_has_an_archive(release: Release):
    machines = {path.name.rpartition("-")[2].removesuffix(".tar.gz") for path in release.directory.glob("*-linux-*.tar.gz")}
    for role in ROLES:
        with tarfile.open(release.one(f"trellis-{role}-{release.version}.oci.tar")) as archive:

            def read(name: str, archive: tarfile.TarFile = archive) -> dict:
                return json.loads(archive.extractfile(name).read())

            [entry] = read("index.json")["manifests"]
            index = read("blobs/" + entry["digest"].replace(":", "/"))
        found = {each["platform"]["architecture"] for each in index["manifests"]}
        assert found == {{"x86_64": "amd64", "aarch64": "arm64"}[machine] for machine in machines}


def test_images_train_upgrade_and_leave_nothing(engine: Podman, workspace: Workspace, release: Release, older: Release):
    nodes = []
    for each in (older, release):
        federation = ContainerFederation(load(engine, each), workspace, NODES, ("--volume=link:/var/lib/trellis",))
        federation.start_nodes("supernode", ("--volume=node-{number}:/var/lib/trellis",))
        federation.train("native:mlp", 2)
        told = engine.run(
            "exec", "superlink", "trellis", "nodes", "--superlink", f"127.0.0.1:{federation.http}", "--insecure", "-o", "json"
        )
        nodes.append({node["id"] for node in json.loads(told)["nodes"]})
        engine.close()
    assert len(nodes[0]) == NODES and nodes[0] == nodes[1], "nodes are the same after an upgrade, and known"
    engine.run("volume", "rm", "link", *(f"node-{number}" for number in range(NODES)))
    engine.run("rmi", "--all", "--force")
    assert engine.run("images", "--quiet") == "" and engine.run("volume", "ls", "--quiet") == ""
