//! Masked documents and limits of plans for callers without the role administrator.

use axum::body::Body;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Method, StatusCode};

use super::desk::{Desk, Told, ask};
use crate::http::Limits;

const YAML: &str = "application/yaml";

fn document(env: &str, nodes: u32) -> String {
    format!(
        "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: lab}}\nspec:\n  coordinator: {{env: {env}}}\n  pools:\n  \
         - {{name: edge, count: {nodes}, env: {env}}}\n"
    )
}

async fn plan(desk: &Desk, role: &str, document: &str) -> Told {
    let request = ask(Method::POST, "/plan", role).header(CONTENT_TYPE, YAML);
    desk.hear(request.body(Body::from(document.to_owned())).unwrap()).await
}

async fn get(desk: &Desk, role: &str, path: &str) -> Told {
    desk.hear(ask(Method::GET, path, role).body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn values_of_env_are_for_administrators() {
    let desk = Desk::new().await;
    let applied = desk.put(Method::PUT, "/federations/lab", YAML, document("{TOKEN: hush, LEVEL: high}", 1)).await;
    assert_eq!(applied.status, StatusCode::CREATED, "{:?}", applied.body);
    for role in ["viewer", "runner"] {
        let guess = document("{LEVEL: high}", 1);
        for told in [
            get(&desk, role, "/federations/lab").await,
            get(&desk, role, "/federations/lab/plan").await,
            plan(&desk, role, &guess).await,
        ] {
            assert_eq!(told.status, StatusCode::OK, "{:?}", told.body);
            assert!(!String::from_utf8_lossy(&told.body).contains("hush"), "{:?}", told.body);
        }
        let masked = get(&desk, role, "/federations/lab").await.json()["document"].as_str().unwrap().to_owned();
        assert!(masked.contains("TOKEN: \"********\"") || masked.contains("TOKEN: '********'"), "{masked}");
        // The masked document can be planned, and the plan has no changes.
        let same = plan(&desk, role, &masked).await;
        assert_eq!(same.json()["diff"], "", "{:?}", same.body);
    }
    let shown = get(&desk, "admin", "/federations/lab").await.json()["document"].as_str().unwrap().to_owned();
    assert!(shown.contains("TOKEN: hush"), "{shown}");
}

#[tokio::test]
async fn a_document_with_masks_keeps_the_values_that_are_applied() {
    let desk = Desk::new().await;
    desk.put(Method::PUT, "/federations/lab", YAML, document("{TOKEN: hush, LEVEL: high}", 1)).await;
    let masked = get(&desk, "viewer", "/federations/lab").await.json()["document"].as_str().unwrap().to_owned();
    let edited = masked.replace("count: 1", "count: 3");
    assert_ne!(edited, masked);
    let changed = desk.put(Method::PUT, "/federations/lab", YAML, edited).await;
    assert_eq!(changed.status, StatusCode::OK, "{:?}", changed.body);
    let document = changed.json()["document"].as_str().unwrap().to_owned();
    assert!(document.contains("TOKEN: hush") && document.contains("count: 3"), "{document}");
    assert!(!document.contains("****"), "{document}");

    let renamed = masked.replace("TOKEN:", "OTHER:");
    let refused = desk.put(Method::PUT, "/federations/lab", YAML, renamed).await;
    assert_eq!((refused.status, refused.word().as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "invalid"));
    assert!(String::from_utf8_lossy(&refused.body).contains("spec.coordinator.env.OTHER"), "{:?}", refused.body);
}

#[tokio::test]
async fn large_plans_are_for_administrators() {
    let desk = Desk::new().await;
    let large = document("{}", 100_000);
    for role in ["viewer", "runner"] {
        let began = std::time::Instant::now();
        let told = plan(&desk, role, &large).await;
        assert_eq!((told.status, told.word().as_str()), (StatusCode::FORBIDDEN, "forbidden"));
        assert!(String::from_utf8_lossy(&told.body).contains("5000 nodes"), "{:?}", told.body);
        assert!(began.elapsed().as_secs() < 1);
        let told = plan(&desk, role, &document("{}", 5_000)).await;
        assert_eq!(told.status, StatusCode::OK, "{:?}", told.body);
    }
}

#[tokio::test]
async fn plans_at_once_are_limited_and_not_for_administrators() {
    let desk = Desk::with(Limits { plans: 0, ..Limits::default() }).await;
    let told = plan(&desk, "viewer", &document("{}", 1)).await;
    assert_eq!((told.status, told.word().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "busy"));
    assert!(told.headers.contains_key(RETRY_AFTER));
    assert_eq!(plan(&desk, "admin", &document("{}", 1)).await.status, StatusCode::OK);
}
