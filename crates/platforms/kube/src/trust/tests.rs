use serde_json::json;
use trellis_pki::span::Span;
use trellis_pki::{Endpoint, Keyring, Wish, pem};

use super::secret::{BUNDLE, CERTIFICATE, Entries, KEY};
use super::*;

const NOW: UnixSeconds = 1_800_000_000;
const DAY: i64 = 86_400;
const MINUTE: i64 = 60;

fn federation(change: impl FnOnce(&mut Value)) -> Federation {
    let mut resource = json!({
        "metadata": {"name": "ward", "namespace": "hospital", "uid": "u-1", "generation": 1, "annotations": {}},
        "spec": {
            "mode": "StatefulSet",
            "isolationMode": "subprocess",
            "insecure": false,
            "superlink": {"image": "trellis"},
            "supernodes": {"image": "trellis", "pools": [{"name": "cpu", "replicas": 2, "images": {}}]},
        },
    });
    change(&mut resource);
    Federation::read(&resource).expect("readable")
}

/// A namespace in memory.
#[derive(Default)]
struct Namespace {
    seen: Seen,
    writes: usize,
}

impl Namespace {
    fn trellis() -> Namespace {
        Namespace { seen: Seen { trellis: true, ..Seen::default() }, writes: 0 }
    }

    fn write(&mut self, federation: &Federation, desired: &DesiredSecret) {
        self.writes += 1;
        let mut written = desired.object(federation, self.seen.secrets.get(&desired.name)).0;
        written["metadata"]["resourceVersion"] = json!(self.writes.to_string());
        self.seen.secrets.insert(desired.name.clone(), ObservedSecret::read(&written));
    }

    fn pass(&mut self, federation: &Federation, now: UnixSeconds) -> Decision {
        self.pass_killed_after(federation, now, usize::MAX)
    }

    fn pass_killed_after(&mut self, federation: &Federation, now: UnixSeconds, writes: usize) -> Decision {
        let decision = decide(federation, &self.seen, now);
        for desired in decision.secrets.iter().take(writes) {
            self.write(federation, desired);
        }
        decision
    }

    fn text(&self, secret: &str, entry: &str) -> String {
        self.seen.secrets[secret].text(entry).expect("text").to_owned()
    }

    fn leaf(&self) -> Certificate {
        let chain = self.text("ward-superlink-tls", CERTIFICATE);
        Certificate::read(&pem::certificates(chain.as_bytes()).expect("PEM")[0]).expect("a certificate")
    }

    fn authorities(&self) -> usize {
        pem::certificates(self.text("ward-trust", BUNDLE).as_bytes()).expect("PEM").len()
    }

    /// What a node with the bundle that is there now says to the certificate that is there now.
    fn is_accepted(&self, now: UnixSeconds) -> bool {
        let mut secret = self.seen.secrets["ward-superlink-tls"].clone();
        secret.entries.insert(BUNDLE.to_owned(), self.text("ward-trust", BUNDLE).into_bytes());
        given::check(&secret, &[Endpoint::parse("ward-superlink").expect("a name")], now).is_ok()
    }
}

fn reasons(decision: &Decision) -> Vec<&str> {
    decision.events.iter().map(|event| event.reason).collect()
}

fn condition(decision: &Decision) -> (bool, &str, &str) {
    let condition = decision.condition.as_ref().expect("a condition");
    (condition.holds == Some(true), &condition.reason, &condition.message)
}

#[test]
fn where_certificates_come_from() {
    type Change = fn(&mut Value);
    let cases: [(Change, TlsMode); 7] = [
        (|_| {}, TlsMode::Auto),
        (|r| drop(r["spec"].as_object_mut().unwrap().remove("insecure")), TlsMode::Off),
        (|r| r["spec"]["insecure"] = json!(true), TlsMode::Off),
        (|r| r["spec"]["superlink"]["extraArgs"] = json!(["--ssl-certfile=/c"]), TlsMode::Off),
        (|r| r["spec"]["security"] = json!({"tls": {"mode": "off"}}), TlsMode::Off),
        (|r| r["spec"] = with_mode(&r["spec"], "auto"), TlsMode::Auto),
        (|r| r["spec"]["security"] = json!({"tls": {"mode": "certManager"}}), TlsMode::CertManager),
    ];
    for (index, (change, expected)) in cases.into_iter().enumerate() {
        assert_eq!(mode(&federation(change)), expected, "case {index}");
    }
}

