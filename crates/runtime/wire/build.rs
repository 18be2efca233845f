//! Compiles the schema files with a compiler written in Rust, so that no `protoc` is needed.

use std::fmt::Write as _;
use std::path::Path;

use protox::prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let schemas = ["clientappio.proto", "control.proto", "fleet.proto", "runtime.proto", "serverappio.proto"];
    let files = protox::compile(schemas, ["proto"])?;
    let pool = DescriptorPool::from_file_descriptor_set(files.clone())?;
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("shapes.rs"), shapes(&pool)?)?;
    // Messages only: the front ends implement the services over gRPC and HTTP themselves.
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .build_server(false)
        .build_transport(false)
        .compile_fds(files)?;
    Ok(())
}

/// Generates the tables of `footprint.rs`: for each message, the fields whose decoded form can exceed their encoded
/// size.
fn shapes(pool: &DescriptorPool) -> Result<String, std::fmt::Error> {
    let mut code = String::new();
    let mut max_parts = 0;
    for message in pool.all_messages() {
        let (name, parts) = (static_name(&message), parts(&message));
        max_parts = max_parts.max(parts.len());
        let parts = parts.join(", ");
        writeln!(code, "static {name}: Shape = Shape {{ parts: &[{parts}] }};")?;
        if !message.is_map_entry() {
            let path = rust_path(&message);
            writeln!(code, "impl Shaped for {path} {{ fn shape() -> &'static Shape {{ &{name} }} }}")?;
        }
    }
    writeln!(code, "const MAX_PARTS: usize = {max_parts};")?;
    Ok(code)
}

fn parts(message: &MessageDescriptor) -> Vec<String> {
    let mut parts = Vec::new();
    for field in message.fields() {
        let number = field.number();
        let content = match field.kind() {
            Kind::Message(inner) => format!("Content::Message(&{})", static_name(&inner)),
            Kind::String => "Content::Text".to_owned(),
            Kind::Bytes => "Content::Slice".to_owned(),
            kind => format!("Content::Numbers {{ width: {} }}", width(&kind)),
        };
        let element = match field.kind() {
            Kind::Message(entry) if field.is_map() => {
                let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
                format!("Element::Entry(size_of::<({}, {})>())", memory_type(&key), memory_type(&value))
            }
            _ if field.is_list() => format!("Element::Item(size_of::<{}>())", memory_type(&field)),
            // A single number or slice is stored inline in its message and needs no further memory.
            Kind::Message(_) | Kind::String => "Element::Inline".to_owned(),
            _ => continue,
        };
        parts.push(format!("Part {{ number: {number}, element: {element}, content: {content} }}"));
    }
    parts
}

/// Encoded size of a number in bytes; 0 for a varint.
fn width(kind: &Kind) -> usize {
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => 8,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => 4,
        _ => 0,
    }
}

fn memory_type(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(message) => rust_path(&message),
        Kind::String => "String".to_owned(),
        Kind::Bytes => "bytes::Bytes".to_owned(),
        Kind::Bool => "bool".to_owned(),
        Kind::Int32 | Kind::Uint32 | Kind::Sint32 | Kind::Fixed32 | Kind::Sfixed32 | Kind::Float | Kind::Enum(_) => {
            "u32".to_owned()
        }
        _ => "u64".to_owned(),
    }
}

/// Converts `flwr.proto.RecordDict.Item` to `crate::proto::record_dict::Item`.
fn rust_path(message: &MessageDescriptor) -> String {
    match message.parent_message() {
        Some(parent) => format!("{}::{}", rust_module(&parent), message.name()),
        None => format!("crate::proto::{}", message.name()),
    }
}

fn rust_module(message: &MessageDescriptor) -> String {
    match message.parent_message() {
        Some(parent) => format!("{}::{}", rust_module(&parent), snake(message.name())),
        None => format!("crate::proto::{}", snake(message.name())),
    }
}

fn static_name(message: &MessageDescriptor) -> String {
    message.full_name().split('.').map(snake).collect::<Vec<_>>().join("__").to_uppercase()
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
