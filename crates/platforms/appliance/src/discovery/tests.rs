use super::*;

fn attributes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn wanted() -> Requirements {
    Requirements { vm: 12, tls: false, trust: None, official: None, shard: false }
}

const GOOD: [(&str, &str); 3] = [("FL_READY", "YES"), ("FL_ENDPOINT", "10.0.0.5:9092"), ("FL_VERSION", "1.42.0")];

#[test]
fn an_incomplete_snapshot_is_rejected() {
    let with = |more: &[(&str, &str)]| attributes(&[&GOOD, more].concat());
    let tls = Requirements { tls: true, ..wanted() };
    let official = Requirements { official: Some("1.40.1".into()), ..wanted() };
    let shard = Requirements { shard: true, ..wanted() };
    for (said, wanted, expected) in [
        (attributes(&[]), wanted(), Missing::NotReady),
        (with(&[("FL_READY", "NO")]), wanted(), Missing::NotReady),
        (with(&[("FL_READY", "NO"), ("FL_ERROR", "port_busy: x")]), wanted(), Missing::Failed("port_busy: x".into())),
        (with(&[("FL_ENDPOINT", "")]), wanted(), Missing::NotReady),
        (with(&[("FL_ENDPOINT", "$(reboot):1")]), wanted(), Missing::Endpoint("$(reboot):1".into())),
        (with(&[("FL_ENDPOINT", "--insecure:1")]), wanted(), Missing::Endpoint("--insecure:1".into())),
        (with(&[("FL_VERSION", "")]), wanted(), Missing::Version),
        (with(&[]), official, Missing::VersionDiffers("1.42.0".into())),
        (with(&[]), tls.clone(), Missing::Authority),
        (with(&[("FL_TLS", "NO")]), tls.clone(), Missing::Plaintext),
        (with(&[("FL_CA_CERT", "bm90aGluZw==")]), tls, Missing::BadAuthority("it contains no certificate".into())),
        (with(&[("TRELLIS_SHARDS", "11:0/1")]), shard, Missing::Shard),
    ] {
        match (read(&said, &wanted), expected) {
            (Err(Missing::BadAuthority(_)), Missing::BadAuthority(_)) => {}
            (found, expected) => assert_eq!(found, Err(expected), "{said:?}"),
        }
    }
}

#[test]
fn a_snapshot_becomes_a_coordinator() {
    let said = attributes(&[&GOOD[..], &[("TRELLIS_SHARDS", "11:0,12:1/2")]].concat());
    let found = read(&said, &Requirements { shard: true, official: Some("1.42.3".into()), ..wanted() })
        .expect("a complete snapshot");
    let version = Some("1.42.0".to_owned());
    let endpoint = "10.0.0.5:9092".to_owned();
    assert_eq!(found, Coordinator { endpoint, trust: None, version, http: None, shard: Some((1, 2)) });
    let given = Requirements { tls: true, trust: Some("PEM".into()), ..wanted() };
    assert_eq!(read(&said, &given).expect("a complete snapshot").trust.as_deref(), Some("PEM"));
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
    let backoff = Backoff { exponential: true, max_interval: Duration::from_secs(20) };
    Search::new(backoff, limit.map(Duration::from_secs))
}

#[test]
fn a_search_without_limit_backs_off_and_never_gives_up() {
    let mut search = search(None);
    let pauses: Vec<u64> = (0..8)
        .map(|poll| match search.next(Poll::Missing(Missing::NotReady), Duration::from_secs(poll * 1000), 1.0) {
            Next::RetryAfter(pause, _) => pause.as_secs(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 20, 20, 20]);
}

#[test]
fn a_search_ends_at_its_limit_with_the_last_failure() {
    for (poll, expected) in [
        (Poll::Missing(Missing::NoSuperLink), Code::DiscoveryTimeout),
        (Poll::Missing(Missing::Authority), Code::CaMissing),
        (Poll::Missing(Missing::BadAuthority("x".into())), Code::CaInvalid),
        (Poll::Unreachable("x".into()), Code::OnegateUnreachable),
    ] {
        let mut search = search(Some(10));
        match search.next(poll.clone(), Duration::from_secs(9), 1.0) {
            Next::RetryAfter(pause, failure) => assert_eq!((pause, failure.code), (Duration::from_secs(1), expected)),
            other => panic!("{other:?}"),
        }
        match search.next(poll, Duration::from_secs(10), 1.0) {
            Next::GiveUp(failure) => assert_eq!(failure.code, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn permanent_failures_end_the_search_at_once() {
    let differs = Poll::Missing(Missing::VersionDiffers("1.30.0".into()));
    assert!(matches!(search(None).next(differs, Duration::ZERO, 0.0), Next::GiveUp(_)));
    let mut search = search(None);
    let refused = || Poll::Unauthorised("401".into());
    assert!(matches!(search.next(refused(), Duration::ZERO, 0.0), Next::RetryAfter(..)));
    // A response in between resets the count of rejections.
    assert!(matches!(search.next(Poll::Missing(Missing::NotReady), Duration::ZERO, 0.0), Next::RetryAfter(..)));
    assert!(matches!(search.next(refused(), Duration::ZERO, 0.0), Next::RetryAfter(..)));
    assert!(matches!(search.next(refused(), Duration::ZERO, 0.0), Next::RetryAfter(..)));
    assert!(matches!(search.next(refused(), Duration::ZERO, 0.0), Next::GiveUp(_)));
}
