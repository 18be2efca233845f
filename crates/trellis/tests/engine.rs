//! The platform with real processes: a document is applied on this machine, a run trains and reports its rounds; after the
//! deletion only the model is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::broadcast;
use trellis_api::{Event, NewRun, Role, Run, RunState, Scalar, State};
use trellis_client::{Security, SuperLink, Target, Trust};
use trellis_server::{Platform, PlatformSettings, Refusal};
use trellis_spec::Name;
use trellis_testing::processes;
use trellis_wire::call::ReadLog;
use trellis_wire::token::Token;

/// Far longer than any step.
const LIMIT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);
const DOCUMENT: &str = "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata:\n  name: lab\nspec:\n  pools:\n  - name: \
                        clinic\n    count: 2\n  training:\n    rounds: 3\n    strategy: FedAdam\n";

/// Started processes outlive their parent: ends them if a test fails.
struct Home(TempDir);

impl Drop for Home {
    fn drop(&mut self) {
        processes::end(self.0.path());
    }
}

async fn next(events: &mut broadcast::Receiver<Arc<Event>>) -> Arc<Event> {
    let event = tokio::time::timeout(LIMIT, events.recv()).await.expect("something happens in time");
    event.expect("no event is dropped")
}

async fn ready(platform: &Platform, events: &mut broadcast::Receiver<Arc<Event>>) {
    let waiting = async {
        while platform.federation("lab", Role::Viewer).expect("it is there").summary.state != State::Ready {
            next(events).await;
        }
    };
    if tokio::time::timeout(LIMIT, waiting).await.is_err() {
        panic!("it is still {:?}", platform.federation("lab", Role::Viewer));
    }
}

