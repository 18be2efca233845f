"""The wheels: as root and as an ordinary user, upgraded, removed; on other systems pip takes one that says what to do."""

import subprocess
import sys
import venv

import pytest
from dist.conftest import USER, Release, System

pytestmark = pytest.mark.trellis_only

LIMIT_S = 300.0
TRAIN = """
import trellis
with trellis.up(nodes=2) as federation:
    run = federation.run("native:mlp", rounds=2)
    run.wait()
    print(run.outcome)
"""
MANY, MUSL, ANY = "manylinux_2_17_x86_64", "musllinux_1_1_x86_64", "any"


def test_a_wheel_lives_and_leaves_nothing(system: System, release: Release, older: Release):
    system.run(f"cat > /srv/train.py <<'E'\n{TRAIN}E")
    for user in ("root", USER):
        system.run("python3 -m venv ~/venv", user)
        empty = system.run("find ~/venv ! -path '*__pycache__*' | sort", user)
        for each in (older, release):
            wheel = f"/mnt/{each.version}/{each.one('*manylinux*_x86_64.whl').name}"
            system.run(f"~/venv/bin/pip install --no-index --upgrade {wheel}", user)
            assert each.version in system.run("~/venv/bin/pip show trellis-fl", user)
            assert "completed" in system.run("~/venv/bin/python /srv/train.py", user)
            system.run("~/venv/bin/trellis run --rounds 2 --nodes 2", user)
        system.run("~/venv/bin/pip uninstall --yes trellis-fl", user)
        assert system.run("find ~/venv ! -path '*__pycache__*' | sort", user) == empty


@pytest.mark.parametrize(
    ("platform", "chosen"),
    [(MANY, MANY), (MUSL, MUSL), ("macosx_14_0_arm64", ANY), ("win_amd64", ANY)],
)
def test_pip_takes_the_wheel_of_the_platform(release: Release, tmp_path, platform, chosen):
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-index", "--find-links", str(release.directory)]
    argv += ["--only-binary=:all:", "--platform", platform, "--dest", str(tmp_path), "trellis-fl"]
    subprocess.run(argv, check=True, capture_output=True, timeout=LIMIT_S)
    [wheel] = tmp_path.iterdir()
    assert chosen in wheel.name


def test_without_a_program_a_sentence_says_what_to_do(release: Release, tmp_path):
    venv.EnvBuilder(with_pip=True, symlinks=True).create(tmp_path)
    python = str(tmp_path / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", str(release.one("*-any.whl"))]
    subprocess.run(install, check=True, capture_output=True, timeout=LIMIT_S)
    done = subprocess.run([str(tmp_path / "bin" / "trellis"), "up"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("trellis: there is no program for Linux x86_64 in this package: ")
    subprocess.run([python, "-c", "import trellis; trellis.Client"], check=True)
