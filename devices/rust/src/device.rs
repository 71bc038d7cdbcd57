//! The device: one person's client, which a program embeds.

use crate::consent::{ConsentMode, switched_off};
use crate::encoding::base64;
use crate::encoding::envelope::seal;
use crate::error::{Error, Result};
use crate::mechanism::draws::{Draws, Random, SystemRandom};
use crate::store::Store;
use crate::store::state::{Answers, Enrolled, Memo, Sealed, State};
use crate::survey::value::Value;
use crate::survey::{Parameters, Survey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

const MOST_STEP: u64 = 1 << 62;
/// So many reports of future steps, made while the clock runs ahead, displace no report of a true step.
const AHEAD: usize = 24;
const KEY_BYTES: usize = 16;
const PIN_DIGITS: usize = 64;
const TOLERANCE: f64 = 1e-9; // nats

/// What the application requires of the survey, and what the person chose.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Attribute name → name of the level that the person chose; otherwise its first level. The first use fixes the levels.
    pub levels: BTreeMap<String, String>,
    /// True if the application knows that this device has enrolled before: an empty store is then an error.
    pub expect_enrolled: bool,
    /// The pin of the survey that the application expects, as 64 hexadecimal digits.
    pub pin: Option<String>,
    /// The largest allowed loss of all reports while the values stay the same, in nats.
    pub max_eps: Option<f64>,
    /// The device's present cohort, for a survey with cohorts. It travels in clear: it must not depend on a value.
    pub cohort: Option<String>,
    /// Public keys in base64, one of which must have signed the survey; empty for no check.
    pub signed_by: Vec<String>,
    /// Other public keys, one of which must also have signed the survey; empty for no second signature.
    pub also_signed_by: Vec<String>,
    /// How the program asks the person.
    pub consent: ConsentMode,
}

/// A report that may need another attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The attribute's name.
    pub attribute: String,
    /// The step of the report.
    pub step: u64,
    /// The bytes to send.
    pub envelope: Vec<u8>,
    /// The `Idempotency-Key` of all attempts.
    pub key: String,
    /// The time from which the report may leave, in milliseconds since 1970; 0 without a relay.
    pub due_ms: i64,
}

/// Why a device makes no report, whatever the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// A switch turns devices off: see [`crate::switched_off`].
    SwitchedOff,
    /// The person has not agreed.
    ConsentUnknown,
    /// The person disagreed.
    ConsentWithdrawn,
    /// The device answers another attribute (smp).
    OtherAttribute,
    /// The device reports at other steps, which are `every_steps` apart.
    OtherPhase,
    /// The device has made all `lifetime_reports`.
    LifetimeReportsMade,
    /// The step is after the survey's last step.
    SurveyEnded,
    /// The clock shows a time before the survey's start.
    SurveyNotBegun,
    /// Only in a preview: the gateway has answered the report.
    AlreadyAnswered,
}

impl Silence {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Silence::SwitchedOff => "switched off",
            Silence::ConsentUnknown => "consent unknown",
            Silence::ConsentWithdrawn => "consent withdrawn",
            Silence::OtherAttribute => "other attribute",
            Silence::OtherPhase => "other phase",
            Silence::LifetimeReportsMade => "lifetime reports made",
            Silence::SurveyEnded => "survey ended",
            Silence::SurveyNotBegun => "survey not begun",
            Silence::AlreadyAnswered => "already answered",
        }
    }
}

/// The loss of a device's reports of one attribute, in nats. It depends on the values: keep it private.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spent {
    /// The number of distinct steps reported.
    pub reports: u64,
    /// A bound between the values and any unchanged value; nothing after reports from several memos.
    pub eps_t: Option<f64>,
    /// A bound between any two sequences of values.
    pub any_values: f64,
}

/// Tells the time in milliseconds since 1970.
pub(crate) type Clock = fn() -> i64;

/// A person's device, which answers one survey with sanitized reports.
///
/// Processes and threads that share one file are one device. Until [`Device::forget`], a memo is on the disk before the first
/// report from it leaves; a step has at most one report of an attribute; and an envelope has one key.
pub struct Device {
    pub(crate) survey: Survey,
    pub(crate) store: Store,
    pub(crate) in_wallet: bool,
    pub(crate) levels: Vec<usize>,
    pub(crate) mode: ConsentMode,
    pub(crate) starts_off: bool,                // such a device has no enrolment, and stays off
    pub(crate) stopped: Mutex<BTreeSet<usize>>, // attributes that the person withdrew, until the store has the withdrawal
    cohort: Option<u64>,
    random: Mutex<Box<dyn Random + Send>>,
    pub(crate) clock: Clock,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("<Device>")
    }
}

