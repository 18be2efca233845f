//! `/healthz`, `/readyz` and `/metrics` over HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::context::Context;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Starts the servers; one if both addresses are the same.
pub async fn serve(context: &Arc<Context>) -> io::Result<()> {
    let (health, metrics) = (context.settings.health_address, context.settings.metrics_address);
    let health_routes = || Router::new().route("/healthz", get(alive)).route("/readyz", get(ready));
    let metrics_routes = || Router::new().route("/metrics", get(numbers));
    if let (Some(address), true) = (health, health == metrics) {
        return listen(context, address, health_routes().merge(metrics_routes())).await;
    }
    if let Some(address) = health {
        listen(context, address, health_routes()).await?;
    }
    if let Some(address) = metrics {
        listen(context, address, metrics_routes()).await?;
    }
    Ok(())
}

async fn listen(context: &Arc<Context>, address: SocketAddr, routes: Router<Arc<Context>>) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving health and metrics");
    let routes = routes.with_state(Arc::clone(context));
    context.spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!(%error, "health and metrics are no longer served");
        }
    });
    Ok(())
}

async fn alive() -> &'static str {
    "ok\n"
}

/// All watches have listed their objects. Standby operators are ready too, because they take over at once.
async fn ready(State(context): State<Arc<Context>>) -> impl IntoResponse {
    match context.synced.is_complete() {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the watches have not listed all objects yet\n"),
    }
}

async fn numbers(State(context): State<Arc<Context>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], context.metrics.text(context.queue.waiting()))
}
