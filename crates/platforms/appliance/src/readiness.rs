//! What a VM says of itself, computed in one place from what the probes saw: nothing else says READY. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use trellis_one::keys;

use crate::settings::{Framework, Role};
use crate::trouble::Trouble;

/// Heartbeat interval of the agent. Each heartbeat costs the front-end two requests, and OneGate starts a process for
/// each to authenticate the caller.
pub const HEARTBEAT_S: i64 = 120;

/// READY is said no longer than this of a program that has ended: its end wakes the agent. What OneGate takes to answer comes on
/// top. Who is ended by the agent itself is not READY before that.
pub const END_NOTICED: Duration = Duration::from_secs(2);
/// The same of a program that is there and answers nobody: between two looks, and for the look itself.
pub const SILENCE_NOTICED: Duration = Duration::from_secs(8);

/// No attribute has this value.
const UNKNOWN: &str = "\0";

pub type Attributes = BTreeMap<String, String>;

/// How the programs are, just now. What nobody could say is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The SuperLink serves its Fleet API; the node is connected; the tunnel is up.
    pub serving: bool,
    pub busy: Option<bool>,
    pub draining: bool,
    /// Runs at work.
    pub runs: Option<u32>,
    /// Of the first of them.
    pub round: Option<Round>,
    pub node_id: Option<String>,
    /// Of nodes that are there.
    pub nodes: Option<u32>,
    /// Another for each start of the program; `None`: it does not run.
    pub instance: Option<String>,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    pub run: u64,
    /// The last that is over; 0: none yet.
    pub number: u64,
}

/// What is so, whatever the programs do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    pub report_ready: bool,
    pub version: String,
    pub tls: bool,
    pub generation: Option<String>,
    pub of: Option<Of>,
}

/// By role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    SuperLink { endpoint: String, control: String, http: String, trust: Option<String>, shards: Option<String> },
    SuperNode { framework: Framework, gpu: bool },
    Gateway,
}

impl Of {
    pub fn role(&self) -> Role {
        match self {
            Of::SuperLink { .. } => Role::SuperLink,
            Of::SuperNode { .. } => Role::SuperNode,
            Of::Gateway => Role::Gateway,
        }
    }
}

/// The attributes that the VM shall have. An empty one shall not be there.
pub fn attributes(standing: &Standing, seen: &Seen, trouble: Option<&Trouble>) -> Attributes {
    let mut all = Attributes::new();
    let mut say = |key: &str, value: String| all.insert(key.to_owned(), value);
    let yes = |is: bool| if is { "YES" } else { "NO" }.to_owned();
    // A wish that cannot be fulfilled is trouble, and what is in force serves on.
    let ready = seen.serving;
    if standing.report_ready {
        say(keys::READY, yes(ready));
    }
    say(keys::FL_ERROR, trouble.map(Trouble::attribute).unwrap_or_default());
    say(keys::FL_VERSION, standing.version.clone());
    say(keys::FL_TLS, yes(standing.tls));
    say(keys::TRELLIS_GENERATION, standing.generation.clone().unwrap_or_default());
    say(keys::TRELLIS_INSTANCE, seen.instance.clone().unwrap_or_default());
    say(keys::TRELLIS_BUSY, seen.busy.map(yes).unwrap_or_default());
    say(keys::TRELLIS_DRAINING, yes(seen.draining));
    let Some(of) = &standing.of else {
        return all;
    };
    say(keys::FL_ROLE, of.role().name().to_owned());
    match of {
        Of::SuperLink { endpoint, control, http, trust, shards } => {
            say(keys::FL_READY, yes(ready));
            say(keys::FL_ENDPOINT, endpoint.clone());
            say(keys::FL_CA_CERT, trust.as_ref().map(|pem| STANDARD.encode(pem)).unwrap_or_default());
            say(keys::TRELLIS_CONTROL, control.clone());
            say(keys::TRELLIS_HTTP, http.clone());
            say(keys::TRELLIS_RUNS, seen.runs.map(|runs| runs.to_string()).unwrap_or_default());
            say(keys::FL_ROUND_NUMBER, seen.round.as_ref().map(|round| round.number.to_string()).unwrap_or_default());
            say(keys::TRELLIS_SHARDS, shards.clone().unwrap_or_default());
        }
        Of::SuperNode { framework, gpu } => {
            let trains = seen.busy == Some(true);
            say(keys::FL_NODE_READY, yes(ready));
            say(keys::FL_NODE_ID, seen.node_id.clone().unwrap_or_default());
            say(keys::FL_FRAMEWORK, framework.name().to_owned());
            say(keys::FL_GPU_AVAILABLE, yes(*gpu));
            say(keys::FL_TRAINING_ACTIVE, yes(trains));
            say(
                keys::FL_CLIENT_STATUS,
                if !ready {
                    "3"
                } else if trains {
                    "2"
                } else {
                    "1"
                }
                .to_owned(),
            );
        }
        Of::Gateway => {}
    }
    all
}

/// What was said, so that only what is new is said again.
#[derive(Debug, Clone, Default)]
pub struct Publication {
    said: Attributes,
    at_s: Option<i64>,
}

/// One update, and what to take away after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub set: Attributes,
    pub erase: Vec<String>,
}

