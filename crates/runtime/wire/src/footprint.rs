//! Computes the memory that a decoded message takes from its encoded form, before decoding.
//!
//! An empty message in a list takes two bytes on the wire and hundreds in memory. With a check after decoding, a sender
//! could choose how much memory the receiver allocates. `build.rs` generates the tables of list fields and their
//! element types from the schema, so no message is missing.

/// Overhead of a heap allocation.
const ALLOCATION_BYTES: u64 = 16;
/// The decoder rejects deeper nesting, too.
const MAX_DEPTH: u32 = 100;
/// Initial capacity of a `Vec`.
const FIRST_ITEMS: u64 = 4;
/// Capacity of a `BTreeMap` node. Every node except the first is at least half full.
const FIRST_ENTRIES: u64 = 11;

/// The fields of a message whose decoded form can exceed their encoded size.
pub struct Shape {
    parts: &'static [Part],
}

struct Part {
    number: u64,
    element: Element,
    content: Content,
}

/// The location of the decoded field.
enum Element {
    /// Inline in its message.
    Inline,
    /// In a list, with this many bytes per element.
    Item(usize),
    /// In a map, with this many bytes per entry.
    Entry(usize),
}

enum Content {
    Message(&'static Shape),
    Text,
    /// A slice of the received bytes, not a copy.
    Slice,
    /// Encoded size in bytes; 0 for varints.
    Numbers {
        width: usize,
    },
}

/// Messages whose footprint can be computed.
pub trait Shaped {
    fn shape() -> &'static Shape;
}

include!(concat!(env!("OUT_DIR"), "/shapes.rs"));

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message cannot be read")]
pub struct Malformed;

/// Heap bytes that decoding `message` allocates, without the message itself. Stops early above `limit`.
pub fn footprint<M: Shaped>(message: &[u8], limit: u64) -> Result<u64, Malformed> {
    let mut count = Count { bytes: 0, limit };
    count.message(M::shape(), message, 0)?;
    Ok(count.bytes)
}

struct Count {
    bytes: u64,
    limit: u64,
}

impl Count {
    fn message(&mut self, shape: &Shape, message: &[u8], depth: u32) -> Result<(), Malformed> {
        if depth > MAX_DEPTH {
            return Err(Malformed);
        }
        let mut lengths = [0; MAX_PARTS];
        let mut rest = message;
        while !rest.is_empty() && self.bytes <= self.limit {
            let key = varint(&mut rest)?;
            let content = match key & 7 {
                0 => {
                    varint(&mut rest)?;
                    None
                }
                1 => take(&mut rest, 8).map(|_| None)?,
                2 => {
                    let length = varint(&mut rest)?;
                    Some(take(&mut rest, usize::try_from(length).map_err(|_| Malformed)?)?)
                }
                5 => take(&mut rest, 4).map(|_| None)?,
                // Groups: Flower's schemas have none.
                _ => return Err(Malformed),
            };
            if let Some(index) = shape.parts.iter().position(|part| part.number == key >> 3) {
                self.part(&shape.parts[index], content, &mut lengths[index], depth)?;
            }
        }
        Ok(())
    }

