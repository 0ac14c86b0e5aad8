//! Values that are kept once and named by small numbers: a state of a model is a few numbers, and
//! equal numbers mean equal values, exactly, not by a fingerprint.

use std::hash::{BuildHasherDefault, Hash, Hasher};

use indexmap::IndexSet;

/// A hasher for small keys. Chance hits cost time only: sets compare the values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fast(u64);

/// How sets and maps of the checker hash.
pub type FastBuild = BuildHasherDefault<Fast>;

impl Fast {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Fast {
    fn finish(&self) -> u64 {
        // The upper bits are the good ones, and tables look at the lower ones too.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            self.mix(word);
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }
}

/// Values, each once.
#[derive(Debug)]
pub struct Pool<T>(IndexSet<T, FastBuild>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(IndexSet::default())
    }
}

impl<T: Eq + Hash> Pool<T> {
    /// The number of a value.
    pub fn put(&mut self, value: T) -> u32 {
        let (number, _) = self.0.insert_full(value);
        debug_assert!(u32::try_from(number).is_ok(), "no model has that many values");
        number as u32
    }

    /// The value with this number.
    pub fn get(&self, number: u32) -> &T {
        &self.0[number as usize]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_number_and_others_another() {
        let mut pool = Pool::default();
        let one = pool.put("one".to_owned());
        let two = pool.put("two".to_owned());
        assert_eq!(pool.put("one".to_owned()), one);
        assert_ne!(one, two);
        assert_eq!((pool.get(two).as_str(), pool.len()), ("two", 2));
    }
}
