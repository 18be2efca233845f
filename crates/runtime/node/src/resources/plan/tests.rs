use super::*;

fn gpus(count: u32) -> Vec<Gpu> {
    let uuid = |index| Some(format!("GPU-{index}aaa-bbb"));
    let gpu = |index| Gpu { index, uuid: uuid(index), name: "T4".into(), memory_bytes: None, driver_version: None };
    (0..count).map(gpu).collect()
}

fn these(names: &str) -> Gpus {
    Gpus::These(names.split(',').map(str::to_owned).collect())
}

/// `value status warning` of a plan, or the error.
fn described(asked: &Gpus, missing: WhenMissing, count: u32, node: Option<&str>) -> String {
    let plan = match decide(asked, missing, &gpus(count), node) {
        Ok(plan) => plan,
        Err(error) => return format!("refused: {}", error.reason),
    };
    let list = |gpus: &[Gpu]| gpus.iter().map(|gpu| gpu.index.to_string()).collect::<Vec<_>>().join("+");
    let status = match &plan.status {
        GpuStatus::Unset => "unset".to_owned(),
        GpuStatus::Cpu => "cpu".to_owned(),
        GpuStatus::Gpu { gpus } => format!("gpu {}", list(gpus)),
        GpuStatus::Degraded { gpus, .. } => format!("degraded {}", list(gpus)),
    };
    let value = plan.visible().unwrap_or_else(|| "inherited".into());
    [vec![format!("{value} | {status}")], plan.warnings].concat().join(" | ")
}

#[test]
fn decisions() {
    let none = "a GPU is requested, but this machine has no working GPU";
    let hidden = "a GPU is requested, but CUDA_VISIBLE_DEVICES of the node hides all of them";
    let on_cpu = |reason: &str| format!("-1 | degraded  | {reason}: apps use the CPU");
    let cases: Vec<(Gpus, u32, Option<&str>, String)> = vec![
        (Gpus::Unset, 2, None, "inherited | unset".into()),
        (Gpus::Unset, 0, Some("7"), "inherited | unset".into()),
        (Gpus::None, 2, None, "-1 | cpu".into()),
        (Gpus::Count(0), 2, None, "-1 | cpu".into()),
        (Gpus::All, 2, None, "0,1 | gpu 0+1".into()),
        (Gpus::All, 3, Some("2,0"), "2,0 | gpu 2+0".into()),
        (Gpus::All, 3, Some("1,9,2"), "1 | gpu 1".into()),
        (Gpus::All, 3, Some("GPU-2a, 0"), "2,0 | gpu 2+0".into()),
        (Gpus::All, 0, None, on_cpu(none)),
        (Gpus::All, 2, Some(""), on_cpu(hidden)),
        (Gpus::All, 2, Some("-1"), on_cpu(hidden)),
        (Gpus::Count(1), 2, None, "0 | gpu 0".into()),
        (Gpus::Count(2), 4, Some("3,2,1"), "3,2 | gpu 3+2".into()),
        (
            Gpus::Count(3),
            2,
            None,
            "0,1 | degraded 0+1 | 3 GPUs are requested, but the node has 2: apps use the available ones".into(),
        ),
        (Gpus::Count(1), 0, None, on_cpu(none)),
        (these("1"), 2, None, "1 | gpu 1".into()),
        (these("1,0,1"), 2, None, "1,0 | gpu 1+0".into()),
        (these("GPU-1aaa,0"), 2, None, "1,0 | gpu 1+0".into()),
        (these("GPU-"), 2, None, on_cpu("the node has no GPU GPU-")),
        (these("0,7"), 2, None, "0 | degraded 0 | the node has no GPU 7: apps use the available ones".into()),
        (these("x"), 2, None, on_cpu("the node has no GPU x")),
        (these("0"), 2, Some("1"), on_cpu("the node has no GPU 0 (hidden from the node)")),
        (these("MIG-abc"), 1, None, "MIG-abc | gpu ".into()),
        (these("MIG-abc,1"), 2, None, "MIG-abc,GPU-1aaa-bbb | gpu 1".into()),
        (these("MIG-abc"), 0, None, on_cpu(none)),
    ];
    for (asked, count, node, want) in cases {
        let warned = described(&asked, WhenMissing::Warn, count, node);
        assert_eq!(warned, want, "{asked:?} of {count}, node {node:?}");
        // `Refuse` fails exactly if `Warn` degrades.
        let refused = described(&asked, WhenMissing::Refuse, count, node);
        match want.contains("degraded") {
            false => assert_eq!(refused, want),
            true => assert!(refused.starts_with("refused: ") && want.contains(&refused[9..]), "{refused}"),
        }
    }
}

#[test]
fn gpus_are_distributed_round_robin() {
    let plan = |count| decide(&Gpus::All, WhenMissing::Warn, &gpus(count), None).unwrap();
    let shares = |count, slots| (0..slots).map(|slot| plan(count).assign(slot, slots).unwrap()).collect::<Vec<_>>();
    assert_eq!(shares(2, 1), ["0,1"]);
    assert_eq!(shares(2, 2), ["0", "1"]);
    assert_eq!(shares(2, 5), ["0", "1", "0", "1", "0"]);
    assert_eq!(shares(5, 2), ["0,2,4", "1,3"]);
    assert_eq!(shares(0, 2), ["-1", "-1"]);
    let inherited = decide(&Gpus::Unset, WhenMissing::Warn, &gpus(2), None).unwrap();
    assert_eq!(inherited.assign(1, 2), None);
}

#[test]
fn oversubscription_is_reported() {
    let plan = |count| decide(&Gpus::All, WhenMissing::Warn, &gpus(count), None).unwrap();
    assert_eq!(plan(1).oversubscription(Some(0.5), 2), [""; 0]);
    assert_eq!(plan(1).oversubscription(Some(0.9), 1), [""; 0]);
    assert_eq!(plan(1).oversubscription(None, 9), [""; 0]);
    assert_eq!(plan(0).oversubscription(Some(0.9), 9), [""; 0]);
    assert_eq!(plan(2).oversubscription(Some(0.6), 2), [""; 0]);
    assert_eq!(
        plan(2).oversubscription(Some(0.6), 3),
        ["2 apps share a GPU, and each may use 0.6 of its memory: together more than it has"]
    );
}
