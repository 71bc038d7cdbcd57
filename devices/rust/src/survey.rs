//! A survey, and the checks that a device makes before it answers: the device must not trust the server for its privacy.

pub(crate) mod claims;
pub(crate) mod recipe;
pub(crate) mod signatures;
pub(crate) mod value;

use crate::encoding::hex;
use crate::error::{Error, Result};
use crate::mechanism::draws::Coin;
use crate::mechanism::field::Field;
use crate::mechanism::{Family, Odds, integer_bytes};
use crate::survey::recipe::Recipe;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The largest loss of a level in nats: above it, the check of the coins is not accurate.
const MOST_EPS: f64 = 700.0;
/// The largest envelope in bytes.
const MOST_BYTES: u64 = 1_000_000;
const LARGEST_PAIR: u64 = 1024;
const MOST_SET_VALUES: usize = 30;
const DIGITS_TOLERANCE: f64 = 1e-5; // the canonical text has six digits
const LOSS_TOLERANCE: f64 = 1e-9; // nats

/// A survey that passed every check.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The survey's name.
    pub name: String,
    /// The SHA-256 of the canonical text, as 64 hexadecimal digits.
    pub pin: String,
    /// The text that the pin is the hash of.
    pub canonical: String,
    pub(crate) fingerprint: [u8; 8],
    pub(crate) text: Canonical,
    pub(crate) mechanisms: Vec<Vec<Parameters>>,
    #[cfg_attr(not(feature = "signed"), expect(dead_code))]
    pub(crate) signatures: Vec<Signature>,
    pub(crate) words: Words,
}

/// The survey's own words, as the gateway serves them. They are not a part of the pin: the gateway can change them.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Words {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) purpose: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) contact: Option<String>,
    retention_steps: Option<u64>,
}

impl Words {
    /// How long the service keeps the histograms in seconds, if it says so.
    pub(crate) fn kept_s(&self, step_seconds: u64) -> Option<u64> {
        self.retention_steps.map(|steps| steps.saturating_mul(step_seconds))
    }
}

/// A statement about a survey, and its Ed25519 signature in base64.
#[derive(Debug, Clone, Deserialize)]
pub struct Signature {
    #[cfg_attr(not(feature = "signed"), expect(dead_code))]
    pub(crate) statement: String,
    #[cfg_attr(not(feature = "signed"), expect(dead_code))]
    pub(crate) signature: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Canonical {
    format: i64,
    pub(crate) start: i64,
    pub(crate) step_seconds: i64,
    pub(crate) lateness_steps: i64,
    pub(crate) ends: Option<i64>,
    pub(crate) collection: String,
    pub(crate) relay: Option<String>,
    pub(crate) cohort: Option<Cohort>,
    pub(crate) attribute: Vec<Attribute>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Cohort {
    pub(crate) values: Vec<String>,
}

/// An attribute of a survey.
#[derive(Debug, Clone, Deserialize)]
pub struct Attribute {
    /// The attribute's name.
    pub name: String,
    pub(crate) values: Option<Vec<String>>,
    pub(crate) size: Option<i64>,
    pub(crate) bins: Option<Vec<f64>>,
    pair: Option<Vec<String>>,
    pub(crate) choices: Option<i64>,
    pub(crate) unlisted: Option<String>,
    pub(crate) outside: Option<String>,
    pub(crate) recipe: Option<Recipe>,
    pub(crate) level: Vec<Level>,
    #[serde(skip)]
    pub(crate) parts: Option<Box<(Attribute, Attribute)>>, // of a pair
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Level {
    pub(crate) name: String,
    pub(crate) eps: Option<f64>,
    pub(crate) eps_inf: Option<f64>,
    pub(crate) eps_1: Option<f64>,
    log_odds: Option<f64>,
    coins: BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>>,
    #[serde(flatten)]
    stated: Stated,
}

/// What the canonical text and the parameters both state.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Stated {
    pub(crate) mechanism: String,
    row_bytes: u64,
    every_steps: Option<u64>,
    lifetime_reports: Option<u64>,
    g: Option<u64>,
    functions: Option<u64>,
    digits: Option<u64>,
    stride: Option<u64>,
    field: Option<Field>,
    omega: Option<u64>,
    memo_size: Option<u64>,
    width: Option<u64>,
    choices: Option<i64>,
}

/// The coins of one round, by name.
pub(crate) type Coins = BTreeMap<String, Coin>;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RawParameters {
    k: u64,
    odds: Option<Odds>,
    coins: BTreeMap<String, Coins>,
    #[serde(flatten)]
    stated: Stated,
}

/// The checked parameters of one attribute and level.
#[derive(Debug, Clone)]
pub(crate) struct Parameters {
    pub(crate) family: Family,
    pub(crate) k: u64,
    pub(crate) row_bytes: u64,
    pub(crate) every_steps: u64,
    pub(crate) lifetime_reports: Option<u64>,
    pub(crate) memo: Option<Coins>, // the coins of the first round of a memoized mechanism
    pub(crate) report: Coins,
}

#[derive(Deserialize)]
struct Document {
    name: String,
    canonical: String,
    fingerprint: String,
    mechanisms: Vec<Vec<RawParameters>>,
    #[serde(default)]
    signatures: Vec<Signature>,
    #[serde(default)]
    words: Words,
}

fn unsafe_survey<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::UnsafeSurvey(text.into()))
}

