//! The registry on a real file: the port's promises, documents and revisions, tokens, what outlives a restart.

use std::sync::Arc;

use tempfile::TempDir;
use trellis_clock::now_ms;
use trellis_plan::conformance::{StoreSubject, store_cases};
use trellis_plan::{DesiredState, StoreError};
use trellis_spec::{Federation, Name};

use crate::{AuditRecord, MAX_RUNS, NewToken, PastRuns, Put, Registry, RegistryError};

const DAY_MS: u64 = 24 * 3600 * 1000;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn federation(name: &str, count: u32) -> Federation {
    let document = format!(
        "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: {name}}}\n\
         spec: {{pools: [{{name: pool, count: {count}}}]}}\n"
    );
    trellis_spec::read(&document, "test").unwrap().remove(0)
}

async fn open() -> (TempDir, Registry) {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::open(directory.path()).unwrap();
    (directory, registry)
}

#[tokio::test]
async fn the_store_keeps_the_promises_of_the_port() {
    for (promise, case) in store_cases() {
        let (_directory, registry) = open().await;
        registry.put(&federation("fed", 2), None, 1).await.unwrap();
        let subject = StoreSubject { store: registry.store(&name("fed")), now_ms: now_ms() };
        println!("{promise}");
        case(&subject).await;
    }
}

#[tokio::test]
async fn a_copy_has_all_and_leaves_nothing() {
    let empty = Registry::copy(None).unwrap();
    assert!(empty.federations().await.unwrap().is_empty());
    let (directory, registry) = open().await;
    let files = || std::fs::read_dir(directory.path()).unwrap().count();
    registry.put(&federation("fed", 2), None, 1).await.unwrap();
    // The original is still open, so that its write-ahead log has data that the file does not have.
    let copy = Registry::copy(Some(directory.path())).unwrap();
    assert_eq!(copy.federations().await.unwrap(), registry.federations().await.unwrap());
    copy.put(&federation("fed", 3), None, 2).await.unwrap();
    assert_eq!(registry.federation(&name("fed")).await.unwrap().unwrap().revision, 1, "the original stays");
    drop(registry);
    let before = files();
    Registry::copy(Some(directory.path())).unwrap();
    assert_eq!(files(), before);
}

#[tokio::test]
async fn a_document_has_revisions() {
    let (directory, registry) = open().await;
    let (first, second) = (federation("fed", 2), federation("fed", 3));
    assert_eq!(registry.put(&first, Some(0), 10).await.unwrap(), Put::Created { revision: 1 });
    assert_eq!(registry.put(&first, None, 20).await.unwrap(), Put::Unchanged { revision: 1 });
    let refused = registry.put(&second, Some(0), 30).await;
    assert!(matches!(refused, Err(RegistryError::Conflict { expected: 0, found: 1 })), "{refused:?}");
    assert_eq!(registry.put(&second, Some(1), 40).await.unwrap(), Put::Changed { revision: 2 });

    drop(registry);
    let registry = Registry::open(directory.path()).unwrap();
    let entry = registry.federation(&name("fed")).await.unwrap().unwrap();
    assert_eq!((entry.revision, entry.changed_ms), (2, 40));
    assert_eq!(entry.desired, DesiredState::Federation(Arc::new(second)));
    assert_eq!(registry.federations().await.unwrap(), [entry]);
}

#[tokio::test]
async fn who_started_a_run_is_known_until_its_federation_is_gone() {
    let (_directory, registry) = open().await;
    registry.put(&federation("fed", 1), None, 1).await.unwrap();
    registry.note_starter(&name("fed"), "7", "night shift").await.unwrap();
    let expected = [("7".to_owned(), "night shift".to_owned())];
    assert_eq!(registry.starters(&name("fed")).await.unwrap(), expected.into());
    assert!(registry.starters(&name("other")).await.unwrap().is_empty());
    registry.leave(&name("fed"), false, 2).await.unwrap();
    registry.forget(&name("fed")).await.unwrap();
    assert!(registry.starters(&name("fed")).await.unwrap().is_empty());
}

