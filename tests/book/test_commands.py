"""Every command of the pages that newcomers read works as it is printed: run from top to bottom, by a user without rights, in a home
that nobody used before. Each page has a network and processes of its own, so that the ports in it are free."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from book.commands import DOCS, ELSEWHERE, PAGES_ELSEWHERE, STANDING_FOR, STAYING, Command, blocks, commands, name
from harness.release import flower
from harness.wheel import build, stripped
from harness.workspace import REPOSITORY, trellis_binary

PAGES = [page for page in (REPOSITORY / "README.md", *sorted(DOCS.rglob("*.md"))) if blocks(page, "sh")]
TUTORIAL = DOCS / "tutorial.md"
# The commands of the tutorial that write the reader's own app.
WRITES_APP = ("mkdir -p my-app", "touch my-app", "cat > my-app")
NEWEST = "1.42"
PAGE_LIMIT_S = 600.0
# A page that installs nothing has the program on PATH.
INSTALLS = "pip install dist/"
# For pages without a document of their own.
DOCUMENT = "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: lab}\nspec: {nodes: 1}\n"

TWO_NODES = ["trellis superlink --insecure", *(
    f'trellis supernode --insecure --superlink 127.0.0.1:9092 --node-config "partition-id={node} num-partitions=2" '
    f"--state-dir node-{node}" for node in (0, 1)
)]
# Of this page: commands that the reader gave before, on another page.
BEFORE = {
    "training.md": TWO_NODES,
    "accounts.md": [
        "trellis superlink --insecure --account-auth on",
        "export TRELLIS_SUPERLINK=127.0.0.1:8000 TRELLIS_INSECURE=true",
        "trellis server",
    ],
    "api.md": ["trellis server"],
    "catalogue.md": ["trellis up plant --detach"],
    "migration-opennebula.md": ["echo \"FL_ROUNDS='3'\" > context.sh"],
    "models.md": ["trellis run --rounds 2 --set checkpoint-interval=1"],
    "start/site.md": ["trellis superlink --insecure", "trellis supernode --insecure"],
    "supernode.md": ["trellis superlink --insecure"],
}

PRELUDE = r"""
set -eEuo pipefail
trap 'echo "FAILED: $BASH_COMMAND" >&2' ERR
logs=$(mktemp -d)
# Starts what stays, and waits until it says that it is at work.
staying() {
    echo "$ $2 &"
    local log=$logs/$RANDOM.log
    bash -c "exec $2" > "$log" 2>&1 &
    local pid=$!
    for _ in $(seq 600); do
        if [ -z "$1" ] || grep -q -- "$1" "$log"; then return; fi
        if ! kill -0 $pid 2> /dev/null; then break; fi
        sleep 0.1
    done
    cat "$log" >&2
    return 1
}
"""


def page_commands(page: Path) -> list[Command]:
    return [Command(name(page), text) for text in BEFORE.get(name(page), [])] + commands(page)


def all_calls() -> list[tuple[str, list[str]]]:
    return [(command.text, call) for page in PAGES for command in commands(page) for call in command.calls()]


@pytest.mark.quick
def test_every_word_of_every_command_exists():
    """Also of those that need a cloud, a cluster or another machine."""
    assert len(all_calls()) > 60
    wrong = []
    for text, words in all_calls():
        argv = [str(trellis_binary()), *words, "--help"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0 or "Usage:" not in done.stdout:
            wrong.append(f"{text}: {done.stderr}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.quick
def test_lists_of_commands_are_of_commands_that_exist():
    printed = {command.text for page in PAGES for command in page_commands(page)}
    assert not {*ELSEWHERE, *STANDING_FOR} - printed, "no page has these any more"
    assert not {*PAGES_ELSEWHERE, *BEFORE} - {name(page) for page in PAGES}, "these pages have no commands any more"
    assert all(any(text.startswith(begin) for text in printed) for begin in STAYING)


class Reader:
    """A user without rights, with a home that is new, on a machine with nothing but our program and flwr."""

    def __init__(self, place: Path):
        self.place = place
        self.home = place / "home"
        self.home.mkdir()
        # A release brings it.
        shutil.copy(DOCS / "releases.json", self.home)
        # So that a refused request is an error.
        (self.home / ".curlrc").write_text("fail\n")
        (place / "bin").mkdir()
        (place / "bin" / "trellis").touch()
        self.nobody = pwd.getpwnam("nobody") if os.geteuid() == 0 else None

    def give_wheel(self, wheel: Path) -> None:
        """A checkout after `make wheel`, and an environment of the reader that has Flower already."""
        (self.home / "dist").mkdir()
        shutil.copy(wheel, self.home / "dist")
        (self.place / "bin" / "trellis").unlink()
        release = flower(NEWEST)
        subprocess.run([release.bin / "python", "-m", "venv", self.place], check=True, timeout=PAGE_LIMIT_S)
        [packages] = self.place.glob("lib/python*/site-packages")
        [theirs] = release.bin.parent.glob("lib/python*/site-packages")
        (packages / "flower.pth").write_text(f"{theirs}\n")

    def read(self, page: Path) -> subprocess.CompletedProcess:
        # The first is what the page begins with; others are about sites that are elsewhere.
        documents = [document for document in blocks(page, "yaml") if document.startswith("apiVersion:")]
        (self.home / "federation.yaml").write_text([*documents, DOCUMENT][0])
        app = [command for command in commands(TUTORIAL) if command.text.startswith(WRITES_APP) and page != TUTORIAL]
        script = self.place / "page.sh"
        script.write_text(PRELUDE + "\n".join(command.script() for command in [*app, *page_commands(page)] if command.runs) + "\n")
        if self.nobody:
            for path in [self.home, *self.place.rglob("*")]:
                os.chown(path, self.nobody.pw_uid, self.nobody.pw_gid, follow_symlinks=False)
        return self.run(script)

    def run(self, script: Path) -> subprocess.CompletedProcess:
        release = flower(NEWEST)
        env = {
            "HOME": str(self.home),
            "PATH": f"{self.place / 'bin'}:{release.bin}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        drop, user = "", ["--map-root-user"]
        if self.nobody:
            drop = f"setpriv --reuid {self.nobody.pw_uid} --regid {self.nobody.pw_gid} --clear-groups "
            user = []
        # The releases and their Python may be in a home that others cannot enter: they are shown in a place that looks the same.
        show = ""
        if self.nobody:
            python = (release.bin / "python").resolve()
            hidden, view = Path.home(), self.place / "view"
            for shown in (release.bin.parent, python.parent.parent):
                if shown.is_relative_to(hidden):
                    (view / shown.relative_to(hidden)).mkdir(parents=True)
                    show += f"mount --bind {shown} {view / shown.relative_to(hidden)} && "
            show += f"mount --rbind {view} {hidden} && " if show else ""
        program = self.place / "bin" / "trellis"
        mount = f"mount --bind {trellis_binary()} {program} && " if program.exists() else ""
        inside = f"ip link set lo up && {mount}{show}cd {self.home} && exec {drop}bash {script}"
        apart = ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        argv = [*apart, "--propagation", "private", "sh", "-c", inside]
        return subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=PAGE_LIMIT_S
        )


@pytest.fixture
def reader():
    tools = ("unshare", "setpriv", "ip", "bash")
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        pytest.skip(f"the pages were not run: there is no {', '.join(missing)}")
    if subprocess.run(["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net", "true"], check=False).returncode:
        pytest.skip("the pages were not run: this user can have no network of its own")
    place = Path(tempfile.mkdtemp(prefix="book-"))
    place.chmod(0o755)
    yield Reader(place)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    return build(place, stripped(trellis_binary(), place))


# Those that start no training take seconds.
QUICK = ("operations.md", "accounts.md", "pki.md", "api.md", "releases.md", "superlink.md", "start/site.md", "migration-opennebula.md")


def runnable() -> list:
    pages = [page for page in PAGES if any(command.runs for command in commands(page))]
    return [pytest.param(page, marks=[pytest.mark.quick] if name(page) in QUICK else [], id=name(page)) for page in pages]


@pytest.mark.parametrize("page", runnable())
def test_every_command_works_as_printed(reader, request, page):
    if any(command.text.startswith(INSTALLS) for command in commands(page)):
        reader.give_wheel(request.getfixturevalue("wheel"))
    done = reader.read(page)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
