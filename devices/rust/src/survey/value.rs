//! A person's value, and its index in an attribute.

use crate::error::{Error, Result};
use crate::survey::Attribute;

/// A value of a person: a text, a number, or a list for a pair or a question with several answers.
///
/// `Debug` shows no value, so that no log reveals it by mistake.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// A text as the survey lists it, or a number in words.
    Text(String),
    /// A number of `size` or `bins`, or the place of a listed value, from 0.
    Number(f64),
    /// The two values of a pair, or all answers to a question with several answers.
    List(Vec<Value>),
}

impl std::fmt::Debug for Value {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("<Value>")
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Number(number)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Value::Number(f64::from(number))
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Value::List(values.into_iter().map(Into::into).collect())
    }
}

impl Attribute {
    /// The index of a value; for a set its code.
    pub(crate) fn index(&self, value: &Value) -> Result<u64> {
        self.found(value).ok_or_else(|| Error::Value(format!("attribute {:?} does not have this value", self.name)))
    }

    fn found(&self, value: &Value) -> Option<u64> {
        if let Some(pair) = &self.parts {
            let Value::List(values) = value else { return None };
            let [first, second] = values.as_slice() else { return None };
            return Some(pair.0.found(first)? * pair.1.k()? + pair.1.found(second)?);
        }
        if let Some(most) = self.choices {
            return self.code(value, most);
        }
        self.single(value)
    }

    fn single(&self, value: &Value) -> Option<u64> {
        if let Some(values) = &self.values {
            return match value {
                Value::Text(text) => self.place(text).or_else(|| self.place(self.unlisted.as_ref()?)),
                Value::Number(number) => whole(*number, values.len() as u64),
                Value::List(_) => None,
            };
        }
        let number = match value {
            Value::Text(text) => number_of(text)?,
            Value::Number(number) => *number,
            Value::List(_) => return None,
        };
        let nearest = self.outside.is_some() && !number.is_nan();
        if let Some(bins) = &self.bins {
            let (low, high) = (bins[0], bins[bins.len() - 1]);
            let number = if nearest { number.clamp(low, high) } else { number };
            if !(low <= number && number <= high) {
                return None;
            }
            let below = bins.iter().filter(|&&edge| edge <= number).count();
            return Some(below.min(bins.len() - 1) as u64 - 1);
        }
        let size = self.size? as u64;
        let integer = number.is_infinite() || number.fract() == 0.0;
        whole(if nearest && integer { number.clamp(0.0, (size - 1) as f64) } else { number }, size)
    }

    fn place(&self, text: &str) -> Option<u64> {
        let place = self.values.as_ref()?.iter().position(|value| value == text)?;
        Some(place as u64)
    }

    /// The code of a set: bit v says whether the set has the value v. A listed value must not come twice.
    fn code(&self, value: &Value, most: i64) -> Option<u64> {
        let Value::List(values) = value else { return None };
        let (mut code, mut listed) = (0u64, 0u64);
        for value in values {
            let bit = 1 << self.single(value)?;
            let known = !matches!(value, Value::Text(text) if self.place(text).is_none());
            if known && listed & bit != 0 {
                return None;
            }
            listed |= if known { bit } else { 0 };
            code |= bit;
        }
        (i64::from(code.count_ones()) <= most).then_some(code)
    }

    /// The number of values; for a question with several answers, of values and dummies. Nothing if the product is too large.
    pub(crate) fn k(&self) -> Option<u64> {
        if let Some(pair) = &self.parts {
            return pair.0.k()?.checked_mul(pair.1.k()?);
        }
        match (&self.values, &self.bins) {
            (Some(values), _) => Some(values.len() as u64 + self.choices.unwrap_or(0) as u64),
            (_, Some(bins)) => Some((bins.len() as u64).saturating_sub(1)),
            _ => self.size.and_then(|size| u64::try_from(size).ok()),
        }
    }
}

/// An integer in 0 … n − 1.
fn whole(number: f64, n: u64) -> Option<u64> {
    (number.fract() == 0.0 && number >= 0.0 && number < n as f64).then_some(number as u64)
}

/// The number of a text: spaces, a sign, decimal digits with at most one point, an exponent, spaces.
fn number_of(text: &str) -> Option<f64> {
    let text = text.trim_matches(' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (digits, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let all = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = all(&digits.replacen('.', "", 1));
    (plain && exponent.is_none_or(all)).then(|| text.parse().ok()).flatten()
}
