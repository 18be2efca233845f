//! Accounts and secrets.

use super::{AWKWARD_IDS, AWKWARD_TEXT, Case, NOW, Subject, commit, query};
use crate::account::{Account, Event, Role, State};
use crate::id::NodeId;
use crate::secret::{self, Purpose, Secret, SecretId};

pub(super) const CASES: &[Case] = &[
    ("accounts round-trip in every role and state", accounts_round_trip),
    ("putting an account again updates it", update),
    ("secrets round-trip for every purpose and state", secrets_round_trip),
    ("secrets are found by account, hash and public id", found),
    ("deleting a secret is idempotent", deleted),
    ("secrets end when they are used, revoked or expired", ended),
    ("the limit of ended secrets holds", ended_limit),
];

fn put(subject: &Subject<'_>, secrets: Vec<Secret>) {
    commit(subject, move |tx| secrets.iter().try_for_each(|secret| tx.put_secret(secret)));
}

fn join(hash: u8) -> Secret {
    Secret::new([hash; 32], Purpose::Join, "1", "", Some(60.0), NOW)
}

fn accounts_round_trip(subject: &Subject<'_>) {
    let mut accounts = Vec::new();
    for role in Role::ALL {
        for state in State::ALL {
            let name = format!("{}-{}", role.name(), state.name());
            accounts.push(Account::new(&format!("{AWKWARD_TEXT}{name}"), &name, role, NOW + 0.1).restore(state));
        }
    }
    accounts.sort_by(|a, b| a.name.cmp(&b.name));
    let kept: Vec<Account> = accounts.iter().rev().cloned().collect();
    commit(subject, move |tx| kept.iter().try_for_each(|account| tx.put_account(account)));
    assert_eq!(query(subject, |read| read.accounts()), accounts, "by name");
    for account in &accounts {
        assert_eq!(query(subject, |read| read.account(&account.id)).as_ref(), Some(account));
        assert_eq!(query(subject, |read| read.account_by_name(&account.name)).as_ref(), Some(account));
        assert_eq!(query(subject, |read| read.account(&account.name)), None, "a name is no id");
        assert_eq!(query(subject, |read| read.account_by_name(&account.name.to_uppercase())), None);
    }
}

fn update(subject: &Subject<'_>) {
    let mut account = Account::new("1", "ann", Role::Viewer, NOW);
    for event in [Event::SetRole(Role::Admin), Event::Disable, Event::SetRole(Role::Runner), Event::Enable] {
        account.apply(event);
        let kept = account.clone();
        commit(subject, move |tx| tx.put_account(&kept));
        assert_eq!(query(subject, |read| read.accounts()), std::slice::from_ref(&account), "after {event:?}");
    }
}

fn secrets_round_trip(subject: &Subject<'_>) {
    let states = [
        secret::State::Fresh,
        secret::State::Used { at: NOW + 0.1, node: None },
        secret::State::Used { at: NOW + 0.1, node: Some(NodeId(AWKWARD_IDS[4])) },
        secret::State::Revoked { at: NOW + 0.2 },
    ];
    let mut hash = 0;
    for purpose in Purpose::ALL {
        for state in states {
            for ttl_s in [None, Some(0.1 + 0.2)] {
                let fresh = Secret::new([hash; 32], purpose, AWKWARD_TEXT, AWKWARD_TEXT, ttl_s, NOW);
                // A fresh secret first, to detect a store that updates too few columns.
                put(subject, vec![fresh.clone()]);
                let secret = fresh.restore(state);
                put(subject, vec![secret.clone()]);
                assert_eq!(query(subject, |read| read.secret(&secret.hash)), Some(secret));
                hash += 1;
            }
        }
    }
    assert_eq!(query(subject, |read| read.secrets()).len(), usize::from(hash));
    assert_eq!(query(subject, |read| read.secret(&[0xee; 32])), None);
}

fn found(subject: &Subject<'_>) {
    let with = |hash, account, created_at| Secret::new(hash, Purpose::Access, account, "", None, created_at);
    let mut last = [0xff; 32];
    last[4..].fill(0);
    let secrets = [with([0; 32], "ann", NOW + 2.0), with([0xff; 32], "bob", NOW + 1.0), with([7; 32], "ann", NOW)];
    put(subject, secrets.to_vec());
    let ids = |secrets: Vec<Secret>| secrets.iter().map(|secret| secret.hash[0]).collect::<Vec<_>>();
    assert_eq!(ids(query(subject, |read| read.secrets())), [7, 0xff, 0], "oldest first");
    assert_eq!(ids(query(subject, |read| read.secrets_of("ann"))), [7, 0], "oldest first");
    assert_eq!(ids(query(subject, |read| read.secrets_of("nobody"))), [0; 0]);
    for secret in &secrets {
        assert_eq!(query(subject, |read| read.secret_by_id(secret.id())).as_ref(), Some(secret));
    }
    assert_eq!(query(subject, |read| read.secret_by_id(SecretId::of(&[8; 32]))), None);
    assert_eq!(query(subject, |read| read.secret(&last)), None, "part of a hash is not the hash");
    assert_eq!(query(subject, |read| read.secret_by_id(SecretId::of(&last))).as_ref(), Some(&secrets[1]));
}

fn deleted(subject: &Subject<'_>) {
    put(subject, vec![join(1), join(2)]);
    for _ in 0..2 {
        commit(subject, |tx| tx.delete_secret(&[1; 32]));
        assert_eq!(query(subject, |read| read.secret(&[1; 32])), None);
        assert_eq!(query(subject, |read| read.secret_by_id(join(1).id())), None);
        assert_eq!(query(subject, |read| read.secrets_of("1")), [join(2)]);
    }
}

fn ended(subject: &Subject<'_>) {
    let lasting = |hash: u8| Secret::new([hash; 32], Purpose::Access, "1", "", None, NOW);
    let secrets = [
        (join(1), NOW + 60.0),
        (join(2).restore(secret::State::Used { at: NOW + 10.0, node: None }), NOW + 10.0),
        (join(3).restore(secret::State::Revoked { at: NOW + 100.0 }), NOW + 100.0),
        (lasting(5).restore(secret::State::Revoked { at: NOW + 5.0 }), NOW + 5.0),
    ];
    put(subject, secrets.iter().map(|(secret, _)| secret.clone()).collect());
    put(subject, vec![lasting(6)]);
    let until = |at: f64| {
        let mut hashes: Vec<u8> =
            query(subject, |read| read.ended_secrets(at, 100)).iter().map(|secret| secret.hash[0]).collect();
        hashes.sort_unstable();
        hashes
    };
    for (secret, end) in &secrets {
        assert_eq!(secret.ends_at(), Some(*end));
        assert!(!until(end.next_down()).contains(&secret.hash[0]), "before {secret}");
        assert!(until(*end).contains(&secret.hash[0]), "after {secret}");
    }
    assert_eq!(until(f64::MAX), [1, 2, 3, 5], "a secret without an end never ends");
}

fn ended_limit(subject: &Subject<'_>) {
    put(subject, (0..20).map(join).collect());
    for limit in [0, 1, 19, 20, 21, usize::MAX] {
        assert_eq!(query(subject, |read| read.ended_secrets(f64::MAX, limit)).len(), limit.min(20));
    }
}
