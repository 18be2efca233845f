//! The weighted mean of replies that come one after the other: each is added to the sums and can then be forgotten. Same
//! bits as [`crate::mean`].
//!
//! The results are written where the sums are, so that there is never more than 8 bytes for each element.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;

use crate::distance;
use crate::element::{is_float, narrow, widen};
use crate::frame::Frame;
use crate::mean::{add, divide};
use crate::memory::Memory;
use crate::model::{Model, State};
use crate::optimiser::Rule;
use crate::source::{Source, Unread};
use crate::sums::Sums;
use crate::work::{self, Span};

/// Elements whose sums are taken out at once: what is done to them happens in the first cache.
const BLOCK: usize = 2048;

pub(crate) struct Accumulator {
    frame: Frame,
    spans: Vec<Span>,
    sums: Sums,
    desks: Vec<Desk>,
}

/// What a reply is multiplied with, or a sum divided by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Factors {
    /// In the arrays that the strategy steps on.
    pub stepped: f64,
    /// In those that are averaged whatever the strategy: integers.
    pub averaged: f64,
}

impl Factors {
    fn of(&self, stepped: bool) -> f64 {
        if stepped { self.stepped } else { self.averaged }
    }
}

/// What a thread works with.
#[derive(Default)]
struct Desk {
    bytes: Vec<u8>,
    model: Vec<f64>,
    numbers: Vec<f64>,
    memory: Vec<Vec<f64>>,
}

impl Accumulator {
    pub fn new(frame: Frame) -> Self {
        let spans = work::spans(&frame.input);
        let sums = Sums::new(&frame.output);
        let desks = work::desks(spans.iter().map(|span| span.len).sum());
        Self { frame, spans, sums, desks }
    }

    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Adds a reply. After a fault the sums are of no use any more.
    pub fn fold(&mut self, source: &Source, factors: Factors) -> Result<(), Unread> {
        let frame = &self.frame;
        let jobs = self.spans.iter().zip(self.sums.parts(&frame.output));
        work::share(&mut self.desks, jobs, |desk, (span, part)| {
            let unread = |error| Unread { reply: 0, array: span.array, error };
            let bytes = source.read(span, &mut desk.bytes).map_err(unread)?;
            let factor = factors.of(is_float(frame.output.0[span.array].dtype));
            let dtype = frame.input.0[span.array].dtype;
            for (bytes, mut part) in bytes.chunks(BLOCK * dtype.bytes()).zip(part.chunks(BLOCK)) {
                part.read(&mut desk.numbers);
                add(dtype, &[(factor, bytes)], &mut desk.numbers);
                part.write(&desk.numbers);
            }
            Ok(())
        })
    }

    /// How far a reply is from the model, squared, in the arrays that the strategy steps on.
    pub fn squared_distance(&mut self, source: &Source, model: &Model) -> Result<f64, Unread> {
        let frame = &self.frame;
        let mut distances = vec![0.0; self.spans.len()];
        let jobs = self.spans.iter().zip(&mut distances).filter(|(span, _)| is_float(frame.output.0[span.array].dtype));
        work::share(&mut self.desks, jobs, |desk, (span, distance)| {
            let unread = |error| Unread { reply: 0, array: span.array, error };
            let bytes = source.read(span, &mut desk.bytes).map_err(unread)?;
            desk.numbers.resize(span.len, 0.0);
            widen(frame.input.0[span.array].dtype, bytes, &mut desk.numbers);
            widen_model(model, span, &mut desk.model);
            *distance = distance::squared(&desk.numbers, &desk.model);
            Ok(())
        })?;
        Ok(distances.iter().sum())
    }

    /// The next model and what is to be remembered, or what does not fit in what was.
    pub fn finish(
        self,
        divisors: Factors,
        rule: &Rule,
        model: &Model,
        state: &State,
    ) -> Result<(Model, State), String> {
        let Self { frame, spans, mut sums, mut desks } = self;
        let output = &frame.output;
        let memory = Memory::new(rule, output, state)?;
        let mut remembered = memory.blank();
        let jobs = spans.iter().zip(sums.parts(output)).zip(memory.cut(&spans, &mut remembered));
        let Ok(()) = work::share(&mut desks, jobs, |desk, ((span, part), remembered)| {
            let dtype = output.0[span.array].dtype;
            part.read(&mut desk.numbers);
            divide(&mut desk.numbers, divisors.of(is_float(dtype)));
            if is_float(dtype) && *rule != Rule::Replace {
                widen_model(model, span, &mut desk.model);
                memory.recall(span, &mut desk.memory);
                rule.step(&mut desk.numbers, &desk.model, &mut desk.memory);
                memory.note(span, &desk.memory, remembered);
            }
            narrow(dtype, &desk.numbers, part.into_results());
            Ok::<(), Infallible>(())
        });
        let arrays = sums.into_results().into_iter().map(Bytes::from).collect();
        Ok((Model { layout: Arc::clone(output), arrays }, memory.state(remembered)))
    }
}

fn widen_model(model: &Model, span: &Span, numbers: &mut Vec<f64>) {
    let dtype = model.layout.0[span.array].dtype;
    numbers.resize(span.len, 0.0);
    widen(dtype, &model.arrays[span.array][span.bytes(dtype.bytes())], numbers);
}
