//! Service addresses and a name server for pods of a real kubelet.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kube::Client;
use tokio::net::UdpSocket;

use super::dns::{self, Table};
use super::names;
use super::proxy::Proxy;
use super::world::World;

const SETTLE: Duration = Duration::from_millis(30);
const LARGEST_QUERY_BYTES: usize = 1500;

pub(crate) struct Network {
    world: World,
    api_server: SocketAddr,
    socket: UdpSocket,
    table: Arc<RwLock<Table>>,
}

impl Network {
    pub async fn start(client: &Client, api_server: SocketAddr, name_server: SocketAddr) -> Result<Network, String> {
        let socket =
            UdpSocket::bind(name_server).await.map_err(|why| format!("no name server at {name_server}: {why}"))?;
        Ok(Network { world: World::watch(client).await, api_server, socket, table: Arc::default() })
    }

    /// Never returns.
    pub async fn serve(&self) {
        tokio::join!(self.follow(), self.answer());
    }

    async fn follow(&self) {
        let (mut proxy, mut changes) = (Proxy::default(), self.world.changes());
        loop {
            let (services, slices) = (self.world.services.state(), self.world.slices.state());
            *self.table.write().unwrap_or_else(PoisonError::into_inner) =
                dns::table(&names::hosts("", &services, &slices));
            proxy.follow(names::routes(&services, &slices, self.api_server)).await;
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
            tokio::time::sleep(SETTLE).await;
            changes.mark_unchanged();
        }
    }

    async fn answer(&self) {
        let mut query = [0; LARGEST_QUERY_BYTES];
        loop {
            let Ok((length, from)) = self.socket.recv_from(&mut query).await else { continue };
            let answer = dns::answer(&query[..length], &self.table.read().unwrap_or_else(PoisonError::into_inner));
            if let Some(answer) = answer {
                // Clients repeat lost queries.
                let _ = self.socket.send_to(&answer, from).await;
            }
        }
    }
}
