//! How the agent of a node finds its SuperLink and keeps finding it; and how that of a SuperLink keeps the table of shards.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trellis_client::{NodeKey, Patience, Security, SuperLink, Target, Trust};
use trellis_one::gate::{GateError, VmSnapshot};
use trellis_one::keys;
use trellis_wire::call::Join;

use super::Agent;
use super::look::explained;
use crate::discovery::{self, Coordinator, Look, Missing, Next, Search, Wanted};
use crate::settings::{Common, Role, Runtime, SuperNodeSettings};
use crate::trouble::{Code, Trouble};

/// A SuperLink that was found is looked at again: it may have moved.
const WATCH: Duration = Duration::from_secs(60);
/// While the node is not connected, sooner.
const WORRY: Duration = Duration::from_secs(4);
/// First poll interval for new nodes; it doubles after each poll without one, up to [`IDLE_SHARDS`]. Nodes wait
/// longer than that for their shard.
pub(super) const SHARDS: Duration = Duration::from_secs(3);
pub(super) const IDLE_SHARDS: Duration = Duration::from_secs(15);
/// A joined node that is disconnected for this long repeats the join call, to check that the SuperLink still knows
/// it.
const REJOIN_AFTER: Duration = Duration::from_secs(60);
/// Retry interval for a refused token: the controller may replace the token meanwhile.
const REFUSED_PAUSE: Duration = Duration::from_secs(15);
const UNAUTHENTICATED: u16 = 401;
const FORBIDDEN: u16 = 403;
const JOIN_CONNECT: Duration = Duration::from_secs(5);
const JOIN_ANSWER: Duration = Duration::from_secs(10);
const SUPERLINK: &str = "superlink";
const SUPERNODE: &str = "supernode";

/// The search for a SuperLink, or the watch over one.
#[derive(Debug, Default)]
pub struct Joining {
    search: Option<(Search, Instant)>,
    look_at: Option<Instant>,
    /// Why the last look was not enough.
    trouble: Option<Trouble>,
    found: Option<Coordinator>,
    /// The VM of the SuperLink, once it was seen.
    vm: Option<u32>,
    joined: bool,
    /// Start of the current disconnection of a joined node.
    away: Option<Instant>,
    refused: Option<RefusedToken>,
}

#[derive(Debug)]
struct RefusedToken {
    token: String,
    at: Instant,
    trouble: Trouble,
}

impl Joining {
    /// Whether the node must join, or must repeat the join call because it is disconnected.
    fn is_due(&mut self, serving: bool, now: Instant) -> bool {
        if !self.joined {
            return true;
        }
        if serving {
            self.away = None;
            return false;
        }
        now.duration_since(*self.away.get_or_insert(now)) >= REJOIN_AFTER
    }

    /// The stored error, while the retry interval of a refused token has not passed.
    fn refusal(&self, token: &str, now: Instant) -> Option<Trouble> {
        let refused = self.refused.as_ref().filter(|refused| refused.token == token)?;
        (now.duration_since(refused.at) < REFUSED_PAUSE).then(|| refused.trouble.clone())
    }
}

impl Agent {
    /// Whom the node joins.
    pub(super) async fn coordinator(
        &mut self,
        common: &Common,
        node: &SuperNodeSettings,
    ) -> Result<Coordinator, Trouble> {
        if let Some(endpoint) = node.coordinator.clone() {
            let trust = match (&node.trust, common.tls) {
                (Some(trust), true) => Some(trust.clone()),
                (None, true) => self.published_trust().await,
                _ => None,
            };
            let (version, http, shard) = (None, None, None);
            return Ok(Coordinator { endpoint, trust, version, http, shard });
        }
        if self.gate.is_none() {
            let what = "FL_SUPERLINK_ADDRESS is not said, and there is no OneGate to find the SuperLink with";
            return Err(Trouble::new(Code::NoToken, what));
        }
        let is_due = self.joining.look_at.is_none_or(|at| at <= Instant::now());
        if is_due {
            let look = self.seek(common, node).await;
            self.take(look, node)?;
        }
        match (&self.joining.found, &self.joining.trouble) {
            (Some(found), _) => Ok(found.clone()),
            (None, Some(trouble)) => Err(trouble.clone()),
            (None, None) => Err(Trouble::new(Code::DiscoveryTimeout, "no SuperLink was found yet")),
        }
    }

