//! Admission control: every call passes it before its message is read. Excess calls and bytes wait or are refused here,
//! and limits per sender and address keep capacity for others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trellis_core::refusal::{Kind, Refusal};
use trellis_front::{Allowance, Share, Source};

use super::rpc::{Rpc, SMALL_BYTES};
use super::sender::Identity;
use crate::config::Limits;

/// The byte budget is handed out in units of this.
const UNIT_BYTES: u64 = 1 << 10;
/// The byte budget is divided by this: the maximum of one sender, and of one address.
const SENDER_PART: u64 = 4;
const SOURCE_PART: u64 = 2;
/// Maximum size of a message from an unknown sender.
const STRANGER_BYTES: u64 = 16 << 10;
/// Maximum number of concurrent calls from unknown senders: in total, and from one address.
const STRANGERS: usize = 1024;
const STRANGERS_PER_SOURCE: usize = 128;
/// Timeout for the whole message of an unknown sender.
pub const STRANGER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a call that waits for capacity.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// What callers hear when there are too many.
pub const BUSY: &str = "The SuperLink is busy; try again.";

/// One for all ports.
#[derive(Clone)]
pub struct Door {
    calls: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    strangers_by_source: Arc<Allowance<Source>>,
    units: Arc<Semaphore>,
    units_by_sender: Arc<Allowance<Identity>>,
    units_by_source: Arc<Allowance<Source>>,
    /// Permit for messages larger than one sender's part, which are read one at a time.
    largest: Arc<Semaphore>,
    sender_units: u32,
    message_bytes: u64,
}

/// A place inside, until it is dropped.
#[derive(Default)]
pub struct Place {
    _permits: Vec<OwnedSemaphorePermit>,
    // Must be dropped after the permits: the last share removes its entry.
    _of_source: Option<Share<Source>>,
    _of_sender: Option<Share<Identity>>,
}

impl Door {
    pub fn new(limits: &Limits) -> Door {
        let all_units = (limits.buffered_bytes as u64 / UNIT_BYTES).clamp(1, u64::from(u32::MAX));
        let part = |part: u64| (all_units / part).max(1);
        Door {
            calls: Arc::new(Semaphore::new(limits.requests_in_flight)),
            strangers: Arc::new(Semaphore::new(STRANGERS)),
            strangers_by_source: Allowance::new(STRANGERS_PER_SOURCE),
            units: Arc::new(Semaphore::new(all_units as usize)),
            units_by_sender: Allowance::new(part(SENDER_PART) as usize),
            units_by_source: Allowance::new(part(SOURCE_PART) as usize),
            largest: Arc::new(Semaphore::new(1)),
            sender_units: part(SENDER_PART) as u32,
            message_bytes: limits.message_bytes as u64,
        }
    }

    /// Admits a call of a known sender. Held calls do not count: they wait and do no work.
    pub fn enter(&self, rpc: &Rpc) -> Result<Place, Refusal> {
        if rpc.held {
            return Ok(Place::default());
        }
        match Arc::clone(&self.calls).try_acquire_owned() {
            Ok(call) => Ok(Place { _permits: vec![call], ..Place::default() }),
            Err(_) => Err(busy()),
        }
    }

    /// Admits a call of an unknown sender, within the limits for unknown senders.
    pub async fn enter_stranger(&self, source: Source) -> Result<Place, Refusal> {
        let share = self.strangers_by_source.share(source);
        let permits = in_turn(STRANGER_TIMEOUT, acquire(&[(&share.permits, 1), (&self.strangers, 1)])).await?;
        Ok(Place { _permits: permits, _of_source: Some(share), _of_sender: None })
    }

    /// Refuses a message that is too large for the call, or for its sender.
    pub fn check_size(&self, rpc: &Rpc, is_known: bool, message_bytes: u64) -> Result<(), Refusal> {
        if rpc.streams_in {
            return Ok(());
        }
        let limit = rpc.message_bytes.min(self.message_bytes).min(if is_known { u64::MAX } else { STRANGER_BYTES });
        if message_bytes <= limit {
            return Ok(());
        }
        let text = format!("message of {message_bytes} bytes is larger than the limit of {limit}");
        Err(Refusal::new(Kind::TooLarge, text))
    }

    /// Waits for the memory of a message of this size. Objects are streamed and need none.
    pub async fn room(&self, rpc: &Rpc, of: Identity, source: Source, bytes: u64) -> Result<Place, Refusal> {
        if rpc.streams_in || bytes <= SMALL_BYTES {
            return Ok(Place::default());
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
        let permits = in_turn(TURN_TIMEOUT, acquire(&wanted)).await?;
        Ok(Place { _permits: permits, _of_source: Some(of_source), _of_sender: Some(of_sender) })
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

async fn in_turn<T>(limit: Duration, turn: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
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
    async fn one_sender_and_one_address_leave_room_for_others() {
        let door = Door::new(&Limits { buffered_bytes: 16 << 20, ..Limits::default() });
        let room = |node, source, bytes| door.room(push(), Identity::Node(NodeId(node)), at(source), bytes);
        let _large = room(1, 1, 500 << 20).await.unwrap();
        assert!(!is_soon(room(1, 1, 1 << 20)).await, "it has its part");
        let _other = room(2, 1, 4 << 20).await.unwrap();
        assert!(!is_soon(room(3, 1, 1 << 20)).await, "the address has its part");
        assert!(is_soon(room(3, 2, 4 << 20)).await && is_soon(room(4, 3, 1 << 20)).await);
        assert!(!is_soon(room(5, 4, 5 << 20)).await, "one message of the largest at a time");
        assert!(is_soon(room(1, 1, SMALL_BYTES)).await, "small ones need none");
        assert_eq!(room(1, 1, 1 << 20).await.err().unwrap().text, BUSY, "nobody waits for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_of_one_address_leave_room_for_those_of_others() {
        let door = Door::new(&Limits::default());
        let mut inside = Vec::new();
        for _ in 0..STRANGERS_PER_SOURCE {
            inside.push(door.enter_stranger(at(1)).await.unwrap());
        }
        assert!(door.enter_stranger(at(1)).await.is_err() && is_soon(door.enter_stranger(at(2))).await);
        assert!(door.enter(push()).is_ok(), "known senders have places of their own");
        inside.pop();
        assert!(is_soon(door.enter_stranger(at(1))).await);
    }

    #[test]
    fn sizes_are_those_of_the_call_and_of_who_sends_it() {
        let door = Door::new(&Limits::default());
        let open = ALL.iter().find(|rpc| rpc.name == "GetAuthTokens").unwrap();
        let is_good = |rpc, known, bytes| door.check_size(rpc, known, bytes).is_ok();
        assert!(is_good(push(), true, 512 << 20) && !is_good(push(), true, (512 << 20) + 1));
        assert!(is_good(open, false, STRANGER_BYTES) && !is_good(open, false, STRANGER_BYTES + 1));
        let small = ALL.iter().find(|rpc| rpc.name == "SendNodeHeartbeat").unwrap();
        assert!(is_good(small, true, SMALL_BYTES) && !is_good(small, true, SMALL_BYTES + 1));
    }
}
