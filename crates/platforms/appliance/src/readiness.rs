//! Attributes that a VM publishes, computed from probes. READY is computed only here. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use trellis_one::keys;

use crate::failure::Failure;
use crate::settings::{Framework, Role};

/// Heartbeat interval of the agent. Each heartbeat costs the front-end two requests, and OneGate starts a process for each to
/// authenticate the caller.
pub const HEARTBEAT_S: i64 = 120;

/// Maximum delay until READY=NO after a program ends, without the latency of OneGate. The end of a program wakes the agent.
/// Before the agent stops a program itself, it publishes READY=NO.
pub const MAX_END_DELAY: Duration = Duration::from_secs(2);
/// Maximum delay until READY=NO after a program hangs: the reconcile interval and the timeout of the probe.
pub const MAX_HANG_DELAY: Duration = Duration::from_secs(8);

/// A value that no attribute has.
const UNKNOWN: &str = "\0";

pub type Attributes = BTreeMap<String, String>;

/// Observed state of the programs. A value is `None` if it is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// The SuperLink serves its Fleet API, the node is connected, or the tunnel is up.
    pub serving: bool,
    pub busy: Option<bool>,
    pub draining: bool,
    /// Number of active runs.
    pub runs: Option<u32>,
    /// Progress of the first active run.
    pub round: Option<Round>,
    pub node_id: Option<String>,
    /// Number of connected nodes.
    pub nodes: Option<u32>,
    /// Differs for each start of the program; `None` if it does not run.
    pub instance: Option<String>,
}

/// Progress of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    pub run: u64,
    /// Last completed round; 0 if there is none.
    pub number: u64,
}

/// Attributes that do not depend on probes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    pub report_ready: bool,
    pub version: String,
    pub tls: bool,
    pub generation: Option<String>,
    pub of: Option<RoleProfile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleProfile {
    SuperLink { endpoint: String, control: String, http: String, trust: Option<String>, shards: Option<String> },
    SuperNode { framework: Framework, gpu: bool },
    Gateway,
}

impl RoleProfile {
    pub fn role(&self) -> Role {
        match self {
            RoleProfile::SuperLink { .. } => Role::SuperLink,
            RoleProfile::SuperNode { .. } => Role::SuperNode,
            RoleProfile::Gateway => Role::Gateway,
        }
    }
}

