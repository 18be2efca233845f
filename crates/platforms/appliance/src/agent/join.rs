//! Discovery of a node's SuperLink, and the join call with which the node enrols its key.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trellis_client::{NodeKey, Security, SuperLink, Target, Timeouts, Trust};
use trellis_one::gate::{GateError, VmSnapshot};
use trellis_one::keys;
use trellis_wire::call::Join;

use super::Agent;
use super::gate::explained;
use crate::discovery::{self, Coordinator, Missing, Next, Poll, Requirements, Search};
use crate::failure::{Code, Failure};
use crate::settings::{Common, Role, Runtime, SuperNodeSettings};

/// Poll interval of a SuperLink that was found: its address may change.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The same interval while the node is not connected.
const DISCONNECTED_POLL_INTERVAL: Duration = Duration::from_secs(4);
/// A joined node that is disconnected for this long repeats the join call, to check that the SuperLink still knows
/// it.
const REJOIN_AFTER: Duration = Duration::from_secs(60);
/// Retry interval for a rejected token: the controller may replace the token meanwhile.
const REJECTED_RETRY_INTERVAL: Duration = Duration::from_secs(15);
const UNAUTHENTICATED: u16 = 401;
const FORBIDDEN: u16 = 403;
const JOIN_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
const SUPERLINK: &str = "superlink";
pub(super) const SUPERNODE: &str = "supernode";

/// Progress of discovery and enrolment.
#[derive(Debug, Default)]
pub struct Joining {
    search: Option<(Search, Instant)>,
    poll_at: Option<Instant>,
    /// Why the last poll found no SuperLink.
    failure: Option<Failure>,
    found: Option<Coordinator>,
    /// VM of the SuperLink, if it is known.
    vm: Option<u32>,
    enrolment: Enrolment,
    rejected: Option<RejectedToken>,
}

/// Whether the SuperLink knows the node's key.
#[derive(Debug, Default)]
enum Enrolment {
    #[default]
    Unknown,
    Joined,
    /// The node joined, and is disconnected since then.
    Disconnected(Instant),
}

#[derive(Debug)]
struct RejectedToken {
    token: String,
    at: Instant,
    failure: Failure,
}

impl Joining {
    /// Whether the node must join, or must repeat the join call because it is disconnected.
    fn is_due(&mut self, serving: bool, now: Instant) -> bool {
        let since = match self.enrolment {
            Enrolment::Unknown => return true,
            _ if serving => {
                self.enrolment = Enrolment::Joined;
                return false;
            }
            Enrolment::Joined => now,
            Enrolment::Disconnected(since) => since,
        };
        self.enrolment = Enrolment::Disconnected(since);
        now.duration_since(since) >= REJOIN_AFTER
    }

    /// The stored failure, while the retry interval of a rejected token has not passed.
    fn rejection(&self, token: &str, now: Instant) -> Option<Failure> {
        let rejected = self.rejected.as_ref().filter(|rejected| rejected.token == token)?;
        (now.duration_since(rejected.at) < REJECTED_RETRY_INTERVAL).then(|| rejected.failure.clone())
    }
}

impl Agent {
    /// The SuperLink that the node connects to.
    pub(super) async fn coordinator(
        &mut self,
        common: &Common,
        node: &SuperNodeSettings,
    ) -> Result<Coordinator, Failure> {
        if let Some(endpoint) = node.coordinator.clone() {
            let trust = match (&node.trust, common.tls) {
                (Some(trust), true) => Some(trust.clone()),
                (None, true) => self.published_trust().await,
                _ => None,
            };
            let (version, http, shard) = (None, None, None);
            return Ok(Coordinator { endpoint, trust, version, http, shard });
        }
        if self.gate.client().is_none() {
            let what = "FL_SUPERLINK_ADDRESS is not set, and there is no OneGate to discover the SuperLink";
            return Err(Failure::new(Code::NoToken, what));
        }
        if self.joining.poll_at.is_none_or(|at| at <= Instant::now()) {
            let look = self.discover(common, node).await;
            self.discovered(look, node)?;
        }
        match (&self.joining.found, &self.joining.failure) {
            (Some(found), _) => Ok(found.clone()),
            (None, Some(failure)) => Err(failure.clone()),
            (None, None) => Err(Failure::new(Code::DiscoveryTimeout, "no SuperLink was found yet")),
        }
    }