fn unreadable(error: serde_json::Error) -> Error {
    Error::UnknownSurvey(format!("the device survey cannot be read: {error}"))
}

impl Survey {
    /// Reads a device survey, as `ldpstream canonical SURVEY` prints it and the gateway serves it, and makes every check.
    ///
    /// # Errors
    /// `UnknownSurvey` for another format, mechanism or collection; `UnsafeSurvey` if a check fails.
    pub fn from_json(text: &[u8]) -> Result<Survey> {
        let document: Document = serde_json::from_slice(text).map_err(unreadable)?;
        let mut survey = Self::checked(document.name, document.canonical, document.mechanisms, document.signatures)?;
        survey.words = document.words;
        if hex::encode(&survey.fingerprint) != document.fingerprint {
            return unsafe_survey("the fingerprint is not the hash of the canonical text");
        }
        Ok(survey)
    }

    pub(crate) fn checked(
        name: String,
        canonical: String,
        mechanisms: Vec<Vec<RawParameters>>,
        signatures: Vec<Signature>,
    ) -> Result<Survey> {
        let hash: [u8; 32] = Sha256::digest(canonical.as_bytes()).into();
        let mut text: Canonical = serde_json::from_slice(canonical.as_bytes()).map_err(unreadable)?;
        text.find_pairs()?;
        text.check()?;
        if text.attribute.len() != mechanisms.len() {
            return unsafe_survey("the parameters have another number of attributes than the canonical text");
        }
        let share = if text.collection == "spl" { text.attribute.len() as f64 } else { 1.0 };
        let mut checked = Vec::new();
        for (attribute, given) in text.attribute.iter().zip(mechanisms) {
            let place = |error| match error {
                Error::UnsafeSurvey(reason) => Error::UnsafeSurvey(format!("attribute {:?}: {reason}", attribute.name)),
                other => other,
            };
            attribute.check().map_err(place)?;
            attribute.recipe.as_ref().map_or(Ok(()), |recipe| recipe.check(attribute, &text))?;
            if attribute.level.is_empty() || attribute.level.len() != given.len() {
                return Err(place(Error::UnsafeSurvey("another number of levels".into())));
            }
            let levels = attribute.level.iter().zip(given);
            checked.push(levels.map(|(level, p)| p.check(attribute, level, share).map_err(place)).collect::<Result<_>>()?);
        }
        let fingerprint = hash[..8].try_into().expect("a hash has 32 bytes");
        Ok(Survey {
            name,
            pin: hex::encode(&hash),
            canonical,
            fingerprint,
            text,
            mechanisms: checked,
            signatures,
            words: Words::default(),
        })
    }

