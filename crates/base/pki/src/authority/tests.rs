//! An authority through its life, with clients of every age, and with the process dying after every change of the disk.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::check::{Checked, Files, check};
use crate::endpoint::Endpoint;
use crate::renewal::Reason;
use crate::served::Served;
use crate::testing::{DAY, EC, NOW, TestCa, client, converse, directory, endpoint, leaf_params, server};
use trellis_diagnostic::Severity;

const HOST: &str = "link.example.org";

/// A place for an authority and for the SuperLink it serves.
struct World {
    _temporary: TempDir,
    dir: PathBuf,
    out: PathBuf,
}

impl World {
    fn new() -> World {
        let temporary = directory();
        let (dir, out) = (temporary.path().join("pki"), temporary.path().join("tls"));
        World { _temporary: temporary, dir, out }
    }

    fn with_authority() -> World {
        let world = World::new();
        Authority::init(&world.dir, "test", CA_VALIDITY, NOW).expect("an authority");
        world
    }

    fn served() -> World {
        let world = World::with_authority();
        world.issue(NOW);
        world
    }

    fn authority(&self) -> Authority {
        Authority::open(&self.dir).expect("an authority")
    }

    fn order(&self) -> Order {
        let endpoints = vec![endpoint(HOST), endpoint("10.0.0.7")];
        Order { endpoints, out: self.out.clone(), validity: LEAF_VALIDITY, name: None, only_if_due: true }
    }

    fn issue(&self, now: UnixSeconds) -> Issued {
        self.authority().issue(&self.order(), now).expect("issued")
    }

    fn rotate(&self, step: Step) -> bool {
        self.authority().rotate(step, false, NOW).expect("a step")
    }

