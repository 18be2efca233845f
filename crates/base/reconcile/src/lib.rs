//! The reconcile loop: observe, decide and act once, then wait until the next reconcile is due, something wakes the loop, or it is
//! stopped. Time is an argument, so that the same loop runs in production and on a simulated clock.

use std::future::{Future, pending};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};

/// When to reconcile again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// After this delay, or earlier if the loop is woken.
    After(Duration),
    /// The reconcile failed: after the backoff, or earlier if the loop is woken.
    Retry,
    /// Only if the loop is woken.
    WhenWoken,
    /// Never: nothing is left to reconcile.
    Done,
}

/// How a loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done,
    Stopped,
}

/// What a loop reconciles. Every reconcile starts from what it observes, so that it does not matter how the previous one ended.
pub trait Reconciler {
    /// Observes, decides and acts once.
    fn reconcile(&mut self) -> impl Future<Output = Next> + Send;

    /// Resolves if a reconcile is due at once. A wake-up during a reconcile must not be lost.
    fn woken(&mut self) -> impl Future<Output = ()> + Send;
}

/// Runs a reconcile loop until nothing is left to reconcile or `stop` resolves. A reconcile in progress is finished first.
pub async fn run<S: Future<Output = ()>>(
    reconciler: &mut impl Reconciler,
    mut backoff: Backoff,
    sleep: impl Fn(Duration) -> S,
    stop: impl Future<Output = ()>,
) -> End {
    let mut stop = pin!(stop);
    loop {
        let next = reconciler.reconcile().await;
        let delay = match next {
            Next::After(delay) => Some(delay),
            Next::Retry => Some(backoff.next()),
            Next::WhenWoken => None,
            Next::Done => return End::Done,
        };
        if next != Next::Retry {
            backoff.reset();
        }
        let due = async {
            match delay {
                Some(delay) => sleep(delay).await,
                None => pending().await,
            }
        };
        let (due, woken) = (pin!(due), pin!(reconciler.woken()));
        if let Either::Left(_) = select(stop.as_mut(), select(due, woken)).await {
            return End::Stopped;
        }
    }
}

/// Delays between retries: the first is `min`, each further one twice as long, up to `max`.
#[derive(Debug, Clone)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(min: Duration, max: Duration) -> Backoff {
        Backoff { min, max, next: min }
    }

    /// The delay before the next retry.
    #[expect(clippy::should_implement_trait, reason = "a backoff is not a sequence to iterate over: it never ends")]
    pub fn next(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.max);
        delay
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.next = self.min;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::{poll_fn, ready};
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Returns these, one after the other; wakes itself after the last `WhenWoken`.
    struct Script(Vec<Next>);

    impl Reconciler for Script {
        async fn reconcile(&mut self) -> Next {
            self.0.remove(0)
        }

        async fn woken(&mut self) {
            if self.0.len() > 2 {
                pending().await
            }
        }
    }

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    fn backoff() -> Backoff {
        Backoff::new(Duration::from_secs(1), Duration::from_secs(3))
    }

    #[test]
    fn failures_back_off_until_a_success() {
        let after = Next::After(Duration::from_secs(9));
        let script = vec![Next::Retry, Next::Retry, Next::Retry, after, Next::Retry, Next::WhenWoken, Next::Done];
        let slept = RefCell::new(Vec::new());
        let sleep = |delay: Duration| {
            slept.borrow_mut().push(delay.as_secs());
            ready(())
        };
        assert_eq!(now(run(&mut Script(script), backoff(), sleep, pending())), Some(End::Done));
        assert_eq!(*slept.borrow(), [1, 2, 3, 9, 1]);
    }

    #[test]
    fn a_loop_waits_and_stops_between_reconciles_only() {
        let mut script = Script(vec![Next::After(Duration::MAX), Next::Done, Next::Done, Next::Done]);
        let never = |_| pending();
        let stop_later = || {
            let mut polls = 0;
            poll_fn(move |_| {
                polls += 1;
                if polls > 1 { Poll::Ready(()) } else { Poll::Pending }
            })
        };
        assert_eq!(now(run(&mut script, backoff(), never, stop_later())), None, "it waits");
        script.0.insert(0, Next::WhenWoken);
        assert_eq!(now(run(&mut script, backoff(), never, ready(()))), Some(End::Stopped));
        assert_eq!(script.0.len(), 3, "it reconciled once before it stopped");
    }
}
