//! The last model of a run as `mlflow.pyfunc.load_model` reads it: an `MLmodel` file with the flavor `python_function`, the arrays
//! as `.npz`, and the code that loads them with numpy alone.

use std::error::Error;
use std::path::Path;

use bytes::Bytes;
use serde_json::{Value, json};
use trellis_models::{Checkpoint, Export, Format, ModelStore};

use crate::run::RunFacts;

/// Of the model, below the artifacts of its run.
pub const DIRECTORY: &str = "model";
const LOADER: &str = "trellis_model";
const LOADER_CODE: &str = include_str!("trellis_model.py");
const ARRAYS: &str = "data/arrays.npz";
const NETWORK: &str = "data/network.json";
const REQUIREMENTS: &str = "numpy\n";
/// It is held in memory to be sent.
const MAX_MODEL_BYTES: u64 = 1 << 30;
/// Apps of Trellis whose network is known, and the names of weights and biases of its layers.
const NETWORKS: [(&str, &[[&str; 2]]); 2] = [
    ("logistic", &[["weight", "bias"]]),
    ("mlp", &[["hidden.weight", "hidden.bias"], ["output.weight", "output.bias"]]),
];

/// A model, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    round: u64,
    arrays: Vec<ArrayFacts>,
    npz: Bytes,
    /// Of models that can predict; the others only give their arrays.
    network: Option<&'static [[&'static str; 2]]>,
}

#[derive(Debug, Clone, PartialEq)]
struct ArrayFacts {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
}

/// Reads the checkpoint that a run has reported, if it is on this machine, and adds the settings in it to the run.
pub async fn read_model(path: &str, run: &mut RunFacts) -> Result<Model, String> {
    let elsewhere = || format!("it is at {path} on the machine of the SuperLink; track the run from there");
    if !Path::new(path).is_dir() {
        return Err(elsewhere());
    }
    let (owned, id, app) = (path.to_owned(), run.id.clone(), run.app.clone());
    let work = move || -> Result<Option<(Checkpoint, Model)>, String> {
        let read = ModelStore::load_path(Path::new(&owned));
        let checkpoint = read.map_err(|error| format!("{owned} cannot be read: {error}"))?;
        // A SuperLink elsewhere may name a path that means something else here.
        if checkpoint.manifest.run_id != id {
            return Ok(None);
        }
        let model = Model::of(&checkpoint, &app).map_err(|error| format!("{owned} cannot be exported: {error}"))?;
        Ok(Some((checkpoint, model)))
    };
    let read = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?;
    let (checkpoint, model) = read?.ok_or_else(elsewhere)?;
    for (name, value) in checkpoint.manifest.run_config {
        run.parameters.entry(name).or_insert(value);
    }
    match model.npz.len() as u64 {
        0..=MAX_MODEL_BYTES => Ok(model),
        _ => {
            Err(format!("it is larger than {} MiB; `trellis model export` writes it to a file", MAX_MODEL_BYTES >> 20))
        }
    }
}