    /// Stores the result of a poll, and schedules the next one.
    fn discovered(&mut self, look: Poll, node: &SuperNodeSettings) -> Result<(), Failure> {
        let interval = if self.state.observed().serving { POLL_INTERVAL } else { DISCONNECTED_POLL_INTERVAL };
        let joining = &mut self.joining;
        if let (Some(_), false) = (&joining.found, matches!(look, Poll::Found(_))) {
            // The node keeps the last address until the SuperLink is back.
            joining.poll_at = Some(Instant::now() + interval);
            return Ok(());
        }
        let (search, began) = joining.search.get_or_insert_with(|| (Search::new(node.backoff, None), Instant::now()));
        match search.next(look, began.elapsed(), jitter()) {
            Next::Join(found) => {
                joining.poll_at = Some(Instant::now() + interval);
                joining.search = None;
                joining.failure = None;
                if joining.found.as_ref() != Some(&found) {
                    tracing::info!(endpoint = %found.endpoint, "the SuperLink is found");
                    joining.enrolment = Enrolment::Unknown;
                    joining.found = Some(found.clone());
                    self.memory.coordinator = Some(found);
                    self.save_memory();
                }
                Ok(())
            }
            Next::RetryAfter(delay, failure) => {
                joining.poll_at = Some(Instant::now() + delay);
                joining.failure = Some(failure);
                Ok(())
            }
            Next::GiveUp(failure) => {
                joining.search = None;
                joining.poll_at = None;
                Err(failure)
            }
        }
    }

    async fn discover(&mut self, common: &Common, node: &SuperNodeSettings) -> Poll {
        let Some(client) = self.gate.client() else { return Poll::Missing(Missing::NoSuperLink) };
        let names_shard = node.node_config.contains_key("partition-id");
        let wanted = Requirements {
            vm: client.vm_id().into(),
            tls: common.tls,
            trust: node.trust.clone(),
            official: match common.runtime {
                Runtime::Trellis => None,
                Runtime::Flower { .. } => common.flower_version.clone(),
            },
            shard: common.part.is_none() && !names_shard,
        };
        let vm = match self.superlink_vm().await {
            Ok(Some(vm)) => vm,
            Ok(None) => return Poll::Missing(Missing::NoSuperLink),
            Err(GateError::Unauthorised) => return Poll::Unauthorised(GateError::Unauthorised.to_string()),
            Err(error) if error.is_transient() => return Poll::Unreachable(explained(&error)),
            // The SuperLink belongs to another service, or this VM belongs to none.
            Err(_) => return Poll::Missing(Missing::NoSuperLink),
        };
        let waited = self.joining.search.as_ref().map(|(_, began)| began.elapsed()).unwrap_or_default();
        let found = match discovery::read(&vm.attributes, &wanted) {
            // The table may belong to a controller that does not know this VM. The node starts without a shard.
            Err(Missing::Shard) if !Search::waits_for_shard(waited) => {
                discovery::read(&vm.attributes, &Requirements { shard: false, ..wanted })
            }
            found => found,
        };
        found.map_or_else(Poll::Missing, Poll::Found)
    }

    /// Reads the SuperLink's VM. The VMs in OneGate's response for the service may be outdated.
    async fn superlink_vm(&mut self) -> Result<Option<VmSnapshot>, GateError> {
        let Some(client) = self.gate.client() else { return Ok(None) };
        if let Some(id) = self.joining.vm {
            match client.vm_of_service(id).await {
                Ok(vm) => return Ok(Some(vm)),
                Err(error) if error.is_transient() => return Err(error),
                // Another VM has the role now.
                Err(_) => self.joining.vm = None,
            }
        }
        let service = client.service().await?;
        let Some(node) = service.role(SUPERLINK).and_then(|role| role.nodes.first()) else { return Ok(None) };
        self.joining.vm = Some(node.deploy_id);
        client.vm_of_service(node.deploy_id).await.map(Some)
    }

    /// Authority of a SuperLink that is configured by address, if its VM belongs to the same service and publishes one.
    async fn published_trust(&mut self) -> Option<String> {
        if let Some(found) = self.memory.coordinator.as_ref().filter(|_| self.current.is_some()) {
            return found.trust.clone();
        }
        let vm = self.superlink_vm().await.ok().flatten()?;
        let wanted = Requirements { vm: 0, tls: true, trust: None, official: None, shard: false };
        discovery::read(&vm.attributes, &wanted).ok()?.trust
    }

    /// Enrols the node's key at the SuperLink if there is a join token. Returns the path of the key.
    pub(super) async fn join(
        &mut self,
        node: &SuperNodeSettings,
        found: &Coordinator,
    ) -> Result<Option<PathBuf>, Failure> {
        let Some(token) = &node.join_token else { return Ok(None) };
        let path = self.place.service(Role::SuperNode).join("joined.key");
        let now = Instant::now();
        if !self.joining.is_due(self.state.observed().serving, now) {
            return Ok(Some(path));
        }
        if let Some(failure) = self.joining.rejection(token, now) {
            return Err(failure);
        }
        let failed = |what: String| Failure::new(Code::HealthCheckTimeout, format!("the node cannot join: {what}"));
        let key = match NodeKey::read(&path).map_err(|error| failed(explained(&error)))? {
            Some(key) => key,
            None => NodeKey::generate(&path, "appliance").map_err(|error| failed(explained(&error)))?,
        };
        crate::disk::give_all(&path, self.owner).map_err(|error| failed(error.to_string()))?;
        let superlink = self.client(found).map_err(failed)?;
        let name = self.node_name();
        let call = Join { token: token.clone(), public_key: key.public_pem(), name, location: String::new() };
        if let Enrolment::Disconnected(_) = self.joining.enrolment {
            self.joining.enrolment = Enrolment::Joined;
        }
        match superlink.call_as_node(&call, &key).await {
            Ok(_) => {
                self.joining.enrolment = Enrolment::Joined;
                self.joining.rejected = None;
                Ok(Some(path))
            }
            Err(error) => match rejected(token, &call.name, &error) {
                Some(failure) => {
                    let token = token.clone();
                    self.joining.rejected = Some(RejectedToken { token, at: now, failure: failure.clone() });
                    Err(failure)
                }
                // The node joined before and its key is valid: the join call is repeated later.
                None if matches!(self.joining.enrolment, Enrolment::Joined) => Ok(Some(path)),
                None => Err(failed(explained(&error))),
            },
        }
    }

