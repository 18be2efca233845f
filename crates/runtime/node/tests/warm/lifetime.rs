//! The lifetime of workers.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use prost::Message as _;
use trellis_node::app::{InstalledApp, Outcome};
use trellis_node::config::{Spare, WarmSettings};
use trellis_wire::proto;

use crate::instruction::Instruction;
use crate::place::{PidFile, Place, Release, behaving, crashed, ended, lasting, releases, replied};

/// The lifetime of workers hardly depends on the release.
fn newest() -> Option<Release> {
    releases().pop()
}

#[tokio::test]
async fn a_cancelled_instruction_kills_the_app_and_its_children() {
    for release in releases() {
        let place = Place::new(&release.python, lasting());
        let pid_file = PidFile::new(place.directory.path());
        let job = Instruction::new(9, "hangs").with("where", pid_file.path()).job(&place.objects, behaving());
        let apps = place.apps.clone();
        let working = tokio::spawn(async move { apps.execute(job).await });
        let pids = pid_file.pids().await;
        let status = place.apps.status();
        assert_eq!((status.len(), status[0].pid, status[0].busy), (1, pids[0], true));
        assert!(status[0].rss_bytes.unwrap() > 1 << 20);
        working.abort();
        assert!(working.await.unwrap_err().is_cancelled());
        for pid in pids {
            ended(pid).await;
        }
        assert_eq!(place.apps.status(), []);
        place.pid_of(9).await;
    }
}

#[tokio::test]
async fn closing_postpones_active_instructions() {
    let Some(release) = newest() else { return };
    let place = Place::new(&release.python, lasting());
    let resting = place.pid_of(1).await;
    let pid_file = PidFile::new(place.directory.path());
    let job = Instruction::new(9, "hangs").with("where", pid_file.path()).job(&place.objects, behaving());
    let apps = place.apps.clone();
    let working = tokio::spawn(async move { apps.execute(job).await });
    let pids = pid_file.pids().await;
    place.apps.close().await;
    assert!(matches!(working.await.unwrap(), Outcome::Postponed { reason } if reason == "the node is stopping"));
    for pid in [pids[0], pids[1], resting] {
        ended(pid).await;
    }
    assert!(matches!(place.execute(Instruction::new(1, "count")).await, Outcome::Postponed { .. }));
    assert_eq!(place.apps.status(), []);
}

#[tokio::test]
async fn a_worker_exits_when_its_node_dies() {
    for release in releases() {
        let place = Place::new(&release.python, lasting());
        let pid_file = PidFile::new(place.directory.path());
        let job = Instruction::new(9, "hangs").with("where", pid_file.path()).job(&place.objects, behaving());
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../python/trellis_worker.py");
        let mut node = Command::new(&release.python);
        node.arg(program).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut worker = node.spawn().unwrap();
        let mut pipe = worker.stdin.take().unwrap();
        for frame in frames(&job, &place) {
            pipe.write_all(&frame).unwrap();
        }
        let pids = pid_file.pids().await;
        drop(pipe);
        for pid in pids {
            ended(pid).await;
        }
        worker.wait().unwrap();
    }
}

/// The frames of an instruction for a worker.
fn frames(job: &trellis_node::app::Job, place: &Place) -> Vec<Vec<u8>> {
    fn children_first(tree: &proto::ObjectTree, ids: &mut Vec<String>) {
        tree.children.iter().for_each(|child| children_first(child, ids));
        ids.push(tree.object_id.clone());
    }
    let frame = |mut header: serde_json::Value, parts: &[&[u8]]| {
        header["parts"] = parts.iter().map(|part| part.len()).collect();
        let header = header.to_string();
        [&(header.len() as u32).to_be_bytes(), header.as_bytes(), &parts.concat()].concat()
    };
    let mut ids = Vec::new();
    children_first(&job.tree, &mut ids);
    let app = job.app.as_ref().unwrap();
    let header = serde_json::json!({
        "kind": "instruction", "directory": app.directory, "client_app": app.client_app, "objects": ids.len(),
    });
    let mut all = vec![frame(header, &[&job.context.encode_to_vec(), &job.tree.encode_to_vec()])];
    for id in ids {
        let object = place.objects.read(id.parse().unwrap()).unwrap().unwrap();
        all.push(frame(serde_json::json!({"kind": "object", "id": id}), &[&object]));
    }
    all
}

