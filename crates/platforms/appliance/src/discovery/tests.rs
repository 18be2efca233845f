use super::*;

fn attributes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn wanted() -> Wanted {
    Wanted { vm: 12, tls: false, trust: None, official: None, shard: false }
}

const GOOD: [(&str, &str); 3] = [("FL_READY", "YES"), ("FL_ENDPOINT", "10.0.0.5:9092"), ("FL_VERSION", "1.42.0")];

#[test]
fn one_snapshot_has_all_or_it_is_not_enough() {
    let with = |more: &[(&str, &str)]| attributes(&[&GOOD, more].concat());
    let tls = Wanted { tls: true, ..wanted() };
    let official = Wanted { official: Some("1.40.1".into()), ..wanted() };
    let shard = Wanted { shard: true, ..wanted() };
    for (said, wanted, expected) in [
        (attributes(&[]), wanted(), Missing::NotReady),
        (with(&[("FL_READY", "NO")]), wanted(), Missing::NotReady),
        (
            with(&[("FL_READY", "NO"), ("FL_ERROR", "port_busy: x")]),
            wanted(),
            Missing::InTrouble("port_busy: x".into()),
        ),
        (with(&[("FL_ENDPOINT", "")]), wanted(), Missing::NotReady),
        (with(&[("FL_ENDPOINT", "$(reboot):1")]), wanted(), Missing::Endpoint("$(reboot):1".into())),
        (with(&[("FL_ENDPOINT", "--insecure:1")]), wanted(), Missing::Endpoint("--insecure:1".into())),
        (with(&[("FL_VERSION", "")]), wanted(), Missing::Version),
        (with(&[]), official, Missing::VersionDiffers("1.42.0".into())),
        (with(&[]), tls.clone(), Missing::Authority),
        (with(&[("FL_TLS", "NO")]), tls.clone(), Missing::Plaintext),
        (with(&[("FL_CA_CERT", "bm90aGluZw==")]), tls, Missing::BadAuthority("there is no certificate in it".into())),
        (with(&[("TRELLIS_SHARDS", "11:0/1")]), shard, Missing::Shard),
    ] {
        match (read(&said, &wanted), expected) {
            (Err(Missing::BadAuthority(_)), Missing::BadAuthority(_)) => {}
            (found, expected) => assert_eq!(found, Err(expected), "{said:?}"),
        }
    }
}

#[test]
fn what_is_found_is_what_was_said() {
    let said = attributes(&[&GOOD[..], &[("TRELLIS_SHARDS", "11:0,12:1/2")]].concat());
    let found =
        read(&said, &Wanted { shard: true, official: Some("1.42.3".into()), ..wanted() }).expect("all is there");
    let version = Some("1.42.0".to_owned());
    let endpoint = "10.0.0.5:9092".to_owned();
    assert_eq!(found, Coordinator { endpoint, trust: None, version, http: None, shard: Some((1, 2)) });
    let given = Wanted { tls: true, trust: Some("PEM".into()), ..wanted() };
    assert_eq!(read(&said, &given).expect("all is there").trust.as_deref(), Some("PEM"));
}

#[test]
fn endpoints() {
    for (text, good) in [
        ("10.0.0.5:9092", true),
        ("link.example.org:1", true),
        ("[2001:db8::1]:9092", true),
        ("2001:db8::1:9092", false),
        ("10.0.0.5", false),
        ("10.0.0.5:0", false),
        ("10.0.0.5:65536", false),
        ("a b:1", false),
        ("-x:1", false),
    ] {
        assert_eq!(is_endpoint(text), good, "{text}");
    }
}

fn search(limit: Option<u64>) -> Search {
    let backoff = Backoff { exponential: true, longest: Duration::from_secs(20) };
    Search::new(backoff, limit.map(Duration::from_secs))
}

#[test]
fn a_search_without_end_is_slow_after_a_while_and_never_gives_up() {
    let mut search = search(None);
    let pauses: Vec<u64> = (0..8)
        .map(|look| match search.next(Look::Missing(Missing::NotReady), Duration::from_secs(look * 1000), 1.0) {
            Next::AgainAfter(pause, _) => pause.as_secs(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 20, 20, 20]);
}

#[test]
fn a_limit_is_kept_and_the_last_reason_is_told() {
    for (look, expected) in [
        (Look::Missing(Missing::NoSuperLink), Code::DiscoveryTimeout),
        (Look::Missing(Missing::Authority), Code::CaMissing),
        (Look::Missing(Missing::BadAuthority("x".into())), Code::CaInvalid),
        (Look::Unreachable("x".into()), Code::OnegateUnreachable),
    ] {
        let mut search = search(Some(10));
        match search.next(look.clone(), Duration::from_secs(9), 1.0) {
            Next::AgainAfter(pause, trouble) => assert_eq!((pause, trouble.code), (Duration::from_secs(1), expected)),
            other => panic!("{other:?}"),
        }
        match search.next(look, Duration::from_secs(10), 1.0) {
            Next::GiveUp(trouble) => assert_eq!(trouble.code, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_waiting_does_not_mend_is_told_at_once() {
    let differs = Look::Missing(Missing::VersionDiffers("1.30.0".into()));
    assert!(matches!(search(None).next(differs, Duration::ZERO, 0.0), Next::GiveUp(_)));
    let mut search = search(None);
    let refused = || Look::Unauthorised("401".into());
    assert!(matches!(search.next(refused(), Duration::ZERO, 0.0), Next::AgainAfter(..)));
    // An answer in between: the token is good after all.
    assert!(matches!(search.next(Look::Missing(Missing::NotReady), Duration::ZERO, 0.0), Next::AgainAfter(..)));
    assert!(matches!(search.next(refused(), Duration::ZERO, 0.0), Next::AgainAfter(..)));
    assert!(matches!(search.next(refused(), Duration::ZERO, 0.0), Next::AgainAfter(..)));
    assert!(matches!(search.next(refused(), Duration::ZERO, 0.0), Next::GiveUp(_)));
}