    /// Client for the SuperLink's Fleet API. It also serves the join call, so nodes need no other open port.
    fn client(&self, found: &Coordinator) -> Result<SuperLink, String> {
        let (host, port) = fleet_address(&found.endpoint)?;
        let security = match &found.trust {
            None => Security::Plaintext,
            Some(_) => Security::Tls(Trust::bundle(&self.place.trust()).map_err(|error| error.to_string())?),
        };
        let timeouts = Timeouts { connect: JOIN_CONNECT_TIMEOUT, answer: JOIN_TIMEOUT, retries: Vec::new() };
        Ok(SuperLink::new(Target { host, port, security, token: None }).with_timeouts(timeouts))
    }

    /// Name of the node: the last segment of its part, or its VM.
    pub(super) fn node_name(&self) -> String {
        let part = self.inputs.settings.as_ref().and_then(|settings| settings.common.part.as_ref());
        let part = part.and_then(|part| part.rsplit('/').next()).map(str::to_owned);
        let vm = || self.gate.client().map(|client| format!("vm-{}", client.vm_id()));
        part.or_else(vm).unwrap_or_else(|| "node".to_owned())
    }
}

/// Splits `host:port`; removes the brackets of an IPv6 address.
fn fleet_address(endpoint: &str) -> Result<(String, u16), String> {
    let wrong = || format!("{endpoint} is not the address of a Fleet API, host:port");
    let (host, port) = endpoint.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    Ok((host.trim_matches(['[', ']']).to_owned(), port))
}

/// The error if the SuperLink rejects the token, which no retry repairs. A controller reads the mark and issues a new
/// token.
fn rejected(token: &str, node: &str, error: &trellis_client::Error) -> Option<Failure> {
    let trellis_client::Error::Refused { status: UNAUTHENTICATED | FORBIDDEN, detail, .. } = error else { return None };
    let mark = keys::token_mark(token, node);
    Some(Failure::new(Code::JoinRefused, format!("{mark} the SuperLink rejects the join token: {detail}")))
}

/// A number between 0 and 1 that differs between nodes.
fn jitter() -> f64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    f64::from(nanos % 1000) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failure_of_a_rejected_token_names_its_mark() {
        let error = |status| {
            let (endpoint, detail) = ("https://x".to_owned(), "The join token is not valid.".to_owned());
            trellis_client::Error::Refused { endpoint, call: "join", status, detail }
        };
        let failure = rejected("secret", "cpu-0", &error(401)).expect("the token is rejected");
        let text = failure.attribute();
        assert!(text.starts_with(&format!("join_refused: {} ", keys::token_mark("secret", "cpu-0"))), "{text}");
        assert!(!text.contains("secret"), "{text}");
        assert!(rejected("secret", "cpu-0", &error(503)).is_none());
    }

    #[test]
    fn the_join_call_uses_the_fleet_address() {
        for (endpoint, expected) in [
            ("10.0.0.4:9092", Ok(("10.0.0.4".to_owned(), 9092))),
            ("[fd00::4]:9443", Ok(("fd00::4".to_owned(), 9443))),
            ("fl.example.org:9092", Ok(("fl.example.org".to_owned(), 9092))),
        ] {
            assert_eq!(fleet_address(endpoint), expected);
        }
        assert!(fleet_address("fl.example.org").is_err());
    }

    #[test]
    fn a_joined_node_repeats_the_call_after_a_long_disconnection() {
        let (mut joining, begin) = (Joining::default(), Instant::now());
        assert!(joining.is_due(false, begin), "the node has not joined yet");
        joining.enrolment = Enrolment::Joined;
        for (serving, after_s, due) in [
            (true, 0, false),
            (false, 1, false),
            (false, 60, false),
            (false, 61, true),
            (true, 62, false),
            (false, 100, false),
        ] {
            assert_eq!(joining.is_due(serving, begin + Duration::from_secs(after_s)), due, "after {after_s} s");
        }
    }

    #[test]
    fn a_rejected_token_is_retried_later_and_a_new_one_at_once() {
        let at = Instant::now();
        let failure = Failure::new(Code::JoinRefused, "x");
        let rejected = Some(RejectedToken { token: "old".to_owned(), at, failure });
        let joining = Joining { rejected, ..Joining::default() };
        assert!(joining.rejection("old", at).is_some() && joining.rejection("new", at).is_none());
        assert!(joining.rejection("old", at + REJECTED_RETRY_INTERVAL).is_none());
    }
}
