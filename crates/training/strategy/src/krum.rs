//! Which replies are near the others: Krum and MultiKrum (Blanchard et al., "Machine Learning with Adversaries").
//!
//! Distances are sums of squared differences. Flower computes them from norms and products, which cancels almost all digits
//! if replies are nearly equal. The order of summation is fixed.

use crate::distance;
use crate::model::Layout;
use crate::source::{ReadError, Source};
use crate::tile::Tile;
use crate::work::{self, Span};

/// Numbers of all replies that are compared at once: half of a small L2 cache.
const STRIP_NUMBERS: usize = 32_768;
const MIN_STRIP: usize = 64;
const MAX_STRIP: usize = 4096;

/// Squared distances between replies.
pub(crate) struct Distances {
    replies: usize,
    /// Row-major; the lower half and the diagonal are 0.
    upper: Vec<f64>,
}

impl Distances {
    fn new(replies: usize) -> Self {
        Self { replies, upper: vec![0.0; replies * replies] }
    }

    fn between(&self, a: usize, b: usize) -> f64 {
        self.upper[a.min(b) * self.replies + a.max(b)]
    }

    fn add(&mut self, other: &Self) {
        for (sum, number) in self.upper.iter_mut().zip(&other.upper) {
            *sum += number;
        }
    }

    fn add_tile(&mut self, rows: &[&[f64]], len: usize) {
        let strip = (STRIP_NUMBERS / self.replies).clamp(MIN_STRIP, MAX_STRIP);
        for start in (0..len).step_by(strip) {
            let columns = start..(start + strip).min(len);
            for (a, row) in rows.iter().enumerate() {
                let row = &row[columns.clone()];
                for (b, other) in rows.iter().enumerate().skip(a + 1) {
                    self.upper[a * self.replies + b] += distance::squared(row, &other[columns.clone()]);
                }
            }
        }
    }
}

/// Includes all arrays, integers too.
pub(crate) fn distances(sources: &[Source], layout: &Layout) -> Result<Distances, ReadError> {
    let spans = work::spans(layout);
    let elements: usize = spans.iter().map(|span| span.len).sum();
    let mut tiles: Vec<Tile> = work::scratch_buffers(elements * sources.len());
    let mut total = Distances::new(sources.len());
    // Each span has its own sums, added in the order of the spans, so threads do not affect the result.
    for group in spans.chunks(tiles.len()) {
        let mut parts: Vec<Distances> = group.iter().map(|_| Distances::new(sources.len())).collect();
        work::share(&mut tiles, group.iter().zip(&mut parts), |tile, (span, part)| {
            add_span(part, sources, span, layout, tile)
        })?;
        parts.iter().for_each(|part| total.add(part));
    }
    Ok(total)
}

fn add_span(
    distances: &mut Distances,
    sources: &[Source],
    span: &Span,
    layout: &Layout,
    tile: &mut Tile,
) -> Result<(), ReadError> {
    for part in span.parts(Tile::len_for(sources.len())) {
        tile.read(sources, &part, layout.0[span.array].dtype)?;
        distances.add_tile(&tile.rows().collect::<Vec<_>>(), part.len);
    }
    Ok(())
}

/// The indices of the `wanted` replies with the smallest sum of distances to their neighbours, in ascending order. As neighbours
/// count all but the farthest `num_malicious` + 2 replies. Of equal sums the first reply wins.
pub(crate) fn nearest(distances: &Distances, num_malicious: usize, wanted: usize) -> Vec<usize> {
    let replies = distances.replies;
    let others = replies.saturating_sub(num_malicious.saturating_add(2)).max(1);
    let score = |reply: usize| {
        let mut all: Vec<f64> =
            (0..replies).filter(|other| *other != reply).map(|other| distances.between(reply, other)).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.iter().take(others).sum::<f64>()
    };
    let mut ranked: Vec<(f64, usize)> = (0..replies).map(|reply| (score(reply), reply)).collect();
    ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut chosen: Vec<usize> = ranked.into_iter().take(wanted).map(|(_, reply)| reply).collect();
    chosen.sort_unstable();
    chosen
}
