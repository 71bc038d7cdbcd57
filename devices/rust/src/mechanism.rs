//! The mechanisms: their parameters, draws and losses. The formulas are those of `docs/reference/write_a_device.md`.

pub(crate) mod draws;
pub(crate) mod field;

use crate::error::{Error, Result};
use crate::mechanism::draws::Draws;
use crate::mechanism::field::{Field, is_power};
use crate::survey::{Coins, Parameters, symbol_bytes};
use num_bigint::BigUint;
use num_traits::ToPrimitive;
use serde::Deserialize;

const MOST_HASHED: u64 = 1 << 24;
const MOST_OVERLAP_VALUES: u64 = 1024;
const MOST_WEIGHT_BITS: u64 = 65536;
const MOST_SHIFT: u64 = 128;

/// The odds θ of L-SS: numerator / 2^shift.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Odds {
    #[serde(with = "crate::encoding::hex")]
    numerator: Vec<u8>,
    shift: u64,
}

/// A mechanism with its own parameters. A memoized mechanism is the same family with two rounds.
#[derive(Debug, Clone)]
pub(crate) enum Family {
    /// GRR.
    Symbols,
    /// SW: `width` cells near the value.
    Wave { width: u64 },
    /// SUE, OUE, THE: a bit for each value.
    Bits,
    /// BLH, OLH: a hash function and a symbol.
    Hashed { g: u64, functions: u64, digits: u64, stride: u64, field: Field },
    /// SS.
    Subset { omega: u64 },
    /// L-SS: a memo of `size` values, a report of `omega` values.
    Overlaps { size: u64, omega: u64, ln_odds: f64, cumulated: Vec<BigUint> },
    /// PS-GRR: a member of a padded set.
    Sets { choices: u64 },
}

fn refused<T>(text: &str) -> Result<T> {
    Err(Error::UnsafeSurvey(text.to_owned()))
}

impl Family {
    pub(crate) fn wave(k: u64, width: u64) -> Result<Family> {
        if width < 1 || width > k {
            refused("width must be from 1 to the number of values")
        } else {
            Ok(Family::Wave { width })
        }
    }

    pub(crate) fn subset(k: u64, omega: u64) -> Result<Family> {
        if omega < 1 || omega >= k { refused("omega must be from 1 to k - 1") } else { Ok(Family::Subset { omega }) }
    }

    pub(crate) fn hashed(k: u64, g: u64, functions: u64, digits: u64, stride: u64, field: Field) -> Result<Family> {
        if !field.has(g) || !is_power(g, digits, functions) || functions < k || k > MOST_HASHED {
            return refused("the hash functions are not those of a field");
        }
        if stride < 1 || stride >= k || common_factor(stride, k) != 1 {
            return refused("stride must be below k and share no factor with it");
        }
        Ok(Family::Hashed { g, functions, digits, stride, field })
    }

    pub(crate) fn overlaps(k: u64, size: u64, omega: u64, odds: &Odds) -> Result<Family> {
        if k > MOST_OVERLAP_VALUES || size < 1 || size > k / 2 || omega < 1 || omega > k / 2 {
            return refused("memo_size and omega must be from 1 to k / 2, and k at most 1024");
        }
        let numerator = BigUint::from_bytes_be(&odds.numerator);
        let too_large = numerator.bits().saturating_mul(size.min(omega)) >= 2 * MOST_WEIGHT_BITS;
        if odds.shift > MOST_SHIFT || numerator <= BigUint::from(1u32) << odds.shift || too_large {
            return refused("the odds must be above 1 and not too large");
        }
        let above = (&numerator - (BigUint::from(1u32) << odds.shift)).to_f64().unwrap_or(f64::INFINITY);
        let ln_odds = (above / 2f64.powi(odds.shift as i32)).ln_1p();
        let cumulated = weights(k, size, omega, &numerator, odds.shift);
        if cumulated.last().is_none_or(|sum| sum.bits() > MOST_WEIGHT_BITS) {
            return refused("the weights are too large");
        }
        Ok(Family::Overlaps { size, omega, ln_odds, cumulated })
    }

