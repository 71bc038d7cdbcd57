//! The way to a gateway: which answers are final, and when to try again. See `docs/reference/write_a_device.md`.

#[cfg(feature = "async")]
pub(crate) mod async_sender;
#[cfg(feature = "send")]
mod http;
#[cfg(feature = "relay")]
pub(crate) mod relay;
pub(crate) mod sender;

use std::time::SystemTime;

const ACCEPTED: u16 = 202;
const NEVER_COUNTS: u16 = 422; // the only status after which no later attempt counts
const PROBLEM: &str = "urn:ldpstream:problem:";
const DAY: f64 = 86_400.0;

/// What a gateway's answer says about one report, for programs that send with an HTTP client of their own.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Whether the report counts, if the answer is the gateway's own and final: then settle the report.
    pub counts: Option<bool>,
    /// The shortest time to the next attempt, in seconds.
    pub retry_after: f64,
    /// Why the report does not count, such as "step too old (422)", or why there is no answer.
    pub reason: Option<String>,
}

impl Answer {
    /// Reads an answer: its HTTP status, its headers `Retry-After` and `Date`, and its body.
    ///
    /// A proxy can answer 202 or 422, too: these are final only with the gateway's own body.
    pub fn read(status: u16, retry_after: Option<&str>, date: Option<&str>, body: &[u8]) -> Answer {
        let document: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let problem = document.get("type").and_then(|kind| kind.as_str()).filter(|kind| kind.starts_with(PROBLEM));
        let counts = match status {
            ACCEPTED => document.get("accepted").filter(|accepted| accepted.is_u64()).map(|_| true),
            NEVER_COUNTS => problem.map(|_| false),
            _ => None,
        };
        let named = problem.map(|kind| format!("{} ({status})", kind[PROBLEM.len()..].replace('-', " ")));
        let reason = (counts != Some(true)).then(|| named.unwrap_or_else(|| format!("status {status}")));
        Answer { counts, retry_after: retry_after.map_or(0.0, |told| seconds(told, date)), reason }
    }

    /// No answer, and the reason.
    pub(crate) fn none(reason: String) -> Answer {
        Answer { counts: None, retry_after: 0.0, reason: Some(reason) }
    }
}

/// The wait that an answer asks for, in seconds, at most a day; 0 if it is not understood.
fn seconds(told: &str, date: Option<&str>) -> f64 {
    if !told.is_empty() && told.bytes().all(|byte| byte.is_ascii_digit()) {
        return told.parse().unwrap_or(DAY).min(DAY);
    }
    let now = date.map_or(Ok(SystemTime::now()), httpdate::parse_http_date);
    let wait = httpdate::parse_http_date(told).and_then(|until| Ok(until.duration_since(now?).unwrap_or_default()));
    wait.map_or(0.0, |wait| wait.as_secs_f64().min(DAY))
}
