//! Signatures of surveys: Ed25519 over a statement that names the survey's pin.

use crate::error::{Error, Result};
use crate::survey::Survey;

/// Requires a signature by one of the keys, and a second one by one of the other keys.
pub(crate) fn require(survey: &Survey, keys: &[String], others: &[String]) -> Result<()> {
    if keys.is_empty() && !others.is_empty() {
        return Err(Error::Value("also_signed_by needs signed_by".into()));
    }
    if keys.iter().any(|key| others.contains(key)) {
        return Err(Error::Value("also_signed_by must name other keys than signed_by".into()));
    }
    for keys in [keys, others].into_iter().filter(|keys| !keys.is_empty()) {
        if !signed(survey, keys)? {
            return Err(Error::NotSigned(format!("survey {} has no signature by one of the required keys", survey.name)));
        }
    }
    Ok(())
}

#[cfg(not(feature = "signed"))]
fn signed(_: &Survey, _: &[String]) -> Result<bool> {
    Err(Error::Value("signatures need the feature \"signed\" of this crate".into()))
}

#[cfg(feature = "signed")]
fn signed(survey: &Survey, keys: &[String]) -> Result<bool> {
    use ed25519_dalek::VerifyingKey;
    let mut known = Vec::new();
    for key in keys {
        let bytes: Option<[u8; 32]> = crate::encoding::base64::decode(key).and_then(|bytes| bytes.try_into().ok());
        let read = bytes.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
        known.push(read.ok_or_else(|| Error::Value("a public key is 32 bytes in base64".into()))?);
    }
    Ok(survey.signatures.iter().any(|one| known.iter().any(|key| verifies(one, key, &survey.pin))))
}

#[cfg(feature = "signed")]
fn verifies(one: &crate::survey::Signature, key: &ed25519_dalek::VerifyingKey, pin: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Statement {
        format: String,
        canonical_sha256: String,
    }
    let bytes: Option<[u8; 64]> = crate::encoding::base64::decode(&one.signature).and_then(|bytes| bytes.try_into().ok());
    let statement: Option<Statement> = serde_json::from_str(&one.statement).ok();
    statement.is_some_and(|read| read.format == "ldpstream survey signature 1" && read.canonical_sha256 == pin)
        && bytes.is_some_and(|bytes| key.verify_strict(one.statement.as_bytes(), &bytes.into()).is_ok())
}
