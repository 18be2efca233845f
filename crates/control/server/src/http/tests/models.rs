//! Models of runs: listed for those who may look, downloaded by those who may run, and nothing else is read.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use axum::body::Body;
use http::{Method, StatusCode};
use trellis_models::{Checkpoint, Manifest, ModelStore};
use trellis_strategy::{Layout, Model, State};

use super::desk::{Desk, ask};

const DOCUMENT: &str = "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: lab}\nspec: {nodes: 1}\n";

async fn desk() -> (Desk, ModelStore) {
    let desk = Desk::new().await;
    let told = desk.put(Method::PUT, "/federations/lab", "application/yaml", DOCUMENT).await;
    assert_eq!(told.status, StatusCode::CREATED);
    let store = ModelStore::new(desk.home().join("models/lab"));
    for round in [1, 2] {
        let manifest = Manifest {
            run_id: "17".to_owned(),
            round,
            rounds_planned: 2,
            is_final: round == 2,
            strategy: "FedAvg".to_owned(),
            saved_at: round as f64,
            ..Manifest::default()
        };
        let model = Model { layout: Arc::new(Layout(Vec::new())), arrays: Vec::new() };
        store.save(&Checkpoint { manifest, model, state: State::default() }).expect("saved");
    }
    (desk, store)
}

#[tokio::test]
async fn models_are_listed_and_downloaded() {
    let (desk, store) = desk().await;
    let listed = desk.get("/federations/lab/models").await.json();
    let items = listed["items"].as_array().expect("a list");
    assert_eq!(items.len(), 2);
    let path = "17/round-000002/model.safetensors";
    assert_eq!(
        (&items[0]["path"], &items[0]["final"], &items[0]["run"]),
        (&path.into(), &true.into(), &"17".into()),
        "the newest first"
    );
    let bytes = std::fs::read(store.root().join(path)).expect("a file");
    assert_eq!(items[0]["bytes"], bytes.len());
    let download = |token: &'static str, path: &str| {
        ask(Method::GET, &format!("/federations/lab/models/{path}"), token).body(Body::empty()).expect("a request")
    };
    let told = desk.hear(download("runner", path)).await;
    assert_eq!((told.status, told.body.as_ref()), (StatusCode::OK, bytes.as_slice()));
    assert_eq!(told.headers["content-length"], bytes.len().to_string());
    assert_eq!(desk.hear(download("viewer", path)).await.status, StatusCode::FORBIDDEN);
    assert_eq!(desk.get("/federations/none/models").await.word(), "not-found");
}

#[tokio::test]
async fn nothing_outside_the_models_is_read() {
    let (desk, store) = desk().await;
    std::fs::write(desk.home().join("secret"), "hush").expect("written");
    symlink(desk.home().join("secret"), store.root().join("17/round-000002/link")).expect("a link");
    std::fs::create_dir_all(store.root().join("18/round-000001")).expect("a directory");
    symlink(desk.home().join("secret"), store.root().join("18/round-000001/model.safetensors")).expect("a link");
    for path in [
        "17/round-000002/manifest.json",
        "17/round-000002/link",
        "18/round-000001/model.safetensors",
        "../../secret",
        "17/..%2f..%2f..%2f/secret",
        "..%2f..%2fsecret/round-000002/model.safetensors",
        "%2e%2e/%2e%2e/secret",
        "17/round-000009/model.safetensors",
    ] {
        let request = ask(Method::GET, &format!("/federations/lab/models/{path}"), "admin").body(Body::empty());
        let told = desk.hear(request.expect("a request")).await;
        assert!(
            told.status.is_client_error() && !told.body.windows(4).any(|it| it == b"hush"),
            "{path}: {}",
            told.status
        );
    }
    assert_eq!(desk.get("/federations/lab/models").await.json()["items"].as_array().map(Vec::len), Some(2));
}
