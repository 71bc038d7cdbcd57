//! Sends a device's reports to a gateway, and decides when: see `docs/reference/write_a_device.md`.

#[cfg(feature = "relay")]
use crate::device::now_ms;
use crate::device::{Device, Waiting};
use crate::error::{Error, Result};
use crate::mechanism::draws::{Draws, SystemRandom};
use crate::send::Answer;
#[cfg(feature = "relay")]
use crate::send::relay::{Relay, RelayWay};
#[cfg(feature = "relay")]
use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

const LONGEST_PAUSE: f64 = 300.0;
/// The same for all devices.
pub(crate) const USER_AGENT: (&str, &str) = ("User-Agent", "ldpstream");
pub(crate) const ENVELOPE_TYPE: &str = "application/vnd.ldpstream.envelope";

/// Where the reports go.
#[derive(Debug, Clone)]
pub enum Way {
    /// Straight to the gateway, which sees the device's address: `http[s]://host[:port][/path]`, without `/v1/reports`.
    Direct(String),
    /// No way: nothing is sent, and each report counts as accepted. For trying a program.
    Local,
    /// Through a relay, which hides the device from the gateway.
    #[cfg(feature = "relay")]
    Relay(Relay),
}

/// The outcome of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The number of reports that the gateway accepted: they are in its log.
    pub accepted: usize,
    /// The number of reports that never count by this or a later attempt.
    pub refused: usize,
    /// The number of reports that need another attempt, or whose moment has not come.
    pub waiting: usize,
    /// The shortest time to the next attempt.
    pub retry_after: Duration,
    /// Why reports wait, each reason once: such as "status 429" or "timeout".
    pub reasons: Vec<String>,
}

/// A request to the gateway or the relay; its method is POST.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The whole address.
    pub url: &'a str,
    /// The names and values of all headers but those of the body's length and the host.
    pub headers: Vec<(&'static str, &'a str)>,
    /// The bytes to send.
    pub body: &'a [u8],
}

/// What came back.
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The header `Retry-After`.
    pub retry_after: Option<String>,
    /// The header `Date`.
    pub date: Option<String>,
    /// The body, at most 1 MiB of it.
    pub body: Vec<u8>,
}

/// An HTTP client: the crate's own, with the feature `send`, or one of the program.
///
/// It uses a new connection for each request, because one connection would join the reports of a device. It follows no redirect,
/// and waits at most 15 seconds.
pub trait Transport: Send {
    /// Posts one request.
    ///
    /// # Errors
    /// One line without the request's content says why there is no answer. After "timeout", the attempt ends.
    fn post(&self, request: &Request<'_>) -> std::result::Result<Response, String>;
}

/// Sends the reports of one device. All attempts for a report carry its key, so that the report counts at most once.
///
/// `D` is a reference to the device, or an `Arc` for a sender that lives as long as the program.
pub struct Sender<D: Deref<Target = Device>> {
    device: D,
    transport: Box<dyn Transport>,
    posts: Posts,
    #[cfg(feature = "relay")]
    next_ms: BTreeMap<String, i64>, // through a relay: key → the new moment of a report that was due
}

impl<D: Deref<Target = Device>> std::fmt::Debug for Sender<D> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("<Sender>")
    }
}

enum Posts {
    Local,
    Direct {
        url: String,
        token: Option<String>,
    },
    #[cfg(feature = "relay")]
    Relay(RelayWay),
}

impl<D: Deref<Target = Device>> Sender<D> {
    /// Prepares the sending of a device's reports.
    ///
    /// # Errors
    /// As for [`Sender::with`].
    #[cfg(feature = "send")]
    pub fn new(device: D, way: Way, token: Option<&str>) -> Result<Sender<D>> {
        Self::with(device, way, token, Box::new(crate::send::http::Http::new()))
    }

