"""The wheel: it installs into a new environment, brings the program, trains; two builds of it are equal."""

import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.wheel import BUILD_LIMIT_S, build, stripped
from harness.workspace import trellis_binary
from sdk.conftest import SCRIPT_LIMIT_S, SDK

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]

TEN_LINES = """
import trellis

with trellis.up(nodes=3) as federation:
    run = federation.run("native:mlp", rounds=3, strategy="FedAdam")
    run.wait()
    for row in run.history:
        print(row["round"], round(row["train_loss"], 3))
    weights = run.download()
    print(run.outcome, len(weights))
"""


@pytest.fixture(scope="module")
def small_program(tmp_path_factory) -> Path:
    """Any static program: what it does is of no interest to the builder."""
    program = tmp_path_factory.mktemp("program") / "trellis"
    source = program.with_suffix(".c")
    source.write_text("int main(void) { return 0; }\n")
    done = subprocess.run(["cc", "-static", "-o", str(program), str(source)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no static program can be made here: {done.stderr.splitlines()[-1:]}")
    return program


def test_two_builds_are_equal(small_program, tmp_path, monkeypatch):
    first = build(tmp_path / "one", small_program)
    os.utime(small_program, (1, 1))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    second = build(tmp_path / "two", small_program)
    assert first.name == second.name and first.read_bytes() == second.read_bytes()
    assert first.name.startswith("trellis_fl-") and first.name.endswith("-py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64.whl")
    with zipfile.ZipFile(first) as archive:
        names = archive.namelist()
        assert archive.testzip() is None and not [name for name in names if "__pycache__" in name]
    assert {"trellis/py.typed", "trellis/aio/_client.py", "trellis/_sync/_client.py"} <= set(names)
    assert names[-1].endswith(("RECORD", "WHEEL", "METADATA", "LICENSE")), "what describes the wheel comes last"


@pytest.mark.parametrize(("machine", "name"), [(183, "manylinux_2_17_aarch64"), (8, None)])
def test_the_machine_of_the_program_is_that_of_the_wheel(small_program, tmp_path, machine, name):
    content = bytearray(small_program.read_bytes())
    content[18:20] = machine.to_bytes(2, "little")
    program = tmp_path / "trellis"
    program.write_bytes(content)
    if name is None:
        assert "machine" in refusal(program, tmp_path)
    else:
        assert name in build(tmp_path, program).name


def test_no_wheel_is_made_of_a_wrong_program(tmp_path):
    program = tmp_path / "trellis"
    program.write_text("#!/bin/sh\n")
    assert "no 64-bit program for Linux" in refusal(program, tmp_path)


def refusal(program: Path, out: Path) -> str:
    argv = [sys.executable, str(SDK / "build_wheel.py"), "--program", str(program), "--out", str(out)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr


@pytest.fixture
def home() -> Iterator[Path]:
    """Short: sockets below it have paths of at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sdk-") as place:
        yield Path(place)


def test_ten_lines_train_in_a_new_environment(workspace, home, tmp_path):
    began = time.monotonic()
    wheel = build(tmp_path / "dist", stripped(trellis_binary(), tmp_path))
    built = time.monotonic()
    place = tmp_path / "venv"
    venv.EnvBuilder(with_pip=True, symlinks=True).create(place)
    pip = [str(place / "bin" / "python"), "-m", "pip"]
    install = [*pip, "install", "--quiet", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    env |= {name: value for name, value in workspace.env().items() if name.startswith("LC_MARK")}
    told = subprocess.run(
        [str(place / "bin" / "trellis"), "version"], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert wheel.name.split("-")[1] in told.stdout
    done = subprocess.run(
        [str(place / "bin" / "python"), "-c", TEN_LINES],
        env=env,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=SCRIPT_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    *rounds, last = done.stdout.splitlines()
    assert [line.split()[0] for line in rounds] == ["1", "2", "3"] and last.startswith("completed "), done.stdout
    assert "round 3/3" in done.stderr
    print(f"built in {built - began:.1f} s, installed and trained in {time.monotonic() - built:.1f} s")
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "trellis-fl"], check=True, timeout=BUILD_LIMIT_S)
    left = [path for path in place.rglob("*trellis*") if "pip" not in path.parts]
    assert not left, left
