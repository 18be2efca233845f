//! One round without training: an instruction to every node, a reply from every node.
//!
//! Paced: nodes and ServerApp wait as the official ones do. Unpaced: a signal inside the generator replaces every sleep
//! of an official component, so that only the server takes time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use trellis_core::id::NodeId;

use super::{Outcome, Spent, Watch};
use crate::Failure;
use crate::call::{CallError, Tally};
use crate::client::Transport;
use crate::fleet::{self, Pulse};
use crate::node::SimNode;
use crate::pacing::{Jitter, POLL_INTERVAL};
use crate::payload::{Beside, Envelope, Model};
use crate::serverapp::ServerApp;
use crate::stats::Samples;
use crate::superlink::SuperLink;
use crate::table::{Better, Cell, Metric, Target};

const MODEL_BYTES: usize = 1024;
const HEARTBEAT_SPREAD: Duration = Duration::from_secs(20);
/// A slower round is neither repeated nor run at official pacing: pauses of 3 s hardly matter in it.
const SLOW_ROUND: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub struct Round {
    pub nodes: usize,
    /// Number of unpaced rounds, unless they are slow; the median counts.
    pub repeats: usize,
    /// Time limit of a round. Missing replies are lost.
    pub limit: Duration,
}

/// The participants of a round and their messages.
pub struct Stage {
    pub app: ServerApp,
    pub nodes: Vec<Arc<SimNode>>,
    pub instruction: Model,
    pub replies: Vec<Arc<Model>>,
    pub tally: Arc<Tally>,
    pulse: Arc<Pulse>,
    heartbeats: JoinSet<()>,
}

impl Stage {
    /// Connects all participants and prepares all objects before the measurement.
    pub async fn set_up(server: &SuperLink, nodes: usize, model_bytes: usize) -> Result<Self, Failure> {
        let tally = Arc::new(Tally::default());
        let (instruction, replies) = tokio::task::spawn_blocking(move || {
            let replies =
                (0..nodes).map(|node| Arc::new(Model::generate(model_bytes, node as u64 + 1, Beside::Metrics)));
            (Model::generate(model_bytes, 0, Beside::Config), replies.collect())
        })
        .await?;
        let nodes = fleet::join(&server.addresses, nodes, &tally).await?;
        let pulse = Arc::new(Pulse::default());
        let mut heartbeats = JoinSet::new();
        fleet::spawn_heartbeats(&nodes, HEARTBEAT_SPREAD, &pulse, &mut heartbeats);
        let app = ServerApp::launch(&server.addresses, tally.clone()).await?;
        Ok(Self { app, nodes, instruction, replies, tally, pulse, heartbeats })
    }

    fn envelopes(&self, group_id: &str) -> Vec<Envelope> {
        let to = |node: &Arc<SimNode>| self.app.instruction(node.id, group_id, &self.instruction);
        self.nodes.iter().map(to).collect()
    }

    /// Finishes the run and keeps the nodes connected.
    pub async fn finish(self) -> Result<JoinSet<()>, Failure> {
        self.app.finish().await?;
        Ok(self.heartbeats)
    }
}

/// Seconds from the first push until instructions are pushed, all nodes have answered, and all replies are collected.
pub struct Phases {
    pub pushed_s: f64,
    pub answered_s: f64,
    pub collected_s: f64,
    pub lost: usize,
    /// The time limit ended the round although no node had given up.
    pub cut_off: bool,
}

/// A round without waiting: push, then all nodes at once, then collect.
pub async fn unpaced(stage: &Stage, group_id: &str, limit: Duration) -> Result<Phases, Failure> {
    let envelopes = stage.envelopes(group_id);
    let began = Instant::now();
    let elapsed_s = || began.elapsed().as_secs_f64();
    let asked = push(stage, &envelopes, began + limit).await;
    let pushed_s = elapsed_s();

    let mut answers = JoinSet::new();
    let told = if asked.is_empty() { &[][..] } else { &stage.nodes };
    for (node, model) in told.iter().cloned().zip(stage.replies.iter().cloned()) {
        let pulse = stage.pulse.clone();
        answers.spawn(async move {
            let delivery = fleet::wait_for_message(&node, &pulse).await;
            node.answer(&delivery, &model).await.is_ok().then_some(node.id)
        });
    }
    let (mut answered, mut gave_up) = (HashSet::new(), 0);
    while let Ok(Some(answer)) = tokio::time::timeout(limit.saturating_sub(began.elapsed()), answers.join_next()).await
    {
        let answer = answer?;
        gave_up += usize::from(answer.is_none());
        answered.extend(answer);
    }
    let answered_s = elapsed_s();
    answers.abort_all();

    let received = collect(&stage.app, asked, began + limit, |node| answered.contains(&node), || answered.len()).await;
    let lost = stage.nodes.len() - received;
    let cut_off = lost > 0 && gave_up == 0 && began.elapsed() >= limit;
    Ok(Phases { pushed_s, answered_s, collected_s: elapsed_s(), lost, cut_off })
}

