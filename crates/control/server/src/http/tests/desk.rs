//! A server without a port, a token for each role, and what came back.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::request::Builder;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use trellis_api::{PROBLEM_JSON, Role};
use trellis_clock::now_ms;
use trellis_digest::sha256;
use trellis_front::Hosts;
use trellis_registry::NewToken;

use crate::http::route::BASE;
use crate::http::{Api, Limits, router};
use crate::platform::{Platform, PlatformSettings, SimulatedSites, SiteDrivers};

/// Of what happens at sites, in times of its usual one.
const SPEED: u32 = 1000;

pub struct Desk {
    home: tempfile::TempDir,
    pub api: Arc<Api>,
    pub stop: CancellationToken,
    service: TowerToHyperService<axum::Router>,
}

pub struct Told {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Desk {
    pub async fn new() -> Desk {
        Desk::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Desk {
        let home = tempfile::tempdir().expect("a directory");
        let platform = platform(home.path()).await;
        let stop = CancellationToken::new();
        let hosts = Hosts::default();
        let api = Api::new(platform, hosts, limits, None, stop.clone());
        let desk = Desk { home, service: TowerToHyperService::new(router(Arc::clone(&api))), api, stop };
        for role in Role::ALL {
            desk.issue(role.name(), role, None).await;
        }
        desk
    }

    pub fn home(&self) -> &std::path::Path {
        self.home.path()
    }

    /// Makes the word itself a token.
    pub async fn issue(&self, word: &str, role: Role, expires_ms: Option<u64>) -> String {
        let sha256 = sha256(word.as_bytes());
        let new = NewToken { name: word.to_owned(), role: role.name().to_owned(), sha256, expires_ms };
        self.api.platform.registry().issue_token(&new, now_ms()).await.expect("issued").id
    }

    pub async fn send(&self, request: Request<Body>) -> Response {
        self.service.call(request).await.expect("an answer")
    }

    pub async fn hear(&self, request: Request<Body>) -> Told {
        let (parts, body) = self.send(request).await.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        Told { status: parts.status, headers: parts.headers, body }
    }

    pub async fn get(&self, path: &str) -> Told {
        self.hear(ask(Method::GET, path, "viewer").body(Body::empty()).expect("a request")).await
    }

    /// As the administrator, with a body of a type.
    pub async fn put(&self, method: Method, path: &str, media_type: &str, body: impl Into<Body>) -> Told {
        let request = ask(method, path, "admin").header(CONTENT_TYPE, media_type).body(body.into());
        self.hear(request.expect("a request")).await
    }
}

pub async fn platform(home: &std::path::Path) -> Arc<Platform> {
    let usual = PlatformSettings::new(home.to_owned(), "/nonexistent".into());
    let sites = SiteDrivers::Simulated(SimulatedSites::new(SPEED));
    Platform::start(PlatformSettings { sites, exclusive: true, ..usual }).await.expect("a platform")
}

/// A request to a path below the base, with a token.
pub fn ask(method: Method, path: &str, token: &str) -> Builder {
    plain(method, &format!("{BASE}{path}")).header(AUTHORIZATION, format!("Bearer {token}"))
}

pub fn plain(method: Method, path: &str) -> Builder {
    Request::builder().method(method).uri(path).header(HOST, "localhost:80")
}

impl Told {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// The word of a problem document.
    #[track_caller]
    pub fn word(&self) -> String {
        assert_eq!(self.headers[CONTENT_TYPE], PROBLEM_JSON, "{:?}", self.body);
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        problem["type"].as_str().unwrap_or_default().trim_start_matches("urn:trellis:").to_owned()
    }
}
