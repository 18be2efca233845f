//! Strategies that aggregate each coordinate separately: the values of all replies are sorted, and some are selected.
//!
//! The result depends only on the values, not on their senders: equal values are interchangeable.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::element::narrow;
use crate::frame::Frame;
use crate::mean::NEGATIVE_ZERO;
use crate::model::Model;
use crate::network::Network;
use crate::source::{ReadError, Source};
use crate::tile::Tile;
use crate::work::{self, SPAN};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pick {
    /// The middle value, or the mean of the two middle ones.
    Median,
    /// The mean without this fraction of the values at each end, rounded down to whole values.
    Trimmed { share: f64 },
    /// The mean of this number of values nearest to the median; of two equally near ones, the lower is preferred.
    NearMedian { wanted: usize },
}

/// Values that are sorted at once: half of a small L2 cache.
const STRIP_NUMBERS: usize = 16_384;
/// Enough columns to fill vector registers.
const MIN_COLUMNS: usize = 8;
const MAX_COLUMNS: usize = 512;

pub(crate) fn pick(sources: &[Source], frame: &Frame, pick: Pick) -> Result<Model, ReadError> {
    let spans = work::spans(&frame.input);
    let mut arrays = work::blank(&frame.output);
    let elements: usize = spans.iter().map(|span| span.len).sum();
    let network = Network::new(sources.len());
    let jobs = spans.iter().zip(work::cut(&frame.output, &mut arrays, |slot| slot.dtype.bytes()));
    let mut scratch_buffers = work::scratch_buffers(elements * sources.len());
    work::share(&mut scratch_buffers, jobs, |scratch: &mut Scratch, (span, out)| {
        scratch.results.resize(SPAN, 0.0);
        for part in span.parts(Tile::len_for(sources.len())) {
            scratch.tile.read(sources, &part, frame.input.0[span.array].dtype)?;
            let results = &mut scratch.results[part.start - span.start..][..part.len];
            pick_part(&scratch.tile, &network, pick, &mut scratch.strip, results, sources.len());
        }
        narrow(frame.output.0[span.array].dtype, &scratch.results[..span.len], out);
        Ok(())
    })?;
    Ok(Model { layout: Arc::clone(&frame.output), arrays: arrays.into_iter().map(Bytes::from).collect() })
}

/// The buffers of a thread.
#[derive(Default)]
struct Scratch {
    tile: Tile,
    strip: Vec<f64>,
    results: Vec<f64>,
}

/// Processes the columns of a tile strip by strip.
fn pick_part(tile: &Tile, network: &Network, pick: Pick, strip: &mut Vec<f64>, results: &mut [f64], rows: usize) {
    let columns = (STRIP_NUMBERS / rows).clamp(MIN_COLUMNS, MAX_COLUMNS);
    for (number, results) in results.chunks_mut(columns).enumerate() {
        let range = number * columns..number * columns + results.len();
        strip.clear();
        for row in tile.rows() {
            strip.extend_from_slice(&row[range.clone()]);
        }
        network.sort(strip, results.len());
        let sorted = Sorted { numbers: strip, rows, columns: results.len() };
        match pick {
            Pick::Median => sorted.median(results),
            Pick::Trimmed { share } => {
                let cut = (share * rows as f64) as usize;
                sorted.mean(cut..rows - cut, results);
            }
            Pick::NearMedian { wanted } => sorted.mean_near_median(wanted, results),
        }
    }
}

struct Sorted<'a> {
    numbers: &'a [f64],
    rows: usize,
    columns: usize,
}

impl Sorted<'_> {
    fn row(&self, row: usize) -> &[f64] {
        &self.numbers[row * self.columns..][..self.columns]
    }

    fn median(&self, results: &mut [f64]) {
        let [low, high] = [(self.rows - 1) / 2, self.rows / 2].map(|row| self.row(row));
        for ((result, low), high) in results.iter_mut().zip(low).zip(high) {
            *result = low.midpoint(*high);
        }
    }

    /// The mean of these rows, summed from the lowest.
    fn mean(&self, rows: Range<usize>, results: &mut [f64]) {
        results.fill(NEGATIVE_ZERO);
        let count = rows.len() as f64;
        for row in rows {
            for (result, number) in results.iter_mut().zip(self.row(row)) {
                *result += number;
            }
        }
        for result in results {
            *result /= count;
        }
    }

    fn mean_near_median(&self, wanted: usize, results: &mut [f64]) {
        self.median(results);
        for (column, result) in results.iter_mut().enumerate() {
            let number = |row: usize| self.numbers[row * self.columns + column];
            let (mut first, mut end) = (0, self.rows);
            // The farthest value is always the first or the last.
            while end - first > wanted {
                let (below, above) = (*result - number(first), number(end - 1) - *result);
                if below > above { first += 1 } else { end -= 1 }
            }
            *result = (first..end).fold(NEGATIVE_ZERO, |sum, row| sum + number(row)) / (end - first) as f64;
        }
    }
}
