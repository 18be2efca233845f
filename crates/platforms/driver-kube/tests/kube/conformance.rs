//! The conformance suite of drivers.

use std::sync::Arc;

use trellis_plan::conformance::{Subject, driver_cases};
use trellis_plan::{Driver, ResourceId};
use trellis_testing::RealClock;

use crate::scene::{Scene, desired, name};

#[tokio::test(flavor = "multi_thread")]
async fn every_promise_of_the_port_is_kept() {
    for (text, case) in driver_cases() {
        println!("{text}");
        let Some(scene) = Scene::new("promises").await else { return };
        let driver: Arc<dyn Driver> = scene.driver();
        let make = Box::new(|id: &ResourceId, variant: u32| desired(id, variant));
        case(&Subject { driver, clock: Arc::new(RealClock), site: name("lab"), desired: make }).await;
    }
}
