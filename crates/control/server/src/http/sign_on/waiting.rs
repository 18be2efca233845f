//! What waits for its second half: logins that are at the provider, codes that nobody has fetched, devices. In memory only: each is
//! short and can be repeated. Its key is a secret of who began it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use trellis_front::Source;

use crate::http::secret;

/// Maximum number of entries, in total and from one address.
const MAX_ENTRIES: usize = 10_000;
const MAX_ENTRIES_PER_SOURCE: usize = 100;

pub struct Waiting<T>(Mutex<HashMap<String, Entry<T>>>);

struct Entry<T> {
    source: Source,
    until: Instant,
    content: T,
}

impl<T> Default for Waiting<T> {
    fn default() -> Waiting<T> {
        Waiting(Mutex::default())
    }
}

impl<T> Waiting<T> {
    /// The key of the new entry; `None` if there are too many.
    pub fn add(&self, remote: IpAddr, content: T, ttl: Duration, now: Instant) -> Option<String> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, entry| entry.until > now);
        let source = Source::from(remote);
        let of_source = entries.values().filter(|entry| entry.source == source).count();
        if entries.len() >= MAX_ENTRIES || of_source >= MAX_ENTRIES_PER_SOURCE {
            return None;
        }
        let key = secret::fresh();
        entries.insert(key.clone(), Entry { source, until: now + ttl, content });
        Some(key)
    }

    /// Removes an entry.
    pub fn take(&self, key: &str, now: Instant) -> Option<T> {
        let entry = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key)?;
        (entry.until > now).then_some(entry.content)
    }

    /// Does something with an entry that stays.
    pub fn with<R>(&self, key: &str, now: Instant, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get_mut(key).filter(|entry| entry.until > now).map(|entry| act(&mut entry.content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_taken_once_and_in_time() {
        let (waiting, now, ttl) = (Waiting::default(), Instant::now(), Duration::from_secs(10));
        let key = waiting.add([192, 0, 2, 1].into(), 1, ttl, now).unwrap();
        assert_eq!(waiting.with(&key, now, |content| std::mem::replace(content, 2)), Some(1));
        assert_eq!(
            (waiting.take("other", now), waiting.take(&key, now), waiting.take(&key, now)),
            (None, Some(2), None)
        );
        let late = waiting.add([192, 0, 2, 1].into(), 1, ttl, now).unwrap();
        assert_eq!((waiting.with(&late, now + ttl, |_| ()), waiting.take(&late, now + ttl)), (None, None));
    }

    #[test]
    fn one_address_cannot_keep_others_out() {
        let (waiting, now, ttl) = (Waiting::default(), Instant::now(), Duration::from_secs(10));
        let add = |last: u8, now| waiting.add([192, 0, 2, last].into(), (), ttl, now).is_some();
        assert!((0..MAX_ENTRIES_PER_SOURCE).all(|_| add(1, now)) && !add(1, now));
        assert!(add(2, now) && add(1, now + ttl));
    }
}
