//! The work queue: each federation is in it once, has one reconcile at a time, and may be scheduled for later.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::cache::Key;

#[derive(Debug, Default, Clone, Copy)]
struct State {
    queued: bool,
    running: bool,
    /// Requested while its reconcile was running.
    again: bool,
    due: Option<Instant>,
}

#[derive(Default)]
struct Inside {
    ready: VecDeque<Key>,
    later: BTreeSet<(Instant, Key)>,
    states: HashMap<Key, State>,
}

#[derive(Default)]
pub struct Queue {
    inside: Mutex<Inside>,
    changed: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("the lock is never poisoned")
    }

    /// Requests a reconcile as soon as a worker is free.
    pub fn push(&self, key: Key) {
        self.lock().push(key);
        self.changed.notify_one();
    }

    /// Requests a reconcile after a delay, unless an earlier one is requested.
    pub fn push_after(&self, key: Key, wait: Duration) {
        self.lock().push_at(key, Instant::now() + wait);
        self.changed.notify_one();
    }

    pub fn waiting(&self) -> usize {
        self.lock().ready.len()
    }

    /// The next federation that is due. No other worker gets it until it is released.
    pub async fn take(&self) -> Taken<'_> {
        Taken { queue: self, key: self.next().await, again: Some(Duration::ZERO) }
    }

    async fn next(&self) -> Key {
        loop {
            let changed = self.changed.notified();
            let due = {
                let mut inside = self.lock();
                inside.wake(Instant::now());
                if let Some(key) = inside.take() {
                    if !inside.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return key;
                }
                inside.later.first().map(|(due, _)| *due)
            };
            match due {
                Some(due) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(due) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Ends a reconcile. `requeue_after`: the delay until the next one; `None`: the federation was deleted.
    fn done(&self, key: &Key, again: Option<Duration>) {
        let mut inside = self.lock();
        let state = inside.states.entry(key.clone()).or_default();
        state.running = false;
        if std::mem::take(&mut state.again) {
            inside.push(key.clone());
        }
        match again {
            Some(wait) => inside.push_at(key.clone(), Instant::now() + wait),
            None => inside.forget(key),
        }
        drop(inside);
        self.changed.notify_one();
    }
}

/// A federation that a worker reconciles. If the worker is cancelled, the federation is queued again.
pub struct Taken<'a> {
    queue: &'a Queue,
    pub key: Key,
    again: Option<Duration>,
}

impl Taken<'_> {
    /// `requeue_after`: the delay until the next reconcile; `None`: the federation was deleted.
    pub fn done(mut self, again: Option<Duration>) {
        self.again = again;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.queue.done(&self.key, self.again);
    }
}

impl Inside {
    fn push(&mut self, key: Key) {
        let state = self.states.entry(key.clone()).or_default();
        if state.running {
            state.again = true;
        } else if !state.queued {
            state.queued = true;
            self.ready.push_back(key);
        }
    }

    fn push_at(&mut self, key: Key, due: Instant) {
        let state = self.states.entry(key.clone()).or_default();
        if let Some(known) = state.due {
            self.later.remove(&(known, key.clone()));
        }
        state.due = Some(due);
        self.later.insert((due, key));
    }

    fn forget(&mut self, key: &Key) {
        let Some(state) = self.states.get_mut(key) else { return };
        if let Some(due) = state.due.take() {
            self.later.remove(&(due, key.clone()));
        }
        if !state.queued && !state.running {
            self.states.remove(key);
        }
    }

    fn wake(&mut self, now: Instant) {
        while let Some((due, _)) = self.later.first()
            && *due <= now
        {
            let Some((_, key)) = self.later.pop_first() else { return };
            if let Some(state) = self.states.get_mut(&key) {
                state.due = None;
            }
            self.push(key);
        }
    }

    fn take(&mut self) -> Option<Key> {
        let key = self.ready.pop_front()?;
        let state = self.states.entry(key.clone()).or_default();
        state.queued = false;
        state.running = true;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: "n".to_owned(), name: name.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn many_wishes_are_one_pass_and_a_running_one_is_followed_by_one_more() {
        let queue = Queue::default();
        queue.push(key("a"));
        queue.push(key("a"));
        assert_eq!(queue.next().await, key("a"));
        assert_eq!(queue.waiting(), 0);
        queue.push(key("a"));
        queue.push(key("a"));
        // Not during its reconcile.
        assert_eq!(queue.waiting(), 0);
        queue.push(key("b"));
        assert_eq!(queue.next().await, key("b"));
        queue.done(&key("a"), None);
        assert_eq!(queue.next().await, key("a"));
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_is_given_up_is_made_again() {
        let queue = Queue::default();
        queue.push(key("a"));
        drop(queue.take().await);
        let taken = queue.take().await;
        assert_eq!(taken.key, key("a"));
        taken.done(None);
        assert!(queue.lock().states.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_later_comes_later_and_an_earlier_wish_comes_first() {
        let queue = Queue::default();
        let before = Instant::now();
        queue.push_after(key("slow"), Duration::from_secs(60));
        queue.push_after(key("soon"), Duration::from_secs(5));
        assert_eq!(queue.next().await, key("soon"));
        assert_eq!(before.elapsed().as_secs(), 5);
        queue.push(key("slow"));
        assert_eq!(queue.next().await, key("slow"));
        assert_eq!(before.elapsed().as_secs(), 5);
        // A removed federation is not scheduled.
        queue.done(&key("slow"), None);
        queue.done(&key("soon"), None);
        assert!(queue.lock().later.is_empty());
        assert!(queue.lock().states.is_empty());
    }
}
