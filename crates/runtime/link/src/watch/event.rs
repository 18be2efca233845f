//! Events of a federation with fixed names and fields, for logs and programs.
//!
//! Names and fields are a contract with monitoring tools (docs/monitoring.md): never rename, only add. This module does
//! not decide when an event happens.

use std::fmt;

use serde::Serialize;
use trellis_core::id::NodeId;

/// An event. Serialised as its data; unknown values are `null`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Event {
    TrainingStart {
        strategy: Option<String>,
        num_rounds: Option<u64>,
        min_clients: Option<u64>,
    },
    RoundStart {
        round: u64,
        num_clients_selected: usize,
        strategy: Option<String>,
    },
    RoundEnd {
        round: u64,
        num_clients_responded: usize,
        aggregated_loss: Option<f64>,
        aggregated_accuracy: Option<f64>,
        round_duration_seconds: f64,
    },
    TrainingEnd {
        total_rounds: u64,
        final_loss: Option<f64>,
        final_accuracy: Option<f64>,
        total_duration_seconds: f64,
    },
    ClientJoin {
        node_id: NodeText,
        client_address: Option<String>,
    },
    ClientLeave {
        node_id: NodeText,
        reason: &'static str,
    },
    EvaluationResult {
        round: u64,
        loss: Option<f64>,
        accuracy: Option<f64>,
        num_examples: Option<u64>,
    },
    ClientFailure {
        round: u64,
        node_id: NodeText,
        error_type: &'static str,
    },
    CheckpointSaved {
        round: u64,
        path: String,
        size_bytes: Option<u64>,
    },
    TrainingStalled {
        round: u64,
        waiting_since_seconds: f64,
        connected_clients: usize,
        required_clients: u64,
    },
}

/// A node id as a string: many JSON readers keep only 53 bits of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeText(pub NodeId);

impl Serialize for NodeText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Event {
    pub fn name(&self) -> &'static str {
        match self {
            Event::TrainingStart { .. } => "training_start",
            Event::RoundStart { .. } => "round_start",
            Event::RoundEnd { .. } => "round_end",
            Event::TrainingEnd { .. } => "training_end",
            Event::ClientJoin { .. } => "client_join",
            Event::ClientLeave { .. } => "client_leave",
            Event::EvaluationResult { .. } => "evaluation_result",
            Event::ClientFailure { .. } => "client_failure",
            Event::CheckpointSaved { .. } => "checkpoint_saved",
            Event::TrainingStalled { .. } => "training_stalled",
        }
    }

    /// Needs attention.
    pub fn is_warning(&self) -> bool {
        matches!(self, Event::ClientFailure { .. } | Event::TrainingStalled { .. })
    }

    /// Returns the data as a JSON object.
    pub fn data(&self) -> String {
        serde_json::to_string(self).expect("names are text and values are plain")
    }
}

/// A sentence for people.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::TrainingStart { strategy, num_rounds, min_clients } => {
                f.write_str("training started")?;
                let strategy = strategy.as_ref().map(|name| format!("strategy {name}"));
                let rounds = num_rounds.map(|number| count(number, "round"));
                let clients = min_clients.map(|number| format!("at least {}", count(number, "client")));
                listed(f, [strategy, rounds, clients])
            }
            Event::RoundStart { round, num_clients_selected, .. } => {
                write!(f, "round {round} started with {}", count(*num_clients_selected as u64, "client"))
            }
            Event::RoundEnd {
                round,
                num_clients_responded,
                aggregated_loss,
                aggregated_accuracy,
                round_duration_seconds,
            } => {
                write!(f, "round {round} ended after {round_duration_seconds:.1} s")?;
                let clients = count(*num_clients_responded as u64, "client");
                listed(f, [Some(clients), loss(aggregated_loss), accuracy(aggregated_accuracy)])
            }
            Event::TrainingEnd { total_rounds, final_loss, final_accuracy, total_duration_seconds } => {
                let rounds = count(*total_rounds, "round");
                write!(f, "training ended after {rounds} and {total_duration_seconds:.1} s")?;
                listed(f, [loss(final_loss), accuracy(final_accuracy), None])
            }
            Event::ClientJoin { node_id, client_address: Some(address) } => {
                write!(f, "node {} joined from {address}", node_id.0)
            }
            Event::ClientJoin { node_id, client_address: None } => write!(f, "node {} joined", node_id.0),
            Event::ClientLeave { node_id, reason } => write!(f, "node {} left: {reason}", node_id.0),
            Event::EvaluationResult { round, loss: mean_loss, accuracy: mean_accuracy, num_examples } => {
                write!(f, "round {round} was evaluated")?;
                let examples = num_examples.map(|number| count(number, "example"));
                listed(f, [loss(mean_loss), accuracy(mean_accuracy), examples])
            }
            Event::ClientFailure { round, node_id, error_type } => {
                write!(f, "node {} failed in round {round}: {error_type}", node_id.0)
            }
            Event::CheckpointSaved { round, path, size_bytes } => {
                write!(f, "the model of round {round} was saved in {path}")?;
                listed(f, [size_bytes.map(|number| count(number, "byte")), None, None])
            }
            Event::TrainingStalled { round, waiting_since_seconds, connected_clients, required_clients } => {
                let connected = count(*connected_clients as u64, "client");
                write!(
                    f,
                    "round {round} has made no progress for {waiting_since_seconds:.0} s: {connected} connected, \
                     {required_clients} needed"
                )
            }
        }
    }
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn loss(value: &Option<f64>) -> Option<String> {
    value.map(|value| format!("loss {value:.4}"))
}