impl Device {
    /// Opens the device of a store. The consent, or with another [`ConsentMode`] the first use, enrolls it permanently.
    ///
    /// To close it, drop it: the store holds no open file between two calls.
    ///
    /// # Errors
    /// `WrongSurvey`, `NotSigned`, `CostlySurvey`, `Value` if the survey is not as required; `RelayRequired` if it needs a
    /// relay, and this crate lacks the feature `relay`; `StoreCleared`, `StoreHeld`, `StoreFull` or `Store` if the store cannot be used.
    pub fn open(survey: Survey, store: Store, options: &Options) -> Result<Device> {
        Self::with(survey, store, options, Box::new(SystemRandom), now_ms, false)
    }

    /// The same with another source of random bytes: for tests only.
    ///
    /// # Errors
    /// As for [`Device::open`].
    pub fn open_with(survey: Survey, store: Store, options: &Options, random: Box<dyn Random + Send>) -> Result<Device> {
        Self::with(survey, store, options, random, now_ms, false)
    }

    pub(crate) fn with(
        survey: Survey,
        store: Store,
        options: &Options,
        random: Box<dyn Random + Send>,
        clock: Clock,
        in_wallet: bool,
    ) -> Result<Device> {
        require_pin(&survey, options.pin.as_deref())?;
        crate::survey::signatures::require(&survey, &options.signed_by, &options.also_signed_by)?;
        if survey.text.relay.is_some() && !cfg!(feature = "relay") {
            return Err(Error::RelayRequired(format!("survey {} requires a relay", survey.name)));
        }
        let cohort = survey.cohort(options.cohort.as_deref())?;
        let chosen = survey.levels(&options.levels)?;
        let levels = chosen.iter().map(|level| level.unwrap_or(0)).collect();
        let (mode, starts_off) = (options.consent, options.consent != ConsentMode::Simulated && switched_off().is_some());
        let (random, stopped) = (Mutex::new(random), Mutex::default());
        let mut device = Device { survey, store, in_wallet, levels, mode, starts_off, stopped, cohort, random, clock };
        device.levels = device.begin(&chosen, options)?;
        Ok(device)
    }

    /// Checks the store, and enrolls if consent is given. Returns the levels of the device.
    fn begin(&self, chosen: &[Option<usize>], options: &Options) -> Result<Vec<usize>> {
        let most = options.max_eps.unwrap_or(f64::INFINITY);
        self.store.transaction(|kept| {
            if let Some(wrong) = self.another(kept.as_ref()) {
                return Err(wrong);
            }
            let asks = self.muted(kept.as_ref()).iter().all(Option::is_some);
            if let Some(enrolled) = kept.as_mut().and_then(|state| state.enrolled(&self.survey.pin)) {
                let levels: Vec<usize> = enrolled.attributes.iter().map(|one| one.level).collect();
                if chosen.iter().zip(&levels).any(|(chosen, level)| chosen.is_some_and(|chosen| chosen != *level)) {
                    return Err(Error::Store(format!("{}: the device enrolled with other levels", self.store.place())));
                }
                self.require_at_most(most, &levels)?;
                return Ok(levels);
            }
            let gone = kept.is_none() && (options.expect_enrolled || self.in_wallet);
            if gone || (options.expect_enrolled && !asks) {
                return Err(Error::StoreCleared(format!("{}: there is no enrolment, but one was made", self.store.place())));
            }
            self.require_at_most(most, &self.levels)?;
            let mut state = kept.clone().unwrap_or_else(|| State::new(None));
            if asks {
                self.admitted(&state)?; // a wallet without room says so before anybody is asked
            } else {
                self.enter(&mut state)?;
                *kept = Some(state);
            }
            Ok(self.levels.clone())
        })
    }

    /// Charges the survey's claim, and makes the choices of a new device.
    pub(crate) fn enter(&self, state: &mut State) -> Result<()> {
        let enrolled = self.admitted(state)?;
        state.surveys.push(self.enroll(enrolled)?);
        Ok(())
    }

