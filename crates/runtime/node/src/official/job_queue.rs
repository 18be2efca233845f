//! The jobs for apps: which are available, and which app holds which job. A token is valid for one job, until the job is removed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trellis_core::Seconds;
use trellis_digest::{hex, sha256};

use super::assignment::{Assignment, Delivery, Lapse, Outlet, TokenHash};
use crate::app::Job;

/// The length of a token before encoding, as in Flower.
const TOKEN_BYTES: usize = 128;

pub struct JobQueue {
    assignments: Mutex<Vec<Assignment>>,
    /// Signalled when a job is available.
    waiting: Notify,
    start: Instant,
    stop: CancellationToken,
}

impl JobQueue {
    pub fn new(stop: CancellationToken) -> Arc<JobQueue> {
        Arc::new(JobQueue { assignments: Mutex::default(), waiting: Notify::new(), start: Instant::now(), stop })
    }

    /// Makes a job available to SuperExecs.
    pub fn offer(self: &Arc<Self>, job: Job) -> JobHandle {
        let post = self.add(job, |_, _| ());
        self.waiting.notify_waiters();
        post
    }

    /// Assigns a job to a new token, for an app that the node starts and watches.
    pub fn assign(self: &Arc<Self>, job: Job) -> (JobHandle, String) {
        let (token, hash) = new_token();
        let post = self.add(job, |assignment, now| assignment.take(hash, true, now));
        (post, token)
    }

    fn add(self: &Arc<Self>, job: Job, prepare: impl FnOnce(&mut Assignment, Seconds)) -> JobHandle {
        let task = new_task();
        let (mut assignment, Outlet { delivery, deadline }) = Assignment::new(task, job);
        prepare(&mut assignment, self.now());
        self.assignments.lock().expect("no holder panics").push(assignment);
        JobHandle { queue: Arc::clone(self), task, delivery, deadline }
    }

    fn now(&self) -> Seconds {
        self.start.elapsed().as_secs_f64()
    }

    /// Calls a function with the assignment of a task, if it exists.
    pub fn with<T>(&self, task: u64, act: impl FnOnce(&mut Assignment, Seconds) -> T) -> Option<T> {
        let now = self.now();
        let mut assignments = self.assignments.lock().expect("no holder panics");
        assignments.iter_mut().find(|assignment| assignment.task == task).map(|assignment| act(assignment, now))
    }

    /// The first match, mapped.
    fn find<T>(&self, fits: impl Fn(&Assignment) -> bool, map: impl FnOnce(&Assignment) -> T) -> Option<T> {
        let assignments = self.assignments.lock().expect("no holder panics");
        assignments.iter().find(|assignment| fits(assignment)).map(map)
    }

    pub fn by_token(&self, token: &str) -> Option<u64> {
        let hash = sha256(token.as_bytes());
        self.find(|assignment| assignment.has_token(&hash), |assignment| assignment.task)
    }

    /// The tasks of a run whose apps have no token in this kind of call.
    pub fn by_name(&self, run: u64) -> Vec<u64> {
        let assignments = self.assignments.lock().expect("no holder panics");
        assignments.iter().filter(|one| one.run() == run && one.is_named()).map(|one| one.task).collect()
    }

    /// A job of a run.
    pub fn job(&self, run: u64) -> Option<Arc<Job>> {
        self.find(|assignment| assignment.run() == run, |assignment| Arc::clone(&assignment.job))
    }

    /// The available jobs with their tasks; waits for one up to `hold`.
    pub async fn waiting(&self, hold: Duration) -> Vec<(u64, Arc<Job>)> {
        let end = Instant::now() + hold;
        loop {
            let told = self.waiting.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let waiting = self.look();
            if !waiting.is_empty() {
                return waiting;
            }
            tokio::select! {
                () = told => {}
                () = tokio::time::sleep_until(end) => return Vec::new(),
                () = self.stop.cancelled() => return Vec::new(),
            }
        }
    }

    fn look(&self) -> Vec<(u64, Arc<Job>)> {
        let assignments = self.assignments.lock().expect("no holder panics");
        let waiting = assignments.iter().filter(|assignment| assignment.is_waiting());
        waiting.map(|assignment| (assignment.task, Arc::clone(&assignment.job))).collect()
    }