    /// The content of a SuperLink's directory.
    fn checked(&self, now: UnixSeconds) -> Checked {
        check(&self.files(), &[endpoint(HOST)], None, now).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    fn files(&self) -> Files {
        let file = |name| self.out.join(name);
        Files { certificate: file("server.pem"), key: file("server.key"), ca: file("ca.crt") }
    }

    fn bundle(&self) -> String {
        self.authority().trust_bundle().expect("a bundle")
    }
}

fn accepts(bundle: &str, leaf: &Checked) -> bool {
    let mut client = client(bundle, HOST, NOW);
    converse(&mut client, &mut server(Arc::new(Served::new(leaf)))).is_ok()
}

fn refusals<T>(result: Result<T, Error>) -> Vec<String> {
    match result {
        Err(Error::Refused(problems)) => problems.into_iter().map(|problem| problem.what).collect(),
        Err(other) => panic!("{other}"),
        Ok(_) => Vec::new(),
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("a file").permissions().mode() & 0o7777
}

#[test]
fn an_authority_is_made_once_and_with_tight_modes() {
    let world = World::with_authority();
    let signing = world.authority().rotation().signing().clone();
    let ca = world.dir.join("cas").join(signing.as_str());
    assert_eq!((mode(&world.dir), mode(&ca), mode(&ca.join("ca.key"))), (0o700, 0o700, 0o600));
    assert_eq!(mode(&world.dir.join("state.json")), 0o600);

    let again = Authority::init(&world.dir, "test", CA_VALIDITY, NOW);
    assert_eq!(refusals(again.map(|_| ())), ["an authority exists already, and is never overwritten"]);
    assert_eq!(world.authority().rotation().signing(), &signing);

    let certificate = world.authority().certificate(&signing).expect("a certificate");
    assert!(certificate.is_ca && certificate.may_sign_certificates);
    assert_eq!(certificate.key_type, "ECDSA P-384");
    assert_eq!(certificate.subject, format!("CN=test CA {signing}"));
    assert_eq!(certificate.left_s(NOW), 10 * 365 * DAY);
}

#[test]
fn a_bad_wish_for_an_authority_is_refused_in_one_answer() {
    let world = World::new();
    fs::create_dir(&world.dir).expect("a directory");
    fs::write(world.dir.join("diary.txt"), "mine").expect("a file");
    let found = refusals(Authority::init(&world.dir, "a,b", Span::hours(1), NOW).map(|_| ()));
    let foreign = world.dir.join("diary.txt");
    assert_eq!(
        found,
        [
            "\"a,b\" cannot be the name of an authority".to_owned(),
            "an authority cannot be valid for 1h".to_owned(),
            format!("the directory is not empty: it has {}", foreign.display()),
        ]
    );
    assert_eq!(refusals(Authority::open(&world.dir).map(|_| ())), ["there is no authority in this directory"]);
}

#[test]
fn a_leaf_has_what_clients_ask_for() {
    let world = World::served();
    let leaf = world.checked(NOW).leaf;
    assert_eq!(leaf.names, [HOST, "10.0.0.7"]);
    assert_eq!((leaf.key_type.as_str(), leaf.is_ca, leaf.left_s(NOW)), ("ECDSA P-256", false, 30 * DAY));
    let files = world.files();
    assert_eq!([&files.certificate, &files.key, &files.ca].map(|path| mode(path)), [0o644, 0o600, 0o644]);
    assert_eq!(mode(&world.out), 0o700);
    let names: Vec<_> = entries(&world.out).expect("a list");
    assert!(!names.iter().any(|path| path.to_string_lossy().contains("ca.key")), "{names:?}");
}

#[test]
fn a_leaf_is_issued_again_when_it_is_due_and_not_before() {
    let world = World::with_authority();
    assert_eq!(world.issue(NOW).reason, Some(Reason::First));
    let first = world.checked(NOW).leaf.fingerprint;
    // 31 days of life with the hour before its birth; a third is left after 20.
    for (days, expected) in [(0, None), (10, None), (19, None), (21, Some(Reason::Old))] {
        assert_eq!(world.issue(NOW + days * DAY).reason, expected, "{days}");
    }
    assert_ne!(world.checked(NOW + 21 * DAY).leaf.fingerprint, first);
    assert_eq!(world.issue(NOW).reason, Some(Reason::NotYetValid), "the clock was set back");

    let more = Order { endpoints: vec![endpoint("[::1]:9092"), endpoint(HOST)], ..world.order() };
    let issued = world.authority().issue(&more, NOW).expect("issued");
    assert_eq!((issued.reason, issued.leaf.names), (Some(Reason::Endpoints), vec!["::1".to_owned(), HOST.to_owned()]));
    let turned = Order { endpoints: more.endpoints.iter().rev().cloned().collect(), ..more.clone() };
    assert_eq!(world.authority().issue(&turned, NOW).expect("issued").reason, None);
    let always = Order { only_if_due: false, ..turned };
    assert_eq!(world.authority().issue(&always, NOW).expect("issued").reason, Some(Reason::Asked));

    fs::write(world.out.join("server.key"), TestCa::new(EC).made.key).expect("another key");
    let why = "server.key does not belong to server.pem".to_owned();
    assert_eq!(world.authority().issue(&always, NOW).expect("issued").reason, Some(Reason::Damaged(why)));
    world.checked(NOW);
}

#[test]
fn a_bad_order_is_refused_in_one_answer() {
    let world = World::with_authority();
    let order = Order {
        endpoints: vec![endpoint("0.0.0.0"), endpoint("::")],
        out: world.dir.join("tls"),
        validity: Span::years(3),
        name: Some("x".repeat(65)),
        only_if_due: false,
    };
    let found = refusals(world.authority().issue(&order, NOW));
    assert_eq!(
        found[..4],
        [
            "0.0.0.0 is an address to listen on; clients cannot connect to it".to_owned(),
            ":: is an address to listen on; clients cannot connect to it".to_owned(),
            "a leaf cannot be valid for 3y".to_owned(),
            format!("{:?} cannot be the name of a leaf", "x".repeat(65)),
        ]
    );
    assert!(found[4].contains("must not contain each other"), "{found:?}");
    assert!(!order.out.exists());
    let none = Order { endpoints: Vec::new(), ..world.order() };
    assert_eq!(refusals(world.authority().issue(&none, NOW)), ["there is no endpoint"]);
}

#[test]
fn the_authority_and_the_superlink_stay_apart() {
    let world = World::with_authority();
    let link = world._temporary.path().join("link");
    std::os::unix::fs::symlink(&world.dir, &link).expect("a link");
    let above = world.dir.parent().expect("a parent").to_owned();
    let roundabout = above.join("new/../pki/tls");
    for out in [world.dir.clone(), world.dir.join("new/deep"), link.join("tls"), roundabout, above, link] {
        let order = Order { out: out.clone(), ..world.order() };
        let found = refusals(world.authority().issue(&order, NOW));
        assert!(found.iter().any(|what| what.contains("must not contain each other")), "{}: {found:?}", out.display());
    }
}

#[test]
fn files_of_others_are_not_overwritten() {
    let world = World::with_authority();
    fs::create_dir(&world.out).expect("a directory");
    fs::write(world.out.join("server.key"), "precious").expect("a file");
    let found = refusals(world.authority().issue(&world.order(), NOW));
    assert_eq!(found, ["trellis pki did not write this file, and never overwrites such files"]);
    assert_eq!(fs::read_to_string(world.out.join("server.key")).expect("a file"), "precious");
}

#[test]
fn a_leaf_never_outlives_its_authority() {
    let world = World::new();
    Authority::init(&world.dir, "short", Span::days(10), NOW).expect("an authority");
    let issued = world.issue(NOW);
    assert_eq!(issued.leaf.left_s(NOW), 10 * DAY);
    assert!(issued.warnings[0].what.starts_with("the leaf is valid for 10 days only"), "{:?}", issued.warnings);
    let found = refusals(world.authority().issue(&world.order(), NOW + 10 * DAY));
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("the CA CN=short CA"), "{found:?}");
}

/// Clients with the bundle of each step against the leaves of each step.
#[test]
fn during_a_rotation_the_overlap_carries_everybody() {
    let world = World::served();
    let (old_bundle, old_leaf) = (world.bundle(), world.checked(NOW));

    assert!(world.rotate(Step::Begin));
    assert!(!world.rotate(Step::Begin), "the step is idempotent");
    let issued = world.issue(NOW);
    assert_eq!((issued.reason, issued.trust_renewed), (None, true), "the same leaf, and both CAs beside it");
    let (both, announced_leaf) = (world.bundle(), world.checked(NOW));
    assert_eq!(fs::read_to_string(world.files().ca).expect("a bundle"), both);
    assert_eq!(announced_leaf.certificates, old_leaf.certificates);
    assert_eq!(refusals(world.authority().rotate(Step::Finish, false, NOW)).len(), 1);

    assert!(world.rotate(Step::Switch));
    assert!(!world.rotate(Step::Switch));
    // The old CA is needed until the leaf is issued again.
    let found = refusals(world.authority().rotate(Step::Finish, false, NOW));
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("is valid until"), "{found:?}");
    assert_eq!(world.issue(NOW).reason, Some(Reason::Authority));
    let switched_leaf = world.checked(NOW);

