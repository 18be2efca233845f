//! Moving the objects of a message, two at a time, as official components do. Knows not who moves them.

use std::collections::HashSet;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tonic::Status;
use trellis_wire::proto::{ObjectTree, PullObjectResponse, PushObjectResponse};

use crate::call::Tally;
use crate::pacing::Backoff;
use crate::payload::Object;

/// The calls that nodes and the ServerApp have in common.
pub trait ObjectPort: Sync {
    fn pull_object(
        &self,
        run_id: u64,
        object_id: &str,
    ) -> impl Future<Output = Result<PullObjectResponse, Status>> + Send;
    fn push_object(
        &self,
        run_id: u64,
        object_id: &str,
        content: Bytes,
    ) -> impl Future<Output = Result<PushObjectResponse, Status>> + Send;
    fn tally(&self) -> &Tally;
}

/// Pulls every object of the tree and drops it: checking contents is not what is measured.
pub async fn pull_tree(port: &impl ObjectPort, run_id: u64, tree: &ObjectTree) -> Result<(), Status> {
    let mut ids = Vec::new();
    collect_ids(tree, &mut HashSet::new(), &mut ids);
    two_at_a_time(&ids, |id| pull_when_available(port, run_id, id)).await
}

/// Pushes those of the objects that the server asked for.
pub async fn push_wanted(
    port: &impl ObjectPort,
    run_id: u64,
    objects: impl Iterator<Item = &Object>,
    wanted: &[String],
) -> Result<(), Status> {
    let wanted: HashSet<&str> = wanted.iter().map(String::as_str).collect();
    let objects: Vec<&Object> = objects.filter(|object| wanted.contains(object.id.as_str())).collect();
    two_at_a_time(&objects, |object| async move {
        let response = port.push_object(run_id, &object.id, object.bytes.clone()).await?;
        if response.stored { Ok(()) } else { Err(refused(port, "the server did not store an object")) }
    })
    .await
}

async fn pull_when_available(port: &impl ObjectPort, run_id: u64, id: &str) -> Result<(), Status> {
    let mut backoff = Backoff::default();
    loop {
        let response = port.pull_object(run_id, id).await?;
        if !response.object_found {
            return Err(refused(port, "the server does not know an object of the message"));
        }
        if response.object_available {
            return Ok(());
        }
        tokio::time::sleep(backoff.after_object_missing(&mut port.tally().jitter())).await;
    }
}

fn refused(port: &impl ObjectPort, what: &str) -> Status {
    let status = Status::not_found(what);
    port.tally().fail(&status);
    status
}

fn collect_ids<'a>(tree: &'a ObjectTree, seen: &mut HashSet<&'a str>, ids: &mut Vec<&'a str>) {
    for child in &tree.children {
        collect_ids(child, seen, ids);
    }
    if seen.insert(&tree.object_id) {
        ids.push(&tree.object_id);
    }
}

async fn two_at_a_time<'a, T, F>(items: &'a [T], job: impl Fn(&'a T) -> F) -> Result<(), Status>
where
    F: Future<Output = Result<(), Status>>,
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
    async fn never_more_than_two_in_flight_and_all_done() {
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
            std::future::ready(Err(Status::cancelled("shed")))
        };
        two_at_a_time(&[1, 2, 3, 4], job).await.unwrap_err();
        assert_eq!(tried.get(), 1);
    }
}
