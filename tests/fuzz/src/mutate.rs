//! Mutates valid inputs.

use testkit::Rng;

/// The longest input, in bytes.
const BYTES_MAX: usize = 1 << 20;
/// The most repetitions of a part, enough for a deep tree if parts nest.
const NESTING_MAX: u64 = 20_000;

/// Numbers at which sizes, offsets and counts often go wrong.
const EDGES: [u64; 9] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX >> 1, u64::MAX];

/// Returns one of `seeds` with one to six changes.
pub fn mutate(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = rng.pick(seeds).clone();
    for _ in 0..rng.range(1..7) {
        change(&mut bytes, seeds, rng);
        bytes.truncate(BYTES_MAX);
    }
    bytes
}

/// Returns a random range within `len` bytes.
fn range(len: usize, rng: &mut Rng) -> std::ops::Range<usize> {
    let start = rng.below(len as u64 + 1) as usize;
    let end = start + rng.below((len - start) as u64 + 1) as usize;
    start..end
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) {
    let len = bytes.len();
    let at = rng.below(len as u64 + 1) as usize;
    match rng.below(9) {
        0 if len > 0 => bytes[at.min(len - 1)] ^= 1 << rng.below(8),
        1 if len > 0 => bytes[at.min(len - 1)] = rng.below(256) as u8,
        2 => {
            let edge = rng.pick(&EDGES).to_le_bytes();
            let width = *rng.pick(&[1, 2, 4, 8]);
            let end = (at + width).min(len);
            bytes[at..end].copy_from_slice(&edge[..end - at]);
        }
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(range(len, rng))),
        5 => {
            let part = bytes[range(len, rng)].to_vec();
            bytes.splice(at..at, part);
        }
        6 => {
            let other = rng.pick(seeds);
            let part = other[range(other.len(), rng)].to_vec();
            bytes.splice(at..at, part);
        }
        7 => nest(bytes, rng),
        _ => {
            let count = rng.range(1..9) as usize;
            let part = rng.bytes(count);
            bytes.splice(at..at, part);
        }
    }
}

/// Repeats a short part in place, and appends its closing brackets equally often at the end.
fn nest(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let part = range(bytes.len(), rng);
    let part = part.start..part.end.min(part.start + 12);
    let times = rng.range(2..NESTING_MAX) as usize;
    let times = times.min(BYTES_MAX / part.len().max(1));
    let repeated = bytes[part.clone()].repeat(times);
    let closing: Vec<u8> = bytes[part.clone()]
        .iter()
        .rev()
        .filter_map(|byte| match byte {
            b'(' => Some(b')'),
            b'[' => Some(b']'),
            b'{' => Some(b'}'),
            b'<' => Some(b'>'),
            _ => None,
        })
        .collect();
    bytes.splice(part, repeated);
    bytes.extend(closing.repeat(times.min(BYTES_MAX / closing.len().max(1))));
}
