//! What is wrong with a request is said as a problem document, whatever it is.

use axum::body::Body;
use http::header::{ALLOW, CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{Method, StatusCode};

use super::desk::{Desk, ask, plain};

#[tokio::test]
async fn everybody_hears_that_it_serves() {
    let desk = Desk::new().await;
    let told = desk.hear(plain(Method::GET, "/health").body(Body::empty()).unwrap()).await;
    assert_eq!((told.status, told.json()["status"].as_str()), (StatusCode::OK, Some("serving")));
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_below_the_api_only() {
    let desk = Desk::new().await;
    for path in ["/nonsense", "/federations/", "/me/", "", "/federations/lab/nonsense"] {
        assert_eq!(desk.get(path).await.word(), "not-found", "{path}");
    }
    let page = desk.hear(plain(Method::GET, "/federations/lab").body(Body::empty()).unwrap()).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.headers[CONTENT_SECURITY_POLICY].to_str().unwrap().contains("script-src 'self'"));
}

#[tokio::test]
async fn a_wrong_method_hears_of_the_right_ones() {
    let desk = Desk::new().await;
    let told = desk.hear(ask(Method::PATCH, "/federations/lab", "admin").body(Body::empty()).unwrap()).await;
    assert_eq!((told.status, told.word().as_str()), (StatusCode::METHOD_NOT_ALLOWED, "method"));
    let allowed = told.headers[ALLOW].to_str().unwrap();
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        assert!(allowed.contains(method), "{allowed}");
    }
    let options = desk.hear(plain(Method::OPTIONS, "/api/v1/me").body(Body::empty()).unwrap()).await;
    assert_eq!((options.status, options.headers[ALLOW].to_str().unwrap()), (StatusCode::NO_CONTENT, "GET,HEAD"));
    let head = desk.hear(ask(Method::HEAD, "/me", "viewer").body(Body::empty()).unwrap()).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
}

#[tokio::test]
async fn bodies_are_of_the_right_type_and_size_and_can_be_read() {
    let desk = Desk::new().await;
    let post = |media_type: &'static str, body: String| desk.put(Method::POST, "/tokens", media_type, body);
    assert_eq!(post("text/plain", "{}".to_owned()).await.word(), "media-type");
    assert_eq!(post("application/json", "{".to_owned()).await.word(), "malformed");
    let strange = post("application/json; charset=utf-8", r#"{"name": "a", "role": "king"}"#.to_owned()).await;
    assert_eq!((strange.word().as_str(), strange.json()["problems"][0]["line"].as_u64()), ("invalid", Some(1)));
    let large = format!("{{\"name\": \"{}\"}}", "a".repeat(70_000));
    assert_eq!(post("application/json", large).await.word(), "too-large");
    let document = desk.put(Method::POST, "/plan", "application/yaml", vec![0xff, 0xfe]).await;
    assert_eq!(document.word(), "malformed");
    let document = desk.put(Method::POST, "/plan", "application/yaml", "#".repeat((1 << 20) + 1)).await;
    assert_eq!(document.word(), "too-large");
}

#[tokio::test]
async fn addresses_are_checked() {
    let desk = Desk::new().await;
    for path in ["/federations?limit=0", "/federations?limit=1001", "/federations?cursor=x", "/federations?page=2"] {
        assert_eq!(desk.get(path).await.word(), "malformed", "{path}");
    }
    assert_eq!(desk.get("/federations/%ff").await.word(), "malformed");
    assert_eq!(desk.get("/federations/%00%2f..%2f").await.word(), "not-found");
    let key = ask(Method::POST, "/federations/lab/runs", "runner").header("Idempotency-Key", "two words");
    assert_eq!(desk.hear(key.body(Body::empty()).unwrap()).await.word(), "malformed");
}

#[tokio::test]
async fn answers_are_not_kept_guessed_at_or_framed() {
    let desk = Desk::new().await;
    let told = desk.get("/me").await;
    assert_eq!(told.headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(told.headers["cache-control"], "no-store");
    assert_eq!(told.headers[CONTENT_SECURITY_POLICY], "default-src 'none'; frame-ancestors 'none'");
    assert!(!told.headers.contains_key("access-control-allow-origin"));
}
