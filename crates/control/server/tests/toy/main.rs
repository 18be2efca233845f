//! A driver that the product does not know: one module, one line that registers it, and a federation comes true on it.

mod driver;

use std::sync::Arc;
use std::time::Duration;

use trellis_api::{Role, State};
use trellis_server::{Platform, PlatformSettings, Refusal, SiteDrivers};

use driver::Toy;

const LIMIT: Duration = Duration::from_secs(60);

async fn start(directory: &std::path::Path) -> Arc<Platform> {
    let sites = SiteDrivers::Real(vec![&Toy]);
    let settings = PlatformSettings { sites, ..PlatformSettings::new(directory.to_owned(), "trellis".into()) };
    Platform::start(settings).await.expect("it starts")
}

fn document(site: &str) -> String {
    format!(
        "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: demo}}\nspec:\n  nodes: 2\n  \
         sites: [{{name: box, toy: {site}}}]\n"
    )
}

/// Waits until this is so; each change of a federation is an event.
async fn until(platform: &Platform, condition: impl Fn() -> bool) {
    let mut events = platform.events();
    let waiting = async {
        while !condition() {
            let _ = events.recv().await;
        }
    };
    let waited = tokio::time::timeout(LIMIT, waiting).await;
    waited.unwrap_or_else(|_| panic!("it is still {:?}", platform.federation("demo", Role::Admin)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_driver_needs_one_line_to_plan_and_apply_a_federation() {
    let home = tempfile::tempdir().expect("a directory");
    let platform = start(home.path()).await;
    let text = document("{colour: red, file: /etc/hosts}");

    let plan = platform.plan(&text, "demo", Role::Admin).await.expect("a plan");
    let planned: Vec<&str> = plan.actions.iter().map(|action| action.verb.as_str()).collect();
    assert_eq!(planned, ["create"], "the coordinator comes first: {plan:?}");

    platform.apply("demo", &text, None).await.expect("it is applied");
    let is_ready = || {
        let summary = platform.federation("demo", Role::Admin).expect("it is there").summary;
        summary.state == State::Ready && summary.nodes.ready == 2
    };
    until(&platform, is_ready).await;
    let detail = platform.federation("demo", Role::Admin).expect("it is there");
    assert!(detail.document.contains("    toy:\n      colour: red\n      file: /etc/hosts\n"), "{}", detail.document);
    let said = platform.part_log("demo", "nodes-0", None, false).await.expect_err("a toy has no log");
    assert_eq!(said, Refusal::NotFound("nodes-0 has no log on this machine".to_owned()));

    platform.stop().await;
    drop(platform);
    let platform = start(home.path()).await;
    until(&platform, || platform.federation("demo", Role::Admin).is_ok()).await;
    platform.delete("demo", false).await.expect("it is to go");
    until(&platform, || platform.federation("demo", Role::Admin).is_err()).await;
    assert_eq!(driver::parts(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_a_new_driver_are_checked_and_described_like_all_others() {
    let home = tempfile::tempdir().expect("a directory");
    let platform = start(home.path()).await;
    for (site, expected) in [
        (
            "{colour: red, file: hosts}",
            "spec.sites[0].toy.file: hosts is a relative path, but the server has another working directory",
        ),
        ("{colour: green}", "spec.sites[0].toy.colour: green hurts the eyes"),
        ("{colour: red, size: 4}", "spec.sites[0].toy.size: there is no such field"),
        ("{}", "spec.sites[0].toy.colour: it is missing"),
    ] {
        match platform.check("demo", &document(site)) {
            Err(Refusal::Invalid { problems, .. }) => {
                let told: Vec<String> =
                    problems.iter().map(|problem| format!("{}: {}", problem.path, problem.what)).collect();
                assert_eq!(told, [expected], "{site}");
            }
            other => panic!("{site}: {other:?}"),
        }
    }
    let site = &trellis_spec::schema()["properties"]["spec"]["properties"]["sites"]["items"]["properties"]["toy"];
    assert_eq!(site["required"][0], "colour");
    assert!(trellis_spec::reference().contains("### spec.sites[].toy\n"));
}
