//! The platform over simulated sites: documents come true, stay true, and go; also when the one who keeps them does not last.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::broadcast;
use trellis_api::{Event, FederationSummary, NewRun, Pool, Role, State};
use trellis_server::{Platform, PlatformSettings, Refusal, SimulatedSites, SiteDrivers};
use trellis_spec::Name;

/// Far more than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
/// What takes seconds in the simulated world takes milliseconds.
const SPEED: u32 = 50;

struct Lab {
    home: TempDir,
    sites: Arc<SimulatedSites>,
}

impl Lab {
    fn new() -> Lab {
        Lab { home: tempfile::tempdir().expect("a directory"), sites: SimulatedSites::new(SPEED) }
    }

    fn settings(&self) -> PlatformSettings {
        let sites = SiteDrivers::Simulated(Arc::clone(&self.sites));
        PlatformSettings { sites, ..PlatformSettings::new(self.home.path().to_owned(), "trellis".into()) }
    }

    async fn start(&self) -> Arc<Platform> {
        Platform::start(self.settings()).await.expect("it starts")
    }

    async fn start_alone(&self) -> Arc<Platform> {
        Platform::start(PlatformSettings { exclusive: true, ..self.settings() }).await.expect("it starts")
    }

    fn nodes(&self, federation: &str) -> usize {
        let world = self.sites.world(&Name::new(federation).expect("a name"));
        let world = world.lock().expect("nobody broke it");
        assert!(world.violations.is_empty(), "{:?}", world.violations);
        world.machines().keys().filter(|id| id.node_key().is_some()).count()
    }
}

fn document(name: &str, nodes: u32) -> String {
    format!(
        "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata:\n  name: {name}\nspec:\n  pools:\n  - name: clinic\n    \
         count: {nodes}\n"
    )
}

fn to(count: u32) -> Pool {
    Pool { count, repartition: false }
}

/// Waits until a federation is as it should be; each change of it is an event.
async fn until(platform: &Platform, name: &str, wanted: impl Fn(&FederationSummary) -> bool) -> FederationSummary {
    let mut events = platform.events();
    let waiting = async {
        loop {
            match platform.federation(name, Role::Admin) {
                Ok(detail) if wanted(&detail.summary) => return detail.summary,
                _ => next(&mut events).await,
            };
        }
    };
    match tokio::time::timeout(LIMIT, waiting).await {
        Ok(summary) => summary,
        Err(_) => panic!("it is still {:?}", platform.federation(name, Role::Admin)),
    }
}

async fn next(events: &mut broadcast::Receiver<Arc<Event>>) -> Option<Arc<Event>> {
    match tokio::time::timeout(LIMIT, events.recv()).await.expect("something happens in time") {
        Ok(event) => Some(event),
        Err(broadcast::error::RecvError::Lagged(_)) => None,
        Err(broadcast::error::RecvError::Closed) => panic!("the platform is gone"),
    }
}

async fn gone(platform: &Platform, name: &str, events: &mut broadcast::Receiver<Arc<Event>>) {
    while platform.federation(name, Role::Admin).is_ok() {
        next(events).await;
    }
}