    /// Takes a job: returns a token unless the job was taken.
    pub fn take(&self, task: u64) -> Option<String> {
        let (token, hash) = new_token();
        let taken = self.with(task, |assignment, now| {
            let free = assignment.is_waiting();
            if free {
                assignment.take(hash, false, now);
            }
            free
        });
        taken.unwrap_or(false).then_some(token)
    }

    /// Like [`JobQueue::take`], for a job that is known by its run.
    pub fn take_run(&self, run: u64) -> Option<String> {
        let task = self.find(|one| one.run() == run && one.is_waiting(), |one| one.task)?;
        self.take(task)
    }
}

/// A job from the side of the node. Dropping it removes the job and invalidates its token.
pub struct JobHandle {
    queue: Arc<JobQueue>,
    task: u64,
    delivery: oneshot::Receiver<Delivery>,
    deadline: watch::Receiver<Option<Seconds>>,
}

/// How a job ended.
#[derive(Debug)]
pub enum Ending {
    Delivered(Delivery),
    /// No sign of life of its app before the deadline.
    Lapsed,
}

impl JobHandle {
    /// Waits for the end. A job that was taken but not started is offered again, a few times.
    pub async fn ended(&mut self) -> Ending {
        loop {
            let deadline = self.deadline.borrow_and_update().map(|at| self.queue.start + Duration::from_secs_f64(at));
            let silence = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Ok(delivery) = &mut self.delivery => return Ending::Delivered(delivery),
                Ok(()) = self.deadline.changed() => {}
                () = silence => match self.queue.with(self.task, Assignment::lapse) {
                    Some(Lapse::OfferedAgain) => {
                        tracing::warn!("an instruction was taken, but no app started: it is offered again");
                        self.queue.waiting.notify_waiters();
                    }
                    Some(Lapse::Alive) => {}
                    Some(Lapse::Dead) | None => return Ending::Lapsed,
                },
            }
        }
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        let mut assignments = self.queue.assignments.lock().expect("no holder panics");
        assignments.retain(|assignment| assignment.task != self.task);
    }
}

fn new_token() -> (String, TokenHash) {
    let token = hex(&random::<TOKEN_BYTES>());
    let hash = sha256(token.as_bytes());
    (token, hash)
}

/// Zero is reserved.
fn new_task() -> u64 {
    u64::from_le_bytes(random()).max(1)
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the operating system provides randomness");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::official::testing::{RUN, job};

    fn queue() -> Arc<JobQueue> {
        JobQueue::new(CancellationToken::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_waits_for_a_job_and_only_one_caller_gets_it() {
        let queue = queue();
        assert!(queue.waiting(Duration::from_secs(20)).await.is_empty(), "the poll times out");
        let (asking, post) = tokio::join!(queue.waiting(Duration::from_secs(20)), async { queue.offer(job()) });
        let task = asking[0].0;
        let token = queue.take(task).expect("the job is available");
        assert_eq!(queue.take(task), None);
        assert_eq!(queue.take_run(RUN), None);
        assert_eq!(queue.by_token(&token), Some(task));
        assert!(queue.waiting(Duration::ZERO).await.is_empty());
        drop(post);
        assert_eq!(queue.by_token(&token), None, "the token is invalid after the job");
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_without_signs_of_life_ends() {
        let queue = queue();
        let (mut post, token) = queue.assign(job());
        let task = queue.by_token(&token).unwrap();
        queue.with(task, |assignment, now| assignment.begin(false, now));
        let started = Instant::now();
        let heard = async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            queue.with(task, |assignment, now| assignment.heartbeat(now));
            std::future::pending::<()>().await
        };
        let ending = tokio::select! {
            ending = post.ended() => ending,
            () = heard => unreachable!(),
        };
        assert!(matches!(ending, Ending::Lapsed));
        assert_eq!(started.elapsed().as_secs(), 160, "60 s after the last heartbeat");
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_taken_but_not_started_is_offered_again() {
        let queue = queue();
        let mut post = queue.offer(job());
        let task = post.task;
        let takers = async {
            for _ in 0..3 {
                let waiting = queue.waiting(Duration::from_secs(3600)).await;
                assert_eq!(waiting[0].0, task);
                queue.take(task).unwrap();
            }
            std::future::pending::<()>().await
        };
        tokio::select! {
            ending = post.ended() => assert!(matches!(ending, Ending::Lapsed)),
            () = takers => unreachable!(),
        }
    }
}
