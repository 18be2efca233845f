//! The initial model of a training: from a checkpoint, from a file, or from a node.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use trellis_core::id::NodeId;
use trellis_models::{Loaded, ModelStore, read_model};
use trellis_strategy::sampling::{self, sample};
use trellis_strategy::{Layout, Model, Slot};
use trellis_wire::object::ConfigRecord;
use trellis_wire::records::Dtype;

use crate::content::{Address, Content};
use crate::deliver::deliver;
use crate::error::TrainError;
use crate::exchange::{MessageFormat, question};
use crate::receive::{Expected, NotReceived, Receiver, blocking};

/// The time that a node has to answer; loading an app may take minutes.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The number of nodes that are asked before the run fails.
const MAX_NODES: usize = 3;

/// A model, and a description of its origin.
pub struct InitialModel {
    pub model: Model,
    pub origin: String,
    /// The message format of the app that sent it; `None` for other origins.
    pub message_format: Option<MessageFormat>,
}

/// Loads a checkpoint: that of `RUN@ROUND`, the newest one of `RUN`, or that in a directory.
pub async fn checkpoint(models: PathBuf, named: String) -> Result<Loaded, TrainError> {
    let is_path = named.contains('/');
    let open = move || match (is_path, named.split_once('@')) {
        (true, _) => ModelStore::open_path(&models.join(&named)),
        (false, None) => ModelStore::new(models).open(&named, None),
        (false, Some((run, round))) => match round.parse() {
            Ok(round) => ModelStore::new(models).open(run, Some(round)),
            Err(_) => ModelStore::new(models).open(&named, None),
        },
    };
    Ok(blocking(open).await??)
}

/// Reads a model from a file; a relative path is relative to the SuperLink's directory of models.
pub async fn from_file(models: &Path, file: &Path) -> Result<InitialModel, TrainError> {
    let path = models.join(file);
    let origin = format!("from {}", path.display());
    let model = blocking(move || read_model(path)).await??;
    Ok(InitialModel { model, origin, message_format: None })
}

/// The initial model of tree strategies is empty.
pub fn no_trees() -> InitialModel {
    let slot = Slot { name: "0".to_owned(), dtype: Dtype::U8, shape: vec![0] };
    let model = Model { layout: Arc::new(Layout(vec![slot])), arrays: vec![Default::default()] };
    InitialModel { model, origin: "no trees yet".to_owned(), message_format: None }
}

/// Asks nodes for an initial model, one after another: first with `query.init`, then in the format of apps with a
/// `client_fn`.
pub async fn ask(
    receiver: &Receiver,
    online: &[NodeId],
    seed: u64,
    address: &Address<'_>,
) -> Result<InitialModel, TrainError> {
    let mut reasons = Vec::new();
    for node in sample(online, MAX_NODES, seed, 0, sampling::Phase::Init) {
        for message_format in [MessageFormat::Records, MessageFormat::Legacy] {
            let (message_type, _) = question(message_format);
            match ask_one(receiver, node, message_format, address).await {
                Ok(model) => {
                    let origin = format!("from node {node} ({message_type})");
                    return Ok(InitialModel { model, origin, message_format: Some(message_format) });
                }
                Err(NotReceived::Failure(error)) => return Err(error),
                Err(NotReceived::Unusable(reason) | NotReceived::NonFinite(reason)) => {
                    reasons.push(format!("node {node} to {message_type}: {reason}"));
                }
                Err(NotReceived::Refused(error)) => {
                    let reason = error.reason.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
                    reasons.push(format!("node {node} to {message_type}: {reason}"));
                }
            }
        }
    }
    let advice = "let the app's own ServerApp train and make it (`trellis run --app-server`), give one with initial-model (a \
                  .safetensors or .npz file on the SuperLink's machine), or let the ClientApp answer query.init with an \
                  ArrayRecord";
    Err(TrainError::NoInitialModel(format!("{advice}. The answers of the nodes: {}", reasons.join("; "))))
}

async fn ask_one(
    receiver: &Receiver,
    node: NodeId,
    message_format: MessageFormat,
    address: &Address<'_>,
) -> Result<Model, NotReceived> {
    let (message_type, config_name) = question(message_format);
    let content = Content::question(config_name, &ConfigRecord::default());
    let address = Address { message_type, ..address.clone() };
    let delivered = deliver(&receiver.app, &content, &[node], &address).await?;
    let ids: Vec<_> = delivered.instructions.into_keys().collect();
    if ids.is_empty() {
        return Err(NotReceived::Unusable("the SuperLink no longer knows the node".to_owned()));
    }
    let pulling = async {
        loop {
            let mut pulled = receiver.app.pull_messages(&ids, 1).await?;
            if let Some(reply) = pulled.pop() {
                return Ok::<_, NotReceived>(reply);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let too_late = |_| NotReceived::Unusable(format!("no answer within {} s", TIMEOUT.as_secs()));
    let (message, tree) = tokio::time::timeout(TIMEOUT, pulling).await.map_err(too_late)??;
    let received = match message.error {
        Some(error) => Err(NotReceived::Refused(error)),
        None => receiver.receive(&tree, message_format, &Expected::AnyModel).await,
    };
    if let Ok(id) = tree.object_id.parse() {
        receiver.app.confirm(id).await?;
    }
    let numbers = received?.numbers.ok_or_else(|| NotReceived::Unusable("it has no model".to_owned()))?;
    let model = numbers.into_model().map_err(|error| NotReceived::Unusable(error.to_string()))?;
    match model.layout.0.is_empty() {
        true => Err(NotReceived::Unusable("the model has no arrays".to_owned())),
        false => Ok(model),
    }
}
