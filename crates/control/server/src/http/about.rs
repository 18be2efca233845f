//! Calls about the server itself: who the caller is, what can be run, whether it serves.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use trellis_api::Me;

use super::Api;
use super::call::{Answer, Call, JSON, ok, typed};
use super::openapi;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub async fn me(_api: Arc<Api>, call: Call) -> Answer {
    ok(&Me { name: call.caller.name, role: call.caller.role, version: VERSION.to_owned() })
}

pub async fn apps(api: Arc<Api>, _call: Call) -> Answer {
    ok(&api.platform.apps())
}

pub async fn openapi(_api: Arc<Api>, _call: Call) -> Answer {
    Ok(typed(StatusCode::OK, JSON, Body::from(openapi::text())))
}

/// Open to all, and outside of the API: for those who start the server or watch over it.
pub async fn health() -> Response {
    let told = serde_json::json!({"status": "serving", "version": VERSION});
    typed(StatusCode::OK, JSON, Body::from(told.to_string()))
}
