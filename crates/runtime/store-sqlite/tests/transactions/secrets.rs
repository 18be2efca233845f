//! Secrets: authentication, refresh and revocation.

use trellis_core::access::{self, LOGIN_ACCESS_TTL_S, LOGIN_REFRESH_TTL_S, NewSecret, Pair, Rejected};
use trellis_core::account::{self, Account, Role, State};
use trellis_core::conformance::ask;
use trellis_core::refusal::{Kind, Refusal};
use trellis_core::secret::{Hash, SecretId};
use trellis_core::upkeep::{is_due, tick};

use super::accounts::create;
use super::audit::tells;
use super::scene::{Scene, T0};

fn hash(n: u8) -> Hash {
    [n; 32]
}

fn new(n: u8, label: &str, ttl_s: Option<f64>) -> NewSecret {
    NewSecret { hash: hash(n), label: label.into(), ttl_s }
}

fn pair(access: u8, refresh: u8) -> Pair {
    Pair { access: hash(access), refresh: hash(refresh) }
}

fn scene() -> Scene {
    let scene = Scene::new();
    create(&scene, "root", Role::Admin);
    create(&scene, "ann", Role::Runner);
    scene
}

fn issue(scene: &Scene, n: u8, ttl_s: Option<f64>) -> SecretId {
    scene.ok(move |tx| access::issue_access(tx, "ann", &new(n, "ci", ttl_s), "root", T0))
}

/// The account of the secret, or why it is refused.
fn who(scene: &Scene, n: u8, now: f64) -> Result<String, Rejected> {
    match ask(&scene.store, |read| access::authenticate(read, &hash(n), now)) {
        Ok(account) => Ok(account.name),
        Err(refusal) => Err(why(refusal)),
    }
}

/// Returns why the secret was refused, after checking the common text.
fn why(refusal: Refusal) -> Rejected {
    let words = "The token is not valid. Log in again (`flwr login`), or ask an administrator for a new one.";
    assert_eq!((refusal.kind, refusal.to_string().as_str()), (Kind::Unauthenticated, words));
    Rejected::of(&refusal).expect("the reason for the audit log")
}

fn refresh(scene: &Scene, shown: u8, gives: Pair, now: f64) -> Result<String, Rejected> {
    scene.act(move |tx| access::refresh(tx, &hash(shown), &gives, now)).map(|account| account.name).map_err(why)
}

#[test]
fn a_valid_secret_authenticates_its_account_and_an_invalid_one_nobody() {
    let scene = scene();
    issue(&scene, 1, Some(60.0));
    let lasting = issue(&scene, 2, None);
    scene.ok(|tx| access::login(tx, "ann-id", &pair(3, 4), None, T0));
    scene.ok(|tx| access::issue_join(tx, "root-id", &new(5, "", Some(60.0)), T0));
    assert_eq!(who(&scene, 1, T0), Ok("ann".into()));
    assert_eq!(who(&scene, 1, (T0 + 60.0).next_down()), Ok("ann".into()));
    assert_eq!(who(&scene, 1, T0 + 60.0), Err(Rejected::Expired));
    assert_eq!(who(&scene, 2, T0 + 1e9), Ok("ann".into()));
    assert_eq!(who(&scene, 3, T0 + 1.0), Ok("ann".into()));
    assert_eq!(who(&scene, 4, T0), Err(Rejected::WrongPurpose), "a refresh secret gives no access");
    assert_eq!(who(&scene, 5, T0), Err(Rejected::WrongPurpose), "a join token gives no access");
    assert_eq!(who(&scene, 6, T0), Err(Rejected::Unknown));

    scene.twice(move |tx| access::revoke(tx, lasting, "root", T0 + 1.0));
    assert_eq!(who(&scene, 2, T0 + 1.0), Err(Rejected::Revoked), "at once");
    let unknown = SecretId::of(&hash(9));
    let (kind, text) = scene.refused(move |tx| access::revoke(tx, unknown, "root", T0));
    assert_eq!((kind, &text[..]), (Kind::NotFound, "There is no secret with ID 09090909."));
    tells(
        &scene,
        "
        0 operator account-created root admin
        0 operator account-created ann runner
        0 root secret-issued ann access 01010101 (ci)
        0 root secret-issued ann access 02020202 (ci)
        0 ann login ann refresh 04040404 (login)
        0 root secret-issued a new node join 05050505
        1 root secret-revoked ann access 02020202 (ci)",
    );
}