fn with_mode(spec: &Value, mode: &str) -> Value {
    let mut spec = spec.clone();
    spec["insecure"] = json!(true);
    spec["security"] = json!({"tls": {"mode": mode}});
    spec
}

#[test]
fn the_first_pass_makes_all_and_the_second_nothing() {
    let (federation, mut namespace) = (federation(|_| {}), Namespace::trellis());
    let first = namespace.pass(&federation, NOW);
    let written: Vec<&str> = first.secrets.iter().map(|secret| secret.name.as_str()).collect();
    assert_eq!(written, ["ward-authority", "ward-trust", "ward-superlink-tls", "ward-admin"]);
    assert_eq!(reasons(&first), ["AuthorityMade", "CertificateIssued"]);
    let (ready, reason, message) = condition(&first);
    assert!(ready && reason == "Issued" && message.contains("good until 2027-02-14T"), "{message}");
    assert!(namespace.is_accepted(NOW));

    let second = namespace.pass(&federation, NOW + DAY);
    assert!(second.secrets.is_empty() && second.events.is_empty());
    assert_eq!((second.condition, second.trust), (first.condition, first.trust));
}

#[test]
fn keys_of_the_authority_are_in_one_place_only() {
    let (federation, mut namespace) = (federation(|_| {}), Namespace::trellis());
    namespace.pass(&federation, NOW);
    for (name, secret) in &namespace.seen.secrets {
        let has_key = secret.entries.values().any(|bytes| String::from_utf8_lossy(bytes).contains("PRIVATE KEY"));
        assert_eq!(has_key, name == "ward-authority" || name == "ward-superlink-tls", "{name}");
    }
    let server: Vec<&String> = namespace.seen.secrets["ward-superlink-tls"].entries.keys().collect();
    assert_eq!(server, [BUNDLE, CERTIFICATE, KEY]);
    let admin = namespace.text("ward-admin", secret::TOKEN);
    assert!(admin.len() >= 32, "as long as a SuperLink wants it");
    assert!(!format!("{:?}", namespace.seen).contains(&admin), "not shown by accident");
}

#[test]
fn names_follow_the_service() {
    let named =
        federation(|r| r["spec"]["security"] = json!({"tls": {"extraNames": ["link.example.org", "10.1.2.3"]}}));
    let mut namespace = Namespace::trellis();
    namespace.pass(&named, NOW);
    let names = namespace.leaf().names;
    for name in [
        "ward-superlink",
        "ward-superlink.hospital",
        "ward-superlink.hospital.svc",
        "ward-superlink.hospital.svc.cluster.local",
        "ward-superlink-0.ward-superlink.hospital.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "::1",
        "link.example.org",
        "10.1.2.3",
    ] {
        assert!(names.contains(&name.to_owned()), "{name} is not in {names:?}");
    }
    let service = ObservedService { cluster_ips: vec!["10.96.0.7".into()], ..ObservedService::default() };
    namespace.seen.service = Some(service.clone());
    assert_eq!(reasons(&namespace.pass(&named, NOW)), ["CertificateIssued"]);
    assert!(namespace.leaf().names.contains(&"10.96.0.7".to_owned()));
    namespace.seen.service =
        Some(ObservedService { ingress: vec!["203.0.113.9".into(), "lb.example".into()], ..service });
    namespace.pass(&named, NOW);
    assert!(namespace.leaf().names.contains(&"203.0.113.9".to_owned()));
    assert!(namespace.pass(&named, NOW).secrets.is_empty());
}

#[test]
fn a_program_that_must_be_started_again_is_only_where_it_must() {
    let (federation, mut namespace) = (federation(|_| {}), Namespace::default());
    let first = namespace.pass(&federation, NOW).trust.expect("trust");
    assert_eq!(first.admin_secret, None);
    assert!(namespace.leaf().left_s(NOW) > 300 * DAY, "it is seldom");
    // The address that a Service has anyway is no reason.
    let service = ObservedService { cluster_ips: vec!["10.96.0.7".into()], ..ObservedService::default() };
    namespace.seen.service = Some(service.clone());
    assert_eq!(namespace.pass(&federation, NOW).trust.expect("trust").revision, first.revision);
    // One that nodes outside use is; and then it has both.
    namespace.seen.service = Some(ObservedService { ingress: vec!["203.0.113.9".into()], ..service });
    let second = namespace.pass(&federation, NOW).trust.expect("trust");
    assert_ne!(second.revision, first.revision);
    assert_eq!(second.bundle_revision, first.bundle_revision, "nodes trust it already");
    assert!(namespace.leaf().names.contains(&"10.96.0.7".to_owned()));
    // Secrets that are not needed any more are no reason, either.
    namespace.seen.service = None;
    assert_eq!(namespace.pass(&federation, NOW).trust.expect("trust").revision, second.revision);
}