/// A round at official pacing: nodes poll, and the ServerApp polls while replies are missing.
async fn paced(stage: &Stage, group_id: &str, limit: Duration) -> Phases {
    let gave_up: Arc<Mutex<HashSet<u64>>> = Arc::default();
    let mut loops = JoinSet::new();
    for (node, model) in stage.nodes.iter().cloned().zip(stage.replies.iter().cloned()) {
        let (pulse, gave_up, mut jitter) = (stage.pulse.clone(), gave_up.clone(), Jitter::new(node.id));
        loops.spawn(async move {
            tokio::time::sleep(jitter.duration_below(POLL_INTERVAL)).await;
            let delivery = fleet::wait_for_message(&node, &pulse).await;
            if node.answer(&delivery, &model).await.is_err() {
                gave_up.lock().expect("no panic while counting").insert(node.id);
            }
        });
    }
    tokio::time::sleep(POLL_INTERVAL).await;

    let envelopes = stage.envelopes(group_id);
    let began = Instant::now();
    let asked = push(stage, &envelopes, began + limit).await;
    let pushed_s = began.elapsed().as_secs_f64();
    let nodes = stage.nodes.len();
    let lost = || gave_up.lock().expect("no panic while counting");
    let received =
        collect(&stage.app, asked, began + limit, |node| !lost().contains(&node), || nodes - lost().len()).await;
    let collected_s = began.elapsed().as_secs_f64();
    let cut_off = received < nodes && lost().is_empty() && began.elapsed() >= limit;
    Phases { pushed_s, answered_s: collected_s, collected_s, lost: nodes - received, cut_off }
}

/// Pushes messages and returns the accepted ones. Returns none if the push failed or took too long: the round is lost,
/// and the tally counts the failure.
async fn push(stage: &Stage, envelopes: &[Envelope], until: Instant) -> HashSet<String> {
    let pushing = stage.app.push(envelopes, &stage.instruction);
    tokio::time::timeout_at(until.into(), pushing).await.map(Result::unwrap_or_default).unwrap_or_default()
}

/// Collects replies as the official send-and-receive loop does, until no more can be expected or the time is over.
/// Returns the number of replies from nodes. Ignores a reply whose node gave up half-way: an official ServerApp would
/// wait two hours for its objects, and it is lost either way.
async fn collect(
    app: &ServerApp,
    mut missing: HashSet<String>,
    until: Instant,
    is_whole: impl Fn(u64) -> bool,
    expected: impl Fn() -> usize,
) -> usize {
    let mut received = 0;
    while received < expected() && !missing.is_empty() && Instant::now() < until {
        let step = collect_some(app, &mut missing, &is_whole, &mut received);
        // The tally counts the failure; the loop of the ServerApp ends with it.
        match tokio::time::timeout_at(until.into(), step).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => break,
        }
        if received < expected() && !missing.is_empty() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    received
}

async fn collect_some(
    app: &ServerApp,
    missing: &mut HashSet<String>,
    is_whole: &impl Fn(u64) -> bool,
    received: &mut usize,
) -> Result<(), CallError> {
    for reply in app.pull(missing).await? {
        let from = reply.sender();
        if is_whole(from) {
            app.receive(&reply).await?;
            // The server itself sends error replies (node offline, message expired).
            *received += usize::from(from != NodeId::SUPERLINK.0);
        }
        missing.remove(reply.answers());
    }
    Ok(())
}

impl Round {
    pub fn title(&self) -> String {
        format!("small round, {} nodes (1 KB model, 23 calls per node)", crate::table::short(self.nodes as f64))
    }

    pub fn metrics(&self, transport: Transport) -> Vec<Metric> {
        let promised = match transport {
            _ if self.nodes < 1000 => Target::None,
            Transport::Grpc => Target::Factor { memory: Some(6.0), database: None },
            Transport::Http => Target::Factor { memory: Some(20.0), database: Some(20.0) },
        };
        vec![
            Metric::new("wall s", Better::Lower, Target::None),
            // The target uses this metric, because a server that drops half of its messages finishes early.
            Metric::new("replies per second", Better::Higher, promised),
            Metric::new("server CPU s", Better::Lower, Target::None),
            Metric::new("wall s at official pacing", Better::Lower, Target::None),
            Metric::new("replies lost", Better::Neither, Target::AtMost(0.0)),
            Metric::new("calls retried", Better::Neither, Target::None),
        ]
    }

