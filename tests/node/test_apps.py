"""Apps that behave and apps that do not, warm and with a process for each message, beside what official nodes do."""

import os
import signal

import pytest

from harness.acts import collect, play, submit
from harness.matrix import RELEASES
from harness.own_supernode import PER_MESSAGE, WARM, OwnNode
from harness.process import pid_exists, wait_pid_file
from harness.superlink import PROCESS
from harness.waiting import wait_for

NOT_LOADED, RAISED, CRASHED = 1, 2, 8
START_LIMIT_S = 60.0
# A crash is seen by the node itself: nobody has to wait for a heartbeat that does not come.
CRASH_LIMIT_S = 20.0
# A node asks every 15 s whether the run of a working app still goes on.
STOP_LIMIT_S = 30.0
OLDEST, NEWEST = "1.25", "1.42"

pytestmark = pytest.mark.trellis_only

LIFECYCLES = pytest.mark.parametrize("lifecycle", [WARM, PER_MESSAGE])
# Each with a look at the Context afterwards.
GOOD_AND_RAISING = "count count raise count chatter:5000 count"
CRASHES = ["sys-exit:3", "os-exit:3", "segfault"]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@LIFECYCLES
def test_state_and_exceptions_are_as_with_official_nodes(stage, official, lifecycle, version):
    fed = stage(OwnNode(python=version, lifecycle=lifecycle)).start()

    told = play(fed, GOOD_AND_RAISING)

    assert [act.outcome for act in told] == official(GOOD_AND_RAISING, version)
    assert "the app raised on purpose" in told[2].reason


@pytest.mark.quick
def test_a_warm_app_is_loaded_once_and_keeps_its_state(stage):
    fed = stage().start()

    told = play(fed, "count count raise count")

    assert [act.outcome for act in told] == ["count: count 1", "count: count 2", "raise: error 2", "count: count 4"]
    assert {act.pid for act in told if act.reply} == {told[0].pid}
    assert [act.reply["seen"] for act in told if act.reply] == [1, 2, 4]


@pytest.mark.parametrize("version", RELEASES)
def test_warm_apps_are_alike_on_the_flower_of_every_release(stage, version):
    fed = stage(OwnNode(python=version)).start()

    told = play(fed, "count raise os-exit:3 count")

    outcomes = ["count: count 1", "raise: error 2", "os-exit:3: error 8", "count: count 3"]
    assert [act.outcome for act in told] == outcomes
    assert {act.reply["flwr"].rpartition(".")[0] for act in told if act.reply} == {version}


def test_an_app_per_message_has_a_process_for_each(stage):
    fed = stage(OwnNode(lifecycle=PER_MESSAGE)).start()

    told = play(fed, "count count count")

    assert [act.reply["count"] for act in told] == [1, 2, 3]
    assert [act.reply["seen"] for act in told] == [1, 1, 1]
    assert len({act.pid for act in told}) == 3


def test_an_app_knows_its_configurations_and_the_flower_that_was_chosen(stage):
    fed = stage(OwnNode(python=NEWEST)).start()

    (act,) = play(fed, "count")

    assert (act.reply["node-config"], act.reply["run-config"]) == (0, "count")
    assert act.reply["flwr"].startswith(f"{NEWEST}.")


@LIFECYCLES
@pytest.mark.parametrize("act", CRASHES)
def test_an_app_that_ends_is_answered_for_at_once_and_changes_no_state(stage, lifecycle, act):
    fed = stage(OwnNode(lifecycle=lifecycle)).start()

    before, crashed, after = play(fed, f"count {act} count")

    assert before.reply["count"] == 1
    assert crashed.error == CRASHED, crashed
    # Python itself has many words about a crash, and names the function.
    assert "acts: " in crashed.reason or "in crash" in crashed.reason, "the last words of the app are missing"
    assert crashed.seconds < CRASH_LIMIT_S
    assert after.reply["count"] == 2
    assert fed.dead_nodes() == []


def test_official_nodes_of_the_newest_release_answer_for_crashes_alike(stage, official):
    """Only later: they wait for a heartbeat. Those of 1.25 drop their own answer, and the sender hears nothing."""
    script = "count " + " count ".join(CRASHES) + " count"
    fed = stage(OwnNode(python=NEWEST)).start()

    assert [told.outcome for told in play(fed, script)] == official(script, NEWEST)


def test_an_app_of_a_superexec_that_ends_is_answered_for_when_its_heartbeat_is_missing(stage):
    """The node did not start it, and so does not see it end."""
    fed = stage(OwnNode(isolation=PROCESS)).start()

    before, crashed, after = play(fed, "count os-exit:3 count")

    assert before.reply["count"] == 1
    assert (crashed.error, crashed.reason) == (CRASHED, "The ClientApp stopped responding.")
    assert after.reply["count"] == 2


@LIFECYCLES
def test_an_app_without_an_answer_is_answered_for(stage, lifecycle):
    fed = stage(OwnNode(lifecycle=lifecycle)).start()

    mute, after = play(fed, "mute count")

    assert mute.error in (RAISED, CRASHED), mute
    assert after.reply["count"] in (1, 2)


@LIFECYCLES
def test_an_app_that_cannot_be_loaded_is_told_from_one_that_fails(stage, lifecycle):
    fed = stage(OwnNode(lifecycle=lifecycle)).start()
    edition = fed.cli.app / "acts" / "edition.py"
    good = edition.read_text()
    edition.write_text("import a_module_that_does_not_exist\n")

    broken = play(fed, "count count", "broken")
    edition.write_text(good)
    (mended,) = play(fed, "count", "mended")

    assert [act.error for act in broken] == [NOT_LOADED, NOT_LOADED], broken
    assert mended.outcome == "count: count 1"


