//! Waits for topics. A waiter checks its condition, waits, and checks again; an announcement between check and wait is
//! not lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use trellis_core::port::Topic;

/// Topics are spread over this many locks, so that ten thousand waiting nodes do not contend for one.
const SHARDS: usize = 16;

/// All waiters.
pub struct WaitingRoom {
    shards: Vec<Mutex<HashMap<Topic, Arc<Notify>>>>,
    closed: Notify,
    is_closed: std::sync::atomic::AtomicBool,
}

impl Default for WaitingRoom {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, closed: Notify::new(), is_closed: false.into() }
    }
}

impl WaitingRoom {
    fn shard(&self, topic: Topic) -> &Mutex<HashMap<Topic, Arc<Notify>>> {
        let number = match topic {
            Topic::Node(id) => id.0,
            Topic::Replies(id) | Topic::Log(id) | Topic::Finished(id) | Topic::Run(id) => id.0.rotate_left(7),
            Topic::Launch | Topic::Nodes | Topic::Changes => 0,
        };
        &self.shards[number as usize % SHARDS]
    }

    /// Wakes all waiters of the topics.
    pub fn announce(&self, topics: &[Topic]) {
        for topic in topics {
            if let Some(waiting) = self.shard(*topic).lock().expect("no holder panics").get(topic) {
                waiting.notify_waiters();
            }
        }
    }

    /// Ends all current and future waits: the SuperLink stops.
    pub fn close(&self) {
        self.is_closed.store(true, std::sync::atomic::Ordering::Relaxed);
        self.closed.notify_waiters();
    }

    /// Waits until the room is closed.
    pub async fn closed(&self) {
        let closed = self.closed.notified();
        tokio::pin!(closed);
        closed.as_mut().enable();
        if !self.is_closed() {
            closed.await;
        }
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Calls `check` until it returns a value, after every announcement of `topic` and at least every `poll_interval`.
    /// Returns `None` after `hold`, or when the room is closed.
    pub async fn wait<T, E>(
        &self,
        topic: Topic,
        hold: Duration,
        poll_interval: Duration,
        mut check: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        if let Some(found) = check()? {
            return Ok(Some(found));
        }
        let end = tokio::time::Instant::now() + hold;
        let registration = Registration::new(self, topic);
        loop {
            let (woken, closed) = (registration.notify.notified(), self.closed.notified());
            tokio::pin!(woken, closed);
            woken.as_mut().enable();
            closed.as_mut().enable();
            if let Some(found) = check()? {
                return Ok(Some(found));
            }
            let now = tokio::time::Instant::now();
            if self.is_closed() || now >= end {
                return Ok(None);
            }
            tokio::select! {
                () = woken => {}
                () = closed => return Ok(None),
                () = tokio::time::sleep_until(end.min(now + poll_interval)) => {}
            }
        }
    }
}

/// The registration of a waiter; the last one removes the topic.
struct Registration<'a> {
    room: &'a WaitingRoom,
    topic: Topic,
    notify: Arc<Notify>,
}

impl<'a> Registration<'a> {
    fn new(room: &'a WaitingRoom, topic: Topic) -> Registration<'a> {
        let notify = Arc::clone(room.shard(topic).lock().expect("no holder panics").entry(topic).or_default());
        Registration { room, topic, notify }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let mut shard = self.room.shard(self.topic).lock().expect("no holder panics");
        // One reference of this waiter and one of the map.
        if Arc::strong_count(&self.notify) == 2 {
            shard.remove(&self.topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use trellis_core::id::NodeId;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);
    const TOPIC: Topic = Topic::Node(NodeId(7));

    #[tokio::test(start_paused = true)]
    async fn an_announcement_during_the_check_is_not_lost() {
        let room = WaitingRoom::default();
        let looks = AtomicU32::new(0);
        let found = room
            .wait(TOPIC, LONG, LONG, || {
                let check = looks.fetch_add(1, Ordering::Relaxed);
                if check == 1 {
                    room.announce(&[TOPIC]); // After this check and before the wait.
                }
                Ok::<_, ()>((check == 2).then_some("found"))
            })
            .await;
        assert_eq!(found, Ok(Some("found")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_after_the_hold_and_removes_its_topic() {
        let room = WaitingRoom::default();
        let start = tokio::time::Instant::now();
        let found = room.wait(TOPIC, Duration::from_secs(20), LONG, || Ok::<Option<()>, ()>(None)).await;
        assert_eq!(found, Ok(None));
        assert_eq!(start.elapsed(), Duration::from_secs(20));
        assert!(room.shard(TOPIC).lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_all_waits() {
        let room = Arc::new(WaitingRoom::default());
        let waiting = tokio::spawn({
            let room = Arc::clone(&room);
            async move { room.wait(TOPIC, LONG, LONG, || Ok::<Option<()>, ()>(None)).await }
        });
        tokio::task::yield_now().await;
        room.close();
        assert_eq!(waiting.await.unwrap(), Ok(None));
        assert_eq!(room.wait(TOPIC, LONG, LONG, || Ok::<Option<()>, ()>(None)).await, Ok(None));
    }
}
