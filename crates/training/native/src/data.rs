//! Examples to learn from: where they come from, and which of them are a node's own.

pub mod digits;
pub mod partition;
pub mod shard;
pub mod table;

/// All examples of a data set, of which a node uses its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Names of the classes; a label is a position in it.
    pub classes: Vec<String>,
    pub features: usize,
    pub labels: Vec<u32>,
    pub rows: Rows,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Rows {
    /// The bundled ones, unpacked when they are needed.
    Digits,
    /// Row after row.
    Table(Vec<f32>),
}

impl Dataset {
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// The examples with those positions, in that order.
    pub fn select(&self, indices: &[usize]) -> Examples {
        let mut examples = Examples::empty(self.features);
        for &index in indices {
            match &self.rows {
                Rows::Digits => digits::append(index, &mut examples.numbers),
                Rows::Table(numbers) => {
                    let row = &numbers[index * self.features..(index + 1) * self.features];
                    examples.numbers.extend_from_slice(row);
                }
            }
            examples.labels.push(self.labels[index]);
        }
        examples
    }
}

/// Examples in memory, ready to be computed with.
#[derive(Debug, Clone, PartialEq)]
pub struct Examples {
    features: usize,
    numbers: Vec<f32>,
    labels: Vec<u32>,
}

impl Examples {
    pub fn empty(features: usize) -> Self {
        Self { features, numbers: Vec::new(), labels: Vec::new() }
    }

    pub fn features(&self) -> usize {
        self.features
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Row after row.
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Takes over the chosen ones of others, in place of what was here.
    pub fn fill(&mut self, others: &Examples, chosen: &[usize]) {
        self.numbers.clear();
        self.labels.clear();
        for &index in chosen {
            self.numbers.extend_from_slice(&others.numbers[index * self.features..(index + 1) * self.features]);
            self.labels.push(others.labels[index]);
        }
    }
}