    /// What a look means: it is taken, waited for, or given up.
    fn take(&mut self, look: Look, node: &SuperNodeSettings) -> Result<(), Trouble> {
        let is_worried = !self.seen.serving;
        let joining = &mut self.joining;
        if let (Some(_), false) = (&joining.found, matches!(look, Look::Found(_))) {
            // It is not there just now; the node waits for it where it was.
            joining.look_at = Some(Instant::now() + if is_worried { WORRY } else { WATCH });
            return Ok(());
        }
        let (search, began) = joining.search.get_or_insert_with(|| (Search::new(node.backoff, None), Instant::now()));
        match search.next(look, began.elapsed(), chance()) {
            Next::Join(found) => {
                joining.look_at = Some(Instant::now() + if is_worried { WORRY } else { WATCH });
                joining.search = None;
                joining.trouble = None;
                if joining.found.as_ref() != Some(&found) {
                    tracing::info!(endpoint = %found.endpoint, "the SuperLink is found");
                    joining.joined = false;
                    joining.found = Some(found.clone());
                    self.memory.coordinator = Some(found);
                    self.remember();
                }
                Ok(())
            }
            Next::AgainAfter(pause, trouble) => {
                joining.look_at = Some(Instant::now() + pause);
                joining.trouble = Some(trouble);
                Ok(())
            }
            Next::GiveUp(trouble) => {
                joining.search = None;
                joining.look_at = None;
                Err(trouble)
            }
        }
    }

    async fn seek(&mut self, common: &Common, node: &SuperNodeSettings) -> Look {
        let Some(gate) = &self.gate else { return Look::Missing(Missing::NoSuperLink) };
        let names_shard = node.node_config.contains_key("partition-id");
        let wanted = Wanted {
            vm: gate.vm_id().into(),
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
            Ok(None) => return Look::Missing(Missing::NoSuperLink),
            Err(GateError::Unauthorised) => return Look::Unauthorised(GateError::Unauthorised.to_string()),
            Err(error) if error.may_pass() => return Look::Unreachable(explained(&error)),
            // OneGate answers, and shows us no SuperLink: it is of another service, or we are of none.
            Err(_) => return Look::Missing(Missing::NoSuperLink),
        };
        let waited = self.joining.search.as_ref().map(|(_, began)| began.elapsed()).unwrap_or_default();
        match discovery::read(&vm.attributes, &wanted) {
            // Somebody may keep the table who does not know us: a node without a shard is better than none.
            Err(Missing::Shard) if !Search::waits_for_shard(waited) => {
                let found = discovery::read(&vm.attributes, &Wanted { shard: false, ..wanted });
                found.map_or_else(Look::Missing, Look::Found)
            }
            found => found.map_or_else(Look::Missing, Look::Found),
        }
    }

    /// The SuperLink's VM as it is now: asked by itself, since a service's view of its VMs may be old.
    async fn superlink_vm(&mut self) -> Result<Option<VmSnapshot>, GateError> {
        let Some(gate) = &self.gate else { return Ok(None) };
        if let Some(id) = self.joining.vm {
            match gate.vm_of_service(id).await {
                Ok(vm) => return Ok(Some(vm)),
                Err(error) if error.may_pass() => return Err(error),
                // It is another VM now.
                Err(_) => self.joining.vm = None,
            }
        }
        let service = gate.service().await?;
        let Some(node) = service.role(SUPERLINK).and_then(|role| role.nodes.first()) else { return Ok(None) };
        self.joining.vm = Some(node.deploy_id);
        gate.vm_of_service(node.deploy_id).await.map(Some)
    }

    /// Of a SuperLink that is named by its address: an authority that its VM has told, if it is of our service.
    async fn published_trust(&mut self) -> Option<String> {
        if let Some(found) = self.memory.coordinator.as_ref().filter(|_| self.recipe.is_some()) {
            return found.trust.clone();
        }
        let vm = self.superlink_vm().await.ok().flatten()?;
        let wanted = Wanted { vm: 0, tls: true, trust: None, official: None, shard: false };
        discovery::read(&vm.attributes, &wanted).ok()?.trust
    }

    /// With node authentication: makes the node's key known, once for each SuperLink.
    pub(super) async fn join(
        &mut self,
        node: &SuperNodeSettings,
        found: &Coordinator,
    ) -> Result<Option<std::path::PathBuf>, Trouble> {
        let Some(token) = &node.join_token else { return Ok(None) };
        let path = self.place.service(Role::SuperNode).join("joined.key");
        let now = Instant::now();
        if !self.joining.is_due(self.seen.serving, now) {
            return Ok(Some(path));
        }
        if let Some(trouble) = self.joining.refusal(token, now) {
            return Err(trouble);
        }
        let failed = |what: String| Trouble::new(Code::HealthCheckTimeout, format!("the node cannot join: {what}"));
        let key = match NodeKey::read(&path).map_err(|error| failed(explained(&error)))? {
            Some(key) => key,
            None => NodeKey::generate(&path, "appliance").map_err(|error| failed(explained(&error)))?,
        };
        crate::disk::give_all(&path, self.owner).map_err(|error| failed(error.to_string()))?;
        let superlink = self.calls(found).map_err(failed)?;
        let name = self.name();
        let call = Join { token: token.clone(), public_key: key.public_pem(), name, location: String::new() };
        self.joining.away = None;
        match superlink.call_as_node(&call, &key).await {
            Ok(_) => {
                self.joining.joined = true;
                self.joining.refused = None;
                Ok(Some(path))
            }
            Err(error) => match refused(token, &self.name(), &error) {
                Some(trouble) => {
                    let token = token.clone();
                    self.joining.refused = Some(RefusedToken { token, at: now, trouble: trouble.clone() });
                    Err(trouble)
                }
                // The node joined before and its key is valid: the join call is repeated later.
                None if self.joining.joined => Ok(Some(path)),
                None => Err(failed(explained(&error))),
            },
        }
    }

