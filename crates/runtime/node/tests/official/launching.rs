//! Apps that the node starts for each instruction. Shell scripts replace Python: only the process matters.

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
async fn an_app_that_exits_is_an_error_with_its_last_output() {
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
async fn a_killed_app_is_an_error_with_its_signal() {
    let directory = TempDir::new().unwrap();
    let scene = Scene::new(interpreter(directory.path(), "kill -9 $$")).await;
    let outcome = scene.apps.execute(scene.job()).await;
    assert!(matches!(outcome, Outcome::Failed { reason, .. } if reason.contains("was killed by signal 9")));
}

#[tokio::test]
async fn an_app_that_cannot_be_started_now_is_retried() {
    let directory = TempDir::new().unwrap();
    let launch = interpreter(directory.path(), "");
    // The system does not start a program that is open for writing.
    let _busy = std::fs::OpenOptions::new().write(true).open(directory.path().join("python")).unwrap();
    let scene = Scene::new(launch).await;
    let outcome = scene.apps.execute(scene.job()).await;
    assert!(matches!(&outcome, Outcome::Postponed { reason } if reason.contains("cannot be started")), "{outcome:?}");
}

#[tokio::test]
async fn without_python_the_sender_gets_an_error() {
    let directory = TempDir::new().unwrap();
    let launch = interpreter(directory.path(), "");
    std::fs::remove_file(directory.path().join("python")).unwrap();
    let scene = Scene::new(launch).await;
    let outcome = scene.apps.execute(scene.job()).await;
    assert!(matches!(&outcome, Outcome::Failed { reason, .. } if reason.contains("install Python")), "{outcome:?}");
}

/// Other users can list processes, but must not see the token.
#[tokio::test]
async fn the_token_is_in_the_environment_only() {
    let directory = TempDir::new().unwrap();
    let script =
        r#"[ ${#TRELLIS_APP_TOKEN} = 256 ] && ! tr '\0' ' ' < /proc/$$/cmdline | grep -q "$TRELLIS_APP_TOKEN""#;
    let scene = Scene::new(interpreter(directory.path(), script)).await;
    let outcome = scene.apps.execute(scene.job()).await;
    assert!(matches!(&outcome, Outcome::Failed { reason, .. } if reason.contains("with code 0")), "{outcome:?}");
}

/// Cancelling an instruction kills its app and the app's children.
#[tokio::test]
async fn cancelling_kills_an_app_with_its_children() {
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
