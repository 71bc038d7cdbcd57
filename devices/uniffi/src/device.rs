//! The device, the wallet and the activity log.

use crate::{Budget, Consent, Options, Result, Silence, Spent, Store, Survey, Value, WalletSpent, core};
use std::collections::HashMap;
use std::sync::Arc;

/// A report that may need another attempt.
#[derive(uniffi::Record)]
pub struct Waiting {
    /// The attribute's name.
    pub attribute: String,
    /// The step of the report.
    pub step: i64,
    /// The bytes to send.
    pub envelope: Vec<u8>,
    /// The header `Idempotency-Key` of all attempts.
    pub key: String,
}

/// A report that would leave now.
#[derive(uniffi::Record)]
pub struct Preview {
    /// The attribute's name.
    pub attribute: String,
    /// The step of the report.
    pub step: i64,
    /// Why the report does not leave now; nothing if it leaves.
    pub silence: Option<Silence>,
    /// True if the report is not made yet. Chance then draws another one when the device reports: never send an example.
    pub example: bool,
    /// The bytes; nothing if the device makes no report of this step.
    pub envelope: Option<Vec<u8>>,
    /// For the person: the bytes by their parts, and what each part can reveal.
    pub text: String,
}

/// A report that left, or may have left. It has the bytes that left, never a true value.
#[derive(uniffi::Record)]
pub struct Left {
    /// The time of the latest attempt, in milliseconds since 1970.
    pub at_ms: i64,
    /// The attribute's name.
    pub attribute: String,
    /// The step of the report.
    pub step: i64,
    /// The bytes.
    pub envelope: Vec<u8>,
    /// True if the report left only for show: see the way `local`.
    pub local: bool,
}

fn previewed(one: &core::Preview<'_>) -> Preview {
    let (attribute, text) = (one.attribute.clone(), one.to_string());
    Preview {
        attribute,
        step: one.step as i64,
        silence: one.silence,
        example: one.example,
        envelope: one.envelope.clone(),
        text,
    }
}

type Values = HashMap<String, Arc<Value>>;

fn pairs(values: &Values) -> Vec<(&str, core::Value)> {
    values.iter().map(|(name, value)| (name.as_str(), value.0.clone())).collect()
}

fn names(attributes: &[String]) -> Vec<&str> {
    attributes.iter().map(String::as_str).collect()
}

/// A step as the core takes it. Programs in Kotlin and Swift count in signed numbers.
fn counted(step: Option<i64>) -> Result<Option<u64>> {
    let wrong = |_| core::Error::Value("a step must not be negative".into());
    step.map(u64::try_from).transpose().map_err(wrong)
}

/// A person's device, which answers one survey with sanitized reports.
///
/// A call may wait for the disk, or for another process with the same file: do not call it on a thread that draws a window.
#[derive(uniffi::Object)]
pub struct Device(pub(crate) Arc<core::Device>);

#[uniffi::export]
impl Device {
    /// Opens the device of a store. The consent enrolls it permanently.
    #[uniffi::constructor(default(options = None))]
    pub fn open(survey: &Survey, store: &Store, options: Option<Options>) -> Result<Arc<Device>> {
        let options = options.map(Into::into).unwrap_or_default();
        let opened = core::Device::open(survey.0.clone(), store.0.clone(), &options)?;
        Ok(Arc::new(Device(Arc::new(opened))))
    }

    /// Returns the text by which the program asks for consent, as plain text in several lines.
    pub fn question(&self) -> String {
        self.0.question()
    }

    /// Returns the attributes about which the program has to ask the person; none while devices are switched off.
    pub fn to_ask(&self) -> Result<Vec<String>> {
        self.0.to_ask()
    }

    /// Returns the person's consent to the survey, or to one attribute.
    #[uniffi::method(default(attribute = None))]
    pub fn consent(&self, attribute: Option<String>) -> Result<Consent> {
        match attribute {
            Some(name) => self.0.consent_to(&name),
            None => self.0.consent(),
        }
    }

    /// Keeps the person's consent to some attributes, or to all for an empty list. Enrolls the device permanently.
    #[uniffi::method(default(attributes))]
    pub fn give_consent(&self, attributes: Vec<String>) -> Result<()> {
        self.0.give_consent(&names(&attributes))
    }

    /// Withdraws the consent to some attributes, or to all for an empty list. Nothing more is sent.
    #[uniffi::method(default(attributes))]
    pub fn withdraw_consent(&self, attributes: Vec<String>) -> Result<()> {
        self.0.withdraw_consent(&names(&attributes))
    }

    /// Returns the envelope with the report of a value at a step, by default the present one; nothing without a report.
    #[uniffi::method(default(step = None))]
    pub fn report(&self, attribute: String, value: &Value, step: Option<i64>) -> Result<Option<Vec<u8>>> {
        self.0.report(&attribute, value.0.clone(), counted(step)?)
    }

    /// Reports several attributes at a step, and the survey's pairs of them. Returns the envelopes by attribute.
    #[uniffi::method(default(step = None))]
    pub fn answer(&self, values: Values, step: Option<i64>) -> Result<HashMap<String, Vec<u8>>> {
        self.0.answer(&pairs(&values), counted(step)?).map(|made| made.into_iter().collect())
    }

    /// Tells why the device makes no report of an attribute at a step, whatever the value; nothing if it makes a report.
    #[uniffi::method(default(step = None))]
    pub fn silence(&self, attribute: String, step: Option<i64>) -> Result<Option<Silence>> {
        self.0.silence(&attribute, counted(step)?)
    }

