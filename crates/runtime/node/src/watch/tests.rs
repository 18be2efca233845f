//! Events reported to the watch, as they appear in the status, in a scrape, on the socket and on the address.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

use super::*;
use crate::drain::Drain;

const NOW: Seconds = 1000.0;

fn watch() -> Watch {
    let about = About { version: "0".into(), superlink: "link:9092".into(), state_dir: "/state".into() };
    Watch::with_clock(about, || NOW)
}

/// A watch with events of all kinds.
fn busy() -> Watch {
    let (watch, run) = (watch(), RunId(u64::MAX));
    watch.link_up(Transport::Http, NodeId(u64::MAX - 1));
    watch.node_name(Some("ward-7".into()));
    for _ in 0..3 {
        watch.instruction_received();
    }
    let under_way: Vec<_> = (0..3).map(|_| watch.under_way(run)).collect();
    // One of them never ends.
    std::mem::forget(under_way.into_iter().next());
    watch.instruction_done(run, Ending::Replied, Some(Duration::from_millis(20)));
    watch.instruction_done(run, Ending::Failed, None);
    watch.reply_delivered(Duration::from_secs(40));
    watch.reply_dropped(Dropped::Expired);
    watch.waiting(2, 1 << 20, Some(NOW - 60.0));
    watch.transferred(Direction::Received, 500);
    watch.transferred(Direction::Sent, 70);
    watch.transferred(Direction::Sent, 7);
    let app = move |pid, state| AppStatus { pid: Some(pid), run_id: run, rss_bytes: Some(100), state, since: NOW };
    watch.ask_for_apps(move || vec![app(1, AppState::Working), app(2, AppState::Idle)]);
    watch.app_ended(AppEnd::Memory);
    watch.gpu(Gpu::Ready { devices: vec!["0".into(), "1".into()] });
    watch.disk(5, 10);
    watch.draining(true);
    watch
}

#[test]
fn ids_are_strings_and_the_status_round_trips() {
    let status = busy().status();
    let text = serde_json::to_value(&status).unwrap();
    assert_eq!(text["node_id"], "18446744073709551614");
    assert_eq!(text["runs"][0]["run_id"], "18446744073709551615");
    assert_eq!(text["link"], serde_json::json!({"state": "connected", "since": 1000.0, "transport": "http"}));
    assert_eq!(text["apps"][1]["state"], "idle");
    assert_eq!(serde_json::from_value::<Status>(text).unwrap(), status);
    let fresh = watch().status();
    assert_eq!(serde_json::from_value::<Status>(serde_json::to_value(&fresh).unwrap()).unwrap(), fresh);
}

#[test]
fn a_lost_link_is_lost_since_the_first_failure() {
    thread_local!(static CLOCK: std::cell::Cell<Seconds> = const { std::cell::Cell::new(0.0) });
    let about = About { version: "0".into(), superlink: "l:1".into(), state_dir: "/s".into() };
    let watch = Watch::with_clock(about, || CLOCK.get());
    let link = |at, tell: &dyn Fn(&Watch)| {
        CLOCK.set(at);
        tell(&watch);
        watch.status().link
    };
    let lost = |since, why: &str, retry_at| Link::Disconnected { since, why: why.into(), retry_at };
    let fail = |why: &'static str| move |watch: &Watch| watch.link_lost(why, Duration::from_secs(2));
    assert_eq!(link(1.0, &fail("refused")), lost(0.0, "refused", 3.0), "since the start");
    let up = |watch: &Watch| watch.link_up(Transport::Grpc, NodeId(7));
    assert_eq!(link(5.0, &up), Link::Connected { since: 5.0, transport: Transport::Grpc });
    assert_eq!(link(9.0, &fail("reset")), lost(9.0, "reset", 11.0));
    assert_eq!(link(11.0, &fail("refused")), lost(9.0, "refused", 13.0));
    assert!(!watch.is_connected());
    assert_eq!(watch.status().node_id, Some(NodeId(7)), "the id is unchanged");
}

#[test]
fn runs_are_limited() {
    let watch = watch();
    for run in 0..=MAX_RUNS as u64 {
        drop(watch.under_way(RunId(run)));
    }
    let status = watch.status();
    assert_eq!((status.runs.len(), status.instructions_under_way), (MAX_RUNS, 0));
    let under_way = watch.under_way(RunId(MAX_RUNS as u64));
    watch.run_over(RunId(MAX_RUNS as u64));
    assert_eq!((watch.status().runs.len(), watch.status().instructions_under_way), (MAX_RUNS - 1, 1));
    drop(under_way);
    assert_eq!((watch.status().runs.len(), watch.status().instructions_under_way), (MAX_RUNS - 1, 0));
}

