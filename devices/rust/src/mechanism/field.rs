//! The hash functions of local hashing: digits in a finite field.

use serde::Deserialize;

/// GF(characteristic^degree); `polynomial` has its coefficients, least power first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Field {
    characteristic: u64,
    degree: usize,
    polynomial: Vec<u64>,
}

impl Field {
    /// Tells whether the field has the g elements 0 … g − 1.
    pub(crate) fn has(&self, g: u64) -> bool {
        let r = self.characteristic;
        let shaped = self.polynomial.len() == self.degree.saturating_add(1)
            && self.polynomial[self.degree] == 1
            && self.polynomial.iter().all(|&c| c < r);
        r >= 2 && self.degree >= 1 && is_power(r, self.degree as u64, g) && (self.degree == 1 || shaped)
    }

    fn coefficients(&self, element: u64) -> Vec<u64> {
        let r = self.characteristic;
        std::iter::successors(Some(element), |rest| Some(rest / r)).take(self.degree).map(|rest| rest % r).collect()
    }

    fn element(&self, coefficients: &[u64]) -> u64 {
        coefficients[..self.degree].iter().rev().fold(0, |sum, &c| sum * self.characteristic + c)
    }

    fn add(&self, a: u64, b: u64) -> u64 {
        let pairs = self.coefficients(a).into_iter().zip(self.coefficients(b));
        self.element(&pairs.map(|(x, y)| (x + y) % self.characteristic).collect::<Vec<_>>())
    }

    fn multiply(&self, a: u64, b: u64) -> u64 {
        let (r, e) = (self.characteristic, self.degree);
        if e == 1 {
            return (u128::from(a) * u128::from(b) % u128::from(r)) as u64;
        }
        let mut product = vec![0; 2 * e];
        for (i, c) in self.coefficients(a).into_iter().enumerate() {
            for (j, d) in self.coefficients(b).into_iter().enumerate() {
                product[i + j] = (product[i + j] + c * d) % r;
            }
        }
        for i in (e..2 * e).rev() {
            let lead = product[i];
            for (j, &c) in self.polynomial.iter().enumerate() {
                product[i - e + j] = (product[i - e + j] + (r - lead) * c) % r;
            }
        }
        self.element(&product)
    }

    /// The symbol of value v under the function a.
    pub(crate) fn hash(&self, mut a: u64, v: u64, k: u64, g: u64, digits: u64, stride: u64) -> u64 {
        let (mut sum, mut place) = (0, v * stride % k);
        for _ in 0..digits {
            sum = self.add(sum, self.multiply(a % g, place % g));
            (a, place) = (a / g, place / g);
        }
        sum
    }
}

/// Tells whether base^exponent is `power`.
pub(crate) fn is_power(base: u64, exponent: u64, power: u64) -> bool {
    let Ok(exponent) = u32::try_from(exponent) else { return false };
    base.checked_pow(exponent) == Some(power)
}
