//! Tests of the scraped text, and of limits against labels from peers.

use super::*;
use crate::watch::training::Status;

const CALL: Call =
    Call { api: Api::Fleet, rpc: "PullMessages", transport: Transport::Grpc, version: Version::One(25), code: "OK" };

fn samples(scraped: &str, prefixes: &[&str]) -> String {
    let is_wanted = |line: &&str| prefixes.iter().any(|prefix| line.starts_with(prefix));
    let mut lines: Vec<&str> = scraped.lines().filter(is_wanted).collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn trained() -> Gauges {
    Gauges {
        status: Status::Complete,
        has_run: true,
        strategy: Some("FedAvg".into()),
        round_current: 3,
        round_total: Some(3),
        loss: Some(0.25),
        accuracy: Some(0.5),
        clients_selected: 4,
        clients_responded: 3,
        replies_awaited: 1,
    }
}

fn snapshot() -> Snapshot {
    let online = [("grpc 1.25.0", 1), ("grpc 1.25.1", 1), ("grpc", 1), ("http 1.42.0", 3)];
    Snapshot {
        census: Some(Census {
            nodes_offline: 4,
            nodes_online_by_client: online.into_iter().map(|(client, count)| (client.to_owned(), count)).collect(),
            runs_running: 1,
            runs_completed: 7,
            instructions_out: 2,
            objects: 12,
            object_bytes: 1 << 33,
            audit_entries: 9,
            ..Census::default()
        }),
        store_works: true,
        store_queue_length: 5,
        certificates: vec![Certificate { role: "server", expires_at: 1.9e9 }],
    }
}

/// The names of Flower's monitoring.
#[test]
fn training() {
    let metrics = Metrics::new("1.2.3");
    metrics.round_ended(Some("FedAvg"), 7.0);
    metrics.round_ended(None, 601.0);
    metrics.client_failed();
    let scraped = metrics.scrape(&trained(), 99, &snapshot());
    assert_eq!(
        samples(&scraped, &["fl_"]),
        r#"fl_aggregated_accuracy{strategy="FedAvg"} 0.5
fl_aggregated_loss{strategy="FedAvg"} 0.25
fl_checkpoint_saved_total 0
fl_clients_connected 6
fl_clients_failed_total 1
fl_clients_responded 3
fl_clients_selected 4
fl_round_current{strategy="FedAvg"} 3
fl_round_duration_seconds_bucket{le="+Inf",strategy="FedAvg"} 1
fl_round_duration_seconds_bucket{le="+Inf",strategy="unknown"} 1
fl_round_duration_seconds_bucket{le="1.0",strategy="FedAvg"} 0
fl_round_duration_seconds_bucket{le="1.0",strategy="unknown"} 0
fl_round_duration_seconds_bucket{le="10.0",strategy="FedAvg"} 1
fl_round_duration_seconds_bucket{le="10.0",strategy="unknown"} 0
fl_round_duration_seconds_bucket{le="120.0",strategy="FedAvg"} 1
fl_round_duration_seconds_bucket{le="120.0",strategy="unknown"} 0
fl_round_duration_seconds_bucket{le="30.0",strategy="FedAvg"} 1
fl_round_duration_seconds_bucket{le="30.0",strategy="unknown"} 0
fl_round_duration_seconds_bucket{le="300.0",strategy="FedAvg"} 1
fl_round_duration_seconds_bucket{le="300.0",strategy="unknown"} 0
fl_round_duration_seconds_bucket{le="5.0",strategy="FedAvg"} 0
fl_round_duration_seconds_bucket{le="5.0",strategy="unknown"} 0
fl_round_duration_seconds_bucket{le="60.0",strategy="FedAvg"} 1
fl_round_duration_seconds_bucket{le="60.0",strategy="unknown"} 0
fl_round_duration_seconds_bucket{le="600.0",strategy="FedAvg"} 1
fl_round_duration_seconds_bucket{le="600.0",strategy="unknown"} 0
fl_round_duration_seconds_count{strategy="FedAvg"} 1
fl_round_duration_seconds_count{strategy="unknown"} 1
fl_round_duration_seconds_sum{strategy="FedAvg"} 7.0
fl_round_duration_seconds_sum{strategy="unknown"} 601.0
fl_round_total{strategy="FedAvg"} 3
fl_training_status 2"#
    );
}

#[test]
fn unknown_values_are_omitted() {
    let metrics = Metrics::new("1.2.3");
    metrics.scrape(&trained(), 0, &snapshot());
    // Another strategy, no measurements, and an unreadable store.
    let begun = Gauges {
        status: Status::Running,
        has_run: true,
        strategy: None,
        round_current: 0,
        round_total: None,
        loss: None,
        accuracy: Some(f64::NAN),
        ..Gauges::default()
    };
    let scraped = metrics.scrape(&begun, 9, &Snapshot::default());
    let names = ["fl_agg", "fl_round_c", "fl_round_t", "fl_clients_c", "trellis_nodes", "trellis_runs", "trellis_tls"];
    assert_eq!(
        samples(&scraped, &names),
        r#"fl_aggregated_accuracy{strategy="unknown"} NaN
fl_clients_connected 9
fl_round_current{strategy="unknown"} 0"#
    );
    assert_eq!(samples(&scraped, &["trellis_store_works"]), "trellis_store_works 0");
    let idle = metrics.scrape(&Gauges::default(), 0, &Snapshot::default());
    assert_eq!(samples(&idle, &["fl_round_c", "fl_tr"]), "fl_training_status 0");
}

#[test]
fn metrics_of_a_running_superlink() {
    let metrics = Metrics::new("1.2.3");
    metrics.call_finished(CALL, Some(Duration::from_millis(3)));
    metrics.call_finished(CALL, Some(Duration::from_millis(3)));
    metrics
        .call_finished(Call { version: Version::Unknown, code: "UNAVAILABLE", ..CALL }, Some(Duration::from_secs(3)));
    metrics.call_refused(Reason::Overloaded);
    let held = [metrics.call_held(Api::Fleet), metrics.call_held(Api::App), metrics.call_held(Api::Fleet)];
    let connection = metrics.connection_opened(FrontEnd::Http);
    metrics.commit_finished(10, Duration::from_micros(800), true);
    metrics.commit_finished(2, Duration::from_secs(9), false);
    metrics.object_from_memory();
    metrics.object_from_disk();
    [2.0, 0.0, f64::NAN].into_iter().for_each(|seconds| metrics.clientapp_worked(seconds));
    let scraped = metrics.scrape(&trained(), 0, &snapshot());
    let without_buckets: String =
        scraped.lines().filter(|line| !line.contains("_bucket")).map(|line| format!("{line}\n")).collect();
    let quiet = |line: &&str| !line.starts_with("trellis_calls_refused") || line.contains("overloaded");
    let shown: Vec<&str> = without_buckets.lines().filter(|line| line.starts_with("trellis_")).filter(quiet).collect();
    assert_eq!(
        samples(&shown.join("\n"), &["trellis_"]),
        r#"trellis_audit_entries 9
trellis_build_info{version="1.2.3"} 1
trellis_call_duration_seconds_count{api="fleet"} 3
trellis_call_duration_seconds_sum{api="fleet"} 3.006
trellis_calls_held{api="app"} 1
trellis_calls_held{api="control"} 0
trellis_calls_held{api="fleet"} 2
trellis_calls_held{api="trellis"} 0
trellis_calls_refused_total{reason="overloaded"} 1
trellis_calls_total{api="fleet",rpc="PullMessages",transport="grpc",version="1.25",code="OK"} 2
trellis_calls_total{api="fleet",rpc="PullMessages",transport="grpc",version="unknown",code="UNAVAILABLE"} 1
trellis_clientapp_duration_seconds_count 1
trellis_clientapp_duration_seconds_sum 2.0
trellis_connections{front_end="http"} 1
trellis_instructions{state="answered"} 0
trellis_instructions{state="incomplete"} 0
trellis_instructions{state="out"} 2
trellis_instructions{state="waiting"} 0
trellis_nodes{state="offline",version="unknown"} 4
trellis_nodes{state="online",version="1.25"} 2
trellis_nodes{state="online",version="1.42"} 3
trellis_nodes{state="online",version="unknown"} 1
trellis_nodes{state="registered",version="unknown"} 0
trellis_object_bytes 8589934592
trellis_object_cache_hits_total 1
trellis_object_cache_misses_total 1
trellis_objects 12
trellis_replies_awaited 1
trellis_runs{state="completed"} 7
trellis_runs{state="failed"} 0
trellis_runs{state="pending"} 0
trellis_runs{state="running"} 1
trellis_runs{state="starting"} 0
trellis_runs{state="stopped"} 0
trellis_store_commit_duration_seconds_count 2
trellis_store_commit_duration_seconds_sum 9.0008
trellis_store_commits_total{result="failed"} 1
trellis_store_commits_total{result="ok"} 1
trellis_store_jobs_total 12
trellis_store_queue_length 5
trellis_store_works 1
trellis_tls_certificate_expiry_timestamp_seconds{role="server"} 1900000000.0"#
    );
    drop((held, connection));
    let after = metrics.scrape(&trained(), 0, &snapshot());
    assert!(after.contains("trellis_calls_held{api=\"fleet\"} 0\n") && after.contains("front_end=\"http\"} 0\n"));
}

#[test]
fn metrics_of_the_process() {
    let scraped = Metrics::new("1.2.3").scrape(&Gauges::default(), 0, &Snapshot::default());
    for name in ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "start_time_seconds"] {
        let sample = format!("\nprocess_{name} ");
        let value = scraped.split_once(&sample).and_then(|(_, rest)| rest.lines().next()).map(str::parse::<f64>);
        assert!(matches!(value, Some(Ok(value)) if value > 0.0), "{name}: {value:?}");
    }
    assert!(scraped.ends_with("# EOF\n"));
}

