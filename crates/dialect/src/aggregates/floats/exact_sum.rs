//! A sum of float64 that is held exactly and rounded once, when its value is read. Its result is the same to the bit for any
//! order and grouping of the values.
//!
//! Every finite float64 is an integer multiple of 2^-1074. Values of similar size, which is nearly all of them, are added as
//! integers in a window of 128 bits of that number line. A value that does not fit the window turns the sum into a
//! superaccumulator over the whole line, as in R. M. Neal, "Fast exact summation using small and large superaccumulators" (2015),
//! here with digits of 32 bits.

use std::cmp::Ordering;

/// Base of a window that has no value yet: no exponent is within [`SHIFT_MAX`] of it.
const NO_BASE: u16 = 1 << 15;
/// Bits between the lowest bit of the first value and the base of the window: room for later values that reach lower.
const ROOM_BELOW: u16 = 36;
/// The highest shift of a mantissa, which has 53 bits, in the window: two bits are left for the sign and a carry.
const SHIFT_MAX: u16 = 72;
const WINDOW_BYTES: usize = 18;

/// Number of digits of the whole line: it holds 2^-1074 to 2^1024, and the sum of 2^64 values of the largest size.
const DIGITS: usize = (1074 + 1024 + 64) / 32 + 2;
/// Number of additions before carries have to be propagated. Each addition changes a digit by less than 2^32, and a digit holds
/// 2^63.
const ADDITIONS_MAX: u32 = 1 << 30;
const WIDE_BYTES: usize = DIGITS * 8 + 24;

/// An exact sum of float64. Values can be removed again ([`ExactSum::remove`]).
#[derive(Clone, Debug)]
pub(super) struct ExactSum {
    /// The sum in units of 2^(base - 1074); 0 once `wide` holds the sum.
    window: i128,
    base: u16,
    wide: Option<Box<Superaccumulator>>,
}

/// The sum over the whole number line.
#[derive(Clone, Debug)]
struct Superaccumulator {
    /// Signed digits, the lowest first; digit `i` counts 2^(32 i - 1074).
    digits: [i64; DIGITS],
    /// The number of additions since carries were last propagated.
    additions: u32,
    /// The counts of positive infinities, negative infinities and NaN.
    positive: i64,
    negative: i64,
    nan: i64,
}

/// Splits a finite value into mantissa and exponent: `mantissa * 2^(exponent - 1074)`. Returns `None` for infinities and NaN.
#[inline]
fn decompose(value: f64) -> Option<(i64, u16)> {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as u16;
    let fraction = (bits & ((1 << 52) - 1)) as i64;
    let (magnitude, exponent) = match exponent {
        0x7ff => return None,
        0 => (fraction, 0),
        exponent => (fraction | 1 << 52, exponent - 1),
    };
    // Branch-free, because the signs of real data are hard to predict.
    let sign = (bits as i64) >> 63;
    Some(((magnitude ^ sign) - sign, exponent))
}

/// Returns `value * 2^exponent`, which is exact if the result is a float64.
pub(super) fn scaled(value: f64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((1023 + exponent) as u64) << 52);
    let half = exponent / 2;
    value * power(half) * power(exponent - half)
}

impl Default for ExactSum {
    fn default() -> Self {
        ExactSum { window: 0, base: NO_BASE, wide: None }
    }
}

impl ExactSum {
    #[inline]
    pub fn add(&mut self, value: f64) {
        if let Some((mantissa, exponent)) = decompose(value) {
            // The shift is far too large while there is no window, because no exponent is near `NO_BASE`.
            let shift = exponent.wrapping_sub(self.base);
            if shift <= SHIFT_MAX
                && let Some(sum) = self.window.checked_add(i128::from(mantissa) << shift)
            {
                self.window = sum;
                return;
            }
        }
        self.add_anywhere(value);
    }

    pub fn remove(&mut self, value: f64) {
        if value.is_finite() {
            self.add(-value);
        } else {
            self.wide().count_special(value, -1);
        }
    }

