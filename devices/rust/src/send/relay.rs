//! Reports through a relay, by Oblivious HTTP (RFC 9458): the relay sees who sends, the gateway sees what.

use crate::device::Waiting;
use crate::encoding::base64;
use crate::encoding::envelope::seal;
use crate::error::{Error, Result};
use crate::send::Answer;
use crate::send::sender::{ENVELOPE_TYPE, Request, Transport, USER_AGENT, require_url};
use crate::survey::Survey;
use aes_gcm::aead::{Aead, KeyInit};
use aes_gcm::{Aes128Gcm, Nonce};
use hkdf::Hkdf;
use hpke::aead::AesGcm128;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeS, Serializable, setup_sender};
use sha2::Sha256;

const REQUEST_LABEL: &[u8] = b"message/bhttp request\0";
const RESPONSE_LABEL: &[u8] = b"message/bhttp response";
const IDS: [u16; 3] = [0x20, 1, 1]; // DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 16;

/// A relay, the gateway behind it, and the gateway's key.
///
/// Put the key into the application's package, so that all devices have the same one.
#[derive(Debug, Clone)]
pub struct Relay {
    url: String,
    scheme: String,
    authority: String,
    key_id: u8,
    public: [u8; KEY_BYTES],
}

pub(crate) struct RelayWay {
    relay: Relay,
    token: Option<String>,
    largest: usize, // of the survey's envelopes
}

/// The keys of the answer to one request.
pub(crate) struct Exchange {
    encapsulated: Vec<u8>,
    secret: [u8; NONCE_BYTES],
}

impl Relay {
    /// Reads the gateway's key configuration in base64, as `ldpstream relay-key` prints it.
    ///
    /// # Errors
    /// `Value` if a URL is malformed, or `keys` has no configuration with X25519, HKDF-SHA256 and AES-128-GCM.
    pub fn new(url: &str, gateway: &str, keys: &str) -> Result<Relay> {
        require_url(url)?;
        let (scheme, authority, path) = require_url(gateway)?;
        if !["", "/"].contains(&path) {
            return Err(Error::Value("a gateway behind a relay must have a URL without a path".into()));
        }
        let found = base64::decode(keys).and_then(|document| first_key(&document));
        let (key_id, public) = found.ok_or_else(|| Error::Value("keys must be a key configuration in base64".into()))?;
        let relay = Relay { url: url.into(), scheme: scheme.into(), authority: authority.into(), key_id, public };
        relay.seal(b"").map(|_| relay)
    }

    /// Encrypts a message for the gateway.
    pub(crate) fn seal(&self, message: &[u8]) -> Result<(Vec<u8>, Exchange)> {
        let refused = |_| Error::Value("the gateway's key cannot be used".into());
        let public = <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(&self.public).map_err(refused)?;
        let head = head(self.key_id);
        let info = [REQUEST_LABEL, &head].concat();
        let (key, mut context) =
            setup_sender::<AesGcm128, HkdfSha256, X25519HkdfSha256>(&OpModeS::Base, &public, &info).map_err(refused)?;
        let sealed = context.seal(message, b"").map_err(refused)?;
        let mut secret = [0; NONCE_BYTES];
        context.export(RESPONSE_LABEL, &mut secret).map_err(refused)?;
        let encapsulated = key.to_bytes().to_vec();
        Ok(([&head[..], &encapsulated, &sealed].concat(), Exchange { encapsulated, secret }))
    }
}

/// The head of a capsule: the key's number and the algorithms.
pub(crate) fn head(key_id: u8) -> Vec<u8> {
    let ids = IDS.iter().flat_map(|id| id.to_be_bytes());
    std::iter::once(key_id).chain(ids).collect()
}

impl Exchange {
    #[cfg(test)]
    pub(crate) fn new(encapsulated: Vec<u8>, secret: [u8; NONCE_BYTES]) -> Exchange {
        Exchange { encapsulated, secret }
    }

    /// The gateway's status and `Retry-After`, and its body; nothing if the answer is not the gateway's.
    pub(crate) fn open(&self, capsule: &[u8]) -> Option<(u16, Option<String>, Vec<u8>)> {
        let (nonce, sealed) = capsule.split_at_checked(NONCE_BYTES)?;
        let keys = Hkdf::<Sha256>::new(Some(&[&self.encapsulated, nonce].concat()), &self.secret);
        let (mut key, mut key_nonce) = ([0; 16], [0; 12]);
        keys.expand(b"key", &mut key).ok()?;
        keys.expand(b"nonce", &mut key_nonce).ok()?;
        let opened = Aes128Gcm::new(&key.into()).decrypt(&Nonce::from(key_nonce), sealed).ok()?;
        response(&opened)
    }
}

impl RelayWay {
    pub(crate) fn new(relay: Relay, survey: &Survey, token: Option<String>) -> RelayWay {
        RelayWay { relay, token, largest: survey.largest_envelope() }
    }