/// To Prometheus, the first value of a new series is no increase.
#[test]
fn counters_start_at_zero() {
    let metrics = Metrics::new("1.2.3");
    metrics.training_started(Some("FedAvg"));
    let scraped = metrics.scrape(&Gauges::default(), 0, &Snapshot::default());
    for zero in [
        "fl_round_duration_seconds_count{strategy=\"FedAvg\"} 0",
        "fl_clients_failed_total 0",
        "trellis_calls_refused_total{reason=\"overloaded\"} 0",
        "trellis_store_commits_total{result=\"failed\"} 0",
    ] {
        assert!(scraped.contains(&format!("\n{zero}\n")), "{zero}");
    }
}

#[test]
fn users_cannot_grow_the_number_of_series() {
    let metrics = Metrics::new("1.2.3");
    for number in 0..1000 {
        metrics.round_ended(Some(&format!("mine-{number}")), 1.0);
        metrics.call_finished(
            Call { version: Version::announced(Some(&format!("1.{number}"))), ..CALL },
            Some(Duration::ZERO),
        );
        metrics.call_finished(
            Call { version: Version::announced(Some(&format!("{number}"))), ..CALL },
            Some(Duration::ZERO),
        );
    }
    let scraped = metrics.scrape(&trained(), 0, &snapshot());
    let series = |prefix: &str| scraped.lines().filter(|line| line.starts_with(prefix)).count();
    assert_eq!(series("fl_round_duration_seconds_count"), MAX_STRATEGIES + 1);
    assert_eq!(series("trellis_calls_total"), 101);
}