    assert!(world.rotate(Step::Finish));
    assert!(!world.rotate(Step::Finish));
    assert!(world.issue(NOW).trust_renewed);
    let (new_bundle, new_leaf) = (world.bundle(), world.checked(NOW));
    assert_eq!(new_leaf.certificates, switched_leaf.certificates);

    for (bundle, expected) in
        [(&old_bundle, [true, true, false]), (&both, [true; 3]), (&new_bundle, [false, false, true])]
    {
        let found = [&old_leaf, &announced_leaf, &switched_leaf].map(|leaf| accepts(bundle, leaf));
        assert_eq!(found, expected);
    }
    assert_eq!(entries(&world.dir.join("cas")).expect("a list").len(), 1, "the old key is removed");
}

#[test]
fn a_rotation_can_be_taken_back_without_harm() {
    let world = World::served();
    let first = world.authority().rotation().clone();
    world.rotate(Step::Begin);
    world.rotate(Step::Switch);
    world.issue(NOW);
    assert_eq!(refusals(world.authority().rotate(Step::Cancel, false, NOW)).len(), 1, "not from here");
    assert!(world.rotate(Step::SwitchBack));
    let found = refusals(world.authority().rotate(Step::Cancel, false, NOW));
    assert!(found.len() == 1 && found[0].contains("is valid until"), "a leaf of the new CA is out: {found:?}");
    assert_eq!(world.issue(NOW).reason, Some(Reason::Authority));
    assert!(world.rotate(Step::Cancel));
    assert!(!world.rotate(Step::Cancel));
    assert_eq!(world.authority().rotation(), &first);
    assert!(accepts(&world.bundle(), &world.checked(NOW)));
}

#[test]
fn leaves_that_nobody_uses_do_not_hold_up_a_rotation() {
    let world = World::served();
    world.rotate(Step::Begin);
    world.rotate(Step::Switch);
    assert_eq!(refusals(world.authority().rotate(Step::Finish, false, NOW)).len(), 1);
    let mut later = world.authority();
    assert!(later.rotate(Step::Finish, false, NOW + 31 * DAY).expect("a step"), "the leaf is over");
    let world = World::served();
    world.rotate(Step::Begin);
    world.rotate(Step::Switch);
    assert!(world.authority().rotate(Step::Finish, true, NOW).expect("a step"), "forced");
}

