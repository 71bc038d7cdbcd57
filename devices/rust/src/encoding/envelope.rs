//! Envelopes: see `docs/reference/wire_format.md`.

fn integer(out: &mut Vec<u8>, n: u64) {
    match n {
        0..=0x7f => out.push(n as u8),
        0x80..=0xff => out.extend([0xcc, n as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend((n as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend((n as u32).to_be_bytes());
        }
        _ => {
            out.push(0xcf);
            out.extend(n.to_be_bytes());
        }
    }
}

fn binary(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        n @ 0..=0xff => out.extend([0xc4, n as u8]),
        n @ 0x100..=0xffff => {
            out.push(0xc5);
            out.extend((n as u16).to_be_bytes());
        }
        n => {
            out.push(0xc6);
            out.extend((n as u32).to_be_bytes());
        }
    }
    out.extend(bytes);
}

/// Packs n rows of one attribute, level, step and cohort.
pub(crate) fn seal(
    fingerprint: &[u8; 8],
    attribute: u64,
    level: u64,
    step: u64,
    n: u64,
    cohort: Option<u64>,
    rows: &[u8],
) -> Vec<u8> {
    let mut out = vec![if cohort.is_some() { 0x98 } else { 0x97 }, 1];
    binary(&mut out, fingerprint);
    for number in [Some(attribute), Some(level), Some(step), Some(n), cohort].into_iter().flatten() {
        integer(&mut out, number);
    }
    binary(&mut out, rows);
    out
}
