//! Dense layers with ReLU between them and a softmax at the end: one layer is a logistic regression, two are a small MLP. The
//! parameters are one slice, layer by layer, weights before biases.

use std::ops::Range;

use crate::app::{AppError, Stop};
use crate::data::Examples;
use crate::matrix;
use crate::random::{Purpose, Random};

/// Examples that are evaluated at once.
const EVALUATION_BATCH: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    layers: Vec<Layer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Layer {
    inputs: usize,
    outputs: usize,
    /// `outputs` rows of `inputs` numbers, as in PyTorch.
    weights: Range<usize>,
    biases: Range<usize>,
    /// The names of weights and biases.
    names: [&'static str; 2],
}

/// An array of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    pub name: &'static str,
    pub shape: Vec<usize>,
    /// Its position among the parameters.
    pub range: Range<usize>,
}

/// Buffers that batches reuse.
#[derive(Debug, Default)]
pub struct Workspace {
    /// The output of each layer.
    outputs: Vec<Vec<f32>>,
    /// The gradients with respect to the output of a layer and of the previous layer.
    deltas: [Vec<f32>; 2],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    pub loss: f64,
    pub accuracy: f64,
}

impl Network {
    pub fn logistic(features: usize, classes: usize) -> Self {
        Self::new(&[(features, classes, ["weight", "bias"])])
    }

    pub fn mlp(features: usize, hidden: usize, classes: usize) -> Self {
        Self::new(&[
            (features, hidden, ["hidden.weight", "hidden.bias"]),
            (hidden, classes, ["output.weight", "output.bias"]),
        ])
    }