    pub async fn run(&self, server: &SuperLink) -> Result<Outcome, Failure> {
        let stage = Stage::set_up(server, self.nodes, MODEL_BYTES).await?;
        let mut rounds = Vec::new();
        let watch = Watch::start(server)?;
        let mut slow = false;
        while rounds.len() < self.repeats && !slow {
            let phases = unpaced(&stage, &format!("unpaced-{}", rounds.len()), self.limit).await?;
            slow = phases.cut_off || phases.collected_s > SLOW_ROUND.as_secs_f64();
            rounds.push(phases);
        }
        let spent = watch.stop(server)?;
        let paced = if slow { None } else { Some(paced(&stage, "paced", self.limit).await) };
        Ok(self.outcome(&stage, &rounds, &spent, paced.as_ref()))
    }

    fn outcome(&self, stage: &Stage, rounds: &[Phases], spent: &Spent, paced: Option<&Phases>) -> Outcome {
        let median =
            |seconds: fn(&Phases) -> f64| rounds.iter().map(seconds).collect::<Samples>().median().unwrap_or(f64::NAN);
        let wall_s = median(|phases| phases.collected_s);
        let lost: usize = rounds.iter().map(|phases| phases.lost).sum();
        let asked = rounds.len() * self.nodes;
        let cut_off = rounds.iter().any(|phases| phases.cut_off);
        let lossy = |value: f64| if cut_off { Cell::Above(value) } else { lossy(value, lost, asked, self.limit) };
        let lost_in_all = lost + paced.map_or(0, |phases| phases.lost);
        let cells = vec![
            lossy(wall_s),
            self.rate(wall_s, lost as f64 / rounds.len() as f64, cut_off),
            lossy(spent.server_cpu_s / rounds.len() as f64),
            paced.map_or(Cell::Missing("not run: slow enough without".to_owned()), |phases| phases.wall(self)),
            if cut_off { Cell::Missing("cut off".to_owned()) } else { (lost_in_all as f64).into() },
            (stage.tally.retries() as f64).into(),
        ];
        let mut notes = vec![format!(
            "push {:.2} s, nodes {:.2} s, collect {:.2} s; {lost} of {asked} replies {}{}; generator {:.2} cores busy",
            median(|phases| phases.pushed_s),
            median(|phases| phases.answered_s - phases.pushed_s),
            median(|phases| phases.collected_s - phases.answered_s),
            if cut_off { "missing when it was cut off" } else { "lost" },
            paced.map_or(String::new(), |phases| format!(", at official pacing {} of {}", phases.lost, self.nodes)),
            spent.generator_cpu_s / spent.wall_s
        )];
        notes.extend(stage.tally.errors().into_iter().map(|(text, count)| format!("{count} x {text}")));
        Outcome { cells, notes, complete: lost_in_all == 0 }
    }

    /// Returns replies per second. For a round that was cut off, this is only an upper bound.
    fn rate(&self, wall_s: f64, lost: f64, cut_off: bool) -> Cell {
        if cut_off {
            return Cell::Below(self.nodes as f64 / wall_s);
        }
        let rate = (self.nodes as f64 - lost) / wall_s;
        if wall_s < self.limit.as_secs_f64() { rate.into() } else { Cell::Incomparable(rate, "cut off".to_owned()) }
    }
}

impl Phases {
    fn wall(&self, round: &Round) -> Cell {
        if self.cut_off {
            return Cell::Above(self.collected_s);
        }
        lossy(self.collected_s, self.lost, round.nodes, round.limit)
    }
}

/// A round that lost some replies did less work, and its values are still comparable. If it lost most replies or
/// reached its limit, the values only reflect the limit.
pub fn lossy(value: f64, lost: usize, of: usize, limit: Duration) -> Cell {
    let remark = || format!("{lost} of {of} lost");
    match lost {
        0 => Cell::Number(value),
        _ if 2 * lost > of || value >= limit.as_secs_f64() => Cell::Incomparable(value, remark()),
        _ => Cell::Remarked(value, remark()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_reported_and_large_losses_are_not_compared() {
        let limit = Duration::from_secs(90);
        let remark = |text: &str| text.to_owned();
        assert_eq!(lossy(5.0, 0, 10, limit), Cell::Number(5.0));
        assert_eq!(lossy(5.0, 2, 10, limit), Cell::Remarked(5.0, remark("2 of 10 lost")));
        assert_eq!(lossy(5.0, 6, 10, limit), Cell::Incomparable(5.0, remark("6 of 10 lost")));
        assert_eq!(lossy(90.0, 1, 10, limit), Cell::Incomparable(90.0, remark("1 of 10 lost")));
    }
}