    /// Why this device cannot use a state, such as that of another survey in a store without a wallet.
    pub(crate) fn another(&self, state: Option<&State>) -> Option<Error> {
        let state = state?;
        if self.in_wallet != state.budget.is_some() {
            return Some(Error::Store(format!("{}: a wallet's file is no device's file", self.store.place())));
        }
        let place = self.store.place();
        let (own, others): (Vec<_>, Vec<_>) = state.surveys.iter().partition(|one| one.pin == self.survey.pin);
        if let Some(other) = others.first().filter(|_| !self.in_wallet) {
            let (name, pin) = (&other.name, &other.pin);
            return Some(Error::WrongSurvey(format!("{place}: belongs to the survey {name} with the pin {pin}")));
        }
        let fits = own.into_iter().filter(|one| one.left.is_none()).all(|one| self.fits(one));
        (!fits).then(|| Error::Store(format!("{place}: the file is damaged")))
    }

    /// Tells whether an enrolment is one of this survey, with its attributes, levels and memos.
    fn fits(&self, enrolled: &Enrolled) -> bool {
        let fits = |(one, levels): (&Answers, &Vec<Parameters>)| {
            let memo = |p: &Parameters| one.memos.values().all(|memo| p.is_memo(&memo.row));
            levels.get(one.level).is_some_and(|p| one.fake.is_none_or(|fake| fake < p.k) && memo(p))
        };
        enrolled.attributes.len() == self.survey.mechanisms.len()
            && enrolled.attributes.iter().zip(&self.survey.mechanisms).all(fits)
    }

    /// Charges the survey's claim, and returns the enrolment without its choices.
    fn admitted(&self, state: &State) -> Result<Enrolled> {
        let claim = self.survey.claim(&self.levels, state.budget.and_then(|budget| budget.window_s));
        let first = if self.in_wallet { self.survey.step_at((self.clock)()).max(0) as u64 } else { 0 };
        if let Some(budget) = state.budget {
            let (per_window, for_ever) = state.charged(self.survey.opens_ms(first));
            let limits = [(budget.per_window, claim.per_window, per_window), (budget.for_ever, claim.for_ever, for_ever)];
            for (limit, asked, charged) in limits {
                let fits = limit.is_none_or(|limit| asked + charged <= limit * (1.0 + TOLERANCE)); // NaN does not fit
                if !fits {
                    let name = &self.survey.name;
                    return Err(Error::WalletFull(format!("survey {name} may lose {asked} nats, and {charged} are charged")));
                }
            }
        }
        let enrolled = Enrolled {
            pin: self.survey.pin.clone(),
            name: self.survey.name.clone(),
            adds_up: self.survey.adds_up(),
            per_window: claim.per_window,
            for_ever: claim.for_ever.is_finite().then_some(claim.for_ever),
            until_ms: self.survey.text.ends.map(|ends| self.survey.opens_ms(ends as u64)),
            left: None,
            journal: Vec::new(),
            attributes: claim.losses.iter().map(|&loss| Answers::new(0, false, loss, first.checked_sub(1))).collect(),
        };
        Ok(enrolled)
    }

    /// Makes the choices of a new device, in the order that the document fixes.
    fn enroll(&self, mut enrolled: Enrolled) -> Result<Enrolled> {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let mut draws = Draws(&mut **random);
        let sampled = draws.below(self.levels.len() as u64)? as usize;
        let collection = self.survey.text.collection.as_str();
        for (a, one) in enrolled.attributes.iter_mut().enumerate() {
            let p = &self.survey.mechanisms[a][self.levels[a]];
            one.level = self.levels[a];
            one.silent = collection == "smp" && a != sampled;
            if collection == "rs+fd" && a != sampled {
                one.fake = Some(draws.below(p.k)?);
            }
            if let Some(functions) = p.family.functions().filter(|_| p.memoized()) {
                one.function = draws.below(functions)?;
            }
            one.phase = draws.below(p.every_steps)?;
        }
        Ok(enrolled)
    }

    fn require_at_most(&self, most: f64, levels: &[usize]) -> Result<()> {
        let loss = self.survey.largest_loss(levels);
        if loss <= most + TOLERANCE {
            return Ok(());
        }
        Err(Error::CostlySurvey(format!("survey {} may lose {loss} nats, the application allows {most}", self.survey.name)))
    }

    /// The survey that this device answers.
    pub fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Reports several attributes at a step, and the survey's pairs of them. Returns the envelopes by attribute.
    ///
    /// All values are checked before the first report. Without a step, it is the present one by the system's clock.
    ///
    /// # Errors
    /// As for [`Device::report`].
    pub fn answer(&self, values: &[(&str, Value)], step: Option<u64>) -> Result<BTreeMap<String, Vec<u8>>> {
        let indices = self.indices(values)?;
        let mut made = BTreeMap::new();
        for (a, index) in indices {
            if let Some(envelope) = self.report_index(a, index, step)? {
                made.insert(self.survey.text.attribute[a].name.clone(), envelope);
            }
        }
        Ok(made)
    }

