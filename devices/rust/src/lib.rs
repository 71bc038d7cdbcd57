//! One person's ldpstream client: answers a survey under local differential privacy.
//!
//! ```no_run
//! use ldpstream_device::{Device, Options, Store, Survey};
//!
//! # fn main() -> ldpstream_device::Result<()> {
//! let survey = Survey::from_json(&std::fs::read("commute.json").expect("a device survey"))?;
//! let device = Device::open(survey, Store::file("answers.device"), &Options::default())?;
//! device.answer(&[("mode", "bicycle".into())], None)?;
//! for report in device.waiting()? {
//!     println!("{} bytes for step {}", report.envelope.len(), report.step);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The service estimates how common each value is; no report proves a person's value. All draws use integers and the operating
//! system's random generator. The store may contain true values: keep it as private as the program's other data.

#![forbid(unsafe_code)]

mod activity;
mod consent;

mod device;
mod encoding;
mod error;
mod mechanism;
mod send;
mod store;
mod survey;
mod wallet;

pub use activity::Activity;
pub use consent::preview::{Left, Preview};
pub use consent::{Consent, ConsentMode, switched_off};
pub use device::{Device, Options, Silence, Spent, Waiting};
pub use error::{Error, Result};
pub use mechanism::draws::{Random, SystemRandom};
pub use send::Answer;
#[cfg(feature = "async")]
pub use send::async_sender::{AsyncSender, Post};
#[cfg(feature = "relay")]
pub use send::relay::Relay;
pub use send::sender::{Attempt, Request, Response, Sender, Transport, Way};
pub use store::Store;
pub use store::state::Budget;
pub use survey::value::Value;
pub use survey::{Attribute, Survey};
pub use wallet::{Wallet, WalletSpent};

#[cfg(test)]
mod vectors;
