//! Replays requests recorded from a real OpenNebula. The responses must have the same status, texts and elements, except for
//! `differences`.

mod differences;
mod exchange;
mod paths;

use std::time::{Duration, Instant};

use exchange::Recorded;
use trellis_fake_one::cloud::{Cloud, Id, ImageState, Pace, state_name};
use trellis_fake_one::faults::BootFailure;
use trellis_fake_one::template::Template;
use trellis_fake_one::{Config, FakeOne, Handle};

const STORY: &str = include_str!("../recorded/story.txt");
/// Timeout of each wait.
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fake_answers_as_the_recorded_one() {
    let pace = Pace { second_ms: 20, autoscaler_ms: 100, ..Pace::default() };
    let fake = FakeOne::start(Config { networks: Vec::new(), pace, ..Config::default() }).await.expect("it starts");
    let handle = fake.handle();
    let (mut problems, mut ready) = (Vec::new(), Vec::new());
    for line in STORY.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let found = match words.as_slice() {
            ["xmlrpc", name] => exchange::compare(&Recorded::read("xmlrpc", name), fake.oned, &handle).await,
            ["oneflow", name] => exchange::compare(&Recorded::read("oneflow", name), fake.flow, &handle).await,
            ["onegate", name] => exchange::compare(&Recorded::read("onegate", name), fake.gate, &handle).await,
            ["wait", rest @ ..] => wait(&handle, rest, &ready).await,
            ["ready", service] => {
                ready.push(service.parse().expect("a number"));
                Vec::new()
            }
            other => act(&handle, other),
        };
        problems.extend(found.into_iter().map(|problem| format!("{line}: {problem}")));
    }
    fake.stop().await;
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// VMs of services in `ready` report readiness as soon as they run.
async fn wait(handle: &Handle, words: &[&str], ready: &[Id]) -> Vec<String> {
    let id = words[1].parse().expect("a number");
    let what = words[words.len() - 1].to_owned();
    let there = |cloud: &Cloud| match words[0] {
        "image" => cloud.images[&id].state == ImageState::Ready,
        "vm" => cloud.vms.get(&id).is_some_and(|vm| state_name(vm.state, vm.lcm) == what),
        "service" if what == "gone" => !cloud.services.contains_key(&id),
        "service" => cloud.services.get(&id).is_some_and(|service| service.state.name() == what),
        _ => cloud.services.get(&id).is_some_and(|service| {
            let role = service.role_at(words[2]).map(|at| service.roles[at].cardinality.to_string());
            role.is_some_and(|cardinality| cardinality == what)
        }),
    };
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        let silent = |cloud: &Cloud| {
            let mut vms = cloud.vms.values().filter(|vm| vm.is_running() && vm.user_template.get("READY").is_none());
            vms.find(|vm| vm.service().is_some_and(|service| ready.contains(&service))).map(|vm| vm.owned.id)
        };
        let seen = handle.wait(LIMIT, |cloud| match there(cloud) {
            true => Some(None),
            false => silent(cloud).map(Some),
        });
        match seen.await {
            Some(None) => return Vec::new(),
            Some(Some(vm)) => handle.with(|cloud| {
                let mut said = Template::default();
                said.set("READY", "YES");
                cloud.update_user_template(vm, said, false, "oned").expect("it is there");
            }),
            None => break,
        }
    }
    let service = handle.with(|cloud| cloud.services.get(&id).map(|service| service.body_json()));
    vec![format!("it never came to that: {service:?}")]
}

/// Actions of the recording between the exchanges.
fn act(handle: &Handle, words: &[&str]) -> Vec<String> {
    handle.with(|cloud| {
        match words {
            ["freeze"] => cloud.faults.frozen = true,
            ["thaw"] => cloud.faults.frozen = false,
            ["step"] => {
                cloud.faults.frozen = false;
                cloud.advance(cloud.now_ms);
                cloud.faults.frozen = true;
            }
            ["document"] => {
                cloud.add_document(0, "other", 55, Default::default()).expect("oneadmin may");
            }
            ["instantiate", template, name] => {
                let merge = serde_json::json!({"name": name});
                let template = template.parse().expect("a number");
                if let Err(error) = cloud.instantiate_service(0, template, Some(&merge)) {
                    return vec![error.text];
                }
            }
            ["resume", vm] => {
                if let Err(refused) = cloud.act(vm.parse().expect("a number"), "resume") {
                    return vec![refused.message];
                }
            }
            ["fail", name] => {
                cloud.faults.boot_failures.push(BootFailure { matching: (*name).to_owned(), times: Some(1) });
            }
            other => return vec![format!("{other:?} is not understood")],
        }
        Vec::new()
    })
}
