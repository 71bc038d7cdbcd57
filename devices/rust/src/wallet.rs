//! The wallet: one file and one budget of a person, for all surveys of an application.

use crate::device::{Clock, Device, Options, now_ms};
use crate::error::{Error, Result};
use crate::mechanism::draws::{Random, SystemRandom};
use crate::store::Store;
use crate::store::state::{Budget, State};
use crate::survey::Survey;

const LEAST_NATS: f64 = 1e-9;
const MOST_NATS: f64 = 1e9;
const LONGEST_WINDOW_S: u64 = 1_000_000_000_000;

/// A person's budget for all surveys of an application. The wallet admits a survey if its claim and the present charges fit.
#[derive(Debug)]
pub struct Wallet {
    store: Store,
    clock: Clock,
}

/// The loss that a person has spent, in nats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WalletSpent {
    /// A bound of the loss of all reports so far between any two histories.
    pub spent: f64,
    /// The charges for the present window.
    pub charged_per_window: f64,
    /// The charges for ever; infinite if a survey's claim has no bound.
    pub charged_for_ever: f64,
}

impl Wallet {
    /// Opens the wallet of a store; the first use fixes the limits.
    ///
    /// # Errors
    /// `Value` for a wrong limit; `StoreCleared` if `expect_enrolled` and the store is empty; `Store` if the limits are others.
    pub fn open(store: Store, budget: Budget, expect_enrolled: bool) -> Result<Wallet> {
        Self::with(store, budget, expect_enrolled, now_ms)
    }

    pub(crate) fn with(store: Store, budget: Budget, expect_enrolled: bool, clock: Clock) -> Result<Wallet> {
        let in_range = |limit: f64| (LEAST_NATS..=MOST_NATS).contains(&limit);
        if budget.per_window.is_some() != budget.window_s.is_some()
            || (budget.per_window.is_none() && budget.for_ever.is_none())
        {
            return Err(Error::Value("a wallet needs per_window with window_s, or for_ever, or both".into()));
        }
        if [budget.per_window, budget.for_ever].into_iter().flatten().any(|limit| !in_range(limit)) {
            return Err(Error::Value("a limit must be from 1e-9 to 1e9 nats".into()));
        }
        if budget.window_s.is_some_and(|window| !(1..=LONGEST_WINDOW_S).contains(&window)) {
            return Err(Error::Value("window_s must be from 1 to 10^12 seconds".into()));
        }
        store.transaction(|state| match state {
            None if expect_enrolled => Err(Error::StoreCleared(format!("{}: the wallet had been made", store.place()))),
            None => {
                *state = Some(State::new(Some(budget)));
                Ok(())
            }
            Some(kept) if kept.budget != Some(budget) => {
                Err(Error::Store(format!("{}: the wallet has other limits", store.place())))
            }
            Some(_) => Ok(()),
        })?;
        Ok(Wallet { store, clock })
    }

    /// Returns the device that answers a survey; charges the survey's claim if there is no enrolment.
    ///
    /// # Errors
    /// `WalletFull` if the claim does not fit; otherwise as for [`Device::open`].
    pub fn device(&self, survey: Survey, options: &Options) -> Result<Device> {
        self.device_with(survey, options, Box::new(SystemRandom))
    }

    pub(crate) fn device_with(&self, survey: Survey, options: &Options, random: Box<dyn Random + Send>) -> Result<Device> {
        Device::with(survey, self.store.clone(), options, random, self.clock, true)
    }

    /// Returns the person's loss so far, and the wallet's charges.
    ///
    /// # Errors
    /// `StoreCleared`, `StoreHeld`, `StoreFull` or `Store` for the store.
    pub fn spent(&self) -> Result<WalletSpent> {
        self.store.transaction(|state: &mut Option<State>| {
            let state = state.as_ref().ok_or_else(|| {
                Error::StoreCleared(format!("{}: the file is empty, but the wallet had been made", self.store.place()))
            })?;
            let (charged_per_window, charged_for_ever) = state.charged((self.clock)());
            let spent = state.surveys.iter().fold(0.0, |sum, one| sum + one.spent().1);
            Ok(WalletSpent { spent, charged_per_window, charged_for_ever })
        })
    }
}

/// Erases a survey's records. Its charges become the loss of the reports made.
pub(crate) fn leave(state: &mut State, pin: &str, survey: &Survey) {
    let Some(enrolled) = state.enrolled(pin) else { return };
    let (reports, spent) = enrolled.spent();
    if let Some(last) = enrolled.last_step() {
        enrolled.until_ms = Some(survey.opens_ms(last + 1));
    }
    enrolled.per_window = enrolled.per_window.min(spent);
    enrolled.for_ever = spent.is_finite().then_some(spent);
    enrolled.left = Some(reports);
    enrolled.attributes.clear();
    enrolled.journal.clear();
    state.surveys.retain(|one| one.left != Some(0));
}