#[tokio::test]
async fn idle_workers_are_stopped_and_limited() {
    let Some(release) = newest() else { return };
    let short = WarmSettings { idle: Duration::from_millis(50), ..lasting() };
    let place = Place::new(&release.python, short);
    ended(place.pid_of(9).await).await;
    assert!(place.resting().is_empty());

    let place = Place::new(&release.python, WarmSettings { max_idle: 2, ..lasting() });
    let first = place.pid_of(1).await;
    let second = place.pid_of(2).await;
    assert_eq!(place.pid_of(1).await, first);
    place.pid_of(3).await;
    ended(second).await;
    assert_eq!(place.resting(), [1, 3]);
    assert_eq!(place.pid_of(1).await, first);
}

#[tokio::test]
async fn a_worker_above_its_limit_or_with_another_app_is_replaced() {
    let Some(release) = newest() else { return };
    let place = Place::new(&release.python, lasting());
    place.pid_of(9).await;
    let small = place.apps.status()[0].rss_bytes.unwrap();
    let settings = WarmSettings { recycle_bytes: Some(small + (100 << 20)), ..lasting() };
    let place = Place::new(&release.python, settings);
    let first = place.pid_of(9).await;
    // Each call leaks 64 MB.
    place.reply(Instruction::new(9, "hoards")).await;
    assert_eq!(place.pid_of(9).await, first);
    place.reply(Instruction::new(9, "hoards")).await;
    ended(first).await;
    let second = place.pid_of(9).await;
    assert_ne!(first, second);

    let updated = InstalledApp { hash: "1".repeat(64), ..behaving() };
    replied(place.execute_with(Instruction::new(9, "count"), updated).await);
    ended(second).await;
}

#[tokio::test]
async fn a_spare_worker_is_ready_for_the_next_run() {
    let Some(release) = newest() else { return };
    let place = Place::new(&release.python, WarmSettings { spare: Spare::EveryRun, ..lasting() });
    assert_eq!(place.apps.status(), []);
    let first = place.pid_of(1).await;
    let spare = place.apps.status().into_iter().find(|worker| worker.run.is_none()).unwrap().pid;
    assert_eq!(place.pid_of(1).await, first);
    assert_eq!(place.pid_of(2).await, spare);
    let next = place.apps.status().into_iter().find(|worker| worker.run.is_none()).unwrap().pid;
    place.apps.close().await;
    ended(next).await;
}

#[tokio::test]
async fn a_node_of_one_run_starts_one_interpreter() {
    let Some(release) = newest() else { return };
    let place = Place::new(&release.python, WarmSettings { spare: Spare::FirstRun, ..lasting() });
    place.apps.check().await.unwrap();
    let checked = place.apps.status()[0].pid;
    assert_eq!(place.pid_of(1).await, checked);
    assert_eq!(place.apps.status().len(), 1);
}

#[tokio::test]
async fn a_broken_interpreter_is_reported_at_once() {
    let place = Place::new("/nowhere/python".as_ref(), lasting());
    let reason = crashed(place.execute(Instruction::new(9, "count")).await);
    let start = "The node cannot run apps: /nowhere/python cannot be started: install Python with flwr, or name its";
    assert!(reason.starts_with(start), "{reason}");
    assert!(place.apps.check().await.is_err());

    let Some(release) = newest() else { return };
    let info = Place::new(&release.python, lasting()).apps.check().await.unwrap();
    assert!(info.flwr.starts_with(&release.version) && info.python.starts_with('3'), "{info:?}");
    let python = release.python.display();
    let cases = [
        (format!("exec '{python}' -S \"$@\""), "flwr is not installed for it: install it (`pip install flwr`)"),
        ("echo no memory >&2; exit 7".to_owned(), "ended with exit code 7 before it was ready to run apps"),
        ("echo no memory >&2; exit 7".to_owned(), "; its last output:\nno memory"),
        ("echo I speak to everybody".to_owned(), "ended with exit code 0 before it was ready to run apps"),
    ];
    for (program, want) in cases {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("python");
        std::fs::write(&path, format!("#!/bin/sh\n{program}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let place = Place::new(&path, lasting());
        let reason = crashed(place.execute(Instruction::new(9, "count")).await);
        assert!(reason.contains(want), "{program}: {reason}");
        assert!(place.apps.check().await.unwrap_err().to_string().contains(want));
    }
}

#[tokio::test]
async fn a_missing_or_damaged_object_postpones_the_instruction() {
    let Some(release) = newest() else { return };
    let place = Place::new(&release.python, lasting());
    let job = Instruction::new(9, "count").job(&place.objects, behaving());
    place.objects.put(job.tree.children[0].object_id.parse().unwrap(), b"damaged").unwrap();
    let outcome = place.apps.execute(job).await;
    assert!(matches!(&outcome, Outcome::Postponed { reason } if reason.contains("is missing or damaged")));
    place.pid_of(9).await;
}
