//! Probes our SuperNode through its local socket.

use std::io;
use std::path::Path;

use trellis_client::NearbyNode;

use crate::readiness::Observed;

pub async fn ask(socket: &Path) -> io::Result<Observed> {
    let node = NearbyNode::ask(socket).await?;
    Ok(Observed {
        serving: node.connected,
        busy: Some(node.busy),
        draining: node.draining,
        node_id: node.node_id,
        ..Observed::default()
    })
}
