//! The measured cases.

use std::fs;
use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use trellis_core::id::NodeId;
use trellis_strategy::mean::weighted_mean;
use trellis_strategy::{InMemory, Layout, Model, Numbers, Options, Reply, Server, Slot, Strategy};
use trellis_wire::records::Dtype;

const READ_BYTES: usize = 1 << 30;
/// The limit of memory for replies. Those of 1,000 clients share it, read far enough apart that no cache still holds it.
const POOL_BYTES: usize = 10 << 30;
/// The distance that replies are apart, beyond what caches hold of all replies.
const STRIDE_MARGIN_BYTES: usize = 512 << 10;
const PATTERN_BYTES: usize = 1 << 20;
const REPEATS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    Read { threads: usize },
    Mean { clients: usize },
    Fold { clients: usize },
}

#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub seconds: f64,
    pub peak_bytes: usize,
}

impl Case {
    pub fn parse(kind: &str, count: usize) -> Result<Self, String> {
        match kind {
            "read" => Ok(Self::Read { threads: count }),
            "mean" => Ok(Self::Mean { clients: count }),
            "fold" => Ok(Self::Fold { clients: count }),
            _ => Err(format!("there is no case '{kind}'")),
        }
    }

    pub fn words(self) -> (&'static str, usize) {
        match self {
            Self::Read { threads } => ("read", threads),
            Self::Mean { clients } => ("mean", clients),
            Self::Fold { clients } => ("fold", clients),
        }
    }

    /// Bytes of input that are read.
    pub fn bytes(self, elements: usize) -> usize {
        match self {
            Self::Read { .. } => READ_BYTES,
            Self::Mean { clients } | Self::Fold { clients } => clients * elements * 4,
        }
    }

    pub fn measure(self, elements: usize) -> Result<Measured, String> {
        let seconds = match self {
            Self::Read { threads } => read(threads),
            Self::Mean { clients } => mean(clients, elements),
            Self::Fold { clients } => fold(clients, elements),
        };
        Ok(Measured { seconds, peak_bytes: peak_bytes()? })
    }
}

fn best(mut work: impl FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..REPEATS).map(once).fold(f64::INFINITY, f64::min)
}

/// Varying numbers between 1 and 2.
fn numbers(bytes: usize) -> Vec<u8> {
    let number = |at: usize| (0x3f80_0000 | (at as u32).wrapping_mul(0x9e37_79b1) >> 9).to_le_bytes();
    (0..bytes / 4).flat_map(number).collect()
}

fn read(threads: usize) -> f64 {
    let pool = numbers(READ_BYTES);
    let sum = |part: &[u8]| {
        let words = part.as_chunks::<8>().0.iter();
        black_box(words.fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word))));
    };
    best(|| {
        thread::scope(|scope| {
            for part in pool.chunks(pool.len().div_ceil(threads)) {
                scope.spawn(move || sum(part));
            }
        });
    })
}

fn layout(elements: usize) -> Arc<Layout> {
    Arc::new(Layout(vec![Slot { name: "weights".to_owned(), dtype: Dtype::F32, shape: vec![elements] }]))
}

/// The distance of replies: whole pages, such that the halves of two threads do not access the same memory at the same time.
fn apart(clients: usize, model_bytes: usize) -> usize {
    let whole = model_bytes.next_multiple_of(4096);
    if clients * whole <= POOL_BYTES {
        return whole;
    }
    let mut apart = (POOL_BYTES - whole) / clients / 4096 * 4096;
    let meets = |apart: usize| {
        let rest = (model_bytes / 2) % apart;
        rest.min(apart - rest) < STRIDE_MARGIN_BYTES
    };
    while meets(apart) {
        apart -= 4096;
    }
    apart
}

fn mean(clients: usize, elements: usize) -> f64 {
    let layout = layout(elements);
    let apart = apart(clients, elements * 4);
    let pool = Bytes::from(numbers((clients - 1) * apart + elements * 4));
    let window = |client: usize| pool.slice(client * apart..client * apart + elements * 4);
    let reply = |client| InMemory(Model { layout: Arc::clone(&layout), arrays: vec![window(client)] });
    let replies: Vec<InMemory> = (0..clients).map(reply).collect();
    let weighted: Vec<(f64, &dyn Numbers)> =
        replies.iter().enumerate().map(|(client, reply)| (100.0 + client as f64, reply as &dyn Numbers)).collect();
    best(|| {
        black_box(weighted_mean(&weighted, &layout).expect("the replies fit"));
    })
}

/// A reply without memory of its own: all replies share a pattern.
struct Patterned {
    layout: Arc<Layout>,
    pattern: Bytes,
    offset: usize,
}

impl Numbers for Patterned {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn part<'a>(&'a self, _: usize, bytes: Range<usize>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let start = (self.offset + bytes.start) % PATTERN_BYTES;
        if start + bytes.len() <= PATTERN_BYTES {
            return Ok(&self.pattern[start..start + bytes.len()]);
        }
        buffer.clear();
        while buffer.len() < bytes.len() {
            let at = (start + buffer.len()) % PATTERN_BYTES;
            let end = PATTERN_BYTES.min(at + bytes.len() - buffer.len());
            buffer.extend_from_slice(&self.pattern[at..end]);
        }
        Ok(buffer)
    }
}

fn fold(clients: usize, elements: usize) -> f64 {
    let layout = layout(elements);
    let pattern = Bytes::from(numbers(PATTERN_BYTES));
    let model = Model { layout: Arc::clone(&layout), arrays: vec![Bytes::from(vec![0; elements * 4])] };
    let server = Server::new(Strategy::FedAvg, Options::default());
    best(|| {
        let mut round = server.begin(&model, 1);
        for client in 0..clients {
            let offset = client * 4096 % PATTERN_BYTES;
            let numbers = Patterned { layout: Arc::clone(&layout), pattern: pattern.clone(), offset };
            let reply = Reply { node: NodeId(client as u64 + 2), weight: 100.0 + client as f64, loss: None };
            round.fold(&reply, &numbers).expect("the reply fits");
        }
        black_box(round.finish(&[]).expect("there are replies"));
    })
}

/// The peak resident memory of this process.
fn peak_bytes() -> Result<usize, String> {
    let status = fs::read_to_string("/proc/self/status").map_err(|error| format!("/proc/self/status: {error}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|number| number.parse::<usize>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| "/proc/self/status has no VmHWM".to_owned())
}
