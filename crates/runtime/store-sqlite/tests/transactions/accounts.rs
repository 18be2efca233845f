//! Accounts: creation, roles, disabling; an active admin always remains.

use trellis_core::access::{self, NewSecret, Rejected};
use trellis_core::account::{self, Account, Permission, Role, State};
use trellis_core::conformance::ask;
use trellis_core::refusal::Kind;

use super::audit::tells;
use super::scene::{Scene, Step, T0};

/// Creates an account whose id differs from its name, to detect confusion of the two.
pub(crate) fn create(scene: &Scene, name: &'static str, role: Role) -> Account {
    scene.ok(move |tx| account::create(tx, &format!("{name}-id"), name, role, "operator", T0))
}

fn find(scene: &Scene, name: &str) -> Account {
    scene.see(|read| read.account_by_name(name)).unwrap()
}

#[test]
fn the_life_of_an_account() {
    let scene = Scene::new();
    create(&scene, "root", Role::Admin);
    let ann = create(&scene, "ann", Role::Viewer);
    assert_eq!((&ann.id[..], ann.state(), ann.created_at), ("ann-id", State::Active, T0));
    assert!(!find(&scene, "ann").may(Permission::Run));
    scene.twice(|tx| account::set_role(tx, "ann", Role::Runner, "root", T0 + 1.0));
    assert!(find(&scene, "ann").may(Permission::Run));
    scene.twice(|tx| account::disable(tx, "ann", "root", T0 + 2.0));
    assert!(!find(&scene, "ann").may(Permission::View));
    scene.twice(|tx| account::enable(tx, "ann", "root", T0 + 3.0));
    assert!(find(&scene, "ann").may(Permission::Run), "the role is kept");
    tells(
        &scene,
        "
        0 operator account-created root admin
        0 operator account-created ann viewer
        1 root account-role-changed ann viewer to runner
        2 root account-disabled ann 0 secrets revoked
        3 root account-enabled ann runner",
    );
    let steps: [Step; 3] = [
        |tx| account::set_role(tx, "bob", Role::Admin, "root", T0),
        |tx| account::disable(tx, "bob", "root", T0),
        |tx| account::enable(tx, "bob", "root", T0),
    ];
    for step in steps {
        assert_eq!(scene.refused(step), (Kind::NotFound, "There is no account 'bob'.".to_owned()));
    }
}

#[test]
fn an_invalid_name_is_refused_with_all_errors() {
    let scene = Scene::new();
    create(&scene, "ann", Role::Admin);
    let refuse = |id: &'static str, name: &'static str| {
        scene.refused(move |tx| account::create(tx, id, name, Role::Viewer, "operator", T0))
    };
    let (kind, text) = refuse("2", "-Ann Lee");
    assert_eq!(kind, Kind::Invalid);
    assert!(text.contains("'-Ann Lee' cannot be used: it has other characters than a-z"), "{text}");
    assert!(text.ends_with("; it begins with neither a letter nor a digit."), "{text}");
    let (kind, text) = refuse("2", "ann");
    assert_eq!((kind, &text[..]), (Kind::Precondition, "Account name 'ann' cannot be used: it is taken."));
    assert_eq!(refuse("ann-id", "bob").0, Kind::Transient, "a retry picks another id");
    scene.ok(|tx| account::set_role(tx, "ann", Role::Admin, "operator", T0));
    assert_eq!(scene.see(|read| read.accounts()).len(), 1);
}

#[test]
fn the_last_active_admin_stays() {
    let scene = Scene::new();
    create(&scene, "root", Role::Admin);
    create(&scene, "ann", Role::Runner);
    let last = "'root' is the last active admin. Make another account admin first.";
    let stays = |scene: &Scene| {
        for role in [Role::Viewer, Role::Runner] {
            let refusal = scene.refused(move |tx| account::set_role(tx, "root", role, "root", T0));
            assert_eq!(refusal, (Kind::Precondition, last.to_owned()));
        }
        assert_eq!(scene.refused(|tx| account::disable(tx, "root", "root", T0)), (Kind::Precondition, last.to_owned()));
    };
    stays(&scene);
    scene.ok(|tx| account::set_role(tx, "ann", Role::Admin, "root", T0));
    scene.ok(|tx| account::disable(tx, "ann", "root", T0));
    stays(&scene);
    scene.ok(|tx| account::enable(tx, "ann", "root", T0));
    scene.ok(|tx| account::disable(tx, "root", "ann", T0));
    assert_eq!(scene.refused(|tx| account::disable(tx, "ann", "ann", T0)).0, Kind::Precondition);
}

#[test]
fn disabling_an_account_revokes_its_secrets() {
    let scene = Scene::new();
    create(&scene, "root", Role::Admin);
    create(&scene, "ann", Role::Admin);
    let secret = |hash: u8| NewSecret { hash: [hash; 32], label: String::new(), ttl_s: Some(60.0) };
    let pair = access::Pair { access: [3; 32], refresh: [4; 32] };
    let again = access::Pair { access: [5; 32], refresh: [6; 32] };
    scene.ok(move |tx| access::issue_access(tx, "ann", &secret(1), "root", T0));
    scene.ok(move |tx| access::issue_join(tx, "ann-id", &secret(2), T0));
    scene.ok(move |tx| access::login(tx, "ann-id", &pair, None, T0));
    scene.ok(move |tx| access::refresh(tx, &pair.refresh, &again, T0));
    scene.ok(move |tx| access::issue_access(tx, "root", &secret(7), "root", T0));
    scene.ok(|tx| account::disable(tx, "ann", "root", T0 + 1.0));
    scene.ok(|tx| account::enable(tx, "ann", "root", T0 + 2.0));
    for hash in [1, 3, 5] {
        let refusal = ask(&scene.store, |read| access::authenticate(read, &[hash; 32], T0 + 3.0));
        assert_eq!(Rejected::of(&refusal.unwrap_err()), Some(Rejected::Revoked), "access {hash}");
    }
    for hash in [4, 6] {
        let fresh = access::Pair { access: [8; 32], refresh: [9; 32] };
        let refusal = scene.act(move |tx| access::refresh(tx, &[hash; 32], &fresh, T0 + 3.0)).unwrap_err();
        assert_eq!(Rejected::of(&refusal), Some(Rejected::Revoked), "refresh {hash}, used or not");
    }
    let states = scene.see(|read| read.secrets_of("ann-id"));
    assert!(states.iter().all(|secret| secret.state().name() == "revoked"), "{states:?}");
    assert!(scene.see(|read| access::authenticate(read, &[7; 32], T0 + 3.0)).may(Permission::Administer));
}
