//! Probe of our SuperNode, by its socket.

use std::io;
use std::path::Path;

use trellis_client::NearbyNode;
use trellis_plan::Millis;

use super::Report;

pub async fn probe(socket: &Path) -> io::Result<Report> {
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
