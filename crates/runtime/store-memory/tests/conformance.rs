//! The store in memory keeps the port's word.

use std::sync::mpsc::channel;

use trellis_core::conformance::{Subject, suite};
use trellis_core::port::Commit;
use trellis_store_memory::MemoryStore;

#[test]
fn a_store_in_memory_keeps_the_ports_word() {
    for (name, case) in suite() {
        println!("case: {name}"); // Shown when the case panics.
        let (announce, announced) = channel();
        let store = MemoryStore::open(
            u64::MAX,
            Box::new(move |commit: &Commit<'_>| {
                let _ = announce.send(commit.topics.to_vec());
            }),
        );
        case(&Subject { store: &store.expect("a thread starts"), announced: &announced });
    }
}
