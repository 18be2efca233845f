//! From a message to its reply: objects become records, the app handles them, and its records become objects. Errors of the
//! app and unreadable content become error replies; failures of the node become errors.

use trellis_core::id::ObjectId;
use trellis_wire::error_reply::ErrorCode;
use trellis_wire::object::ConfigValue;
use trellis_wire::proto;
use trellis_wire::records::{
    Fetch, InflateError, InlineError, Outgoing, Records, error_reply, from_inline, inflate, reply, to_inline,
};

use crate::app::{AppError, ClientApp, Context, Instruction, MessageKind, Stop};
use crate::exchange::{CONFIG, SERVER_ROUND};

/// The result of an instruction.
#[derive(Debug)]
pub struct Handled {
    /// Content, or an error of the app.
    pub reply: Outgoing,
    /// The context for the next instruction of the run. After an error it is unchanged.
    pub context: proto::Context,
}

/// The instruction was not handled, and there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum NotHandled {
    #[error("the app was stopped")]
    Stopped,
    #[error("the content of the instruction could not be read")]
    Content(#[source] InflateError),
    #[error("the instruction has no metadata, or its object tree has no id")]
    Incomplete,
    #[error("the stored state of the run is damaged")]
    State(#[source] InlineError),
}

/// Lets an app handle an instruction with this object tree. `now_s` returns the Unix time in seconds; it is called when the
/// app has finished.
pub fn handle_message(
    app: &dyn ClientApp,
    instruction: &proto::Message,
    tree: &proto::ObjectTree,
    context: &proto::Context,
    stop: &Stop,
    fetch: &mut Fetch<'_>,
    now_s: &dyn Fn() -> f64,
) -> Result<Handled, NotHandled> {
    let metadata = instruction.metadata.as_ref().ok_or(NotHandled::Incomplete)?;
    let root: ObjectId = tree.object_id.parse().map_err(|_| NotHandled::Incomplete)?;
    let worked = match inflate(root, fetch) {
        Ok(records) => work(app, &metadata.message_type, &records, context, stop)?,
        Err(error @ InflateError::Fetch { .. }) => return Err(NotHandled::Content(error)),
        // Fetching again would not help, so the sender gets an error reply.
        Err(error) => Err(format!("the content of the message cannot be read: {}", with_sources(&error))),
    };
    Ok(match worked {
        Ok((records, context)) => Handled { reply: reply(metadata, now_s(), &records), context },
        Err(reason) => Handled {
            reply: error_reply(metadata, now_s(), ErrorCode::ClientAppRaisedException, &reason),
            context: context.clone(),
        },
    })
}

/// The records of the reply and the context after it, or the reason of an error reply.
type Worked = Result<(Records, proto::Context), String>;

fn work(
    app: &dyn ClientApp,
    message_type: &str,
    records: &Records,
    given: &proto::Context,
    stop: &Stop,
) -> Result<Worked, NotHandled> {
    let Some((kind, action)) = MessageKind::split(message_type) else {
        return Ok(Err(format!(
            "messages of the type {message_type:?} are not for apps; apps handle train, evaluate and query"
        )));
    };
    let instruction = Instruction { kind, action, records, round: round(records), stop };
    let mut context = Context {
        node_config: given.node_config.clone(),
        run_config: given.run_config.clone(),
        state: from_inline(given.state.clone().unwrap_or_default()).map_err(NotHandled::State)?,
    };
    match app.handle(instruction, &mut context) {
        Ok(records) => Ok(match to_inline(&context.state) {
            Ok(state) => Ok((records, proto::Context { state: Some(state), ..given.clone() })),
            Err(error) => Err(format!("the state of the app cannot be stored: {error}")),
        }),
        Err(AppError::Failed(reason)) => Ok(Err(reason)),
        Err(AppError::Stopped) => Err(NotHandled::Stopped),
    }
}

/// The round as Flower's strategies send it.
fn round(records: &Records) -> Option<u64> {
    match records.config(CONFIG)?.0.get(SERVER_ROUND)? {
        ConfigValue::Sint64(round) => u64::try_from(*round).ok(),
        ConfigValue::Uint64(round) => Some(*round),
        _ => None,
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_sources(source)),
        None => error.to_string(),
    }
}