    /// The index of each value, by attribute, with the pairs of which both values are given.
    pub(crate) fn indices(&self, values: &[(&str, Value)]) -> Result<Vec<(usize, u64)>> {
        let mut given: BTreeMap<usize, Value> = BTreeMap::new();
        for (name, value) in values {
            let a = self.survey.place(name)?;
            if self.survey.text.attribute[a].parts.is_some() {
                return Err(Error::Value(format!("{name} is a pair: give the values of its two attributes")));
            }
            given.insert(a, value.clone());
        }
        let of = |name: &str| self.survey.place(name).ok().and_then(|a| given.get(&a)).cloned();
        let mut pairs = BTreeMap::new();
        for (a, attribute) in self.survey.text.attribute.iter().enumerate() {
            let Some(parts) = &attribute.parts else { continue };
            if let (Some(first), Some(second)) = (of(&parts.0.name), of(&parts.1.name)) {
                pairs.insert(a, Value::List(vec![first, second]));
            }
        }
        given.extend(pairs);
        let index = |(a, value): (usize, Value)| self.survey.text.attribute[a].index(&value).map(|index| (a, index));
        given.into_iter().map(index).collect()
    }

    /// Returns the envelope with this device's report of a value at a step; nothing if the device makes no report.
    ///
    /// The first call for a step draws the report; later calls return the same bytes while the envelope is kept.
    ///
    /// # Errors
    /// `Value` if there is no such attribute, value or step; `StepForgotten` if the step can no longer be reported, or
    /// `ClockWentBack` without a step; `StoreCleared`, `StoreHeld`, `StoreFull`, `WrongSurvey` or `Store` for the store.
    pub fn report(&self, attribute: &str, value: impl Into<Value>, step: Option<u64>) -> Result<Option<Vec<u8>>> {
        let a = self.survey.place(attribute)?;
        let index = self.survey.text.attribute[a].index(&value.into())?;
        self.report_index(a, index, step)
    }

    fn report_index(&self, a: usize, index: u64, given: Option<u64>) -> Result<Option<Vec<u8>>> {
        let Some(step) = self.step(given)? else { return Ok(None) };
        self.store.transaction(|state| {
            if self.muted(state.as_ref())[a].is_some() {
                return Ok(None);
            }
            let answers = &mut self.enrolled(state)?.attributes[a];
            if self.silent(a, answers, step).is_some() {
                return Ok(None);
            }
            self.report_of(a, answers, index, step, given.is_some()).map(Some)
        })
    }

    /// The kept or new envelope of a step at which the device reports; `named` if the caller named the step.
    pub(crate) fn report_of(&self, a: usize, answers: &mut Answers, index: u64, step: u64, named: bool) -> Result<Vec<u8>> {
        if let Some(sealed) = answers.kept.get(&step) {
            return Ok(sealed.envelope.clone());
        }
        if answers.is_over(step) {
            let text = format!("attribute {:?}: step {step} can no longer be reported", self.survey.text.attribute[a].name);
            return Err(if named { Error::StepForgotten(text) } else { Error::ClockWentBack(text) });
        }
        let p = &self.survey.mechanisms[a][answers.level];
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let mut draws = Draws(&mut **random);
        let row = row(p, answers, &mut draws, answers.fake.unwrap_or(index))?;
        let (fingerprint, level) = (&self.survey.fingerprint, answers.level as u64);
        let envelope = seal(fingerprint, a as u64, level, step, 1, self.cohort, &row);
        let key = Some(base64::encode_url(&draws.bytes(KEY_BYTES)?));
        let due_ms = if self.survey.text.relay.is_some() { self.moment(&mut draws, step)? } else { 0 };
        answers.keep(step, Sealed { envelope: envelope.clone(), key, due_ms }, self.latest().saturating_add(AHEAD));
        Ok(envelope)
    }

    fn moment(&self, draws: &mut Draws, step: u64) -> Result<i64> {
        let seconds = draws.below(self.survey.text.step_seconds as u64)? as i64;
        let drawn = seconds.saturating_mul(1000).saturating_add(draws.below(1000)? as i64);
        Ok(self.survey.opens_ms(step + 1).saturating_add(drawn))
    }

