"""`.deb` and `.rpm` in a machine with systemd: installed, trained with, upgraded, removed; nothing is left. No systemd."""

import subprocess
from dataclasses import dataclass

import pytest
from dist.conftest import SYSTEM, Release, System
from harness.machine import tree
from harness.waiting import wait_for
from provision import CannotBeHad

pytestmark = pytest.mark.trellis_only

GONE_LIMIT_S = 20.0
FEDERATION = "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: digits}\nspec: {nodes: 2}\n"
HOME = "TRELLIS_HOME=/var/lib/trellis/server"


@dataclass(frozen=True)
class Kind:
    pattern: str
    install: str
    upgrade: str
    version: str
    remove: str
    # What an administrator does who wants nothing to stay.
    purge: str


# The program for .rpm insists on a word on Debian, and knows none of its packages.
RPM = "rpm --force-debian --nodeps"
KINDS = {
    "deb": Kind(
        "*_amd64.deb",
        "dpkg --install {}",
        "dpkg --install {}",
        "dpkg-query --show --showformat='${Version}' trellis",
        "dpkg --remove trellis",
        "dpkg --purge trellis",
    ),
    "rpm": Kind(
        "*.x86_64.rpm",
        f"{RPM} --install {{}}",
        f"{RPM} --upgrade {{}}",
        "rpm --query --queryformat '%{VERSION}-%{RELEASE}' trellis",
        f"{RPM} --erase trellis",
        "rm -r /etc/trellis /var/lib/trellis && userdel trellis",
    ),
}


def place(release: Release, kind: Kind) -> str:
    return f"/mnt/{release.version}/{release.one(kind.pattern).name}"


@pytest.mark.parametrize("name", KINDS)
def test_a_package_lives_and_leaves_nothing(system: System, release: Release, older: Release, name: str):
    kind = KINDS[name]
    said = system.run(kind.install.format(place(older, kind)))
    assert "trellis:" not in said, "there is nothing to say on a usual machine"
    assert system.run(kind.version) == f"{older.version}-1"
    assert system.run("stat --format '%U %a' /var/lib/trellis").split() == ["trellis", "750"]
    assert not any(int(pid.partition("=")[2]) for pid in system.pids()), "services need settings first"
    system.train_as_both()
    system.start_services()
    system.train_with_services()

    before, models, mine = system.pids(), system.models(), system.run("cat /etc/trellis/superlink.toml")
    system.run(kind.upgrade.format(place(release, kind)))
    assert system.run(kind.version) == f"{release.version}-1"
    assert system.run("cat /etc/trellis/superlink.toml") == mine, "settings are the administrator's"
    system.wait_for_services()
    assert not set(before) & set(system.pids()), "services take the new program"
    system.train_with_services()
    assert system.models() > models, "models outlive an upgrade"

    system.run(f"cat > /tmp/federation.yaml <<'E'\n{FEDERATION}E\n{HOME} trellis apply -f /tmp/federation.yaml")
    system.run(kind.remove)
    wait_for("all processes to end", lambda: system.tried("pgrep -u trellis").returncode == 1, GONE_LIMIT_S)
    assert system.run("ls /var/lib/trellis").split() == ["server", "superlink", "supernode"], "data outlives the program"
    system.run(kind.purge)
    assert system.left() == set() and system.accounts() == system.users


def test_refused_settings_are_said_once(system: System, release: Release):
    """Without TLS and without `insecure` a SuperLink does not start, and its unit does not try again and again."""
    system.run(KINDS["deb"].install.format(place(release, KINDS["deb"])))
    system.tried("systemctl start trellis-superlink")
    wait_for("the unit to fail", lambda: system.tried("systemctl is-failed trellis-superlink").returncode == 0, GONE_LIMIT_S)
    assert "ssl-certfile" in system.journal()
    assert system.run("systemctl show --property=NRestarts trellis-superlink").strip() == "NRestarts=0"


def test_another_installation_is_named(system: System, release: Release):
    system.run(f"tar -xzf /mnt/{release.version}/*-x86_64.tar.gz -C /opt && /opt/trellis-*/install.sh")
    said = system.run(KINDS["deb"].install.format(place(release, KINDS["deb"])))
    assert "trellis: /usr/local/bin/trellis is another installation" in said


def test_without_systemd_a_sentence_says_how_to_start(release: Release, tmp_path):
    try:
        source = tree("dist", SYSTEM)
    except CannotBeHad as why:
        pytest.skip(str(why))
    root = tmp_path / "tree"
    subprocess.run(["cp", "--archive", "--reflink=auto", str(source), str(root)], check=True)
    (root / "tmp" / "trellis.deb").write_bytes(release.one("*_amd64.deb").read_bytes())

    def run(*argv: str) -> str:
        done = subprocess.run(["chroot", str(root), *argv], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    said = run("dpkg", "--install", "/tmp/trellis.deb")
    [sentence] = [line for line in said.splitlines() if line.startswith("trellis: ")]
    command = sentence.partition("as in: ")[2].replace("superlink --config /etc/trellis/superlink.toml", "version")
    assert release.version in run("sh", "-c", command), sentence
    run("dpkg", "--purge", "trellis")
    assert not (root / "etc" / "trellis").exists() and not (root / "var" / "lib" / "trellis").exists()
