//! The OpenAPI document, from the table of routes and the shapes of the API. Checked in as docs/api/openapi.json.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use http::Method;
use serde_json::{Map, Value, json};
use trellis_api::{PROBLEM_JSON, Problem, Role};

use super::about::VERSION;
use super::call::{BYTES, JSON};
use super::events::EVENT_STREAM;
use super::fault::Kind;
use super::query::Parameter;
use super::route::{BASE, Content, Described, Given, Route, Shape, Takes, of};
use super::routes::ROUTES;

const ABOUT: &str = "\
Federations, their nodes and runs. Every call needs a token: `Authorization: Bearer TOKEN`. What a role may, those above it may \
too: viewer, runner, admin. Refusals are problem documents (RFC 9457) whose `type` programs can act on. Ids of runs and nodes \
are text. Times are seconds since 1970, unless a name ends with `_ms`.";
/// The names of federations, pools and tokens in addresses; what they must look like is for those who make them.
const PART: &str = "^[^/]+$";

/// The document as it is served and checked in.
pub fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| format!("{:#}\n", document()))
}

fn document() -> Value {
    let mut shapes = Shapes::default();
    shapes.add(of::<Problem>());
    shapes.0.insert("FederationDocument".to_owned(), federation_document());
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(route, &mut shapes);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Trellis", "version": VERSION, "description": ABOUT, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "servers": [{"url": BASE}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": shapes.0,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

/// What is referred to, by name.
#[derive(Default)]
struct Shapes(BTreeMap<String, Value>);

impl Shapes {
    fn add(&mut self, described: Described) -> Value {
        self.0.extend(described.parts.into_iter().map(|(name, schema)| (name.into_owned(), schema)));
        described.schema
    }
}

/// The schema of documents, without the lines that make it a file of its own.
fn federation_document() -> Value {
    let mut schema = trellis_spec::schema();
    if let Some(fields) = schema.as_object_mut() {
        fields.retain(|name, _| !name.starts_with('$'));
    }
    schema
}

fn operation(route: &Route, shapes: &mut Shapes) -> Value {
    let parts = route.parts().map(|name| {
        json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1, "pattern": PART}})
    });
    let query = route.query.iter().map(|parameter| optional("query", parameter));
    let headers = route.headers.iter().map(|parameter| optional("header", parameter));
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.about,
        "description": format!("For the role {}.", route.role.name()),
        "tags": [route.path.split('/').nth(1).unwrap_or_default()],
        "parameters": parts.chain(query).chain(headers).collect::<Vec<_>>(),
        "responses": responses(route, shapes),
    });
    if let Some(content) = taken(route.takes, shapes) {
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

fn optional(place: &str, parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "in": place,
        "required": false,
        "description": parameter.about,
        "schema": parameter.form.schema(),
    })
}

fn taken(takes: Takes, shapes: &mut Shapes) -> Option<Value> {
    match takes {
        Takes::Nothing => None,
        Takes::Document => Some(json!({
            "application/yaml": {"schema": {"type": "string", "description": "The document as YAML."}},
            JSON: {"schema": {"$ref": "#/components/schemas/FederationDocument"}},
        })),
        Takes::Json { shape, .. } => Some(json!({JSON: {"schema": shapes.add(shape())}})),
    }
}

fn responses(route: &Route, shapes: &mut Shapes) -> Value {
    let mut responses = Map::new();
    for given in route.gives {
        responses.insert(given.status.to_string(), good(given, shapes));
    }
    let refusals = refusals(route);
    for kind in &refusals {
        let words: Vec<String> = refusals
            .iter()
            .filter(|other| other.status == kind.status)
            .map(|other| format!("{} (`urn:trellis:{}`).", other.title, other.word))
            .collect();
        let schema = json!({"$ref": "#/components/schemas/Problem"});
        let response = json!({"description": words.join(" "), "content": {PROBLEM_JSON: {"schema": schema}}});
        responses.insert(kind.status.as_u16().to_string(), response);
    }
    Value::Object(responses)
}

fn good(given: &Given, shapes: &mut Shapes) -> Value {
    let mut response = json!({"description": given.about});
    let content = match given.content {
        Content::Nothing => None,
        Content::Json(of) => Some((JSON, either(of, shapes))),
        Content::Object => Some((JSON, json!({"type": "object"}))),
        Content::File => Some((BYTES, json!({"type": "string", "format": "binary"}))),
        Content::Events(of) => {
            shapes.add(of());
            Some((EVENT_STREAM, json!({"type": "string", "description": "The data of each is an Event."})))
        }
    };
    if let Some((media_type, schema)) = content {
        response["content"] = json!({media_type: {"schema": schema}});
    }
    if given.tagged {
        let about = "The revision of the document, for If-Match.";
        response["headers"] = json!({"ETag": {"description": about, "required": false, "schema": {"type": "string"}}});
    }
    response
}

fn either(of: &[Shape], shapes: &mut Shapes) -> Value {
    let mut schemas: Vec<Value> = of.iter().map(|shape| shapes.add(shape())).collect();
    if schemas.len() == 1 { schemas.remove(0) } else { json!({"anyOf": schemas}) }
}

/// What a route may refuse with: what it says, and what follows from what it is.
pub fn refusals(route: &Route) -> Vec<Kind> {
    let mut kinds =
        vec![Kind::MALFORMED, Kind::UNKNOWN_CALLER, Kind::METHOD, Kind::WRONG_HOST, Kind::TOO_MANY, Kind::BROKEN];
    if route.role > Role::Viewer {
        kinds.push(Kind::FORBIDDEN);
    }
    if route.parts().next().is_some() {
        kinds.push(Kind::NOT_FOUND);
    }
    if !matches!(route.takes, Takes::Nothing) {
        kinds.extend([Kind::TOO_SLOW, Kind::TOO_LARGE, Kind::MEDIA_TYPE, Kind::INVALID]);
    }
    if route.method == Method::POST && !route.headers.is_empty() {
        kinds.extend([Kind::UNDER_WAY, Kind::KEY_REUSED, Kind::REFUSED]);
    }
    kinds.extend(route.refuses.iter().filter(|kind| !kinds.contains(kind)).copied().collect::<Vec<_>>());
    kinds
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    fn docs(file: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(file)
    }

    #[test]
    fn the_document_is_checked_in() {
        let path = docs("api/openapi.json");
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::write(&path, text()).expect("the document is written");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == text(),
            "docs/api/openapi.json is of another API: UPDATE_GOLDENS=1 cargo test -p trellis-server"
        );
    }

    #[test]
    fn every_reference_has_something_behind_it() {
        fn references(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    fields.values().for_each(|field| references(field, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("references stay in the document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn names_of_calls_and_kinds_are_used_once() {
        let calls: BTreeSet<_> = ROUTES.iter().map(|route| route.id).collect();
        assert_eq!(calls.len(), ROUTES.len());
        let kinds: BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.word).collect();
        assert_eq!(kinds.len(), Kind::ALL.len());
    }

    #[test]
    fn the_page_about_the_api_has_every_route_and_every_kind_of_refusal() {
        let page = std::fs::read_to_string(docs("api.md")).expect("docs/api.md is there");
        for route in ROUTES {
            let words = format!("`{} {}`", route.method, route.path);
            assert!(page.contains(&words), "docs/api.md says nothing of {words}");
        }
        for kind in Kind::ALL {
            assert!(page.contains(&format!("`{}`", kind.word)), "docs/api.md says nothing of {}", kind.word);
        }
    }
}
