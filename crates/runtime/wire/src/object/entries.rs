//! Named values in insertion order with unique names, like the Python dict of Flower's records.

use std::collections::HashSet;

/// An ordered list of named values. The order determines the bytes of the record, and so its id.
#[derive(Debug, Clone, PartialEq)]
pub struct Entries<V>(Vec<(String, V)>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name {0:?} appears twice")]
pub struct RepeatedName(pub String);

impl<V> Entries<V> {
    pub fn new(entries: Vec<(String, V)>) -> Result<Self, RepeatedName> {
        let mut seen = HashSet::with_capacity(entries.len());
        match entries.iter().find(|(name, _)| !seen.insert(name.as_str())) {
            Some((name, _)) => Err(RepeatedName(name.clone())),
            None => Ok(Self(entries)),
        }
    }

    pub fn get(&self, name: &str) -> Option<&V> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        self.0.iter_mut().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Replaces the value of a name, or appends a new name.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<V>) {
        let (name, value) = (name.into(), value.into());
        match self.get_mut(&name) {
            Some(place) => *place = value,
            None => self.0.push((name, value)),
        }
    }

    /// Like [`Entries::insert`], for use in an expression.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<V>) -> Self {
        self.insert(name, value);
        self
    }

    pub fn remove(&mut self, name: &str) -> Option<V> {
        let index = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(index).1)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub fn iter(&self) -> std::slice::Iter<'_, (String, V)> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> IntoIterator for Entries<V> {
    type Item = (String, V);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, V> IntoIterator for &'a Entries<V> {
    type Item = &'a (String, V);
    type IntoIter = std::slice::Iter<'a, (String, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
