//! Enrolment of a node with a join token: once, for one key, with retries.

use trellis_core::access::{self, MAX_JOIN_TTL_S, NewSecret, Rejected};
use trellis_core::account::{self, NOBODY_ID, Role};
use trellis_core::control::{self, NewNode};
use trellis_core::fleet;
use trellis_core::id::NodeId;
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::secret::{Hash, SecretId};

use super::accounts::create;
use super::audit::tells;
use super::scene::{INTERVAL_S, Scene, T0, key};

const TTL_S: f64 = 600.0;

fn hash(n: u8) -> Hash {
    [n; 32]
}

fn token(scene: &Scene, issuer: &'static str, n: u8) -> SecretId {
    let new = NewSecret { hash: hash(n), label: "barn".into(), ttl_s: Some(TTL_S) };
    scene.ok(move |tx| access::issue_join(tx, issuer, &new, T0))
}

fn node(n: u64) -> NewNode {
    NewNode { key: key(n), name: format!("n{n}"), location: String::new() }
}

/// Joins under id `id` with the key of `key_of`.
fn join(scene: &Scene, token: u8, id: u64, key_of: u64, now: f64) -> Result<NodeId, Refusal> {
    scene.act(move |tx| access::enrol(tx, &hash(token), NodeId(id), &node(key_of), now))
}

fn why(result: Result<NodeId, Refusal>) -> Rejected {
    let refusal = result.expect_err("a refusal");
    assert_eq!(refusal.kind, Kind::Unauthenticated);
    assert!(refusal.to_string().starts_with("The join token is not valid."), "one text for all reasons: {refusal}");
    Rejected::of(&refusal).expect("the reason for the audit log")
}

#[test]
fn a_token_registers_one_key_and_retries_succeed() {
    let scene = Scene::new();
    create(&scene, "root", Role::Admin);
    token(&scene, "root-id", 1);
    let joined = scene.twice(|tx| access::enrol(tx, &hash(1), NodeId(11), &node(11), T0 + 1.0));
    assert_eq!(joined, NodeId(11));
    let registered = scene.see(|read| read.node(NodeId(11))).unwrap();
    assert_eq!((&registered.owner_aid[..], &registered.owner_name[..]), ("root-id", "root"), "the issuer");
    assert_eq!((&registered.name[..], registered.state().name()), ("n11", "registered"));
    assert_eq!(scene.ok(|tx| fleet::activate(tx, &key(11), INTERVAL_S, "http 1.42.0", T0 + 2.0)), joined);

    let before = scene.dump();
    assert_eq!(join(&scene, 1, 99, 11, T0 + 3.0).unwrap(), joined, "the node keeps its id");
    assert_eq!(join(&scene, 1, 11, 11, T0 + 10.0 * TTL_S).unwrap(), joined, "expired after its use");
    assert_eq!(why(join(&scene, 1, 12, 12, T0 + 3.0)), Rejected::Used, "by another key");
    assert_eq!(scene.dump(), before);
    scene.online(13, T0 + 4.0);
    assert_eq!(why(join(&scene, 1, 13, 13, T0 + 4.0)), Rejected::Used, "by the key of another node");
    tells(
        &scene,
        "
        0 operator account-created root admin
        0 root secret-issued a new node join 01010101 (barn)
        1 root node-registered-by-token node 11 join 01010101 (barn) n11
        2 node 11 node-activated node 11 http 1.42.0
        4 node 13 node-registered-by-itself node 13
        4 node 13 node-activated node 13 grpc",
    );
}

