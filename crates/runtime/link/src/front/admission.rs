//! Admission control: every call passes it before its message is read. Excess calls and bytes wait or are refused, and
//! limits per sender and address keep capacity for others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::{Allowance, Share, Source};

use super::rpc::{Rpc, SMALL_BYTES};
use super::sender::Identity;
use crate::config::Limits;

/// Unit of the byte budget.
const UNIT_BYTES: u64 = 1 << 10;
/// Divisors of the byte budget: the maximum of one sender, and of one address.
const SENDER_DIVISOR: u64 = 4;
const SOURCE_DIVISOR: u64 = 2;
/// Maximum size of a message from an unknown sender.
const UNKNOWN_SENDER_BYTES: u64 = 16 << 10;
/// Maximum number of concurrent calls from unknown senders: in total, and from one address.
const MAX_UNKNOWN: usize = 1024;
const UNKNOWN_PER_SOURCE: usize = 128;
/// Timeout for the whole message of an unknown sender.
pub const UNKNOWN_SENDER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a call that waits for capacity.
const CAPACITY_TIMEOUT: Duration = Duration::from_secs(60);

/// Error for callers if a limit is reached.
pub const BUSY: &str = "The SuperLink is busy; try again.";

/// Shared by all ports.
#[derive(Clone)]
pub struct AdmissionControl {
    calls: Arc<Semaphore>,
    unknown_senders: Arc<Semaphore>,
    unknown_by_source: Arc<Allowance<Source>>,
    units: Arc<Semaphore>,
    units_by_sender: Arc<Allowance<Identity>>,
    units_by_source: Arc<Allowance<Source>>,
    /// Permit for messages above the limit of one sender, which are read one at a time.
    largest: Arc<Semaphore>,
    sender_units: u32,
    message_bytes: u64,
}

/// An admitted call, until drop.
#[derive(Default)]
pub struct Admitted {
    _permits: Vec<OwnedSemaphorePermit>,
    // Must be dropped after the permits: the last share removes its entry.
    _of_source: Option<Share<Source>>,
    _of_sender: Option<Share<Identity>>,
}

impl AdmissionControl {
    pub fn new(limits: &Limits) -> AdmissionControl {
        let all_units = (limits.buffered_bytes as u64 / UNIT_BYTES).clamp(1, u64::from(u32::MAX));
        let part = |part: u64| (all_units / part).max(1);
        AdmissionControl {
            calls: Arc::new(Semaphore::new(limits.requests_in_flight)),
            unknown_senders: Arc::new(Semaphore::new(MAX_UNKNOWN)),
            unknown_by_source: Allowance::new(UNKNOWN_PER_SOURCE),
            units: Arc::new(Semaphore::new(all_units as usize)),
            units_by_sender: Allowance::new(part(SENDER_DIVISOR) as usize),
            units_by_source: Allowance::new(part(SOURCE_DIVISOR) as usize),
            largest: Arc::new(Semaphore::new(1)),
            sender_units: part(SENDER_DIVISOR) as u32,
            message_bytes: limits.message_bytes as u64,
        }
    }

    /// Admits a call of a known sender. Held calls do not count: they wait and do no work.
    pub fn admit(&self, rpc: &Rpc) -> Result<Admitted, Refusal> {
        if rpc.held {
            return Ok(Admitted::default());
        }
        match Arc::clone(&self.calls).try_acquire_owned() {
            Ok(call) => Ok(Admitted { _permits: vec![call], ..Admitted::default() }),
            Err(_) => Err(busy()),
        }
    }

    /// Admits a call of an unknown sender, within the limits for unknown senders.
    pub async fn admit_unknown(&self, source: Source) -> Result<Admitted, Refusal> {
        let share = self.unknown_by_source.share(source);
        let permits =
            with_timeout(UNKNOWN_SENDER_TIMEOUT, acquire(&[(&share.permits, 1), (&self.unknown_senders, 1)])).await?;
        Ok(Admitted { _permits: permits, _of_source: Some(share), _of_sender: None })
    }

    /// Refuses a message that is too large for the call, or for its sender.
    pub fn check_size(&self, rpc: &Rpc, is_known: bool, message_bytes: u64) -> Result<(), Refusal> {
        if rpc.streams_in {
            return Ok(());
        }
        let limit =
            rpc.message_bytes.min(self.message_bytes).min(if is_known { u64::MAX } else { UNKNOWN_SENDER_BYTES });
        if message_bytes <= limit {
            return Ok(());
        }
        let text = format!("message of {message_bytes} bytes is larger than the limit of {limit}");
        Err(Refusal::new(Kind::TooLarge, text))
    }