    fn part(&mut self, part: &Part, content: Option<&[u8]>, length: &mut u64, depth: u32) -> Result<(), Malformed> {
        let before = *length;
        *length += match (&part.content, content) {
            (Content::Numbers { width: 0 }, Some(packed)) => packed.iter().filter(|byte| **byte < 0x80).count() as u64,
            (Content::Numbers { width }, Some(packed)) => (packed.len() / width) as u64,
            _ => 1,
        };
        self.bytes += match part.element {
            Element::Inline => 0,
            Element::Item(bytes) => grown(before, *length, FIRST_ITEMS) * bytes as u64,
            Element::Entry(bytes) => 2 * grown(before, *length, FIRST_ENTRIES) * bytes as u64,
        };
        match (&part.content, content) {
            (Content::Message(shape), Some(inner)) => self.message(shape, inner, depth + 1)?,
            (Content::Text, Some(text)) if !text.is_empty() => self.bytes += text.len() as u64 + ALLOCATION_BYTES,
            _ => {}
        }
        Ok(())
    }
}

/// Growth of the capacity of a list that grows from `before` to `after` elements.
fn grown(before: u64, after: u64, first: u64) -> u64 {
    let capacity = |length: u64| if length == 0 { 0 } else { length.next_power_of_two().max(first) };
    capacity(after) - capacity(before)
}

fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(Malformed)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, after) = rest.split_at_checked(length).ok_or(Malformed)?;
    *rest = after;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::*;

    fn of<M: Shaped + prost::Message>(message: &M) -> (u64, u64) {
        let bytes = message.encode_to_vec();
        (footprint::<M>(&bytes, u64::MAX).unwrap(), bytes.len() as u64)
    }

    #[test]
    fn empty_elements_count_with_their_memory() {
        let (memory, wire) =
            of(&PushMessagesRequest { messages_list: vec![Message::default(); 1000], ..Default::default() });
        assert_eq!((memory, wire), (1024 * size_of::<Message>() as u64, 2000));
        let leaf = ObjectTree { object_id: String::new(), children: vec![ObjectTree::default()] };
        let (memory, wire) =
            of(&PushTaskMessagesRequest { message_object_trees: vec![leaf; 1000], ..Default::default() });
        assert_eq!((memory, wire), ((1024 + 4 * 1000) * size_of::<ObjectTree>() as u64, 4000));
        let (memory, _) = of(&GetRunStatusRequest { run_ids: vec![1; 1000], ..Default::default() });
        assert_eq!(memory, 1024 * 8);
        let (memory, _) = of(&PullAppMessagesRequest { message_ids: vec![String::new(); 1000], ..Default::default() });
        assert_eq!(memory, 1024 * size_of::<String>() as u64);
        let config = (0..100u32).map(|n| (n.to_string(), Scalar::default())).collect();
        let (memory, _) = of(&StartRunRequest { override_config: config, ..Default::default() });
        assert!(memory > 100 * size_of::<(String, Scalar)>() as u64, "{memory}");
    }

    #[test]
    fn usual_messages_take_less_than_three_times_their_bytes() {
        let id = "0123456789abcdef".repeat(4);
        let leaf = ObjectTree { object_id: id.clone(), children: vec![] };
        let tree = ObjectTree { object_id: id.clone(), children: vec![leaf; 5] };
        let metadata = Metadata {
            run_id: 1 << 63,
            message_id: id.clone(),
            dst_node_id: 1 << 63,
            message_type: "train".to_owned(),
            ttl: 1.0,
            created_at: 1.0,
            ..Default::default()
        };
        let message = Message { metadata: Some(metadata), content: Some(RecordDict::default()), error: None };
        let (memory, wire) = of(&PushAppMessagesRequest {
            messages_list: vec![message; 1025],
            message_object_trees: vec![tree; 1025],
            ..Default::default()
        });
        assert!(memory < 3 * wire, "{memory} for {wire}");
        let data = bytes::Bytes::from(vec![0; 1 << 20]);
        let array = record_array(data);
        let (memory, wire) = of(&PushTaskOutputRequest {
            context: Some(Context { state: Some(array), ..Default::default() }),
            ..Default::default()
        });
        assert!(memory < wire / 100, "{memory}: content must be a slice of the received bytes");
    }

    fn record_array(data: bytes::Bytes) -> RecordDict {
        let array = Array { dtype: "float32".to_owned(), shape: vec![512, 512], stype: "numpy".to_owned(), data };
        let item = array_record::Item { key: "w".to_owned(), value: Some(array) };
        let record = ArrayRecord { items: vec![item] };
        let value = Some(record_dict::item::Value::ArrayRecord(record));
        RecordDict { items: vec![record_dict::Item { key: "arrays".to_owned(), value }] }
    }

    #[test]
    fn counting_stops_at_the_limit_and_at_malformed_bytes() {
        let bytes = PushMessagesRequest { messages_list: vec![Message::default(); 1000], ..Default::default() };
        let bytes = bytes.encode_to_vec();
        let counted = footprint::<PushMessagesRequest>(&bytes, 100).unwrap();
        assert!(counted > 100 && counted <= 4 * size_of::<Message>() as u64);
        for bad in [&b"\x12"[..], b"\x12\x05a", b"\x13", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"] {
            assert_eq!(footprint::<PushMessagesRequest>(bad, u64::MAX), Err(Malformed), "{bad:?}");
        }
        let mut deep = Vec::new();
        for _ in 0..MAX_DEPTH + 1 {
            let mut outer = vec![0x12];
            prost::encoding::encode_varint(deep.len() as u64, &mut outer);
            outer.append(&mut deep);
            deep = outer;
        }
        assert_eq!(footprint::<ObjectTree>(&deep, u64::MAX), Err(Malformed));
    }
}
