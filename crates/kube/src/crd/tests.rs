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
            "{name} has {bytes} bytes; the annotation may have {MOST_BYTES}, of which users need some"
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
            assert!(typed || any, "{path} says nothing of what it is");
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

/// Ours, so that `kubectl explain` helps; core types are Kubernetes' own to explain.
#[test]
fn fields_of_ours_are_described() {
    let core = ["podTemplate", "env", "volumes", "volumeMounts", "superexecVolumeMounts", "clients"];
    for definition in all() {
        walk(schema(&definition), "", &mut |path, schema| {
            let inside = |part: &&str| path.contains(&format!(".{part}.")) || path.contains(&format!(".{part}[]"));
            let inside_core = core.iter().any(|part| inside(part))
                || path.contains("esources.")
                || path.contains("volumeClaimTemplates[].spec");
            if path != ".metadata" && !inside_core && !path.ends_with("{}") && !path.ends_with("[]") {
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
