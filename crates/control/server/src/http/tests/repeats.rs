//! An Idempotency-Key stands for one request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::oneshot;

use super::desk::Desk;
use crate::http::fault::{Fault, Kind};
use crate::http::repeat::{Asked, once};

fn asked(key: &str, body: &str) -> Asked {
    Asked::new("caller", key, "lab", body.as_bytes())
}

#[tokio::test]
async fn the_same_is_done_once_and_answered_alike() {
    let desk = Desk::new().await;
    let done = Arc::new(AtomicU32::new(0));
    let work = || {
        let done = Arc::clone(&done);
        async move { Ok::<u32, Fault>(done.fetch_add(1, Ordering::Relaxed)) }
    };
    for _ in 0..3 {
        assert_eq!(once(Arc::clone(&desk.api), asked("a", "body"), work()).await.unwrap(), 0);
    }
    assert_eq!(once(Arc::clone(&desk.api), asked("b", "body"), work()).await.unwrap(), 1, "another key is another run");
    let other = once(Arc::clone(&desk.api), asked("a", "other"), work()).await.unwrap_err();
    assert_eq!(other.kind, Kind::KEY_REUSED);
    assert_eq!(done.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_refusal_may_be_tried_again() {
    let desk = Desk::new().await;
    let refuse = async { Err::<u32, Fault>(Fault::new(Kind::NOT_NOW, "later")) };
    assert_eq!(once(Arc::clone(&desk.api), asked("a", ""), refuse).await.unwrap_err().kind, Kind::NOT_NOW);
    assert_eq!(once(Arc::clone(&desk.api), asked("a", ""), async { Ok::<u32, Fault>(7) }).await.unwrap(), 7);
}

#[tokio::test]
async fn of_two_at_once_one_wins_even_if_its_caller_goes_away() {
    let desk = Desk::new().await;
    let (let_go, held) = oneshot::channel::<()>();
    let (began, begun) = oneshot::channel::<()>();
    let slow = async move {
        let _ = began.send(());
        let _ = held.await;
        Ok::<u32, Fault>(1)
    };
    let first = tokio::spawn(once(Arc::clone(&desk.api), asked("a", ""), slow));
    begun.await.unwrap();
    let second = once(Arc::clone(&desk.api), asked("a", ""), async { Ok::<u32, Fault>(2) });
    assert_eq!(second.await.unwrap_err().kind, Kind::UNDER_WAY);
    first.abort();
    assert!(first.await.is_err());
    let_go.send(()).unwrap();
    let third = loop {
        match once(Arc::clone(&desk.api), asked("a", ""), async { Ok::<u32, Fault>(3) }).await {
            Err(fault) if fault.kind == Kind::UNDER_WAY => tokio::task::yield_now().await,
            answer => break answer.unwrap(),
        }
    };
    assert_eq!(third, 1, "the first was completed and remembered");
}
