"""The archive: installed by root and by an ordinary user, upgraded, removed; what its script says when something is wrong."""

import pytest
from dist.conftest import USER, Release, System

pytestmark = pytest.mark.trellis_only

WHERE = {"root": "/usr/local", USER: f"/home/{USER}/.local"}


def unpacked(system: System, release: Release) -> str:
    name = release.one("*-linux-x86_64.tar.gz").name
    system.run(f"tar -xzf /mnt/{release.version}/{name} -C /opt")
    return f"/opt/{name.removesuffix('.tar.gz')}"


def test_an_archive_lives_and_leaves_nothing(system: System, release: Release, older: Release):
    first, second = unpacked(system, older), unpacked(system, release)
    for user, prefix in WHERE.items():
        before = system.tried(f"find {prefix} | sort", user).stdout.split()
        program = f"{prefix}/bin/trellis"
        system.run(f"{first}/install.sh", user)
        system.run(f"{program} run --rounds 2 --nodes 2", user)
        system.run(f"{second}/install.sh", user)
        system.run(f"{program} run --rounds 2 --nodes 2", user)
        assert system.run(f"ls {prefix}/share/man/man1/trellis-run.1.gz {prefix}/share/bash-completion/completions/trellis", user)
        system.run(f"{second}/install.sh --uninstall", user)
        after = system.tried(f"find {prefix} ! -path '*/state*' | sort", user).stdout.split()
        assert after == (before or [prefix]), user


def test_what_is_wrong_is_said_with_what_to_do(system: System, release: Release):
    place = unpacked(system, release)
    refused = system.tried(f"{place}/install.sh --prefix /usr/local", USER)
    assert refused.returncode == 1
    assert (
        refused.stderr.strip()
        == "install.sh: no permission to write to /usr/local: use sudo, or --prefix with a directory of yours"
    )
    assert "no permission to remove" in denied(
        system, f"{place}/install.sh; runuser -u {USER} -- {place}/install.sh --uninstall --prefix /usr/local"
    )
    assert "is not on PATH" in system.run(
        f"{place}/install.sh --prefix /srv/trellis && PATH=/usr/bin:/bin {place}/install.sh --prefix /srv/trellis"
    )
    assert "/usr/local/bin/trellis is another installation" in system.run(f"{place}/install.sh", USER)
    assert "unknown argument --prefx" in denied(system, f"{place}/install.sh --prefx /srv")
    system.run(f"printf 'no program' > {place}/bin/trellis")
    assert "does not start on this machine" in denied(system, f"{place}/install.sh")


def denied(system: System, script: str) -> str:
    done = system.tried(script)
    assert done.returncode != 0
    return done.stderr
