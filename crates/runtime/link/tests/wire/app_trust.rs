//! Trust in ServerApps without a token and SuperExecs without a secret, over real sockets.

use tonic::Code;
use trellis_link::config::{AppTrust, Config, Isolation, Limits, NativeApp};
use trellis_wire::proto::*;

use super::http::{header, post};
use super::peer::{TestLink, config};

/// A SuperLink that starts ServerApps itself, with a native app that does nothing.
fn starts_apps() -> Config {
    let app = NativeApp { program: "/bin/true".into(), args: Vec::new(), models: None };
    let config = config(Limits::default());
    Config { isolation: Isolation::Subprocess, native_app: Some(app), ..config }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_superlink_that_starts_apps_serves_none_without_a_token() {
    let link = TestLink::start(starts_apps()).await;
    let mut app = link.app().await;
    let reported = app.get_nodes(GetNodesRequest { run_id: 1 }).await.unwrap_err();
    assert_eq!(reported.code(), Code::Unauthenticated, "{reported:?}");
    let reported = app.push_logs(PushLogsRequest { run_id: 1, ..Default::default() }).await.unwrap_err();
    assert_eq!(reported.code(), Code::Unauthenticated, "{reported:?}");
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_sends_tokens_is_not_served_without() {
    let link = TestLink::start(config(Limits::default())).await;
    let (run_id, mut app) = link.running_run().await;
    app.get_nodes(GetNodesRequest { run_id }).await.expect("1.25 to 1.27, of the same user");
    for (version, want) in [("1.27.0", None), ("1.28.0", Some(Code::Unauthenticated))] {
        let mut request = tonic::Request::new(GetNodesRequest { run_id });
        request.metadata_mut().insert("flwr-package-version", version.parse().unwrap());
        let reported = app.get_nodes(request).await;
        assert_eq!(reported.err().map(|reported| reported.code()), want, "{version}");
    }
    link.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_a_local_proxy_are_not_local() {
    let link = TestLink::start(config(Limits::default())).await;
    let request = ClaimTaskRequest { task_id: 1 };
    let (http, path) = (link.addresses.http, "/v1/runtime/claim-task");
    assert_eq!(post(http, path, &[], &request).await.status, 200, "a process of the same user");
    let forwarded = [header("x-forwarded-for", "192.0.2.7")];
    assert_eq!(post(http, path, &forwarded, &request).await.status, 401);
    link.stop().await;

    let trusting = Config { app_trust: AppTrust::Network, ..config(Limits::default()) };
    let link = TestLink::start(trusting).await;
    assert_eq!(post(link.addresses.http, path, &forwarded, &request).await.status, 401, "on the port of apps only");
    assert_eq!(post(link.addresses.serverappio, path, &forwarded, &request).await.status, 200);
    link.stop().await;
}
