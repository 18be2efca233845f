use super::*;
use crate::testing::{DAY, NOW, client, converse, endpoint, server};
use crate::{Served, check};

const VALIDITY: Span = Span::years(10);
const LEAF: Span = Span::days(30);

fn issue(keyring: &Keyring, now: UnixSeconds) -> Delivery {
    let endpoints = [endpoint("link.example.org"), endpoint("10.0.0.7")];
    keyring.issue(Wish { endpoints: &endpoints, name: None, validity: LEAF }, now).expect("a leaf")
}

/// Whether a client that has `trust` accepts a server with `delivery`.
fn accepted(trust: &str, delivery: &Delivery, now: UnixSeconds) -> bool {
    let file = |name: &str| PathBuf::from(name);
    let places = Files { certificate: file("tls.crt"), key: file("tls.key"), ca: file("ca.crt") };
    let contents = check::Contents::from_text(places, &delivery.chain, &delivery.key, &delivery.trust);
    let checked = check::examine(&contents, &[], now).expect("a good delivery");
    let mut server = server(std::sync::Arc::new(Served::new(&checked)));
    converse(&mut client(trust, "link.example.org", now), &mut server).is_ok()
}

#[test]
fn what_is_written_is_read() {
    let mut keyring = Keyring::new("ward", VALIDITY, NOW).expect("an authority");
    for step in [None, Some(Step::Begin), Some(Step::Switch), Some(Step::Finish)] {
        if let Some(step) = step {
            assert!(keyring.rotate(step, NOW).expect("a step"));
        }
        let again = Keyring::read("secret", &keyring.entries()).expect("whole");
        assert!(again == keyring);
        assert_eq!(again.entries(), keyring.entries());
    }
    assert_eq!(keyring.entries().len(), 3, "the old authority is gone, and its key");
}

#[test]
fn a_rotation_never_leaves_a_client_alone() {
    let mut keyring = Keyring::new("ward", VALIDITY, NOW).expect("an authority");
    let mut before = (keyring.trust_bundle(), issue(&keyring, NOW));
    let first = before.0.clone();
    for step in [Step::Begin, Step::Switch, Step::Finish] {
        keyring.rotate(step, NOW).expect("a step");
        let after = (keyring.trust_bundle(), issue(&keyring, NOW));
        assert!(accepted(&before.0, &before.1, NOW));
        // Leaves of before and after are accepted by clients of before and after.
        assert!(accepted(&before.0, &after.1, NOW), "{step:?}");
        assert!(accepted(&after.0, &before.1, NOW), "{step:?}");
        before = after;
    }
    assert!(!accepted(&first, &before.1, NOW), "clients with the first bundle do not trust the new authority");
}

#[test]
fn the_newest_changes_once_in_a_rotation() {
    let mut keyring = Keyring::new("ward", VALIDITY, NOW).expect("an authority");
    let first = keyring.newest().clone();
    keyring.rotate(Step::Begin, NOW).expect("a step");
    let second = keyring.newest().clone();
    assert_ne!(first, second);
    for step in [Step::Switch, Step::Finish] {
        keyring.rotate(step, NOW).expect("a step");
        assert_eq!(keyring.newest(), &second);
    }
}

#[test]
fn steps_may_be_repeated_and_wrong_ones_are_refused() {
    let mut keyring = Keyring::new("ward", VALIDITY, NOW).expect("an authority");
    assert!(keyring.rotate(Step::Switch, NOW).is_err());
    assert!(keyring.rotate(Step::Begin, NOW).expect("a step"));
    let entries = keyring.entries();
    assert!(!keyring.rotate(Step::Begin, NOW).expect("it has begun"));
    assert_eq!(keyring.entries(), entries);
}

#[test]
fn a_leaf_ends_with_its_authority() {
    let keyring = Keyring::new("ward", Span::days(10), NOW).expect("an authority");
    let delivery = issue(&keyring, NOW + 5 * DAY);
    let leaf = Certificate::read(&pem::certificates(delivery.chain.as_bytes()).unwrap()[0]).unwrap();
    assert_eq!(leaf.not_after, NOW + 10 * DAY);
}

#[test]
fn damage_is_told() {
    let keyring = Keyring::new("ward", VALIDITY, NOW).expect("an authority");
    let other = Keyring::new("other", VALIDITY, NOW).expect("an authority");
    let id = keyring.rotation().signing().to_string();
    let other_key = other.entries()[&format!("{}.key", other.rotation().signing())].clone();
    let cases: [(&str, Option<Vec<u8>>, &str); 5] = [
        (STATE, None, "state.json is missing"),
        (STATE, Some(b"{".to_vec()), "it is damaged"),
        (&format!("{id}.key"), None, ".key is missing"),
        (&format!("{id}.crt"), Some(b"nothing".to_vec()), ".crt is damaged"),
        (&format!("{id}.key"), Some(other_key), "it is not the key of this authority"),
    ];
    for (name, content, expected) in cases {
        let mut entries = keyring.entries();
        match content {
            Some(content) => entries.insert(name.to_owned(), content),
            None => entries.remove(name),
        };
        let error = Keyring::read("secret ward-authority", &entries).expect_err(expected).to_string();
        assert!(error.starts_with("secret ward-authority") && error.contains(expected), "{error}");
    }
}

#[test]
fn it_is_not_shown_by_accident() {
    let keyring = Keyring::new("ward", VALIDITY, NOW).expect("an authority");
    assert!(!format!("{keyring:?}").contains("PRIVATE"));
}
