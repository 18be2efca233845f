//! Nodes at a real SuperLink: their names in lists, and drained nodes.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::superlink::{Security, SuperLink, good};

/// Far longer than any step, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Node(Child);

impl Node {
    fn start(link: &SuperLink, index: usize) -> Node {
        let (name, directory) = (format!("pool-{index}"), format!("node-{index}"));
        let data = format!("partition-id={index} num-partitions=2");
        let words = ["supernode", "--name", &name, "--state-dir", &directory, "--node-config", &data];
        let mut command = link.command(&Security::Plaintext, None, &words);
        Node(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts"))
    }

    fn stop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The values in a command's output.
fn trellis(link: &SuperLink, words: &[&str]) -> Vec<Value> {
    let output = link.command(&Security::Plaintext, None, &[words, &["-o", "json"]].concat()).output();
    let printed = good(&output.expect("the binary runs"));
    serde_json::Deserializer::from_str(&printed).into_iter().map(|value| value.expect("JSON")).collect()
}

/// Waits until the nodes have these names and states.
fn until(link: &SuperLink, wanted: [(&str, &str, bool); 2]) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let listed = trellis(link, &["nodes"]).remove(0);
        let mut nodes = listed["nodes"].as_array().expect("nodes").clone();
        nodes.sort_by_key(|node| node["name"].to_string());
        let is_so = |(node, (name, status, draining)): (&Value, &(&str, &str, bool))| {
            node["name"] == *name && node["status"] == *status && node["draining"] == *draining
        };
        if nodes.len() == wanted.len() && nodes.iter().zip(&wanted).all(is_so) {
            return nodes;
        }
        assert!(Instant::now() < deadline, "{listed}");
    }
}

/// The nodes that took part in the training of a run of two rounds.
fn trained(link: &SuperLink) -> Vec<String> {
    let words = ["run", "native:logistic", "--rounds", "2", "--min-train-nodes", "1", "--min-evaluate-nodes", "1"];
    let told = trellis(link, &[&words[..], &["--min-available-nodes", "1"]].concat());
    let mut nodes: Vec<String> = Vec::new();
    for clients in told.iter().filter_map(|line| line.pointer("/train/clients")?.as_array()) {
        nodes.extend(clients.iter().map(|client| client["node"].as_str().expect("a node").to_owned()));
    }
    nodes.sort();
    nodes.dedup();
    nodes
}

fn drain(link: &SuperLink, more: &str) -> String {
    let words = ["supernode", "drain", "--state-dir", "node-1", more];
    good(&link.alone(&words).output().expect("the binary runs"))
}

#[test]
fn a_node_that_drains_finishes_what_it_has_and_is_not_chosen() {
    let link = SuperLink::to_try_out();
    let (_first, mut second) = (Node::start(&link, 0), Node::start(&link, 1));
    let nodes = until(&link, [("pool-0", "online", false), ("pool-1", "online", false)]);
    let id = |index: usize| nodes[index]["id"].as_str().expect("an id").to_owned();
    let mut both = vec![id(0), id(1)];
    both.sort();
    assert_eq!(trained(&link), both);

    assert_eq!(drain(&link, "--wait"), "The node takes no new work, and has no unfinished work.\n");
    until(&link, [("pool-0", "online", false), ("pool-1", "online", true)]);
    assert_eq!(trained(&link), [id(0)]);
    assert_eq!(drain(&link, "--undo"), "The node takes new work.\n");
    until(&link, [("pool-0", "online", false), ("pool-1", "online", false)]);
    assert_eq!(trained(&link), both, "and it works again");

    drain(&link, "--wait");
    second.stop();
    until(&link, [("pool-0", "online", false), ("pool-1", "offline", false)]);
    let _second = Node::start(&link, 1);
    until(&link, [("pool-0", "online", false), ("pool-1", "online", false)]);
}
