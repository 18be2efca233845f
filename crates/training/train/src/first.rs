//! The model that a training begins with: of a checkpoint, of a file, or asked of a node.

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
use crate::exchange::{Speech, question};
use crate::receive::{NotReceived, Receiver, Wanted, blocking};

/// A node is asked for a first model for so long; loading an app may take minutes.
const PATIENCE: Duration = Duration::from_secs(600);
/// Nodes that are asked before it is given up.
const NODES: usize = 3;

/// A model, and where it is from, in words.
pub struct First {
    pub model: Model,
    pub origin: String,
    /// How the app that gave it is spoken to; `None`: it came from elsewhere.
    pub speech: Option<Speech>,
}

/// The newest checkpoint of a run (`RUN`, or one round of it: `RUN@ROUND`), or the one in a directory.
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

/// The model in a file; a relative path is one within the models of the SuperLink.
pub async fn from_file(models: &Path, file: &Path) -> Result<First, TrainError> {
    let path = models.join(file);
    let origin = format!("from {}", path.display());
    let model = blocking(move || read_model(path)).await??;
    Ok(First { model, origin, speech: None })
}

/// Trees grow from nothing.
pub fn no_trees() -> First {
    let slot = Slot { name: "0".to_owned(), dtype: Dtype::U8, shape: vec![0] };
    let model = Model { layout: Arc::new(Layout(vec![slot])), arrays: vec![Default::default()] };
    First { model, origin: "no trees yet".to_owned(), speech: None }
}

/// Asks nodes for a first model, one after the other: our own apps and those that answer `query.init`, then those with a
/// `client_fn`.
pub async fn ask(
    receiver: &Receiver,
    online: &[NodeId],
    seed: u64,
    address: &Address<'_>,
) -> Result<First, TrainError> {
    let mut reasons = Vec::new();
    for node in sample(online, NODES, seed, 0, sampling::Phase::Init) {
        for speech in [Speech::Records, Speech::Legacy] {
            let (message_type, _) = question(speech);
            match ask_one(receiver, node, speech, address).await {
                Ok(model) => {
                    let origin = format!("from node {node} ({message_type})");
                    return Ok(First { model, origin, speech: Some(speech) });
                }
                Err(NotReceived::Trouble(error)) => return Err(error),
                Err(NotReceived::Unfit(why) | NotReceived::NotFinite(why)) => {
                    reasons.push(format!("node {node} to {message_type}: {why}"));
                }
                Err(NotReceived::Refused(error)) => {
                    let why = error.reason.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
                    reasons.push(format!("node {node} to {message_type}: {why}"));
                }
            }
        }
    }
    let advice = "let the app's own ServerApp train and make it (`trellis run --app-server`), give one with initial-model (a \
                  .safetensors or .npz file on the SuperLink's machine), or let the ClientApp answer query.init with an \
                  ArrayRecord";
    Err(TrainError::NoFirstModel(format!("{advice}. Nodes that were asked said: {}", reasons.join("; "))))
}

async fn ask_one(
    receiver: &Receiver,
    node: NodeId,
    speech: Speech,
    address: &Address<'_>,
) -> Result<Model, NotReceived> {
    let (message_type, config_name) = question(speech);
    let content = Content::question(config_name, &ConfigRecord::default());
    let address = Address { message_type, ..address.clone() };
    let delivered = deliver(&receiver.app, &content, &[node], &address).await?;
    let ids: Vec<_> = delivered.instructions.into_keys().collect();
    if ids.is_empty() {
        return Err(NotReceived::Unfit("the SuperLink does not know it any more".to_owned()));
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
    let too_late = |_| NotReceived::Unfit(format!("no answer within {} s", PATIENCE.as_secs()));
    let (message, tree) = tokio::time::timeout(PATIENCE, pulling).await.map_err(too_late)??;
    let received = match message.error {
        Some(error) => Err(NotReceived::Refused(error)),
        None => receiver.receive(&tree, speech, &Wanted::AnyModel).await,
    };
    if let Ok(id) = tree.object_id.parse() {
        receiver.app.confirm(id).await?;
    }
    let numbers = received?.numbers.ok_or_else(|| NotReceived::Unfit("it has no model".to_owned()))?;
    let model = numbers.into_model().map_err(|error| NotReceived::Unfit(error.to_string()))?;
    match model.layout.0.is_empty() {
        true => Err(NotReceived::Unfit("the model has no arrays".to_owned())),
        false => Ok(model),
    }
}
