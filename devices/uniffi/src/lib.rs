//! The device for Kotlin and Swift: UniFFI generates both bindings from this file. All decisions are in the Rust device.
//!
//! The documentation comments here are those of the generated code. A name here becomes that of each language's habit.

mod device;
mod send;

use ldpstream_device as core;
use std::sync::Arc;

uniffi::setup_scaffolding!("ldpstream");

pub use core::{Budget, Consent, ConsentMode, Error as DeviceError, Silence, Spent, WalletSpent};

type Result<T> = core::Result<T>;

/// Why a call failed. The message is one line without a person's value.
#[uniffi::remote(Error)]
#[uniffi(flat_error)]
pub enum DeviceError {
    /// An argument is wrong, such as a value that the attribute does not have.
    Value,
    /// A check of the survey failed: the survey could reveal more than it promises.
    UnsafeSurvey,
    /// The survey cannot be read, or has an unknown format or mechanism.
    UnknownSurvey,
    /// The application requires a signature that the survey does not have.
    NotSigned,
    /// The survey requires a relay, and the sender has none.
    RelayRequired,
    /// The pin or the store belongs to another survey.
    WrongSurvey,
    /// The survey may lose more than the application allows.
    CostlySurvey,
    /// Another process holds the store.
    StoreHeld,
    /// The disk or the quota is full.
    StoreFull,
    /// The store of an enrolled device is missing or empty.
    StoreCleared,
    /// The step can no longer be reported.
    StepForgotten,
    /// The present step can no longer be reported: the clock was wrong earlier or is wrong now.
    ClockWentBack,
    /// The survey's claim does not fit the wallet.
    WalletFull,
    /// The store is damaged, of a later version, or cannot be used for another reason.
    Store,
    /// The operating system gave no random bytes.
    Random,
}

/// A person's consent to a survey or an attribute.
#[uniffi::remote(Enum)]
pub enum Consent {
    /// The program has not asked the person, or has to ask again.
    Unknown,
    /// The person agreed.
    Given,
    /// The person disagreed.
    Withdrawn,
}

/// How a program asks for consent. A withdrawal in the store counts always.
#[uniffi::remote(Enum)]
pub enum ConsentMode {
    /// The device keeps the person's answer, and does nothing before `give_consent`.
    Asked,
    /// The program has asked the person in another way, and the person agreed.
    Given,
    /// There is no person, so the switches that turn devices off do not count.
    Simulated,
}

/// Why a device makes no report, whatever the value.
#[uniffi::remote(Enum)]
pub enum Silence {
    /// A switch turns devices off.
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
    /// The step is before the survey's first step.
    SurveyNotBegun,
    /// The step is after the survey's last step.
    SurveyEnded,
    /// Only in a preview: the gateway has answered the report.
    AlreadyAnswered,
}

/// A wallet's limits in nats; nothing for no limit.
#[uniffi::remote(Record)]
pub struct Budget {
    /// The largest loss between histories that differ only within `window_s` seconds.
    #[uniffi(default = None)]
    pub per_window: Option<f64>,
    /// The length of the window in seconds.
    #[uniffi(default = None)]
    pub window_s: Option<u64>,
    /// The largest loss between any two histories.
    #[uniffi(default = None)]
    pub for_ever: Option<f64>,
}

/// The loss of a device's reports of one attribute, in nats. It depends on the values: show it to the person alone.
#[uniffi::remote(Record)]
pub struct Spent {
    /// The number of distinct steps reported.
    pub reports: u64,
    /// A bound between the values and any unchanged value; nothing after reports from several memos.
    pub eps_t: Option<f64>,
    /// A bound between any two sequences of values.
    pub any_values: f64,
}

/// The loss that a person has spent, in nats.
#[uniffi::remote(Record)]
pub struct WalletSpent {
    /// A bound of the loss of all reports so far between any two histories.
    pub spent: f64,
    /// The charges for the present window.
    pub charged_per_window: f64,
    /// The charges for ever; infinite if a survey's claim has no bound.
    pub charged_for_ever: f64,
}

