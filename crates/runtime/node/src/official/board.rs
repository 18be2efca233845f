//! The jobs that apps are asked to do: which wait to be taken, and who holds which. One token is good for one job, as long as
//! that is on the board.

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

/// Bytes of a token, before they are written as text; as many as Flower's have.
const TOKEN_BYTES: usize = 128;

pub struct Board {
    assignments: Mutex<Vec<Assignment>>,
    /// Told when a job waits to be taken.
    waiting: Notify,
    start: Instant,
    stop: CancellationToken,
}

impl Board {
    pub fn new(stop: CancellationToken) -> Arc<Board> {
        Arc::new(Board { assignments: Mutex::default(), waiting: Notify::new(), start: Instant::now(), stop })
    }

    /// Puts a job up for whoever comes to take it.
    pub fn offer(self: &Arc<Self>, job: Job) -> Post {
        let post = self.post(job, |_, _| ());
        self.waiting.notify_waiters();
        post
    }

    /// Puts a job up for the holder of a new token, an app that we start and watch ourselves.
    pub fn assign(self: &Arc<Self>, job: Job) -> (Post, String) {
        let (token, hash) = new_token();
        let post = self.post(job, |assignment, now| assignment.take(hash, true, now));
        (post, token)
    }

    fn post(self: &Arc<Self>, job: Job, prepare: impl FnOnce(&mut Assignment, Seconds)) -> Post {
        let task = new_task();
        let (mut assignment, Outlet { delivery, deadline }) = Assignment::new(task, job);
        prepare(&mut assignment, self.now());
        self.assignments.lock().expect("no holder panics").push(assignment);
        Post { board: Arc::clone(self), task, delivery, deadline }
    }

    fn now(&self) -> Seconds {
        self.start.elapsed().as_secs_f64()
    }

    /// Does something with the assignment of a task, if that is still on the board.
    pub fn with<T>(&self, task: u64, act: impl FnOnce(&mut Assignment, Seconds) -> T) -> Option<T> {
        let now = self.now();
        let mut assignments = self.assignments.lock().expect("no holder panics");
        assignments.iter_mut().find(|assignment| assignment.task == task).map(|assignment| act(assignment, now))
    }

    /// The first that fits, as something else.
    fn find<T>(&self, fits: impl Fn(&Assignment) -> bool, look: impl FnOnce(&Assignment) -> T) -> Option<T> {
        let assignments = self.assignments.lock().expect("no holder panics");
        assignments.iter().find(|assignment| fits(assignment)).map(look)
    }

    pub fn by_token(&self, token: &str) -> Option<u64> {
        let hash = sha256(token.as_bytes());
        self.find(|assignment| assignment.has_token(&hash), |assignment| assignment.task)
    }

    /// Tasks of a run whose apps show no token with this kind of call.
    pub fn by_name(&self, run: u64) -> Vec<u64> {
        let assignments = self.assignments.lock().expect("no holder panics");
        assignments.iter().filter(|one| one.run() == run && one.is_named()).map(|one| one.task).collect()
    }

    /// A job of a run.
    pub fn job(&self, run: u64) -> Option<Arc<Job>> {
        self.find(|assignment| assignment.run() == run, |assignment| Arc::clone(&assignment.job))
    }

    /// Jobs that wait to be taken, with their tasks; held until there is one, or for `hold`.
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

    /// Gives a job to whoever asks: a token, unless somebody else has it.
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

    /// As [`Board::take`], where a job is known by its run.
    pub fn take_run(&self, run: u64) -> Option<String> {
        let task = self.find(|one| one.run() == run && one.is_waiting(), |one| one.task)?;
        self.take(task)
    }
}

/// A job on the board, from the side of whoever put it up. It comes down when this is dropped, and its token is good no more.
pub struct Post {
    board: Arc<Board>,
    task: u64,
    delivery: oneshot::Receiver<Delivery>,
    deadline: watch::Receiver<Option<Seconds>>,
}

/// How a job on the board came to its end.
#[derive(Debug)]
pub enum Ending {
    Delivered(Delivery),
    /// Nothing was heard of its app for too long.
    Lapsed,
}

impl Post {
    /// Waits for the end. A job that was taken and never begun is put up again, a few times.
    pub async fn ended(&mut self) -> Ending {
        loop {
            let deadline = self.deadline.borrow_and_update().map(|at| self.board.start + Duration::from_secs_f64(at));
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
                () = silence => match self.board.with(self.task, Assignment::lapse) {
                    Some(Lapse::OfferedAgain) => {
                        tracing::warn!("no app came for an instruction that was taken: it is offered again");
                        self.board.waiting.notify_waiters();
                    }
                    Some(Lapse::Alive) => {}
                    Some(Lapse::Dead) | None => return Ending::Lapsed,
                },
            }
        }
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        let mut assignments = self.board.assignments.lock().expect("no holder panics");
        assignments.retain(|assignment| assignment.task != self.task);
    }
}

fn new_token() -> (String, TokenHash) {
    let token = hex(&random::<TOKEN_BYTES>());
    let hash = sha256(token.as_bytes());
    (token, hash)
}

/// Zero means something else.
fn new_task() -> u64 {
    u64::from_le_bytes(random()).max(1)
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::official::testing::{RUN, job};

    fn board() -> Arc<Board> {
        Board::new(CancellationToken::new())
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_is_held_until_there_is_a_job_and_only_one_gets_it() {
        let board = board();
        assert!(board.waiting(Duration::from_secs(20)).await.is_empty(), "the hold is over");
        let (asking, post) = tokio::join!(board.waiting(Duration::from_secs(20)), async { board.offer(job()) });
        let task = asking[0].0;
        let token = board.take(task).expect("it is free");
        assert_eq!(board.take(task), None);
        assert_eq!(board.take_run(RUN), None);
        assert_eq!(board.by_token(&token), Some(task));
        assert!(board.waiting(Duration::ZERO).await.is_empty());
        drop(post);
        assert_eq!(board.by_token(&token), None, "the token went with the job");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_a_job() {
        let board = board();
        let (mut post, token) = board.assign(job());
        let task = board.by_token(&token).unwrap();
        board.with(task, |assignment, now| assignment.begin(false, now));
        let started = Instant::now();
        let heard = async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            board.with(task, |assignment, now| assignment.heartbeat(now));
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
    async fn a_job_taken_and_never_begun_comes_back() {
        let board = board();
        let mut post = board.offer(job());
        let task = post.task;
        let takers = async {
            for _ in 0..3 {
                let waiting = board.waiting(Duration::from_secs(3600)).await;
                assert_eq!(waiting[0].0, task);
                board.take(task).unwrap();
            }
            std::future::pending::<()>().await
        };
        tokio::select! {
            ending = post.ended() => assert!(matches!(ending, Ending::Lapsed)),
            () = takers => unreachable!(),
        }
    }
}
