//! Who gets in: every route of the table is tried as everybody who must not.

use axum::body::Body;
use http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use trellis_api::Role;
use trellis_clock::now_ms;

use super::desk::{Desk, ask, plain};
use crate::http::route::Route;
use crate::http::routes::ROUTES;

/// The path of a route, with something in place of what is between braces.
fn path(route: &Route) -> String {
    let parts = route.path.split('/').map(|part| if part.starts_with('{') { "lab" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// Each kind of caller has a server of its own, because refusals of one address are limited.
#[tokio::test]
async fn no_route_is_open() {
    let desk = Desk::new().await;
    for route in ROUTES {
        let without = plain(route.method.clone(), &route.template().replace(['{', '}'], ""));
        let told = desk.hear(without.body(Body::empty()).unwrap()).await;
        assert_eq!((told.status, told.word().as_str()), (StatusCode::UNAUTHORIZED, "unknown-caller"), "{}", route.id);
        assert!(told.headers.contains_key(WWW_AUTHENTICATE));
    }
    for token in ["revoked", "expired"] {
        let desk = Desk::new().await;
        let id = desk.issue("revoked", Role::Admin, None).await;
        assert!(desk.api.access.revoke(&id).await.unwrap());
        desk.issue("expired", Role::Admin, Some(now_ms() - 1)).await;
        for route in ROUTES {
            let told = desk.hear(ask(route.method.clone(), &path(route), token).body(Body::empty()).unwrap()).await;
            assert_eq!(told.status, StatusCode::UNAUTHORIZED, "{} with a token that is {token}", route.id);
        }
    }
}

#[tokio::test]
async fn a_role_that_is_too_low_is_refused_and_its_own_is_not() {
    let desk = Desk::new().await;
    for route in ROUTES {
        for role in Role::ALL {
            let request = ask(route.method.clone(), &path(route), role.name()).body(Body::empty()).unwrap();
            let status = desk.send(request).await.status();
            assert_ne!(status, StatusCode::UNAUTHORIZED, "{} as {}", route.id, role.name());
            assert_eq!(status == StatusCode::FORBIDDEN, role < route.role, "{} as {}", route.id, role.name());
        }
    }
}

#[tokio::test]
async fn other_ways_to_show_a_token_are_none() {
    let desk = Desk::new().await;
    for value in ["viewer", "Basic viewer", "Bearer", "Bearer  ", "Bearer viewer viewer", "Bearer \u{e9}"] {
        let request = plain(Method::GET, "/api/v1/me").header(AUTHORIZATION, value).body(Body::empty()).unwrap();
        assert_eq!(desk.send(request).await.status(), StatusCode::UNAUTHORIZED, "{value}");
    }
    let request = plain(Method::GET, "/api/v1/me").header(AUTHORIZATION, "bearer viewer").body(Body::empty()).unwrap();
    assert_eq!(desk.send(request).await.status(), StatusCode::OK, "the scheme has no case");
}

#[tokio::test]
async fn guessing_is_stopped_and_others_are_not() {
    let desk = Desk::new().await;
    let mut last = StatusCode::OK;
    for guess in 0..100 {
        let request = ask(Method::GET, "/me", &format!("guess-{guess}")).body(Body::empty()).unwrap();
        last = desk.send(request).await.status();
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(desk.get("/me").await.status, StatusCode::OK);
}

#[tokio::test]
async fn tokens_are_issued_listed_and_end_at_once() {
    let desk = Desk::new().await;
    let body = r#"{"name": "ci", "role": "runner", "ttl_s": 3600}"#;
    let issued = desk.put(Method::POST, "/tokens", "application/json", body).await;
    assert_eq!(issued.status, StatusCode::CREATED);
    let token = issued.json()["token"].as_str().unwrap().to_owned();
    let id = issued.json()["about"]["id"].as_str().unwrap().to_owned();
    let me = || async { desk.hear(ask(Method::GET, "/me", &token).body(Body::empty()).unwrap()).await };
    assert_eq!(me().await.json()["role"], "runner");

    let listed = desk.hear(ask(Method::GET, "/tokens", "admin").body(Body::empty()).unwrap()).await;
    let listed = listed.json();
    let found = listed.as_array().unwrap().iter().find(|entry| entry["id"] == id.as_str()).expect("it is listed");
    assert_eq!((&found["name"], found.get("token")), (&"ci".into(), None));

    let revoke = || ask(Method::DELETE, &format!("/tokens/{id}"), "admin").body(Body::empty()).unwrap();
    assert_eq!(desk.send(revoke()).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(me().await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(desk.hear(revoke()).await.word(), "not-found");
}

#[tokio::test]
async fn a_token_needs_a_name_and_a_sensible_end() {
    let desk = Desk::new().await;
    let body = r#"{"name": "", "role": "viewer", "ttl_s": -1}"#;
    let told = desk.put(Method::POST, "/tokens", "application/json", body).await;
    assert_eq!((told.status, told.word().as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "invalid"));
    let paths: Vec<_> = told.json()["problems"].as_array().unwrap().iter().map(|one| one["path"].clone()).collect();
    assert_eq!(paths, ["name", "ttl_s"]);
}

#[tokio::test]
async fn names_of_others_are_refused_everywhere() {
    let desk = Desk::new().await;
    for path in ["/api/v1/me", "/health", "/"] {
        let request = http::Request::get(path).header(HOST, "rebound.example").body(Body::empty()).unwrap();
        assert_eq!(desk.hear(request).await.word(), "wrong-host", "{path}");
    }
}

#[tokio::test]
async fn pages_of_elsewhere_may_not_call() {
    let desk = Desk::new().await;
    for (origin, good) in [("http://localhost:80", true), ("http://evil.example", false), ("null", false)] {
        let request = http::Request::get("/health").header(HOST, "localhost:80").header(ORIGIN, origin);
        let told = desk.hear(request.body(Body::empty()).unwrap()).await;
        assert_eq!(told.status == StatusCode::OK, good, "{origin}");
    }
}

#[tokio::test]
async fn refused_tokens_are_audited_within_a_limit() {
    let desk = Desk::new().await;
    let expired = desk.issue("expired", Role::Viewer, Some(now_ms() - 1)).await;
    for token in ["expired", "unknown"] {
        desk.send(ask(Method::GET, "/me", token).body(Body::empty()).unwrap()).await;
    }
    let entries = desk.hear(ask(Method::GET, "/audit?limit=2", "admin").body(Body::empty()).unwrap()).await.json();
    assert_eq!((&entries[0]["actor"], &entries[0]["event"]), (&expired.as_str().into(), &"call-refused".into()));
    assert!(entries[0]["detail"].as_str().unwrap().ends_with("expired token"), "{entries}");
    assert!(entries[1]["detail"].as_str().unwrap().ends_with("unknown or revoked token"), "{entries}");
}

#[tokio::test]
async fn a_server_without_single_sign_on_has_none() {
    let desk = Desk::new().await;
    for (method, path) in
        [(Method::GET, ""), (Method::GET, "/start"), (Method::POST, "/token"), (Method::DELETE, "/token")]
    {
        let request = plain(method, &format!("/api/v1/sign-on{path}")).body(Body::empty()).unwrap();
        assert_eq!(desk.hear(request).await.word(), "not-found", "{path}");
    }
}