/// What the application requires of the survey, and what the person chose.
#[derive(uniffi::Record)]
pub struct Options {
    /// The pin of the survey that the application expects, as 64 hexadecimal digits.
    #[uniffi(default = None)]
    pub pin: Option<String>,
    /// The largest allowed loss of all reports while the values stay the same, in nats.
    #[uniffi(default = None)]
    pub max_eps: Option<f64>,
    /// Attribute name → name of the level that the person chose; otherwise its first level. The first use fixes the levels.
    #[uniffi(default)]
    pub levels: std::collections::HashMap<String, String>,
    /// The device's present cohort, for a survey with cohorts. It travels in clear: it must not depend on a value.
    #[uniffi(default = None)]
    pub cohort: Option<String>,
    /// How the program asks the person; nothing stands for `asked`.
    #[uniffi(default = None)]
    pub consent: Option<ConsentMode>,
    /// True if the application knows that this device has enrolled before: an empty store is then an error.
    #[uniffi(default = false)]
    pub expect_enrolled: bool,
    /// Public keys in base64, one of which must have signed the survey; empty for no check.
    #[uniffi(default)]
    pub signed_by: Vec<String>,
    /// Other public keys, one of which must also have signed the survey; empty for no second signature.
    #[uniffi(default)]
    pub also_signed_by: Vec<String>,
}

impl From<Options> for core::Options {
    fn from(given: Options) -> Self {
        core::Options {
            levels: given.levels.into_iter().collect(),
            expect_enrolled: given.expect_enrolled,
            pin: given.pin,
            max_eps: given.max_eps,
            cohort: given.cohort,
            signed_by: given.signed_by,
            also_signed_by: given.also_signed_by,
            consent: given.consent.unwrap_or_default(),
        }
    }
}

/// A device survey whose checks passed.
#[derive(uniffi::Object)]
pub struct Survey(pub(crate) core::Survey);

#[uniffi::export]
impl Survey {
    /// Reads and checks the document that `ldpstream canonical` writes, or that a gateway serves.
    #[uniffi::constructor]
    pub fn from_json(text: Vec<u8>) -> Result<Arc<Survey>> {
        core::Survey::from_json(&text).map(|survey| Arc::new(Survey(survey)))
    }

    /// The survey's name.
    pub fn name(&self) -> String {
        self.0.name.clone()
    }

    /// The survey's pin, 64 hexadecimal digits.
    pub fn pin(&self) -> String {
        self.0.pin.clone()
    }

    /// The names of the attributes.
    pub fn attributes(&self) -> Vec<String> {
        self.0.attributes().iter().map(|one| one.name.clone()).collect()
    }
}

/// Where a device, a wallet or an activity log keeps its state.
#[derive(uniffi::Object)]
pub struct Store(pub(crate) core::Store);

#[uniffi::export]
impl Store {
    /// The file of one person, which threads and processes may share. Exclude it from backups.
    ///
    /// Do not derive the name from the survey's name: a renamed survey would get a new file and a fresh budget.
    #[uniffi::constructor]
    pub fn file(path: String) -> Arc<Store> {
        Arc::new(Store(core::Store::file(path)))
    }

    /// A store that ends with the object: for tests.
    #[uniffi::constructor]
    pub fn memory() -> Arc<Store> {
        Arc::new(Store(core::Store::memory()))
    }
}

/// A person's value. It has no text of its own, so that no log shows it by mistake.
#[derive(uniffi::Object)]
pub struct Value(pub(crate) core::Value);

#[uniffi::export]
impl Value {
    /// A text as the survey lists it.
    #[uniffi::constructor]
    pub fn text(text: String) -> Arc<Value> {
        Arc::new(Value(text.into()))
    }

    /// A number of `size` or `bins`, or the place of a listed value, from 0.
    #[uniffi::constructor]
    pub fn number(number: f64) -> Arc<Value> {
        Arc::new(Value(number.into()))
    }

    /// The two values of a pair, or all answers to a question with several answers.
    #[uniffi::constructor]
    pub fn list(values: Vec<Arc<Value>>) -> Arc<Value> {
        Arc::new(Value(core::Value::List(values.iter().map(|one| one.0.clone()).collect())))
    }
}

/// Returns the switch that turns all devices off: a variable's name, or the path of the operator's file; nothing for no switch.
#[uniffi::export]
pub fn switched_off() -> Option<String> {
    core::switched_off()
}