@LIFECYCLES
def test_a_killed_app_is_answered_for_at_once(stage, workspace, lifecycle):
    fed = stage(OwnNode(lifecycle=lifecycle)).start()
    sign = workspace.root / "sign"
    run_id = submit(fed, "hang count", sign_path=sign)
    pid = wait_pid_file(sign, START_LIMIT_S)

    os.kill(pid, signal.SIGKILL)

    hung, after = collect(fed, run_id)
    assert hung.error == CRASHED, hung
    assert after.outcome == "count: count 1"


@LIFECYCLES
def test_an_app_that_hangs_is_given_up_after_its_time(stage, workspace, lifecycle):
    fed = stage(OwnNode(lifecycle=lifecycle, flags=("--app-timeout", "4s"))).start()
    sign = workspace.root / "sign"

    before, hung, after = play(fed, "count hang count", sign_path=sign)

    assert before.outcome == "count: count 1"
    assert hung.error == CRASHED, hung
    assert hung.seconds < CRASH_LIMIT_S
    assert after.outcome == "count: count 2"
    pid = wait_pid_file(sign, START_LIMIT_S)
    assert not pid_exists(pid), "the app still runs"


@LIFECYCLES
def test_an_app_that_hangs_longer_than_its_sender_waits_does_not_block_the_node(stage, workspace, lifecycle):
    """No limit of the node's own: the message ends by its own time, and the next one is carried out."""
    fed = stage(OwnNode(lifecycle=lifecycle)).start()
    sign = workspace.root / "sign"

    hung, after = play(fed, "hang@15 count", sign_path=sign)

    assert hung.reply == {}, hung
    assert after.outcome == "count: count 1"
    pid = wait_pid_file(sign, START_LIMIT_S)
    wait_for("the app that hung to end", lambda: not pid_exists(pid), START_LIMIT_S)


def test_a_leaking_app_is_replaced_and_the_run_goes_on(stage):
    fed = stage(OwnNode(flags=("--app-recycle-memory", "300MiB"))).start()

    told = play(fed, "leak:50 leak:300 count count")

    assert [act.reply["count"] for act in told] == [1, 2, 3, 4]
    first, grown, fresh, again = (act.pid for act in told)
    assert first == grown, "replaced although it was small"
    assert fresh not in (first, grown), "not replaced although it was large"
    assert again == fresh
    assert not pid_exists(first)


@LIFECYCLES
def test_an_app_that_takes_more_memory_than_it_may_is_ended(stage, lifecycle):
    fed = stage(OwnNode(lifecycle=lifecycle, flags=("--app-memory", "400MiB"))).start()

    before, leaked, after = play(fed, "count hoard:800 count")

    assert before.reply["count"] == 1
    assert (leaked.error, "400 MiB" in leaked.reason) == (CRASHED, True), leaked
    assert after.reply["count"] == 2


@LIFECYCLES
def test_a_chatty_app_is_not_blocked_by_its_output(stage, lifecycle):
    fed = stage(OwnNode(lifecycle=lifecycle)).start()

    told = play(fed, "chatter:50000 count")

    assert [act.outcome for act in told] == ["chatter:50000: count 1", "count: count 2"]


def test_an_idle_app_is_ended_and_another_goes_on_with_its_state(stage):
    fed = stage(OwnNode(flags=("--app-idle-timeout", "2s"))).start()

    first, second = play(fed, "count until-ended count")

    assert (first.reply["count"], second.reply["count"]) == (1, 2)
    assert first.pid != second.pid


def test_a_changed_app_is_loaded_anew(stage):
    fed = stage().start()
    (old,) = play(fed, "count", "old")
    edition = fed.cli.app / "acts" / "edition.py"
    edition.write_text(edition.read_text().replace("EDITION = 1", "EDITION = 2"))

    (new,) = play(fed, "count", "new")

    assert (old.reply["edition"], new.reply["edition"]) == (1, 2)
    assert (old.reply["count"], new.reply["count"]) == (1, 1)


@LIFECYCLES
def test_two_runs_work_at_the_same_time(stage, workspace, lifecycle):
    """Each app waits for the other one: one after the other they would never end."""
    fed = stage(OwnNode(lifecycle=lifecycle, flags=("--max-concurrent-apps", "2"))).start()
    sign = workspace.root / "sign"

    one = submit(fed, "count meet:one/two count", "one", sign_path=sign)
    two = submit(fed, "count meet:two/one count", "two", sign_path=sign)

    for run_id, name in ((one, "one"), (two, "two")):
        assert [act.reply.get("count") for act in collect(fed, run_id, name)] == [1, 2, 3]


@LIFECYCLES
def test_a_stopped_run_ends_its_app_and_the_next_run_works(stage, workspace, lifecycle):
    fed = stage(OwnNode(lifecycle=lifecycle)).start()
    sign = workspace.root / "sign"
    stopped = submit(fed, "hang", "stopped", sign_path=sign)
    pid = wait_pid_file(sign, START_LIMIT_S)

    fed.cli.stop(stopped)

    wait_for("the app of a stopped run to end", lambda: not pid_exists(pid), STOP_LIMIT_S)
    (after,) = play(fed, "count", "after")
    assert after.outcome == "count: count 1"