    /// So many settled envelopes are kept: the service takes the present step, late steps, and the next step.
    fn latest(&self) -> usize {
        usize::try_from(self.survey.text.lateness_steps).unwrap_or(usize::MAX).saturating_add(2)
    }

    /// The given or present step; nothing if the present time is before the survey's start.
    pub(crate) fn step(&self, given: Option<u64>) -> Result<Option<u64>> {
        let Some(step) = given else { return Ok(u64::try_from(self.survey.step_at((self.clock)())).ok()) };
        if step > MOST_STEP {
            return Err(Error::Value(format!("a step must be from 0 to 2^62, got {step}")));
        }
        Ok(Some(step))
    }

    /// Tells why the device makes no report of an attribute at a step, whatever the value; nothing if it makes a report.
    ///
    /// # Errors
    /// As for [`Device::report`], but not `StepForgotten`.
    pub fn silence(&self, attribute: &str, step: Option<u64>) -> Result<Option<Silence>> {
        let (a, step) = (self.survey.place(attribute)?, self.step(step)?);
        self.store.transaction(|state| match self.muted(state.as_ref())[a] {
            Some(reason) => Ok(Some(reason)),
            None => {
                let answers = &self.enrolled(state)?.attributes[a];
                Ok(step.map_or(Some(Silence::SurveyNotBegun), |step| self.silent(a, answers, step)))
            }
        })
    }

    pub(crate) fn silent(&self, a: usize, answers: &Answers, step: u64) -> Option<Silence> {
        let p = &self.survey.mechanisms[a][answers.level];
        if answers.silent {
            return Some(Silence::OtherAttribute);
        }
        if self.survey.text.ends.is_some_and(|ends| step >= ends as u64) {
            return Some(Silence::SurveyEnded);
        }
        if step % p.every_steps != answers.phase {
            return Some(Silence::OtherPhase);
        }
        let all_made = p.lifetime_reports.is_some_and(|most| answers.reports >= most);
        (all_made && !answers.kept.contains_key(&step)).then_some(Silence::LifetimeReportsMade)
    }

    /// Returns the kept reports that are not settled, by step; without consent, none.
    ///
    /// # Errors
    /// As for [`Device::report`].
    pub fn waiting(&self) -> Result<Vec<Waiting>> {
        self.store.transaction(|state| {
            let muted = self.muted(state.as_ref());
            if muted.iter().all(Option::is_some) {
                return Ok(Vec::new());
            }
            let attributes = self.survey.text.attribute.iter().zip(&self.enrolled(state)?.attributes);
            let mut found = Vec::new();
            for ((attribute, answers), _) in attributes.zip(&muted).filter(|(_, muted)| muted.is_none()) {
                for (&step, sealed) in &answers.kept {
                    let Some(key) = sealed.key.clone() else { continue };
                    let (attribute, envelope) = (attribute.name.clone(), sealed.envelope.clone());
                    found.push(Waiting { attribute, step, envelope, key, due_ms: sealed.due_ms });
                }
            }
            found.sort_by_key(|report| report.step);
            Ok(found)
        })
    }

    /// Marks the report with this key as settled: the gateway's answer to it is final, and no further attempt is needed.
    ///
    /// # Errors
    /// As for [`Device::report`].
    pub fn settle(&self, key: &str) -> Result<()> {
        self.store.transaction(|state: &mut Option<State>| {
            let Some(enrolled) = state.as_mut().and_then(|state| state.enrolled(&self.survey.pin)) else { return Ok(()) };
            for answers in &mut enrolled.attributes {
                let found = answers.kept.iter().find(|(_, sealed)| sealed.key.as_deref() == Some(key));
                if let Some(step) = found.map(|(&step, _)| step) {
                    answers.settle(step, self.latest());
                }
            }
            Ok(())
        })
    }

    /// Returns the loss of an attribute's reports so far.
    ///
    /// # Errors
    /// As for [`Device::report`].
    pub fn spent(&self, attribute: &str) -> Result<Spent> {
        let a = self.survey.place(attribute)?;
        self.store.transaction(|state| {
            let answers = &self.enrolled(state)?.attributes[a];
            let p = &self.survey.mechanisms[a][answers.level];
            let memos: Vec<u64> = answers.memos.values().map(|memo| memo.reports).filter(|&reports| reports > 0).collect();
            let erased = p.memoized() && memos.iter().sum::<u64>() < answers.reports; // by a withdrawal
            let eps_t = (memos.len() <= 1 && !erased).then(|| p.eps_t(answers.reports));
            let any_values = answers.reports as f64 * p.any_values();
            Ok(Spent { reports: answers.reports, eps_t, any_values })
        })
    }

