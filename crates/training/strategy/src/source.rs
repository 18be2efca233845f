//! A reply whose arrays are accessed in the order of the model.

use std::io;

use crate::layout::{check_layout, check_names_and_shapes};
use crate::model::Layout;
use crate::numbers::Numbers;
use crate::work::Span;

#[derive(Clone)]
pub(crate) struct Source<'a> {
    numbers: &'a dyn Numbers,
    /// The position of each array of the model in the reply.
    places: Vec<usize>,
}

/// A part of a reply that could not be read.
#[derive(Debug)]
pub(crate) struct ReadError {
    /// The index of the reply.
    pub reply: usize,
    pub array: usize,
    pub error: io::Error,
}

impl<'a> Source<'a> {
    /// Fails with the differences of the layouts.
    pub fn new(numbers: &'a dyn Numbers, expected: &Layout) -> Result<Self, String> {
        Ok(Self { numbers, places: check_layout(expected, numbers.layout())? })
    }

    /// The layout of a reply in the order of the model; element types may differ from those of the model.
    pub fn layout_like(numbers: &dyn Numbers, model: &Layout) -> Result<Layout, String> {
        let got = numbers.layout();
        let places = check_names_and_shapes(model, got)?;
        Ok(Layout(places.into_iter().map(|place| got.0[place].clone()).collect()))
    }

    /// The bytes of a span of the model.
    pub fn read<'b>(&'b self, span: &Span, buffer: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
        let place = self.places[span.array];
        let range = span.bytes(self.numbers.layout().0[place].dtype.bytes());
        let wanted = range.len();
        let bytes = self.numbers.part(place, range, buffer)?;
        if bytes.len() != wanted {
            let text = format!("{} bytes were read instead of {wanted}", bytes.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        Ok(bytes)
    }
}
