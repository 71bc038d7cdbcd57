//! The random draws of a device, with the order of bytes that `docs/reference/write_a_device.md` fixes.
//!
//! All draws use integers: floating-point numbers can leak the value.

use crate::error::{Error, Result};
use num_bigint::BigUint;
use serde::Deserialize;

/// A source of random bytes.
pub trait Random {
    /// Fills the whole buffer.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()>;
}

/// The operating system's cryptographic generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        getrandom::fill(buffer).map_err(|error| Error::Random(error.to_string()))
    }
}

/// A coin with an exact probability: its smaller probability is the sum of `digits[i] / 256^(i + 1)`.
#[derive(Debug, Clone, Deserialize)]
pub struct Coin {
    #[serde(with = "crate::encoding::hex")]
    pub(crate) digits: Vec<u8>,
    pub(crate) inverted: bool,
}

impl Coin {
    /// The smaller probability, rounded to a double.
    pub(crate) fn smaller(&self) -> f64 {
        self.digits.iter().rev().fold(0.0, |sum, &digit| (sum + f64::from(digit)) / 256.0)
    }

    /// The probabilities of yes and no, rounded to doubles.
    pub(crate) fn probabilities(&self) -> (f64, f64) {
        let smaller = self.smaller();
        if self.inverted { (1.0 - smaller, smaller) } else { (smaller, 1.0 - smaller) }
    }
}

/// Makes the draws from a source of random bytes.
pub(crate) struct Draws<'a>(pub &'a mut dyn Random);

impl Draws<'_> {
    pub(crate) fn bytes(&mut self, n: usize) -> Result<Vec<u8>> {
        let mut drawn = vec![0; n];
        self.0.fill(&mut drawn)?;
        Ok(drawn)
    }

    /// A uniform integer in 0 … n − 1.
    pub(crate) fn below(&mut self, n: u64) -> Result<u64> {
        assert!(n > 0, "below needs a range");
        let bits = u64::BITS - (n - 1).leading_zeros();
        let mask = if bits == 0 { 0 } else { u64::MAX >> (u64::BITS - bits) };
        loop {
            let drawn = self.bytes(bits.div_ceil(8) as usize)?;
            let r = drawn.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)) & mask;
            if r < n {
                return Ok(r);
            }
        }
    }

    /// `below` for integers of any size.
    pub(crate) fn below_big(&mut self, n: &BigUint) -> Result<BigUint> {
        let bits = (n - 1u32).bits();
        let mask = (BigUint::from(1u32) << bits) - 1u32;
        loop {
            let r = BigUint::from_bytes_be(&self.bytes(bits.div_ceil(8) as usize)?) & &mask;
            if r < *n {
                return Ok(r);
            }
        }
    }

    /// n independent answers of a coin.
    pub(crate) fn toss(&mut self, coin: &Coin, n: usize) -> Result<Vec<bool>> {
        let mut answers = vec![coin.inverted; n];
        let mut undecided: Vec<usize> = (0..n).collect();
        for &digit in &coin.digits {
            let drawn = self.bytes(undecided.len())?;
            let mut still = Vec::new();
            for (&i, &byte) in undecided.iter().zip(&drawn) {
                if byte < digit {
                    answers[i] = !coin.inverted;
                } else if byte == digit {
                    still.push(i);
                }
            }
            undecided = still;
        }
        Ok(answers)
    }

    /// The value's symbol, or one of the m − 1 others.
    pub(crate) fn symbol(&mut self, s: u64, m: u64, keep: &Coin) -> Result<u64> {
        self.cell(s, m, 1, keep)
    }

    /// One of `width` cells near the value, or one of the k − 1 others.
    pub(crate) fn cell(&mut self, v: u64, k: u64, width: u64, keep: &Coin) -> Result<u64> {
        if self.toss(keep, 1)?[0] {
            return Ok(v + self.below(width)?);
        }
        let r = self.below(k - 1)?;
        Ok(if r >= v { r + width } else { r })
    }

    /// A member of the padded set with this code, or another symbol.
    pub(crate) fn member(&mut self, code: u64, k: u64, choices: u64, coin: &Coin) -> Result<u64> {
        let (n, dummies) = (k - choices, choices - u64::from(code.count_ones()));
        let padded = |s: u64| if s < n { code >> s & 1 == 1 } else { s < n + dummies };
        let (members, others): (Vec<u64>, Vec<u64>) = (0..k).partition(|&s| padded(s));
        let from = if self.toss(coin, 1)?[0] { members } else { others };
        Ok(from[self.below(from.len() as u64)? as usize])
    }

    /// New bits: the coin `one` answers for each one, then the coin `zero` for each zero.
    pub(crate) fn bits(&mut self, bits: &[bool], one: &Coin, zero: &Coin) -> Result<Vec<bool>> {
        let mut drawn = vec![false; bits.len()];
        for (kind, coin) in [(true, one), (false, zero)] {
            let places: Vec<usize> = (0..bits.len()).filter(|&i| bits[i] == kind).collect();
            for (&place, answer) in places.iter().zip(self.toss(coin, places.len())?) {
                drawn[place] = answer;
            }
        }
        Ok(drawn)
    }

    /// A uniform set of c of the numbers below n.
    pub(crate) fn places(&mut self, n: u64, c: u64) -> Result<Vec<bool>> {
        let mut drawn = vec![false; n as usize];
        for j in n - c..n {
            let r = self.below(j + 1)?;
            let place = if drawn[r as usize] { j } else { r };
            drawn[place as usize] = true;
        }
        Ok(drawn)
    }

    /// A set of `size` values that has the value v if the coin says so.
    pub(crate) fn subset(&mut self, v: u64, k: u64, size: u64, with_value: &Coin) -> Result<Vec<bool>> {
        let with = self.toss(with_value, 1)?[0];
        let mut drawn = self.places(k - 1, size - u64::from(with))?;
        drawn.insert(v as usize, with);
        Ok(drawn)
    }

    /// A set of `size` values. `cumulated` has the cumulated weights of its numbers of common values with the memo.
    pub(crate) fn overlapping(&mut self, memo: &[bool], size: u64, cumulated: &[BigUint]) -> Result<Vec<bool>> {
        let total = cumulated.last().expect("there are weights");
        let r = self.below_big(total)?;
        let common = cumulated.iter().take_while(|&sum| *sum <= r).count() as u64;
        let (inside, outside): (Vec<usize>, Vec<usize>) = (0..memo.len()).partition(|&value| memo[value]);
        let mut drawn = vec![false; memo.len()];
        for (places, c) in [(inside, common), (outside, size - common)] {
            for (&place, one) in places.iter().zip(self.places(places.len() as u64, c)?) {
                drawn[place] = one;
            }
        }
        Ok(drawn)
    }
}
