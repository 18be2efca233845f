//! Forwards connections to service addresses to a pod.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::command::run;
use super::names::Routes;

#[derive(Default)]
pub(super) struct Proxy {
    routes: Arc<RwLock<Routes>>,
    listening: BTreeMap<SocketAddr, tokio::task::AbortHandle>,
    listeners: JoinSet<()>,
}

impl Proxy {
    pub async fn follow(&mut self, routes: Routes) {
        let gone: Vec<SocketAddr> =
            self.listening.keys().filter(|address| !routes.contains_key(address)).copied().collect();
        for address in gone {
            if let Some(listener) = self.listening.remove(&address) {
                listener.abort();
            }
        }
        let new: Vec<SocketAddr> =
            routes.keys().filter(|address| !self.listening.contains_key(address)).copied().collect();
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = routes;
        for address in new {
            match self.listen(address).await {
                Ok(listener) => drop(self.listening.insert(address, listener)),
                Err(error) => tracing::warn!(%address, %error, "an address of a service is not served"),
            }
        }
    }

    async fn listen(&mut self, address: SocketAddr) -> Result<tokio::task::AbortHandle, String> {
        run("ip", &["address", "replace", &format!("{}/32", address.ip()), "dev", "lo"]).await?;
        let listener = TcpListener::bind(address).await.map_err(|why| why.to_string())?;
        Ok(self.listeners.spawn(accept(listener, address, Arc::clone(&self.routes))))
    }
}

async fn accept(listener: TcpListener, address: SocketAddr, routes: Arc<RwLock<Routes>>) {
    let turn = AtomicUsize::new(0);
    let mut connections = JoinSet::new();
    loop {
        let Ok((mut inner, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let chosen = {
            let routes = routes.read().unwrap_or_else(PoisonError::into_inner);
            let behind = routes.get(&address).map(Vec::as_slice).unwrap_or_default();
            (!behind.is_empty()).then(|| behind[turn.fetch_add(1, Ordering::Relaxed) % behind.len()])
        };
        connections.spawn(async move {
            // No endpoint: the caller sees a closed connection and retries.
            let Some(chosen) = chosen else { return };
            let Ok(mut outer) = TcpStream::connect(chosen).await else { return };
            let _ = (inner.set_nodelay(true), outer.set_nodelay(true));
            let _ = copy_bidirectional(&mut inner, &mut outer).await;
        });
    }
}