    /// Client for the SuperLink's Fleet API. It also serves the join call, so nodes need no other open port.
    fn calls(&self, found: &Coordinator) -> Result<SuperLink, String> {
        let (host, port) = fleet_address(&found.endpoint)?;
        let security = match &found.trust {
            None => Security::Plaintext,
            Some(_) => Security::Tls(Trust::bundle(&self.place.trust()).map_err(|error| error.to_string())?),
        };
        let patience = Patience { connect: JOIN_CONNECT, answer: JOIN_ANSWER, retries: Vec::new() };
        Ok(SuperLink::new(Target { host, port, security, token: None }).with_patience(patience))
    }

    /// What the node is called: its part, or its VM.
    pub(super) fn name(&self) -> String {
        let part = self.settings.as_ref().and_then(|settings| settings.common.part.as_ref());
        let part = part.and_then(|part| part.rsplit('/').next()).map(str::to_owned);
        let vm = || self.gate.as_ref().map(|gate| format!("vm-{}", gate.vm_id()));
        part.or_else(vm).unwrap_or_else(|| "node".to_owned())
    }

    /// Of a SuperLink: who its nodes are, where no controller says it.
    pub(super) async fn follow_shards(&mut self) {
        let Some(gate) = &self.gate else { return };
        if self.shards_looked.is_some_and(|at| at.elapsed() < self.shards_pause) {
            return;
        }
        self.shards_pause = self.shards_pauses.next().unwrap_or(IDLE_SHARDS);
        self.shards_looked = Some(Instant::now());
        // A service that cannot be asked has the nodes it had.
        let Ok(service) = gate.service().await else { return };
        let roles = service.roles.iter().filter(|role| role.name.starts_with(SUPERNODE));
        let nodes: BTreeSet<u64> = roles.flat_map(|role| &role.nodes).map(|node| node.deploy_id.into()).collect();
        self.shards.follow(&nodes);
        let text = Some(self.shards.to_attribute());
        if self.memory.shards != text {
            self.shards_pauses.reset();
            self.memory.shards = text;
            self.remember();
        }
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
fn refused(token: &str, node: &str, error: &trellis_client::Error) -> Option<Trouble> {
    let trellis_client::Error::Refused { status: UNAUTHENTICATED | FORBIDDEN, detail, .. } = error else { return None };
    let mark = keys::token_mark(token, node);
    Some(Trouble::new(Code::JoinRefused, format!("{mark} the SuperLink does not take the join token: {detail}")))
}

/// Between 0 and 1.
fn chance() -> f64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    f64::from(nanos % 1000) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_refused_is_told_by_its_mark_and_anything_else_is_not_its_fault() {
        let error = |status| {
            let (endpoint, detail) = ("https://x".to_owned(), "The join token is not valid.".to_owned());
            trellis_client::Error::Refused { endpoint, call: "join", status, detail }
        };
        let trouble = refused("secret", "cpu-0", &error(401)).expect("it is the token");
        let said = trouble.attribute();
        assert!(said.starts_with(&format!("join_refused: {} ", keys::token_mark("secret", "cpu-0"))), "{said}");
        assert!(!said.contains("secret"), "{said}");
        assert!(refused("secret", "cpu-0", &error(503)).is_none());
    }

    #[test]
    fn nodes_join_where_they_will_connect() {
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
    fn a_node_that_joined_asks_again_only_after_it_was_away_for_long() {
        let (mut joining, begin) = (Joining::default(), Instant::now());
        assert!(joining.is_due(false, begin), "it has not joined yet");
        joining.joined = true;
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
    fn a_refused_token_is_not_shown_all_the_time_and_another_one_at_once() {
        let at = Instant::now();
        let trouble = Trouble::new(Code::JoinRefused, "x");
        let refused = Some(RefusedToken { token: "old".to_owned(), at, trouble });
        let joining = Joining { refused, ..Joining::default() };
        assert!(joining.refusal("old", at).is_some() && joining.refusal("new", at).is_none());
        assert!(joining.refusal("old", at + REFUSED_PAUSE).is_none());
    }
}