    /// Waits for the memory of a message of this size. Objects are streamed and need none.
    pub async fn reserve(&self, rpc: &Rpc, of: Identity, source: Source, bytes: u64) -> Result<Admitted, Refusal> {
        if rpc.streams_in || bytes <= SMALL_BYTES {
            return Ok(Admitted::default());
        }
        let (of_sender, of_source) = (self.units_by_sender.share(of), self.units_by_source.share(source));
        let units = bytes.div_ceil(UNIT_BYTES).min(u64::from(self.sender_units)) as u32;
        let is_largest = bytes > u64::from(self.sender_units) * UNIT_BYTES;
        let wanted = [
            (&of_sender.permits, units),
            (&of_source.permits, units),
            (&self.largest, u32::from(is_largest)),
            (&self.units, units),
        ];
        let permits = with_timeout(CAPACITY_TIMEOUT, acquire(&wanted)).await?;
        Ok(Admitted { _permits: permits, _of_source: Some(of_source), _of_sender: Some(of_sender) })
    }
}

/// Acquires permits of several semaphores. All callers use the same order, which prevents deadlocks.
async fn acquire(wanted: &[(&Arc<Semaphore>, u32)]) -> Result<Vec<OwnedSemaphorePermit>, Refusal> {
    let mut permits = Vec::with_capacity(wanted.len());
    for (semaphore, number) in wanted {
        permits.push(Arc::clone(semaphore).acquire_many_owned(*number).await.map_err(|_| busy())?);
    }
    Ok(permits)
}

async fn with_timeout<T>(limit: Duration, turn: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    tokio::time::timeout(limit, turn).await.unwrap_or_else(|_| Err(busy()))
}

fn busy() -> Refusal {
    Refusal::new(Kind::Transient, BUSY)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use trellis_core::id::NodeId;

    use super::super::rpc::ALL;
    use super::*;

    fn push() -> &'static Rpc {
        ALL.iter().find(|rpc| rpc.name == "StartRun").unwrap()
    }

    fn at(last: u8) -> Source {
        IpAddr::from([192, 0, 2, last]).into()
    }

    async fn is_soon<T>(turn: impl Future<Output = T>) -> bool {
        tokio::time::timeout(Duration::from_secs(1), turn).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn one_sender_and_one_address_leave_capacity_for_others() {
        let admission = AdmissionControl::new(&Limits { buffered_bytes: 16 << 20, ..Limits::default() });
        let room = |node, source, bytes| admission.reserve(push(), Identity::Node(NodeId(node)), at(source), bytes);
        let _large = room(1, 1, 500 << 20).await.unwrap();
        assert!(!is_soon(room(1, 1, 1 << 20)).await, "the limit of the sender");
        let _other = room(2, 1, 4 << 20).await.unwrap();
        assert!(!is_soon(room(3, 1, 1 << 20)).await, "the limit of the address");
        assert!(is_soon(room(3, 2, 4 << 20)).await && is_soon(room(4, 3, 1 << 20)).await);
        assert!(!is_soon(room(5, 4, 5 << 20)).await, "one message of maximum size at a time");
        assert!(is_soon(room(1, 1, SMALL_BYTES)).await, "small messages need no permit");
        assert_eq!(room(1, 1, 1 << 20).await.err().unwrap().text, BUSY, "waits have a timeout");
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_senders_of_one_address_leave_capacity_for_others() {
        let admission = AdmissionControl::new(&Limits::default());
        let mut inside = Vec::new();
        for _ in 0..UNKNOWN_PER_SOURCE {
            inside.push(admission.admit_unknown(at(1)).await.unwrap());
        }
        assert!(admission.admit_unknown(at(1)).await.is_err() && is_soon(admission.admit_unknown(at(2))).await);
        assert!(admission.admit(push()).is_ok(), "known senders have separate permits");
        inside.pop();
        assert!(is_soon(admission.admit_unknown(at(1))).await);
    }

    #[test]
    fn the_size_limit_depends_on_the_call_and_its_sender() {
        let admission = AdmissionControl::new(&Limits::default());
        let open = ALL.iter().find(|rpc| rpc.name == "GetAuthTokens").unwrap();
        let is_good = |rpc, known, bytes| admission.check_size(rpc, known, bytes).is_ok();
        assert!(is_good(push(), true, 512 << 20) && !is_good(push(), true, (512 << 20) + 1));
        assert!(is_good(open, false, UNKNOWN_SENDER_BYTES) && !is_good(open, false, UNKNOWN_SENDER_BYTES + 1));
        let small = ALL.iter().find(|rpc| rpc.name == "SendNodeHeartbeat").unwrap();
        assert!(is_good(small, true, SMALL_BYTES) && !is_good(small, true, SMALL_BYTES + 1));
    }
}