#[test]
fn a_scrape_contains_all_events() {
    let text = busy().metrics();
    for line in [
        "trellis_node_build_info{version=\"0\"} 1",
        "trellis_node_connected 1",
        "trellis_node_connections_total{transport=\"http\"} 1",
        "trellis_node_connections_total{transport=\"grpc\"} 0",
        "trellis_node_connection_failures_total 0",
        "trellis_node_draining 1",
        "trellis_node_runs 1",
        "trellis_node_instructions_received_total 3",
        "trellis_node_instructions_under_way 1",
        "trellis_node_instructions_total{outcome=\"replied\"} 1",
        "trellis_node_instructions_total{outcome=\"failed\"} 1",
        "trellis_node_instructions_total{outcome=\"postponed\"} 0",
        "trellis_node_app_duration_seconds_count 1",
        "trellis_node_app_duration_seconds_bucket{le=\"0.05\"} 1",
        "trellis_node_replies_delivered_total 1",
        "trellis_node_reply_delay_seconds_bucket{le=\"30.0\"} 0",
        "trellis_node_reply_delay_seconds_bucket{le=\"60.0\"} 1",
        "trellis_node_replies_dropped_total{reason=\"expired\"} 1",
        "trellis_node_replies_waiting 2",
        "trellis_node_reply_bytes_waiting 1048576",
        "trellis_node_oldest_reply_age_seconds 60.0",
        "trellis_node_object_bytes_total{direction=\"received\"} 500",
        "trellis_node_object_bytes_total{direction=\"sent\"} 77",
        "trellis_node_apps{state=\"starting\"} 0",
        "trellis_node_apps{state=\"working\"} 1",
        "trellis_node_app_memory_bytes 200",
        "trellis_node_apps_ended_total{reason=\"memory\"} 1",
        "trellis_node_apps_ended_total{reason=\"crashed\"} 0",
        "trellis_node_gpus 2",
        "trellis_node_gpu_missing 0",
        "trellis_node_disk_bytes 5",
        "trellis_node_disk_limit_bytes 10",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn every_metric_is_documented() {
    let guide = include_str!("../../../../../docs/monitoring.md");
    let text = busy().metrics();
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).filter_map(|line| line.split_once(' '));
    for (name, kind) in names {
        let name = match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        };
        assert!(guide.contains(&format!("`{name}`")), "{name}");
    }
}

/// A running server; dropping it stops the server.
struct Running {
    socket: PathBuf,
    address: std::net::SocketAddr,
    switch: Drain,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

async fn run(watch: Watch, directory: &Path) -> Running {
    let socket = directory.join(SOCKET);
    let server = StatusServer::bind(&socket, Some("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let address = server.metrics_address().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { drop(stopped.await) };
    let switch = Drain::default();
    let served = tokio::spawn({
        let switch = switch.clone();
        async move { server.serve(watch, switch, shutdown).await }
    });
    Running { socket, address, switch, stop, served }
}

async fn get(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, request: &str) -> (u16, String) {
    stream.write_all(format!("{request} HTTP/1.1\r\nhost: n\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn each_listener_has_its_paths() {
    let directory = tempfile::tempdir().unwrap();
    let watch = watch();
    let running = run(watch.clone(), directory.path()).await;
    let by_socket = async |request| get(UnixStream::connect(&running.socket).await.unwrap(), request).await;
    let by_address = async |request| get(TcpStream::connect(running.address).await.unwrap(), request).await;
    assert_eq!(by_address("GET /health").await.0, 503);
    watch.link_up(Transport::Grpc, NodeId(7));
    assert_eq!(by_address("GET /health").await, (200, "connected\n".to_owned()));
    assert!(by_address("GET /metrics").await.1.contains("trellis_node_connected 1\n"));
    assert!(by_socket("GET /metrics").await.1.contains("trellis_node_connected 1\n"));
    // Paths and process ids are not served on the network.
    assert_eq!(by_address("GET /status").await.0, 404);
    assert_eq!(by_socket("POST /status").await.0, 405);
    assert_eq!(ask(&running.socket).await.unwrap(), watch.status());
}

#[tokio::test]
async fn only_the_socket_accepts_drain_requests() {
    let directory = tempfile::tempdir().unwrap();
    let watch = watch();
    let running = run(watch.clone(), directory.path()).await;
    for wish in [true, true, false] {
        assert_eq!(drain(&running.socket, wish).await.unwrap(), wish);
        assert_eq!((running.switch.is_on(), ask(&running.socket).await.unwrap().draining), (wish, wish));
    }
    watch.asking(true);
    drain(&running.socket, true).await.unwrap();
    assert!(!ask(&running.socket).await.unwrap().is_drained(), "the open pull may bring work");
    watch.asking(false);
    assert!(ask(&running.socket).await.unwrap().is_drained());
    let by_address = get(TcpStream::connect(running.address).await.unwrap(), "POST /drain").await;
    let empty = get(UnixStream::connect(&running.socket).await.unwrap(), "POST /drain").await;
    assert_eq!((by_address.0, empty.0), (405, 400));
    assert!(empty.1.contains("is required"), "{}", empty.1);
}

#[tokio::test]
async fn only_the_owner_can_use_the_socket_and_it_is_removed_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let Running { socket, stop, served, .. } = run(watch(), directory.path()).await;
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    stop.send(()).unwrap();
    served.await.unwrap();
    assert!(!socket.exists());
    assert!(matches!(ask(&socket).await, Err(AskError::NotRunning { .. })));
}

#[tokio::test]
async fn the_socket_of_a_dead_node_is_replaced_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join(SOCKET);
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists(), "a killed node leaves its socket");
    assert!(matches!(ask(&socket).await, Err(AskError::NotRunning { .. })));
    let running = run(watch(), directory.path()).await;
    let second = StatusServer::bind(&socket, None).await.err().unwrap();
    assert!(matches!(second, ListenError::InUse { .. }), "{second}");
    assert!(second.to_string().contains("--state-dir"), "{second}");
    assert!(ask(&running.socket).await.is_ok(), "the first node is unaffected");
}

#[tokio::test]
async fn a_file_that_is_not_a_socket_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join(SOCKET);
    std::fs::write(&socket, "precious").unwrap();
    assert!(matches!(StatusServer::bind(&socket, None).await, Err(ListenError::NotASocket { .. })));
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
}