    /// The same with the program's own HTTP client.
    ///
    /// The token is the gateway's bearer token, if it needs one. Behind a relay, all devices must have the same token.
    ///
    /// # Errors
    /// `RelayRequired` if the survey requires a relay and the way has none; `Value` if a URL is malformed, or the survey
    /// requires no relay and the way has one.
    pub fn with(device: D, way: Way, token: Option<&str>, transport: Box<dyn Transport>) -> Result<Sender<D>> {
        let (survey, token) = (device.survey(), token.map(str::to_owned));
        let (local, relayed) = (matches!(way, Way::Local), !matches!(way, Way::Direct(_) | Way::Local));
        if survey.text.relay.is_some() != relayed && !local {
            let text = format!("survey {}", survey.name);
            return Err(match relayed {
                false => Error::RelayRequired(format!("{text} requires a relay")),
                true => Error::Value(format!("{text} requires no relay, but the sender has one")),
            });
        }
        let posts = match way {
            Way::Direct(url) => {
                require_url(&url)?;
                Posts::Direct { url: format!("{}/v1/reports", url.trim_end_matches('/')), token }
            }
            Way::Local => Posts::Local,
            #[cfg(feature = "relay")]
            Way::Relay(relay) => Posts::Relay(RelayWay::new(relay, survey, token)),
        };
        Ok(Sender {
            device,
            transport,
            posts,
            #[cfg(feature = "relay")]
            next_ms: BTreeMap::new(),
        })
    }

    /// Sends every waiting report once; through a relay, at most one report whose moment has come. Settles the reports whose
    /// answer is final. Ends early after a report without an answer in 15 seconds.
    ///
    /// # Errors
    /// As for [`Device::waiting`].
    pub fn attempt(&mut self) -> Result<Attempt> {
        #[cfg(feature = "relay")]
        if let Posts::Relay(_) = self.posts {
            return self.attempt_one();
        }
        let mut reports = self.device.waiting()?;
        shuffle(&mut reports)?; // the order of arrival then shows no order of steps or attributes
        let mut answers = Vec::new();
        let mut gone = 0;
        for report in &reports {
            let Some(answer) = self.send(report)? else {
                gone += 1;
                continue;
            };
            answers.push(answer);
            if answers.last().is_some_and(|answer| answer.reason.as_deref() == Some("timeout")) {
                break;
            }
        }
        let waits = answers.iter().filter(|answer| answer.counts.is_none()).map(|answer| answer.retry_after);
        let retry_after = waits.fold(f64::INFINITY, f64::min);
        let settled = answers.iter().filter(|answer| answer.counts.is_some()).count();
        Ok(outcome(&answers, reports.len() - settled - gone, if retry_after.is_finite() { retry_after } else { 0.0 }))
    }

    /// Calls [`Sender::attempt`] until no report waits, with the pauses that a gateway expects.
    ///
    /// `pause` waits for a time. It returns false to stop early: the reports stay in the store.
    ///
    /// # Errors
    /// As for [`Device::waiting`].
    pub fn run(&mut self, mut pause: impl FnMut(Duration) -> bool) -> Result<()> {
        for attempts in 0.. {
            let outcome = self.attempt()?;
            let range = if matches!(self.posts, Posts::Direct { .. }) { LONGEST_PAUSE.min(2f64.powi(attempts)) } else { 0.0 };
            if outcome.waiting == 0 || !pause(outcome.retry_after + Duration::from_secs_f64(range * share()?)) {
                break;
            }
        }
        Ok(())
    }

    /// Sends a report, or nothing if it must not leave any more.
    fn send(&self, report: &Waiting) -> Result<Option<Answer>> {
        if !self.device.left(&report.key, matches!(self.posts, Posts::Local))? {
            return Ok(None);
        }
        let answer = match &self.posts {
            Posts::Local => Answer { counts: Some(true), retry_after: 0.0, reason: None },
            Posts::Direct { url, token } => post(&*self.transport, url, token.as_deref(), report),
            #[cfg(feature = "relay")]
            Posts::Relay(relay) => relay.post(&*self.transport, report)?,
        };
        if answer.counts.is_some() {
            self.device.settle(&report.key)?;
        }
        Ok(Some(answer))
    }

    /// Through a relay: each other report that is due when the attempt ends gets a new random moment, so that the end of an
    /// attempt starts no other one.
    #[cfg(feature = "relay")]
    fn attempt_one(&mut self) -> Result<Attempt> {
        let (mut now, mut reports) = (now_ms(), self.device.waiting()?);
        let due: Vec<&Waiting> = reports.iter().filter(|report| self.moment(report) <= now).collect();
        let mut answers = Vec::new();
        if !due.is_empty() {
            let sent = due[Draws(&mut SystemRandom).below(due.len() as u64)? as usize].clone();
            answers.extend(self.send(&sent)?);
            (now, reports) = (now_ms(), self.device.waiting()?); // also the reports that became due or were made meanwhile
            for report in &reports {
                if self.moment(report) <= now {
                    let told = answers.first().filter(|_| report.key == sent.key);
                    let wait = told.map_or(0.0, |answer| answer.retry_after);
                    let seconds = wait + self.range(report, now) * share()?;
                    self.next_ms.insert(report.key.clone(), now.saturating_add((1000.0 * seconds) as i64));
                }
            }
        }
        self.next_ms.retain(|key, _| reports.iter().any(|report| report.key == *key));
        let next = reports.iter().map(|report| self.moment(report)).min().unwrap_or(now);
        Ok(outcome(&answers, reports.len(), next.saturating_sub(now).max(0) as f64 / 1000.0))
    }