fn is_ready(nodes: u32) -> impl Fn(&FederationSummary) -> bool {
    move |summary| summary.state == State::Ready && summary.nodes.ready == nodes && summary.nodes.wanted == nodes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_comes_true_is_scaled_and_goes() {
    let lab = Lab::new();
    let platform = lab.start().await;
    let mut events = platform.events();
    let applied = platform.apply("demo", &document("demo", 3), Some(0)).await.expect("it is kept");
    assert!(applied.created && applied.changed);
    assert_eq!((applied.detail.summary.revision, applied.detail.summary.nodes.wanted), (1, 3));
    until(&platform, "demo", is_ready(3)).await;
    let names: Vec<String> = platform.nodes("demo").expect("it is there").into_iter().map(|node| node.name).collect();
    assert_eq!(names, ["clinic-0", "clinic-1", "clinic-2"]);
    let detail = platform.federation("demo", Role::Admin).expect("it is there");
    assert!(detail.status.is_some_and(|status| status.nodes.is_empty() && status.coordinator.phase == "ready"));

    let same = platform.apply("demo", &document("demo", 3), None).await.expect("it is kept");
    assert_eq!((same.created, same.changed, same.detail.summary.revision), (false, false, 1));
    let scaled = platform.scale("demo", "clinic", &to(5)).await.expect("it is kept");
    assert_eq!((scaled.changed, scaled.detail.summary.revision), (true, 2));
    assert_ne!(scaled.detail.summary.state, State::Ready, "what was decided is of an earlier document");
    until(&platform, "demo", is_ready(5)).await;
    platform.scale("demo", "clinic", &to(1)).await.expect("it is kept");
    until(&platform, "demo", is_ready(1)).await;
    assert_eq!(lab.nodes("demo"), 1);

    platform.delete("demo", false).await.expect("it is there");
    platform.delete("demo", false).await.expect("again is the same");
    let refused = platform.apply("demo", &document("demo", 1), None).await.expect_err("it is leaving");
    assert!(matches!(refused, Refusal::Conflict(_)), "{refused}");
    let mut told = Vec::new();
    while told.last() != Some(&"gone") {
        told.extend(next(&mut events).await.map(|event| event.kind()));
    }
    assert!(told.len() > 4 && told[..told.len() - 1].iter().all(|kind| *kind == "federation"), "{told:?}");
    assert_eq!(platform.federations(), []);
    assert!(matches!(platform.delete("demo", false).await, Err(Refusal::NotFound(_))));
    assert_eq!(lab.nodes("demo"), 0);

    let again = platform.apply("demo", &document("demo", 2), Some(0)).await.expect("the name is free");
    assert!(again.created);
    until(&platform, "demo", is_ready(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_moment_is_followed_by_the_next() {
    let lab = Lab::new();
    let mut platform = lab.start_alone().await;
    platform.apply("demo", &document("demo", 4), None).await.expect("it is kept");
    // Dropped where it stands, again and again, while the federation starts.
    for _ in 0..5 {
        let mut events = platform.events();
        tokio::time::timeout(Duration::from_millis(30), next(&mut events)).await.ok();
        drop(platform);
        platform = lab.start_alone().await;
    }
    until(&platform, "demo", is_ready(4)).await;
    assert_eq!(lab.nodes("demo"), 4, "nothing was made twice");
    platform.stop().await;
    drop(platform);

    let next = lab.start().await;
    assert_eq!(
        next.federation("demo", Role::Admin).expect("it is known").summary.nodes.ready,
        4,
        "what was told last is shown"
    );
    let mut events = next.events();
    next.delete("demo", false).await.expect("it is there");
    gone(&next, "demo", &mut events).await;
    assert_eq!(lab.nodes("demo"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_on_one_registry_do_not_fight() {
    let lab = Lab::new();
    let first = lab.start().await;
    first.apply("demo", &document("demo", 3), None).await.expect("it is kept");
    until(&first, "demo", is_ready(3)).await;
    let second = lab.start().await;
    first.scale("demo", "clinic", &to(4)).await.expect("it is kept");
    until(&first, "demo", is_ready(4)).await;
    // The one that only looks on sees what the other one does, and takes over when that one leaves.
    until(&second, "demo", is_ready(4)).await;
    first.stop().await;
    second.scale("demo", "clinic", &to(2)).await.expect("it is kept");
    until(&second, "demo", is_ready(2)).await;
    assert_eq!(lab.nodes("demo"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_comes_back_and_one_federation_does_not_touch_another() {
    let lab = Lab::new();
    let platform = lab.start().await;
    for name in ["one", "two"] {
        platform.apply(name, &document(name, 2), None).await.expect("it is kept");
    }
    for name in ["one", "two"] {
        until(&platform, name, is_ready(2)).await;
    }
    let world = lab.sites.world(&Name::new("one").expect("a name"));
    let node = {
        let mut world = world.lock().expect("nobody broke it");
        let node = world.machines().keys().find(|id| id.node_key().is_some()).cloned().expect("a node");
        world.lose(&node);
        node
    };
    // The loss itself may be repaired before a summary shows it.
    let is_back = || world.lock().expect("nobody broke it").machines().contains_key(&node);
    until(&platform, "one", |summary| is_back() && is_ready(2)(summary)).await;
    let name = node.part.name();
    assert!(platform.nodes("one").expect("it is there").iter().any(|each| each.name == name && each.phase == "ready"));
    let names: Vec<String> = platform.federations().iter().map(|summary| summary.name.clone()).collect();
    assert_eq!(names, ["one", "two"]);
    assert!(is_ready(2)(&platform.federation("two", Role::Admin).expect("it is there").summary));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_is_told_with_its_place() {
    let lab = Lab::new();
    let platform = lab.start().await;
    let text = document("demo", 3).replace("count", "cuont").replace("clinic", "Clinic");
    let Err(Refusal::Invalid { problems, .. }) = platform.apply("demo", &text, None).await else {
        panic!("it must not be kept");
    };
    let places: Vec<(Option<usize>, &str)> = problems.iter().map(|each| (each.line, each.path.as_str())).collect();
    assert_eq!(places, [(Some(7), "spec.pools[0].name"), (Some(8), "spec.pools[0].cuont")], "{problems:?}");
    assert!(problems[1].advice.contains("count") && problems.iter().all(|each| each.column.is_some()), "{problems:?}");

    let relative = document("demo", 1) + "    python: env/bin/python\n";
    let Err(Refusal::Invalid { problems, .. }) = platform.apply("other", &relative, None).await else {
        panic!("it must not be kept");
    };
    let places: Vec<&str> = problems.iter().map(|each| each.path.as_str()).collect();
    assert_eq!(places, ["spec.pools[0].python", "metadata.name"]);
    let both = document("one", 1) + "---\n" + &document("two", 1);
    assert!(matches!(platform.plan(&both, "both.yaml", Role::Admin).await, Err(Refusal::Invalid { .. })));
    assert_eq!(platform.federations(), [], "nothing of it was kept");

    for refused in [
        platform.federation("demo", Role::Admin).map(drop),
        platform.nodes("no name").map(drop),
        platform.scale("demo", "clinic", &to(1)).await.map(drop),
        platform.current_plan("demo", Role::Admin).await.map(drop),
        platform.start_run("demo", &NewRun::default(), "me").await.map(drop),
    ] {
        assert!(matches!(refused, Err(Refusal::NotFound(_))), "{refused:?}");
    }
    let conflict = platform.apply("demo", &document("demo", 1), Some(4)).await.map(drop);
    assert!(matches!(conflict, Err(Refusal::Conflict(_))), "{conflict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_stays_within_its_bounds() {
    let lab = Lab::new();
    let platform = lab.start().await;
    let bounded = document("demo", 2) + "    scaling: {min: 1, max: 4}\n";
    platform.apply("demo", &bounded, None).await.expect("it is kept");
    let Err(Refusal::Invalid { problems, .. }) = platform.scale("demo", "clinic", &to(9)).await else {
        panic!("it must be refused");
    };
    assert!(problems[0].what.contains("1 to 4"), "{problems:?}");
    assert!(matches!(platform.scale("demo", "ward", &to(1)).await, Err(Refusal::NotFound(_))));
    assert_eq!(platform.federation("demo", Role::Admin).expect("it is there").summary.revision, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_tells_what_would_be_done_and_does_nothing() {
    let lab = Lab::new();
    let platform = lab.start().await;
    let new = platform.plan(&document("demo", 2), "demo.yaml", Role::Admin).await.expect("a plan");
    assert!(!new.exists && new.diff.contains("+    count: 2"), "{}", new.diff);
    let verbs: Vec<(&str, &str)> = new.actions.iter().map(|each| (each.verb.as_str(), each.what.as_str())).collect();
    assert_eq!(verbs, [("create", "coordinator")]);
    assert!(new.text.contains("federation demo is new") && new.text.contains("create coordinator at"), "{}", new.text);
    assert_eq!((platform.federations().len(), lab.nodes("demo")), (0, 0));

    platform.apply("demo", &document("demo", 2), None).await.expect("it is kept");
    until(&platform, "demo", is_ready(2)).await;
    let calm = platform.current_plan("demo", Role::Admin).await.expect("a plan");
    assert!(calm.exists && calm.actions.is_empty() && calm.diff.is_empty(), "{}", calm.text);
    let other = document("demo", 2) + "  coordinator:\n    env: {LEVEL: high}\n";
    let changed = platform.plan(&other, "demo.yaml", Role::Admin).await.expect("a plan");
    assert_eq!(changed.actions.first().map(|action| action.verb.as_str()), Some("replace"), "{}", changed.text);
    let why = changed.report.iter().find(|why| why.about == "coordinator").expect("a reason");
    assert_eq!(why.text, "replaced because of changes: env.LEVEL");
    assert!(changed.diff.contains("+      LEVEL: high"), "{}", changed.diff);
    let official = document("demo", 2).replace("spec:", "spec:\n  runtime: flower:1.39.0");
    let lost = platform.plan(&official, "demo.yaml", Role::Admin).await.expect("a plan").promises_lost;
    assert!(lost.iter().any(|promise| promise.contains("Native training")), "{lost:?}");
    assert_eq!(
        platform.federation("demo", Role::Admin).expect("it is there").summary.revision,
        1,
        "nothing was changed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_federation_that_has_no_superlink_to_call() {
    let lab = Lab::new();
    let platform = lab.start().await;
    platform.apply("demo", &document("demo", 1), None).await.expect("it is kept");
    until(&platform, "demo", is_ready(1)).await;
    assert_eq!(platform.runs("demo").await, Ok(Vec::new()));
    let new = NewRun { app: Some("native:mlp".to_owned()), ..NewRun::default() };
    let refused = platform.start_run("demo", &new, "me").await.expect_err("nobody is there");
    assert!(matches!(&refused, Refusal::Refused(why) if why.contains("no HTTP API")), "{refused}");
    assert!(matches!(platform.part_log("demo", "clinic-7", None, false).await, Err(Refusal::NotFound(_))));
    let connection = platform.connection("demo").await.expect("it has addresses");
    assert!(connection.control.is_some() && !connection.insecure);
    let apps = platform.apps();
    let app = apps.apps.iter().find(|app| app.name == "native:mlp").expect("it is listed");
    assert!(apps.strategies.len() > 10);
    let names: Vec<&str> = app.settings.iter().map(|setting| setting.name.as_str()).collect();
    assert!(names.contains(&"local-epochs") && names.contains(&"partition"), "{names:?}");
    let training: Vec<&str> = apps.training.iter().map(|setting| setting.name.as_str()).collect();
    for refused in ["dataset", "label", "classes", "scale", "partition-id", "num-partitions"] {
        assert!(!names.contains(&refused), "no run can set {refused}");
    }
    assert!(names.iter().all(|name| !training.contains(name)), "each setting is listed once: {names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_go_over_plain_http_only_where_the_document_says_so() {
    let lab = Lab::new();
    let platform = lab.start().await;
    let document = |more: &str| {
        format!(
            "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: demo}}\nspec:\n  coordinator: {{endpoints: \
             {{advertise: [link.example.org]}}}}\n  sites:\n  - {{name: cloud, opennebula: {{endpoint: \
             'http://one.example.org:2633/RPC2', network: lan{more}}}}}\n  pools:\n  - {{name: edge, count: 1}}\n"
        )
    };
    for (text, accepted) in [(document(""), false), (document(", allowPlainHttp: true"), true)] {
        match platform.plan(&text, "document", Role::Admin).await {
            Ok(_) => assert!(accepted),
            Err(Refusal::Invalid { problems, .. }) => {
                assert!(!accepted, "{problems:?}");
                assert_eq!(problems[0].path, "spec.sites[0].opennebula.endpoint");
                assert!(problems[0].advice.contains("allowPlainHttp"), "{problems:?}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    let refused = platform.apply("demo", &document(""), None).await.map(drop);
    assert!(matches!(refused, Err(Refusal::Invalid { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_pools_are_scaled_and_not_revoked_and_shards_without_a_node_are_merged() {
    let lab = Lab::new();
    let platform = lab.start().await;
    platform.apply("demo", &document("demo", 3), None).await.expect("it is kept");
    until(&platform, "demo", |summary| summary.state == State::Ready && summary.nodes.ready == 3).await;
    let Err(Refusal::Conflict(why)) = platform.revoke("demo", "clinic-0").await else {
        panic!("a node of a pool is revoked")
    };
    assert!(why.contains("`trellis scale clinic=COUNT`"), "{why}");
    assert!(matches!(platform.revoke("demo", "coordinator").await, Err(Refusal::Conflict(_))));
    assert!(matches!(platform.revoke("demo", "ward").await, Err(Refusal::NotFound(_))));

    let shards = || {
        let status = platform.federation("demo", Role::Admin).expect("it is there").status.expect("it was looked at");
        (status.shards, status.orphaned_shards)
    };
    platform.scale("demo", "clinic", &to(2)).await.expect("it is kept");
    until(&platform, "demo", |summary| summary.state == State::Ready && shards() == (3, 1)).await;
    let merged = platform.scale("demo", "clinic", &Pool { count: 2, repartition: true }).await.expect("it is kept");
    assert!(merged.detail.document.contains("partitions: 2"), "{}", merged.detail.document);
    until(&platform, "demo", |summary| summary.state == State::Ready && shards() == (2, 0)).await;
    platform.stop().await;
}
