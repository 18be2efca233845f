//! Records and arrays against what the official package and numpy made, and against what must be refused.

mod messages;
mod npy;
mod state;

fn unhex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