    /// Returns what `answer` would make and send now, and what each part can reveal. Keeps and sends nothing.
    #[uniffi::method(default(step = None))]
    pub fn preview(&self, values: Values, step: Option<i64>) -> Result<Vec<Preview>> {
        Ok(self.0.preview(&pairs(&values), counted(step)?)?.iter().map(previewed).collect())
    }

    /// Returns the last 200 reports that left this device or may have left it, the latest last.
    pub fn journal(&self) -> Result<Vec<Left>> {
        let shown = |one: core::Left| {
            let core::Left { at_ms, attribute, step, envelope, local, .. } = one;
            Left { at_ms, attribute, step: step as i64, envelope, local }
        };
        Ok(self.0.journal()?.into_iter().map(shown).collect())
    }

    /// Returns the kept reports that are not settled, by step; without consent, none.
    pub fn waiting(&self) -> Result<Vec<Waiting>> {
        let shown = |one: core::Waiting| {
            let core::Waiting { attribute, step, envelope, key, .. } = one;
            Waiting { attribute, step: step as i64, envelope, key }
        };
        Ok(self.0.waiting()?.into_iter().map(shown).collect())
    }

    /// Returns the loss of an attribute's reports so far.
    pub fn spent(&self, attribute: String) -> Result<Spent> {
        self.0.spent(&attribute)
    }

    /// Erases memos, enrolment and envelopes permanently; `confirm` is the survey's name. A later consent costs a fresh budget.
    pub fn forget(&self, confirm: String) -> Result<()> {
        self.0.forget(&confirm)
    }
}

/// A person's budget for all surveys of an application. The wallet admits a survey if its claim and the present charges fit.
#[derive(uniffi::Object)]
pub struct Wallet(core::Wallet);

#[uniffi::export]
impl Wallet {
    /// Opens the wallet of a store; the first use fixes the limits.
    #[uniffi::constructor(default(expect_enrolled = false))]
    pub fn open(store: &Store, budget: Budget, expect_enrolled: bool) -> Result<Arc<Wallet>> {
        core::Wallet::open(store.0.clone(), budget, expect_enrolled).map(|opened| Arc::new(Wallet(opened)))
    }

    /// Returns the device that answers a survey; its enrolment charges the survey's claim.
    #[uniffi::method(default(options = None))]
    pub fn device(&self, survey: &Survey, options: Option<Options>) -> Result<Arc<Device>> {
        let options = options.map(Into::into).unwrap_or_default();
        Ok(Arc::new(Device(Arc::new(self.0.device(survey.0.clone(), &options)?))))
    }

    /// Returns the person's loss so far, and the wallet's charges.
    pub fn spent(&self) -> Result<WalletSpent> {
        self.0.spent()
    }
}

/// The log of an application's use, from which the device computes the attributes with a recipe. It contains the true use.
///
/// Record the use only with the person's consent.
#[derive(uniffi::Object)]
pub struct Activity(core::Activity);

#[uniffi::export]
impl Activity {
    /// Opens the log of a store, which is not the store of a device. It records nothing while devices are switched off.
    #[uniffi::constructor]
    pub fn open(store: &Store) -> Result<Arc<Activity>> {
        core::Activity::open(store.0.clone()).map(|opened| Arc::new(Activity(opened)))
    }

    /// Records that the application was used today.
    pub fn seen(&self) -> Result<()> {
        self.0.seen()
    }

    /// Records an event, whose name stands in the application's code and is never a text of the person.
    pub fn used(&self, event: String) -> Result<()> {
        self.0.used(&event)
    }

    /// Records an event and its duration in seconds, from 0 to 10^6.
    pub fn took(&self, event: String, seconds: f64) -> Result<()> {
        self.0.took(&event, seconds)
    }

    /// Reports the attributes with a recipe at the present step, and other values.
    #[uniffi::method(default(values))]
    pub fn answer(&self, device: &Device, values: Values) -> Result<HashMap<String, Vec<u8>>> {
        self.0.answer(&device.0, &pairs(&values)).map(|made| made.into_iter().collect())
    }

    /// Returns what `answer` would make and send now. Keeps and sends nothing.
    #[uniffi::method(default(values))]
    pub fn preview(&self, device: &Device, values: Values) -> Result<Vec<Preview>> {
        Ok(self.0.preview(&device.0, &pairs(&values))?.iter().map(previewed).collect())
    }

    /// Erases the log permanently.
    pub fn forget(&self) -> Result<()> {
        self.0.forget()
    }
}

#[cfg(feature = "seeded")]
mod seeded {
    use super::{Device, core};
    use crate::{Options, Result, Store, Survey};
    use sha2::{Digest, Sha256};
    use std::sync::Arc;

    /// SHA-256 of the seed and a counter.
    struct Seeded {
        seed: String,
        blocks: u64,
        rest: Vec<u8>,
    }

    impl core::Random for Seeded {
        fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
            while self.rest.len() < buffer.len() {
                self.rest.extend(Sha256::digest(format!("{} {}", self.seed, self.blocks)));
                self.blocks += 1;
            }
            let rest = self.rest.split_off(buffer.len());
            buffer.copy_from_slice(&self.rest);
            self.rest = rest;
            Ok(())
        }
    }

    #[uniffi::export]
    impl Device {
        /// Opens a device whose draws follow from a seed: for tests only.
        #[uniffi::constructor]
        pub fn seeded(survey: &Survey, store: &Store, options: Options, seed: String) -> Result<Arc<Device>> {
            let random = Box::new(Seeded { seed, blocks: 0, rest: Vec::new() });
            let opened = core::Device::open_with(survey.0.clone(), store.0.clone(), &options.into(), random)?;
            Ok(Arc::new(Device(Arc::new(opened))))
        }
    }
}