#[test]
fn an_invalid_token_registers_no_node() {
    let scene = Scene::new();
    create(&scene, "root", Role::Admin);
    let revoked = token(&scene, "root-id", 1);
    token(&scene, "root-id", 2);
    let access = NewSecret { hash: hash(3), label: String::new(), ttl_s: None };
    scene.ok(move |tx| access::issue_access(tx, "root", &access, "root", T0));
    scene.ok(move |tx| access::revoke(tx, revoked, "root", T0));
    let before = scene.dump();
    assert_eq!(why(join(&scene, 1, 11, 11, T0)), Rejected::Revoked);
    assert_eq!(why(join(&scene, 2, 11, 11, T0 + TTL_S)), Rejected::Expired);
    assert_eq!(why(join(&scene, 3, 11, 11, T0)), Rejected::WrongPurpose);
    assert_eq!(why(join(&scene, 9, 11, 11, T0)), Rejected::Unknown);
    assert_eq!(scene.dump(), before);
    assert_eq!(join(&scene, 2, 11, 11, (T0 + TTL_S).next_down()).unwrap(), NodeId(11));
}

#[test]
fn a_token_is_void_while_its_issuer_may_not_issue() {
    let scene = Scene::new();
    create(&scene, "root", Role::Admin);
    create(&scene, "eve", Role::Admin);
    token(&scene, "eve-id", 1);
    scene.ok(|tx| account::set_role(tx, "eve", Role::Runner, "root", T0));
    assert_eq!(why(join(&scene, 1, 11, 11, T0)), Rejected::Disabled);
    scene.ok(|tx| account::set_role(tx, "eve", Role::Admin, "root", T0));
    assert_eq!(join(&scene, 1, 11, 11, T0).unwrap(), NodeId(11));
    token(&scene, "eve-id", 2);
    scene.ok(|tx| account::disable(tx, "eve", "root", T0));
    assert_eq!(why(join(&scene, 2, 12, 12, T0)), Rejected::Revoked);
}

#[test]
fn without_accounts_the_built_in_account_issues_tokens() {
    let scene = Scene::new();
    token(&scene, NOBODY_ID, 1);
    assert_eq!(join(&scene, 1, 11, 11, T0).unwrap(), NodeId(11));
    let owner = scene.see(|read| read.node(NodeId(11))).unwrap();
    assert_eq!((&owner.owner_aid[..], &owner.owner_name[..]), ("<id:none>", "<name:none>"));
}

#[test]
fn only_admins_issue_join_tokens_and_only_with_an_expiry() {
    let scene = Scene::new();
    create(&scene, "root", Role::Admin);
    create(&scene, "ann", Role::Runner);
    let refuse = |issuer: &'static str, ttl_s| {
        let new = NewSecret { hash: hash(1), label: String::new(), ttl_s };
        scene.refused(move |tx| access::issue_join(tx, issuer, &new, T0))
    };
    assert_eq!(refuse("ann-id", Some(TTL_S)).0, Kind::Denied);
    assert_eq!(refuse("unknown", Some(TTL_S)).0, Kind::Denied);
    assert_eq!(refuse("root-id", None).0, Kind::Invalid);
    assert_eq!(refuse("root-id", Some(MAX_JOIN_TTL_S.next_up())).0, Kind::Invalid);
    assert_eq!(refuse("root-id", Some(0.0)).0, Kind::Invalid);
}

#[test]
fn a_registered_key_needs_no_token_and_a_removed_key_gets_none() {
    let scene = Scene::new();
    token(&scene, NOBODY_ID, 1);
    scene.ok(|tx| control::register_node(tx, NodeId(11), ("aid", "name"), &node(11), T0));
    let before = scene.dump();
    assert_eq!(join(&scene, 1, 99, 11, T0).unwrap(), NodeId(11));
    assert_eq!(scene.dump(), before, "the token stays valid");
    scene.ok(|tx| fleet::unregister(tx, NodeId(11), T0));
    let refusal = join(&scene, 1, 99, 11, T0).unwrap_err();
    assert_eq!((refusal.kind, refusal.to_string().as_str()), (Kind::Precondition, fleet::KEY_IN_USE));

    assert_eq!(join(&scene, 1, 11, 12, T0).unwrap_err().kind, Kind::Transient, "a retry picks another id");
    assert_eq!(join(&scene, 1, 12, 12, T0).unwrap(), NodeId(12));
    scene.ok(|tx| fleet::unregister(tx, NodeId(12), T0));
    assert_eq!(why(join(&scene, 1, 12, 12, T0)), Rejected::Used, "the node was removed");
}
