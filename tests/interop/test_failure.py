"""Apps that go wrong: the run must say so, soon, and with a reason."""

import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.federation import PROCESS, SUBPROCESS
from harness.process import pid_exists, wait_pid_file
from harness.release import flower
from harness.waiting import wait_for

START_LIMIT_S = 60.0
SECONDS_AFTER_DEATH = 10.0
SECONDS_AFTER_HANGUP = 35.0
SECONDS_AFTER_DELETION = 30.0
SLOW_START_S = 40
RUNS_AT_ONCE = 20
ALL_RUNS_LIMIT_S = 600.0
LINES = 5000


@pytest.mark.parametrize("isolation", [pytest.param(SUBPROCESS, marks=pytest.mark.quick), PROCESS])
def test_a_serverapp_that_raises_fails_the_run_with_its_words(nodeless, isolation):
    fed = nodeless("raises", isolation=isolation).start()
    run_id = fed.cli.submit()

    state = fed.wait_finished(run_id)

    assert state.status == "finished:failed"
    assert "the faulty app raised on purpose" in state.details
    logged = fed.cli.log(run_id).stdout
    assert "Traceback (most recent call last)" in logged
    assert "ValueError: the faulty app raised on purpose" in logged


def test_an_app_that_cannot_be_imported_fails_the_run_with_the_reason(nodeless):
    fed = nodeless("broken_import").start()
    run_id = fed.cli.submit()

    state = fed.wait_finished(run_id)

    assert state.status == "finished:failed"
    assert state.details
    assert "a_module_that_does_not_exist" in fed.cli.log(run_id).stdout


@pytest.mark.trellis_only
@pytest.mark.parametrize("serverapp", [pytest.param("waits", marks=pytest.mark.quick), "hangs"])
def test_a_killed_serverapp_fails_the_run_within_seconds(nodeless, workspace, serverapp):
    fed = nodeless(serverapp).start()
    pid_path = workspace.root / "serverapp.pid"
    run_id = fed.cli.submit(pid_path=pid_path)
    pid = wait_pid_file(pid_path, START_LIMIT_S)
    fed.superlink.control.wait_status(run_id, "running", START_LIMIT_S)

    os.kill(pid, signal.SIGKILL)

    state = fed.wait_finished(run_id, SECONDS_AFTER_DEATH)
    assert state.status == "finished:failed"
    assert re.search(r"signal 9|SIGKILL|killed", state.details), f"the reason names no signal: {state.details!r}"
    fed.cli.submit(pid_path=workspace.root / "next.pid")
    assert wait_pid_file(workspace.root / "next.pid", START_LIMIT_S) != pid, "the next run was not launched"


@pytest.mark.trellis_only
def test_a_killed_serverapp_of_a_superexec_fails_the_run_when_its_next_heartbeat_is_missing(nodeless, workspace):
    """Only the connection tells: it is closed, and an app that lives would be heard within 25 s."""
    fed = nodeless("hangs", isolation=PROCESS).start()
    pid_path = workspace.root / "serverapp.pid"
    run_id = fed.cli.submit(pid_path=pid_path)
    pid = wait_pid_file(pid_path, START_LIMIT_S)
    fed.superlink.control.wait_status(run_id, "running", START_LIMIT_S)

    os.kill(pid, signal.SIGKILL)

    state = fed.wait_finished(run_id, SECONDS_AFTER_HANGUP)
    assert state.status == "finished:failed"
    assert "No heartbeat" in state.details


@pytest.mark.trellis_only
def test_a_serverapp_that_starts_slowly_is_started_once(nodeless, workspace):
    """It asks for its inputs later than an official SuperLink waits, which is 30 s."""
    python = workspace.root / "slow-python"
    python.write_text(f'#!/bin/sh\nsleep {SLOW_START_S}\nexec {flower().command("python")} "$@"\n')
    python.chmod(0o755)
    fed = nodeless(link_flags=("--python", str(python), "--sandbox", "off")).start()

    state = fed.wait_finished(fed.cli.submit())

    assert state.status == "finished:completed", state
    assert fed.superlink.process.log.read_text().count("ServerApp started") == 1


@pytest.mark.trellis_only
def test_runs_submitted_at_once_all_complete(nodeless):
    """ServerApps start slowly beside each other: none is started twice, and those beyond the limit wait."""
    fed = nodeless(link_flags=("--max-serverapps", "6")).start()
    with ThreadPoolExecutor(RUNS_AT_ONCE) as pool:
        runs = list(pool.map(lambda _: fed.cli.submit(), range(RUNS_AT_ONCE)))

    states = [fed.wait_finished(run_id, ALL_RUNS_LIMIT_S) for run_id in runs]

    assert {state.status for state in states} == {"finished:completed"}, states
    assert fed.superlink.process.log.read_text().count("ServerApp started") == RUNS_AT_ONCE


@pytest.mark.trellis_only
def test_a_serverapp_ends_when_its_superlink_is_killed_and_the_state_deleted(nodeless, workspace):
    fed = nodeless("hangs").start()
    pid_path = workspace.root / "serverapp.pid"
    fed.cli.submit(pid_path=pid_path)
    pid = wait_pid_file(pid_path, START_LIMIT_S)

    fed.superlink.kill()
    shutil.rmtree(fed.superlink.state_dir)

    wait_for("the ServerApp to end", lambda: not pid_exists(pid), SECONDS_AFTER_DELETION)


@pytest.mark.quick
def test_log_shows_every_line_of_a_chatty_app_once_and_in_order(nodeless):
    fed = nodeless("chatty").start()
    run_id = fed.cli.submit(lines=LINES)
    assert fed.wait_finished(run_id).status == "finished:completed"

    numbers = [int(number) for number in re.findall(r"^chatty line (\d+)$", fed.cli.log(run_id).stdout, re.MULTILINE)]

    assert numbers == list(range(1, LINES + 1))


def test_a_stream_that_starts_with_the_run_shows_every_line(nodeless):
    fed = nodeless("chatty").start()
    stream = fed.cli.follow(lines=LINES)
    assert stream.wait_exit(START_LIMIT_S) == 0

    numbers = [int(number) for number in re.findall(r"^chatty line (\d+)$", stream.output(), re.MULTILINE)]

    assert numbers == list(range(1, LINES + 1))