#[test]
fn it_is_renewed_before_it_ends_and_not_earlier() {
    let (federation, mut namespace) = (federation(|_| {}), Namespace::trellis());
    let due = namespace.pass(&federation, NOW).again_at.expect("a moment");
    let first = namespace.leaf();
    assert!(first.left_s(due) > 9 * DAY && first.left_s(due) < 11 * DAY, "with a third of its life left");
    assert!(namespace.pass(&federation, due - 2).secrets.is_empty());
    let renewed = namespace.pass(&federation, due);
    let written: Vec<&str> = renewed.secrets.iter().map(|secret| secret.name.as_str()).collect();
    assert_eq!(written, ["ward-trust", "ward-superlink-tls"], "the bundle is as before but for its note");
    assert_eq!(namespace.leaf().not_after, due + 30 * DAY);
    assert_eq!(namespace.leaf().issuer, first.issuer);
    // An operator that was away for too long.
    assert_eq!(reasons(&namespace.pass(&federation, NOW + 400 * DAY)), ["CertificateIssued"]);
    assert!(namespace.is_accepted(NOW + 400 * DAY));
}

#[test]
fn a_rotation_keeps_both_until_nobody_needs_the_old_one() {
    let mut namespace = Namespace::trellis();
    let plain = federation(|_| {});
    let before = namespace.pass(&plain, NOW).trust.expect("trust");
    let asked = federation(|r| r["metadata"]["annotations"] = json!({ROTATE: "1"}));

    let begun = namespace.pass(&asked, NOW);
    assert_eq!(reasons(&begun), ["AuthorityRotationBegun"]);
    let announced = begun.trust.clone().expect("trust");
    assert_eq!((namespace.authorities(), &announced.revision), (2, &before.revision));
    assert_ne!(announced.bundle_revision, before.bundle_revision, "nodes that do not read it again must be started");

    // After the delay with a node missing; and with all nodes before the delay.
    let late = NOW + 16 * MINUTE;
    assert!(namespace.pass(&asked, late).secrets.is_empty());
    namespace.seen.rollout.nodes = Some(announced.bundle_revision.clone());
    let early = namespace.pass(&asked, NOW + 14 * MINUTE);
    assert!(early.secrets.is_empty() && early.again_at.is_some_and(|at| at <= NOW + 16 * MINUTE));

    let switched = namespace.pass(&asked, late);
    assert_eq!(reasons(&switched), ["AuthoritySwitched", "CertificateIssued"]);
    assert_eq!(namespace.authorities(), 2);
    assert!(namespace.is_accepted(late));
    assert!(condition(&switched).2.contains("the old one is still trusted"));

    namespace.seen.rollout.superlink = true;
    let finished = namespace.pass(&asked, late + 16 * MINUTE);
    assert_eq!(reasons(&finished), ["AuthorityRotated"]);
    assert_eq!(namespace.authorities(), 1);
    assert!(namespace.is_accepted(late));
    let after = finished.trust.expect("trust");
    assert_eq!(after.bundle_revision, announced.bundle_revision, "no second start");
    assert!(namespace.pass(&asked, late + 17 * MINUTE).secrets.is_empty(), "the annotation was applied");
    assert_eq!(namespace.seen.secrets["ward-authority"].entries.len(), 3, "the old key is gone");
}

#[test]
fn sites_get_two_weeks() {
    let mut namespace = Namespace::trellis();
    let sites = |r: &mut Value| r["spec"]["sites"] = json!([{"name": "lab", "nodes": 1}]);
    namespace.pass(&federation(sites), NOW);
    let asked = federation(|r| {
        sites(r);
        r["metadata"]["annotations"] = json!({ROTATE: "1"});
    });
    let begun = namespace.pass(&asked, NOW);
    namespace.seen.rollout.nodes = begun.trust.map(|trust| trust.bundle_revision);
    assert!(namespace.pass(&asked, NOW + 13 * DAY).secrets.is_empty());
    assert!(reasons(&namespace.pass(&asked, NOW + 15 * DAY)).contains(&"AuthoritySwitched"));
}