#[test]
fn foreign_authorities_join_the_bundle_and_leave_it() {
    let world = World::served();
    let foreign = TestCa::new(EC).made;
    let leaf = TestCa::new(EC).sign(EC, &leaf_params());
    let add = |text: &str| world.authority().add_trust("file", text.as_bytes(), NOW);
    assert_eq!(add(&foreign.certificate).expect("added"), 1);
    assert_eq!(add(&format!("{}{}", foreign.certificate, foreign.certificate)).expect("added"), 0);
    assert_eq!(add(&world.bundle()).expect("added"), 0, "all of it is there");
    let both = format!("{}{}", leaf.certificate, foreign.key);
    assert_eq!(refusals(add(&both)), ["O=An operator, CN=server is not the certificate of an authority (CA)"]);
    assert_eq!(refusals(add("x")), ["it holds no certificate in PEM"]);
    let late = world.authority().add_trust("file", foreign.certificate.as_bytes(), NOW + 1000 * DAY);
    assert_eq!(refusals(late), ["O=An operator, CN=operator CA expired on 2027-04-25T08:00:00Z"]);

    assert!(world.issue(NOW).trust_renewed, "SuperLinks get it too");
    assert!(world.bundle().ends_with(&foreign.certificate));
    world.rotate(Step::Begin);
    assert!(world.bundle().ends_with(&foreign.certificate), "a rotation keeps it");

    let survey = world.authority().survey(NOW).expect("a survey");
    let roles: Vec<Role> = survey.trusted.iter().map(|one| one.role).collect();
    assert_eq!(roles, [Role::Signing, Role::Next, Role::Foreign]);
    let own = &survey.trusted[0].certificate.fingerprint;
    assert_eq!(refusals(world.authority().remove_trust(own)), [format!("{own} is an authority of this directory")]);
    let name = survey.trusted[2].certificate.fingerprint.replace(':', "").to_lowercase();
    assert!(world.authority().remove_trust(&name).expect("removed"));
    assert!(!world.authority().remove_trust(&name).expect("nothing to do"));
    assert!(!world.bundle().contains(&foreign.certificate));
}

#[test]
fn a_survey_tells_what_to_do() {
    let world = World::served();
    let warnings = |now| {
        let survey = world.authority().survey(now).expect("a survey");
        assert!(survey.warnings.iter().all(|warning| warning.severity == Severity::Warning));
        survey.warnings.into_iter().map(|warning| warning.what).collect::<Vec<_>>()
    };
    assert_eq!(warnings(NOW), [] as [&str; 0]);
    assert_eq!(warnings(NOW + 25 * DAY), ["its leaf is due for renewal, 5 days are left"]);
    assert_eq!(warnings(NOW + 31 * DAY), ["its leaf expired on 2027-02-14T08:00:00Z"]);
    let ending = warnings(NOW + 3300 * DAY);
    assert!(ending[0].contains("expires in 350 days"), "{ending:?}");

    fs::set_permissions(&world.dir, fs::Permissions::from_mode(0o755)).expect("mode");
    assert_eq!(warnings(NOW), ["users other than its owner have permissions (mode 0755)"]);
    fs::set_permissions(&world.dir, fs::Permissions::from_mode(0o700)).expect("mode");
    fs::create_dir(world.dir.join("cas/0123456789abcdef")).expect("a directory");
    assert_eq!(warnings(NOW), ["it belongs to no state of the rotation: a step was interrupted"]);
    world.rotate(Step::Begin);
    assert_eq!(warnings(NOW), [] as [&str; 0]);
    world.rotate(Step::Switch);
    world.authority().rotate(Step::Finish, true, NOW).expect("a step");
    assert_eq!(warnings(NOW), ["its leaf is of a CA that is no longer trusted"]);
}

#[test]
fn what_is_damaged_or_too_new_is_told() {
    let world = World::with_authority();
    let state = world.dir.join("state.json");
    let good = fs::read_to_string(&state).expect("a state");
    for (text, expected) in [
        ("{".to_owned(), "it is damaged: "),
        (good.replace("steady", "wobbly"), "it is damaged: "),
        (good.replace("\"foreign\"", "\"froeign\""), "it is damaged: "),
        (good.replace("\"format\": 1", "\"format\": 2"), "it was written by a newer version (format 2)"),
    ] {
        fs::write(&state, &text).expect("written");
        let found = refusals(Authority::open(&world.dir).map(|_| ()));
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    }
    fs::write(&state, &good).expect("written");
    // The key of another authority signs nothing.
    let id = world.authority().rotation().signing().clone();
    fs::write(world.dir.join("cas").join(id.as_str()).join("ca.key"), TestCa::new(EC).made.key).expect("written");
    assert!(world.authority().issue(&world.order(), NOW).is_err());
    assert!(!world.out.exists(), "nothing is delivered");
}

