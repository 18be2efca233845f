//! The weighted mean of replies that arrive one after another: each is added to running sums and then dropped. The result has
//! the same bits as [`crate::mean`].
//!
//! Results overwrite the sums, so no more than 8 bytes per element are used.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;

use crate::distance;
use crate::element::{is_float, narrow, widen};
use crate::frame::Frame;
use crate::mean::{add, divide};
use crate::model::{Model, State};
use crate::optimiser::Rule;
use crate::optimiser_state::OptimiserState;
use crate::source::{ReadError, Source};
use crate::sums::Sums;
use crate::work::{self, Span};

/// Elements that are processed at once, so that they stay in the L1 cache.
const BLOCK: usize = 2048;

pub(crate) struct Accumulator {
    frame: Frame,
    spans: Vec<Span>,
    sums: Sums,
    scratch_buffers: Vec<Scratch>,
}

/// Factors of a reply, or divisors of the sums.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Factors {
    /// For arrays that the strategy optimises.
    pub stepped: f64,
    /// For arrays that are averaged with every strategy: integers.
    pub averaged: f64,
}

impl Factors {
    fn of(&self, stepped: bool) -> f64 {
        if stepped { self.stepped } else { self.averaged }
    }
}

/// The buffers of a thread.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    model: Vec<f64>,
    numbers: Vec<f64>,
    state: Vec<Vec<f64>>,
}

impl Accumulator {
    pub fn new(frame: Frame) -> Self {
        let spans = work::spans(&frame.input);
        let sums = Sums::new(&frame.output);
        let scratch_buffers = work::scratch_buffers(spans.iter().map(|span| span.len).sum());
        Self { frame, spans, sums, scratch_buffers }
    }

    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Adds a reply. After an error the sums are invalid.
    pub fn fold(&mut self, source: &Source, factors: Factors) -> Result<(), ReadError> {
        let frame = &self.frame;
        let jobs = self.spans.iter().zip(self.sums.parts(&frame.output));
        work::share(&mut self.scratch_buffers, jobs, |scratch, (span, part)| {
            let unread = |error| ReadError { reply: 0, array: span.array, error };
            let bytes = source.read(span, &mut scratch.bytes).map_err(unread)?;
            let factor = factors.of(is_float(frame.output.0[span.array].dtype));
            let dtype = frame.input.0[span.array].dtype;
            for (bytes, mut part) in bytes.chunks(BLOCK * dtype.bytes()).zip(part.chunks(BLOCK)) {
                part.read(&mut scratch.numbers);
                add(dtype, &[(factor, bytes)], &mut scratch.numbers);
                part.write(&scratch.numbers);
            }
            Ok(())
        })
    }

    /// The squared distance of a reply from the model, over the arrays that the strategy optimises.
    pub fn squared_distance(&mut self, source: &Source, model: &Model) -> Result<f64, ReadError> {
        let frame = &self.frame;
        let mut distances = vec![0.0; self.spans.len()];
        let jobs = self.spans.iter().zip(&mut distances).filter(|(span, _)| is_float(frame.output.0[span.array].dtype));
        work::share(&mut self.scratch_buffers, jobs, |scratch, (span, distance)| {
            let unread = |error| ReadError { reply: 0, array: span.array, error };
            let bytes = source.read(span, &mut scratch.bytes).map_err(unread)?;
            scratch.numbers.resize(span.len, 0.0);
            widen(frame.input.0[span.array].dtype, bytes, &mut scratch.numbers);
            widen_model(model, span, &mut scratch.model);
            *distance = distance::squared(&scratch.numbers, &scratch.model);
            Ok(())
        })?;
        Ok(distances.iter().sum())
    }

    /// The next model and optimiser state, or why the given state does not match.
    pub fn finish(
        self,
        divisors: Factors,
        rule: &Rule,
        model: &Model,
        state: &State,
    ) -> Result<(Model, State), String> {
        let Self { frame, spans, mut sums, mut scratch_buffers } = self;
        let output = &frame.output;
        let state = OptimiserState::new(rule, output, state)?;
        let mut next_state = state.blank();
        let jobs = spans.iter().zip(sums.parts(output)).zip(state.cut(&spans, &mut next_state));
        let Ok(()) = work::share(&mut scratch_buffers, jobs, |scratch, ((span, part), next_state)| {
            let dtype = output.0[span.array].dtype;
            part.read(&mut scratch.numbers);
            divide(&mut scratch.numbers, divisors.of(is_float(dtype)));
            if is_float(dtype) && *rule != Rule::Replace {
                widen_model(model, span, &mut scratch.model);
                state.read(span, &mut scratch.state);
                rule.step(&mut scratch.numbers, &scratch.model, &mut scratch.state);
                state.write(span, &scratch.state, next_state);
            }
            narrow(dtype, &scratch.numbers, part.into_results());
            Ok::<(), Infallible>(())
        });
        let arrays = sums.into_results().into_iter().map(Bytes::from).collect();
        Ok((Model { layout: Arc::clone(output), arrays }, state.next_state(next_state)))
    }
}

fn widen_model(model: &Model, span: &Span, numbers: &mut Vec<f64>) {
    let dtype = model.layout.0[span.array].dtype;
    numbers.resize(span.len, 0.0);
    widen(dtype, &model.arrays[span.array][span.bytes(dtype.bytes())], numbers);
}