    pub(crate) fn is_sets(&self) -> bool {
        matches!(self, Family::Sets { .. })
    }

    pub(crate) fn ln_odds(&self) -> Option<f64> {
        if let Family::Overlaps { ln_odds, .. } = self { Some(*ln_odds) } else { None }
    }

    /// The names of the coins of the first or only round, or of the second round, in ascending order.
    pub(crate) fn coin_names(&self, first: bool) -> &'static [&'static str] {
        match (self, first) {
            (Family::Symbols | Family::Wave { .. } | Family::Hashed { .. }, _) | (Family::Sets { .. }, false) => &["keep"],
            (Family::Bits, _) => &["one", "zero"],
            (Family::Subset { .. }, _) | (Family::Overlaps { .. }, true) => &["with_value"],
            (Family::Overlaps { .. }, false) => &[],
            (Family::Sets { .. }, true) => &["member"],
        }
    }

    pub(crate) fn row_bytes(&self, k: u64) -> u64 {
        match self {
            Family::Symbols | Family::Sets { .. } => symbol_bytes(k),
            Family::Wave { width } => symbol_bytes(k - 1 + width),
            Family::Bits | Family::Subset { .. } | Family::Overlaps { .. } => k.div_ceil(8),
            Family::Hashed { g, functions, .. } => symbol_bytes(*functions) + symbol_bytes(*g),
        }
    }

    /// The number of hash functions, if the mechanism has them.
    pub(crate) fn functions(&self) -> Option<u64> {
        if let Family::Hashed { functions, .. } = self { Some(*functions) } else { None }
    }

    /// The loss of the first or only round in nats; negative or not a number for coins that no service makes.
    pub(crate) fn loss(&self, k: u64, coins: &Coins) -> f64 {
        match self {
            Family::Symbols => ln_ratio(of_symbols(coins, k, 1)),
            Family::Wave { width } => ln_ratio(of_symbols(coins, k, *width)),
            Family::Hashed { g, .. } => ln_ratio(of_symbols(coins, *g, 1)),
            Family::Bits => {
                let ((p, n), (q, m)) = (coins["one"].probabilities(), coins["zero"].probabilities());
                (p * m / (n * q)).ln()
            }
            Family::Subset { omega: size } | Family::Overlaps { size, .. } => {
                let (yes, no) = coins["with_value"].probabilities();
                ((yes / *size as f64) / (no / (k - size) as f64)).ln()
            }
            Family::Sets { choices } => ln_ratio(of_sets(coins, k, *choices)),
        }
    }

    /// The loss of one report of a memoized mechanism in nats.
    pub(crate) fn loss_of_two(&self, k: u64, memo: &Coins, report: &Coins) -> f64 {
        match self {
            Family::Symbols | Family::Wave { .. } => of_two_symbols(memo, report, k),
            Family::Hashed { g, .. } => of_two_symbols(memo, report, *g),
            Family::Bits => {
                let ((p1, n1), (q1, m1)) = (memo["one"].probabilities(), memo["zero"].probabilities());
                let ((p2, n2), (q2, m2)) = (report["one"].probabilities(), report["zero"].probabilities());
                let (p, n) = (p1 * p2 + n1 * q2, p1 * n2 + n1 * m2);
                let (q, m) = (q1 * p2 + m1 * q2, q1 * n2 + m1 * m2);
                (p * m / (n * q)).ln()
            }
            Family::Subset { .. } => f64::NAN, // SS has no second round
            Family::Overlaps { size, omega, ln_odds, .. } => {
                let (k, m, omega) = (k as f64, *size as f64, *omega as f64);
                let (mean, missing) = mean_overlap(k, m, omega, *ln_odds);
                let (yes, no) = memo["with_value"].probabilities();
                let (a, not_a, b) = (mean / m, missing / m, (omega - mean) / (k - m));
                (((yes * a + no * b) / omega) / ((yes * not_a + no * (1.0 - b)) / (k - omega))).ln()
            }
            Family::Sets { choices } => {
                let ((a, b), (p2, q2)) = (of_sets(memo, k, *choices), of_symbols(report, k, 1));
                ((a * p2 + (1.0 - a) * q2) / (b * p2 + (1.0 - b) * q2)).ln()
            }
        }
    }
}

