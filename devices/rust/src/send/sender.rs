//! Sends a device's reports to a gateway, and decides when: see `docs/reference/write_a_device.md`.

use crate::device::{Device, Waiting, now_ms};
use crate::error::{Error, Result};
use crate::mechanism::draws::{Draws, SystemRandom};
use crate::send::Answer;
#[cfg(feature = "relay")]
use crate::send::relay::{Relay, RelayWay};
use std::collections::BTreeMap;
use std::time::Duration;
use ureq::Agent;
use ureq::http::{HeaderMap, Uri};

const ANSWER: Duration = Duration::from_secs(15); // longer than the gateway's own time limits
const MOST_ANSWER_BYTES: u64 = 1 << 20;
const LONGEST_PAUSE: f64 = 300.0;
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

/// Sends the reports of one device. All attempts for a report carry its key, so that the report counts at most once.
pub struct Sender<'a> {
    device: &'a Device,
    posts: Posts,
    next_ms: BTreeMap<String, i64>, // through a relay: key → the new moment of a report that was due
}

impl std::fmt::Debug for Sender<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("<Sender>")
    }
}

enum Posts {
    Local,
    Direct {
        agent: Agent,
        url: String,
        token: Option<String>,
    },
    #[cfg(feature = "relay")]
    Relay(RelayWay),
}

impl<'a> Sender<'a> {
    /// Prepares the sending of a device's reports.
    ///
    /// The token is the gateway's bearer token, if it needs one. Behind a relay, all devices must have the same token.
    ///
    /// # Errors
    /// `RelayRequired` if the survey requires a relay and the way has none; `Value` if a URL is malformed, or the survey
    /// requires no relay and the way has one.
    pub fn new(device: &'a Device, way: Way, token: Option<&str>) -> Result<Sender<'a>> {
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
                Posts::Direct { agent: agent(ANSWER), url: format!("{}/v1/reports", url.trim_end_matches('/')), token }
            }
            Way::Local => Posts::Local,
            #[cfg(feature = "relay")]
            Way::Relay(relay) => Posts::Relay(RelayWay::new(relay, survey, token, agent(ANSWER))),
        };
        Ok(Sender { device, posts, next_ms: BTreeMap::new() })
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
            Posts::Direct { agent, url, token } => post(agent, url, token.as_deref(), report),
            #[cfg(feature = "relay")]
            Posts::Relay(relay) => relay.post(report)?,
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

pub(crate) fn require_url(url: &str) -> Result<Uri> {
    let plain = url.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && !b"@?#".contains(&byte));
    let read: Option<Uri> = url.parse().ok().filter(|_| plain);
    let read = read.filter(|read| read.host().is_some() && matches!(read.scheme_str(), Some("http" | "https")));
    let told = url.rsplit('@').next().unwrap_or_default();
    read.ok_or_else(|| Error::Value(format!("a URL must be http[s]://host[:port][/path] without a user name, got {told:?}")))
}

fn agent(wait: Duration) -> Agent {
    let config = Agent::config_builder()
        .timeout_global(Some(wait))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .max_idle_connections(0) // one connection would join the reports of a device
        .user_agent("ldpstream"); // the same for all devices
    config.build().into()
}

fn post(agent: &Agent, url: &str, token: Option<&str>, report: &Waiting) -> Answer {
    let mut request = agent.post(url).header("Content-Type", ENVELOPE_TYPE).header("Idempotency-Key", &report.key);
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    match exchange(request, &report.envelope) {
        Ok((status, headers, body)) => {
            let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
            Answer::read(status, text("retry-after"), text("date"), &body)
        }
        Err(reason) => Answer::none(reason),
    }
}

/// The status, headers and body of an answer; or why there is none.
pub(crate) fn exchange(
    request: ureq::RequestBuilder<ureq::typestate::WithBody>,
    body: &[u8],
) -> std::result::Result<(u16, HeaderMap, Vec<u8>), String> {
    let reason = |error: ureq::Error| match error {
        ureq::Error::Timeout(_) => "timeout".to_owned(),
        ureq::Error::Io(error) => error.kind().to_string(),
        ureq::Error::HostNotFound => "name not found".to_owned(),
        other => other.to_string(),
    };
    let mut answer = request.send(body).map_err(reason)?;
    let body = answer.body_mut().with_config().limit(MOST_ANSWER_BYTES).read_to_vec().map_err(reason)?;
    Ok((answer.status().as_u16(), answer.headers().clone(), body))
}
