//! Data sets, and the examples that a node selects from them.

pub mod digits;
pub mod partition;
pub mod shard;
pub mod table;

/// All examples of a data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// The names of the classes; labels are indices into it.
    pub classes: Vec<String>,
    pub features: usize,
    pub labels: Vec<u32>,
    pub rows: Rows,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Rows {
    /// The bundled digits, unpacked on access.
    Digits,
    /// Row-major values.
    Table(Vec<f32>),
}

impl Dataset {
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// The examples at these positions, in this order.
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

/// Examples in memory.
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

    /// Row-major values.
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Replaces the content with the chosen examples of another set.
    pub fn fill(&mut self, source: &Examples, chosen: &[usize]) {
        self.numbers.clear();
        self.labels.clear();
        for &index in chosen {
            self.numbers.extend_from_slice(&source.numbers[index * self.features..(index + 1) * self.features]);
            self.labels.push(source.labels[index]);
        }
    }
}
