//! Limits per source, so that one source cannot exhaust shared resources.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

/// Prefix length of an IPv6 network as providers assign it; the customer chooses the other bits.
const IPV6_NETWORK_BITS: u32 = 64;

/// From this number of keys on, each new share removes unused keys: two shares that end at once can leave their key
/// behind.
const SWEEP_KEYS: usize = 1024;

/// An address as limits count it: all addresses of one IPv6 network are one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Source {
        Source(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) >> (128 - IPV6_NETWORK_BITS) << (128 - IPV6_NETWORK_BITS);
                IpAddr::V6(Ipv6Addr::from(network))
            }
            v4 => v4,
        })
    }
}

/// Rate limit per key: `burst` calls at once, then one call every `interval_s`.
pub struct Rate<K> {
    burst: f64,
    interval_s: f64,
    /// Maximum number of keys with a bucket of their own; further keys share one bucket.
    max_keys: usize,
    counted: Mutex<Counted<K>>,
}

struct Counted<K> {
    keys: HashMap<K, Bucket>,
    others: Bucket,
}

#[derive(Clone, Copy)]
struct Bucket {
    left: f64,
    at_s: f64,
    /// Refusals since the last admitted call.
    refused: u64,
}

impl<K: Hash + Eq> Rate<K> {
    pub fn new(burst: u32, interval_s: f64, max_keys: usize) -> Rate<K> {
        let burst = f64::from(burst);
        let others = Bucket { left: burst, at_s: f64::NEG_INFINITY, refused: 0 };
        Rate { burst, interval_s, max_keys, counted: Mutex::new(Counted { keys: HashMap::new(), others }) }
    }

    /// Admits a call at `now_s` and returns the number of refusals since the last admitted call, or returns `None`.
    pub fn admit(&self, key: K, now_s: f64) -> Option<u64> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let Counted { keys, others } = &mut *counted;
        if keys.len() >= self.max_keys && !keys.contains_key(&key) {
            keys.retain(|_, bucket| self.refilled(bucket, now_s) < self.burst);
        }
        let bucket = if keys.len() < self.max_keys || keys.contains_key(&key) {
            keys.entry(key).or_insert(Bucket { left: self.burst, at_s: now_s, refused: 0 })
        } else {
            others
        };
        *bucket = Bucket { left: self.refilled(bucket, now_s), at_s: now_s, ..*bucket };
        if bucket.left < 1.0 {
            bucket.refused += 1;
            return None;
        }
        bucket.left -= 1.0;
        Some(std::mem::take(&mut bucket.refused))
    }

    fn refilled(&self, bucket: &Bucket, now_s: f64) -> f64 {
        let returned = (now_s - bucket.at_s).max(0.0) / self.interval_s;
        (bucket.left + returned).min(self.burst)
    }
}

/// A fixed number of permits per key. Keys without a permit in use are removed.
pub struct Allowance<K> {
    permits: usize,
    keys: Mutex<HashMap<K, Arc<Semaphore>>>,
}

/// The permits of one key, while they are in use.
pub struct Share<K: Hash + Eq + Clone> {
    pub permits: Arc<Semaphore>,
    of: Arc<Allowance<K>>,
    key: K,
}

impl<K: Hash + Eq + Clone> Allowance<K> {
    pub fn new(permits: usize) -> Arc<Allowance<K>> {
        Arc::new(Allowance { permits, keys: Mutex::default() })
    }

    pub fn share(self: &Arc<Self>, key: K) -> Share<K> {
        let mut keys = self.keys();
        if keys.len() >= SWEEP_KEYS {
            keys.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        let permits = keys.entry(key.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.permits)));
        let permits = Arc::clone(permits);
        drop(keys);
        Share { permits, of: Arc::clone(self), key }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<K, Arc<Semaphore>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone> Drop for Share<K> {
    fn drop(&mut self) {
        let mut keys = self.of.keys();
        // One reference of this share and one of the map.
        if Arc::strong_count(&self.permits) <= 2 {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_source() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::2:3"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.2"), source("10.0.0.1"));
    }

    #[test]
    fn keys_have_separate_rates_and_refusals_are_counted() {
        let rate = Rate::new(2, 10.0, 100);
        assert_eq!((rate.admit("a", 0.0), rate.admit("a", 0.0)), (Some(0), Some(0)));
        assert_eq!((rate.admit("a", 0.0), rate.admit("a", 9.0)), (None, None));
        assert_eq!(rate.admit("b", 0.0), Some(0));
        assert_eq!(rate.admit("a", 20.0), Some(2));
    }

    #[test]
    fn keys_above_the_limit_share_one_bucket() {
        let rate = Rate::new(2, 10.0, 100);
        let admitted = (0..10_000).filter(|key| rate.admit(*key, 0.0).is_some()).count();
        assert_eq!(admitted, 102);
        assert_eq!(rate.counted.lock().unwrap().keys.len(), 100);
        assert_eq!(rate.admit(5, 0.0), Some(0), "known keys keep their own bucket");
        assert_eq!(rate.admit(20_000, 20.0), Some(0), "full buckets make room");
    }

    #[test]
    fn permits_are_shared_per_key_and_unused_keys_are_removed() {
        let allowance = Allowance::new(2);
        let (first, second, other) = (allowance.share("a"), allowance.share("a"), allowance.share("b"));
        let held = Arc::clone(&first.permits).try_acquire_many_owned(2).unwrap();
        assert!(second.permits.try_acquire().is_err() && other.permits.try_acquire().is_ok());
        drop((held, first));
        assert!(second.permits.try_acquire().is_ok());
        drop((second, other));
        assert!(allowance.keys().is_empty());
    }
}
