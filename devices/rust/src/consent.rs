//! Consent: the person's answer to the survey, and the switches that turn devices off.
//!
//! The store keeps the answer by attribute, with the terms that the person agreed to. If the survey's purpose or owner changes,
//! or the service keeps the results longer, the consent is unknown, so the program asks again. A new version of a survey, with
//! another question or another loss, has another pin: it always asks.

pub(crate) mod asking;
pub(crate) mod preview;
pub(crate) mod words;

use crate::survey::Words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

const SWITCHES: [&str; 2] = ["DO_NOT_TRACK", "CI"];

/// A person's consent to a survey or an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// The program has not asked the person, or has to ask again.
    Unknown,
    /// The person agreed.
    Given,
    /// The person disagreed.
    Withdrawn,
}

/// How a program asks for consent. A withdrawal in the store counts always.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConsentMode {
    /// The device keeps the person's answer, and does nothing before `Device::give_consent`.
    #[default]
    Asked,
    /// The program has asked the person in another way, and the person agreed.
    Given,
    /// There is no person, so the switches that turn devices off do not count.
    Simulated,
}

/// Returns the switch that turns all devices off: a variable's name, or the path of the operator's file; nothing for no switch.
///
/// The variables are `DO_NOT_TRACK` and `CI`, unless they are empty, `0`, `false` or `no`. The file is `/etc/ldpstream/off`, or
/// `%ProgramData%\ldpstream\off`. A file that the device may not look for counts as present.
pub fn switched_off() -> Option<String> {
    let set = |name: &&str| {
        let text = std::env::var_os(name).unwrap_or_default(); // it need not be UTF-8
        !["", "0", "false", "no"].contains(&text.to_string_lossy().trim().to_lowercase().as_str())
    };
    if let Some(name) = SWITCHES.iter().find(|name| set(name)) {
        return Some((*name).to_owned());
    }
    let folder = std::env::var_os("PROGRAMDATA").map_or_else(|| PathBuf::from("/etc"), PathBuf::from);
    let file = folder.join("ldpstream").join("off");
    match std::fs::metadata(&file) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        _ => Some(file.display().to_string()),
    }
}

/// A person's answer for one attribute, with the survey's texts and storage in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answered {
    given: bool,
    purpose: Option<String>,
    owner: Option<String>,
    kept_s: Option<u64>,
}

/// The answers for one survey, by attribute.
pub(crate) type Answers = BTreeMap<String, Answered>;

impl Answered {
    pub(crate) fn given(words: &Words, step_seconds: u64) -> Answered {
        let kept_s = words.kept_s(step_seconds);
        Answered { given: true, purpose: words.purpose.clone(), owner: words.owner.clone(), kept_s }
    }

    pub(crate) fn withdrawn() -> Answered {
        Answered { given: false, purpose: None, owner: None, kept_s: None }
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        !self.given
    }

    /// Tells whether the person agreed to the present terms.
    pub(crate) fn covers(&self, now: &Answered) -> bool {
        let longest = |kept: Option<u64>| kept.unwrap_or(u64::MAX);
        let same = (&self.purpose, &self.owner) == (&now.purpose, &now.owner);
        self.given && same && longest(now.kept_s) <= longest(self.kept_s)
    }
}
