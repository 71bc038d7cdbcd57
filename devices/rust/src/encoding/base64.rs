//! Base64 (RFC 4648): with padding to read keys and signatures, without padding and URL-safe to write idempotency keys.

/// Reads base64 with padding; nothing for another text.
#[cfg(any(feature = "signed", feature = "relay"))]
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let (mut bytes, mut number, mut bits) = (Vec::new(), 0u32, 0);
    for digit in digits.bytes() {
        number = number << 6 | DIGITS.iter().position(|&one| one == digit)? as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((number >> bits) as u8);
            number &= (1 << bits) - 1;
        }
    }
    (number == 0).then_some(bytes)
}

/// Writes URL-safe base64 without padding.
pub(crate) fn encode_url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0u32, |sum, &byte| sum << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for place in 0..=three.len() {
            text.push(char::from(DIGITS[(number >> (18 - 6 * place) & 63) as usize]));
        }
    }
    text
}
