//! Documents, revisions and pages, over simulated sites.

use axum::body::Body;
use http::header::{CONTENT_TYPE, ETAG, LOCATION};
use http::{Method, StatusCode};
use serde_json::Value;

use super::desk::{Desk, Told, ask};

const YAML: &str = "application/yaml";

fn document(name: &str, nodes: u32) -> String {
    format!("apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: {name}}}\nspec:\n  nodes: {nodes}\n")
}

async fn put_if(desk: &Desk, header: &str, value: &str, document: String) -> Told {
    let request = ask(Method::PUT, "/federations/lab", "admin").header(CONTENT_TYPE, YAML).header(header, value);
    desk.hear(request.body(Body::from(document)).unwrap()).await
}

#[tokio::test]
async fn a_document_is_kept_changed_and_taken_away() {
    let desk = Desk::new().await;
    let put = |nodes| desk.put(Method::PUT, "/federations/lab", YAML, document("lab", nodes));
    let created = put(2).await;
    assert_eq!(created.status, StatusCode::CREATED, "{:?}", created.body);
    assert_eq!(created.headers[LOCATION], "/api/v1/federations/lab");
    let again = put(2).await;
    assert_eq!((again.status, &again.headers[ETAG]), (StatusCode::OK, &created.headers[ETAG]));
    let changed = put(3).await;
    assert_ne!(changed.headers[ETAG], created.headers[ETAG]);
    assert_eq!(desk.get("/federations/lab").await.headers[ETAG], changed.headers[ETAG]);
    let scaled = desk.put(Method::PUT, "/federations/lab/pools/nodes", "application/json", r#"{"count": 5}"#).await;
    assert_eq!(scaled.status, StatusCode::OK, "{:?}", scaled.body);
    assert!(scaled.json()["document"].as_str().unwrap().contains("count: 5"));
    let nowhere = desk.put(Method::PUT, "/federations/lab/pools/none", "application/json", r#"{"count": 5}"#).await;
    assert_eq!(nowhere.word(), "not-found");

    for _ in 0..2 {
        let delete = ask(Method::DELETE, "/federations/lab", "admin").body(Body::empty()).unwrap();
        let told = desk.hear(delete).await;
        assert!(told.status == StatusCode::ACCEPTED || told.word() == "not-found", "{:?}", told.body);
    }
    let never = ask(Method::DELETE, "/federations/never", "admin").body(Body::empty()).unwrap();
    assert_eq!(desk.hear(never).await.word(), "not-found");
}

#[tokio::test]
async fn a_node_is_drained_in_the_document() {
    let desk = Desk::new().await;
    desk.put(Method::PUT, "/federations/lab", YAML, document("lab", 2)).await;
    let change = async |node: &str, drained: bool| {
        let path = format!("/federations/lab/nodes/{node}");
        desk.put(Method::PUT, &path, "application/json", format!("{{\"drained\": {drained}}}")).await
    };
    let mut told = change("nodes-1", true).await;
    while told.status == StatusCode::NOT_FOUND {
        tokio::task::yield_now().await;
        told = change("nodes-1", true).await;
    }
    assert_eq!(told.status, StatusCode::OK, "{:?}", told.body);
    assert!(told.json()["document"].as_str().unwrap().contains("drained:\n    - 1\n"), "{}", told.json()["document"]);
    let told = change("nodes-1", false).await;
    assert!(!told.json()["document"].as_str().unwrap().contains("drained"));
    assert_eq!(change("nodes-7", true).await.word(), "not-found");
    assert_eq!(change("coordinator", true).await.word(), "not-found");
    let flower = document("lab", 2) + "  runtime: flower:1.39.0\n";
    assert_eq!(desk.put(Method::PUT, "/federations/lab", YAML, flower).await.status, StatusCode::OK);
    assert_eq!(change("nodes-1", true).await.word(), "invalid", "Flower's own SuperNodes cannot be told");
}

#[tokio::test]
async fn whoever_read_an_old_revision_changes_nothing() {
    let desk = Desk::new().await;
    assert_eq!(put_if(&desk, "If-Match", "*", "null".to_owned()).await.word(), "invalid");
    let nothing = put_if(&desk, "If-Match", "*", document("lab", 1)).await;
    assert_eq!((nothing.status, nothing.word().as_str()), (StatusCode::PRECONDITION_FAILED, "changed"));
    let created = put_if(&desk, "If-None-Match", "*", document("lab", 1)).await;
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(put_if(&desk, "If-None-Match", "*", document("lab", 2)).await.word(), "changed");

    let tag = created.headers[ETAG].to_str().unwrap();
    let changed = put_if(&desk, "If-Match", tag, document("lab", 2)).await;
    assert_eq!(changed.status, StatusCode::OK);
    assert_eq!(put_if(&desk, "If-Match", tag, document("lab", 3)).await.word(), "changed");
    assert_eq!(put_if(&desk, "If-Match", "*", document("lab", 3)).await.status, StatusCode::OK);
    assert_eq!(put_if(&desk, "If-Match", "W/\"1\"", document("lab", 3)).await.word(), "malformed");
}

#[tokio::test]
async fn a_plan_keeps_nothing() {
    let desk = Desk::new().await;
    let dry = desk.put(Method::PUT, "/federations/lab?dry_run=true", YAML, document("lab", 2)).await;
    assert_eq!((dry.status, dry.json()["exists"].as_bool()), (StatusCode::OK, Some(false)));
    let plan = desk.put(Method::POST, "/plan", YAML, document("lab", 2)).await;
    assert!(!plan.json()["actions"].as_array().unwrap().is_empty());
    let other = desk.put(Method::PUT, "/federations/lab?dry_run=true", YAML, document("other", 2)).await;
    assert_eq!((other.word().as_str(), &other.json()["problems"][0]["path"]), ("invalid", &"metadata.name".into()));
    assert_eq!(desk.get("/federations/lab").await.word(), "not-found");
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_document_has_its_place() {
    let desk = Desk::new().await;
    let bad = document("lab", 2) + "  nodez: 2\n  pool: []\n";
    let told = desk.put(Method::PUT, "/federations/lab", YAML, bad).await;
    assert_eq!(told.word(), "invalid");
    let problems = told.json()["problems"].clone();
    assert_eq!(problems.as_array().unwrap().len(), 2, "{problems}");
    assert_eq!((&problems[0]["line"], &problems[1]["line"]), (&Value::from(6), &Value::from(7)));
    let json =
        r#"{"apiVersion": "trellis.dev/v1", "kind": "Federation", "metadata": {"name": "lab"}, "spec": {"nodes": 1}}"#;
    let told = desk.put(Method::POST, "/plan", "application/json", json).await;
    assert_eq!(told.status, StatusCode::OK, "JSON is as good: {:?}", told.body);
}

#[tokio::test]
async fn lists_come_in_pages_to_the_end() {
    let desk = Desk::new().await;
    for name in ["a", "b", "c"] {
        let told = desk.put(Method::PUT, &format!("/federations/{name}"), YAML, document(name, 1)).await;
        assert_eq!(told.status, StatusCode::CREATED);
    }
    let (mut names, mut path) = (Vec::new(), "/federations?limit=2".to_owned());
    loop {
        let page = desk.get(&path).await.json();
        names.extend(page["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/federations?limit=2&cursor={next}");
    }
    assert_eq!(names, ["a", "b", "c"]);
    for nodes in ["nodes", "runs"] {
        assert_eq!(desk.get(&format!("/federations/none/{nodes}")).await.word(), "not-found");
    }
}