    /// The binary HTTP request (RFC 9292) with a report, with zeros up to the size of the survey's largest request.
    pub(crate) fn message(&self, envelope: &[u8], key: &str) -> Vec<u8> {
        let mut message = self.request(envelope, key);
        message.resize(self.request(&vec![0; self.largest], key).len(), 0);
        message
    }

    fn request(&self, envelope: &[u8], key: &str) -> Vec<u8> {
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut fields = Vec::new();
        let named =
            [("content-type", Some(ENVELOPE_TYPE)), ("idempotency-key", Some(key)), ("authorization", bearer.as_deref())];
        for (name, value) in named {
            if let Some(value) = value {
                part(&mut fields, name.as_bytes());
                part(&mut fields, value.as_bytes());
            }
        }
        let mut message = vec![0]; // a request of known length
        for text in ["POST", &self.relay.scheme, &self.relay.authority, "/v1/reports"] {
            part(&mut message, text.as_bytes());
        }
        part(&mut message, &fields);
        part(&mut message, envelope);
        message.push(0); // no trailers
        message
    }

    pub(crate) fn post(&self, transport: &dyn Transport, report: &Waiting) -> Result<Answer> {
        let (capsule, keys) = self.relay.seal(&self.message(&report.envelope, &report.key))?;
        let headers = vec![USER_AGENT, ("Content-Type", "message/ohttp-req")];
        Ok(match transport.post(&Request { url: &self.relay.url, headers, body: &capsule }) {
            Err(reason) => Answer::none(reason),
            Ok(told) if told.status == 200 => match keys.open(&told.body) {
                Some((status, told, body)) => Answer::read(status, told.as_deref(), None, &body),
                None => Answer::none("an answer that is not the gateway's".into()),
            },
            Ok(told) => Answer::none(format!("status {} of the relay", told.status)),
        })
    }
}

impl Survey {
    /// The size of the largest envelope with one report, at any step.
    pub(crate) fn largest_envelope(&self) -> usize {
        let cohort = self.text.cohort.as_ref().map(|cohort| cohort.values.len() as u64 - 1);
        let rows = self.mechanisms.iter().enumerate().flat_map(|(a, levels)| {
            levels.iter().enumerate().map(move |(level, p)| (a as u64, level as u64, vec![0; p.row_bytes as usize]))
        });
        let sizes = rows.map(|(a, level, row)| seal(&self.fingerprint, a, level, u64::MAX, 1, cohort, &row).len());
        sizes.max().unwrap_or(0)
    }
}

/// The first configuration with our algorithms: the key's number and the public key.
fn first_key(mut document: &[u8]) -> Option<(u8, [u8; KEY_BYTES])> {
    let number = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    while document.len() >= 2 {
        let (size, rest) = document.split_at(2);
        let (whole, rest) = rest.split_at_checked(usize::from(number(size)))?;
        document = rest;
        if whole.len() < 5 + KEY_BYTES || number(&whole[1..3]) != IDS[0] {
            continue;
        }
        let suites = &whole[5 + KEY_BYTES..];
        if suites.len() != usize::from(number(&whole[3 + KEY_BYTES..])) || suites.len() % 4 != 0 {
            return None;
        }
        if suites.chunks(4).any(|suite| [number(suite), number(&suite[2..])] == IDS[1..]) {
            return Some((whole[0], whole[3..3 + KEY_BYTES].try_into().ok()?));
        }
    }
    None
}

/// Adds a part with its length, a variable-length integer (RFC 9000).
fn part(message: &mut Vec<u8>, bytes: &[u8]) {
    let length = bytes.len() as u64;
    match length {
        0..0x40 => message.push(length as u8),
        0x40..0x4000 => message.extend((length as u16 | 0x4000).to_be_bytes()),
        _ => message.extend((length as u32 | 0x8000_0000).to_be_bytes()),
    }
    message.extend(bytes);
}

/// Reads a binary HTTP response of known length.
fn response(mut message: &[u8]) -> Option<(u16, Option<String>, Vec<u8>)> {
    if number(&mut message)? != 1 {
        return None;
    }
    let status = u16::try_from(number(&mut message)?).ok().filter(|status| (200..600).contains(status))?;
    let mut fields = taken(&mut message)?;
    let mut retry_after = None;
    while !fields.is_empty() {
        let (name, value) = (taken(&mut fields)?, taken(&mut fields)?);
        if name == b"retry-after" {
            retry_after = String::from_utf8(value.to_vec()).ok();
        }
    }
    let content = if message.is_empty() { &[][..] } else { taken(&mut message)? };
    Some((status, retry_after, content.to_vec()))
}

fn number(message: &mut &[u8]) -> Option<u64> {
    let size = 1 << (message.first()? >> 6);
    let (bytes, rest) = message.split_at_checked(size)?;
    *message = rest;
    let whole = bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    Some(whole & (u64::MAX >> (66 - 8 * size)))
}

fn taken<'a>(message: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = usize::try_from(number(message)?).ok()?;
    let (bytes, rest) = message.split_at_checked(size)?;
    *message = rest;
    Some(bytes)
}