/// The rounds that are reported until the end of the run, and its outcome.
async fn follow(events: &mut broadcast::Receiver<Arc<Event>>, id: &str) -> (Vec<u64>, Run) {
    let mut rounds = Vec::new();
    loop {
        match next(events).await.as_ref() {
            Event::Round { run, report, .. } if run == id && report.kind == "round" => rounds.push(report.round),
            Event::Run { run } if run.id == id && run.state == RunState::Finished => return (rounds, run.clone()),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_comes_true_and_trains() {
    let home = Home(tempfile::tempdir().expect("a directory"));
    let home = &home.0;
    let settings = || PlatformSettings::new(home.path().to_owned(), env!("CARGO_BIN_EXE_trellis").into());
    let platform = Platform::start(settings()).await.expect("it starts");
    let mut events = platform.events();
    platform.apply("lab", DOCUMENT, Some(0)).await.expect("the document is stored");
    ready(&platform, &mut events).await;
    assert_eq!(platform.nodes("lab").expect("it is there").len(), 2);

    let settings_of_run = BTreeMap::from([("hidden".to_owned(), Scalar::Int(16)), ("seed".to_owned(), Scalar::Int(1))]);
    let new = NewRun { app: Some("native:mlp".to_owned()), bundle: None, settings: settings_of_run };
    let run = platform.start_run("lab", &new, "me").await.expect("it starts");
    assert!(run.native && run.app == "trellis/mlp", "{run:?}");
    let (rounds, ended) = follow(&mut events, &run.id).await;
    assert_eq!((rounds, ended.outcome.as_deref()), (vec![1, 2, 3], Some("completed")), "{ended:?}");
    let training = ended.training.clone().expect("it was followed");
    assert_eq!((training.strategy.as_str(), training.round, training.rounds_planned), ("FedAdam", 3, 3));
    assert!(training.metrics.get("evaluate_eval_acc").is_some_and(|accuracy| *accuracy > 0.3), "{training:?}");
    assert!(training.checkpoint.is_some_and(|path| path.starts_with(&home.path().display().to_string())));
    look_back(&platform, &run.id).await;
    the_superlink_tells_its_log(&platform).await;

    // The next process finds everything as it was.
    platform.stop().await;
    drop(platform);
    let platform = restarted(settings).await;
    let mut events = platform.events();
    ready(&platform, &mut events).await;
    // No events for runs that had ended when they were first observed.
    let known = async {
        while platform.runs("lab").await.map_or(true, |runs| runs.is_empty()) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(LIMIT, known).await.expect("the runs are known in time");
    assert_eq!(platform.run("lab", &run.id).await.expect("it is known").outcome.as_deref(), Some("completed"));
    platform.delete("lab", false).await.expect("it is there");
    while !matches!(next(&mut events).await.as_ref(), Event::Gone { federation } if federation == "lab") {}
    remembered(&platform, &ended).await;
    platform.stop().await;
    drop(platform);
    // Without a server, too.
    remembered(&Platform::offline(Some(home.path())).await.expect("it can be read"), &ended).await;
    let platform = restarted(settings).await;
    the_next_superlink_does_not_know_a_run(&platform, ended).await;
    assert_eq!(platform.runs("lab").await.expect("stored runs").len(), 2);
    platform.delete("lab", true).await.expect("its runs are there");
    assert!(matches!(platform.runs("lab").await, Err(Refusal::NotFound(_))), "they were purged");
    assert!(matches!(platform.delete("lab", true).await, Err(Refusal::NotFound(_))));
    assert!(home.path().join("models/lab").is_dir(), "the model stays");
    // The driver stores its owner; no part is left.
    let parts = std::fs::read_dir(home.path().join("federations/lab/local")).map_or(0, Iterator::count);
    assert_eq!(parts, 0);
}

/// As a server reads it that is on another machine.
async fn the_superlink_tells_its_log(platform: &Platform) {
    let connection = platform.connection("lab").await.expect("it serves");
    let (host, port) = connection.http.as_deref().and_then(|address| address.rsplit_once(':')).expect("an address");
    let trust = Trust::bundle(connection.root_certificates_path.expect("TLS").as_ref()).expect("a bundle");
    let token = std::fs::read_to_string(connection.token_path.expect("accounts")).expect("a token");
    let target = |token| Target {
        host: host.to_owned(),
        port: port.parse().expect("a port"),
        security: Security::Tls(trust.clone()),
        token,
    };
    let superlink = SuperLink::new(target(Some(Token::parse(&token).expect("a token"))));
    let log = superlink.call(&ReadLog { after: None }).await.expect("a log");
    assert!(log.text.contains("run") && !log.text.contains('\u{1b}'), "{}", log.text);
    let rest = superlink.call(&ReadLog { after: Some(log.next.clone()) }).await.expect("the rest of the log");
    assert!(!rest.text.contains(&log.text), "it goes on where it was");
    assert!(superlink.call(&ReadLog { after: Some("nowhere".to_owned()) }).await.is_err());
    assert!(SuperLink::new(target(None)).call(&ReadLog { after: None }).await.is_err(), "only for admins");
}

/// A run that was active when its SuperLink was lost.
async fn the_next_superlink_does_not_know_a_run(platform: &Platform, run: Run) {
    let lost = Run { id: "5".to_owned(), state: RunState::Running, outcome: None, ..run };
    let (name, text) = (Name::new("lab").expect("a name"), serde_json::to_string(&lost).expect("JSON"));
    platform.registry().store_run(&name, "5", 1, text).await.expect("it is stored");
    let mut events = platform.events();
    platform.apply("lab", DOCUMENT, Some(0)).await.expect("the document is stored");
    let (_, lost) = follow(&mut events, "5").await;
    assert_eq!(lost.outcome.as_deref(), Some("failed"));
    assert!(lost.details.contains("does not know this run"), "{lost:?}");
    platform.delete("lab", false).await.expect("it is there");
    while !matches!(next(&mut events).await.as_ref(), Event::Gone { federation } if federation == "lab") {}
}

/// The data of a run whose federation was deleted.
async fn remembered(platform: &Platform, run: &Run) {
    assert_eq!(platform.runs("lab").await.expect("stored runs"), std::slice::from_ref(run));
    assert_eq!(&platform.run("lab", &run.id).await.expect("a stored run"), run);
    let past = platform.past_federations().await.expect("they can be read");
    assert_eq!((past.len(), past[0].name.as_str(), past[0].runs), (1, "lab", 1));
    assert!(platform.rounds("lab", &run.id, None).await.expect("none").reports.is_empty());
    let log = platform.run_log("lab", &run.id, "", false).await;
    assert!(matches!(&log, Err(Refusal::NotFound(what)) if what.contains("earlier SuperLink")), "{log:?}");
    assert!(matches!(platform.run("lab", "1").await, Err(Refusal::NotFound(_))));
}

/// Calls after the end of the run.
async fn look_back(platform: &Platform, run: &str) {
    let rounds = platform.rounds("lab", run, Some(1)).await.expect("stored rounds");
    let told: Vec<(u64, &str)> = rounds.reports.iter().map(|report| (report.round, report.kind.as_str())).collect();
    assert!(told.starts_with(&[(2, "round"), (3, "round")]) && !rounds.more, "{told:?}");
    let stopped = platform.stop_run("lab", run).await.expect("stopping a finished run has no effect");
    assert_eq!(stopped.outcome.as_deref(), Some("completed"));
    let log = platform.run_log("lab", run, "", false).await.expect("it has a log");
    assert!(log.text.contains("round") && log.ended, "{log:?}");
    let rest = platform.run_log("lab", run, &log.next, true).await.expect("it has a log");
    assert_eq!((rest.text.as_str(), rest.ended), ("", true));
    for part in ["coordinator", "clinic-1"] {
        let log = platform.part_log("lab", part, None, false).await.expect("a log");
        assert!(!log.text.is_empty() && !log.ended, "{part}: {log:?}");
        let rest = platform.part_log("lab", part, Some(&log.next), false).await.expect("it has a log");
        assert_ne!(rest.next, "");
    }
    let connection = platform.connection("lab").await.expect("it serves");
    assert!(!connection.insecure && connection.http.is_some());
    assert!(connection.root_certificates.is_some_and(|pem| pem.contains("BEGIN CERTIFICATE")));
    for missing in ["7", "007", "run"] {
        let refused = platform.rounds("lab", missing, None).await;
        assert!(matches!(refused, Err(Refusal::NotFound(_))), "{missing}: {refused:?}");
    }
}

/// Tasks of the one before may still be on their way out, and hold the lock.
async fn restarted(settings: impl Fn() -> PlatformSettings) -> Arc<Platform> {
    let starting = async {
        loop {
            match Platform::start(settings()).await {
                Ok(platform) => return platform,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(LIMIT, starting).await.expect("a restart")
}
