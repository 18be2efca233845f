//! Transfers the objects of a message, two at a time, as official components do.

use std::collections::HashSet;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use trellis_wire::proto::{
    Node, ObjectTree, PullObjectRequest, PullObjectResponse, PushObjectRequest, PushObjectResponse,
};

use crate::call::{CallError, Caller};
use crate::pacing::Backoff;
use crate::payload::Object;
use crate::rpc::Rpc;

/// A participant that transfers objects: a node or a ServerApp.
pub trait ObjectPort: Sync {
    const PULL: Rpc<PullObjectRequest, PullObjectResponse>;
    const PUSH: Rpc<PushObjectRequest, PushObjectResponse>;

    fn caller(&self) -> &Caller;
    fn node_id(&self) -> u64;

    /// Requests an object once.
    fn pull_object(
        &self,
        run_id: u64,
        object_id: &str,
    ) -> impl Future<Output = Result<PullObjectResponse, CallError>> + Send {
        let node = Some(Node { node_id: self.node_id() });
        let request = PullObjectRequest { node, run_id, object_id: object_id.to_owned() };
        async move { self.caller().with_retries(&Self::PULL, &request).await }
    }
}

/// Pulls every object of the tree and drops it: verification is not measured.
pub async fn pull_tree(port: &impl ObjectPort, run_id: u64, tree: &ObjectTree) -> Result<(), CallError> {
    let mut ids = Vec::new();
    collect_ids(tree, &mut HashSet::new(), &mut ids);
    two_at_a_time(&ids, |id| pull_when_available(port, run_id, id)).await
}

/// Pushes the objects that the server requested, in the session that it opened for them (not in 1.25).
pub async fn push_requested<P: ObjectPort>(
    port: &P,
    run_id: u64,
    session_id: &str,
    objects: impl Iterator<Item = &Object>,
    wanted: &[String],
) -> Result<(), CallError> {
    let wanted: HashSet<&str> = wanted.iter().map(String::as_str).collect();
    let objects: Vec<&Object> = objects.filter(|object| wanted.contains(object.id.as_str())).collect();
    two_at_a_time(&objects, |object| async move {
        let request = PushObjectRequest {
            node: Some(Node { node_id: port.node_id() }),
            run_id,
            object_id: object.id.clone(),
            object_content: object.bytes.clone(),
            session_id: session_id.to_owned(),
        };
        let answer = port.caller().with_retries(&P::PUSH, &request).await?;
        if answer.stored { Ok(()) } else { Err(refused(port, "the server did not store an object")) }
    })
    .await
}

async fn pull_when_available(port: &impl ObjectPort, run_id: u64, id: &str) -> Result<(), CallError> {
    let mut backoff = Backoff::default();
    loop {
        let response = port.pull_object(run_id, id).await?;
        if !response.object_found {
            return Err(refused(port, "the server does not know an object of the message"));
        }
        if response.object_available {
            return Ok(());
        }
        tokio::time::sleep(backoff.after_object_missing(&mut port.caller().tally().jitter())).await;
    }
}

fn refused(port: &impl ObjectPort, what: &str) -> CallError {
    let error = CallError::fatal(what);
    port.caller().tally().fail(&error);
    error
}

fn collect_ids<'a>(tree: &'a ObjectTree, seen: &mut HashSet<&'a str>, ids: &mut Vec<&'a str>) {
    for child in &tree.children {
        collect_ids(child, seen, ids);
    }
    if seen.insert(&tree.object_id) {
        ids.push(&tree.object_id);
    }
}

async fn two_at_a_time<'a, T, F>(items: &'a [T], job: impl Fn(&'a T) -> F) -> Result<(), CallError>
where
    F: Future<Output = Result<(), CallError>>,
{
    let next = AtomicUsize::new(0);
    let worker = || async {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            job(item).await?;
        }
        Ok(())
    };
    tokio::try_join!(worker(), worker()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn shared_objects_are_pulled_once_children_first() {
        let leaf = |id: &str| ObjectTree { object_id: id.into(), children: vec![] };
        let tree = ObjectTree { object_id: "m".into(), children: vec![leaf("a"), leaf("b"), leaf("a")] };
        let mut ids = Vec::new();
        collect_ids(&tree, &mut HashSet::new(), &mut ids);
        assert_eq!(ids, ["a", "b", "m"]);
    }

    #[tokio::test]
    async fn at_most_two_are_in_flight_and_all_complete() {
        let (now, most, done) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let items: Vec<u32> = (0..9).collect();
        let job = |_: &u32| async {
            now.set(now.get() + 1);
            most.set(most.get().max(now.get()));
            tokio::task::yield_now().await;
            now.set(now.get() - 1);
            done.set(done.get() + 1);
            Ok(())
        };
        two_at_a_time(&items, job).await.unwrap();
        assert_eq!((most.get(), done.get()), (2, 9));
    }

    #[tokio::test]
    async fn the_first_failure_stops_the_transfer() {
        let tried = Cell::new(0);
        let job = |_: &u32| {
            tried.set(tried.get() + 1);
            std::future::ready(Err(CallError::fatal("shed")))
        };
        two_at_a_time(&[1, 2, 3, 4], job).await.unwrap_err();
        assert_eq!(tried.get(), 1);
    }
}
