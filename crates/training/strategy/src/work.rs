//! Divides a model into spans and distributes them among threads. One thread processes a span. The spans, and so the results,
//! do not depend on the number of threads.

use std::ops::Range;
use std::sync::Mutex;
use std::thread;

use crate::model::{Layout, Slot};

/// Elements of a span. Their `f64` sums fit into the L2 cache of a core, and the reads from each reply are long enough for
/// prefetching. The fastest of sizes from 1,024 to 65,536.
pub(crate) const SPAN: usize = 65_536;
/// Numbers of all replies that justify another thread.
const PER_THREAD: usize = 1 << 20;
/// With more threads, memory bandwidth is the limit.
const MAX_THREADS: usize = 8;

/// A range of elements of one array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub array: usize,
    pub start: usize,
    pub len: usize,
}

impl Span {
    /// Its byte range, if elements have this size.
    pub fn bytes(&self, element_bytes: usize) -> Range<usize> {
        self.start * element_bytes..(self.start + self.len) * element_bytes
    }

    /// Splits the span into parts of at most `len` elements.
    pub fn parts(self, len: usize) -> impl Iterator<Item = Span> {
        (0..self.len).step_by(len).map(move |at| Span { start: self.start + at, len: len.min(self.len - at), ..self })
    }
}

/// All elements, in the order of the arrays; empty arrays have no span.
pub(crate) fn spans(layout: &Layout) -> Vec<Span> {
    let whole = layout.0.iter().enumerate().map(|(array, slot)| Span { array, start: 0, len: slot.elements() });
    whole.flat_map(|array| array.parts(SPAN)).collect()
}

/// Zeroed arrays.
pub(crate) fn blank(layout: &Layout) -> Vec<Vec<u8>> {
    layout.0.iter().map(|slot| vec![0; slot.bytes()]).collect()
}

/// The byte ranges of [`spans`], in the same order, of arrays with this element size.
pub(crate) fn cut<'a>(
    layout: &Layout,
    arrays: &'a mut [Vec<u8>],
    element_bytes: impl Fn(&Slot) -> usize,
) -> Vec<&'a mut [u8]> {
    let mut cut = Vec::new();
    for (slot, bytes) in layout.0.iter().zip(arrays) {
        let mut left = &mut bytes[..];
        for span in (Span { array: 0, start: 0, len: slot.elements() }).parts(SPAN) {
            let (head, tail) = left.split_at_mut(span.len * element_bytes(slot));
            cut.push(head);
            left = tail;
        }
    }
    cut
}

/// The buffers of threads, one for each thread that this amount of numbers justifies. Callers reuse them.
pub(crate) fn scratch_buffers<D: Default>(numbers: usize) -> Vec<D> {
    let threads = match (numbers / PER_THREAD).min(MAX_THREADS) {
        0 | 1 => 1,
        worth => thread::available_parallelism().map_or(1, |available| worth.min(available.get())),
    };
    (0..threads).map(|_| D::default()).collect()
}

/// Runs all jobs, with one thread per buffer. After an error no further job starts; one error is returned.
pub(crate) fn share<J: Send, D: Send, E: Send>(
    scratch_buffers: &mut [D],
    jobs: impl Iterator<Item = J> + Send,
    work: impl Fn(&mut D, J) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let left = Mutex::new((jobs, Ok(())));
    let worker = |scratch: &mut D| {
        loop {
            let job = match &mut *left.lock().expect("no worker panics with the lock") {
                (jobs, Ok(())) => jobs.next(),
                _ => None,
            };
            let Some(job) = job else { return };
            if let Err(error) = work(scratch, job) {
                left.lock().expect("no worker panics with the lock").1 = Err(error);
            }
        }
    };
    thread::scope(|scope| {
        let mut scratch_buffers = scratch_buffers.iter_mut();
        let own = scratch_buffers.next();
        for scratch in scratch_buffers {
            scope.spawn(|| worker(scratch));
        }
        own.map(worker);
    });
    left.into_inner().expect("no worker panics with the lock").1
}

#[cfg(test)]
mod tests {
    use super::*;
    use trellis_wire::records::Dtype;

    #[test]
    fn spans_cover_every_element_once_and_match_the_cut_bytes() {
        let lengths = [3, 0, SPAN, 2 * SPAN + 1];
        let slot = |&len: &usize| Slot { name: String::new(), dtype: Dtype::F16, shape: vec![len] };
        let layout = Layout(lengths.iter().map(slot).collect());
        let spans = spans(&layout);
        let expected = [(0, 0, 3), (2, 0, SPAN), (3, 0, SPAN), (3, SPAN, SPAN), (3, 2 * SPAN, 1)];
        assert_eq!(spans, expected.map(|(array, start, len)| Span { array, start, len }));
        let mut arrays = blank(&layout);
        let cut = cut(&layout, &mut arrays, |slot| slot.dtype.bytes());
        let lengths = spans.iter().map(|span| span.bytes(2).len());
        assert!(cut.iter().map(|bytes| bytes.len()).eq(lengths));
    }

    #[test]
    fn every_job_runs_once_with_any_number_of_threads() {
        for threads in 1..5 {
            let done = Mutex::new(vec![0; 100]);
            let work = |_: &mut (), job: usize| {
                done.lock().unwrap()[job] += 1;
                Ok::<(), ()>(())
            };
            assert_eq!(share(&mut vec![(); threads], 0..100, work), Ok(()));
            assert_eq!(done.into_inner().unwrap(), [1; 100]);
        }
    }

    #[test]
    fn an_error_stops_the_work() {
        let done = Mutex::new(0);
        let work = |_: &mut (), job: usize| {
            *done.lock().unwrap() += 1;
            if job == 3 { Err(job) } else { Ok(()) }
        };
        assert_eq!(share(&mut [()], 0..100, work), Err(3));
        assert_eq!(done.into_inner().unwrap(), 4);
    }
}
