//! Who waits for what. A waiter looks, waits, looks again; what happened between its look and its wait is not missed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use trellis_core::port::Topic;

/// Topics spread over this many locks, so that ten thousand waiting nodes do not meet at one.
const SHARDS: usize = 16;

/// The waiting room.
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

    /// Wakes everybody who waits for one of the topics.
    pub fn announce(&self, topics: &[Topic]) {
        for topic in topics {
            if let Some(waiting) = self.shard(*topic).lock().expect("no holder panics").get(topic) {
                waiting.notify_waiters();
            }
        }
    }

    /// Ends all waiting, now and later: the SuperLink stops.
    pub fn close(&self) {
        self.is_closed.store(true, std::sync::atomic::Ordering::Relaxed);
        self.closed.notify_waiters();
    }

    /// Waits for the end of all waiting.
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

    /// Asks `look` until it has an answer, after every announcement of `topic` and at least every `glance`; gives up
    /// (`None`) after `hold` or when the room is closed.
    pub async fn wait<T, E>(
        &self,
        topic: Topic,
        hold: Duration,
        glance: Duration,
        mut look: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        let end = tokio::time::Instant::now() + hold;
        let seat = Seat::take(self, topic);
        loop {
            let (woken, closed) = (seat.notify.notified(), self.closed.notified());
            tokio::pin!(woken, closed);
            woken.as_mut().enable();
            closed.as_mut().enable();
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            let now = tokio::time::Instant::now();
            if self.is_closed() || now >= end {
                return Ok(None);
            }
            tokio::select! {
                () = woken => {}
                () = closed => return Ok(None),
                () = tokio::time::sleep_until(end.min(now + glance)) => {}
            }
        }
    }
}

/// A waiter's place; the last one to leave takes the topic with it.
struct Seat<'a> {
    room: &'a WaitingRoom,
    topic: Topic,
    notify: Arc<Notify>,
}

impl<'a> Seat<'a> {
    fn take(room: &'a WaitingRoom, topic: Topic) -> Seat<'a> {
        let notify = Arc::clone(room.shard(topic).lock().expect("no holder panics").entry(topic).or_default());
        Seat { room, topic, notify }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut shard = self.room.shard(self.topic).lock().expect("no holder panics");
        // Ours and the map's: nobody else sits here.
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
    async fn an_announcement_during_the_look_is_not_missed() {
        let room = WaitingRoom::default();
        let looks = AtomicU32::new(0);
        let found = room
            .wait(TOPIC, LONG, LONG, || {
                let look = looks.fetch_add(1, Ordering::Relaxed);
                if look == 1 {
                    room.announce(&[TOPIC]); // It happens after this look and before the wait.
                }
                Ok::<_, ()>((look == 2).then_some("found"))
            })
            .await;
        assert_eq!(found, Ok(Some("found")));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_after_the_hold_and_leaves_no_seat() {
        let room = WaitingRoom::default();
        let start = tokio::time::Instant::now();
        let found = room.wait(TOPIC, Duration::from_secs(20), LONG, || Ok::<Option<()>, ()>(None)).await;
        assert_eq!(found, Ok(None));
        assert_eq!(start.elapsed(), Duration::from_secs(20));
        assert!(room.shard(TOPIC).lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_all_waiting() {
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