/// Attributes that the VM must have. An empty value means that the attribute must be absent.
pub fn attributes(profile: &Profile, observed: &Observed, failure: Option<&Failure>) -> Attributes {
    let mut all = Attributes::new();
    let mut set = |key: &str, value: String| all.insert(key.to_owned(), value);
    let yes = |is: bool| if is { "YES" } else { "NO" }.to_owned();
    // A failure does not affect READY: the programs in force may still serve.
    let ready = observed.serving;
    if profile.report_ready {
        set(keys::READY, yes(ready));
    }
    set(keys::FL_ERROR, failure.map(Failure::attribute).unwrap_or_default());
    set(keys::FL_VERSION, profile.version.clone());
    set(keys::FL_TLS, yes(profile.tls));
    set(keys::TRELLIS_GENERATION, profile.generation.clone().unwrap_or_default());
    set(keys::TRELLIS_INSTANCE, observed.instance.clone().unwrap_or_default());
    set(keys::TRELLIS_BUSY, observed.busy.map(yes).unwrap_or_default());
    set(keys::TRELLIS_DRAINING, yes(observed.draining));
    let Some(of) = &profile.of else {
        return all;
    };
    set(keys::FL_ROLE, of.role().name().to_owned());
    match of {
        RoleProfile::SuperLink { endpoint, control, http, trust, shards } => {
            set(keys::FL_READY, yes(ready));
            set(keys::FL_ENDPOINT, endpoint.clone());
            set(keys::FL_CA_CERT, trust.as_ref().map(|pem| STANDARD.encode(pem)).unwrap_or_default());
            set(keys::TRELLIS_CONTROL, control.clone());
            set(keys::TRELLIS_HTTP, http.clone());
            set(keys::TRELLIS_RUNS, observed.runs.map(|runs| runs.to_string()).unwrap_or_default());
            set(
                keys::FL_ROUND_NUMBER,
                observed.round.as_ref().map(|round| round.number.to_string()).unwrap_or_default(),
            );
            set(keys::TRELLIS_SHARDS, shards.clone().unwrap_or_default());
        }
        RoleProfile::SuperNode { framework, gpu } => {
            let trains = observed.busy == Some(true);
            set(keys::FL_NODE_READY, yes(ready));
            set(keys::FL_NODE_ID, observed.node_id.clone().unwrap_or_default());
            set(keys::FL_FRAMEWORK, framework.name().to_owned());
            set(keys::FL_GPU_AVAILABLE, yes(*gpu));
            set(keys::FL_TRAINING_ACTIVE, yes(trains));
            set(
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
        RoleProfile::Gateway => {}
    }
    all
}

/// Published attributes. Only changes are published.
#[derive(Debug, Clone, Default)]
pub struct Publication {
    published: Attributes,
    at_s: Option<i64>,
}

/// Attributes to set in one update, and attributes to erase after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub set: Attributes,
    pub erase: Vec<String>,
}

impl Publication {
    /// The update that is due, if any.
    pub fn due(&self, wanted: &Attributes, now_s: i64) -> Option<Update> {
        let has = |key: &String| self.published.get(key).map(String::as_str).unwrap_or_default();
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

    /// Marks the attributes as unknown, until a read-back confirms the update.
    pub fn begin(&mut self, update: &Update) {
        for key in update.set.keys().chain(&update.erase) {
            self.published.insert(key.clone(), UNKNOWN.to_owned());
        }
    }

    /// Marks the update as published and read back.
    pub fn confirm(&mut self, update: &Update, now_s: i64) {
        self.published.extend(update.set.clone());
        for key in &update.erase {
            self.published.remove(key);
        }
        self.at_s = Some(now_s);
    }

    /// Stores the attributes as OneGate returned them. Other programs may have changed them.
    pub fn observe(&mut self, attributes: &Attributes) {
        self.published = attributes.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    fn node() -> Profile {
        let of = Some(RoleProfile::SuperNode { framework: Framework::None, gpu: false });
        Profile { report_ready: true, version: "1.42.0".into(), tls: true, generation: None, of }
    }

    fn superlink() -> Profile {
        let (endpoint, control) = ("10.0.0.5:9092".to_owned(), "10.0.0.5:9093".to_owned());
        let of =
            RoleProfile::SuperLink { endpoint, control, http: String::new(), trust: Some("PEM".into()), shards: None };
        Profile { of: Some(of), ..node() }
    }

    #[test]
    fn only_a_serving_program_is_ready() {
        let failure = Failure::new(Code::PortBusy, "x");
        for (profile, key) in [(node(), "FL_NODE_READY"), (superlink(), "FL_READY")] {
            for (serving, failure, expected) in
                [(true, None, "YES"), (false, None, "NO"), (true, Some(&failure), "YES"), (false, Some(&failure), "NO")]
            {
                let published = attributes(&profile, &Observed { serving, ..Observed::default() }, failure);
                assert_eq!((published["READY"].as_str(), published[key].as_str()), (expected, expected));
                assert_eq!(published["FL_ERROR"].is_empty(), failure.is_none());
            }
        }
    }

    #[test]
    fn a_node_publishes_its_activity_as_a_number() {
        for (serving, busy, expected) in [(true, Some(false), "1"), (true, Some(true), "2"), (false, Some(true), "3")] {
            let published = attributes(&node(), &Observed { serving, busy, ..Observed::default() }, None);
            assert_eq!(published["FL_CLIENT_STATUS"], expected);
        }
        assert_eq!(attributes(&node(), &Observed::default(), None)["TRELLIS_BUSY"], "", "the state is unknown");
    }

    #[test]
    fn only_changes_and_heartbeats_are_published() {
        let mut publication = Publication::default();
        let wanted = attributes(&superlink(), &Observed { serving: true, ..Observed::default() }, None);
        let first = publication.due(&wanted, 1000).expect("the first update");
        assert!(first.set.len() > 5 && first.erase.is_empty(), "{first:?}");
        publication.confirm(&first, 1000);
        assert_eq!(publication.due(&wanted, 1000 + HEARTBEAT_S - 1), None);
        let beat = publication.due(&wanted, 1000 + HEARTBEAT_S).expect("a heartbeat");
        assert_eq!(beat.set.keys().collect::<Vec<_>>(), ["TRELLIS_SEEN"]);
        let failure = Failure::new(Code::PortBusy, "x");
        let bad = attributes(&superlink(), &Observed::default(), Some(&failure));
        let update = publication.due(&bad, 1001).expect("an update");
        assert_eq!(update.set["READY"], "NO");
        publication.confirm(&update, 1001);
        let update = publication.due(&wanted, 1002).expect("an update");
        assert_eq!((update.set["READY"].as_str(), update.erase), ("YES", vec!["FL_ERROR".to_owned()]));
    }

    #[test]
    fn unconfirmed_attributes_are_published_again() {
        let mut publication = Publication::default();
        let not_ready = attributes(&node(), &Observed::default(), None);
        let first = publication.due(&not_ready, 1).expect("the first update");
        publication.confirm(&first, 1);
        let ready = attributes(&node(), &Observed { serving: true, ..Observed::default() }, None);
        // The update was sent, but not confirmed.
        publication.begin(&publication.due(&ready, 2).expect("an update"));
        let last = publication.due(&not_ready, 3).expect("an update");
        assert_eq!(last.set["READY"], "NO");
    }

    #[test]
    fn attributes_that_others_changed_are_published_again() {
        let mut publication = Publication::default();
        let wanted = attributes(&node(), &Observed { serving: true, ..Observed::default() }, None);
        let first = publication.due(&wanted, 1).expect("the first update");
        publication.confirm(&first, 1);
        let mut observed = first.set.clone();
        observed.insert("READY".into(), "NO".into());
        publication.observe(&observed);
        assert_eq!(publication.due(&wanted, 2).expect("an update").set["READY"], "YES");
    }
}
