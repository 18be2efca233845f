//! From a message to its reply: objects become records, the app works on them, and its records become objects. What an
//! app may do wrong becomes an error reply; what only the node can mend is an error of this function.

use trellis_core::id::ObjectId;
use trellis_wire::error_reply::ErrorCode;
use trellis_wire::object::ConfigValue;
use trellis_wire::proto;
use trellis_wire::records::{
    Fetch, InflateError, InlineError, Outgoing, Records, error_reply, from_inline, inflate, reply, to_inline,
};

use crate::app::{AppError, ClientApp, Context, Instruction, MessageKind, Stop};
use crate::exchange::{CONFIG, SERVER_ROUND};

/// What the node sends and keeps.
#[derive(Debug)]
pub struct Handled {
    /// Content, or an error of the app.
    pub reply: Outgoing,
    /// To be kept for the next instruction of the run. After an error it is the one that was given.
    pub context: proto::Context,
}

/// The instruction was not carried out, and there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum NotHandled {
    #[error("the app was stopped")]
    Stopped,
    #[error("the content of the instruction could not be read")]
    Content(#[source] InflateError),
    #[error("the instruction has no metadata, or its tree no id")]
    Incomplete,
    #[error("the state that was kept for the run is damaged")]
    State(#[source] InlineError),
}

/// Lets an app carry out an instruction. `tree` is that of the instruction, `now_s` gives the seconds since 1970 and is
/// asked when the app is done.
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
        // Reading it again would not help, so its sender hears of it.
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
            "messages of the type {message_type:?} are not for apps: train, evaluate or query are"
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
            Err(error) => Err(format!("the state that the app leaves cannot be kept: {error}")),
        }),
        Err(AppError::Failed(reason)) => Ok(Err(reason)),
        Err(AppError::Stopped) => Err(NotHandled::Stopped),
    }
}

/// As Flower's strategies tell it.
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