/// Killed after every number of writes in a life with a rotation: the next operator reaches the same state as without a kill,
/// and at no moment is a certificate served that nodes with the bundle of that moment refuse.
#[test]
fn death_between_two_writes_loses_nothing() {
    for killed_pass in 0..4 {
        for killed_after in 0..4 {
            let mut namespace = Namespace::trellis();
            let asked = federation(|r| r["metadata"]["annotations"] = json!({ROTATE: "1"}));
            let plain = federation(|_| {});
            let mut now = NOW;
            for (index, federation) in [&plain, &asked, &asked, &asked].into_iter().enumerate() {
                if index == killed_pass {
                    namespace.pass_killed_after(federation, now, killed_after);
                    if namespace.seen.secrets.contains_key("ward-superlink-tls") {
                        assert!(namespace.is_accepted(now), "pass {killed_pass} after {killed_after} writes");
                    }
                }
                let decision = namespace.pass(federation, now);
                assert!(namespace.is_accepted(now), "pass {index}, killed {killed_pass} after {killed_after}");
                assert!(decide(federation, &namespace.seen, now).secrets.is_empty(), "one pass is enough");
                namespace.seen.rollout.nodes = decision.trust.map(|trust| trust.bundle_revision);
                namespace.seen.rollout.superlink = true;
                now += 20 * MINUTE;
            }
            assert_eq!(namespace.authorities(), 1, "killed in pass {killed_pass} after {killed_after} writes");
            assert_eq!(namespace.leaf().issuer, issuer_of(&namespace));
        }
    }
}

fn issuer_of(namespace: &Namespace) -> String {
    let bundle = namespace.text("ward-trust", BUNDLE);
    Certificate::read(&pem::certificates(bundle.as_bytes()).expect("PEM")[0]).expect("a certificate").subject
}

#[test]
fn damage_and_strangers() {
    let (federation, mut namespace) = (federation(|_| {}), Namespace::trellis());
    namespace.pass(&federation, NOW);
    // A damaged certificate is issued again.
    let server = namespace.seen.secrets.get_mut("ward-superlink-tls").expect("there");
    server.entries.insert(KEY.to_owned(), b"nothing".to_vec());
    let mended = namespace.pass(&federation, NOW);
    assert!(mended.events[0].message.contains("the present one is damaged: tls.key"), "{:?}", mended.events);
    assert!(namespace.is_accepted(NOW));
    // A damaged authority is kept: the user may have a backup.
    let authority = namespace.seen.secrets.get_mut("ward-authority").expect("there");
    authority.entries.remove("state.json");
    let stuck = namespace.pass(&federation, NOW);
    assert!(stuck.secrets.is_empty() && stuck.trust.is_none());
    assert!(condition(&stuck).2.contains("Secret ward-authority: state.json is missing"), "{:?}", condition(&stuck));
    // A foreign Secret is not changed.
    let mut namespace = Namespace::trellis();
    namespace.seen.secrets.insert("ward-superlink-tls".into(), ObservedSecret::default());
    let refused = namespace.pass(&federation, NOW);
    assert!(refused.secrets.is_empty());
    assert_eq!(condition(&refused).1, "ForeignSecret");
}

/// An operator that dies after the first write of a rotation and restarts much later still waits for the nodes.
#[test]
fn time_for_nodes_begins_when_they_are_told() {
    let mut namespace = Namespace::trellis();
    namespace.pass(&federation(|_| {}), NOW);
    let asked = federation(|r| r["metadata"]["annotations"] = json!({ROTATE: "1"}));
    let begun = namespace.pass_killed_after(&asked, NOW, 1);
    assert_eq!(namespace.authorities(), 1, "the new authority was not distributed");
    namespace.seen.rollout.nodes = begun.trust.map(|trust| trust.bundle_revision);
    let late = NOW + DAY;
    assert!(!reasons(&namespace.pass(&asked, late)).contains(&"AuthoritySwitched"));
    assert_eq!(namespace.authorities(), 2);
    assert!(namespace.pass(&asked, late + 14 * MINUTE).events.is_empty());
    assert!(reasons(&namespace.pass(&asked, late + 16 * MINUTE)).contains(&"AuthoritySwitched"));
}

