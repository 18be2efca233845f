//! Models and replies for tests, built from values or from a seed.

use std::sync::Arc;

use bytes::Bytes;
use trellis_core::id::NodeId;
use trellis_strategy::{
    AggregateError, Aggregated, InMemory, Layout, Model, Numbers, Options, Reply, Server, Slot, Strategy,
};
use trellis_wire::records::{Bf16, Dtype, F16};

/// An array with this name, type and values.
pub fn array(name: &str, dtype: Dtype, numbers: &[f64]) -> (Slot, Bytes) {
    let slot = Slot { name: name.to_owned(), dtype, shape: vec![numbers.len()] };
    (slot, numbers.iter().flat_map(|number| encode(dtype, *number)).collect())
}

pub fn model(arrays: impl IntoIterator<Item = (Slot, Bytes)>) -> Model {
    let (slots, arrays) = arrays.into_iter().unzip();
    Model { layout: Arc::new(Layout(slots)), arrays }
}

/// A model of one array.
pub fn of(dtype: Dtype, numbers: &[f64]) -> Model {
    model([array("w", dtype, numbers)])
}

pub fn numbers(model: &Model, array: usize) -> Vec<f64> {
    let dtype = model.layout.0[array].dtype;
    model.arrays[array].chunks_exact(dtype.bytes()).map(|bytes| decode(dtype, bytes)).collect()
}

/// Independent of the conversions under test.
fn encode(dtype: Dtype, number: f64) -> Vec<u8> {
    match dtype {
        Dtype::Bool => vec![u8::from(number != 0.0)],
        Dtype::I8 => (number as i8).to_le_bytes().to_vec(),
        Dtype::I16 => (number as i16).to_le_bytes().to_vec(),
        Dtype::I32 => (number as i32).to_le_bytes().to_vec(),
        Dtype::I64 => (number as i64).to_le_bytes().to_vec(),
        Dtype::U8 => (number as u8).to_le_bytes().to_vec(),
        Dtype::U16 => (number as u16).to_le_bytes().to_vec(),
        Dtype::U32 => (number as u32).to_le_bytes().to_vec(),
        Dtype::U64 => (number as u64).to_le_bytes().to_vec(),
        Dtype::F16 => F16::from_f32(number as f32).0.to_le_bytes().to_vec(),
        Dtype::Bf16 => Bf16::from_f32(number as f32).0.to_le_bytes().to_vec(),
        Dtype::F32 => (number as f32).to_le_bytes().to_vec(),
        Dtype::F64 => number.to_le_bytes().to_vec(),
    }
}

fn decode(dtype: Dtype, bytes: &[u8]) -> f64 {
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    let word = u64::from_le_bytes(padded);
    match dtype {
        Dtype::Bool | Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => word as f64,
        Dtype::I8 => f64::from(word as i8),
        Dtype::I16 => f64::from(word as i16),
        Dtype::I32 => f64::from(word as i32),
        Dtype::I64 => word as i64 as f64,
        Dtype::F16 => f64::from(F16(word as u16).to_f32()),
        Dtype::Bf16 => f64::from(Bf16(word as u16).to_f32()),
        Dtype::F32 => f64::from(f32::from_bits(word as u32)),
        Dtype::F64 => f64::from_bits(word),
    }
}

pub fn reply(node: u64, weight: f64) -> Reply {
    Reply { node: NodeId(node), weight, loss: None }
}

/// The first round of a strategy, with replies passed in the way that it requires.
pub fn round(strategy: &Strategy, model: &Model, replies: &[(Reply, Model)]) -> Result<Aggregated, AggregateError> {
    play(&Server::new(strategy.clone(), Options::default()), 1, model, replies)
}

pub fn play(
    server: &Server,
    number: u64,
    model: &Model,
    replies: &[(Reply, Model)],
) -> Result<Aggregated, AggregateError> {
    let replies: Vec<(Reply, InMemory)> =
        replies.iter().map(|(reply, model)| (*reply, InMemory(model.clone()))).collect();
    let mut round = server.begin(model, number);
    if server.strategy().folds() {
        for (reply, numbers) in &replies {
            round.fold(reply, numbers)?;
        }
        return round.finish(&[]);
    }
    let kept: Vec<(Reply, &dyn Numbers)> =
        replies.iter().map(|(reply, numbers)| (*reply, numbers as &dyn Numbers)).collect();
    round.finish(&kept)
}

/// Replies with one `float64` array and weight 1.
pub fn replies_of(rows: &[Vec<f64>]) -> Vec<(Reply, Model)> {
    rows.iter().zip(2..).map(|(row, node)| (reply(node, 1.0), of(Dtype::F64, row))).collect()
}

/// Random numbers from a seed (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Between -1 and 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A number that the type can represent: small, large, extreme, zero or non-finite.
    pub fn number(&mut self, dtype: Dtype) -> f64 {
        let (smallest, largest): (f64, f64) = match dtype {
            Dtype::Bool => (1.0, 1.0),
            Dtype::I8 => (1.0, 127.0),
            Dtype::U8 => (1.0, 255.0),
            Dtype::I16 => (1.0, 32767.0),
            Dtype::U16 => (1.0, 65535.0),
            Dtype::I32 => (1.0, f64::from(i32::MAX)),
            Dtype::U32 => (1.0, f64::from(u32::MAX)),
            Dtype::I64 | Dtype::U64 => (1.0, 9e15),
            Dtype::F16 => (6e-8, 65504.0),
            Dtype::Bf16 => (1e-40, 3.3e38),
            Dtype::F32 => (1e-45, f64::from(f32::MAX)),
            Dtype::F64 => (5e-324, 1e200),
        };
        let sign = if dtype.name().starts_with('u') || dtype == Dtype::Bool { 1.0 } else { self.pick(&[1.0, -1.0]) };
        sign * match self.below(8) {
            0 => 0.0,
            1 => smallest,
            2 => largest,
            3 => self.unit().abs() * largest,
            _ => self.unit().abs() * largest.min(100.0),
        }
    }

    /// Any layout: without arrays, with empty arrays, scalars, several dimensions.
    pub fn layout(&mut self, longest: usize) -> Layout {
        let slot = |(name, dice): (usize, &mut Self)| {
            let shape = match dice.below(6) {
                0 => vec![],
                1 => vec![dice.below(3), dice.below(4), dice.below(5)],
                2 => vec![0],
                _ => vec![dice.below(longest) + 1],
            };
            Slot { name: format!("layer.{name}"), dtype: dice.pick(Dtype::ALL), shape }
        };
        let arrays = self.below(5);
        Layout((0..arrays).map(|name| slot((name, self))).collect())
    }

    pub fn model(&mut self, layout: &Arc<Layout>) -> Model {
        let array = |(slot, dice): (&Slot, &mut Self)| {
            (0..slot.elements()).flat_map(|_| encode(slot.dtype, dice.number(slot.dtype))).collect()
        };
        let arrays = layout.0.iter().map(|slot| array((slot, self))).collect();
        Model { layout: Arc::clone(layout), arrays }
    }

    /// The same model with a different order of arrays.
    pub fn shuffled(&mut self, model: &Model) -> Model {
        let mut arrays: Vec<_> = model.layout.0.iter().cloned().zip(model.arrays.iter().cloned()).collect();
        for at in (1..arrays.len()).rev() {
            arrays.swap(at, self.below(at + 1));
        }
        self::model(arrays)
    }
}
