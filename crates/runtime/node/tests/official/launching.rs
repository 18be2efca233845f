//! Apps that are started for each instruction. Scripts stand in for Python: what matters is what becomes of the process.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tempfile::TempDir;
use trellis_node::app::Outcome;
use trellis_node::official::{Interpreter, Launch, Scratches};
use trellis_node::resources::Confinement;
use trellis_sandbox::Sandbox;
use trellis_wire::error_reply::ErrorCode;

use crate::scene::Scene;

fn interpreter(directory: &Path, script: &str) -> Launch {
    let python = directory.join("python");
    std::fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    Launch::PerMessage(Interpreter {
        sandbox: Arc::new(Sandbox::off(python.clone())),
        scratches: Scratches::default(),
        python,
        flwr_home: directory.join("home"),
        allow_dependency_installation: false,
        confinement: Arc::new(Confinement::none()),
    })
}

#[tokio::test]
async fn an_app_that_dies_is_an_error_with_its_last_words() {
    let directory = TempDir::new().unwrap();
    let script = r#"echo "loading $FLWR_HOME"; echo "no more memory" >&2; exit 3"#;
    let scene = Scene::new(interpreter(directory.path(), script)).await;
    let Outcome::Failed { code, reason } = scene.apps.execute(scene.job()).await else { panic!("it cannot work") };
    assert_eq!(code, ErrorCode::ClientAppCrashed);
    let home = directory.path().join("home");
    let words = format!("Its last output:\nloading {}\nno more memory", home.display());
    assert_eq!(reason, format!("The ClientApp process exited with code 3 before it replied. {words}"));
}

#[tokio::test]
async fn an_app_that_is_killed_is_said_to_be() {
    let directory = TempDir::new().unwrap();
    let scene = Scene::new(interpreter(directory.path(), "kill -9 $$")).await;
    let outcome = scene.apps.execute(scene.job()).await;
    assert!(matches!(outcome, Outcome::Failed { reason, .. } if reason.contains("was killed by signal 9")));
}

#[tokio::test]
async fn an_app_that_cannot_be_started_just_now_is_tried_later() {
    let directory = TempDir::new().unwrap();
    let launch = interpreter(directory.path(), "");
    // A program that somebody writes to is not started by the system.
    let _busy = std::fs::OpenOptions::new().write(true).open(directory.path().join("python")).unwrap();
    let scene = Scene::new(launch).await;
    let outcome = scene.apps.execute(scene.job()).await;
    assert!(matches!(&outcome, Outcome::Postponed { reason } if reason.contains("cannot be started")), "{outcome:?}");
}

#[tokio::test]
async fn without_python_the_sender_is_told() {
    let directory = TempDir::new().unwrap();
    let launch = interpreter(directory.path(), "");
    std::fs::remove_file(directory.path().join("python")).unwrap();
    let scene = Scene::new(launch).await;
    let outcome = scene.apps.execute(scene.job()).await;
    assert!(matches!(&outcome, Outcome::Failed { reason, .. } if reason.contains("install Python")), "{outcome:?}");
}

/// The token is for the app alone: not for everybody who can list processes.
#[tokio::test]
async fn the_token_is_in_the_environment_only() {
    let directory = TempDir::new().unwrap();
    let script =
        r#"[ ${#TRELLIS_APP_TOKEN} = 256 ] && ! tr '\0' ' ' < /proc/$$/cmdline | grep -q "$TRELLIS_APP_TOKEN""#;
    let scene = Scene::new(interpreter(directory.path(), script)).await;
    let outcome = scene.apps.execute(scene.job()).await;
    assert!(matches!(&outcome, Outcome::Failed { reason, .. } if reason.contains("with code 0")), "{outcome:?}");
}

/// Whoever gives up an instruction ends its app, and what that started.
#[tokio::test]
async fn an_app_that_is_given_up_is_ended_with_its_children() {
    let directory = TempDir::new().unwrap();
    let pids = directory.path().join("pids");
    rustix::fs::mknodat(rustix::fs::CWD, &pids, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let script = format!("sleep 1000 & echo $$ $! > {}; wait", pids.display());
    let scene = Scene::new(interpreter(directory.path(), &script)).await;
    let started = tokio::select! {
        outcome = scene.apps.execute(scene.job()) => panic!("{outcome:?}"),
        pids = tokio::fs::read_to_string(&pids) => pids.unwrap(),
    };
    for pid in started.split_whitespace() {
        let pid = pid.parse::<i32>().ok().and_then(Pid::from_raw).unwrap();
        tokio::task::spawn_blocking(move || gone(pid)).await.unwrap();
    }
}

/// Waits for the end of a process.
fn gone(pid: Pid) {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
}
