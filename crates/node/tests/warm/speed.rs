//! What warm apps cost. Measures, and judges nothing: `cargo test -p trellis-node --release --test warm -- --ignored
//! --nocapture speed`.

use std::time::{Duration, Instant};

use trellis_node::config::WarmSettings;

use crate::instruction::Instruction;
use crate::place::{Place, behaving, lasting, releases, replied};

const EMPTY: u32 = 200;
const MODEL_NUMBERS: usize = 100_000_000 / 8;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn speed() {
    for release in releases() {
        let place = Place::new(&release.python, WarmSettings { spare: true, ..lasting() });
        let first = timed(&place, Instruction::new(1, "count")).await;
        let mut empty: Vec<Duration> = Vec::new();
        for _ in 0..EMPTY {
            empty.push(timed(&place, Instruction::new(1, "count")).await);
        }
        empty.sort();
        // By then it is ready.
        let spare = timed(&place, Instruction::new(2, "count")).await;
        let numbers: Vec<f64> = (0..MODEL_NUMBERS).map(|number| number as f64).collect();
        let mut model = Vec::new();
        for _ in 0..5 {
            model.push(timed(&place, Instruction::new(1, "double").arrays(vec![numbers.clone()])).await);
        }
        let status = place.apps.status();
        let resident = status.iter().find(|it| it.run.is_some_and(|run| run.0 == 1)).unwrap().rss_bytes.unwrap();
        println!(
            "flwr {}: first instruction {first:?} (with a spare {spare:?}), empty ones median {:?} p99 {:?}; \
             model of 100 MB {model:?}, {} MiB resident after that",
            release.version,
            empty[EMPTY as usize / 2],
            empty[EMPTY as usize * 99 / 100],
            resident >> 20
        );
    }
}

async fn timed(place: &Place, instruction: Instruction) -> Duration {
    let job = instruction.job(&place.objects, behaving());
    let start = Instant::now();
    replied(place.apps.execute(job).await);
    start.elapsed()
}
