//! Tells the SuperLink what Flower's calls have no words for: what the node is called, and whether it takes new work. Only
//! SuperLinks of Trellis understand it, so nothing depends on it.

use std::sync::Arc;
use std::time::Duration;

use trellis_client::Error as CallError;
use trellis_core::id::NodeId;
use trellis_wire::call::DescribeNode;

use super::{Engine, shard};
use crate::error::Error;

/// A SuperLink forgets with a restart who is draining, and is told again this often.
const REMINDER: Duration = Duration::from_secs(20);

pub async fn keep_told(engine: Arc<Engine>) -> Result<(), Error> {
    let mut drain = engine.drain.follow();
    let mut identity = engine.identity.subscribe();
    // What one SuperLink was told is unknown to one that the node joins anew.
    let (mut told, mut has_drained, mut is_new) = (None, false, true);
    loop {
        let Some(node) = engine.identity().await else { return Ok(()) };
        identity.mark_unchanged();
        if std::mem::take(&mut is_new) {
            shard::announce(&engine, node).await;
        }
        let draining = *drain.borrow_and_update();
        has_drained |= draining;
        let said = DescribeNode {
            node_id: node.to_string(),
            name: engine.config.name.clone(),
            draining: has_drained.then_some(draining),
        };
        let mut is_pending = draining;
        if (said.name.is_some() || said.draining.is_some()) && (draining || told.as_ref() != Some(&said)) {
            match tell(&engine, node, &said).await {
                Told::Yes => told = Some(said),
                Told::NotUnderstood => {}
                Told::NotNow => is_pending = true,
            }
        }
        tokio::select! {
            () = engine.stop.cancelled() => return Ok(()),
            _ = drain.changed() => {}
            _ = identity.changed() => (told, is_new) = (None, true),
            () = tokio::time::sleep(REMINDER), if is_pending => {}
        }
    }
}

enum Told {
    Yes,
    NotUnderstood,
    NotNow,
}

async fn tell(engine: &Engine, node: NodeId, said: &DescribeNode) -> Told {
    let telling = tokio::select! {
        () = engine.stop.cancelled() => return Told::NotNow,
        telling = engine.link.fleet().describe_node(said) => telling,
    };
    match telling {
        Ok(()) => {
            engine.watch.node_name(said.name.clone());
            Told::Yes
        }
        Err(error @ CallError::Refused { status: 400, .. }) => {
            tracing::warn!(%node, "the SuperLink does not take what the node says of itself: {error}");
            Told::NotUnderstood
        }
        Err(error) if error.is_unknown_call() || matches!(error, CallError::NotHttp { .. }) => {
            tracing::debug!(%node, %error, "the SuperLink takes no names, and does not know of draining");
            Told::NotUnderstood
        }
        Err(error) => {
            tracing::debug!(%node, %error, "the SuperLink will be told again");
            Told::NotNow
        }
    }
}