    /// The step of a time in milliseconds since 1970; negative before the survey's start.
    pub fn step_at(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.text.start).div_euclid(self.step_ms())
    }

    /// The beginning of a step in milliseconds since 1970; the latest possible time if the step is too far.
    pub(crate) fn opens_ms(&self, step: u64) -> i64 {
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        step.saturating_mul(self.step_ms()).saturating_add(self.text.start)
    }

    pub(crate) fn step_ms(&self) -> i64 {
        self.text.step_seconds.saturating_mul(1000)
    }

    /// The attributes, in the survey's order.
    pub fn attributes(&self) -> &[Attribute] {
        &self.text.attribute
    }

    pub(crate) fn place(&self, attribute: &str) -> Result<usize> {
        let found = self.text.attribute.iter().position(|one| one.name == attribute);
        found.ok_or_else(|| Error::Value(format!("survey {} has no attribute {attribute:?}", self.name)))
    }

    pub(crate) fn adds_up(&self) -> bool {
        self.text.collection == "spl"
    }
}

impl Canonical {
    fn find_pairs(&mut self) -> Result<()> {
        let single = |one: &&Attribute| one.pair.is_none() && one.choices.is_none();
        let singles: Vec<Attribute> = self.attribute.iter().filter(single).cloned().collect();
        for attribute in &mut self.attribute {
            let Some(names) = &attribute.pair else { continue };
            let part = |place: usize| singles.iter().find(|one| Some(&one.name) == names.get(place)).cloned();
            match (part(0), part(1)) {
                (Some(first), Some(second)) if names.len() == 2 && names[0] != names[1] => {
                    attribute.parts = Some(Box::new((first, second)));
                }
                _ => return unsafe_survey(format!("attribute {:?}: a pair of two other attributes", attribute.name)),
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let any = |has: fn(&Attribute) -> bool| self.attribute.iter().any(has);
        let sets = any(|one| one.choices.is_some());
        let formats =
            [(any(|one| one.recipe.is_some()), 7), (sets, 6), (any(|one| one.pair.is_some()), 5), (self.relay.is_some(), 4)];
        let format = formats.into_iter().find(|(has, _)| *has).map_or(3, |(_, format)| format);
        if self.format != format {
            return Err(Error::UnknownSurvey(format!("the canonical text has the format {}, expected {format}", self.format)));
        }
        if !["smp", "spl", "rs+fd"].contains(&self.collection.as_str()) {
            return Err(Error::UnknownSurvey(format!("the collection {:?}", self.collection)));
        }
        if sets && self.collection == "rs+fd" {
            return unsafe_survey("a question with several answers under rs+fd");
        }
        if self.relay.as_ref().is_some_and(|relay| relay != "required" || self.lateness_steps < 2) {
            return unsafe_survey("relay must be \"required\", with lateness_steps of at least 2");
        }
        let names: BTreeSet<&str> = self.attribute.iter().map(|one| one.name.as_str()).collect();
        if names.is_empty() || names.len() != self.attribute.len() {
            return unsafe_survey("no attribute, or two attributes with one name");
        }
        if self.step_seconds < 1 || self.lateness_steps < 0 || self.ends.is_some_and(|ends| ends < 1) {
            return unsafe_survey("step_seconds, lateness_steps or ends");
        }
        Ok(())
    }
}

impl Attribute {
    /// Tells whether a value is a list: of a pair, or of a question with several answers.
    pub fn takes_a_list(&self) -> bool {
        self.parts.is_some() || self.choices.is_some()
    }

    /// Returns the names of a pair's two attributes; nothing for another attribute.
    pub fn pair(&self) -> Option<[&str; 2]> {
        self.parts.as_ref().map(|parts| [parts.0.name.as_str(), parts.1.name.as_str()])
    }

    /// Tells whether the device computes the value itself: see [`crate::Activity`].
    pub fn has_recipe(&self) -> bool {
        self.recipe.is_some()
    }

    fn check(&self) -> Result<()> {
        let kinds = [self.values.is_some(), self.size.is_some(), self.bins.is_some(), self.pair.is_some()];
        if kinds.into_iter().filter(|&kind| kind).count() != 1 {
            return unsafe_survey("one of values, size, bins and pair is needed");
        }
        let listed = |text: &String| self.values.as_ref().is_some_and(|values| values.contains(text));
        if self.unlisted.as_ref().is_some_and(|text| !listed(text)) {
            return unsafe_survey("unlisted must be one of the values");
        }
        let number = self.size.is_some() || self.bins.is_some();
        if self.outside.as_ref().is_some_and(|outside| outside != "nearest" || !number) {
            return unsafe_survey("outside must be \"nearest\", beside size or bins");
        }
        if self.bins.as_ref().is_some_and(|bins| !bins.is_sorted_by(|low, high| low < high)) {
            return unsafe_survey("bins must ascend");
        }
        if let Some(choices) = self.choices {
            let values = self.values.as_ref().map_or(0, Vec::len);
            if !(2..=MOST_SET_VALUES).contains(&values) || choices < 1 || choices > values as i64 {
                return unsafe_survey("choices must be from 1 to the number of values, of which there are 2 to 30");
            }
        }
        Ok(())
    }
}

impl RawParameters {
    fn check(self, attribute: &Attribute, level: &Level, share: f64) -> Result<Parameters> {
        let fault = |text: &str| Error::UnsafeSurvey(format!("level {:?}: {text}", level.name));
        let stated = &self.stated;
        let mut expected = level.stated.clone();
        expected.every_steps = expected.every_steps.or(stated.every_steps.filter(|&every| every == 1));
        if *stated != expected {
            return Err(fault("other parameters than in the canonical text"));
        }
        let k = attribute.k().filter(|&k| k >= 2 && Some(k) == Some(self.k));
        let k = k.ok_or_else(|| fault("another number of values"))?;
        if attribute.parts.is_some() && k > LARGEST_PAIR {
            return Err(fault("a pair with too many values"));
        }
        let every_steps = stated.every_steps.unwrap_or(1);
        if every_steps < 1 || stated.lifetime_reports.is_some_and(|most| most < 1) {
            return Err(fault("every_steps or lifetime_reports"));
        }
        if stated.choices != attribute.choices {
            return Err(fault("choices"));
        }
        let family = self.family(k).map_err(|error| match error {
            Error::UnsafeSurvey(reason) => fault(&reason),
            other => other,
        })?;
        if family.is_sets() != attribute.choices.is_some() {
            return Err(fault("a mechanism for sets exactly for a question with several answers"));
        }
        if stated.row_bytes != family.row_bytes(k) || stated.row_bytes > MOST_BYTES {
            return Err(fault("row_bytes"));
        }
        let memoized = stated.mechanism.starts_with("L-");
        let rounds: &[&str] = if memoized { &["memo", "report"] } else { &["report"] };
        let names: Vec<&str> = self.coins.keys().map(String::as_str).collect();
        if names != rounds {
            return Err(fault("coins of other rounds"));
        }
        for (round, coins) in &self.coins {
            let first = round == "memo" || !memoized;
            if !coins.keys().eq(family.coin_names(first)) {
                return Err(fault("other coins"));
            }
            if !coins.iter().all(|(name, coin)| same_coin(coin, level.coins.get(round).and_then(|coins| coins.get(name)))) {
                return Err(fault("another probability than in the canonical text"));
            }
        }
        if let Some(ln_odds) = family.ln_odds() {
            let stated = level.log_odds.unwrap_or(f64::NAN);
            let same = (ln_odds - stated).abs() <= DIGITS_TOLERANCE * stated; // false for NaN
            if !same {
                return Err(fault("other odds than in the canonical text"));
            }
        }
        let mut coins = self.coins;
        let (memo, report) = (coins.remove("memo"), coins.remove("report").unwrap_or_default());
        let losses = match &memo {
            Some(memo) => [(family.loss(k, memo), level.eps_inf), (family.loss_of_two(k, memo, &report), level.eps_1)],
            None => [(family.loss(k, &report), level.eps), (0.0, Some(MOST_EPS))],
        };
        for (loss, promised) in losses {
            let promised = promised.filter(|&eps| eps > 0.0 && eps <= MOST_EPS);
            let most = promised.ok_or_else(|| fault("a loss must be above 0 and at most 700"))?;
            let kept = loss.abs() <= most / share + LOSS_TOLERANCE; // false for NaN
            if !kept {
                return Err(fault("the coins lose more than the level promises"));
            }
        }
        let (every_steps, lifetime_reports) = (every_steps, self.stated.lifetime_reports);
        Ok(Parameters { family, k, row_bytes: self.stated.row_bytes, every_steps, lifetime_reports, memo, report })
    }

    /// The mechanism's family with its own parameters, checked.
    fn family(&self, k: u64) -> Result<Family> {
        let stated = &self.stated;
        let missing = || Error::UnsafeSurvey("a parameter of the mechanism is missing".into());
        match stated.mechanism.as_str() {
            "GRR" | "L-GRR" => Ok(Family::Symbols),
            "SW" => Family::wave(k, stated.width.ok_or_else(missing)?),
            "SUE" | "OUE" | "THE" | "L-SUE" | "L-OSUE" | "L-SOUE" | "L-OUE" => Ok(Family::Bits),
            "BLH" | "OLH" | "L-BLH" | "L-OLH" => {
                let (g, functions) = (stated.g.ok_or_else(missing)?, stated.functions.ok_or_else(missing)?);
                let (digits, stride) = (stated.digits.ok_or_else(missing)?, stated.stride.ok_or_else(missing)?);
                Family::hashed(k, g, functions, digits, stride, stated.field.clone().ok_or_else(missing)?)
            }
            "SS" => Family::subset(k, stated.omega.ok_or_else(missing)?),
            "L-SS" => {
                let (size, omega) = (stated.memo_size.ok_or_else(missing)?, stated.omega.ok_or_else(missing)?);
                Family::overlaps(k, size, omega, self.odds.as_ref().ok_or_else(missing)?)
            }
            "PS-GRR" | "L-PS-GRR" => {
                let choices = u64::try_from(stated.choices.ok_or_else(missing)?).map_err(|_| missing())?;
                Ok(Family::Sets { choices })
            }
            other => Err(Error::UnknownSurvey(format!("the mechanism {other:?}"))),
        }
    }
}

/// Compares a coin with the six digits of the canonical text.
fn same_coin(coin: &Coin, stated: Option<&BTreeMap<String, f64>>) -> bool {
    let Some(stated) = stated.filter(|stated| stated.len() == 1) else { return false };
    let smaller = coin.smaller();
    let expected = stated.get(if coin.inverted && smaller != 0.5 { "no" } else { "yes" });
    let expected = expected.or_else(|| stated.get("no").filter(|_| smaller == 0.5));
    let first = coin.digits.first().copied().unwrap_or(0);
    first <= 0x80 && expected.is_some_and(|&expected| (smaller - expected).abs() <= DIGITS_TOLERANCE * expected)
}

/// The bytes of a row of symbols below n.
pub(crate) fn symbol_bytes(n: u64) -> u64 {
    integer_bytes(n - 1)
}

#[cfg(test)]
impl RawParameters {
    /// The parameters of a vector without a canonical text.
    pub(crate) fn unchecked(json: &serde_json::Value) -> Parameters {
        let raw: RawParameters = serde_json::from_value(json.clone()).expect("parameters");
        let family = raw.family(raw.k).expect("a known mechanism");
        let (every_steps, lifetime_reports) = (raw.stated.every_steps.unwrap_or(1), raw.stated.lifetime_reports);
        let (k, row_bytes, mut coins) = (raw.k, raw.stated.row_bytes, raw.coins);
        let (memo, report) = (coins.remove("memo"), coins.remove("report").unwrap_or_default());
        Parameters { family, k, row_bytes, every_steps, lifetime_reports, memo, report }
    }
}
