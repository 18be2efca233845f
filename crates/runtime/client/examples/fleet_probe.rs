//! Checks an endpoint: whether it is a SuperLink, which transport it has, and whether it accepts a node. Joins with a new key, pulls once, and leaves.
//!
//! ```sh
//! cargo run -p trellis-client --example fleet_probe -- 127.0.0.1 9092 [ca.pem]
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use trellis_client::fleet::{Fleet, FleetOptions};
use trellis_client::{NodeKey, Security, Target, Trust};

const HEARTBEAT_INTERVAL_S: f64 = 30.0;
/// Our SuperLink holds a pull for longer.
const TIMEOUT: Duration = Duration::from_secs(3);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(host), Some(port)) = (arguments.next(), arguments.next()) else {
        return Err("usage: fleet_probe HOST PORT [CA_FILE]".into());
    };
    let security = match arguments.next() {
        Some(path) => Security::Tls(Trust::bundle(path.as_ref())?),
        None => Security::Plaintext,
    };
    let directory = tempfile::tempdir()?;
    let key = Arc::new(NodeKey::generate(&directory.path().join("key"), "probe")?);
    let target = Target { host, port: port.parse()?, security, token: None };
    let fleet = Fleet::new(target, key, FleetOptions::default());

    let registered = fleet.register_node().await?;
    println!("{} speaks {:?} and registers {registered:?}", fleet.endpoint(), fleet.transport());
    let node = fleet.activate_node(HEARTBEAT_INTERVAL_S).await?;
    println!("activated as {node}; registered again: {:?}", fleet.register_node().await?);
    println!("activated again: {:?}", fleet.activate_node(HEARTBEAT_INTERVAL_S).await);
    println!("heartbeat: {}", fleet.send_heartbeat(node, HEARTBEAT_INTERVAL_S).await?);
    match tokio::time::timeout(TIMEOUT, fleet.pull_messages(node)).await {
        Ok(pulled) => println!("messages: {}", pulled?.messages_list.len()),
        Err(_) => println!("the pull is held"),
    }
    fleet.deactivate_node(node).await?;
    fleet.unregister_node(node).await?;
    println!("gone; a pull now: {}", fleet.pull_messages(node).await.expect_err("nobody asks"));
    Ok(())
}