    #[cfg(feature = "relay")]
    fn moment(&self, report: &Waiting) -> i64 {
        self.next_ms.get(&report.key).copied().unwrap_or(report.due_ms)
    }

    #[cfg(feature = "relay")]
    fn range(&self, report: &Waiting, now: i64) -> f64 {
        let text = &self.device.survey().text;
        let closes = self.device.survey().opens_ms(report.step + 1 + text.lateness_steps as u64);
        let (left, step) = (closes.saturating_sub(now) as f64 / 1000.0, text.step_seconds as f64);
        if left > 0.0 { step.min((left / 2.0).max(1.0)) } else { step }
    }
}

fn outcome(answers: &[Answer], waiting: usize, retry_after: f64) -> Attempt {
    let count = |counts| answers.iter().filter(|answer| answer.counts == Some(counts)).count();
    let mut reasons: Vec<String> = answers.iter().filter_map(|answer| answer.reason.clone()).collect();
    reasons.sort();
    reasons.dedup();
    let retry_after = Duration::from_secs_f64(retry_after);
    Attempt { accepted: count(true), refused: count(false), waiting, retry_after, reasons }
}

fn shuffle(reports: &mut [Waiting]) -> Result<()> {
    for last in (1..reports.len()).rev() {
        reports.swap(last, Draws(&mut SystemRandom).below(last as u64 + 1)? as usize);
    }
    Ok(())
}

/// A uniform number in [0, 1), for pauses only.
fn share() -> Result<f64> {
    Ok(Draws(&mut SystemRandom).below(1 << 32)? as f64 / 2f64.powi(32))
}

/// The scheme, authority and path of a URL.
type Url<'a> = (&'static str, &'a str, &'a str);

pub(crate) fn require_url(url: &str) -> Result<Url<'_>> {
    let told = url.rsplit('@').next().unwrap_or_default();
    let text = || format!("a URL must be http[s]://host[:port][/path] without a user name, got {told:?}");
    read_url(url).ok_or_else(|| Error::Value(text()))
}

fn read_url(url: &str) -> Option<Url<'_>> {
    let plain = url.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && !b"@?#\\".contains(&byte));
    let (scheme, rest) = url.split_once("://").filter(|_| plain)?;
    let scheme = ["http", "https"].into_iter().find(|one| scheme.eq_ignore_ascii_case(one))?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = match authority.rsplit_once(':').filter(|_| !authority.ends_with(']')) {
        Some((host, port)) => (host, port.parse::<u16>().ok()),
        None => (authority, Some(0)),
    };
    let named = if host.starts_with('[') { host.ends_with(']') } else { !host.is_empty() && !host.contains(['[', ']', ':']) };
    port.filter(|_| named).map(|_| (scheme, authority, path))
}

fn post(transport: &dyn Transport, url: &str, token: Option<&str>, report: &Waiting) -> Answer {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut headers = vec![USER_AGENT, ("Content-Type", ENVELOPE_TYPE), ("Idempotency-Key", &report.key)];
    headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
    match transport.post(&Request { url, headers, body: &report.envelope }) {
        Ok(told) => Answer::read(told.status, told.retry_after.as_deref(), told.date.as_deref(), &told.body),
        Err(reason) => Answer::none(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::require_url;

    #[test]
    fn a_url_has_a_scheme_and_a_host_and_no_user() {
        assert_eq!(require_url("HTTPS://[::1]:8443/path").unwrap(), ("https", "[::1]:8443", "/path"));
        assert_eq!(require_url("http://gateway.example").unwrap(), ("http", "gateway.example", ""));
        for wrong in [
            "ftp://a",
            "a.example",
            "http:///path",
            "http://:80",
            "http://a:b",
            "http://a:1:2",
            "http://u@a",
            "http://a?b",
            "http://[::1",
            "http://a b",
        ] {
            assert!(require_url(wrong).is_err(), "{wrong}");
        }
    }
}