#[tokio::test]
async fn who_is_drained_is_known_until_its_federation_is_gone() {
    let (_directory, registry) = open().await;
    let fed = name("fed");
    registry.put(&federation("fed", 1), None, 1).await.unwrap();
    for (node, drained) in [("7", true), ("7", true), ("8", true), ("8", false)] {
        registry.drain(&fed, node, drained).await.unwrap();
    }
    assert_eq!(registry.drained(&fed).await.unwrap(), ["7".to_owned()].into());
    registry.leave(&fed, false, 2).await.unwrap();
    registry.forget(&fed).await.unwrap();
    assert!(registry.drained(&fed).await.unwrap().is_empty());
}

#[tokio::test]
async fn one_that_leaves_takes_no_document_until_it_is_gone() {
    let (_directory, registry) = open().await;
    let (fed, document) = (name("fed"), federation("fed", 2));
    assert!(!registry.leave(&fed, false, 1).await.unwrap());
    registry.put(&document, None, 1).await.unwrap();
    // A federation that is not marked for deletion is not removed.
    registry.forget(&fed).await.unwrap();
    assert!(registry.federation(&fed).await.unwrap().is_some());

    assert!(registry.leave(&fed, false, 2).await.unwrap());
    assert!(registry.leave(&fed, false, 3).await.unwrap(), "repeated it is the same");
    let entry = registry.federation(&fed).await.unwrap().unwrap();
    assert_eq!((entry.desired, entry.changed_ms), (DesiredState::Deleted(fed.clone()), 2));
    assert!(matches!(registry.put(&document, None, 4).await, Err(RegistryError::Leaving)));
    registry.forget(&fed).await.unwrap();
    assert_eq!(registry.put(&document, None, 5).await.unwrap(), Put::Created { revision: 1 });
}

#[tokio::test]
async fn fences_outlive_their_federation_and_the_registry() {
    let (_directory, registry) = open().await;
    let (fed, now_ms) = (name("fed"), now_ms());
    registry.put(&federation("fed", 2), None, now_ms).await.unwrap();
    let first = registry.store(&fed).lease("one", now_ms, 1000).await.unwrap();
    // The previous holder may act for the next federation too, with new serial numbers.
    registry.leave(&fed, false, now_ms).await.unwrap();
    registry.forget(&fed).await.unwrap();
    registry.put(&federation("fed", 2), None, now_ms).await.unwrap();
    let second = registry.store(&fed).lease("one", now_ms, 1000).await.unwrap();
    assert!(second.fence > first.fence);

    let (_elsewhere, other) = open().await;
    other.put(&federation("fed", 2), None, now_ms).await.unwrap();
    let third = other.store(&fed).lease("one", now_ms + 1000, 1000).await.unwrap();
    assert!(third.fence > second.fence, "a registry that was lost begins with the time");
}

#[tokio::test]
async fn two_processes_share_one_lease() {
    let (directory, registry) = open().await;
    let (fed, now_ms) = (name("fed"), now_ms());
    registry.put(&federation("fed", 2), None, now_ms).await.unwrap();
    let other = Registry::open(directory.path()).unwrap();
    let lease = registry.store(&fed).lease("one", now_ms, 60_000).await.unwrap();
    let refused = other.store(&fed).lease("two", now_ms + 1, 60_000).await;
    assert_eq!(refused, Err(StoreError::Held { until_ms: lease.until_ms }));
    // A document that another process changed is visible to the next read.
    let store = registry.store(&fed);
    store.read().await.unwrap();
    other.put(&federation("fed", 5), None, now_ms).await.unwrap();
    assert_eq!(store.read().await.unwrap().desired, DesiredState::Federation(Arc::new(federation("fed", 5))));
}