#[test]
fn pods_are_looked_at() {
    let bundle = ObservedSecret {
        annotations: [(REVISION, "r1"), (BUNDLE_REVISION, "b1")].map(|(n, v)| (n.to_owned(), v.to_owned())).into(),
        ..ObservedSecret::default()
    };
    let workload = |mark: Option<(&str, &str)>, generation: i64, updated: i64, ready: i64| {
        let annotations = mark.map(|(name, value)| json!({name: value})).unwrap_or_default();
        json!({
            "metadata": {"generation": 2},
            "spec": {"replicas": 2, "template": {"metadata": {"annotations": annotations}}},
            "status": {"observedGeneration": generation, "updatedReplicas": updated, "readyReplicas": ready},
        })
    };
    for (pool, expected) in [
        (workload(None, 2, 2, 2), true),
        (workload(Some((crate::render::TRUST_ANNOTATION, "b1")), 2, 2, 2), true),
        (workload(Some((crate::render::TRUST_ANNOTATION, "b0")), 2, 2, 2), false),
        (workload(None, 1, 2, 2), false),
        (workload(None, 2, 1, 2), false),
        (workload(None, 2, 2, 1), false),
        (
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 1}}),
            false,
        ),
        (
            json!({
                "metadata": {"generation": 1},
                "status": {
                    "observedGeneration": 1, "desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberReady": 1
                },
            }),
            true,
        ),
    ] {
        let seen = Rollout::of(None, std::slice::from_ref(&pool), Some(&bundle));
        assert_eq!(seen.nodes.as_deref(), expected.then_some("b1"), "{pool}");
    }
    let superlink = workload(Some((crate::render::TRUST_ANNOTATION, "r0")), 2, 2, 2);
    assert!(!Rollout::of(Some(&superlink), &[], Some(&bundle)).superlink);
    assert_eq!(Rollout::of(Some(&superlink), &[], None), Rollout::default());
}

/// tls.crt, tls.key, ca.crt of an authority that the federation does not have.
fn brought(names: &[&str], validity: Span, now: UnixSeconds) -> Entries {
    let keyring = Keyring::new("hospital", Span::years(1), now).expect("an authority");
    let endpoints: Vec<Endpoint> = names.iter().map(|name| Endpoint::parse(name).expect("a name")).collect();
    let delivery = keyring.issue(Wish { endpoints: &endpoints, name: None, validity }, now).expect("a leaf");
    let entries = [(CERTIFICATE, delivery.chain), (KEY, delivery.key), (BUNDLE, delivery.trust)];
    entries.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes())).collect()
}

fn by_secret() -> Federation {
    federation(|r| r["spec"]["security"] = json!({"tls": {"mode": "secret", "secretName": "brought"}}))
}

#[test]
fn a_secret_that_somebody_brings_is_checked() {
    let month = Span::days(30);
    let good = brought(&["ward-superlink"], month, NOW);
    let other = brought(&["ward-superlink"], month, NOW);
    let with = |change: &dyn Fn(&mut Entries)| {
        let mut entries = good.clone();
        change(&mut entries);
        entries
    };
    let cases = [
        (with(&|_| {}), true, "good until 2027-02-14T"),
        (with(&|e| drop(e.remove(BUNDLE))), false, "ca.crt: the entry is missing"),
        (
            with(&|e| drop(e.insert(KEY.into(), other[KEY].clone()))),
            false,
            "the key does not belong to the certificate",
        ),
        (with(&|e| drop(e.insert(BUNDLE.into(), other[BUNDLE].clone()))), false, "tls.crt: "),
        (with(&|e| drop(e.insert(CERTIFICATE.into(), b"x".to_vec()))), false, "it holds no certificate in PEM"),
        (brought(&["link.example.org"], month, NOW), false, "it does not cover ward-superlink"),
        (brought(&["ward-superlink"], month, NOW - 40 * DAY), false, "expired on"),
        (brought(&["ward-superlink"], Span::hours(20), NOW), true, "expires in 20 hours"),
    ];
    for (entries, ready, expected) in cases {
        let mut namespace = Namespace::trellis();
        namespace.seen.secrets.insert("brought".into(), ObservedSecret { entries, ..ObservedSecret::default() });
        let decision = namespace.pass(&by_secret(), NOW);
        let (is_ready, _, message) = condition(&decision);
        assert_eq!(is_ready, ready, "{expected}: {message}");
        assert!(message.contains(expected), "{expected}: {message}");
        assert_eq!(namespace.seen.secrets.contains_key("ward-trust"), ready, "{expected}");
        assert_eq!(decision.trust.expect("trust").server_secret, "brought");
    }
    let decision = Namespace::trellis().pass(&by_secret(), NOW);
    assert_eq!(
        condition(&decision),
        (false, "SecretMissing", "Secret brought does not exist: create it with tls.crt, tls.key and ca.crt")
    );
}

