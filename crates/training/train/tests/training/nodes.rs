//! Nodes in this process: each pulls instructions over the Fleet API, lets an app in Rust handle them, and sends the reply.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use trellis_client::NodeKey;
use trellis_client::fleet::{Fleet, FleetError, FleetOptions, PulledObject, Transport};
use trellis_core::id::{NodeId, ObjectId, RunId};
use trellis_native::{AppError, ClientApp, Context, Instruction, MessageKind, Stop, builtin, handle_message};
use trellis_wire::object::Entries;
use trellis_wire::proto;
use trellis_wire::records::{Arrays, Records, Tensor};

use crate::scene::Scene;

pub type App = Arc<dyn ClientApp>;

/// The delay before a call is retried if the SuperLink is unavailable.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Running nodes in the order of their start; dropping this stops them.
pub struct Nodes {
    pub ids: Vec<NodeId>,
    _work: Vec<AbortOnDropHandle<()>>,
}

/// Controls the order in which nodes send replies to train instructions, by position over all instructions, counted from 0.
#[derive(Clone)]
pub struct Turns {
    sent: watch::Sender<usize>,
    backwards: watch::Sender<bool>,
    nodes: usize,
}

impl Turns {
    pub fn new(nodes: usize) -> Turns {
        Turns { sent: watch::Sender::new(0), backwards: watch::Sender::new(false), nodes }
    }

    /// Reverses the order.
    pub fn reverse(&self) {
        self.backwards.send_replace(true);
    }

    async fn wait(&self, node: usize, instruction: usize) {
        let place = if *self.backwards.borrow() { self.nodes - 1 - node } else { node };
        let turn = instruction * self.nodes + place;
        let mut sent = self.sent.subscribe();
        sent.wait_for(|sent| *sent >= turn).await.expect("the sender lives");
    }

    fn done(&self) {
        self.sent.send_modify(|sent| *sent += 1);
    }
}

impl Nodes {
    pub async fn start(scene: &Scene, apps: Vec<App>) -> Nodes {
        Nodes::start_in_turns(scene, apps, None).await
    }

    pub async fn start_in_turns(scene: &Scene, apps: Vec<App>, turns: Option<Turns>) -> Nodes {
        let (mut ids, mut work) = (Vec::new(), Vec::new());
        let count = apps.len();
        for (index, app) in apps.into_iter().enumerate() {
            let keys = tempfile::tempdir().unwrap();
            let key = Arc::new(NodeKey::generate(&keys.path().join("key"), "").unwrap());
            let options = FleetOptions { transport: Some(Transport::Http), ..FleetOptions::default() };
            let fleet = Fleet::new(scene.target(scene.addresses.http), key, options);
            fleet.register_node().await.unwrap();
            let id = fleet.activate_node(60.0).await.unwrap();
            ids.push(id);
            let node = Node { fleet, id, app, config: partition(index, count), index, turns: turns.clone() };
            work.push(AbortOnDropHandle::new(tokio::spawn(node.work())));
        }
        Nodes { ids, _work: work }
    }
}

fn partition(index: usize, count: usize) -> BTreeMap<String, proto::Scalar> {
    let scalar = |number: usize| proto::Scalar { scalar: Some(proto::scalar::Scalar::Sint64(number as i64)) };
    [("partition-id".to_owned(), scalar(index)), ("num-partitions".to_owned(), scalar(count))].into()
}

struct Node {
    fleet: Fleet,
    id: NodeId,
    app: App,
    config: BTreeMap<String, proto::Scalar>,
    index: usize,
    turns: Option<Turns>,
}

impl Node {
    async fn work(self) {
        let mut trained = 0;
        loop {
            match self.fleet.pull_messages(self.id).await {
                Ok(pulled) => {
                    for (message, tree) in pulled.messages_list.into_iter().zip(pulled.message_object_trees) {
                        let is_training = message.metadata.as_ref().unwrap().message_type == "train";
                        // A run that has ended refuses replies.
                        let _ = self.carry_out(message, tree, is_training.then_some(trained)).await;
                        trained += usize::from(is_training);
                    }
                }
                Err(_) => tokio::time::sleep(RETRY_DELAY).await,
            }
        }
    }