#[tokio::test]
async fn a_token_counts_until_it_expires_or_is_revoked() {
    let (directory, registry) = open().await;
    let new = |name: &str, byte: u8, expires_ms| NewToken {
        name: name.to_owned(),
        role: "viewer".to_owned(),
        sha256: [byte; 32],
        expires_ms,
    };
    let lasting = registry.issue_token(&new("lasting", 1, None), 10).await.unwrap();
    let passing = registry.issue_token(&new("passing", 2, Some(100)), 20).await.unwrap();
    assert_eq!(registry.token(&[2; 32], 99).await.unwrap(), Some(passing.clone()));
    assert_eq!(registry.token(&[2; 32], 100).await.unwrap(), None);
    assert_eq!(registry.tokens().await.unwrap(), [lasting.clone(), passing]);
    assert!(registry.revoke_token(&lasting.id).await.unwrap());
    assert!(!registry.revoke_token(&lasting.id).await.unwrap());
    drop(registry);
    let registry = Registry::open(directory.path()).unwrap();
    assert_eq!(registry.token(&[1; 32], 10).await.unwrap(), None);
    assert!(registry.renew_token(&[2; 32], "viewer", 300).await.unwrap());
    let renewed = registry.token(&[2; 32], 100).await.unwrap().expect("it counts again");
    assert_eq!((renewed.role.as_str(), renewed.expires_ms), ("viewer", Some(300)));
    assert!(!registry.renew_token(&[1; 32], "viewer", 300).await.unwrap(), "a renewal brings no revoked token back");
}

#[tokio::test]
async fn an_answer_is_remembered_for_a_day() {
    let (_directory, registry) = open().await;
    registry.remember_answer("ada", "key", "42", DAY_MS).await.unwrap();
    assert_eq!(registry.answered("ada", "key", 2 * DAY_MS - 1).await.unwrap().as_deref(), Some("42"));
    assert_eq!(registry.answered("bob", "key", DAY_MS).await.unwrap(), None);
    assert_eq!(registry.answered("ada", "key", 2 * DAY_MS).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("registry.db");
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign.execute_batch("CREATE TABLE other (x)").unwrap();
    assert!(matches!(Registry::open(directory.path()), Err(RegistryError::Damaged { .. })));
    foreign.execute_batch("DROP TABLE other; PRAGMA application_id = 0x54524c52; PRAGMA user_version = 99").unwrap();
    assert!(matches!(Registry::open(directory.path()), Err(RegistryError::Newer { found: 99, .. })));
}

#[tokio::test]
async fn one_that_cannot_be_read_does_not_stop_the_others() {
    let (directory, registry) = open().await;
    registry.put(&federation("good", 2), None, 1).await.unwrap();
    registry.put(&federation("bad", 2), None, 1).await.unwrap();
    let other = rusqlite::Connection::open(directory.path().join("registry.db")).unwrap();
    other.execute("UPDATE federation SET document = 'apiVersion: x' WHERE name = 'bad'", []).unwrap();
    let names: Vec<Name> = registry.federations().await.unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [name("good")]);
    assert_eq!(registry.put(&federation("bad", 3), None, 2).await.unwrap(), Put::Changed { revision: 2 });
}

