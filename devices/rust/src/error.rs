//! Every error that a device can give. No message contains a person's value.

use std::fmt;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, with one line that says for which object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// An argument is wrong, such as a value that the attribute does not have.
    Value(String),
    /// A check of the device survey failed: the survey could reveal more than it promises.
    UnsafeSurvey(String),
    /// The device does not know the format, a mechanism or the collection, or cannot read the document.
    UnknownSurvey(String),
    /// The application requires a signature that the survey does not have.
    NotSigned(String),
    /// The survey requires a relay, and this device has none.
    RelayRequired(String),
    /// The pin or the store belongs to another survey.
    WrongSurvey(String),
    /// The survey may lose more than the application allows.
    CostlySurvey(String),
    /// Another process holds the store.
    StoreHeld(String),
    /// The disk or the quota is full.
    StoreFull(String),
    /// The store of an enrolled device is missing or empty.
    StoreCleared(String),
    /// The step can no longer be reported.
    StepForgotten(String),
    /// The present step can no longer be reported: the clock was wrong earlier or is wrong now.
    ClockWentBack(String),
    /// The survey's claim does not fit the wallet.
    WalletFull(String),
    /// The store is damaged, of a later version, or cannot be used for another reason.
    Store(String),
    /// The operating system gave no random bytes.
    Random(String),
}

impl Error {
    /// The error's name in `docs/reference/write_a_device.md`.
    pub fn name(&self) -> &'static str {
        self.parts().0
    }

    fn parts(&self) -> (&'static str, &str) {
        match self {
            Error::Value(text) => ("ValueError", text),
            Error::UnsafeSurvey(text) => ("UnsafeSurvey", text),
            Error::UnknownSurvey(text) => ("UnknownSurvey", text),
            Error::NotSigned(text) => ("NotSigned", text),
            Error::RelayRequired(text) => ("RelayRequired", text),
            Error::WrongSurvey(text) => ("WrongSurvey", text),
            Error::CostlySurvey(text) => ("CostlySurvey", text),
            Error::StoreHeld(text) => ("StoreHeld", text),
            Error::StoreFull(text) => ("StoreFull", text),
            Error::StoreCleared(text) => ("StoreCleared", text),
            Error::StepForgotten(text) => ("StepForgotten", text),
            Error::ClockWentBack(text) => ("ClockWentBack", text),
            Error::WalletFull(text) => ("WalletFull", text),
            Error::Store(text) => ("StoreError", text),
            Error::Random(text) => ("RandomError", text),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, text) = self.parts();
        write!(out, "{name}: {}", text.replace(char::is_control, " ")) // a survey's name may have line breaks
    }
}

impl std::error::Error for Error {}
