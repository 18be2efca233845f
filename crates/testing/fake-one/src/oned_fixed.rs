//! Constant pools: one cluster, two hosts, three datastores, two groups, one zone.

use crate::cloud::{Cloud, DATASTORES};
use crate::element::Element;

fn named(id: i64, name: &str) -> Vec<Element> {
    vec![Element::plain("ID", id), Element::plain("NAME", name)]
}

fn ids(name: &str, ids: &[i64]) -> Element {
    Element::of(name, ids.iter().map(|id| Element::plain("ID", id)).collect())
}

pub fn pool(cloud: &Cloud, pool: &str) -> Element {
    match pool {
        "hostpool" => Element::of("HOST_POOL", vec![host(1, "dummy-b"), host(0, "dummy-a")]),
        "clusterpool" => {
            let networks: Vec<i64> = cloud.networks.keys().copied().collect();
            let mut parts = named(0, "default");
            parts.extend([ids("HOSTS", &[0, 1]), ids("DATASTORES", &[0, 1, 2]), ids("VNETS", &networks)]);
            let reserved = ["RESERVED_CPU", "RESERVED_MEM"].map(|name| Element::free(name, ""));
            parts.push(Element::of("TEMPLATE", reserved.into()));
            Element::of("CLUSTER_POOL", vec![Element::of("CLUSTER", parts)])
        }
        "datastorepool" => {
            Element::of("DATASTORE_POOL", DATASTORES.iter().rev().map(|of| datastore(cloud, *of)).collect())
        }
        "grouppool" => {
            let group = |id: i64, name: &str| Element::of("GROUP", named(id, name));
            Element::of("GROUP_POOL", vec![group(1, "users"), group(0, "oneadmin")])
        }
        "zonepool" => {
            let mut parts = named(0, "OpenNebula");
            let ends = [("ENDPOINT", "http://localhost:2633/RPC2"), ("ENDPOINT_GRPC", "localhost:2634")];
            let ends = ends.map(|(name, value)| Element::free(name, value));
            parts.extend([
                Element::plain("STATE", 0),
                Element::of("TEMPLATE", ends.into()),
                Element::of("SERVER_POOL", Vec::new()),
            ]);
            Element::of("ZONE_POOL", vec![Element::of("ZONE", parts)])
        }
        _ => Element::of("ACL_POOL", Vec::new()),
    }
}

fn host(id: i64, name: &str) -> Element {
    let mut parts = named(id, name);
    let share = [
        ("TOTAL_MEM", 16_777_216),
        ("MAX_MEM", 16_777_216),
        ("MEM_USAGE", 0),
        ("TOTAL_CPU", 800),
        ("MAX_CPU", 800),
        ("CPU_USAGE", 0),
    ];
    let share = share.map(|(name, value)| Element::plain(name, value));
    parts.extend([
        Element::plain("STATE", 2),
        Element::plain("PREV_STATE", 2),
        Element::free("IM_MAD", "dummy"),
        Element::free("VM_MAD", "dummy"),
        Element::plain("CLUSTER_ID", 0),
        Element::plain("CLUSTER", "default"),
        Element::of("HOST_SHARE", share.into()),
        Element::of("VMS", Vec::new()),
        Element::of("TEMPLATE", Vec::new()),
    ]);
    Element::of("HOST", parts)
}

fn datastore(cloud: &Cloud, (id, name, kind): (i64, &str, i64)) -> Element {
    let images: Vec<i64> =
        cloud.images.values().filter(|image| image.datastore == id).map(|image| image.owned.id).collect();
    let mut parts = vec![Element::plain("ID", id), Element::plain("UID", 0), Element::plain("GID", 0)];
    parts.extend([
        Element::plain("UNAME", "oneadmin"),
        Element::plain("GNAME", "oneadmin"),
        Element::plain("NAME", name),
    ]);
    let rights = ["OWNER_U", "OWNER_M", "OWNER_A", "GROUP_U", "GROUP_M", "GROUP_A", "OTHER_U", "OTHER_M", "OTHER_A"];
    let given = [1, 1, 0, 1, 0, 0, 0, 0, 0];
    let rights = rights.iter().zip(given).map(|(name, given)| Element::plain(name, given));
    parts.extend([
        Element::of("PERMISSIONS", rights.collect()),
        Element::free("DS_MAD", "dummy"),
        Element::free("TM_MAD", "dummy"),
        Element::free("BASE_PATH", format!("/var/lib/one/datastores/{id}")),
        Element::plain("TYPE", kind),
        Element::plain("DISK_TYPE", 0),
        Element::plain("STATE", 0),
        ids("CLUSTERS", &[0]),
        Element::plain("TOTAL_MB", 20480),
        Element::plain("FREE_MB", 20480),
        Element::plain("USED_MB", 9720),
        ids("IMAGES", &images),
    ]);
    let names = [
        "ALLOW_ORPHANS",
        "CLONE_TARGET",
        "DISK_TYPE",
        "DS_MAD",
        "LN_TARGET",
        "PERSISTENT_SNAPSHOTS",
        "RESTRICTED_DIRS",
        "SAFE_DIRS",
        "TM_MAD",
        "TYPE",
    ];
    let values = [
        "NO",
        "SYSTEM",
        "FILE",
        "dummy",
        "NONE",
        "YES",
        "/",
        "/var/tmp",
        "dummy",
        ["IMAGE_DS", "SYSTEM_DS", "FILE_DS"][kind as usize % 3],
    ];
    let template = names.iter().zip(values).map(|(name, value)| Element::free(name, value));
    let mut template: Vec<Element> = template.collect();
    if kind == 1 {
        let moves = ["DS_LIVE_MIGRATE", "DS_MIGRATE", "DS_MIGRATE_SNAP", "SHARED"];
        template.extend(moves.map(|name| Element::free(name, "YES")));
    }
    parts.push(Element::of("TEMPLATE", template));
    Element::of("DATASTORE", parts)
}
