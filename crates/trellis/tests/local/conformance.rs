//! The conformance suite of drivers.

use std::sync::Arc;

use trellis_plan::conformance::{Subject, driver_cases};
use trellis_plan::{Driver, ResourceId};
use trellis_testing::RealClock;

use crate::scene::{Scene, id};

#[tokio::test(flavor = "multi_thread")]
async fn every_promise_of_the_port_is_kept() {
    // The nodes of all cases join this one.
    let around = Scene::new();
    let coordinator = id("around/local/coordinator");
    around.make(1, around.create(&coordinator)).await;
    let superlink = around.until_ready(&coordinator).await.addresses.fleet.expect("nodes have an address");
    for (name, case) in driver_cases() {
        println!("{name}");
        let scene = Arc::new(Scene::new());
        let driver: Arc<dyn Driver> = scene.driver().clone();
        let (superlink, making) = (superlink.clone(), Arc::clone(&scene));
        let desired = Box::new(move |id: &ResourceId, variant: u32| making.desired(id, &superlink, variant));
        let site = id("demo/local/coordinator").site;
        case(&Subject { driver, clock: Arc::new(RealClock), site, desired }).await;
    }
}
