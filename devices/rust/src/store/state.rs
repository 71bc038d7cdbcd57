//! What a store keeps: the enrolments, memos and envelopes of one person, and a wallet's charges.

use crate::consent;
use crate::consent::preview::Left;
use crate::store::Document;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// More dropped steps than these are forgotten, with all steps before them.
const MOST_DROPPED: usize = 10_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) budget: Option<Budget>, // of a wallet
    pub(crate) surveys: Vec<Enrolled>,
    pub(crate) consents: BTreeMap<String, consent::Answers>, // by pin, also without an enrolment
}

/// A wallet's limits; nothing for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// The largest loss between histories that differ only within `window_s` seconds, in nats.
    pub per_window: Option<f64>,
    /// The length of the window in seconds.
    pub window_s: Option<u64>,
    /// The largest loss between any two histories, in nats.
    pub for_ever: Option<f64>,
}

/// An enrolment. After the device has left the survey, only its charges stay.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Enrolled {
    pub(crate) pin: String,
    pub(crate) name: String,
    pub(crate) adds_up: bool,
    #[serde(with = "losses")]
    pub(crate) per_window: f64,
    pub(crate) for_ever: Option<f64>, // nothing: without a bound
    pub(crate) until_ms: Option<i64>, // the charge per window counts until a window after this time; nothing: always
    pub(crate) left: Option<u64>,     // the number of reports, after the device has left
    pub(crate) attributes: Vec<Answers>,
    pub(crate) journal: Vec<Left>,
}

/// Losses in JSON, which has no infinity: null stands for it.
mod losses {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(loss: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        loss.is_finite().then_some(loss).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
    }
}

/// A device's choices and reports of one attribute.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Answers {
    pub(crate) level: usize,
    pub(crate) silent: bool, // the device does not answer this attribute
    pub(crate) fake: Option<u64>,
    pub(crate) function: u64,
    pub(crate) phase: u64,
    #[serde(with = "losses")]
    pub(crate) loss: f64, // the bound of the loss of one report, in nats
    pub(crate) reports: u64,
    pub(crate) memos: BTreeMap<u64, Memo>,
    pub(crate) kept: BTreeMap<u64, Sealed>, // by step
    dropped: Vec<u64>,                      // in ascending order
    forgotten: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Memo {
    #[serde(with = "crate::encoding::hex")]
    pub(crate) row: Vec<u8>,
    pub(crate) reports: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sealed {
    #[serde(with = "crate::encoding::hex")]
    pub(crate) envelope: Vec<u8>,
    pub(crate) key: Option<String>, // nothing after the envelope was settled
    pub(crate) due_ms: i64,
}

impl Document for State {
    const KIND: &str = "a device or wallet";
    const FORMAT: u32 = 1;
}

impl State {
    pub(crate) fn new(budget: Option<Budget>) -> State {
        State { budget, surveys: Vec::new(), consents: BTreeMap::new() }
    }

    /// The present enrolment in a survey.
    pub(crate) fn enrolled(&mut self, pin: &str) -> Option<&mut Enrolled> {
        self.surveys.iter_mut().find(|one| one.pin == pin && one.left.is_none())
    }

    /// The sums of the charges per window that still count at a time, and of those for ever, in nats.
    pub(crate) fn charged(&self, from_ms: i64) -> (f64, f64) {
        let window_ms = self.budget.and_then(|budget| budget.window_s).unwrap_or(0).saturating_mul(1000);
        let window_ms = i64::try_from(window_ms).unwrap_or(i64::MAX);
        let counts = |one: &&Enrolled| one.until_ms.is_none_or(|until| until.saturating_add(window_ms) > from_ms);
        let per_window = self.surveys.iter().filter(counts).fold(0.0, |sum, one| sum + one.per_window);
        let for_ever = self.surveys.iter().fold(0.0, |sum, one| sum + one.for_ever.unwrap_or(f64::INFINITY));
        (per_window, for_ever)
    }
}

impl Enrolled {
    /// The number of reports, and the bound of their loss in nats.
    pub(crate) fn spent(&self) -> (u64, f64) {
        if let Some(reports) = self.left {
            return (reports, self.for_ever.unwrap_or(f64::INFINITY));
        }
        let losses = self.attributes.iter().map(|one| one.reports as f64 * one.loss);
        let reports = self.attributes.iter().map(|one| one.reports).sum();
        (reports, together(losses, self.adds_up))
    }

    /// The last step with a report.
    pub(crate) fn last_step(&self) -> Option<u64> {
        self.attributes.iter().filter_map(Answers::last_step).max()
    }
}

/// The loss of all attributes together in nats: the sum if their losses add up, otherwise the largest.
pub(crate) fn together(losses: impl Iterator<Item = f64>, adds_up: bool) -> f64 {
    losses.fold(0.0, |so_far, loss| if adds_up { so_far + loss } else { so_far.max(loss) })
}

impl Answers {
    pub(crate) fn new(level: usize, silent: bool, loss: f64, forgotten: Option<u64>) -> Answers {
        let (memos, kept) = (BTreeMap::new(), BTreeMap::new());
        let (fake, function, phase, reports, dropped) = (None, 0, 0, 0, Vec::new());
        Answers { level, silent, fake, function, phase, loss, reports, memos, kept, dropped, forgotten }
    }

    /// Tells whether a step can no longer be reported, since its envelope was dropped or the step is too early.
    pub(crate) fn is_over(&self, step: u64) -> bool {
        self.forgotten.is_some_and(|last| step <= last) || self.dropped.binary_search(&step).is_ok()
    }

    /// Drops what the attribute's consent allowed to keep: the waiting reports and the memos. It remembers the reported steps.
    pub(crate) fn withdraw(&mut self) {
        self.memos.clear();
        self.dropped.extend(std::mem::take(&mut self.kept).into_keys());
        self.dropped.sort_unstable();
    }

    fn last_step(&self) -> Option<u64> {
        self.kept.keys().next_back().max(self.dropped.last()).copied()
    }

    /// Counts and keeps a new envelope. Above `most` unsettled ones it drops the one farthest from the new step.
    pub(crate) fn keep(&mut self, step: u64, sealed: Sealed, most: usize) {
        self.reports += 1;
        self.kept.insert(step, sealed);
        let waiting: Vec<u64> = self.kept.iter().filter(|(_, one)| one.key.is_some()).map(|(&step, _)| step).collect();
        if waiting.len() > most {
            let farthest = waiting.iter().copied().max_by_key(|&one| (one.abs_diff(step), std::cmp::Reverse(one)));
            let farthest = farthest.expect("an envelope waits");
            self.kept.remove(&farthest);
            let place = self.dropped.partition_point(|&one| one < farthest);
            self.dropped.insert(place, farthest);
        }
        if self.dropped.len() > MOST_DROPPED {
            self.forget(self.dropped[0]);
        }
    }

    /// Marks an envelope as settled, and forgets what is earlier than the `latest` latest settled ones.
    pub(crate) fn settle(&mut self, step: u64, latest: usize) {
        if let Some(sealed) = self.kept.get_mut(&step) {
            sealed.key = None;
        }
        let settled: Vec<u64> = self.kept.iter().filter(|(_, one)| one.key.is_none()).map(|(&step, _)| step).collect();
        if settled.len() >= latest {
            let first = settled[settled.len() - latest];
            self.kept = self.kept.split_off(&first);
            if first > 0 {
                self.forget(first - 1);
            }
        }
    }

    fn forget(&mut self, last: u64) {
        self.forgotten = self.forgotten.max(Some(last));
        self.dropped.retain(|&step| step > last);
    }
}
