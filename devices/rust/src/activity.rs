//! The activity log: what a device remembers of the use of an application, and the recipes that turn it into values.

use crate::consent::preview::Preview;
use crate::consent::switched_off;
use crate::device::{Clock, Device, now_ms};
use crate::error::{Error, Result};
use crate::store::{Document, Store};
use crate::survey::Survey;
use crate::survey::recipe::{Measure, Recipe};
use crate::survey::value::Value;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A window of 28 days, a step of 28 days, and some days for a clock that runs ahead.
const MOST_DAYS: usize = 64;
const MOST_EVENTS: usize = 100;
const MOST_SECONDS: f64 = 1e6;
/// 2020-01-01: a clock that shows an earlier day was never set.
const FIRST_DAY: i64 = 18_262;
pub(crate) const DAY_MS: i64 = 86_400_000;
/// The event that the application was used.
const SEEN: &str = "";

/// The log of an application, in one file that its processes and threads share. The file contains the true use.
///
/// All values of a step follow from the days before the step: every call within a step gives the same values.
#[derive(Debug, Clone)]
pub struct Activity {
    store: Store,
    clock: Clock,
    off: bool,
}

/// The values by attribute, and their step.
type Given = (Vec<(String, Value)>, u64);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Log {
    /// Day since 1970 → event → number of calls and total duration in milliseconds.
    days: BTreeMap<i64, BTreeMap<String, (u64, u64)>>,
}

impl Activity {
    /// Opens the log of a store, which is not the store of a device. It records nothing while devices are switched off.
    ///
    /// Record the use only with the person's consent: see [`Device::consent`].
    ///
    /// # Errors
    /// As for all calls: `StoreHeld`, `StoreFull` or `Store` if the store cannot be used. The log then stays as it is.
    pub fn open(store: Store) -> Result<Activity> {
        Self::with(store, now_ms, switched_off().is_some())
    }

    /// Opens a log with another clock, in milliseconds since 1970, for tests and simulations: no switch turns it off.
    ///
    /// # Errors
    /// As for [`Activity::open`].
    pub fn open_with(store: Store, clock: fn() -> i64) -> Result<Activity> {
        Self::with(store, clock, false)
    }

    pub(crate) fn with(store: Store, clock: Clock, off: bool) -> Result<Activity> {
        let activity = Activity { store, clock, off };
        activity.log().map(|_| activity)
    }

    /// Records that the application was used today.
    ///
    /// # Errors
    /// As for [`Activity::open`].
    pub fn seen(&self) -> Result<()> {
        self.record(SEEN, 0)
    }

    /// Records an event, whose name stands in the application's code and is never a text of the person.
    ///
    /// # Errors
    /// `Value` if the name does not have 1 to 64 letters, digits, dots, underscores or hyphens, or is the 101st of the day;
    /// otherwise as for [`Activity::open`].
    pub fn used(&self, event: &str) -> Result<()> {
        self.took(event, 0.0)
    }

    /// Records an event and its duration in seconds, from 0 to 10^6.
    ///
    /// # Errors
    /// As for [`Activity::used`]; `Value` also if the duration is out of range.
    pub fn took(&self, event: &str, seconds: f64) -> Result<()> {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let named = event.bytes().all(inner) && event.len() <= 64;
        if !named || !event.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) {
            return Err(Error::Value("an event has 1 to 64 letters, digits, dots, underscores or hyphens".into()));
        }
        if !(0.0..=MOST_SECONDS).contains(&seconds) {
            return Err(Error::Value("the duration of an event must be from 0 to 10^6 seconds".into()));
        }
        self.record(event, (1000.0 * seconds) as u64)
    }

    fn record(&self, event: &str, duration_ms: u64) -> Result<()> {
        let day = (self.clock)().div_euclid(DAY_MS);
        if day < FIRST_DAY || self.off {
            return Ok(());
        }
        self.transaction(|log| {
            let events = log.days.entry(day).or_default();
            let others = events.keys().filter(|&one| one != SEEN && one != event).count();
            if event != SEEN && others >= MOST_EVENTS {
                return Err(Error::Value(format!("a day has at most {MOST_EVENTS} different events")));
            }
            let (n, total) = events.entry(event.to_owned()).or_default();
            (*n, *total) = (*n + 1, total.saturating_add(duration_ms));
            log.keep_nearest(day);
            Ok(())
        })
    }

    /// Reports the attributes with a recipe at the present step, and other values: see [`Device::answer`].
    ///
    /// A device reports the attributes with a recipe only at steps at which the application was used. So their reports count
    /// the people who used it.
    ///
    /// # Errors
    /// As for [`Device::answer`]; `Value` also for a value of an attribute with a recipe.
    pub fn answer(&self, device: &Device, values: &[(&str, Value)]) -> Result<BTreeMap<String, Vec<u8>>> {
        let Some((given, step)) = self.given(device.survey(), values)? else { return Ok(BTreeMap::new()) };
        device.answer(&borrowed(&given), Some(step))
    }

    /// Returns what [`Activity::answer`] would make and send now: see [`Device::preview`].
    ///
    /// # Errors
    /// As for [`Activity::answer`].
    pub fn preview<'a>(&self, device: &'a Device, values: &[(&str, Value)]) -> Result<Vec<Preview<'a>>> {
        let Some((given, step)) = self.given(device.survey(), values)? else { return Ok(Vec::new()) };
        device.preview(&borrowed(&given), Some(step))
    }

    /// Returns the values of the attributes with a recipe at a step; none for a step without use of the application.
    ///
    /// # Errors
    /// As for [`Activity::open`].
    pub fn values(&self, survey: &Survey, step: u64) -> Result<BTreeMap<String, Value>> {
        Ok(self.log()?.values(survey, step))
    }

    /// All values at the present step; nothing before the survey's start.
    fn given(&self, survey: &Survey, values: &[(&str, Value)]) -> Result<Option<Given>> {
        let computed = |name: &str| survey.text.attribute.iter().any(|one| one.name == name && one.recipe.is_some());
        if let Some((name, _)) = values.iter().find(|(name, _)| computed(name)) {
            return Err(Error::Value(format!("{name} has a recipe: give no value, since the device computes it")));
        }
        let Ok(step) = u64::try_from(survey.step_at((self.clock)())) else { return Ok(None) };
        let mut given: Vec<(String, Value)> = self.values(survey, step)?.into_iter().collect();
        given.extend(values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Ok(Some((given, step)))
    }

    /// Erases the log permanently.
    ///
    /// # Errors
    /// As for [`Activity::open`].
    pub fn forget(&self) -> Result<()> {
        self.transaction(|log| {
            log.days.clear();
            Ok(())
        })
    }

    pub(crate) fn log(&self) -> Result<Log> {
        self.transaction(|log| Ok(log.clone()))
    }

    fn transaction<T>(&self, run: impl FnOnce(&mut Log) -> Result<T>) -> Result<T> {
        self.store.transaction(|log: &mut Option<Log>| run(log.get_or_insert_default()))
    }
}

