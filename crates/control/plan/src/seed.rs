//! Pseudo-random numbers (splitmix64): the same seed gives the same numbers on every machine.

#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A generator for `text` alone, independent of all others.
    pub fn of(seed: u64, text: &str) -> Random {
        let fold = |hash: u64, byte: u8| (hash.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Random(text.bytes().fold(seed, fold))
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `min` to `max`, both included.
    pub fn between(&mut self, min: u64, max: u64) -> u64 {
        min + self.number() % (max - min + 1)
    }

    /// True in this many cases of a thousand.
    pub fn permille(&mut self, permille: u32) -> bool {
        self.number() % 1000 < u64::from(permille)
    }
}
