//! The port: bound first, so that its address is known, then served until the stop. What is answered when that comes has a while
//! to finish; what waits ends at once.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trellis_client::TrustError;
use trellis_front::listen::{Connection, Keepalive, Listener};
use trellis_front::{Hosts, TlsError, TlsSettings};

use super::guard::Remote;
use super::secret::{self, AdminTokenError};
use super::sign_on::SignOn;
use super::{Api, ServeSettings, router};
use crate::platform::Platform;

/// The headers of a request must be here after this time, also those of the next on a connection that is kept.
const HEADER_LIMIT: Duration = Duration::from_secs(60);
/// Headers of one request, all together.
const HEADER_BYTES: u32 = 32 << 10;
/// Requests that one connection may have open at once, over HTTP/2.
const REQUESTS_PER_CONNECTION: u32 = 64;
/// How long answers that are under way may take after the stop.
const GRACE: Duration = Duration::from_secs(10);
/// How often the files of the certificate are looked at.
const TLS_LOOK: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{0} can be reached from a network, and tokens would travel in plain text: serve with TLS, or allow it")]
    Plaintext(IpAddr),
    #[error("{0} cannot be listened on")]
    Bind(SocketAddr, #[source] io::Error),
    #[error("TLS cannot be served")]
    Tls(#[from] TlsError),
    #[error("the identity provider cannot be trusted")]
    SignOn(#[from] TrustError),
    #[error(transparent)]
    AdminToken(#[from] AdminTokenError),
}

/// A port that is bound and not yet served: connections wait.
pub struct Bound {
    settings: ServeSettings,
    listener: Listener,
    tls: Option<TlsSettings>,
    address: SocketAddr,
}

impl Bound {
    pub async fn bind(settings: ServeSettings) -> Result<Bound, ServeError> {
        let listen = settings.listen;
        if settings.tls.is_none() && !settings.allow_plaintext_network && !listen.ip().to_canonical().is_loopback() {
            return Err(ServeError::Plaintext(listen.ip()));
        }
        let load = |files| TlsSettings::load(files, settings.hosts.clone(), None);
        let tls = settings.tls.clone().map(load).transpose()?;
        let failed = |error| ServeError::Bind(listen, error);
        let listener = Listener::bind(&listen.to_string(), tls.clone()).await.map_err(failed)?;
        let listener = listener.with_connections_per_address(settings.limits.connections_per_address);
        let address = listener.address().map_err(failed)?;
        Ok(Bound { settings, listener, tls, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where programs on this machine reach it.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", trellis_front::listen::local(self.address))
    }

    /// Sees to it that there is an administrator's token. For who tells others of this server before it serves.
    pub async fn provide_admin(&self, platform: &Platform) -> Result<(), ServeError> {
        Ok(secret::provide_admin(&self.settings.home, platform.registry()).await?)
    }

    /// Serves until `shutdown` is ready and what was under way is answered.
    pub async fn serve(self, platform: Arc<Platform>, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        self.provide_admin(&platform).await?;
        let stop = CancellationToken::new();
        let hosts = Hosts::new(self.settings.hosts.clone(), self.tls.clone());
        let url = self.url();
        let ServeSettings { limits, sign_on, .. } = self.settings;
        let sign_on = sign_on.map(|settings| SignOn::new(settings, url)).transpose()?;
        let router = router(Api::new(platform, hosts, limits, sign_on, stop.clone()));
        let renewal = self.tls.map(|tls| tokio::spawn(stop.clone().run_until_cancelled_owned(keep_fresh(tls))));
        let connections = Connections {
            router,
            places: Arc::new(Semaphore::new(limits.connections)),
            stop: stop.clone(),
            tasks: TaskTracker::new(),
        };
        let accepting = connections.clone();
        self.listener.accept(Keepalive::default(), move |connection| accepting.take(connection), shutdown).await;
        stop.cancel();
        connections.tasks.close();
        if tokio::time::timeout(GRACE, connections.tasks.wait()).await.is_err() {
            tracing::warn!("answers that were still under way after {} s are given up", GRACE.as_secs());
        }
        if let Some(renewal) = renewal {
            let _ = renewal.await;
        }
        Ok(())
    }
}

/// Binds and serves; for who need not know the address.
pub async fn serve(
    platform: Arc<Platform>,
    settings: ServeSettings,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    Bound::bind(settings).await?.serve(platform, shutdown).await
}

async fn keep_fresh(tls: TlsSettings) {
    loop {
        tokio::time::sleep(TLS_LOOK).await;
        let looking = tls.clone();
        let _ = tokio::task::spawn_blocking(move || looking.reload_if_changed()).await;
    }
}

#[derive(Clone)]
struct Connections {
    router: Router,
    places: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Connections {
    fn take(&self, connection: Connection) {
        let remote = connection.remote;
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            tracing::warn!(%remote, "too many connections: this one is closed");
            return;
        };
        let (router, stop) = (self.router.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            // Beyond the grace nobody waits for it any more.
            let limit = async {
                stop.cancelled().await;
                tokio::time::sleep(GRACE).await;
            };
            tokio::select! {
                () = converse(router, connection, stop.clone()) => {}
                () = limit => {}
            }
            drop(place);
        });
    }
}

async fn converse(router: Router, connection: Connection, stop: CancellationToken) {
    let remote = connection.remote;
    let service = TowerToHyperService::new(router);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Remote(remote));
        let answer = service.call(request.map(Body::new));
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .max_buf_size(HEADER_BYTES as usize)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(REQUESTS_PER_CONNECTION)
        .max_header_list_size(HEADER_BYTES)
        .keep_alive_interval(Some(Keepalive::default().interval))
        .keep_alive_timeout(Keepalive::default().timeout);
    let serving = builder.serve_connection(TokioIo::new(connection), answer);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%remote, %error, "connection ended");
    }
}
