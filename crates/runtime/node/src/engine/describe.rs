//! Sends the node's name and drain state to the SuperLink, which Flower's calls cannot express. Only Trellis SuperLinks support
//! this call, so nothing depends on it.

use std::sync::Arc;
use std::time::Duration;

use trellis_client::Error as CallError;
use trellis_core::id::NodeId;
use trellis_wire::call::DescribeNode;

use super::{Engine, shard};
use crate::error::Error;

/// A restarted SuperLink forgets which nodes are draining, so the description is repeated.
const REFRESH_INTERVAL: Duration = Duration::from_secs(20);

pub async fn keep_described(engine: Arc<Engine>) -> Result<(), Error> {
    let mut drain = engine.drain.follow();
    let mut identity = engine.identity.subscribe();
    // After the node joined again, the description must be sent again.
    let (mut sent, mut has_drained, mut is_new) = (None, false, true);
    loop {
        let Some(node) = engine.identity().await else { return Ok(()) };
        identity.mark_unchanged();
        if std::mem::take(&mut is_new) {
            shard::announce(&engine, node).await;
        }
        let draining = *drain.borrow_and_update();
        has_drained |= draining;
        let description = DescribeNode {
            node_id: node.to_string(),
            name: engine.config.name.clone(),
            draining: has_drained.then_some(draining),
        };
        let mut is_pending = draining;
        if (description.name.is_some() || description.draining.is_some())
            && (draining || sent.as_ref() != Some(&description))
        {
            match describe(&engine, node, &description).await {
                Described::Accepted => sent = Some(description),
                Described::Unsupported => {}
                Described::Retry => is_pending = true,
            }
        }
        tokio::select! {
            () = engine.stop.cancelled() => return Ok(()),
            _ = drain.changed() => {}
            _ = identity.changed() => (sent, is_new) = (None, true),
            () = tokio::time::sleep(REFRESH_INTERVAL), if is_pending => {}
        }
    }
}

enum Described {
    Accepted,
    Unsupported,
    Retry,
}

async fn describe(engine: &Engine, node: NodeId, description: &DescribeNode) -> Described {
    let telling = tokio::select! {
        () = engine.stop.cancelled() => return Described::Retry,
        telling = engine.link.fleet().describe_node(description) => telling,
    };
    match telling {
        Ok(()) => {
            engine.watch.node_name(description.name.clone());
            Described::Accepted
        }
        Err(error @ CallError::Refused { status: 400, .. }) => {
            tracing::warn!(%node, "the SuperLink refuses the description of the node: {error}");
            Described::Unsupported
        }
        Err(error) if error.is_unknown_call() || matches!(error, CallError::NotHttp { .. }) => {
            tracing::debug!(%node, %error, "the SuperLink has no call for descriptions");
            Described::Unsupported
        }
        Err(error) => {
            tracing::debug!(%node, %error, "the description will be sent again");
            Described::Retry
        }
    }
}