impl Parameters {
    pub(crate) fn memoized(&self) -> bool {
        self.memo.is_some()
    }

    /// The key of a value's memo: local hashing has one memo for each symbol.
    pub(crate) fn memo_key(&self, v: u64, function: u64) -> u64 {
        match &self.family {
            Family::Hashed { g, digits, stride, field, .. } => field.hash(function, v, self.k, *g, *digits, *stride),
            _ => v,
        }
    }

    /// The row of a one-time mechanism.
    pub(crate) fn once(&self, draws: &mut Draws, v: u64) -> Result<Vec<u8>> {
        let function = self.family.functions().map_or(Ok(0), |functions| draws.below(functions))?;
        self.round(draws, &self.report, self.memo_key(v, function), function)
    }

    /// The memo of a memo key.
    pub(crate) fn first(&self, draws: &mut Draws, key: u64, function: u64) -> Result<Vec<u8>> {
        self.round(draws, self.memo.as_ref().expect("a memoized mechanism"), key, function)
    }

    /// Tells whether a row can be a memo.
    pub(crate) fn is_memo(&self, row: &[u8]) -> bool {
        let fits = |row: &[u8]| match &self.family {
            Family::Overlaps { size, .. } => unpacked(row, self.k).into_iter().filter(|&bit| bit).count() as u64 == *size,
            Family::Hashed { g, functions, .. } => number(&row[symbol_bytes(*functions) as usize..]) < *g,
            Family::Symbols | Family::Sets { .. } => number(row) < self.k,
            _ => true,
        };
        row.len() as u64 == self.row_bytes && fits(row)
    }

    fn round(&self, draws: &mut Draws, coins: &Coins, v: u64, function: u64) -> Result<Vec<u8>> {
        let symbol = match &self.family {
            Family::Symbols => draws.symbol(v, self.k, &coins["keep"])?,
            Family::Wave { width } => draws.cell(v, self.k, *width, &coins["keep"])?,
            Family::Sets { choices } => draws.member(v, self.k, *choices, &coins["member"])?,
            Family::Hashed { g, .. } => {
                let symbol = draws.symbol(v, *g, &coins["keep"])?;
                return Ok(self.hashed_row(function, symbol));
            }
            Family::Bits => {
                let bits: Vec<bool> = (0..self.k).map(|value| value == v).collect();
                return Ok(packed(&draws.bits(&bits, &coins["one"], &coins["zero"])?));
            }
            Family::Subset { omega: size } | Family::Overlaps { size, .. } => {
                return Ok(packed(&draws.subset(v, self.k, *size, &coins["with_value"])?));
            }
        };
        Ok(little_endian(symbol, self.row_bytes))
    }

    /// A report from a memo.
    pub(crate) fn second(&self, draws: &mut Draws, memo: &[u8]) -> Result<Vec<u8>> {
        let coins = &self.report;
        match &self.family {
            Family::Bits => {
                let bits = unpacked(memo, self.k);
                Ok(packed(&draws.bits(&bits, &coins["one"], &coins["zero"])?))
            }
            Family::Overlaps { omega, cumulated, .. } => {
                Ok(packed(&draws.overlapping(&unpacked(memo, self.k), *omega, cumulated)?))
            }
            Family::Hashed { g, functions, .. } => {
                let (function, symbol) = memo.split_at(symbol_bytes(*functions) as usize);
                let symbol = draws.symbol(number(symbol), *g, &coins["keep"])?;
                Ok(self.hashed_row(number(function), symbol))
            }
            _ => Ok(little_endian(draws.symbol(number(memo), self.k, &coins["keep"])?, self.row_bytes)),
        }
    }