/// A CA of root, a SuperLink of another user: the files follow the directory they are in.
#[test]
fn root_gives_the_files_to_the_owner_of_the_directory() {
    use std::io::Write as _;
    use std::os::unix::fs::MetadataExt as _;
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "SKIP: not run by root, the owner of issued files was not tested");
        return;
    }
    const SOMEBODY: u32 = 54_321;
    let world = World::with_authority();
    fs::create_dir(&world.out).expect("a directory");
    std::os::unix::fs::chown(&world.out, Some(SOMEBODY), Some(SOMEBODY)).expect("given away");
    let issued = world.issue(NOW);
    assert_eq!(issued.warnings, [], "no user can read both");
    let files = world.files();
    for path in [&files.certificate, &files.key, &files.ca, &world.out.join(".current")] {
        let metadata = path.metadata().expect("a file");
        assert_eq!((metadata.uid(), metadata.gid()), (SOMEBODY, SOMEBODY), "{}", path.display());
    }
    assert_eq!(mode(&files.key), 0o600);
}

/// A reader never sees a certificate with the key of another issue.
#[test]
fn readers_never_see_a_mismatched_pair() {
    const ISSUES: usize = 40;
    let world = World::served();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                seen.insert(world.checked(NOW).leaf.fingerprint);
            }
            seen
        });
        let order = Order { only_if_due: false, ..world.order() };
        for _ in 0..ISSUES {
            world.authority().issue(&order, NOW).expect("issued");
        }
        done.store(true, std::sync::atomic::Ordering::Release);
        assert!(reader.join().expect("no mismatch").len() > 1, "issues during the reads");
    });
}

/// Simulates a crash after each change of the disk that `act` makes. `intact` checks the remaining state; then `act` is
/// repeated, as an operator or a timer would do, and `done` checks the result.
fn dying_everywhere(
    prepare: impl Fn() -> World,
    act: impl Fn(&World, Disk) -> Result<(), Error>,
    intact: impl Fn(&World, u32),
    done: impl Fn(&World, u32),
) -> u32 {
    for changes in 0.. {
        let world = prepare();
        let disk = Disk { changes_left: Cell::new(Some(changes)) };
        let survived = act(&world, disk).is_ok();
        intact(&world, changes);
        act(&world, Disk::default()).unwrap_or_else(|error| panic!("after change {changes}: {error}"));
        done(&world, changes);
        if survived {
            return changes;
        }
    }
    unreachable!("the loop ends with the first run without a crash")
}

fn nothing_unfinished(world: &World, changes: u32) {
    for dir in [&world.dir, &world.dir.join("cas"), &world.out] {
        for path in entries(dir).expect("a list") {
            assert!(!path.to_string_lossy().contains("/.new-"), "after change {changes}: {}", path.display());
        }
    }
}

#[test]
fn making_an_authority_survives_death_at_every_change() {
    let act = |world: &World, disk: Disk| match Authority::init_on(disk, &world.dir, "test", CA_VALIDITY, NOW) {
        // The change was complete before the crash.
        Err(Error::Refused(_)) if Authority::open(&world.dir).is_ok() => Ok(()),
        other => other.map(|_| ()),
    };
    let done = |world: &World, changes: u32| {
        world.issue(NOW);
        assert_eq!(entries(&world.dir.join("cas")).expect("a list").len(), 1, "after change {changes}");
        nothing_unfinished(world, changes);
    };
    let count = dying_everywhere(World::new, act, |_, _| {}, done);
    assert!(count > 10, "{count}");
}

