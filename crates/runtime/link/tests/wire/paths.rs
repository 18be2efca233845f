//! Paths in the settings of native runs: only paths below the models directory are accepted.

use std::collections::BTreeMap;

use tonic::Code;
use trellis_link::config::{Config, Limits, NativeApp};
use trellis_wire::proto::*;

use super::http::{header, send};
use super::peer::{TestLink, config, fab_with, native_fab};

fn text(text: &str) -> Scalar {
    Scalar { scalar: Some(scalar::Scalar::String(text.to_owned())) }
}

async fn submit(link: &TestLink, content: bytes::Bytes, settings: &[(&str, &str)]) -> Result<u64, tonic::Status> {
    submit_as(link, "", content, settings).await
}

async fn submit_as(
    link: &TestLink,
    token: &str,
    content: bytes::Bytes,
    settings: &[(&str, &str)],
) -> Result<u64, tonic::Status> {
    let fab = Fab { content, ..Default::default() };
    let override_config: BTreeMap<_, _> = settings.iter().map(|(key, path)| ((*key).to_owned(), text(path))).collect();
    let request = StartRunRequest {
        fab: Some(fab),
        federation: "default".into(),
        override_config: override_config.into_iter().collect(),
        ..Default::default()
    };
    let mut request = tonic::Request::new(request);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    link.control().await.start_run(request).await.map(|response| response.into_inner().run_id.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_paths_outside_the_models_directory_is_refused() {
    let app = NativeApp { program: "/bin/true".into(), args: Vec::new(), models: None };
    let trains = Config { native_app: Some(app), ..config(Limits::default()) };
    let link = TestLink::start(trains).await;
    for setting in ["checkpoint-path", "resume", "initial-model"] {
        for path in ["/etc/passwd", "../admin.token", "a/../../x"] {
            let in_run = submit(&link, native_fab(), &[(setting, path)]).await.unwrap_err();
            let keys = "\n[tool.flwr.app.components]\nserverapp='trellis:native'\nclientapp='trellis:echo'";
            let app = fab_with(&format!("{keys}\n[tool.flwr.app.config]\n{setting} = '{path}'"));
            let in_app = submit(&link, app, &[]).await.unwrap_err();
            for refused in [in_run, in_app] {
                assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
                assert!(refused.message().contains(setting) && refused.message().contains(path), "{refused:?}");
            }
        }
        submit(&link, native_fab(), &[(setting, "1234/round-000001")]).await.expect("one below is accepted");
    }
    link.stop().await;
}

/// Models are accessible to the account whose run made them, and to administrators.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_cannot_use_the_models_of_another_account() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let app = NativeApp { program: "/bin/true".into(), args: Vec::new(), models: None };
    let trains = Config { native_app: Some(app), accounts: true, ..config(Limits::default()) };
    let link = TestLink::start_in(trains, &state).await;
    let admin = std::fs::read_to_string(state.join("admin.token")).unwrap().trim().to_owned();
    let (owner, other) = (new_runner(&link, &admin, "owner").await, new_runner(&link, &admin, "other").await);
    let run = submit_as(&link, &owner, native_fab(), &[]).await.unwrap();
    let mut list = tonic::Request::new(ListRunsRequest { run_id: Some(run), ..Default::default() });
    list.metadata_mut().insert("authorization", format!("Bearer {admin}").parse().unwrap());
    let listed = link.control().await.list_runs(list).await.unwrap().into_inner();
    assert_eq!(listed.run_dict[&run].account_name, "owner", "the name of the account");
    for path in [format!("{run}"), format!("{run}@1"), format!(".//{run}/round-000001")] {
        let settings = [("resume", path.as_str())];
        let refused = submit_as(&link, &other, native_fab(), &settings).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{path}");
        submit_as(&link, &owner, native_fab(), &settings).await.expect("its own");
        submit_as(&link, &admin, native_fab(), &settings).await.expect("an administrator");
    }
    // The models of a run can outlive its row in the database.
    let refused = submit_as(&link, &owner, native_fab(), &[("resume", "1234")]).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    submit_as(&link, &admin, native_fab(), &[("resume", "1234")]).await.expect("an administrator");
    link.stop().await;
}

async fn new_runner(link: &TestLink, admin: &str, name: &str) -> String {
    let headers = [header("authorization", &format!("Bearer {admin}")), header("content-type", "application/json")];
    let body = serde_json::json!({"name": name, "role": "runner"}).to_string();
    let made = send(link.addresses.http, "POST", "/v1/trellis/create-account", &headers, body.as_bytes()).await;
    let made: serde_json::Value = serde_json::from_slice(&made.body).unwrap();
    made["token"].as_str().unwrap().to_owned()
}

/// `trellis run` trains in the process of its user, so the run may name any path.
#[tokio::test(flavor = "multi_thread")]
async fn a_superlink_without_native_runs_does_not_check_paths() {
    let link = TestLink::start(config(Limits::default())).await;
    submit(&link, native_fab(), &[("initial-model", "/home/me/first.npz")]).await.expect("another machine reads it");
    link.stop().await;
}