#[test]
fn a_bad_exchange_makes_nobody_start_again() {
    let mut namespace = Namespace::default();
    let put = |namespace: &mut Namespace, entries| {
        namespace.seen.secrets.insert("brought".into(), ObservedSecret { entries, ..ObservedSecret::default() });
        namespace.pass(&by_secret(), NOW).trust.expect("trust")
    };
    let good = brought(&["ward-superlink"], Span::days(30), NOW);
    let first = put(&mut namespace, good.clone());
    let mut bad = good.clone();
    bad.remove(KEY);
    assert_eq!(put(&mut namespace, bad), first);
    let second = put(&mut namespace, brought(&["ward-superlink"], Span::days(30), NOW));
    assert_ne!((&second.revision, &second.bundle_revision), (&first.revision, &first.bundle_revision));
}

#[test]
fn cert_manager_is_asked_and_awaited() {
    let issuer = json!({"name": "ca", "kind": "ClusterIssuer"});
    let security = json!({"tls": {"mode": "certManager", "issuerRef": issuer, "extraNames": ["10.1.2.3"]}});
    let federation = federation(|r| r["spec"]["security"] = security);
    let mut namespace = Namespace::trellis();
    let decision = namespace.pass(&federation, NOW);
    assert_eq!(condition(&decision).1, "CertManagerMissing");
    assert!(decision.applied.is_empty());

    namespace.seen.cert_manager = CertManager::Installed(None);
    let decision = namespace.pass(&federation, NOW);
    assert_eq!(condition(&decision).1, "WaitingForCertificate");
    let asked = decision.applied[0].clone();
    assert_eq!(
        (&asked.0["spec"]["issuerRef"], &asked.0["spec"]["secretName"]),
        (&issuer, &json!("ward-superlink-issued"))
    );
    assert!(asked.0["spec"]["dnsNames"].as_array().unwrap().contains(&json!("ward-superlink.hospital.svc")));
    assert!(asked.0["spec"]["ipAddresses"].as_array().unwrap().contains(&json!("10.1.2.3")));

    namespace.seen.cert_manager = CertManager::Installed(Some(asked.0.clone()));
    let names: Vec<String> = Names::of(&federation, None).0.needed.iter().map(Endpoint::to_string).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let entries = brought(&names, Span::days(90), NOW);
    namespace
        .seen
        .secrets
        .insert("ward-superlink-issued".into(), ObservedSecret { entries, ..ObservedSecret::default() });
    let decision = namespace.pass(&federation, NOW);
    assert!(decision.applied.is_empty());
    assert_eq!(condition(&decision).1, "Checked");
    assert!(namespace.seen.secrets.contains_key("ward-trust"));
}

#[test]
fn what_cannot_be_is_told_at_once() {
    let federation = federation(|r| {
        r["spec"]["mode"] = json!("DaemonSet");
        r["spec"]["security"] =
            json!({"nodeAuth": true, "tls": {"mode": "secret", "extraNames": ["*.example.org", "0.0.0.0"]}});
    });
    let decision = Namespace::default().pass(&federation, NOW);
    let places: Vec<&str> = decision.problems.iter().map(|problem| problem.place.as_str()).collect();
    assert_eq!(
        places,
        [
            "spec.security.tls.extraNames[0]",
            "spec.security.tls.extraNames[1]",
            "spec.security.tls.secretName",
            "spec.security.nodeAuth"
        ]
    );
    assert!(decision.secrets.is_empty() && decision.trust.is_none());
    assert_eq!(condition(&decision).1, "InvalidSpec");
}

