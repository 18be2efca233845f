//! The REST API and the page, in front of a platform: settings, and what all calls share. It turns requests into calls of the
//! platform and its answers into responses; it decides nothing about federations.

mod about;
mod access;
mod audit;
mod call;
mod events;
mod fault;
mod federations;
mod guard;
mod list;
mod logins;
mod logs;
mod models;
mod openapi;
mod page;
mod query;
mod repeat;
mod route;
mod routes;
mod runs;
mod secret;
mod serve;
mod sign_on;
#[cfg(test)]
mod tests;
mod tokens;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::{MethodFilter, get, on};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use trellis_front::Hosts;

use crate::platform::Platform;
use access::Access;

pub use serve::{Bound, ServeError, serve};
use sign_on::SignOn;
pub use sign_on::SignOnSettings;

/// How the API is served.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// Port 0: any that is free.
    pub listen: SocketAddr,
    /// Certificate, key, and the authorities that clients trust; exchanged files are taken up while serving.
    pub tls: Option<trellis_pki::Files>,
    /// Tokens may travel over a network without TLS.
    pub allow_plaintext_network: bool,
    /// Where `admin.token` is, and is made at the first start.
    pub home: PathBuf,
    /// Names and addresses by which the server is called, beside those of this machine itself.
    pub hosts: Vec<trellis_pki::Endpoint>,
    pub limits: Limits,
    pub sign_on: Option<SignOnSettings>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open connections, in total and per address; further ones are closed. Loopback connections
    /// count only for the total.
    pub connections: usize,
    pub connections_per_address: usize,
    /// Requests for logs that wait for more; others are answered at once.
    pub held_requests: usize,
    /// Streams of events; more are refused.
    pub event_streams: usize,
    /// Maximum number of concurrent plans for callers without the role administrator; further ones are refused.
    pub plans: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 1024, connections_per_address: 256, held_requests: 256, event_streams: 256, plans: 4 }
    }
}

/// What all calls share.
struct Api {
    platform: Arc<Platform>,
    access: Access,
    under_way: repeat::UnderWay,
    held: Semaphore,
    streams: Arc<Semaphore>,
    plans: Semaphore,
    hosts: Hosts,
    sign_on: Option<Arc<SignOn>>,
    refusals: audit::Refusals,
    /// Ends whatever waits.
    stop: CancellationToken,
}

impl Api {
    fn new(
        platform: Arc<Platform>,
        hosts: Hosts,
        limits: Limits,
        sign_on: Option<Arc<SignOn>>,
        stop: CancellationToken,
    ) -> Arc<Api> {
        Arc::new(Api {
            access: Access::new(platform.registry().clone()),
            platform,
            under_way: repeat::UnderWay::default(),
            held: Semaphore::new(limits.held_requests),
            streams: Arc::new(Semaphore::new(limits.event_streams)),
            plans: Semaphore::new(limits.plans),
            hosts,
            sign_on,
            refusals: audit::Refusals::default(),
            stop,
        })
    }
}

/// Everything that is served, on one port.
fn router(api: Arc<Api>) -> Router {
    let mut router = Router::new();
    for route in routes::ROUTES {
        let method = MethodFilter::try_from(route.method.clone()).expect("the methods of the table are usual ones");
        let api = Arc::clone(&api);
        let answer = move |request: Request| guard::answer(api, route, request);
        router = router.route(&route.template(), on(method, answer));
    }
    router
        .merge(sign_on::routes(&api))
        .route("/health", get(about::health))
        .fallback(page::serve)
        .method_not_allowed_fallback(guard::wrong_method)
        .layer(from_fn(move |request: Request, next: Next| guard::surround(Arc::clone(&api), request, next)))
}