#[test]
fn issuing_survives_death_at_every_change() {
    let later = NOW + 25 * DAY;
    let act =
        |world: &World, disk: Disk| Authority::open_on(disk, &world.dir)?.issue(&world.order(), later).map(|_| ());
    let intact = |world: &World, _| drop(world.checked(later));
    let done = |world: &World, changes: u32| {
        assert!(world.checked(later).leaf.left_s(later) > 20 * DAY, "after change {changes}");
        let survey = world.authority().survey(later).expect("a survey");
        assert_eq!(survey.leaves[0].certificate, world.checked(later).leaf, "after change {changes}");
        nothing_unfinished(world, changes);
        let issues = entries(&world.out).expect("a list");
        assert_eq!(issues.len(), 5, "three links, .current, one issue: {issues:?}");
    };
    let count = dying_everywhere(World::served, act, intact, done);
    assert!(count > 10, "{count}");
    // After a crash of the first issue nothing may exist, but never a part.
    let first =
        |world: &World, disk: Disk| Authority::open_on(disk, &world.dir)?.issue(&world.order(), later).map(|_| ());
    let intact = |world: &World, _| {
        if [world.files().certificate, world.files().key, world.files().ca].iter().all(|path| path.exists()) {
            world.checked(later);
        }
    };
    dying_everywhere(World::with_authority, first, intact, done);
}

/// Each step of a rotation, and the issue that follows it.
#[test]
fn a_rotation_survives_death_at_every_change() {
    let stages: [(&[Step], Step); 5] = [
        (&[], Step::Begin),
        (&[Step::Begin], Step::Switch),
        (&[Step::Begin, Step::Switch], Step::Finish),
        (&[Step::Begin, Step::Switch], Step::SwitchBack),
        (&[Step::Begin], Step::Cancel),
    ];
    for (before, step) in stages {
        let prepare = || {
            let world = World::served();
            for step in before {
                world.rotate(*step);
                world.issue(NOW);
            }
            world
        };
        let act = |world: &World, disk: Disk| {
            let mut authority = Authority::open_on(disk, &world.dir)?;
            authority.rotate(step, false, NOW)?;
            authority.issue(&world.order(), NOW).map(|_| ())
        };
        // In every state: it can be read, and clients with the present bundle trust the present certificate.
        let intact = |world: &World, changes: u32| {
            world.authority().survey(NOW).unwrap_or_else(|error| panic!("{step:?} {changes}: {error}"));
            assert!(accepts(&world.bundle(), &world.checked(NOW)), "{step:?} {changes}");
        };
        let done = |world: &World, changes: u32| {
            let authority = world.authority();
            let expected = match step {
                Step::Begin | Step::SwitchBack => "announced",
                Step::Switch => "switched",
                Step::Finish | Step::Cancel => "steady",
            };
            assert_eq!(authority.rotation().name(), expected, "{step:?} {changes}");
            let survey = authority.survey(NOW).expect("a survey");
            assert!(survey.warnings.is_empty(), "{step:?} {changes}: {:?}", survey.warnings);
            let kept = entries(&world.dir.join("cas")).expect("a list").len();
            assert_eq!(kept, authority.rotation().trusted().len(), "{step:?} {changes}");
            assert!(accepts(&world.bundle(), &world.checked(NOW)), "{step:?} {changes}");
            nothing_unfinished(world, changes);
        };
        let count = dying_everywhere(prepare, act, intact, done);
        assert!(count > 5, "{step:?}: {count}");
    }
}

#[test]
fn two_at_once_wait_for_each_other() {
    let world = World::with_authority();
    let outs: Vec<PathBuf> = (0..4).map(|number| world._temporary.path().join(format!("tls-{number}"))).collect();
    std::thread::scope(|scope| {
        for out in &outs {
            let order = Order { out: out.clone(), ..world.order() };
            let dir = &world.dir;
            scope.spawn(move || Authority::open(dir).expect("open").issue(&order, NOW).expect("issued"));
        }
    });
    let survey = world.authority().survey(NOW).expect("a survey");
    let found: Vec<_> = survey.leaves.iter().map(|leaf| leaf.out.clone()).collect();
    assert_eq!(found, outs);
}

#[test]
fn endpoints_of_all_kinds_are_served() {
    let world = World::with_authority();
    let endpoints: Vec<Endpoint> = ["10.1.2.3:9092", "[2001:db8::1]:9092", HOST]
        .iter()
        .map(|text| endpoint(text))
        .chain(Endpoint::localhost())
        .collect();
    let order = Order { endpoints, ..world.order() };
    world.authority().issue(&order, NOW).expect("issued");
    let served = Arc::new(Served::new(&world.checked(NOW)));
    for name in ["10.1.2.3", "2001:db8::1", HOST, "localhost", "127.0.0.1", "::1"] {
        converse(&mut client(&world.bundle(), name, NOW), &mut server(served.clone())).expect(name);
    }
    assert!(converse(&mut client(&world.bundle(), "10.1.2.4", NOW), &mut server(served)).is_err());
}
