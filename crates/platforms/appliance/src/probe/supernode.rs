//! A SuperNode of ours, as its own socket tells.

use std::io;
use std::path::Path;

use trellis_client::NearbyNode;

use crate::readiness::Seen;

pub async fn ask(socket: &Path) -> io::Result<Seen> {
    let node = NearbyNode::ask(socket).await?;
    Ok(Seen {
        serving: node.connected,
        busy: Some(node.busy),
        draining: node.draining,
        node_id: node.node_id,
        ..Seen::default()
    })
}