    async fn carry_out(
        &self,
        message: proto::Message,
        tree: proto::ObjectTree,
        instruction: Option<usize>,
    ) -> Result<(), FleetError> {
        let run = RunId(message.metadata.as_ref().unwrap().run_id);
        let mut objects = HashMap::new();
        for id in names(&tree) {
            if let PulledObject::Here(bytes) = insist(|| self.fleet.pull_object(self.id, run, id)).await? {
                objects.insert(id, bytes);
            }
        }
        insist(|| self.fleet.confirm(self.id, run, &tree.object_id)).await?;
        let app = Arc::clone(&self.app);
        let context = proto::Context { node_config: self.config.clone(), ..Default::default() };
        let handled = tokio::task::spawn_blocking(move || {
            let mut fetch = |id: ObjectId| -> Result<Bytes, _> { objects.get(&id).cloned().ok_or("missing".into()) };
            let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
            handle_message(&*app, &message, &tree, &context, &Stop::default(), &mut fetch, &now)
        });
        // A stopped app sends no reply.
        let Ok(handled) = handled.await.unwrap() else { return Ok(()) };
        if let (Some(turns), Some(instruction)) = (&self.turns, instruction) {
            turns.wait(self.index, instruction).await;
        }
        let reply = handled.reply;
        let announce = || self.fleet.push_messages(self.id, reply.message.clone(), reply.tree.clone(), 0.0);
        let announced = insist(announce).await?;
        for (id, bytes) in reply.objects {
            if announced.objects_to_push.contains(&id.to_string()) {
                insist(|| self.fleet.push_object(self.id, run, id, bytes.clone(), &announced.session_id)).await?;
            }
        }
        if let (Some(turns), Some(_)) = (&self.turns, instruction) {
            turns.done();
        }
        Ok(())
    }
}

/// Retries while the SuperLink is unavailable.
async fn insist<T, F: Future<Output = Result<T, FleetError>>>(call: impl Fn() -> F) -> Result<T, FleetError> {
    loop {
        match call().await {
            Err(error) if error.may_pass() => tokio::time::sleep(RETRY_DELAY).await,
            answered => return answered,
        }
    }
}

fn names(tree: &proto::ObjectTree) -> Vec<ObjectId> {
    let mut all = vec![tree.object_id.parse().unwrap()];
    for child in &tree.children {
        all.extend(names(child));
    }
    all
}

/// The bundled digits, with a small network.
pub fn digits() -> App {
    let settings = [("lr", "0.1"), ("local-epochs", "2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    Arc::from(builtin("mlp", &settings.into()).unwrap())
}

/// An app that applies a function to the received numbers, for models with one array `w` of three numbers.
pub struct Numbers<F>(pub F);

/// Handles a train instruction: returns the numbers and the examples of the reply.
impl<F> ClientApp for Numbers<F>
where
    F: Fn(&[f32], u64) -> Result<(Vec<f32>, u64), AppError> + Send + Sync,
{
    fn handle(&self, instruction: Instruction<'_>, _: &mut Context) -> Result<Records, AppError> {
        let arrays = |values: Vec<f32>| {
            let tensor = Tensor::new(vec![values.len()], values).unwrap();
            Arrays::default().with("w", tensor)
        };
        let metrics = |examples: u64, name: &str, number: f64| {
            trellis_wire::object::MetricRecord(Entries::default().with("num-examples", examples).with(name, number))
        };
        if instruction.kind == MessageKind::Query {
            return Ok(Records::default().with("arrays", arrays(vec![0.0; 3])));
        }
        let model = instruction.records.arrays("arrays").unwrap().get("w").unwrap().tensor().unwrap();
        let values = model.values().to_f32().unwrap();
        let round = instruction.round.unwrap_or_default();
        Ok(match instruction.kind {
            MessageKind::Evaluate => {
                Records::default().with("metrics", metrics(1, "eval_loss", 1.0 / (round + 1) as f64))
            }
            _ => {
                let (values, examples) = (self.0)(&values, round)?;
                let metrics = metrics(examples, "train_loss", f64::from(values.first().copied().unwrap_or_default()));
                Records::default().with("arrays", arrays(values)).with("metrics", metrics)
            }
        })
    }
}

/// Adds a number to each, and reports this many examples.
pub fn adds(number: f32, examples: u64) -> App {
    Arc::new(Numbers(move |values: &[f32], _| Ok((values.iter().map(|value| value + number).collect(), examples))))
}

/// Never answers train instructions.
pub fn silent() -> App {
    Arc::new(Numbers(|_: &[f32], _| Err(AppError::Stopped)))
}

pub fn as_numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
