//! PushObject and PullObject of nodes and ServerApps.

use trellis_core::fleet::running;
use trellis_core::id::{NodeId, RunId};
use trellis_core::object::Scope;
use trellis_core::refusal::Refusal;
use trellis_front::object::{PushedObject, pulled, read_pull};
use trellis_front::{Answer, MessageReader, Rest};
use trellis_wire::proto::{PullObjectResponse, PushObjectResponse};

use crate::api::app;
use crate::api::fleet::Caller;
use crate::convert;
use crate::dialect::app::Caller as AppCaller;
use crate::link::Link;
use crate::objects::{self, Admission, Outgoing};

/// The API of an object call.
pub(super) enum Peer {
    Node(Caller),
    App(AppCaller),
}

impl Peer {
    /// Returns the scope of the objects, from the run and the node in the message.
    fn scope(&self, run: u64, node: NodeId) -> Result<Scope, Refusal> {
        match self {
            Peer::Node(caller) => Ok(Scope { run: RunId(run), sender: caller.is_node(node)? }),
            Peer::App(app) => app::check_sender(node).map(|()| Scope::of_app(app.run(run))),
        }
    }

    fn note_traffic(&self, link: &Link, run: RunId, sent: u64, received: u64) {
        if matches!(self, Peer::Node(_)) {
            link.note_traffic(run, sent, received);
        }
    }
}

/// Receives an object.
pub(super) async fn push(link: &Link, peer: Peer, message: MessageReader) -> Result<Answer, Refusal> {
    let mut pushed = PushedObject::read(message).await?;
    let scope = peer.scope(pushed.run, NodeId(pushed.node))?;
    let run = scope.run;

    let mut admission = match convert::object_id(&pushed.id) {
        Ok(id) => objects::admit(link, scope, id)?,
        Err(_) => link.read(|view| running(view, run)).map(|_| Admission::Unannounced)?,
    };
    while let Some(piece) = pushed.piece().await? {
        if let Admission::Wanted(incoming) = &mut admission {
            incoming.take(link, &piece).await?;
        }
    }
    let stored = match admission {
        Admission::Wanted(incoming) => incoming.finish(link).await?,
        Admission::Known => true,
        Admission::Unannounced => false,
    };
    if stored {
        peer.note_traffic(link, run, 0, pushed.bytes);
    } else {
        tracing::warn!(
            run = run.0,
            object = pushed.id,
            "object not stored: unannounced, or its content has another hash"
        );
    }
    Ok(Answer::message(&PushObjectResponse { stored }))
}

/// Sends an object.
pub(super) async fn pull(link: &Link, peer: Peer, message: MessageReader) -> Result<Answer, Refusal> {
    let request = read_pull(message).await?;
    let scope = peer.scope(request.run_id, convert::node_id(request.node.as_ref()))?;
    let outgoing = match convert::object_id(&request.object_id) {
        Ok(id) => objects::fetch(link, scope, id).await?,
        // The answer for an unknown object: official SuperLinks do not distinguish the two.
        Err(_) => link.read(|view| running(view, scope.run)).map(|_| Outgoing::NotFound)?,
    };
    peer.note_traffic(link, scope.run, outgoing.len_bytes(), 0);
    Ok(match outgoing {
        Outgoing::NotFound => Answer::message(&PullObjectResponse::default()),
        Outgoing::NotHere => Answer::message(&PullObjectResponse { object_found: true, ..Default::default() }),
        Outgoing::Whole(bytes) => pulled(Rest::Whole(bytes)),
        Outgoing::Blocks { bytes, blocks } => pulled(Rest::Blocks { bytes, blocks }),
    })
}
