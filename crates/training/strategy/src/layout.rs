//! Whether the arrays of a reply are those of the model, whatever their order.

use std::collections::HashMap;

use crate::model::{Layout, Slot};

/// Differences that are told; a reply of another model has as many as it has arrays.
const MAX_TOLD: usize = 5;

/// Where each expected array is in `got`, or what differs, and in which arrays.
pub fn check_layout(expected: &Layout, got: &Layout) -> Result<Vec<usize>, String> {
    compare(expected, got, |expected, got| {
        (expected.dtype != got.dtype).then(|| {
            let [wanted, found] = [expected.dtype.name(), got.dtype.name()];
            format!("array '{}' is {found}, not {wanted}", expected.name)
        })
    })
}

/// As [`check_layout`], for those who may have other types of elements: replies under `compat`.
pub fn check_names_and_shapes(expected: &Layout, got: &Layout) -> Result<Vec<usize>, String> {
    compare(expected, got, |_, _| None)
}

fn compare(
    expected: &Layout,
    got: &Layout,
    other: impl Fn(&Slot, &Slot) -> Option<String>,
) -> Result<Vec<usize>, String> {
    let mut unclaimed: HashMap<&str, usize> = HashMap::with_capacity(got.0.len());
    let mut problems = Vec::new();
    for (place, slot) in got.0.iter().enumerate() {
        if unclaimed.insert(&slot.name, place).is_some() {
            problems.push(format!("array '{}' is there twice", slot.name));
        }
    }
    let mut places = Vec::with_capacity(expected.0.len());
    for slot in &expected.0 {
        let Some(place) = unclaimed.remove(slot.name.as_str()) else {
            problems.push(format!("array '{}' is missing", slot.name));
            continue;
        };
        let found = &got.0[place];
        if found.shape != slot.shape {
            problems.push(format!("array '{}' has shape {:?}, not {:?}", slot.name, found.shape, slot.shape));
        }
        problems.extend(other(slot, found));
        places.push(place);
    }
    let strangers = got.0.iter().filter(|slot| unclaimed.contains_key(slot.name.as_str()));
    problems.extend(strangers.map(|slot| format!("array '{}' is not in the model", slot.name)));
    if problems.is_empty() { Ok(places) } else { Err(told(&problems)) }
}

fn told(problems: &[String]) -> String {
    let first = problems[..problems.len().min(MAX_TOLD)].join("; ");
    match problems.len().saturating_sub(MAX_TOLD) {
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
    fn all_differences_are_told_at_once() {
        let expected = layout(&[("w", Dtype::F32, &[2, 3]), ("b", Dtype::F32, &[3]), ("n", Dtype::I64, &[])]);
        let got = layout(&[
            ("w", Dtype::F64, &[3, 2]),
            ("b", Dtype::F32, &[3]),
            ("x", Dtype::U8, &[1]),
            ("b", Dtype::F32, &[3]),
        ]);
        let told = check_layout(&expected, &got).unwrap_err();
        assert_eq!(
            told,
            "array 'b' is there twice; array 'w' has shape [3, 2], not [2, 3]; array 'w' is float64, not float32; \
             array 'n' is missing; array 'x' is not in the model"
        );
    }

    #[test]
    fn a_reply_of_another_model_is_not_told_in_full() {
        let name = |number: usize| Slot { name: format!("{number}"), dtype: Dtype::F32, shape: vec![] };
        let expected = Layout((0..9).map(name).collect());
        let told = check_layout(&expected, &Layout::default()).unwrap_err();
        assert!(told.ends_with("array '4' is missing; and 4 more differences"), "{told}");
    }

    #[test]
    fn types_may_differ_where_that_is_allowed() {
        let [expected, got] = [Dtype::F64, Dtype::I64].map(|dtype| layout(&[("n", dtype, &[4])]));
        assert!(check_layout(&expected, &got).is_err());
        assert_eq!(check_names_and_shapes(&expected, &got), Ok(vec![0]));
    }
}