    fn new(sizes: &[(usize, usize, [&'static str; 2])]) -> Self {
        let mut end = 0;
        let mut next = |length: usize| {
            end += length;
            end - length..end
        };
        let layer = |&(inputs, outputs, names)| {
            let (weights, biases) = (next(inputs * outputs), next(outputs));
            Layer { inputs, outputs, weights, biases, names }
        };
        Self { layers: sizes.iter().map(layer).collect() }
    }

    pub fn parameter_count(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.biases.end)
    }

    pub fn parameters(&self) -> Vec<Parameter> {
        let of_layer = |layer: &Layer| {
            let [weights, biases] = layer.names;
            [
                Parameter { name: weights, shape: vec![layer.outputs, layer.inputs], range: layer.weights.clone() },
                Parameter { name: biases, shape: vec![layer.outputs], range: layer.biases.clone() },
            ]
        };
        self.layers.iter().flat_map(of_layer).collect()
    }

    /// Initial parameters: zero biases, and weights with He initialisation, which preserves the variance of the signal. A single
    /// layer starts at zero: it has no symmetry to break.
    pub fn fresh(&self, seed: u64) -> Vec<f32> {
        let mut parameters = vec![0.0; self.parameter_count()];
        if self.layers.len() > 1 {
            let mut random = Random::new(seed, Purpose::Weights, &[]);
            for layer in &self.layers {
                let deviation = libm::sqrt(2.0 / layer.inputs as f64);
                parameters[layer.weights.clone()].fill_with(|| (random.normal() * deviation) as f32);
            }
        }
        parameters
    }

    /// Computes the mean loss over the examples, and writes its gradient to `gradient`.
    pub fn gradient(&self, parameters: &[f32], batch: &Examples, gradient: &mut [f32], room: &mut Workspace) -> f64 {
        self.forward(parameters, batch, room);
        let Workspace { outputs, deltas: [delta, before] } = room;
        let logits = outputs.last().expect("a network has a layer");
        delta.clone_from(logits);
        let classes = logits.len() / batch.len();
        let mut loss = 0.0;
        for (row, &label) in delta.chunks_exact_mut(classes).zip(batch.labels()) {
            loss += softmax(row, label as usize);
            row[label as usize] -= 1.0;
            row.iter_mut().for_each(|element| *element /= batch.len() as f32);
        }
        gradient.fill(0.0);
        for (index, layer) in self.layers.iter().enumerate().rev() {
            let input = if index == 0 { batch.numbers() } else { &outputs[index - 1] };
            layer.add_gradient(input, delta, gradient);
            if index > 0 {
                before.resize(batch.len() * layer.inputs, 0.0);
                matrix::times(delta, &parameters[layer.weights.clone()], before, layer.outputs, layer.inputs);
                // The derivative of ReLU is 0 where its output is 0.
                for (delta, output) in before.iter_mut().zip(input) {
                    *delta = if *output > 0.0 { *delta } else { 0.0 };
                }
                std::mem::swap(delta, before);
            }
        }
        loss / batch.len() as f64
    }

    /// The mean loss, and the share of examples whose class is predicted correctly.
    pub fn evaluate(&self, parameters: &[f32], examples: &Examples, stop: &Stop) -> Result<Evaluation, AppError> {
        let mut room = Workspace::default();
        let mut batch = Examples::empty(examples.features());
        let indices: Vec<usize> = (0..examples.len()).collect();
        let (mut loss, mut found) = (0.0, 0usize);
        for chosen in indices.chunks(EVALUATION_BATCH) {
            stop.check()?;
            batch.fill(examples, chosen);
            self.forward(parameters, &batch, &mut room);
            let logits = room.outputs.last_mut().expect("a network has a layer");
            let classes = logits.len() / batch.len();
            for (row, &label) in logits.chunks_exact_mut(classes).zip(batch.labels()) {
                found += usize::from(largest(row) == label as usize);
                loss += softmax(row, label as usize);
            }
        }
        let count = examples.len() as f64;
        Ok(Evaluation { loss: loss / count, accuracy: found as f64 / count })
    }

    fn forward(&self, parameters: &[f32], batch: &Examples, room: &mut Workspace) {
        room.outputs.resize_with(self.layers.len(), Vec::new);
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, rest) = room.outputs.split_at_mut(index);
            let input = before.last().map_or(batch.numbers(), Vec::as_slice);
            let output = &mut rest[0];
            output.resize(batch.len() * layer.outputs, 0.0);
            let weights = &parameters[layer.weights.clone()];
            matrix::times_transposed(input, weights, output, layer.inputs, layer.outputs);
            let last = index + 1 == self.layers.len();
            let floor = if last { f32::NEG_INFINITY } else { 0.0 };
            let biases = &parameters[layer.biases.clone()];
            for row in output.chunks_exact_mut(layer.outputs) {
                for (element, bias) in row.iter_mut().zip(biases) {
                    *element = (*element + bias).max(floor);
                }
            }
        }
    }
}

impl Layer {
    fn add_gradient(&self, input: &[f32], delta: &[f32], gradient: &mut [f32]) {
        matrix::add_transposed_times(delta, input, &mut gradient[self.weights.clone()], self.outputs, self.inputs);
        let biases = &mut gradient[self.biases.clone()];
        for row in delta.chunks_exact(self.outputs) {
            for (bias, delta) in biases.iter_mut().zip(row) {
                *bias += delta;
            }
        }
    }
}

/// Converts logits to probabilities; returns the cross-entropy loss of the label.
fn softmax(row: &mut [f32], label: usize) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let logit = row[label] - max;
    let mut sum = 0.0;
    for element in row.iter_mut() {
        *element = libm::expf(*element - max);
        sum += *element;
    }
    row.iter_mut().for_each(|element| *element /= sum);
    f64::from(libm::logf(sum) - logit)
}

