//! Virtual time, which passes when all futures wait: a clock, and an executor for futures on it.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::Millis;
use crate::clock::Clock;
use crate::driver::Call;

#[derive(Default)]
pub struct VirtualClock {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now_ms: Millis,
    /// By end of the wait; the number distinguishes waits with the same end.
    sleepers: BTreeMap<(Millis, u64), Waker>,
    next_sleeper: u64,
    signal: bool,
    waiting: Vec<Waker>,
}

impl VirtualClock {
    pub fn new(now_ms: Millis) -> Arc<VirtualClock> {
        Arc::new(VirtualClock { state: Mutex::new(State { now_ms, ..State::default() }) })
    }

    /// Ends waits for a wake-up.
    pub fn signal(&self) {
        let mut state = self.state();
        state.signal = true;
        state.waiting.drain(..).for_each(Waker::wake);
    }

    /// Advances to the end of the first wait, or to `max_ms` if there is none before. Returns `false` at `max_ms`.
    fn advance(&self, max_ms: Millis) -> bool {
        let mut state = self.state();
        let first = state.sleepers.first_key_value().map(|((at_ms, _), _)| *at_ms).filter(|at_ms| *at_ms <= max_ms);
        state.now_ms = state.now_ms.max(first.unwrap_or(max_ms));
        let now_ms = state.now_ms;
        let later = state.sleepers.split_off(&(now_ms + 1, 0));
        let ended = std::mem::replace(&mut state.sleepers, later);
        ended.into_values().for_each(Waker::wake);
        first.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for VirtualClock {
    fn now_ms(&self) -> Millis {
        self.state().now_ms
    }

    fn sleep_until(&self, at_ms: Millis) -> Call<'_, ()> {
        let sleep = poll_fn(move |context| {
            let mut state = self.state();
            if state.now_ms >= at_ms {
                return Poll::Ready(());
            }
            state.next_sleeper += 1;
            let key = (at_ms, state.next_sleeper);
            state.sleepers.insert(key, context.waker().clone());
            Poll::Pending
        });
        Box::pin(sleep)
    }

    fn woken(&self) -> Call<'_, ()> {
        let wait = poll_fn(|context| {
            let mut state = self.state();
            if std::mem::take(&mut state.signal) {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        });
        Box::pin(wait)
    }
}

/// Executes futures in virtual time. A task can be dropped at any time, as by a crash.
pub struct Executor<'a> {
    clock: Arc<VirtualClock>,
    woken: Arc<WakeFlag>,
    tasks: BTreeMap<u64, Pin<Box<dyn Future<Output = ()> + 'a>>>,
    next_task: u64,
}

#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<'a> Executor<'a> {
    pub fn new(clock: Arc<VirtualClock>) -> Executor<'a> {
        Executor { clock, woken: Arc::default(), tasks: BTreeMap::new(), next_task: 0 }
    }

    pub fn spawn(&mut self, task: impl Future<Output = ()> + 'a) -> u64 {
        self.next_task += 1;
        self.tasks.insert(self.next_task, Box::pin(task));
        self.woken.0.store(true, Ordering::Relaxed);
        self.next_task
    }

    /// Drops a task.
    pub fn crash(&mut self, task: u64) {
        self.tasks.remove(&task);
    }

    pub fn is_running(&self, task: u64) -> bool {
        self.tasks.contains_key(&task)
    }

    /// Runs all tasks until `until_ms`.
    pub fn run_until(&mut self, until_ms: Millis) {
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        loop {
            while self.woken.0.swap(false, Ordering::Relaxed) {
                self.tasks.retain(|_, task| task.as_mut().poll(&mut context).is_pending());
            }
            if !self.clock.advance(until_ms) && !self.woken.0.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Runs a future to its end in virtual time.
///
/// # Panics
/// If the future waits and no timer is pending.
pub fn block_on<T>(clock: &VirtualClock, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let bell = Arc::new(WakeFlag::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        let rang = bell.0.swap(false, Ordering::Relaxed);
        let sleepers = !clock.state().sleepers.is_empty();
        assert!(rang || sleepers, "the future waits, but no timer is pending");
        if !rang {
            clock.advance(Millis::MAX - 1);
        }
    }
}
