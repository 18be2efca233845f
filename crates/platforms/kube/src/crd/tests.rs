use serde_json::Value;

use super::*;

fn schema(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

/// Every schema below, with its path.
fn walk<'a>(schema: &'a Value, path: &str, see: &mut dyn FnMut(&str, &'a Value)) {
    see(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        walk(field, &format!("{path}.{name}"), see);
    }
    for (part, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[part].is_object() {
            walk(&schema[part], &format!("{path}{mark}"), see);
        }
    }
}

#[test]
fn definitions_fit_into_the_annotation_of_client_side_apply() {
    for definition in all() {
        let bytes = definition.to_string().len();
        let name = &definition["metadata"]["name"];
        println!("{name}: {bytes} bytes");
        assert!(
            bytes < 200_000,
            "{name} has {bytes} bytes; the annotation may have {MAX_BYTES}, of which users need some"
        );
    }
}

#[test]
fn references_are_filled_in() {
    for definition in all() {
        walk(schema(&definition), "", &mut |path, schema| {
            assert!(schema.get("$ref").is_none(), "{path} refers");
            let typed = schema["type"].is_string();
            let any =
                schema["x-kubernetes-preserve-unknown-fields"] == true || schema["x-kubernetes-int-or-string"] == true;
            assert!(typed || any, "{path} has no type and does not accept any value");
        });
    }
}

#[test]
fn items_of_lists_by_key_have_their_keys() {
    for definition in all() {
        walk(schema(&definition), "", &mut |path, schema| {
            for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
                let items = &schema["items"];
                let required = items["required"].as_array().is_some_and(|all| all.contains(key));
                let default = items["properties"][key.as_str().expect("text")].get("default");
                assert!(required || default.is_some(), "{path}: {key}");
            }
        });
    }
}

/// Descriptions for `kubectl explain`; Kubernetes describes its core types.
#[test]
fn fields_of_ours_are_described() {
    let core = ["podTemplate", "env", "volumes", "volumeMounts", "superexecVolumeMounts", "clients"];
    for definition in all() {
        walk(schema(&definition), "", &mut |path, schema| {
            let inside = |part: &&str| path.contains(&format!(".{part}.")) || path.contains(&format!(".{part}[]"));
            let inside_core =
                core.iter().any(inside) || path.contains("esources.") || path.contains("volumeClaimTemplates[].spec");
            if !path.starts_with(".metadata") && !inside_core && !path.ends_with("{}") && !path.ends_with("[]") {
                assert!(schema["description"].is_string(), "{path} is not described");
            }
        });
    }
}

#[test]
fn embedded_pod_templates_require_nothing_and_keep_their_metadata() {
    let definition = federation();
    let spec = &schema(&definition)["properties"]["spec"]["properties"];
    let pool = &spec["supernodes"]["properties"]["pools"]["items"]["properties"];
    for template in [&spec["superlink"]["properties"]["podTemplate"], &pool["podTemplate"]] {
        let template = &template["properties"];
        assert!(template["spec"].get("required").is_none(), "{}", template["spec"]["required"]);
        assert_eq!(template["metadata"]["properties"]["labels"]["additionalProperties"]["type"], "string");
        assert_eq!(template["spec"]["properties"]["containers"]["x-kubernetes-list-map-keys"][0], "name");
    }
}

/// A value for every field.
fn sample(schema: &Value) -> Value {
    if let Some(fields) = schema["properties"].as_object() {
        return fields
            .iter()
            .map(|(name, field)| (name.clone(), sample(field)))
            .collect::<serde_json::Map<_, _>>()
            .into();
    }
    match schema["type"].as_str() {
        Some("string") if schema["enum"].is_array() => schema["enum"][0].clone(),
        Some("string") => "text".into(),
        Some("boolean") => true.into(),
        Some("integer") => 7.into(),
        Some("number") => 0.5.into(),
        Some("array") => vec![sample(&schema["items"])].into(),
        Some("object") if schema["additionalProperties"].is_object() => {
            json!({ "key": sample(&schema["additionalProperties"]) })
        }
        Some("object") => json!({}),
        _ => "20%".into(),
    }
}

fn there_and_back<T: serde::Serialize + serde::de::DeserializeOwned>(value: &Value) -> Value {
    let read: T = serde_json::from_value(value.clone()).expect("our types take what our schema allows");
    serde_json::to_value(read).expect("JSON")
}

/// A field of the schema that the parser ignores would have no effect.
#[test]
fn schemas_and_types_have_the_same_fields() {
    let (federation, run) = (federation(), federation_run());
    let spec = sample(&schema(&federation)["properties"]["spec"]);
    assert_eq!(there_and_back::<crate::federation::Spec>(&spec), spec);
    let spec = sample(&schema(&run)["properties"]["spec"]);
    assert_eq!(there_and_back::<crate::run::RunSpec>(&spec), spec);
    let status = sample(&schema(&run)["properties"]["status"]);
    assert_eq!(there_and_back::<crate::run::RunStatus>(&status), status);
}

/// Checked in for installations without the program. `UPDATE_GOLDENS=1` writes it.
#[test]
fn the_files_in_deploy_are_of_these_definitions() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/crd");
    for definition in all() {
        let file = directory.join(format!("{}.yaml", definition["metadata"]["name"].as_str().expect("a name")));
        let text = trellis_spec::yaml::document(&definition);
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::create_dir_all(&directory).expect("a directory");
            std::fs::write(&file, text).expect("written");
        } else {
            let there = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(
                there == text,
                "{} is of another definition: UPDATE_GOLDENS=1 cargo test -p trellis-kube",
                file.display()
            );
        }
    }
}