fn borrowed(values: &[(String, Value)]) -> Vec<(&str, Value)> {
    values.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
}

impl Document for Log {
    const KIND: &str = "an activity log";
    const FORMAT: u32 = 1;
}

impl Log {
    /// Keeps the first day and the days that are nearest to a day, so that a wrong clock makes it forget nothing true.
    fn keep_nearest(&mut self, day: i64) {
        let mut near: Vec<i64> = self.days.keys().copied().collect();
        near.sort_by_key(|&one| (one.abs_diff(day), one));
        let mut kept: BTreeSet<i64> = near.into_iter().take(MOST_DAYS).collect();
        kept.extend(self.days.keys().next());
        self.days.retain(|one, _| kept.contains(one));
    }

    /// The values of the attributes with a recipe; none for a step without use of the application.
    pub(crate) fn values(&self, survey: &Survey, step: u64) -> BTreeMap<String, Value> {
        let Ok(step) = i64::try_from(step) else { return BTreeMap::new() };
        let used = self.days.keys().any(|&day| survey.step_at(day * DAY_MS) == step);
        let computed = survey.text.attribute.iter().filter_map(|one| Some((one, one.recipe.as_ref()?)));
        let value = |recipe: &Recipe| Value::Number(recipe.place(self.measured(recipe, survey, step)));
        computed.filter(|_| used).map(|(one, recipe)| (one.name.clone(), value(recipe))).collect()
    }

    /// A recipe's number at a step: it depends only on the days before the step.
    fn measured(&self, recipe: &Recipe, survey: &Survey, step: i64) -> f64 {
        let step_of = |day: &i64| survey.step_at(day * DAY_MS);
        let first = self.days.keys().next().map_or(step, step_of);
        let last = self.days.keys().map(step_of).filter(|&one| one < step).max();
        match (recipe.measure, last) {
            (Measure::Age, _) => (step - first.min(step)) as f64,
            (Measure::Absence, None) => f64::INFINITY,
            (Measure::Absence, Some(last)) => (step - last) as f64,
            (_, None) => 0.0,
            (measure, Some(last)) => {
                let end = (last + 1).saturating_mul(survey.step_ms()).saturating_add(survey.text.start) / DAY_MS; // last may be negative
                let window = self.days.iter().filter(|(day, _)| step_of(day) < step && **day >= end - recipe.window_days());
                let days: Vec<_> = window.map(|(_, events)| events).collect();
                let of = |events: &&BTreeMap<String, (u64, u64)>| events.get(recipe.of.as_ref()?).copied();
                let found: Vec<(u64, u64)> = days.iter().filter_map(of).collect();
                let used = days.len() as f64;
                match measure {
                    Measure::ActiveDays => {
                        if recipe.of.is_none() {
                            used
                        } else {
                            found.len() as f64
                        }
                    }
                    Measure::DaysWithout => used - found.len() as f64,
                    Measure::UsesPerDay => found.iter().map(|(n, _)| n).sum::<u64>() as f64 / used,
                    _ => found.iter().map(|(_, ms)| ms).sum::<u64>() as f64 / 1000.0 / used,
                }
            }
        }
    }
}