    fn hashed_row(&self, function: u64, symbol: u64) -> Vec<u8> {
        let Family::Hashed { g, functions, .. } = &self.family else { unreachable!("only local hashing has functions") };
        let mut row = little_endian(function, symbol_bytes(*functions));
        row.extend(little_endian(symbol, symbol_bytes(*g)));
        row
    }
}

/// The smallest size of 1, 2 and 4 bytes that can store a number; more for a number that no row can store.
pub(crate) fn integer_bytes(largest: u64) -> u64 {
    match largest {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

fn little_endian(number: u64, bytes: u64) -> Vec<u8> {
    number.to_le_bytes()[..bytes as usize].to_vec()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

fn packed(bits: &[bool]) -> Vec<u8> {
    let byte = |eight: &[bool]| eight.iter().rev().fold(0, |sum, &bit| sum << 1 | u8::from(bit));
    bits.chunks(8).map(byte).collect()
}

fn unpacked(row: &[u8], k: u64) -> Vec<bool> {
    (0..k as usize).map(|value| row[value / 8] >> (value % 8) & 1 == 1).collect()
}

fn common_factor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_factor(b, a % b) }
}

/// The cumulated weights of j = 0, 1, … common values of a memo and a report.
fn weights(k: u64, size: u64, omega: u64, numerator: &BigUint, shift: u64) -> Vec<BigUint> {
    let most = size.min(omega);
    let (mut inside, mut outside) = (BigUint::from(1u32), binomial(k - size, omega));
    let (mut sum, mut power, mut cumulated) = (BigUint::ZERO, BigUint::from(1u32), Vec::new());
    for j in 0..=most {
        sum += (&inside * &outside * &power) << (shift * (most - j));
        cumulated.push(sum.clone());
        if j < most {
            inside = inside * (size - j) / (j + 1);
            outside = outside * (omega - j) / (k - size - omega + j + 1);
            power *= numerator;
        }
    }
    cumulated
}

fn binomial(n: u64, c: u64) -> BigUint {
    (0..c).fold(BigUint::from(1u32), |product, i| product * (n - i) / (i + 1))
}

/// The mean number μ of common values, and the mean number m − μ of the memo's missing values.
fn mean_overlap(k: f64, m: f64, omega: f64, ln_odds: f64) -> (f64, f64) {
    let mut logs = vec![0.0];
    for j in 0..m.min(omega) as usize {
        let x = j as f64;
        logs.push(logs[j] + ln_odds + ((m - x) * (omega - x) / ((x + 1.0) * (k - m - omega + x + 1.0))).ln());
    }
    let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (mut mean, mut missing, mut sum) = (0.0, 0.0, 0.0);
    for (j, log) in logs.iter().enumerate() {
        let chance = (log - largest).exp();
        mean += j as f64 * chance;
        missing += (m - j as f64) * chance;
        sum += chance;
    }
    (mean / sum, missing / sum)
}

/// The probabilities of one of the symbols near the value, and of one of the m − 1 others.
pub(crate) fn of_symbols(coins: &Coins, m: u64, width: u64) -> (f64, f64) {
    let (yes, no) = coins["keep"].probabilities();
    (yes / width as f64, no / (m - 1) as f64)
}

fn of_sets(coins: &Coins, k: u64, choices: u64) -> (f64, f64) {
    let (yes, no) = coins["member"].probabilities();
    (yes / choices as f64, no / (k - choices) as f64)
}

fn of_two_symbols(memo: &Coins, report: &Coins, m: u64) -> f64 {
    let ((p1, q1), (p2, q2)) = (of_symbols(memo, m, 1), of_symbols(report, m, 1));
    let n = m as f64;
    ((p1 * p2 + (n - 1.0) * q1 * q2) / (p1 * q2 + q1 * p2 + (n - 2.0) * q1 * q2)).ln()
}

fn ln_ratio((p, q): (f64, f64)) -> f64 {
    (p / q).ln()
}