fn accuracy(value: &Option<f64>) -> Option<String> {
    value.map(|value| format!("accuracy {value:.4}"))
}

/// Writes `: a, b` with the known parts, or nothing.
fn listed(f: &mut fmt::Formatter<'_>, parts: [Option<String>; 3]) -> fmt::Result {
    for (index, part) in parts.into_iter().flatten().enumerate() {
        write!(f, "{}{part}", if index == 0 { ": " } else { ", " })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeText = NodeText(NodeId(u64::MAX));

    /// Checks name, data and sentence of every event.
    #[test]
    fn contract() {
        let strategy = Some("FedAvg".to_owned());
        let events = [
            Event::TrainingStart { strategy: strategy.clone(), num_rounds: Some(3), min_clients: Some(2) },
            Event::TrainingStart { strategy: None, num_rounds: None, min_clients: None },
            Event::RoundStart { round: 1, num_clients_selected: 1, strategy },
            Event::RoundEnd {
                round: 1,
                num_clients_responded: 2,
                aggregated_loss: Some(0.5),
                aggregated_accuracy: None,
                round_duration_seconds: 3.25,
            },
            Event::TrainingEnd {
                total_rounds: 3,
                final_loss: Some(f64::NAN),
                final_accuracy: Some(0.75),
                total_duration_seconds: 12.0,
            },
            Event::ClientJoin { node_id: NODE, client_address: Some("10.0.0.1:5000".into()) },
            Event::ClientLeave { node_id: NODE, reason: "no heartbeat" },
            Event::EvaluationResult { round: 2, loss: None, accuracy: Some(1.0), num_examples: Some(40) },
            Event::ClientFailure { round: 2, node_id: NODE, error_type: "node_unavailable" },
            Event::CheckpointSaved { round: 2, path: "models/7/round-000002".into(), size_bytes: Some(1024) },
            Event::CheckpointSaved { round: 3, path: "m".into(), size_bytes: None },
            Event::TrainingStalled {
                round: 2,
                waiting_since_seconds: 600.0,
                connected_clients: 1,
                required_clients: 2,
            },
        ];
        let reported: String = events
            .iter()
            .map(|event| {
                let level = if event.is_warning() { "warn" } else { "info" };
                format!("{level} {} {}\n  {event}\n", event.name(), event.data())
            })
            .collect();
        assert_eq!(
            reported,
            r#"info training_start {"strategy":"FedAvg","num_rounds":3,"min_clients":2}
  training started: strategy FedAvg, 3 rounds, at least 2 clients
info training_start {"strategy":null,"num_rounds":null,"min_clients":null}
  training started
info round_start {"round":1,"num_clients_selected":1,"strategy":"FedAvg"}
  round 1 started with 1 client
info round_end {"round":1,"num_clients_responded":2,"aggregated_loss":0.5,"aggregated_accuracy":null,"round_duration_seconds":3.25}
  round 1 ended after 3.2 s: 2 clients, loss 0.5000
info training_end {"total_rounds":3,"final_loss":null,"final_accuracy":0.75,"total_duration_seconds":12.0}
  training ended after 3 rounds and 12.0 s: loss NaN, accuracy 0.7500
info client_join {"node_id":"18446744073709551615","client_address":"10.0.0.1:5000"}
  node 18446744073709551615 joined from 10.0.0.1:5000
info client_leave {"node_id":"18446744073709551615","reason":"no heartbeat"}
  node 18446744073709551615 left: no heartbeat
info evaluation_result {"round":2,"loss":null,"accuracy":1.0,"num_examples":40}
  round 2 was evaluated: accuracy 1.0000, 40 examples
warn client_failure {"round":2,"node_id":"18446744073709551615","error_type":"node_unavailable"}
  node 18446744073709551615 failed in round 2: node_unavailable
info checkpoint_saved {"round":2,"path":"models/7/round-000002","size_bytes":1024}
  the model of round 2 was saved in models/7/round-000002: 1024 bytes
info checkpoint_saved {"round":3,"path":"m","size_bytes":null}
  the model of round 3 was saved in m
warn training_stalled {"round":2,"waiting_since_seconds":600.0,"connected_clients":1,"required_clients":2}
  round 2 has made no progress for 600 s: 1 client connected, 2 needed
"#
        );
    }
}
