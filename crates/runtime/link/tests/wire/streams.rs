//! A log stream ends when its reader loses the permission.

use std::time::Duration;

use serde_json::json;
use tonic::transport::Channel;
use tonic::{Code, Request, Streaming};
use trellis_link::config::{Config, Limits};
use trellis_wire::proto::control_client::ControlClient;
use trellis_wire::proto::*;

use super::http::{header, send};
use super::peer::{TestLink, config, fab};

/// Longer than the interval at which a stream rechecks the permission.
const SOON: Duration = Duration::from_secs(20);

struct Admin<'a> {
    link: &'a TestLink,
    token: String,
}

impl Admin<'_> {
    async fn call(&self, name: &str, body: serde_json::Value) -> serde_json::Value {
        let bearer = header("authorization", &format!("Bearer {}", self.token));
        let headers = [bearer, header("content-type", "application/json")];
        let path = format!("/v1/trellis/{name}");
        let answer = send(self.link.addresses.http, "POST", &path, &headers, body.to_string().as_bytes()).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }

    async fn account(&self, name: &str, role: &str) -> String {
        let made = self.call("create-account", json!({"name": name, "role": role})).await;
        made["token"].as_str().unwrap().to_owned()
    }
}

fn with_accounts() -> Config {
    Config { accounts: true, ..config(Limits::default()) }
}

fn as_account<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

/// Opens a stream and reads the existing lines.
async fn follow(mut control: ControlClient<Channel>, token: &str, run_id: u64) -> Streaming<StreamLogsResponse> {
    let request = as_account(token, StreamLogsRequest { run_id, ..Default::default() });
    let mut stream = control.stream_logs(request).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().log_output, "first\n");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_log_ends_when_its_reader_is_disabled_or_its_token_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let link = TestLink::start_in(with_accounts(), &state).await;
    let token = std::fs::read_to_string(state.join("admin.token")).unwrap().trim().to_owned();
    let admin = Admin { link: &link, token };
    let start = StartRunRequest {
        fab: Some(Fab { content: fab(), ..Default::default() }),
        federation: "default".into(),
        ..Default::default()
    };
    let started = link.control().await.start_run(as_account(&admin.token, start)).await.unwrap().into_inner();
    let run_id = started.run_id.unwrap();
    let mut app = link.app().await;
    let say = |text: &str| PushLogsRequest { run_id, logs: vec![text.to_owned()], ..Default::default() };
    app.push_logs(say("first\n")).await.unwrap();

    let (disabled, other) = (admin.account("disabled", "viewer").await, admin.account("other", "viewer").await);
    let revoked = admin.account("revoked", "viewer").await;
    let mut streams = Vec::new();
    for token in [&disabled, &revoked, &other] {
        streams.push(follow(link.control().await, token, run_id).await);
    }
    admin.call("disable-account", json!({"name": "disabled"})).await;
    let listed = admin.call("list-tokens", json!({})).await;
    let of_revoked = |token: &&serde_json::Value| token["account"] == "revoked";
    let token = listed["tokens"].as_array().unwrap().iter().find(of_revoked).unwrap();
    admin.call("revoke-token", json!({"id": token["id"]})).await;

    let mut kept = streams.pop().unwrap();
    for mut stream in streams {
        let ended = tokio::time::timeout(SOON, stream.message()).await.expect("the stream ends");
        assert_eq!(ended.unwrap_err().code(), Code::Unauthenticated);
    }
    app.push_logs(say("second\n")).await.unwrap();
    let more = tokio::time::timeout(SOON, kept.message()).await.expect("other streams continue").unwrap().unwrap();
    assert_eq!(more.log_output, "second\n");
    link.stop().await;
}
