//! The state of a strategy as arrays of a file: `models/MODEL/ARRAY` and, as scalars, `numbers/NAME`.

use std::collections::BTreeMap;
use std::sync::Arc;

use trellis_strategy::{Layout, Model, Slot, State};
use trellis_wire::records::Dtype;

use crate::safetensors::{Content, Tensor};

const MODELS: &str = "models";
const NUMBERS: &str = "numbers";

/// The numbers of a state as bytes, which tensors borrow.
pub struct NumberBytes(Vec<(String, [u8; 8])>);

impl NumberBytes {
    pub fn of(state: &State) -> NumberBytes {
        NumberBytes(state.numbers.iter().map(|(name, number)| (name.clone(), number.to_le_bytes())).collect())
    }
}

pub fn tensors<'a>(state: &'a State, numbers: &'a NumberBytes) -> Vec<Tensor<'a>> {
    let of_models = state.models.iter().flat_map(|(model_name, model)| {
        let prefix = format!("{MODELS}/{}", escaped(model_name));
        model.layout.0.iter().zip(&model.arrays).map(move |(slot, data)| Tensor {
            name: format!("{prefix}/{}", slot.name).into(),
            dtype: slot.dtype,
            shape: &slot.shape,
            data,
        })
    });
    let of_numbers = numbers.0.iter().map(|(name, bytes)| Tensor {
        name: format!("{NUMBERS}/{name}").into(),
        dtype: Dtype::F64,
        shape: &[],
        data: bytes,
    });
    of_models.chain(of_numbers).collect()
}

/// The names of the models. They are listed here because a model without arrays leaves no other trace.
pub fn metadata(state: &State) -> Vec<(&'static str, String)> {
    let names: Vec<&String> = state.models.keys().collect();
    vec![(MODELS, serde_json::to_string(&names).expect("names are text"))]
}

pub fn read(content: Content) -> Result<State, String> {
    let names = content.metadata.get(MODELS).ok_or("its metadata does not list its models")?;
    let names: Vec<String> =
        serde_json::from_str(names).map_err(|error| format!("the list of its models is invalid: {error}"))?;
    let mut numbers = BTreeMap::new();
    let mut parts: BTreeMap<String, (Layout, Vec<bytes::Bytes>)> =
        names.iter().map(|name| (escaped(name), Default::default())).collect();
    for (slot, data) in content.tensors {
        let unknown = || format!("the array {:?} does not belong to a state", slot.name);
        match slot.name.split_once('/').ok_or_else(unknown)? {
            (NUMBERS, name) => {
                let bytes = (slot.dtype == Dtype::F64).then(|| data.as_ref().try_into().ok()).flatten();
                numbers.insert(name.to_owned(), f64::from_le_bytes(bytes.ok_or_else(unknown)?));
            }
            (MODELS, rest) => {
                let (model, array) = rest.split_once('/').ok_or_else(unknown)?;
                let (layout, arrays) = parts.get_mut(model).ok_or_else(unknown)?;
                layout.0.push(Slot { name: array.to_owned(), dtype: slot.dtype, shape: slot.shape });
                arrays.push(data);
            }
            _ => return Err(unknown()),
        }
    }
    let mut models = BTreeMap::new();
    for name in names {
        let (layout, arrays) = parts.remove(&escaped(&name)).unwrap_or_default();
        models.insert(name, Model { layout: Arc::new(layout), arrays });
    }
    Ok(State { models, numbers })
}

/// Escapes `/`, which separates the name from that of an array.
fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}
