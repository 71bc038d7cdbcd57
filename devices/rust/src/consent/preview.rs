//! The preview of a report, and the journal of the reports that left.

use crate::consent::words::{explained, shown};
use crate::device::Silence;
use crate::encoding::hex;
use crate::survey::Survey;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A report that would leave now. Its text shows the bytes by their parts, and what each part can reveal.
#[derive(Debug, Clone)]
pub struct Preview<'a> {
    pub(crate) survey: &'a Survey,
    /// The attribute's name.
    pub attribute: String,
    /// The step of the report.
    pub step: u64,
    /// Why the report does not leave now; nothing if it leaves.
    pub silence: Option<Silence>,
    /// True if the report is not made yet. Chance then draws another one when the device reports: never send an example.
    pub example: bool,
    /// The bytes; nothing if the device makes no report of this step.
    pub envelope: Option<Vec<u8>>,
}

/// A report that left, or may have left. It has the bytes that left, never a true value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// The time of the latest attempt, in milliseconds since 1970.
    pub at_ms: i64,
    /// The attribute's name.
    pub attribute: String,
    /// The step of the report.
    pub step: u64,
    /// The bytes.
    #[serde(with = "crate::encoding::hex")]
    pub envelope: Vec<u8>,
    /// True if the report left only for show: see `Way::Local`.
    pub local: bool,
    pub(crate) key: String,
}

impl fmt::Display for Preview<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let silence = self.silence.map_or("", Silence::text);
        write!(out, "{}, step {}: ", shown(&self.attribute), self.step)?;
        let Some(envelope) = &self.envelope else { return write!(out, "nothing leaves ({silence}).") };
        let kind = if self.example { "an example, which chance draws anew" } else { "made, and the same until the step ends" };
        write!(out, "{} bytes; {kind}; ", envelope.len())?;
        let relayed = self.survey.text.relay.is_some();
        match self.silence {
            Some(_) => writeln!(out, "nothing leaves now ({silence}).")?,
            None if relayed => writeln!(out, "leaves at its random moment.")?,
            None => writeln!(out, "leaves with the next attempt.")?,
        }
        for (data, reveals) in explained(self.survey, envelope) {
            writeln!(out, "{}  {reveals}", hex::encode(&data))?;
        }
        let sees = if relayed { "relay" } else { "gateway" };
        write!(out, "Beside it: a random key, drawn for this report alone; the {sees} sees your network address.")
    }
}
