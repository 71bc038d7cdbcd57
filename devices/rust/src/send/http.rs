//! The crate's own HTTP client.

use crate::send::sender::{Request, Response, Transport};
use std::time::Duration;
use ureq::Agent;

const ANSWER: Duration = Duration::from_secs(15); // longer than the gateway's own time limits
const MOST_ANSWER_BYTES: u64 = 1 << 20;

pub(crate) struct Http(Agent);

impl Http {
    pub(crate) fn new() -> Http {
        let config = Agent::config_builder()
            .timeout_global(Some(ANSWER))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_idle_connections(0); // one connection would join the reports of a device
        Http(config.build().into())
    }
}

impl Transport for Http {
    fn post(&self, request: &Request<'_>) -> Result<Response, String> {
        let reason = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => "timeout".to_owned(),
            ureq::Error::Io(error) => error.kind().to_string(),
            ureq::Error::HostNotFound => "name not found".to_owned(),
            other => other.to_string(),
        };
        let posted =
            request.headers.iter().fold(self.0.post(request.url), |posted, (name, value)| posted.header(*name, *value));
        let mut answer = posted.send(request.body).map_err(reason)?;
        let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (retry_after, date) = (text("retry-after"), text("date"));
        let body = answer.body_mut().with_config().limit(MOST_ANSWER_BYTES).read_to_vec().map_err(reason)?;
        Ok(Response { status: answer.status().as_u16(), retry_after, date, body })
    }
}
