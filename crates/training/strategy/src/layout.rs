//! Compares the arrays of a reply with those of the model, in any order.

use std::collections::HashMap;

use crate::model::{Layout, Slot};

/// Differences that are listed; a reply of another model differs in every array.
const MAX_DIFFERENCES: usize = 5;

/// The position of each expected array in `got`, or the differences.
pub fn check_layout(expected: &Layout, got: &Layout) -> Result<Vec<usize>, String> {
    compare(expected, got, |expected, got| {
        (expected.dtype != got.dtype).then(|| {
            let [expected_type, found] = [expected.dtype.name(), got.dtype.name()];
            format!("array '{}' is {found}, not {expected_type}", expected.name)
        })
    })
}

/// Like [`check_layout`], but element types may differ, as in replies under `compat`.
pub fn check_names_and_shapes(expected: &Layout, got: &Layout) -> Result<Vec<usize>, String> {
    compare(expected, got, |_, _| None)
}

fn compare(
    expected: &Layout,
    got: &Layout,
    other: impl Fn(&Slot, &Slot) -> Option<String>,
) -> Result<Vec<usize>, String> {
    let mut unclaimed: HashMap<&str, usize> = HashMap::with_capacity(got.0.len());
    let mut differences = Vec::new();
    for (place, slot) in got.0.iter().enumerate() {
        if unclaimed.insert(&slot.name, place).is_some() {
            differences.push(format!("array '{}' occurs twice", slot.name));
        }
    }
    let mut places = Vec::with_capacity(expected.0.len());
    for slot in &expected.0 {
        let Some(place) = unclaimed.remove(slot.name.as_str()) else {
            differences.push(format!("array '{}' is missing", slot.name));
            continue;
        };
        let found = &got.0[place];
        if found.shape != slot.shape {
            differences.push(format!("array '{}' has shape {:?}, not {:?}", slot.name, found.shape, slot.shape));
        }
        differences.extend(other(slot, found));
        places.push(place);
    }
    let unexpected = got.0.iter().filter(|slot| unclaimed.contains_key(slot.name.as_str()));
    differences.extend(unexpected.map(|slot| format!("array '{}' is not in the model", slot.name)));
    if differences.is_empty() { Ok(places) } else { Err(summary(&differences)) }
}

fn summary(differences: &[String]) -> String {
    let first = differences[..differences.len().min(MAX_DIFFERENCES)].join("; ");
    match differences.len().saturating_sub(MAX_DIFFERENCES) {
        0 => first,
        more => format!("{first}; and {more} more differences"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trellis_wire::records::Dtype;

    fn layout(slots: &[(&str, Dtype, &[usize])]) -> Layout {
        let slot =
            |&(name, dtype, shape): &(&str, Dtype, &[usize])| Slot { name: name.into(), dtype, shape: shape.into() };
        Layout(slots.iter().map(slot).collect())
    }

    #[test]
    fn arrays_are_matched_by_name() {
        let expected = layout(&[("w", Dtype::F32, &[2, 3]), ("b", Dtype::F32, &[3]), ("n", Dtype::I64, &[])]);
        let got = layout(&[("n", Dtype::I64, &[]), ("w", Dtype::F32, &[2, 3]), ("b", Dtype::F32, &[3])]);
        assert_eq!(check_layout(&expected, &got), Ok(vec![1, 2, 0]));
        assert_eq!(check_layout(&Layout::default(), &Layout::default()), Ok(vec![]));
    }

    #[test]
    fn all_differences_are_reported_at_once() {
        let expected = layout(&[("w", Dtype::F32, &[2, 3]), ("b", Dtype::F32, &[3]), ("n", Dtype::I64, &[])]);
        let got = layout(&[
            ("w", Dtype::F64, &[3, 2]),
            ("b", Dtype::F32, &[3]),
            ("x", Dtype::U8, &[1]),
            ("b", Dtype::F32, &[3]),
        ]);
        let differences = check_layout(&expected, &got).unwrap_err();
        assert_eq!(
            differences,
            "array 'b' occurs twice; array 'w' has shape [3, 2], not [2, 3]; array 'w' is float64, not float32; \
             array 'n' is missing; array 'x' is not in the model"
        );
    }

    #[test]
    fn the_list_of_differences_is_limited() {
        let name = |number: usize| Slot { name: format!("{number}"), dtype: Dtype::F32, shape: vec![] };
        let expected = Layout((0..9).map(name).collect());
        let differences = check_layout(&expected, &Layout::default()).unwrap_err();
        assert!(differences.ends_with("array '4' is missing; and 4 more differences"), "{differences}");
    }

    #[test]
    fn types_may_differ_if_allowed() {
        let [expected, got] = [Dtype::F64, Dtype::I64].map(|dtype| layout(&[("n", dtype, &[4])]));
        assert!(check_layout(&expected, &got).is_err());
        assert_eq!(check_names_and_shapes(&expected, &got), Ok(vec![0]));
    }
}
