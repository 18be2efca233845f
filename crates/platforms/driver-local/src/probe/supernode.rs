//! A SuperNode of ours, as its own socket tells.

use std::io;
use std::path::Path;

use trellis_client::NearbyNode;
use trellis_plan::Millis;

use super::Report;

/// How the node is; an error where it does not say.
pub async fn ask(socket: &Path) -> io::Result<Report> {
    let node = NearbyNode::ask(socket).await?;
    Ok(Report {
        is_ready: node.connected,
        busy: Some(node.busy),
        draining: node.draining,
        version: node.version,
        runs: None,
        node_id: node.node_id,
        since_ms: node.since.map(millis),
    })
}

fn millis(seconds: f64) -> Millis {
    (seconds.max(0.0) * 1000.0) as Millis
}
