//! The order in which the SuperLink and the pools of a federation are upgraded, so that they can talk to each other at
//! all times.
//!
//! The SuperLink is upgraded first, because SuperLinks support older nodes rather than newer ones, and a SuperLink of
//! Trellis supports all. Pools are upgraded first if the old nodes could not talk to the new SuperLink, but the new
//! nodes can talk to the old one. If neither works (Flower moved from gRPC to HTTP with 1.40), no order helps.
//! Combinations that cannot work after the upgrade are refused before.

use std::collections::BTreeMap;

use trellis_flower::{Program, Skew, skew};

use crate::federation::Federation;
use crate::flower::{Programs, image as held_by};
use crate::object::{Identity, Object};
use crate::progress::Progress;

/// Workloads that are not applied yet, and what they wait for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    pub back: Vec<Identity>,
    pub waits: Option<String>,
}

/// Selects the workloads that keep their release until others are upgraded.
pub fn held(federation: &Federation, desired: &[Object], live: &BTreeMap<Identity, Object>) -> Held {
    let superlink = federation.superlink_name();
    let find = |name: &str| desired.iter().find(|object| is_workload(object) && object.identity().name == name);
    let Some((new, old)) = find(&superlink).and_then(|new| Some((new, live.get(&new.identity())?))) else {
        // There is no SuperLink yet.
        return Held::default();
    };
    let programs = Programs::of(federation);
    let (from, to) = (program(federation, old, "superlink"), programs.superlink);
    let pools: Vec<Move<'_>> = programs
        .pools
        .iter()
        .filter_map(|pool| {
            let new = find(&federation.pool_name(&pool.pool))?;
            let old = live.get(&new.identity())?;
            Some(Move { new, old, from: program(federation, old, "supernode"), to: pool.supernode })
        })
        .collect();
    if !new.is_released_as(old, "superlink") {
        // The SuperLink must be upgraded.
        // The releases of the last nodes of a rolling pool are unknown, so a SuperLink that supports fewer releases
        // must wait.
        let narrows = from.is_trellis() && !to.is_trellis();
        let stranded = pools.iter().any(|pool| {
            !can_work(to, pool.from) || narrows && pool.is_told() && !Progress::of(&pool.old.0).is_rolled_out()
        });
        let pools_can_go = pools.iter().all(|pool| can_work(from, pool.to));
        let unmoved: Vec<&Move<'_>> = pools.iter().filter(|pool| !pool.is_done()).collect();
        return match (stranded, pools_can_go) {
            (false, _) => hold(&unmoved, "the SuperLink to serve its new release"),
            (true, true) if !unmoved.is_empty() => Held {
                back: vec![new.identity()],
                waits: Some("the nodes to have a release that the new SuperLink can talk to".to_owned()),
            },
            (true, _) => Held::default(),
        };
    }
    if Progress::of(&old.0).is_rolled_out() {
        return Held::default();
    }
    // The SuperLink is rolling.
    let unmoved: Vec<&Move<'_>> = pools.iter().filter(|pool| !pool.is_told() && can_work(to, pool.from)).collect();
    hold(&unmoved, "the SuperLink to serve its new release")
}

/// A pool before and after its upgrade.
struct Move<'a> {
    new: &'a Object,
    old: &'a Object,
    from: Program,
    to: Program,
}

impl Move<'_> {
    fn is_told(&self) -> bool {
        self.new.is_released_as(self.old, "supernode")
    }

    fn is_done(&self) -> bool {
        self.is_told() && Progress::of(&self.old.0).is_rolled_out()
    }
}

fn hold(pools: &[&Move<'_>], what: &str) -> Held {
    // Only pools whose release changes wait, not those with another size or other resources.
    let back: Vec<Identity> = pools.iter().filter(|pool| !pool.is_told()).map(|pool| pool.new.identity()).collect();
    let waits = (!back.is_empty()).then(|| what.to_owned());
    Held { back, waits }
}

fn can_work(superlink: Program, supernode: Program) -> bool {
    !matches!(skew::fleet(superlink, supernode), Skew::CannotWork(..))
}

fn is_workload(object: &Object) -> bool {
    matches!(object.identity().kind.as_str(), "StatefulSet" | "DaemonSet")
}

impl Object {
    /// Whether the container has the same image in both objects.
    fn is_released_as(&self, other: &Object, container: &str) -> bool {
        image(self, container) == image(other, container)
    }
}

fn image<'o>(object: &'o Object, container: &str) -> Option<&'o str> {
    let containers = object.0["spec"]["template"]["spec"]["containers"].as_array()?;
    containers.iter().find(|each| each["name"] == container)?["image"].as_str()
}

