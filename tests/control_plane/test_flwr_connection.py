"""`flwr run` finds a federation that `trellis up` started, with a release that reads connections from the app and one that does not;
and nothing of it is left when the federation is down."""

import re
import subprocess

import pytest
from harness.platform import COMMAND_LIMIT_S, Platform
from harness.release import flower
from harness.workspace import TESTS, Workspace, trellis_binary

READS_THE_APP = "1.25"


def run(argv, env, cwd):
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=COMMAND_LIMIT_S)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("version", [READS_THE_APP, "1.42"])
def test_flwr_runs_from_any_directory_and_nothing_stays(tmp_path, version):
    workspace = Workspace(tmp_path)
    release = flower(version)
    app = workspace.copy_app(TESTS / "apps" / "numpy_fedavg")
    project = (app / "pyproject.toml").read_text()
    env = workspace.env(release, TRELLIS_HOME=str(Platform(workspace).home))
    trellis = str(trellis_binary())
    try:
        told = run([trellis, "up", "--nodes", "2", "--detach"], env, tmp_path)
        command = re.search(r"`(trellis connect local --app DIR)`", told)
        assert bool(command) == (version == READS_THE_APP), told
        if command:
            run([trellis, *command[1].replace("DIR", str(app)).split()[1:]], env, tmp_path)
        # From the app's own directory, and from another one.
        for directory, argument in ((app, "."), (tmp_path, str(app))):
            said = run([release.command("flwr"), "run", argument, "local", "--stream"], env, directory)
            assert "weights sha256" in said, said
        run([trellis, "down"], env, workspace.logs)
        assert (app / "pyproject.toml").read_text() == project
        assert not (app / ".flwr").exists() or not list((app / ".flwr").rglob("*.json"))
        left = [path.name for path in workspace.home().iterdir() if path.name in ("config.toml", "credentials.yaml", "trellis-apps.json")]
        assert not left, left
    finally:
        workspace.close()
