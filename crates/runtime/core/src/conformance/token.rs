//! Tokens, by run, hash and expiry.

use super::{AWKWARD_IDS, Case, NOW, Subject, commit, query};
use crate::id::RunId;
use crate::token::{State, Token};

pub(super) const CASES: &[Case] = &[
    ("tokens round-trip in every state", tokens_round_trip),
    ("a run has one token: the last one put", replaced),
    ("deleting a token is idempotent", deleted),
    ("tokens are due at their deadline, not before", due),
];

fn token(run: u64, hash: u8, state: State) -> Token {
    Token { run: RunId(run), hash: [hash; 32], state }
}

fn in_every_state() -> Vec<Token> {
    vec![
        token(AWKWARD_IDS[4], 0, State::Issued { until: NOW + 0.1 }),
        token(AWKWARD_IDS[3], 0xff, State::Active { until: NOW + 0.2 }),
        token(AWKWARD_IDS[2], b'\'', State::Spent { until: NOW + 0.3 }),
    ]
}

fn tokens_round_trip(subject: &Subject<'_>) {
    let tokens = in_every_state();
    let kept = tokens.clone();
    commit(subject, move |tx| kept.iter().try_for_each(|token| tx.put_token(token)));
    for token in &tokens {
        assert_eq!(query(subject, |read| read.token(token.run)).as_ref(), Some(token));
        assert_eq!(query(subject, |read| read.token_by_hash(&token.hash)).as_ref(), Some(token));
    }
    assert_eq!(query(subject, |read| read.token(RunId(1))), None);
    assert_eq!(query(subject, |read| read.token_by_hash(&[1; 32])), None);
}

fn replaced(subject: &Subject<'_>) {
    let steps = [
        token(9, 1, State::Issued { until: NOW }),
        token(9, 1, State::Active { until: NOW + 1.0 }),
        token(9, 1, State::Spent { until: NOW + 2.0 }),
        token(9, 2, State::Issued { until: NOW - 1.0 }),
    ];
    for step in steps {
        let kept = step.clone();
        commit(subject, move |tx| tx.put_token(&kept));
        assert_eq!(query(subject, |read| read.token(RunId(9))), Some(step));
    }
    assert_eq!(query(subject, |read| read.token_by_hash(&[1; 32])), None, "the old secret is void");
    assert_eq!(query(subject, |read| read.tokens_until(f64::MAX)).len(), 1);
}

fn deleted(subject: &Subject<'_>) {
    let tokens = in_every_state();
    let gone = tokens[0].clone();
    let run = gone.run;
    commit(subject, move |tx| tokens.iter().try_for_each(|token| tx.put_token(token)));
    for _ in 0..2 {
        commit(subject, move |tx| tx.delete_token(run));
        assert_eq!(query(subject, |read| read.token(run)), None);
        assert_eq!(query(subject, |read| read.token_by_hash(&gone.hash)), None);
        assert_eq!(query(subject, |read| read.tokens_until(f64::MAX)).len(), 2);
    }
}

fn due(subject: &Subject<'_>) {
    let tokens = in_every_state();
    let kept = tokens.clone();
    commit(subject, move |tx| kept.iter().try_for_each(|token| tx.put_token(token)));
    let due = |at: f64| {
        let mut due = query(subject, |read| read.tokens_until(at));
        due.sort_by(|a, b| a.state.until().total_cmp(&b.state.until()));
        due
    };
    assert_eq!(due(NOW), []);
    for (token, so_far) in tokens.iter().zip(1..) {
        let until = token.state.until();
        assert_eq!(due(until.next_down()), tokens[..so_far - 1]);
        assert_eq!(due(until), tokens[..so_far]);
    }
}
