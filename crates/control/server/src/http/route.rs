//! What a route is. The table of them, `routes`, is all that the API serves: the router, the checks before a handler and the
//! OpenAPI document are made from it.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::Method;
use serde_json::{Map, Value};
use trellis_api::Role;
use utoipa::ToSchema;

use super::Api;
use super::call::{Answer, Call};
use super::fault::Kind;
use super::query::Parameter;

/// Everything is below this.
pub const BASE: &str = "/api/v1";

pub type Handler = fn(Arc<Api>, Call) -> BoxFuture<'static, Answer>;

pub struct Route {
    pub method: Method,
    /// Below [`BASE`].
    pub path: &'static str,
    /// The lowest that may.
    pub role: Role,
    /// For programs that are made from the OpenAPI document.
    pub id: &'static str,
    pub about: &'static str,
    pub query: &'static [Parameter],
    pub headers: &'static [Parameter],
    pub takes: Takes,
    pub gives: &'static [Given],
    /// What it may refuse with, beside what follows from the rest of this.
    pub refuses: &'static [Kind],
    pub handler: Handler,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub enum Takes {
    Nothing,
    /// A Federation document.
    Document,
    Json {
        shape: Shape,
        most_bytes: usize,
    },
}

/// The answer when all went well.
pub struct Given {
    pub status: u16,
    pub about: &'static str,
    pub content: Content,
    /// It has an `ETag`: the revision of the document.
    pub tagged: bool,
}

#[derive(Clone, Copy)]
pub enum Content {
    Nothing,
    /// One of these shapes.
    Json(&'static [Shape]),
    /// Any JSON object.
    Object,
    /// The bytes of a file.
    File,
    /// Server-sent events, each of this shape.
    Events(Shape),
}

/// A type of the API: how it is named and described, with all that it refers to.
pub type Shape = fn() -> Described;

pub struct Described {
    pub schema: Value,
    pub parts: Vec<(Cow<'static, str>, Value)>,
}

/// A type by a reference to it.
pub fn of<T: ToSchema>() -> Described {
    let mut parts = Vec::new();
    T::schemas(&mut parts);
    parts.push((T::name().into_owned(), T::schema()));
    let parts = parts
        .into_iter()
        .map(|(name, schema)| (Cow::Owned(name), loosened(serde_json::to_value(schema).unwrap_or_default())))
        .collect();
    Described { schema: serde_json::json!({"$ref": format!("#/components/schemas/{}", T::name())}), parts }
}

/// A choice between types is told as `oneOf`, which 1 does not pass where both integers and numbers are good.
fn loosened(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let any = |name: String| if name == "oneOf" { "anyOf".to_owned() } else { name };
            fields.into_iter().map(|(name, value)| (any(name), loosened(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.into_iter().map(loosened).collect(),
        other => other,
    }
}

/// A list of a type, in a page or whole.
pub fn list_of<T: ToSchema>() -> Described {
    let one = of::<T>();
    Described { schema: serde_json::json!({"type": "array", "items": one.schema}), parts: one.parts }
}

pub fn page_of<T: ToSchema>() -> Described {
    let mut one = of::<T>();
    let name = format!("{}Page", T::name());
    let schema = serde_json::json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {"type": "array", "items": one.schema},
            "next": {"type": "string", "description": "Where the next page begins; none: this was all."},
        },
    });
    one.parts.push((Cow::Owned(name.clone()), schema));
    Described { schema: serde_json::json!({"$ref": format!("#/components/schemas/{name}")}), parts: one.parts }
}

impl Route {
    pub fn template(&self) -> String {
        format!("{BASE}{}", self.path)
    }

    /// What stands between braces in the path.
    pub fn parts(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }
}