impl Publication {
    /// What has to be said now, if anything.
    pub fn due(&self, wanted: &Attributes, now_s: i64) -> Option<Update> {
        let has = |key: &String| self.said.get(key).map(String::as_str).unwrap_or_default();
        let new = wanted.iter().filter(|(key, value)| has(key) != value.as_str());
        let (erase, set): (Vec<_>, Vec<_>) = new.partition(|(_, value)| value.is_empty());
        let is_old = self.at_s.is_none_or(|at| now_s - at >= HEARTBEAT_S || now_s < at);
        if set.is_empty() && erase.is_empty() && !is_old {
            return None;
        }
        let mut set: Attributes = set.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        set.insert(keys::TRELLIS_SEEN.to_owned(), now_s.to_string());
        Some(Update { set, erase: erase.into_iter().map(|(key, _)| key.clone()).collect() })
    }

    /// It is on its way: whether it arrives is not known until somebody has looked.
    pub fn sending(&mut self, update: &Update) {
        for key in update.set.keys().chain(&update.erase) {
            self.said.insert(key.clone(), UNKNOWN.to_owned());
        }
    }

    /// It is said, and was read back.
    pub fn said(&mut self, update: &Update, now_s: i64) {
        self.said.extend(update.set.clone());
        for key in &update.erase {
            self.said.remove(key);
        }
        self.at_s = Some(now_s);
    }

    /// What the VM really has: somebody may have changed it, or said it in an earlier life.
    pub fn found(&mut self, attributes: &Attributes) {
        self.said = attributes.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trouble::Code;

    fn node() -> Standing {
        let of = Some(Of::SuperNode { framework: Framework::None, gpu: false });
        Standing { report_ready: true, version: "1.42.0".into(), tls: true, generation: None, of }
    }

    fn superlink() -> Standing {
        let (endpoint, control) = ("10.0.0.5:9092".to_owned(), "10.0.0.5:9093".to_owned());
        let of = Of::SuperLink { endpoint, control, http: String::new(), trust: Some("PEM".into()), shards: None };
        Standing { of: Some(of), ..node() }
    }

    #[test]
    fn ready_is_who_serves_and_nobody_else() {
        let trouble = Trouble::new(Code::PortBusy, "x");
        for (standing, key) in [(node(), "FL_NODE_READY"), (superlink(), "FL_READY")] {
            for (serving, trouble, expected) in
                [(true, None, "YES"), (false, None, "NO"), (true, Some(&trouble), "YES"), (false, Some(&trouble), "NO")]
            {
                let said = attributes(&standing, &Seen { serving, ..Seen::default() }, trouble);
                assert_eq!((said["READY"].as_str(), said[key].as_str()), (expected, expected));
                assert_eq!(said["FL_ERROR"].is_empty(), trouble.is_none());
            }
        }
    }

    #[test]
    fn a_node_tells_for_expressions_whether_it_trains() {
        for (serving, busy, expected) in [(true, Some(false), "1"), (true, Some(true), "2"), (false, Some(true), "3")] {
            let said = attributes(&node(), &Seen { serving, busy, ..Seen::default() }, None);
            assert_eq!(said["FL_CLIENT_STATUS"], expected);
        }
        assert_eq!(attributes(&node(), &Seen::default(), None)["TRELLIS_BUSY"], "", "nobody could say");
    }

    #[test]
    fn only_what_is_new_is_said_and_now_and_then_that_somebody_is_there() {
        let mut publication = Publication::default();
        let wanted = attributes(&superlink(), &Seen { serving: true, ..Seen::default() }, None);
        let first = publication.due(&wanted, 1000).expect("nothing was said yet");
        assert!(first.set.len() > 5 && first.erase.is_empty(), "{first:?}");
        publication.said(&first, 1000);
        assert_eq!(publication.due(&wanted, 1000 + HEARTBEAT_S - 1), None);
        let beat = publication.due(&wanted, 1000 + HEARTBEAT_S).expect("it is time");
        assert_eq!(beat.set.keys().collect::<Vec<_>>(), ["TRELLIS_SEEN"]);
        let trouble = Trouble::new(Code::PortBusy, "x");
        let bad = attributes(&superlink(), &Seen::default(), Some(&trouble));
        let update = publication.due(&bad, 1001).expect("it does not serve any more");
        assert_eq!(update.set["READY"], "NO");
        publication.said(&update, 1001);
        let update = publication.due(&wanted, 1002).expect("it serves again");
        assert_eq!((update.set["READY"].as_str(), update.erase), ("YES", vec!["FL_ERROR".to_owned()]));
    }

    #[test]
    fn what_may_have_been_said_or_not_is_said_again() {
        let mut publication = Publication::default();
        let not_ready = attributes(&node(), &Seen::default(), None);
        let first = publication.due(&not_ready, 1).expect("nothing was said yet");
        publication.said(&first, 1);
        let ready = attributes(&node(), &Seen { serving: true, ..Seen::default() }, None);
        // Sent, and nobody waited for the answer.
        publication.sending(&publication.due(&ready, 2).expect("it is ready now"));
        let last = publication.due(&not_ready, 3).expect("it may have been heard");
        assert_eq!(last.set["READY"], "NO");
    }

    #[test]
    fn what_others_changed_is_said_again() {
        let mut publication = Publication::default();
        let wanted = attributes(&node(), &Seen { serving: true, ..Seen::default() }, None);
        let first = publication.due(&wanted, 1).expect("nothing was said yet");
        publication.said(&first, 1);
        let mut found = first.set.clone();
        found.insert("READY".into(), "NO".into());
        publication.found(&found);
        assert_eq!(publication.due(&wanted, 2).expect("it differs").set["READY"], "YES");
    }
}
