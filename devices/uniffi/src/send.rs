//! The sender. The platform's own HTTP client carries the requests, so that its certificates and proxies count.

use crate::device::Device;
use crate::{Result, core};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A request to the gateway or the relay; its method is POST.
#[derive(uniffi::Record)]
pub struct Request {
    /// The whole address.
    pub url: String,
    /// The headers.
    pub headers: HashMap<String, String>,
    /// The bytes to send.
    pub body: Vec<u8>,
}

/// What came back.
#[derive(uniffi::Record)]
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

/// There is no answer.
#[derive(Debug, uniffi::Error)]
pub enum NoAnswer {
    /// None came in time: the attempt ends.
    Timeout,
    /// Another reason, in words without the request's content.
    Failed { reason: String },
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoAnswer::Timeout => out.write_str("timeout"),
            NoAnswer::Failed { reason } => out.write_str(reason),
        }
    }
}

impl From<uniffi::UnexpectedUniFFICallbackError> for NoAnswer {
    fn from(_: uniffi::UnexpectedUniFFICallbackError) -> Self {
        NoAnswer::Failed { reason: "the HTTP client failed".into() }
    }
}

/// An HTTP client. It uses a new connection for each request, follows no redirect, and waits at most 15 seconds.
#[uniffi::export(with_foreign)]
pub trait Transport: Send + Sync {
    /// Posts one request.
    fn post(&self, request: Request) -> std::result::Result<Response, NoAnswer>;
}

/// Waits between two attempts.
#[uniffi::export(with_foreign)]
pub trait Pause: Send + Sync {
    /// Waits, and returns false to stop: the reports stay in the store.
    fn pause(&self, time: Duration) -> bool;
}

struct Carrier(Arc<dyn Transport>);

impl core::Transport for Carrier {
    fn post(&self, request: &core::Request<'_>) -> std::result::Result<core::Response, String> {
        let headers = request.headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let given = Request { url: request.url.to_owned(), headers, body: request.body.to_vec() };
        let Response { status, retry_after, date, body } = self.0.post(given).map_err(|none| none.to_string())?;
        Ok(core::Response { status, retry_after, date, body })
    }
}

/// A relay, the gateway behind it, and the gateway's key, which is part of the application's package.
#[derive(uniffi::Object)]
pub struct Relay(core::Relay);

#[uniffi::export]
impl Relay {
    /// Reads the gateway's key configuration in base64, as `ldpstream relay-key` prints it.
    #[uniffi::constructor]
    pub fn new(url: String, gateway: String, keys: String) -> Result<Arc<Relay>> {
        core::Relay::new(&url, &gateway, &keys).map(|relay| Arc::new(Relay(relay)))
    }
}

/// Where the reports go.
#[derive(uniffi::Enum)]
pub enum Way {
    /// Straight to the gateway, which sees the device's address: `http[s]://host[:port][/path]`, without `/v1/reports`.
    Direct { url: String },
    /// Through a relay, which hides the device from the gateway.
    Relayed { relay: Arc<Relay> },
    /// No way: nothing is sent, and each report counts as accepted. For trying a program.
    Local,
}

/// The outcome of one attempt.
#[derive(uniffi::Record)]
pub struct Attempt {
    /// The number of reports that the gateway accepted: they are in its log.
    pub accepted: u32,
    /// The number of reports that never count by this or a later attempt.
    pub refused: u32,
    /// The number of reports that need another attempt, or whose moment has not come.
    pub waiting: u32,
    /// The shortest time to the next attempt.
    pub retry_after: Duration,
    /// Why reports wait, each reason once: such as "status 429" or "timeout".
    pub reasons: Vec<String>,
}

/// Sends the reports of one device. All attempts for a report carry its key, so that the report counts at most once.
#[derive(uniffi::Object)]
pub struct Sender(Mutex<core::Sender<Arc<core::Device>>>);

#[uniffi::export]
impl Sender {
    /// Prepares the sending. The token is the gateway's bearer token, if it needs one.
    #[uniffi::constructor(default(token = None))]
    pub fn new(transport: Arc<dyn Transport>, device: &Device, way: Way, token: Option<String>) -> Result<Arc<Sender>> {
        let way = match way {
            Way::Direct { url } => core::Way::Direct(url),
            Way::Relayed { relay } => core::Way::Relay(relay.0.clone()),
            Way::Local => core::Way::Local,
        };
        let sender = core::Sender::with(device.0.clone(), way, token.as_deref(), Box::new(Carrier(transport)))?;
        Ok(Arc::new(Sender(Mutex::new(sender))))
    }

    /// Sends every waiting report once; through a relay, at most one report whose moment has come. Settles the reports whose
    /// answer is final.
    pub fn attempt(&self) -> Result<Attempt> {
        let done = self.0.lock().unwrap_or_else(PoisonError::into_inner).attempt()?;
        let core::Attempt { accepted, refused, waiting, retry_after, reasons } = done;
        Ok(Attempt { accepted: accepted as u32, refused: refused as u32, waiting: waiting as u32, retry_after, reasons })
    }

    /// Calls `attempt` until no report waits, with the pauses that a gateway expects. It may take minutes.
    pub fn run(&self, pause: Arc<dyn Pause>) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).run(|time| pause.pause(time))
    }
}
