//! The door: what every call passes before it is read. Too many calls, or too many bytes, wait or are turned away here,
//! early and politely.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};
use trellis_core::refusal::{Kind, Refusal};

use super::rpc::{Access, Api, Rpc};
use crate::config::Limits;
use crate::link::STOPPING;

/// Messages below this size do not count against the byte budget.
const SMALL_BYTES: u64 = 64 << 10;
/// The byte budget is handed out in units of this.
const UNIT_BYTES: u64 = 1 << 10;

/// What callers hear when there are too many.
pub const BUSY: &str = "The SuperLink is busy; try again.";

/// One for all ports.
#[derive(Clone)]
pub struct Door {
    calls: Arc<Semaphore>,
    units: Arc<Semaphore>,
    all_units: u32,
    message_bytes: u64,
}

/// A place inside, until it is dropped.
pub struct Place<'a> {
    _call: Option<SemaphorePermit<'a>>,
}

impl Door {
    pub fn new(limits: &Limits) -> Door {
        let all_units = (limits.buffered_bytes as u64 / UNIT_BYTES).clamp(1, u64::from(u32::MAX)) as u32;
        Door {
            calls: Arc::new(Semaphore::new(limits.requests_in_flight)),
            units: Arc::new(Semaphore::new(all_units as usize)),
            all_units,
            message_bytes: limits.message_bytes as u64,
        }
    }

    /// Lets a call in. Held calls do not count: they wait, they do not work.
    pub fn enter(&self, rpc: &Rpc) -> Result<Place<'_>, Refusal> {
        if rpc.held {
            return Ok(Place { _call: None });
        }
        match self.calls.try_acquire() {
            Ok(call) => Ok(Place { _call: Some(call) }),
            Err(_) => Err(Refusal::new(Kind::Transient, BUSY)),
        }
    }

    /// Room for a message of this size, once there is some. Objects need none: they are streamed.
    pub async fn room(&self, rpc: &Rpc, message_bytes: u64) -> Result<Option<SemaphorePermit<'_>>, Refusal> {
        if rpc.streams_in || message_bytes <= SMALL_BYTES {
            return Ok(None);
        }
        // What asks nobody who they are, and our own calls, are short by nature.
        let short = rpc.access == Access::Open || rpc.api == Api::Trellis;
        let limit = rpc.message_bytes.unwrap_or(if short { SMALL_BYTES } else { self.message_bytes });
        if message_bytes > limit {
            let text = format!("message of {message_bytes} bytes is larger than the limit of {limit}");
            return Err(Refusal::new(Kind::TooLarge, text));
        }
        let units = message_bytes.div_ceil(UNIT_BYTES).min(u64::from(self.all_units)) as u32;
        match self.units.acquire_many(units).await {
            Ok(room) => Ok(Some(room)),
            Err(_) => Err(Refusal::new(Kind::Transient, STOPPING)),
        }
    }
}
