//! How bytes are written: hexadecimal digits, base64 and envelopes.

pub(crate) mod base64;
pub(crate) mod envelope;
pub(crate) mod hex;