#[test]
fn the_current_role_counts() {
    let scene = scene();
    issue(&scene, 1, None);
    let role = || scene.see(|read| access::authenticate(read, &hash(1), T0)).role();
    assert_eq!(role(), Role::Runner);
    scene.ok(|tx| account::set_role(tx, "ann", Role::Viewer, "root", T0));
    assert_eq!(role(), Role::Viewer);
    // Without `disable`, which would revoke the secret: the state of the account is enough.
    let disabled = Account::new("ann-id", "ann", Role::Runner, T0).restore(State::Disabled);
    scene.ok(move |tx| tx.put_account(&disabled));
    assert_eq!(who(&scene, 1, T0), Err(Rejected::Disabled));
}

#[test]
fn invalid_secrets_are_not_issued() {
    let scene = scene();
    issue(&scene, 1, None);
    let refuse = |account: &'static str, secret: NewSecret| {
        scene.refused(move |tx| access::issue_access(tx, account, &secret, "root", T0))
    };
    assert_eq!(refuse("bob", new(2, "", None)).0, Kind::NotFound);
    assert_eq!(refuse("ann", new(1, "", None)).0, Kind::Transient, "a retry picks another secret");
    let mut alike = hash(1);
    alike[31] = 9;
    let alike = NewSecret { hash: alike, label: String::new(), ttl_s: None };
    assert_eq!(refuse("ann", alike).0, Kind::Transient, "public ids are unique");
    for ttl_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(refuse("ann", new(2, "", Some(ttl_s))).0, Kind::Invalid, "{ttl_s}");
    }
    let (kind, text) = refuse("ann", new(2, &"x".repeat(65), Some(-1.0)));
    assert_eq!(kind, Kind::Invalid);
    assert!(text.contains("more than 64 characters; its lifetime is not positive"), "all errors: {text}");
    scene.ok(|tx| account::disable(tx, "ann", "root", T0));
    assert_eq!(refuse("ann", new(2, "", None)), (Kind::Precondition, "Account 'ann' is disabled.".into()));
    let refusal = scene.act(|tx| access::login(tx, "ann-id", &pair(3, 4), None, T0)).unwrap_err();
    assert_eq!(why(refusal), Rejected::Disabled);
}

#[test]
fn a_login_is_refreshed_until_its_refresh_secret_expires() {
    let scene = scene();
    scene.ok(|tx| access::login(tx, "ann-id", &pair(1, 2), None, T0));
    let end = T0 + LOGIN_ACCESS_TTL_S;
    assert_eq!(who(&scene, 1, end.next_down()), Ok("ann".into()));
    assert_eq!(who(&scene, 1, end), Err(Rejected::Expired));
    assert_eq!(refresh(&scene, 2, pair(3, 4), end), Ok("ann".into()));
    assert_eq!(who(&scene, 3, end), Ok("ann".into()));
    let away = end + LOGIN_REFRESH_TTL_S;
    assert_eq!(refresh(&scene, 4, pair(5, 6), away), Err(Rejected::Expired));
    assert_eq!(refresh(&scene, 4, pair(5, 6), away.next_down()), Ok("ann".into()));
    assert_eq!(refresh(&scene, 3, pair(7, 8), end), Err(Rejected::WrongPurpose), "an access secret refreshes nothing");
    assert_eq!(refresh(&scene, 9, pair(7, 8), end), Err(Rejected::Unknown));
}

