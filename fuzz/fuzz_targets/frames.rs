//! Any bytes as the body of a call: a gRPC frame, an object that is pushed, and every message that a node or a stranger may
//! send.
//!
//! Nothing may panic, nothing may wait for bytes that do not come, and whatever is decoded was counted before.
#![no_main]

use std::sync::OnceLock;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use tokio::runtime::{Builder, Runtime};
use trellis_front::object::{PushedObject, read_pull};
use trellis_front::{MessageReader, decode};
use trellis_wire::footprint::{Shaped, footprint};
use trellis_wire::proto::*;

fuzz_target!(|data: &[u8]| {
    let Some((choice, body)) = data.split_first() else { return };
    check_messages(*choice, body);
    let cut = usize::from(*choice) * body.len() / 256;
    runtime().block_on(check_frames(body, cut));
});

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_current_thread().enable_time().build().expect("a runtime"))
}

async fn check_frames(body: &[u8], cut: usize) {
    let frame = [&[0][..], &(body.len() as u32).to_be_bytes(), body].concat();
    for bytes in [body.to_vec(), frame] {
        let pieces = || {
            let (first, rest) = bytes.split_at(cut.min(bytes.len()));
            [Bytes::copy_from_slice(first), Bytes::new(), Bytes::copy_from_slice(rest)]
        };
        if let Ok(mut reader) = MessageReader::grpc_pieces(pieces()).await {
            let announced = reader.left();
            if let Ok(whole) = reader.whole().await {
                assert_eq!(whole.len() as u64, announced);
            }
        }
        if let Ok(reader) = MessageReader::grpc_pieces(pieces()).await {
            let _ = read_pull(reader).await;
        }
        let Ok(reader) = MessageReader::grpc_pieces(pieces()).await else { continue };
        let Ok(mut pushed) = PushedObject::read(reader).await else { continue };
        let (mut came, announced) = (0, pushed.bytes);
        while let Ok(Some(piece)) = pushed.piece().await {
            came += piece.len() as u64;
        }
        assert!(came <= announced);
    }
}

fn check_messages(choice: u8, body: &[u8]) {
    match choice % 8 {
        0 => check::<PushMessagesRequest>(body),
        1 => check::<PushTaskMessagesRequest>(body),
        2 => check::<PushAppMessagesRequest>(body),
        3 => check::<PushTaskOutputRequest>(body),
        4 => check::<StartRunRequest>(body),
        5 => check::<GetRunStatusRequest>(body),
        6 => check::<AcquireTaskRequest>(body),
        _ => check::<RegisterNodeFleetRequest>(body),
    }
}

fn check<M: Message + Default + Shaped>(body: &[u8]) {
    let Ok(message) = decode::<M>(Bytes::copy_from_slice(body)) else { return };
    // What was decoded was counted: its shortest form takes no more, but for lists that came in parts.
    let short = message.encode_to_vec();
    let counted = |bytes: &[u8]| footprint::<M>(bytes, u64::MAX);
    if let (Ok(came), Ok(shortest)) = (counted(body), counted(&short)) {
        assert!(shortest <= 2 * came, "{shortest} > 2 * {came}");
    }
}
