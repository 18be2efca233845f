//! Native runs over the wire: launchers, processes and reports.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use trellis_link::config::{Config, Isolation, Limits, NativeApp};
use trellis_wire::proto::*;

use super::http::{Response, header, post, send};
use super::peer::{TestLink, config, native_fab};

/// Longer than any step of the tests.
const SOON: Duration = Duration::from_secs(20);

fn read<R: prost::Message + Default>(response: &Response) -> R {
    assert_eq!(response.status, 200, "{}", response.text());
    R::decode(response.body.as_slice()).unwrap()
}

async fn acquire(link: &TestLink, kinds: &[&str]) -> AcquireTaskResponse {
    let supported_task_types = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let request = AcquireTaskRequest { supported_task_types, ..Default::default() };
    read(&post(link.addresses.http, "/v1/runtime/acquire-task", &[], &request).await)
}

/// A SuperLink that starts no ServerApps and does not hold requests for runs.
async fn idle_link() -> TestLink {
    let limits = Limits { hold_launch_poll: Duration::ZERO, ..Limits::default() };
    TestLink::start(config(limits)).await
}

/// The token of a running native run.
async fn running(link: &TestLink) -> (u64, Vec<(String, String)>) {
    let run = link.start_run_of(native_fab()).await;
    let token = acquire(link, &["trellis-serverapp"]).await.token;
    let token = vec![header("flwr-task-token", &token)];
    let inputs =
        post(link.addresses.serverappio, "/v1/runtime/pull-task-input", &token, &PullTaskInputRequest {}).await;
    assert_eq!(read::<PullTaskInputResponse>(&inputs).task_id, run);
    (run, token)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_run_goes_to_launchers_that_request_its_type() {
    let link = idle_link().await;
    let run = link.start_run_of(native_fab()).await;
    let mut app = link.app().await;
    let listed = app.list_apps_to_launch(ListAppsToLaunchRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.run_ids, [0; 0], "SuperExecs up to 1.29 request no type");
    let http = link.addresses.http;
    let pending: PullPendingTasksResponse =
        read(&post(http, "/v1/runtime/pull-pending-tasks", &[], &PullPendingTasksRequest {}).await);
    assert_eq!(pending.tasks, [], "SuperExecs up to 1.38 request no type");
    assert_eq!(app.request_token(RequestTokenRequest { run_id: run }).await.unwrap().into_inner().token, "");
    let claimed: ClaimTaskResponse =
        read(&post(http, "/v1/runtime/claim-task", &[], &ClaimTaskRequest { task_id: run }).await);
    assert_eq!(claimed.token, None, "a guessed id");
    assert_eq!(acquire(&link, &["flwr-serverapp", "flwr-simulation"]).await, AcquireTaskResponse::default());

    let python = link.start_run().await;
    let task = acquire(&link, &["flwr-serverapp", "trellis-serverapp"]).await.task.unwrap();
    assert_eq!((task.run_id, task.r#type.as_str()), (run, "trellis-serverapp"), "the oldest of the requested types");
    let task = acquire(&link, &["flwr-serverapp", "trellis-serverapp"]).await.task.unwrap();
    assert_eq!((task.run_id, task.r#type.as_str()), (python, "flwr-serverapp"));
    link.stop().await;
}

/// A call of Trellis.
async fn ours(address: std::net::SocketAddr, name: &str, headers: &[(String, String)], body: &str) -> (u16, Value) {
    let mut headers = headers.to_vec();
    headers.push(header("content-type", "application/json"));
    let answer = send(address, "POST", &format!("/v1/trellis/{name}"), &headers, body.as_bytes()).await;
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_idempotent_and_returned_by_round() {
    let link = idle_link().await;
    let (run, token) = running(&link).await;
    let (app, http) = (link.addresses.serverappio, link.addresses.http);
    let checkpoint = json!({"path": "models/1/round-000002", "size_bytes": 7});
    let second = json!({"round": 2, "kind": "round", "checkpoint": checkpoint, "numbers": [1.5, null]});
    for report in [
        json!({"round": 1, "findings": [{"severity": "warning", "code": "drift", "what": "far apart", "advice": "x"}]}),
        json!({"round": 2, "kind": "round", "half": true}),
        second.clone(),
        second.clone(),
        json!({"round": 0, "kind": "start"}),
    ] {
        assert_eq!(ours(app, "report-training", &token, &report.to_string()).await, (200, json!({})), "{report}");
    }
    let asked = |after: Value| json!({"run_id": run.to_string(), "after_round": after}).to_string();
    let (status, history) = ours(http, "run-history", &[], &asked(Value::Null)).await;
    let rounds: Vec<_> = history["reports"].as_array().unwrap().iter().map(|report| report["round"].clone()).collect();
    assert_eq!((status, rounds, &history["more"]), (200, vec![json!(0), json!(1), json!(2)], &json!(false)));
    let (_, history) = ours(http, "run-history", &[], &asked(json!(1))).await;
    assert_eq!(history, json!({"reports": [second], "more": false}), "the last version, unchanged");

    let metrics = send(http, "GET", "/metrics", &[], b"").await.text();
    assert!(metrics.contains("\nfl_checkpoint_saved_total 1\n"), "counted once");
    let (status, answer) = ours(http, "run-history", &[], r#"{"run_id": "77"}"#).await;
    assert_eq!((status, answer["detail"].as_str()), (404, Some("There is no run '77'.")));
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_reports_are_refused() {
    let link = idle_link().await;
    let (_, token) = running(&link).await;
    let app = link.addresses.serverappio;
    let long = json!({"round": 1, "x": "x".repeat(1 << 20)}).to_string();
    let fits = json!({"round": 1, "x": "x".repeat((1 << 20) - 100)}).to_string();
    let cases = [("", 400), ("[]", 400), (r#"{"kind": "round"}"#, 400), (r#"{"round": -1}"#, 400), ("{", 400)];
    let cases = cases.into_iter().chain([(r#"{"round": 1, "kind": "A"}"#, 400), (&long, 413), (&fits, 200)]);
    for (body, want) in cases {
        let (status, answer) = ours(app, "report-training", &token, body).await;
        assert_eq!(status, want, "{body:.60}: {answer}");
    }
    let (status, _) = ours(link.addresses.control, "report-training", &token, "{}").await;
    assert_eq!(status, 404, "a port for accounts");
    link.stop().await;
}

/// A long history is returned in pages.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_is_read_in_pages() {
    let link = idle_link().await;
    let (run, token) = running(&link).await;
    let large = "x".repeat(900 << 10);
    for round in 0..10 {
        let report = json!({"round": round, "x": large}).to_string();
        assert_eq!(ours(link.addresses.serverappio, "report-training", &token, &report).await.0, 200);
    }
    let (mut after, mut rounds, mut parts) = (Value::Null, Vec::new(), 0);
    loop {
        let asked = json!({"run_id": run.to_string(), "after_round": after}).to_string();
        let (_, history) = ours(link.addresses.http, "run-history", &[], &asked).await;
        let part = history["reports"].as_array().unwrap().iter().map(|report| report["round"].as_u64().unwrap());
        rounds.extend(part);
        (after, parts) = (json!(rounds.last()), parts + 1);
        if history["more"] == json!(false) {
            break;
        }
    }
    assert_eq!((rounds, parts), ((0..10).collect(), 2));
    link.stop().await;
}

/// A ServerApp that is a shell script: the test reads what it writes to `reported`, and detects its end.
struct Script {
    config: Config,
    reported: std::path::PathBuf,
    state: std::path::PathBuf,
}

impl Script {
    fn new(directory: &Path, script: &str) -> Script {
        let reported = directory.join("reported");
        let made = std::process::Command::new("mkfifo").arg(&reported).status().unwrap();
        assert!(made.success());
        let args = ["-c", script, "sh"].map(OsString::from).into_iter().chain([reported.clone().into()]).collect();
        let native_app = Some(NativeApp { program: "/bin/sh".into(), args, models: None });
        let config = Config { native_app, isolation: Isolation::Process, ..config(Limits::default()) };
        Script { config, reported, state: directory.join("state") }
    }

    /// Reads the first line of a new ServerApp; the reader ends with the process.
    async fn hear(&self) -> (Vec<String>, BufReader<std::fs::File>) {
        let reported = self.reported.clone();
        let heard = tokio::task::spawn_blocking(move || {
            // While a writer is open, the end of another ServerApp is not the end of the file.
            let writer = OpenOptions::new().read(true).write(true).open(&reported).unwrap();
            let mut reader = BufReader::new(std::fs::File::open(&reported).unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            drop(writer);
            (line.split_whitespace().map(str::to_owned).collect(), reader)
        });
        tokio::time::timeout(SOON, heard).await.expect("the ServerApp is started").unwrap()
    }
}

/// Waits until no process has the other end open.
async fn ended(mut reader: BufReader<std::fs::File>) {
    let end = tokio::task::spawn_blocking(move || reader.read_line(&mut String::new()).unwrap());
    assert_eq!(tokio::time::timeout(SOON, end).await.expect("the ServerApp ends").unwrap(), 0);
}

async fn status(link: &TestLink, run: u64) -> RunStatus {
    let request = ListRunsRequest { run_id: Some(run), ..Default::default() };
    let runs = link.control().await.list_runs(request).await.unwrap().into_inner();
    runs.run_dict[&run].status.clone().unwrap()
}

/// Waits for the end of a run and returns its log.
async fn log(link: &TestLink, run_id: u64) -> String {
    let request = StreamLogsRequest { run_id, after_timestamp: 0.0 };
    let mut stream = link.control().await.stream_logs(request).await.unwrap().into_inner();
    let mut text = String::new();
    while let Some(part) = tokio::time::timeout(SOON, stream.message()).await.expect("the run ends").unwrap() {
        text.push_str(&part.log_output);
    }
    text
}

const SAY_AND_WAIT: &str = "exec 3>\"$1\"; \
     echo $TRELLIS_RUN_ID $TRELLIS_APP_ADDRESS $TRELLIS_APP_TOKEN $TRELLIS_MODELS $TRELLIS_APP_OF >&3; exec sleep 600";

#[tokio::test(flavor = "multi_thread")]
async fn a_native_run_is_started_by_the_superlink_and_killed_when_it_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let script = Script::new(directory.path(), SAY_AND_WAIT);
    let link = TestLink::start_in(script.config.clone(), &script.state).await;
    let python = link.start_run().await;
    let run = link.start_run_of(native_fab()).await;
    let (said, reader) = script.hear().await;
    let state = directory.path().join("state");
    let want = [run.to_string(), link.addresses.serverappio.to_string()];
    assert_eq!(
        (&said[..2], &said[3..]),
        (&want[..], &[state.join("models"), state].map(|path| path.display().to_string())[..])
    );
    let token = [header("flwr-task-token", &said[2])];
    let inputs =
        post(link.addresses.serverappio, "/v1/runtime/pull-task-input", &token, &PullTaskInputRequest {}).await;
    assert_eq!(read::<PullTaskInputResponse>(&inputs).run.unwrap().run_id, run);
    assert_eq!(status(&link, run).await.status, "running");
    link.control().await.stop_run(StopRunRequest { run_id: run }).await.unwrap();
    ended(reader).await;
    assert_eq!(status(&link, run).await.sub_status, "stopped");
    assert_eq!(status(&link, python).await.status, "pending", "a run for a SuperExec");
    link.stop().await;
}

/// Waits until the status of a run is this one, and returns its details.
async fn details_in(link: &TestLink, run: u64, wanted: &str) -> String {
    let reached = async {
        loop {
            let RunStatus { status, details, .. } = status(link, run).await;
            if status == wanted {
                return details;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, reached).await.expect(wanted)
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_above_the_limit_wait_in_a_queue() {
    let directory = tempfile::tempdir().unwrap();
    let mut script = Script::new(directory.path(), SAY_AND_WAIT);
    script.config.limits.server_apps = Some(1);
    let link = TestLink::start_in(script.config.clone(), &script.state).await;
    let first = link.start_run_of(native_fab()).await;
    let (_, reader) = script.hear().await;
    assert_eq!(details_in(&link, first, "starting").await, "");
    let second = link.start_run_of(native_fab()).await;
    let third = link.start_run_of(native_fab()).await;
    assert_eq!(details_in(&link, second, "pending").await, "Queued for a free ServerApp: position 1 of 2.");
    assert_eq!(details_in(&link, third, "pending").await, "Queued for a free ServerApp: position 2 of 2.");

    let stop = async |run_id| link.control().await.stop_run(StopRunRequest { run_id }).await.unwrap();
    stop(second).await;
    assert_eq!(details_in(&link, third, "pending").await, "Queued for a free ServerApp: position 1 of 1.");
    stop(first).await;
    // The next ServerApp may open the pipe before the first has closed it, so the pipe has no end in between.
    let (said, next) = script.hear().await;
    drop(reader);
    assert_eq!(said[0], third.to_string(), "the stopped run is skipped");
    stop(third).await;
    ended(next).await;
    link.stop().await;
}

/// Ends only when the state directory is deleted, with the test.
const SAY_AND_LINGER: &str = "exec 3>\"$1\"; echo $TRELLIS_RUN_ID $TRELLIS_APP_TOKEN >&3; exec 3>&-; \
     while [ -d \"$TRELLIS_APP_OF\" ]; do sleep 0.05; done";

#[tokio::test(flavor = "multi_thread")]
async fn a_serverapp_that_outlives_its_run_does_not_block_the_queue() {
    let directory = tempfile::tempdir().unwrap();
    let mut script = Script::new(directory.path(), SAY_AND_LINGER);
    script.config.limits.server_apps = Some(1);
    let link = TestLink::start_in(script.config.clone(), &script.state).await;
    let first = link.start_run_of(native_fab()).await;
    let (said, _) = script.hear().await;
    let second = link.start_run_of(native_fab()).await;
    let (app, token) = (link.addresses.serverappio, [header("flwr-task-token", &said[1])]);
    let input: PullTaskInputResponse =
        read(&post(app, "/v1/runtime/pull-task-input", &token, &PullTaskInputRequest {}).await);
    let output = PushTaskOutputRequest { context: input.context, sub_status: "completed".into(), ..Default::default() };
    read::<PushTaskOutputResponse>(&post(app, "/v1/runtime/push-task-output", &token, &output).await);
    assert_eq!(status(&link, first).await.sub_status, "completed");
    assert_eq!(script.hear().await.0[0], second.to_string());
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_output_of_a_native_serverapp_is_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let script = Script::new(directory.path(), "echo out of ideas >&2; exit 7");
    let link = TestLink::start_in(script.config.clone(), &script.state).await;
    let run = link.start_run_of(native_fab()).await;
    let log = log(&link, run).await;
    assert!(log.contains("exited with code 7") && log.contains("out of ideas"), "{log}");
    assert_eq!(status(&link, run).await.sub_status, "failed");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_fails_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut script = Script::new(directory.path(), "");
    script.config.native_app =
        Some(NativeApp { program: directory.path().join("none"), args: Vec::new(), models: None });
    let link = TestLink::start_in(script.config.clone(), &script.state).await;
    let run = link.start_run_of(native_fab()).await;
    let log = log(&link, run).await;
    assert!(log.contains("could not be started with") && log.contains("none"), "{log}");
    assert_eq!(status(&link, run).await.sub_status, "failed");
    link.stop().await;
}

/// Prints its token, runs until it receives a signal file, and exits.
const SAY_AND_DIE: &str = "exec 3>\"$1\"; echo $TRELLIS_APP_TOKEN >&3; exec 3>&-; \
     while [ ! -e \"$1.die\" ]; do sleep 0.05; done; rm \"$1.die\"; exit 9";

#[tokio::test(flavor = "multi_thread")]
async fn a_native_serverapp_is_restarted_if_it_has_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let script = Script::new(directory.path(), SAY_AND_DIE);
    let link = TestLink::start_in(script.config.clone(), &script.state).await;
    let begin = async |token: &str| {
        let token = [header("flwr-task-token", token)];
        let path = "/v1/runtime/pull-task-input";
        post(link.addresses.serverappio, path, &token, &PullTaskInputRequest {}).await.status
    };
    let run = link.start_run_of(native_fab()).await;
    let kept = directory.path().join("state/models").join(run.to_string()).join("latest");
    let (first, _) = script.hear().await;
    assert_eq!(begin(&first[0]).await, 200);
    std::fs::create_dir(&kept).unwrap();
    std::fs::write(directory.path().join("reported.die"), "").unwrap();

    let (second, _) = script.hear().await;
    assert_eq!(status(&link, run).await.status, "running", "the restart is invisible to others");
    assert_eq!((begin(&first[0]).await, begin(&second[0]).await), (401, 200), "the old token is void");
    // A round is finished without a checkpoint.
    let (report, token) = (json!({"round": 1}).to_string(), [header("flwr-task-token", &second[0])]);
    assert_eq!(ours(link.addresses.serverappio, "report-training", &token, &report).await.0, 200);
    std::fs::remove_dir(&kept).unwrap();
    std::fs::write(directory.path().join("reported.die"), "").unwrap();
    let log = log(&link, run).await;
    assert!(log.contains("exited with code 9") && log.contains("restarted in 1 s"), "{log}");
    assert!(log.contains("last checkpoint (restart 1 of 3)") && !log.contains("(restart 2 of 3)"), "{log}");
    assert_eq!(status(&link, run).await.sub_status, "failed");
    link.stop().await;
}

/// The first SuperLink has its own runtime, so that all its tasks end with it.
#[test]
fn a_native_serverapp_is_adopted_by_the_next_superlink() {
    let directory = tempfile::tempdir().unwrap();
    let script = Script::new(directory.path(), SAY_AND_WAIT);
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let first = runtime();
    let (run, reader) = first.block_on(async {
        let link = TestLink::start_on_disk(script.config.clone(), &script.state).await;
        let run = link.start_run_of(native_fab()).await;
        let (said, reader) = script.hear().await;
        let token = [header("flwr-task-token", &said[2])];
        post(link.addresses.serverappio, "/v1/runtime/pull-task-input", &token, &PullTaskInputRequest {}).await;
        link.stop().await;
        (run, reader)
    });
    first.shutdown_timeout(SOON);
    runtime().block_on(async {
        let link = TestLink::start_on_disk(script.config.clone(), &script.state).await;
        assert_eq!(status(&link, run).await.status, "running", "the process is running");
        link.control().await.stop_run(StopRunRequest { run_id: run }).await.unwrap();
        ended(reader).await;
        link.stop().await;
    });
}