#[test]
fn a_refresh_does_not_move_the_end_of_a_login_of_single_sign_on() {
    let scene = scene();
    let end = T0 + LOGIN_ACCESS_TTL_S + 60.0;
    scene.ok(move |tx| access::login(tx, "ann-id", &pair(1, 2), Some(end - T0), T0));
    assert_eq!(who(&scene, 1, T0 + LOGIN_ACCESS_TTL_S), Err(Rejected::Expired), "access is as short as always");
    assert_eq!(refresh(&scene, 2, pair(3, 4), end.next_down()), Ok("ann".into()));
    assert_eq!((who(&scene, 3, end.next_down()), who(&scene, 3, end)), (Ok("ann".into()), Err(Rejected::Expired)));
    assert_eq!(refresh(&scene, 4, pair(5, 6), end), Err(Rejected::Expired));
}

#[test]
fn the_account_of_an_identity_has_its_role_and_a_disabled_one_stays_so() {
    let scene = scene();
    let sign_in = |role| scene.act(move |tx| account::of_identity(tx, "eve-id", "eve@x.org", role, "root", T0));
    assert_eq!(sign_in(Role::Runner).map(|account| account.role()).unwrap(), Role::Runner);
    let again = sign_in(Role::Viewer).unwrap();
    assert_eq!((again.id.as_str(), again.role()), ("eve-id", Role::Viewer), "the same account, another role");
    scene.ok(|tx| account::disable(tx, "eve@x.org", "root", T0));
    assert_eq!(sign_in(Role::Admin).unwrap_err().kind, Kind::Precondition);
}

#[test]
fn a_refresh_secret_works_once_with_a_grace_period() {
    let scene = scene();
    scene.ok(|tx| access::login(tx, "ann-id", &pair(1, 2), None, T0));
    assert_eq!(refresh(&scene, 2, pair(3, 4), T0 + 10.0), Ok("ann".into()));
    assert_eq!(refresh(&scene, 2, pair(5, 6), T0 + 69.9), Ok("ann".into()), "the answer was lost");
    assert_eq!(refresh(&scene, 2, pair(7, 8), T0 + 70.0), Err(Rejected::Used));
    assert_eq!(refresh(&scene, 2, pair(7, 8), T0 + 69.9), Ok("ann".into()), "the grace period starts at the first use");
    let id = SecretId::of(&hash(2));
    scene.ok(move |tx| access::revoke(tx, id, "root", T0 + 11.0));
    assert_eq!(refresh(&scene, 2, pair(9, 10), T0 + 11.0), Err(Rejected::Revoked), "also in the grace period");
}

#[test]
fn a_refused_refresh_creates_no_secrets() {
    let scene = scene();
    scene.ok(|tx| access::login(tx, "ann-id", &pair(1, 2), None, T0));
    scene.ok(|tx| account::disable(tx, "ann", "root", T0));
    for shown in [1, 2, 9] {
        let (kind, _) = scene.refused(move |tx| access::refresh(tx, &hash(shown), &pair(3, 4), T0));
        assert_eq!(kind, Kind::Unauthenticated);
    }
    let (kind, _) = scene.refused(|tx| access::login(tx, "root-id", &pair(2, 3), None, T0));
    assert_eq!(kind, Kind::Transient, "both secrets or none");
}

#[test]
fn ended_secrets_are_deleted_after_a_week() {
    const WEEK_S: f64 = 7.0 * 86_400.0;
    let scene = scene();
    issue(&scene, 1, Some(60.0));
    issue(&scene, 2, None);
    let revoked = issue(&scene, 3, None);
    scene.ok(move |tx| access::revoke(tx, revoked, "root", T0 + 30.0));
    let left = || scene.see(|read| read.secrets()).iter().map(|secret| secret.hash[0]).collect::<Vec<_>>();
    for (at, expected) in [(T0 + 30.0 + WEEK_S, vec![1, 2]), (T0 + 60.0 + WEEK_S, vec![2])] {
        let before = left();
        scene.ok(move |tx| tick(tx, at.next_down()));
        assert_eq!((scene.see(|read| is_due(read, at.next_down())), left()), (false, before));
        assert!(scene.see(|read| is_due(read, at)));
        scene.twice(move |tx| tick(tx, at));
        assert_eq!((scene.see(|read| is_due(read, at)), left()), (false, expected));
    }
    assert_eq!(who(&scene, 3, T0 + WEEK_S), Err(Rejected::Unknown), "still invalid");
}
