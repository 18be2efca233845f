//! Checks continuously whether a SuperLink that reports READY works: connects to the published endpoint with the published
//! authority, TLS and a call.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::task::JoinHandle;
use trellis_client::fleet::{Fleet, FleetError, FleetOptions, Transport};
use trellis_client::{NodeKey, Security, Target, Trust};
use trellis_core::id::NodeId;
use trellis_fake_one::Handle;
use trellis_fake_one::cloud::Id;

const INTERVAL: Duration = Duration::from_millis(100);
/// Longer than any tolerated outage.
const LIMIT: Duration = Duration::from_secs(10);

/// From when to when, in milliseconds since 1970.
type Span = (u64, u64);

pub struct Prober {
    over: Arc<AtomicBool>,
    task: JoinHandle<Vec<Span>>,
    handle: Handle,
    vm: Id,
}

/// A snapshot of the published values.
#[derive(Clone, PartialEq, Eq)]
struct Published {
    ready: bool,
    endpoint: String,
    /// PEM.
    authority: Option<Vec<u8>>,
}

impl Prober {
    pub fn watch(handle: Handle, vm: Id, root: &Path) -> Prober {
        let over = Arc::new(AtomicBool::new(false));
        let key = root.join("prober.key");
        let key = NodeKey::read(&key).expect("a key").map_or_else(|| NodeKey::generate(&key, "prober"), Ok);
        let (key, trust) = (Arc::new(key.expect("a key")), root.join("prober.pem"));
        let (ends, of) = (Arc::clone(&over), handle.clone());
        let task = tokio::spawn(async move {
            let mut failing: Vec<Span> = Vec::new();
            let mut went_on = false;
            while !ends.load(Ordering::Relaxed) {
                let began = now_ms();
                let published = published(&of, vm);
                if published.ready {
                    let served = serves(&published, &trust, &key).await;
                    match (served, went_on, failing.last_mut()) {
                        (true, ..) => {}
                        (false, true, Some(last)) => last.1 = now_ms(),
                        (false, ..) => failing.push((began, now_ms())),
                    }
                    went_on = !served;
                }
                tokio::time::sleep(INTERVAL).await;
            }
            failing
        });
        Prober { over, task, handle, vm }
    }

    /// The longest time with the status READY during which the SuperLink did not work, as observed by the cloud.
    pub async fn longest_lie(self) -> Duration {
        self.over.store(true, Ordering::Relaxed);
        let failing = self.task.await.expect("the prober did not fail");
        let said = said(&self.handle, self.vm);
        let overlap = |one: &Span, other: &Span| one.1.min(other.1).saturating_sub(one.0.max(other.0));
        let lies = failing.iter().flat_map(|failed| said.iter().map(move |said| overlap(failed, said)));
        Duration::from_millis(lies.max().unwrap_or(0))
    }
}

/// When READY was YES.
fn said(handle: &Handle, vm: Id) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut since = None;
    for update in handle.updates(0).into_iter().filter(|update| update.vm == vm && update.name == "READY") {
        match (update.new.as_deref() == Some("YES"), since) {
            (true, None) => since = Some(update.at_ms),
            (false, Some(from)) => {
                spans.push((from, update.at_ms));
                since = None;
            }
            _ => {}
        }
    }
    spans.extend(since.map(|from| (from, u64::MAX)));
    spans
}

fn published(handle: &Handle, vm: Id) -> Published {
    handle.with(|cloud| {
        let said = |name: &str| cloud.vms.get(&vm)?.user_template.get(name).map(str::to_owned);
        Published {
            ready: said("READY").as_deref() == Some("YES"),
            endpoint: said("FL_ENDPOINT").unwrap_or_default(),
            authority: said("FL_CA_CERT").and_then(|text| STANDARD.decode(text).ok()).filter(|pem| !pem.is_empty()),
        }
    })
}

async fn serves(published: &Published, trust: &Path, key: &Arc<NodeKey>) -> bool {
    let Some((host, port)) = published.endpoint.rsplit_once(':') else { return false };
    let Ok(port) = port.parse() else { return false };
    let security = match &published.authority {
        None => Security::Plaintext,
        Some(pem) => {
            std::fs::write(trust, pem).expect("written");
            let Ok(trust) = Trust::bundle(trust) else { return false };
            Security::Tls(trust)
        }
    };
    let target = Target { host: host.trim_matches(['[', ']']).to_owned(), port, security, token: None };
    let options = FleetOptions {
        transport: Some(Transport::Grpc),
        connect_timeout: LIMIT,
        answer_timeout: LIMIT,
        ..Default::default()
    };
    let asked = Fleet::new(target, Arc::clone(key), options).send_heartbeat(NodeId(2), 60.0).await;
    !matches!(asked, Err(FleetError::Unreachable { .. } | FleetError::Misdirected { .. }))
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