fn largest(row: &[f32]) -> usize {
    let mut best = 0;
    for (index, element) in row.iter().enumerate() {
        if *element > row[best] {
            best = index;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits::digits;

    fn batch(count: usize) -> Examples {
        digits().select(&(0..count).map(|index| index * 7).collect::<Vec<_>>())
    }

    /// The definition of the loss in double precision: the mean cross-entropy.
    fn loss(network: &Network, parameters: &[f64], batch: &Examples) -> f64 {
        let rows = batch.numbers().chunks_exact(batch.features()).zip(batch.labels());
        let cross_entropy = |(row, &label): (&[f32], &u32)| {
            let mut signal: Vec<f64> = row.iter().map(|&number| f64::from(number)).collect();
            for (index, layer) in network.layers.iter().enumerate() {
                let unit = |unit: usize| {
                    let weights = &parameters[layer.weights.clone()][unit * layer.inputs..];
                    let sum: f64 = signal.iter().zip(weights).map(|(number, weight)| number * weight).sum();
                    sum + parameters[layer.biases.clone()][unit]
                };
                let last = index + 1 == network.layers.len();
                signal = (0..layer.outputs).map(unit).map(|sum| if last { sum } else { sum.max(0.0) }).collect();
            }
            signal.iter().map(|number| number.exp()).sum::<f64>().ln() - signal[label as usize]
        };
        rows.map(cross_entropy).sum::<f64>() / batch.len() as f64
    }

    /// Each parameter is changed by a small step in both directions, and the change of the loss compared with the gradient.
    #[test]
    fn gradients_match_finite_differences() {
        const STEP: f64 = 1e-6;
        let batch = batch(13);
        for network in [Network::logistic(64, 10), Network::mlp(64, 9, 10)] {
            let mut random = Random::new(5, Purpose::Weights, &[]);
            let parameters: Vec<f32> = (0..network.parameter_count()).map(|_| (random.normal() * 0.3) as f32).collect();
            let mut precise: Vec<f64> = parameters.iter().map(|&parameter| f64::from(parameter)).collect();
            let mut gradient = vec![f32::NAN; parameters.len()];
            let returned = network.gradient(&parameters, &batch, &mut gradient, &mut Workspace::default());
            assert!((returned - loss(&network, &precise, &batch)).abs() < 1e-5);
            let evaluated = network.evaluate(&parameters, &batch, &Stop::default()).unwrap();
            assert!((returned - evaluated.loss).abs() < 1e-6);
            for index in 0..parameters.len() {
                let mut moved = |to: f64| {
                    let before = std::mem::replace(&mut precise[index], to);
                    let moved = loss(&network, &precise, &batch);
                    precise[index] = before;
                    moved
                };
                let here = f64::from(parameters[index]);
                let measured = (moved(here + STEP) - moved(here - STEP)) / (2.0 * STEP);
                let deviation = (measured - f64::from(gradient[index])).abs();
                assert!(deviation < 1e-5, "parameter {index}: {measured} measured, {} computed", gradient[index]);
            }
        }
    }

    #[test]
    fn fresh_weights_follow_the_seed() {
        let network = Network::mlp(64, 32, 10);
        assert_eq!(network.fresh(1), network.fresh(1));
        assert_ne!(network.fresh(1), network.fresh(2));
        let weights = &network.fresh(1)[..64 * 32];
        let variance = weights.iter().map(|weight| weight * weight).sum::<f32>() / weights.len() as f32;
        assert!((variance * 32.0 - 1.0).abs() < 0.1, "{variance}");
    }

    #[test]
    fn parameters_are_contiguous() {
        let network = Network::mlp(3, 4, 2);
        let parameters = network.parameters();
        let ranges: Vec<_> = parameters.iter().map(|parameter| (parameter.name, parameter.range.clone())).collect();
        assert_eq!(
            ranges,
            [("hidden.weight", 0..12), ("hidden.bias", 12..16), ("output.weight", 16..24), ("output.bias", 24..26)]
        );
        assert_eq!(network.parameter_count(), 26);
    }

    #[test]
    fn large_numbers_do_not_overflow_the_softmax() {
        let mut row = [1000.0, 0.0, -1000.0];
        assert_eq!(softmax(&mut row, 0), 0.0);
        assert_eq!(row, [1.0, 0.0, 0.0]);
        assert_eq!(softmax(&mut [1000.0, 0.0, -1000.0], 2), 2000.0);
    }
}
