//! Recipe of a SuperNode, ours or official.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use trellis_flower::Isolation;
use trellis_flower::launch::{self, Backoff, CLIENTAPPIO_PORT, Gpus, NodeConfig, SuperNode, Trust};

use super::{NODE_CONFIG, Probe, Program, Recipe, Surroundings, coordinator, describe_common, node_config};
use crate::failure::Failure;
use crate::place::Place;
use crate::settings::{Common, Limit, Role, SuperNodeSettings};

/// Address that apps connect to.
const APPS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), CLIENTAPPIO_PORT);

pub fn recipe(
    common: &Common,
    node: &SuperNodeSettings,
    around: &Surroundings,
    place: &Place,
) -> Result<Recipe, Failure> {
    let supernode = describe(common, node, around, place)?;
    let launch = supernode.launch();
    let mut directories = vec![place.service(Role::SuperNode)];
    let mut programs = vec![Program::of(Role::SuperNode, &launch, common, place)];
    let probe = match &launch.probe {
        launch::Probe::Socket(socket) => Probe::SuperNode { socket: socket.clone() },
        _ => {
            let log = place.logs().join("supernode.log");
            directories.push(place.logs());
            programs[0].log = Some(log.clone());
            Probe::FlowerSuperNode { log }
        }
    };
    let superexec = supernode.superexec(APPS);
    programs.extend(superexec.map(|superexec| Program::superexec(&superexec.launch(), common, place)));
    Ok(Recipe { files: launch.files, directories, programs, probe, listens: Vec::new() })
}

pub fn describe(
    common: &Common,
    node: &SuperNodeSettings,
    around: &Surroundings,
    place: &Place,
) -> Result<SuperNode, Failure> {
    let found = coordinator(around)?;
    let described = describe_common(Role::SuperNode, common, around, place);
    let trust = match (common.tls, &found.trust) {
        (false, _) => Trust::Plain,
        (true, Some(_)) => Trust::Authority(place.trust()),
        (true, None) => Trust::Default,
    };
    let serves_apps = !described.program.is_trellis() || common.isolation == Isolation::Process;
    let seconds = |duration: Duration| duration.as_secs().max(1);
    let gpu = node.gpu.as_ref();
    Ok(SuperNode {
        key: around.node_key.clone(),
        apps: serves_apps.then_some(APPS.into()),
        name: around.name.clone(),
        state: Some(place.service(Role::SuperNode)),
        client_app: node.client_app.clone(),
        node_config: Some(NodeConfig::File(place.etc().join(NODE_CONFIG), node_config(&node.node_config, found.shard))),
        max_retries: limit(node.max_retries),
        max_wait_s: limit(node.max_wait),
        backoff: Some(match node.backoff.exponential {
            true => Backoff::Exponential { max_seconds: seconds(node.backoff.max_interval) },
            false => Backoff::Fixed { seconds: seconds(node.backoff.max_interval) },
        }),
        gpus: match gpu.map(|gpu| &gpu.visible) {
            None => Gpus::None,
            Some(None) => Gpus::All,
            Some(Some(list)) => Gpus::Listed(list.clone()),
        },
        gpus_may_be_missing: gpu.map(|gpu| gpu.fallback_to_cpu),
        // 100 % is the default, so it is no argument.
        gpu_memory_fraction: gpu.map(|gpu| gpu.memory_fraction).filter(|share| *share > 0.0 && *share < 1.0),
        common: described,
        superlink: found.endpoint.clone(),
        trust,
        ..SuperNode::default()
    })
}

/// 0 has two meanings, so no limit is no argument.
fn limit(limit: Limit) -> Option<u64> {
    match limit {
        Limit::Unlimited => None,
        Limit::At(limit) => Some(limit),
    }
}