#[tokio::test]
async fn a_site_that_left_the_document_keeps_its_driver() {
    let document = |sites: &str| {
        let text = format!(
            "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: fed}}\n\
             spec: {{nodes: 1, sites: [{sites}]}}\n"
        );
        trellis_spec::read(&text, "test").unwrap_or_else(|problems| panic!("{problems}")).remove(0)
    };
    let cloud = |zone: u32| {
        format!(
            "{{name: cloud, opennebula: {{endpoint: 'https://one.example.org/RPC2', network: private, zone: {zone}}}}}"
        )
    };
    let (directory, registry) = open().await;
    let first = document(&format!("{{name: lab}}, {}", cloud(1)));
    let second = document(&format!("{}, {{name: edge, local: {{containers: podman}}}}", cloud(2)));
    registry.put(&first, None, 1).await.unwrap();
    // As a registry of the version before has it.
    let other = rusqlite::Connection::open(directory.path().join("registry.db")).unwrap();
    other.execute("DELETE FROM site", []).unwrap();
    assert_eq!(registry.sites(&name("fed")).await.unwrap().len(), 2, "those of the document are known anyway");
    registry.put(&second, None, 2).await.unwrap();

    drop(registry);
    let registry = Registry::open(directory.path()).unwrap();
    let sites = registry.sites(&name("fed")).await.unwrap();
    let known: Vec<&str> = sites.keys().map(Name::as_str).collect();
    assert_eq!(known, ["cloud", "edge", "lab"]);
    assert_eq!((&sites[&name("lab")], &sites[&name("cloud")]), (&first.sites[0], &second.sites[0]));
    registry.leave(&name("fed"), false, 3).await.unwrap();
    assert_eq!(registry.sites(&name("fed")).await.unwrap().len(), 3, "they are needed until nothing is left");
    registry.forget(&name("fed")).await.unwrap();
    assert_eq!(registry.sites(&name("fed")).await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_registry_of_the_first_version_is_carried_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("registry.db");
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(include_str!("schema-v1.sql")).unwrap();
    old.execute_batch("PRAGMA application_id = 0x54524c52; PRAGMA user_version = 1").unwrap();
    let document = trellis_spec::to_yaml(&federation("fed", 2));
    old.execute("INSERT INTO federation (name, document, revision, changed_ms) VALUES ('fed', ?1, 1, 1)", [document])
        .unwrap();
    drop(old);
    let registry = Registry::open(directory.path()).unwrap();
    assert_eq!(registry.federation(&name("fed")).await.unwrap().unwrap().revision, 1);
    assert_eq!(registry.sites(&name("fed")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn runs_outlive_their_federation_until_it_is_purged() {
    let (directory, registry) = open().await;
    let (fed, document) = (name("fed"), federation("fed", 2));
    let go = async |registry: &Registry, purge| {
        assert!(registry.leave(&fed, purge, 1).await.unwrap());
        registry.forget(&fed).await.unwrap();
    };
    registry.put(&document, None, 1).await.unwrap();
    for (id, at_ms, text) in [("1", 10, "first"), ("2", 20, "second"), ("1", 10, "first again")] {
        registry.store_run(&fed, id, at_ms, text.to_owned()).await.unwrap();
    }
    assert!(registry.past().await.unwrap().is_empty() && !registry.purge(&fed).await.unwrap(), "it is not gone");
    go(&registry, false).await;
    drop(registry);
    let registry = Registry::open(directory.path()).unwrap();
    assert_eq!(registry.runs(&fed).await.unwrap(), ["second", "first again"]);
    let past = PastRuns { federation: "fed".to_owned(), runs: 2, last_submitted_ms: 20 };
    assert_eq!(registry.past().await.unwrap(), [past]);

    registry.put(&document, None, 1).await.unwrap();
    assert_eq!(registry.runs(&fed).await.unwrap().len(), 2, "the next one of this name has them too");
    go(&registry, true).await;
    assert!(registry.runs(&fed).await.unwrap().is_empty());
    registry.store_run(&fed, "3", 30, "third".to_owned()).await.unwrap();
    assert!(registry.purge(&fed).await.unwrap() && !registry.purge(&fed).await.unwrap());
}

#[tokio::test]
async fn the_newest_runs_are_kept() {
    let (_directory, registry) = open().await;
    for number in 0..MAX_RUNS + 2 {
        registry.store_run(&name("fed"), &number.to_string(), number as u64, number.to_string()).await.unwrap();
    }
    let runs = registry.runs(&name("fed")).await.unwrap();
    assert_eq!((runs.len(), runs[0].as_str(), runs[MAX_RUNS - 1].as_str()), (MAX_RUNS, "1001", "2"));
}

#[tokio::test]
async fn refusals_fill_the_audit_log_to_its_limit_and_displace_nothing_else() {
    let registry = Registry::copy(None).unwrap();
    let record = |detail: &str, refused| AuditRecord { detail: detail.to_owned(), refused, ..AuditRecord::default() };
    registry.audit(record("issued\u{1b}", false)).await.unwrap();
    for _ in 0..21_000 {
        registry.audit(record("refused", true)).await.unwrap();
    }
    let newest = registry.audited(None, 2).await.unwrap();
    assert_eq!(newest.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [21_000, 21_001]);
    let oldest = registry.audited(Some(0), 2).await.unwrap();
    assert_eq!((oldest[0].seq, oldest[0].detail.as_str()), (1, "issued\u{fffd}"));
    assert!(oldest[1].seq > 500, "the oldest refusals are deleted: {:?}", oldest[1]);
}
