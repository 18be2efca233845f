//! Random federations and random changes of them.
#![allow(dead_code)]

use trellis_plan::simulated::Random;
use trellis_spec::Federation;

const POOLS: [&str; 4] = ["clinic", "van", "lab-2", "ward"];
const SITES: [&str; 3] = ["north", "south", "east"];
const MAX_NODES: u64 = 5;

pub fn federation(random: &mut Random) -> Federation {
    let mut federation = super::federation();
    let sites = random.between(1, 3) as usize;
    federation.sites = SITES[..sites].iter().map(|site| super::site(site)).collect();
    let pools = random.between(1, 3) as usize;
    federation.pools = POOLS[..pools]
        .iter()
        .map(|pool| super::pool(pool, index(random, sites), random.between(0, MAX_NODES) as u32))
        .collect();
    federation.upgrade.max_unavailable = random.between(1, 2) as u32;
    federation.upgrade.drain_timeout = std::time::Duration::from_secs(random.between(0, 120));
    federation
}

/// One change that a user may make: a count, an image, a site, a name, a pool, the partitions.
pub fn change(federation: &mut Federation, random: &mut Random) {
    let sites = federation.sites.len();
    let index = index(random, federation.pools.len());
    let pool = &mut federation.pools[index];
    match random.between(0, 9) {
        0..=2 => pool.count = random.between(0, MAX_NODES) as u32,
        3 | 4 => pool.image = Some(format!("image:{}", random.between(0, 99))),
        5 => pool.site = random.between(0, sites as u64 - 1) as usize,
        6 => {
            let other = super::name(POOLS[self::index(random, POOLS.len())]);
            if !federation.pools.iter().any(|pool| pool.name == other) {
                federation.pools[index].name = other;
            }
        }
        7 => {
            let wanted: u32 = federation.pools.iter().map(|pool| pool.count).sum();
            let partitions = random.permille(700).then(|| wanted + random.between(0, 3) as u32);
            federation.training.partitions = partitions;
        }
        8 => federation.coordinator.extra_args = vec![format!("--setting={}", random.between(0, 9))],
        _ => federation.coordinator.site = self::index(random, sites),
    }
    enough_partitions(federation);
}

/// Fewer partitions than nodes are tested by a story.
fn enough_partitions(federation: &mut Federation) {
    let wanted: u32 = federation.pools.iter().map(|pool| pool.count).sum();
    let partitions = &mut federation.training.partitions;
    *partitions = partitions.map(|partitions| partitions.max(wanted));
}

fn index(random: &mut Random, length: usize) -> usize {
    random.between(0, length as u64 - 1) as usize
}