    #[cold]
    fn add_anywhere(&mut self, value: f64) {
        let Some((mantissa, exponent)) = decompose(value) else {
            self.wide().count_special(value, 1);
            return;
        };
        if mantissa == 0 {
            return;
        }
        if self.wide.is_some() {
            self.wide().add(i128::from(mantissa), exponent);
            return;
        }
        if self.base == NO_BASE {
            self.base = exponent.saturating_sub(ROOM_BELOW);
            self.window = i128::from(mantissa) << (exponent - self.base);
            return;
        }
        // Integers and decimals of few digits have a mantissa that ends in zeros.
        let zeros = mantissa.trailing_zeros() as u16;
        self.add_integer(i128::from(mantissa >> zeros), exponent + zeros);
    }

    /// Adds `mantissa * 2^(exponent - 1074)` in the window if it fits there or the window can be moved down, else over the whole
    /// line.
    fn add_integer(&mut self, mantissa: i128, exponent: u16) {
        if self.wide.is_none() {
            if self.base == NO_BASE {
                (self.window, self.base) = (mantissa, exponent);
                return;
            }
            let base = self.base.min(exponent);
            let sum = shifted(self.window, self.base - base)
                .zip(shifted(mantissa, exponent - base))
                .and_then(|(a, b)| a.checked_add(b));
            if let Some(sum) = sum {
                (self.window, self.base) = (sum, base);
                return;
            }
        }
        self.wide().add(mantissa, exponent);
    }

    /// Moves the sum from the window to the superaccumulator, where it stays.
    fn wide(&mut self) -> &mut Superaccumulator {
        let (window, base) = (std::mem::take(&mut self.window), std::mem::replace(&mut self.base, NO_BASE));
        let wide = self.wide.get_or_insert_with(Box::default);
        if window != 0 {
            wide.add(window, base);
        }
        wide
    }

    pub fn merge(&mut self, other: &ExactSum) {
        match &other.wide {
            None if other.base == NO_BASE => {}
            None => self.add_integer(other.window, other.base),
            Some(theirs) => self.wide().merge(theirs),
        }
    }

    /// Returns the float64 nearest to the sum, the even one of two equally near ones; infinity if the sum exceeds the float64
    /// range.
    pub fn value(&self) -> f64 {
        self.value_by(0)
    }

    /// Returns the float64 nearest to the sum times 2^exponent. A result below the least normal number may be off by one
    /// rounding.
    pub fn value_by(&self, exponent: i32) -> f64 {
        match &self.wide {
            None if self.window == 0 => 0.0,
            // The conversion rounds and the scaling does not: a sum below the least normal number has no more bits than a
            // subnormal number holds, because both count in units of 2^-1074.
            None => scaled(self.window as f64, i32::from(self.base) - 1074 + exponent),
            Some(wide) => wide.value_by(exponent),
        }
    }

    /// Returns true if the sum contains no infinity and no NaN.
    pub fn is_finite(&self) -> bool {
        self.wide.as_ref().is_none_or(|wide| (wide.positive, wide.negative, wide.nan) == (0, 0, 0))
    }

    /// Returns numbers whose exact sum is this sum times 2^-`down`, as far as float64 reaches down. Each number is at most half
    /// the last bit of the one before it. The sum must be finite.
    pub fn components(&self, down: i32) -> Vec<f64> {
        let mut rest = self.clone();
        let mut components = Vec::new();
        loop {
            let value = rest.value_by(-down);
            let Some((mantissa, exponent)) = decompose(-value).filter(|(mantissa, _)| *mantissa != 0) else {
                return components;
            };
            components.push(value);
            rest.add_integer(i128::from(mantissa), exponent + down as u16);
        }
    }

    /// Bytes on the heap, besides the value itself.
    pub fn heap_bytes(&self) -> usize {
        if self.wide.is_some() { size_of::<Superaccumulator>() } else { 0 }
    }

