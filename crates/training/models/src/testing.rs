//! Fixtures for the tests of this crate: checkpoints, and a disk that fails at a chosen step.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use trellis_strategy::{Layout, Model, Slot, State};
use trellis_wire::records::Dtype;

use crate::manifest::{App, Manifest, Measured, Metrics};
use crate::store::Checkpoint;

/// Fails after some steps. The default never fails.
#[derive(Debug)]
pub struct Trap {
    steps_left: AtomicI64,
    failure: Failure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// This step and all later ones fail.
    Killed,
    /// This step fails; later ones succeed.
    DiskFull,
}

impl Default for Trap {
    fn default() -> Trap {
        Trap::after(i64::MAX, Failure::Killed)
    }
}

impl Trap {
    pub fn after(steps: i64, failure: Failure) -> Trap {
        Trap { steps_left: steps.into(), failure }
    }

    /// Whether the failure has happened.
    pub fn has_failed(&self) -> bool {
        self.steps_left.load(Ordering::Relaxed) < 0
    }

    pub fn step(&self) -> io::Result<()> {
        let left = self.steps_left.fetch_sub(1, Ordering::Relaxed);
        match (left, self.failure) {
            (1.., _) => Ok(()),
            (_, Failure::Killed) => Err(io::Error::other("killed by the test")),
            (0, Failure::DiskFull) => Err(io::Error::from(io::ErrorKind::StorageFull)),
            (_, Failure::DiskFull) => Ok(()),
        }
    }
}

/// An array with bytes that differ from their neighbours.
pub fn array(name: &str, dtype: Dtype, shape: &[usize]) -> (Slot, Bytes) {
    let slot = Slot { name: name.to_owned(), dtype, shape: shape.to_vec() };
    let seed = name.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let byte = |index: usize| match dtype {
        Dtype::Bool => index.is_multiple_of(3).into(),
        _ => (seed.wrapping_add(index as u32).wrapping_mul(2_654_435_761) >> 24) as u8,
    };
    let data = (0..slot.bytes()).map(byte).collect();
    (slot, data)
}

pub fn model(arrays: impl IntoIterator<Item = (Slot, Bytes)>) -> Model {
    let (slots, arrays) = arrays.into_iter().unzip();
    Model { layout: Arc::new(Layout(slots)), arrays }
}

/// Two arrays of each type, unsorted, with shapes that include scalars and empty arrays.
pub fn every_dtype() -> Model {
    let shapes: [&[usize]; 5] = [&[3, 2], &[], &[0], &[5], &[2, 0, 3]];
    let reversed = Dtype::ALL.iter().rev().enumerate();
    let arrays = reversed.flat_map(|(index, dtype)| {
        let first = array(&format!("z{index}.{}", dtype.name()), *dtype, shapes[index % shapes.len()]);
        let second = array(&format!("a{index}/weight é"), *dtype, &[1, index + 1]);
        [first, second]
    });
    model(arrays)
}

pub fn checkpoint(run: &str, round: u64) -> Checkpoint {
    let weights = model([
        array(&format!("layer.{round}.weight"), Dtype::F32, &[40, 30]),
        array("steps", Dtype::I64, &[]),
        array("layer.bias", Dtype::F32, &[30]),
    ]);
    let state = State {
        models: [("momentum".to_owned(), weights.clone()), ("a/b%".to_owned(), Model::default())].into(),
        numbers: [("clipping-norm".to_owned(), 0.1 + 0.2), ("steps".to_owned(), f64::INFINITY)].into(),
    };
    let metrics = Measured { round, train: Metrics::from([("loss".to_owned(), 0.25)]), evaluate: Metrics::new() };
    let manifest = Manifest {
        run_id: run.to_owned(),
        round,
        rounds_planned: 20,
        strategy: "FedAdam".to_owned(),
        seed: u64::MAX,
        run_config: [("num-server-rounds".to_owned(), 20.into())].into(),
        history: vec![metrics.clone()],
        metrics,
        app: App { fab_id: "me/app".to_owned(), fab_version: "1.0.0".to_owned(), fab_hash: "ab".to_owned() },
        saved_at: 1_763_197_200.25,
        ..Manifest::default()
    };
    Checkpoint { manifest, model: weights, state }
}
