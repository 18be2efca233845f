//! Conformance of the driver, with both versions of OneFlow.

use std::sync::Arc;

use trellis_plan::conformance::{Subject, driver_cases};
use trellis_plan::{Driver, ResourceId};
use trellis_testing::RealClock;

use crate::scene::{Scene, desired, name};

#[tokio::test(flavor = "multi_thread")]
async fn every_promise_of_the_port_is_kept_on_version_7() {
    every_promise("7.5.80").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_promise_of_the_port_is_kept_on_version_6() {
    every_promise("6.10.5").await;
}

async fn every_promise(version: &str) {
    for (text, case) in driver_cases() {
        println!("{version}: {text}");
        let scene = Scene::of(version).await;
        let driver: Arc<dyn Driver> = scene.driver();
        let make = Box::new(|id: &ResourceId, variant: u32| desired(id, variant));
        case(&Subject { driver, clock: Arc::new(RealClock), site: name("lab"), desired: make }).await;
    }
}