    /// Erases memos, enrolment and envelopes permanently. The next use of the store enrolls again.
    ///
    /// The losses of earlier reports remain: those of new reports add to them.
    ///
    /// # Errors
    /// `Value` if `confirm` is not the survey's name; otherwise as for [`Device::report`].
    pub fn forget(&self, confirm: &str) -> Result<()> {
        if confirm != self.survey.name {
            return Err(Error::Value(format!("confirm must be the survey's name, {}", self.survey.name)));
        }
        self.store.transaction(|state| {
            if self.muted(state.as_ref()).iter().any(Option::is_none) {
                self.enrolled(state)?;
            } else if let Some(wrong) = self.another(state.as_ref()) {
                return Err(wrong);
            }
            let Some(kept) = state else { return Ok(()) };
            kept.consents.remove(&self.survey.pin);
            self.erase(kept);
            if !self.in_wallet {
                *state = None;
            }
            Ok(())
        })
    }

    /// Erases the enrolment, and what a wallet does not need.
    pub(crate) fn erase(&self, state: &mut State) {
        if self.in_wallet {
            crate::wallet::leave(state, &self.survey.pin, &self.survey);
        } else {
            state.surveys.clear();
        }
    }

    /// The number of steps between two reports of an attribute.
    pub(crate) fn every(&self, a: usize, answers: &Answers) -> u64 {
        self.survey.mechanisms[a][answers.level].every_steps
    }

    pub(crate) fn enrolled<'a>(&self, state: &'a mut Option<State>) -> Result<&'a mut Enrolled> {
        if let Some(wrong) = self.another(state.as_ref()) {
            return Err(wrong);
        }
        let found = state.as_mut().and_then(|state| state.enrolled(&self.survey.pin));
        found.ok_or_else(|| Error::StoreCleared(format!("{}: there is no enrolment", self.store.place())))
    }
}

/// Draws the row of value v; a new memo goes into the state.
fn row(p: &Parameters, answers: &mut Answers, draws: &mut Draws, v: u64) -> Result<Vec<u8>> {
    if !p.memoized() {
        return p.once(draws, v);
    }
    let key = p.memo_key(v, answers.function);
    let known = answers.memos.contains_key(&key);
    if !known {
        let memo = Memo { row: p.first(draws, key, answers.function)?, reports: 0 };
        answers.memos.insert(key, memo);
    }
    let memo = answers.memos.get_mut(&key).expect("a memo");
    memo.reports += 1;
    p.second(draws, &memo.row)
}

impl Survey {
    fn cohort(&self, name: Option<&str>) -> Result<Option<u64>> {
        match (&self.text.cohort, name) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Error::Value(format!("survey {} has no cohorts", self.name))),
            (Some(_), None) => Err(Error::Value(format!("survey {} needs the device's cohort", self.name))),
            (Some(cohort), Some(name)) => {
                let place = cohort.values.iter().position(|value| value == name);
                let place = place.ok_or_else(|| Error::Value(format!("survey {} has no cohort {name:?}", self.name)))?;
                Ok(Some(place as u64))
            }
        }
    }

    fn levels(&self, chosen: &BTreeMap<String, String>) -> Result<Vec<Option<usize>>> {
        let mut levels = vec![None; self.text.attribute.len()];
        for (attribute, level) in chosen {
            let a = self.place(attribute)?;
            let found = self.text.attribute[a].level.iter().position(|one| one.name == *level);
            let found = found.ok_or_else(|| Error::Value(format!("attribute {attribute:?} has no level {level:?}")))?;
            levels[a] = Some(found);
        }
        Ok(levels)
    }
}

fn require_pin(survey: &Survey, pin: Option<&str>) -> Result<()> {
    let Some(pin) = pin else { return Ok(()) };
    if pin.len() != PIN_DIGITS || !pin.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Error::Value("a pin has 64 hexadecimal digits".into()));
    }
    if pin != survey.pin {
        return Err(Error::WrongSurvey(format!("survey {} has the pin {}, expected {pin}", survey.name, survey.pin)));
    }
    Ok(())
}

pub(crate) fn now_ms() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_millis() as i64,
        Err(before) => -(before.duration().as_millis() as i64),
    }
}