fn program(federation: &Federation, live: &Object, container: &str) -> Program {
    image(live, container).map_or(Program::Unknown, |image| held_by::program(image, &federation.spec))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn federation(superlink: &str, supernode: &str) -> Federation {
        let spec = json!({
            "mode": "StatefulSet", "isolationMode": "subprocess", "superlink": {"image": superlink},
            "supernodes": {"image": supernode, "pools": [{"name": "a", "replicas": 2, "images": {}}]},
        });
        let resource = json!({"metadata": {"name": "f", "namespace": "n", "uid": "u"}, "spec": spec});
        Federation::read(&resource).expect("it can be read")
    }

    fn workload(name: &str, container: &str, image: &str, replicas: i64, rolled_out: bool) -> Object {
        let seen = if rolled_out { replicas } else { 0 };
        Object(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "generation": 2},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": container, "image": image}]}}},
            "status": {"observedGeneration": 2, "updatedReplicas": seen, "readyReplicas": seen,
                       "currentRevision": "1", "updateRevision": "2"},
        }))
    }

    /// Live images with their rollout state, desired images; returns the workloads that wait.
    fn held_back(live: [(&str, bool); 2], desired: [&str; 2]) -> Vec<String> {
        let objects = |images: [&str; 2], rolled_out: [bool; 2]| {
            [
                workload("f-superlink", "superlink", images[0], 1, rolled_out[0]),
                workload("f-supernode-a", "supernode", images[1], 2, rolled_out[1]),
            ]
        };
        let live = objects([live[0].0, live[1].0], [live[0].1, live[1].1]);
        let live = live.into_iter().map(|object| (object.identity(), object)).collect();
        let found = held(&federation(desired[0], desired[1]), &objects(desired, [false; 2]), &live);
        assert_eq!(found.back.is_empty(), found.waits.is_none());
        found.back.into_iter().map(|identity| identity.name).collect()
    }

    const OLD: [&str; 2] = ["flwr/superlink:1.25.0", "flwr/supernode:1.25.0"];
    const NEW: [&str; 2] = ["flwr/superlink:1.30.0", "flwr/supernode:1.30.0"];
    const HTTP: [&str; 2] = ["flwr/superlink:1.42.0", "flwr/supernode:1.42.0"];
    const TRELLIS: [&str; 2] = ["example.org/trellis-superlink:2", "example.org/trellis-supernode:2"];

    #[test]
    fn the_coordinator_goes_first_and_pools_follow_when_it_serves() {
        for new in [NEW, TRELLIS] {
            assert_eq!(held_back([(OLD[0], true), (OLD[1], true)], new), ["f-supernode-a"], "not at once");
            assert_eq!(held_back([(new[0], false), (OLD[1], true)], new), ["f-supernode-a"], "while it rolls");
            assert_eq!(held_back([(new[0], true), (OLD[1], true)], new), [""; 0], "now they go");
            assert_eq!(held_back([(new[0], true), (new[1], false)], new), [""; 0]);
        }
    }

    #[test]
    fn pools_go_first_where_only_that_works() {
        // From a Trellis SuperLink, which supports all releases, to an official one that speaks HTTP only.
        let desired = [HTTP[0], HTTP[1]];
        assert_eq!(held_back([(TRELLIS[0], true), (OLD[1], true)], desired), ["f-superlink"]);
        assert_eq!(held_back([(TRELLIS[0], true), (HTTP[1], false)], desired), ["f-superlink"], "while they roll");
        assert_eq!(held_back([(TRELLIS[0], true), (HTTP[1], true)], desired), [""; 0]);
    }

    #[test]
    fn where_no_order_helps_nobody_waits() {
        assert_eq!(held_back([(OLD[0], true), (OLD[1], true)], HTTP), [""; 0]);
        assert_eq!(held_back([(HTTP[0], false), (OLD[1], true)], HTTP), [""; 0]);
    }

    #[test]
    fn what_is_new_or_unchanged_waits_for_nobody() {
        assert_eq!(held_back([(NEW[0], false), (NEW[1], false)], NEW), [""; 0], "a federation that begins");
        assert_eq!(held_back([(OLD[0], true), (OLD[1], true)], OLD), [""; 0]);
        let desired = [workload("f-superlink", "superlink", NEW[0], 1, false)];
        assert_eq!(held(&federation(NEW[0], NEW[1]), &desired, &BTreeMap::new()), Held::default());
    }
}