    /// Appends the encoded sum: partial sums travel between the operators of a plan, and to spill files.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.wide {
            None => {
                out.extend(self.base.to_le_bytes());
                out.extend(self.window.to_le_bytes());
            }
            Some(wide) => {
                out.extend(wide.digits.iter().flat_map(|digit| digit.to_le_bytes()));
                out.extend([wide.positive, wide.negative, wide.nan].iter().flat_map(|n| n.to_le_bytes()));
            }
        }
    }

    /// Returns `None` for bytes that [`ExactSum::encode`] did not write.
    pub fn decode(bytes: &[u8]) -> Option<ExactSum> {
        if bytes.len() == WINDOW_BYTES {
            let (base, window) = bytes.split_at(2);
            return Some(ExactSum {
                base: u16::from_le_bytes(base.try_into().ok()?),
                window: i128::from_le_bytes(window.try_into().ok()?),
                wide: None,
            });
        }
        if bytes.len() != WIDE_BYTES {
            return None;
        }
        let mut numbers =
            bytes.chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().expect("8 bytes")));
        let mut wide = Box::<Superaccumulator>::default();
        wide.digits.iter_mut().zip(&mut numbers).for_each(|(digit, number)| *digit = number);
        // The encoding leaves the number of additions out, so carries are propagated before the next addition.
        wide.additions = ADDITIONS_MAX;
        (wide.positive, wide.negative, wide.nan) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some(ExactSum { wide: Some(wide), ..ExactSum::default() })
    }
}

/// Returns `None` if the shift would lose bits or the sign.
fn shifted(value: i128, by: u16) -> Option<i128> {
    if value == 0 {
        return Some(0);
    }
    let free = value.unsigned_abs().leading_zeros().saturating_sub(1);
    (u32::from(by) < free).then(|| value << by)
}

impl Default for Superaccumulator {
    fn default() -> Self {
        Superaccumulator { digits: [0; DIGITS], additions: 0, positive: 0, negative: 0, nan: 0 }
    }
}

impl Superaccumulator {
    fn count_special(&mut self, value: f64, count: i64) {
        if value.is_nan() {
            self.nan += count;
        } else if value > 0.0 {
            self.positive += count;
        } else {
            self.negative += count;
        }
    }

    fn add(&mut self, mantissa: i128, exponent: u16) {
        if self.additions >= ADDITIONS_MAX {
            self.carry();
        }
        // One addition may change the same digit twice.
        self.additions += 2;
        let (first, shift) = (usize::from(exponent / 32), exponent % 32);
        let sign = if mantissa < 0 { -1 } else { 1 };
        let mut rest = mantissa.unsigned_abs();
        let mut at = first;
        while rest != 0 {
            let part = (rest as u32 as u64) << shift;
            self.digits[at] += sign * (part as u32 as i64);
            self.digits[at + 1] += sign * (part >> 32) as i64;
            rest >>= 32;
            at += 1;
        }
    }

    fn merge(&mut self, other: &Superaccumulator) {
        let mut other = other.clone();
        self.carry();
        other.carry();
        self.digits.iter_mut().zip(&other.digits).for_each(|(mine, theirs)| *mine += theirs);
        self.additions += 1;
        self.positive += other.positive;
        self.negative += other.negative;
        self.nan += other.nan;
    }

    /// Propagates carries: all digits but the highest become 0 to 2^32 - 1, so that the sign of the highest digit is the sign of
    /// the sum.
    fn carry(&mut self) {
        let mut carry = 0;
        let last = DIGITS - 1;
        for digit in &mut self.digits[..last] {
            let sum = *digit + carry;
            *digit = sum & 0xffff_ffff;
            carry = sum >> 32;
        }
        self.digits[last] += carry;
        self.additions = 1;
    }

    fn value_by(&self, exponent: i32) -> f64 {
        match (self.nan != 0, self.positive != 0, self.negative != 0) {
            (true, ..) | (_, true, true) => return f64::NAN,
            (_, true, _) => return f64::INFINITY,
            (_, _, true) => return f64::NEG_INFINITY,
            _ => {}
        }
        let mut sum = self.clone();
        sum.carry();
        let sign = match sum.digits[DIGITS - 1].cmp(&0) {
            Ordering::Less => {
                sum.digits.iter_mut().for_each(|digit| *digit = -*digit);
                sum.carry();
                -1.0
            }
            _ => 1.0,
        };
        let Some(top) = sum.digits.iter().rposition(|digit| *digit != 0) else { return 0.0 };
        // The top four digits hold at least 97 bits, if the number has as many. Of the lower digits, rounding needs to know only
        // if any is not 0.
        let low = top.saturating_sub(3);
        let mut bits =
            sum.digits[low..=top].iter().rev().fold(0u128, |bits, digit| bits << 32 | *digit as u128);
        if sum.digits[..low].iter().any(|digit| *digit != 0) {
            bits |= 1;
        }
        sign * scaled(bits as f64, 32 * low as i32 - 1074 + exponent)
    }
}

#[cfg(test)]
mod tests;
