//! Measures the cost of warm apps, without limits:
//! `cargo test -p trellis-node --release --test warm -- --ignored --nocapture speed`.

use std::time::{Duration, Instant};

use trellis_node::config::{Spare, WarmSettings};

use crate::instruction::Instruction;
use crate::place::{Place, behaving, lasting, releases, replied};

const EMPTY: usize = 200;
const MODELS: usize = 5;
const MODEL_NUMBERS: usize = 100_000_000 / 8;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn speed() {
    for release in releases() {
        let place = Place::new(&release.python, WarmSettings { spare: Spare::EveryRun, ..lasting() });
        let first = timed(&place, Instruction::new(1, "count")).await;
        let mut empty = Vec::new();
        for _ in 0..EMPTY {
            empty.push(timed(&place, Instruction::new(1, "count")).await);
        }
        empty.sort();
        // The spare worker is ready by then.
        let spare = timed(&place, Instruction::new(2, "count")).await;
        println!(
            "flwr {}: first instruction {first:?}, with a spare {spare:?}; empty ones median {:?} p99 {:?}",
            release.version,
            empty[EMPTY / 2],
            empty[EMPTY * 99 / 100],
        );

        let numbers: Vec<f64> = (0..MODEL_NUMBERS).map(|number| number as f64).collect();
        let worker = place.pid_of(1).await;
        for what in ["measures", "double"] {
            let (mut times, mut node_cpu, before) = (Vec::new(), Duration::ZERO, cpu_time(worker));
            for _ in 0..MODELS {
                let job = Instruction::new(1, what).arrays(vec![numbers.clone()]).job(&place.objects, behaving());
                let (start, own) = (Instant::now(), cpu_time(std::process::id()));
                replied(place.apps.execute(job).await);
                times.push(start.elapsed());
                node_cpu += cpu_time(std::process::id()) - own;
            }
            let (worker_cpu, count) = (cpu_time(worker) - before, MODELS as u32);
            let resident = place.apps.status().iter().find(|it| it.pid == worker).and_then(|it| it.rss_bytes);
            println!(
                "  model of 100 MB, {what}: {times:?}; CPU each: node {:?}, worker {:?}; resident after that {:?} MiB",
                node_cpu / count,
                worker_cpu / count,
                resident.map(|bytes| bytes >> 20),
            );
        }
    }
}

async fn timed(place: &Place, instruction: Instruction) -> Duration {
    let job = instruction.job(&place.objects, behaving());
    let start = Instant::now();
    replied(place.apps.execute(job).await);
    start.elapsed()
}

/// The CPU time of a process, which is independent of other load on the machine.
fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let numbers: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = numbers[11..13].iter().map(|number| number.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}
