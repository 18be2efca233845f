//! Compares results with recorded ones of Flower's own classes. `tests/strategy/record.py` makes the record with Flower 1.42;
//! `tests/strategy/compare.py` explains the tolerances.

#[allow(dead_code, reason = "only the comparison with Flower itself uses its `main`")]
#[path = "../examples/case.rs"]
mod case;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::Value;
use trellis_wire::records::F16;

const RECORD: &str = include_str!("data/recorded.jsonl");

struct Array {
    dtype: String,
    numbers: Vec<f64>,
}

fn arrays(recorded: &Value) -> Vec<Array> {
    let array = |array: &Value| {
        let dtype = array["dtype"].as_str().unwrap().to_string();
        let bytes = BASE64_STANDARD.decode(array["data"].as_str().unwrap()).unwrap();
        Array { numbers: numbers(&dtype, &bytes), dtype }
    };
    recorded.as_array().unwrap().iter().map(array).collect()
}

fn numbers(dtype: &str, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        "float64" => bytes.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect(),
        "float32" => bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes).into()).collect(),
        "float16" => bytes.as_chunks().0.iter().map(|&bytes| F16(u16::from_le_bytes(bytes)).to_f32().into()).collect(),
        "int64" => bytes.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes) as f64).collect(),
        other => panic!("{other} is not in the record"),
    }
}

fn largest(arrays: &[Array], index: usize) -> f64 {
    arrays[index].numbers.iter().fold(0.0, |most, number| number.abs().max(most))
}

/// The tolerance, as a fraction of an array's scale.
fn tolerance(strategy: &str, model: &[Array], index: usize) -> f64 {
    let of = |array: &Array| match array.dtype.as_str() {
        "float64" => 1e-12,
        "float32" => 1e-6,
        "float16" => 1e-2,
        _ => 0.0,
    };
    match strategy {
        // One array depends on all.
        "QFedAvg" => model.iter().map(of).fold(0.0, f64::max),
        // These magnify Flower's rounding if an update is near zero.
        "FedAdagrad" | "FedAdam" | "FedYogi" => 100.0 * of(&model[index]),
        _ => of(&model[index]).max(1e-12),
    }
}

#[test]
fn results_match_flower() {
    for line in RECORD.lines() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        let name = recorded["name"].as_str().unwrap();
        let training = &recorded["case"]["training"];
        let answer = case::answer(&recorded["case"].to_string()).unwrap();
        let answer = serde_json::to_value(&answer).unwrap();
        let found = answer["rounds"].as_array().unwrap_or_else(|| panic!("{name}: {answer}"));
        let expected = recorded["rounds"].as_array().unwrap();
        assert_eq!(found.len(), expected.len(), "{name}");
        for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
            check_arrays(&format!("{name}, round {}", number + 1), training, number, found, expected);
            if let Some(limit) = expected["clipping_norm"].as_f64() {
                assert!((found["clipping_norm"].as_f64().unwrap() - limit).abs() < 1e-12, "{name}: {found}");
            }
        }
    }
}

fn check_arrays(place: &str, training: &Value, number: usize, found: &Value, expected: &Value) {
    let model = arrays(&training["model"]);
    let replies = training["rounds"][number].as_array().unwrap().iter().map(|reply| arrays(&reply["arrays"]));
    let replies: Vec<Vec<Array>> = replies.collect();
    let (found, expected) = (arrays(&found["arrays"]), arrays(&expected["arrays"]));
    assert_eq!(found.len(), expected.len(), "{place}");
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let scale = replies.iter().map(|reply| largest(reply, index)).fold(largest(&model, index), f64::max);
        let allowed = scale * tolerance(training["strategy"].as_str().unwrap(), &model, index);
        assert_eq!(found.numbers.len(), expected.numbers.len(), "{place}");
        for (found, expected) in found.numbers.iter().zip(&expected.numbers) {
            assert!((found - expected).abs() <= allowed, "{place}: {found}, not {expected}");
        }
    }
}