#[test]
fn a_superlink_that_cannot_be_told_keys_is_refused_before_anything_waits_for_them() {
    let with = |image: &str| {
        federation(|r| {
            r["spec"]["superlink"]["image"] = json!(image);
            r["spec"]["security"] = json!({"nodeAuth": true});
        })
    };
    for (image, refused) in [
        ("flwr/superlink:1.22.0", true),
        ("flwr/superlink:1.25.0", false),
        ("flwr/superlink:1.42.0", false),
        ("trellis", false),
    ] {
        let decision = Namespace::default().pass(&with(image), NOW);
        let told = decision.problems.iter().any(|one| one.what.contains("cannot register keys of nodes while it runs"));
        assert_eq!((told, decision.trust.is_none()), (refused, refused), "{image}");
    }
}

#[test]
fn keys_of_nodes_come_and_go_with_pods() {
    let federation = federation(|r| r["spec"]["security"] = json!({"nodeAuth": true}));
    let key = |name: &str| (name.to_owned(), Vec::new());
    let entries = Entries::from([key("ward-supernode-cpu-0"), key("ward-supernode-cpu-3")]);
    let secrets =
        BTreeMap::from([("ward-node-keys-cpu".to_owned(), ObservedSecret { entries, ..ObservedSecret::default() })]);
    let sized = |size: i32| BTreeMap::from([("cpu".to_owned(), size)]);
    let names = |numbers: &[i32]| numbers.iter().map(|n| format!("ward-supernode-cpu-{n}")).collect::<Vec<_>>();
    for (sizes, live, kept, to_make, left) in [
        (BTreeMap::new(), BTreeMap::new(), names(&[0]), names(&[1]), names(&[3])),
        (sized(4), BTreeMap::new(), names(&[0, 3]), names(&[1, 2]), names(&[])),
        // Its pod still exists: it finishes its work.
        (BTreeMap::new(), sized(4), names(&[0, 3]), names(&[1, 2]), names(&[])),
        (sized(0), BTreeMap::new(), names(&[]), names(&[]), names(&[0, 3])),
    ] {
        let keys = nodes::keys(&federation, &sizes, &live, &secrets).remove(0);
        assert_eq!((keys.kept, keys.to_make, keys.left), (kept, to_make, left), "{sizes:?} {live:?}");
    }
    assert_eq!(nodes::secrets(&federation)["cpu"], "ward-node-keys-cpu");
}

#[test]
fn machines_outside_are_told_where_to_go() {
    let service = |kind: &str, ingress: &[&str]| ObservedService {
        kind: kind.to_owned(),
        ingress: ingress.iter().map(|&text| text.to_owned()).collect(),
        ports: vec![("control".into(), 9093, None), ("fleet".into(), 9092, Some(30_092))],
        ..ObservedService::default()
    };
    let plain = federation(|_| {});
    let named = federation(|r| r["spec"]["security"] = json!({"tls": {"extraNames": ["link.example.org"]}}));
    for (federation, service, expected) in [
        (&plain, None, Err("does not exist yet")),
        (&plain, Some(service("ClusterIP", &[])), Err("within the cluster only")),
        (&named, Some(service("ClusterIP", &[])), Ok("link.example.org:9092")),
        (&plain, Some(service("LoadBalancer", &[])), Err("no address yet")),
        (&plain, Some(service("LoadBalancer", &["2001:db8::7"])), Ok("[2001:db8::7]:9092")),
        (&named, Some(service("LoadBalancer", &["203.0.113.9"])), Ok("link.example.org:9092")),
        (&plain, Some(service("NodePort", &[])), Err("name a machine of the cluster")),
        (&named, Some(service("NodePort", &[])), Ok("link.example.org:30092")),
    ] {
        match (sites::address(federation, service.as_ref()), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            (found, expected) => panic!("{found:?} in place of {expected:?}"),
        }
    }
    let site = crate::federation::Site { name: "lab".into(), nodes: 1, ..Default::default() };
    let keys = BTreeMap::from([("node-0.key".to_owned(), "KEY".to_owned())]);
    let bundle = sites::bundle(&site, "link.example.org:9092", Some("PEM"), &keys);
    let settings = String::from_utf8(bundle["node-0.toml"].clone()).expect("text");
    assert_eq!(
        settings,
        "superlink = \"link.example.org:9092\"\nname = \"lab-0\"\nroot-certificates = \"ca.crt\"\n\
         auth-supernode-private-key = \"node-0.key\"\n"
    );
    assert_eq!(bundle.keys().collect::<Vec<_>>(), ["address", "ca.crt", "node-0.key", "node-0.toml"]);
}