impl Model {
    fn of(checkpoint: &Checkpoint, app: &str) -> Result<Model, Box<dyn Error>> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("arrays.npz");
        Export { format: Format::Npz, overwrite: false, positional: false }.write(&checkpoint.model, &path)?;
        let npz = std::fs::read(&path)?.into();
        let facts = checkpoint.model.layout.0.iter().map(|slot| ArrayFacts {
            name: slot.name.clone(),
            // numpy has no bfloat16: the export widens it.
            dtype: Some(slot.dtype.name()).filter(|name| *name != "bfloat16").unwrap_or("float32"),
            shape: slot.shape.clone(),
        });
        let arrays: Vec<ArrayFacts> = facts.collect();
        let known = NETWORKS.iter().find(|(name, _)| app.strip_prefix("trellis/") == Some(name));
        let is_there = |name: &str| arrays.iter().any(|array| array.name == name);
        let network =
            known.map(|(_, layers)| *layers).filter(|layers| layers.as_flattened().iter().all(|it| is_there(it)));
        Ok(Model { round: checkpoint.manifest.round, arrays, npz, network })
    }

    /// The files of the model, `MLmodel` last: whoever finds that finds all others.
    pub fn files(&self, run: &str) -> Vec<(&'static str, Bytes)> {
        let network = self.network.map(|layers| (NETWORK, Bytes::from(json!(layers).to_string())));
        let files = [
            Some((ARRAYS, self.npz.clone())),
            network,
            Some(("code/trellis_model.py", Bytes::from_static(LOADER_CODE.as_bytes()))),
            Some(("requirements.txt", Bytes::from_static(REQUIREMENTS.as_bytes()))),
            Some(("MLmodel", Bytes::from(self.mlmodel(run)))),
        ];
        files.into_iter().flatten().collect()
    }

    /// JSON is YAML.
    fn mlmodel(&self, run: &str) -> String {
        let (inputs, outputs) = self.signature();
        let signature = json!({
            "inputs": inputs.map(|inputs| inputs.to_string()),
            "outputs": outputs.to_string(),
            "params": Value::Null,
        });
        let flavor = json!({ "loader_module": LOADER, "data": "data", "code": "code" });
        let model = json!({
            "artifact_path": DIRECTORY,
            "run_id": run,
            "flavors": { "python_function": flavor },
            "signature": signature,
            "metadata": { "trellis.round": self.round, "trellis.version": env!("CARGO_PKG_VERSION") },
        });
        format!("{model:#}\n")
    }

    /// Of `predict`: probabilities of the classes for rows of features, or else the arrays by name.
    fn signature(&self) -> (Option<Value>, Value) {
        let tensor =
            |dtype: &str, shape: Value| json!({ "type": "tensor", "tensor-spec": { "dtype": dtype, "shape": shape } });
        let shape_of =
            |name: &str| self.arrays.iter().find(|array| array.name == name).map(|array| array.shape.clone());
        let ends = self.network.and_then(|layers| Some((shape_of(layers.first()?[0])?, shape_of(layers.last()?[0])?)));
        if let Some((first, last)) = ends
            && let ([_, features], [classes, _]) = (&first[..], &last[..])
        {
            let rows = |of: &usize| json!([tensor("float32", json!([-1, of]))]);
            return (Some(rows(features)), rows(classes));
        }
        let arrays = self.arrays.iter().map(|array| {
            let mut spec = tensor(array.dtype, json!(array.shape));
            spec["name"] = json!(array.name);
            spec
        });
        (None, arrays.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(arrays: &[(&str, &[usize])], network: Option<&'static [[&'static str; 2]]>) -> Model {
        let facts = |(name, shape): &(&str, &[usize])| ArrayFacts {
            name: (*name).to_owned(),
            dtype: "float32",
            shape: shape.to_vec(),
        };
        Model { round: 3, arrays: arrays.iter().map(facts).collect(), npz: Bytes::from_static(b"PK"), network }
    }

    #[test]
    fn a_network_of_ours_predicts_and_other_models_give_their_arrays() {
        let (inputs, outputs) = model(&[("weight", &[10, 64]), ("bias", &[10])], Some(NETWORKS[0].1)).signature();
        let rows = |of: usize| json!([{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, of]}}]);
        assert_eq!((inputs, outputs), (Some(rows(64)), rows(10)));
        let (inputs, outputs) = model(&[("0", &[2, 3])], None).signature();
        let named = json!([{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [2, 3]}, "name": "0"}]);
        assert_eq!((inputs, outputs), (None, named));
    }

    #[test]
    fn the_file_that_names_the_others_comes_last() {
        let names =
            |network| -> Vec<&str> { model(&[], network).files("r").into_iter().map(|(name, _)| name).collect() };
        let expected = ["data/arrays.npz", "code/trellis_model.py", "requirements.txt", "MLmodel"];
        assert_eq!(names(None), expected);
        assert_eq!(names(Some(NETWORKS[1].1))[1], NETWORK);
        let mlmodel: Value = serde_json::from_str(&model(&[], None).mlmodel("r")).unwrap();
        assert_eq!(mlmodel["flavors"]["python_function"]["loader_module"], "trellis_model");
    }

    #[tokio::test]
    async fn a_model_on_another_machine_is_said_to_be_there() {
        let why = read_model("/nowhere/round-000001", &mut RunFacts::default()).await.unwrap_err();
        assert!(why.contains("/nowhere/round-000001 on the machine of the SuperLink"), "{why}");
    }
}
