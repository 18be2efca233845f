//! Strategies that look at each coordinate for itself: the numbers of all replies are sorted, and some are picked.
//!
//! What is picked depends on the numbers alone, not on who sent them: equal numbers cannot be told apart.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::element::narrow;
use crate::frame::Frame;
use crate::mean::NOTHING;
use crate::model::Model;
use crate::network::Network;
use crate::source::{Source, Unread};
use crate::tile::Tile;
use crate::work::{self, SPAN};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pick {
    /// The middle one, or the mean of the middle two.
    Median,
    /// The mean without this share of the numbers at each end, rounded down to whole numbers.
    Trimmed { share: f64 },
    /// The mean of so many that are nearest to the median; of two equally near ones, the lower.
    NearMedian { wanted: usize },
}

/// Numbers that are sorted at once: half of the second cache of a small processor.
const STRIP_NUMBERS: usize = 16_384;
/// Columns that fill vectors.
const MIN_COLUMNS: usize = 8;
const MAX_COLUMNS: usize = 512;

pub(crate) fn pick(sources: &[Source], frame: &Frame, pick: Pick) -> Result<Model, Unread> {
    let spans = work::spans(&frame.input);
    let mut arrays = work::blank(&frame.output);
    let elements: usize = spans.iter().map(|span| span.len).sum();
    let network = Network::new(sources.len());
    let jobs = spans.iter().zip(work::cut(&frame.output, &mut arrays, |slot| slot.dtype.bytes()));
    let mut desks = work::desks(elements * sources.len());
    work::share(&mut desks, jobs, |desk: &mut Desk, (span, out)| {
        desk.results.resize(SPAN, 0.0);
        for part in span.parts(Tile::len_for(sources.len())) {
            desk.tile.read(sources, &part, frame.input.0[span.array].dtype)?;
            let results = &mut desk.results[part.start - span.start..][..part.len];
            pick_part(&desk.tile, &network, pick, &mut desk.strip, results, sources.len());
        }
        narrow(frame.output.0[span.array].dtype, &desk.results[..span.len], out);
        Ok(())
    })?;
    Ok(Model { layout: Arc::clone(&frame.output), arrays: arrays.into_iter().map(Bytes::from).collect() })
}

/// What a thread works with.
#[derive(Default)]
struct Desk {
    tile: Tile,
    strip: Vec<f64>,
    results: Vec<f64>,
}

/// Strip by strip of the columns of a tile.
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

    /// From the lowest number up.
    fn mean(&self, rows: Range<usize>, results: &mut [f64]) {
        results.fill(NOTHING);
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
            // The farthest is always at an end.
            while end - first > wanted {
                let (below, above) = (*result - number(first), number(end - 1) - *result);
                if below > above { first += 1 } else { end -= 1 }
            }
            *result = (first..end).fold(NOTHING, |sum, row| sum + number(row)) / (end - first) as f64;
        }
    }
}
