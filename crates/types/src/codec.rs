//! The encoding of single values as stored bytes: little-endian integers, LEB128 varints, length-prefixed bytes.
//!
//! [`Decoder`] never panics and never allocates more than the input holds: its input may come from a damaged disk.

use crate::{Error, Result};

/// Appends values to a buffer.
#[derive(Debug, Default)]
pub struct Encoder {
    pub bytes: Vec<u8>,
}

impl Encoder {
    pub fn new() -> Self {
        Encoder::default()
    }

    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.u64(value as u64);
    }

    pub fn i128(&mut self, value: i128) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn f64(&mut self, value: f64) {
        self.u64(value.to_bits());
    }

    /// Appends an unsigned LEB128: seven bits a byte, lowest first.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Appends a varint length, then the bytes.
    pub fn blob(&mut self, value: &[u8]) {
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    pub fn str(&mut self, value: &str) {
        self.blob(value.as_bytes());
    }

    /// Appends 0, or 1 and the value.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Appends a varint count, then each item.
    pub fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.varint(items.len() as u64);
        for item in items {
            write(self, item);
        }
    }
}

/// Takes values off the front of a slice. Every method fails with [`crate::Kind::Damaged`] if the bytes do not hold
/// the requested value.
#[derive(Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes, len: bytes.len() }
    }

    /// Returns the bytes not yet taken.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the number of bytes taken so far.
    pub fn position(&self) -> usize {
        self.len - self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Fails if any bytes are left: the stored value is longer than the decoder expected.
    pub fn finish(&self) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.damaged(format!("{} bytes follow where the value should end", self.rest.len())))
    }

    pub fn damaged(&self, what: impl Into<String>) -> Error {
        Error::damaged(what).with("at byte", self.position())
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(self.damaged(format!("{count} bytes expected, {} found", self.rest.len())));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn bool(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.damaged(format!("0 or 1 expected, {other} found"))),
        }
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64> {
        Ok(self.u64()? as i64)
    }

    pub fn i128(&mut self) -> Result<i128> {
        Ok(i128::from_le_bytes(self.array()?))
    }

    pub fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_bits(self.u64()?))
    }

    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number longer than 64 bits"))
    }

    /// Takes a varint that must fit 32 bits.
    pub fn varint32(&mut self) -> Result<u32> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| self.damaged(format!("{value} does not fit 32 bits")))
    }

    /// Takes a varint that counts items of at least one byte each. It cannot exceed the number of bytes left.
    pub fn count(&mut self) -> Result<usize> {
        let count = self.varint()?;
        if count > self.rest.len() as u64 {
            return Err(self.damaged(format!("{count} items announced, {} bytes left", self.rest.len())));
        }
        Ok(count as usize)
    }

    pub fn blob(&mut self) -> Result<&'a [u8]> {
        let len = self.count()?;
        self.take(len)
    }

    pub fn str(&mut self) -> Result<&'a str> {
        let bytes = self.blob()?;
        std::str::from_utf8(bytes).map_err(|_| self.damaged("text that is not UTF-8"))
    }

    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    pub fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.count()?;
        let mut items = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded() {
        let mut e = Encoder::new();
        for v in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            e.varint(v);
        }
        e.str("größe");
        e.option(Some(-5), Encoder::i64);
        e.option(None::<i64>, Encoder::i64);
        e.list(&[1.5, f64::NAN], |e, v| e.f64(*v));
        let mut d = Decoder::new(&e.bytes);
        for v in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(d.varint().unwrap(), v);
        }
        assert_eq!(d.str().unwrap(), "größe");
        assert_eq!(d.option(Decoder::i64).unwrap(), Some(-5));
        assert_eq!(d.option(Decoder::i64).unwrap(), None);
        let floats = d.list(Decoder::f64).unwrap();
        assert_eq!(floats[0], 1.5);
        assert!(floats[1].is_nan());
        d.finish().unwrap();
    }

    #[test]
    fn short_or_absurd_bytes_are_damage_and_never_a_panic() {
        assert!(Decoder::new(&[1, 2]).u32().is_err());
        assert!(Decoder::new(&[0xff; 10]).varint().is_err());
        assert!(Decoder::new(&[0xff, 0xff, 0xff, 0x7f, 0]).blob().is_err());
        assert!(Decoder::new(&[2]).bool().is_err());
        assert!(Decoder::new(&[2, 0xc3, 0x28]).str().is_err());
        assert!(Decoder::new(&[0]).finish().is_err());
    }
}
