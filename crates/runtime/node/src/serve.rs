//! Starts a node from its configuration and stops it. Wiring only.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use trellis_client::NodeKey;
use trellis_client::fleet::{Fleet, FleetOptions, Transport};
use trellis_front::Listener;

use crate::app_log::AppLog;
use crate::apps::AppRunner;
use crate::config::{Config, Gpus, TransportChoice};
use crate::drain::Drain;
use crate::engine::Engine;
use crate::error::Error;
use crate::resources::{self, Confinement, GpuStatus};
use crate::store::Store;
use crate::watch::{self, About, StatusServer, Watch};

/// Runs until `stop`.
pub async fn serve(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let store =
        if config.temporary.is_some() { Store::temporary(&config.state_dir) } else { Store::open(&config.state_dir) }?;
    let key = Arc::new(key(&config)?);
    let fleet = Fleet::new(config.superlink.clone(), key, options(&config));
    let watch = Watch::new(About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        superlink: fleet.endpoint(),
        state_dir: config.state_dir.clone(),
    });
    let (stopping, drain) = (CancellationToken::new(), Drain::default());
    // Hundreds of temporary nodes may share a process, whose user never asks a single one for its status.
    let serving = match config.temporary {
        Some(_) => None,
        None => {
            let status = StatusServer::bind(&config.state_dir.join(watch::SOCKET), config.metrics_address).await?;
            let stopped = stopping.clone().cancelled_owned();
            Some(tokio::spawn(status.serve(watch.clone(), drain.clone(), stopped)))
        }
    };
    if let Some(address) = config.health_address {
        serve_health(address, stopping.clone()).await?;
    }
    let confinement = confinement(&config, &watch).await?;
    let log = AppLog::new(std::env::vars_os(), !config.apps.keeps_logs);
    let apps = AppRunner::start(&config, store.objects().clone(), confinement, &watch, &log).await?;
    let outcome = Engine::new(config, fleet, store, apps, watch, drain, log).run(stop).await;
    stopping.cancel();
    if let Some(serving) = serving {
        let _ = serving.await;
    }
    outcome
}

/// Answers health checks. A running node is healthy, whatever the state of the link.
async fn serve_health(address: SocketAddr, stop: CancellationToken) -> Result<(), Error> {
    let bound = Listener::bind(&address.to_string(), None).await;
    let listener = bound.map_err(|source| Error::Health { address, source })?;
    let (_, service) = tonic_health::server::health_reporter();
    let router = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(async move {
        if let Err(error) = router.serve_with_incoming_shutdown(listener.into_incoming(), stop.cancelled()).await {
            tracing::error!(%error, "the health API failed");
        }
    });
    Ok(())
}

/// Determines the resources of apps; logs the result before any app starts.
async fn confinement(config: &Config, watch: &Watch) -> Result<Confinement, Error> {
    let resources = &config.resources;
    let detected = if resources.gpus == Gpus::Unset { Vec::new() } else { resources::detect().await };
    let environment = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let plan = resources::decide(&resources.gpus, resources.gpu_missing, &detected, environment.as_deref());
    let plan = plan.map_err(Error::Gpu)?;
    plan.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let (confinement, notices) = Confinement::new(resources, plan, config.apps.max_concurrent);
    for notice in notices {
        tracing::warn!("{notice}");
    }
    for event in confinement.events() {
        if event.is_warning() {
            tracing::warn!(event = event.name(), data = event.data());
        } else {
            tracing::info!(event = event.name(), data = event.data());
        }
    }
    watch.gpu(match confinement.gpu_status() {
        GpuStatus::Unset | GpuStatus::Cpu => watch::Gpu::NotAsked,
        GpuStatus::Degraded { reason, .. } => watch::Gpu::Missing { why: reason.clone() },
        GpuStatus::Gpu { gpus } => {
            watch::Gpu::Ready { devices: gpus.iter().map(|gpu| gpu.index.to_string()).collect() }
        }
    });
    Ok(confinement)
}

/// The configured key, or the node's own, which is created at the first start.
fn key(config: &Config) -> Result<NodeKey, Error> {
    let own = config.state_dir.join("node.key");
    let (path, given) = match &config.key {
        Some(path) => (path.as_path(), true),
        None => (own.as_path(), false),
    };
    match NodeKey::read(path)? {
        Some(key) => Ok(key),
        None if given => Err(Error::NoKey { path: path.to_owned() }),
        None if config.temporary.is_some() => {
            Ok(NodeKey::from_bytes(path, NodeKey::draw("trellis supernode")?.as_bytes())?)
        }
        None => {
            let key = NodeKey::generate(path, "trellis supernode")?;
            key.write_public("trellis supernode")?;
            Ok(key)
        }
    }
}

fn options(config: &Config) -> FleetOptions {
    FleetOptions {
        transport: match config.transport {
            TransportChoice::Auto => None,
            TransportChoice::Grpc => Some(Transport::Grpc),
            TransportChoice::Http => Some(Transport::Http),
        },
        keepalive_interval: config.keepalive.interval,
        keepalive_timeout: config.keepalive.timeout,
        bandwidth: config.limits.bandwidth,
        ..FleetOptions::default()
    }
}
