//! The functions of `include/ldpstream_device.h`, which documents them. All decisions are in the Rust device.

use ldpstream_device::{Answer, ConsentMode, Device, Error, Options, Preview, Result, Silence, Store, Survey, Value};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::time::Duration;

const MESSAGE_BYTES: usize = 256;

/// `ldp_error`.
#[repr(C)]
pub struct CError {
    code: c_int,
    message: [c_char; MESSAGE_BYTES],
}

/// `ldp_options`.
#[repr(C)]
pub struct COptions {
    survey: *const c_char,
    survey_bytes: usize,
    path: *const c_char,
    pin: *const c_char,
    cohort: *const c_char,
    max_eps: f64,
    wait_ms: u32,
    consent: c_int,
    expect_enrolled: bool,
}

/// `ldp_report`.
#[repr(C)]
pub struct CReport {
    attribute: *const c_char,
    step: u64,
    envelope: *const u8,
    envelope_bytes: usize,
    key: *const c_char,
}

/// `ldp_shown`.
#[repr(C)]
pub struct CShown {
    attribute: *const c_char,
    step: u64,
    envelope: *const u8,
    envelope_bytes: usize,
    silence: *const c_char,
    example: bool,
    text: *const c_char,
}

/// `ldp_left`.
#[repr(C)]
pub struct CLeft {
    at_ms: i64,
    attribute: *const c_char,
    step: u64,
    envelope: *const u8,
    envelope_bytes: usize,
    local: bool,
}

/// `ldp_verdict`.
#[repr(C)]
pub struct Verdict {
    last: bool,
    counts: bool,
    retry_after_s: f64,
}

fn code(error: &Error) -> c_int {
    match error {
        Error::Value(_) => 1,
        Error::UnsafeSurvey(_) => 2,
        Error::UnknownSurvey(_) => 3,
        Error::NotSigned(_) => 4,
        Error::RelayRequired(_) => 5,
        Error::WrongSurvey(_) => 6,
        Error::CostlySurvey(_) => 7,
        Error::StoreHeld(_) => 8,
        Error::StoreFull(_) => 9,
        Error::StoreCleared(_) => 10,
        Error::StepForgotten(_) => 11,
        Error::ClockWentBack(_) => 12,
        Error::WalletFull(_) => 13,
        Error::Store(_) => 14,
        Error::Random(_) => 15,
    }
}

/// Writes the outcome into the caller's error, and returns the value or nothing.
///
/// # Safety
/// `error` is null or points to an `ldp_error`.
unsafe fn told<T>(result: Result<T>, error: *mut CError) -> Option<T> {
    // SAFETY: the caller gives null or a valid pointer, to which nobody else writes during the call.
    let place = unsafe { error.as_mut() };
    let (code, text) = result.as_ref().map_or_else(|error| (code(error), error.to_string()), |_| (0, String::new()));
    if let Some(place) = place {
        let mut cut = text.len().min(MESSAGE_BYTES - 1);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        place.code = code;
        place.message = [0; MESSAGE_BYTES];
        for (to, from) in place.message.iter_mut().zip(text[..cut].bytes()) {
            *to = from as c_char;
        }
    }
    result.ok()
}

/// Reads a text of the caller; nothing for null.
///
/// # Safety
/// `text` is null or ends with a zero byte.
unsafe fn optional<'a>(name: &str, text: *const c_char) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the pointer is not null, and its text ends with a zero byte.
    let read = unsafe { CStr::from_ptr(text) };
    read.to_str().map(Some).map_err(|_| Error::Value(format!("{name} must be UTF-8")))
}

/// # Safety
/// As for `optional`.
unsafe fn required<'a>(name: &str, text: *const c_char) -> Result<&'a str> {
    // SAFETY: as for this function.
    let read = unsafe { optional(name, text) }?;
    read.ok_or_else(|| Error::Value(format!("{name} must not be NULL")))
}

/// # Safety
/// `device` is null or comes from `ldp_open`, and `ldp_close` did not free it.
unsafe fn opened<'a>(device: *const Device) -> Result<&'a Device> {
    // SAFETY: as for this function.
    unsafe { device.as_ref() }.ok_or_else(|| Error::Value("device must not be NULL".into()))
}

/// # Safety
/// The pointers are as the header says.
unsafe fn open(options: *const COptions) -> Result<Device> {
    // SAFETY: the caller gives null or a valid pointer.
    let given = unsafe { options.as_ref() }.ok_or_else(|| Error::Value("options must not be NULL".into()))?;
    if given.survey.is_null() {
        return Err(Error::Value("survey must not be NULL".into()));
    }
    // SAFETY: `survey` points to `survey_bytes` bytes, and the other texts end with a zero byte.
    let (json, path, pin, cohort) = unsafe {
        let json = std::slice::from_raw_parts(given.survey.cast::<u8>(), given.survey_bytes);
        (json, required("path", given.path)?, optional("pin", given.pin)?, optional("cohort", given.cohort)?)
    };
    let mut store = Store::file(path);
    if given.wait_ms > 0 {
        store = store.waiting(Duration::from_millis(given.wait_ms.into()));
    }
    let consent = match given.consent {
        0 => ConsentMode::Asked,
        1 => ConsentMode::Given,
        2 => ConsentMode::Simulated,
        other => return Err(Error::Value(format!("consent must be an ldp_consent_mode, got {other}"))),
    };
    let required = Options {
        consent,
        expect_enrolled: given.expect_enrolled,
        pin: pin.map(str::to_owned),
        max_eps: (given.max_eps != 0.0).then_some(given.max_eps),
        cohort: cohort.map(str::to_owned),
        ..Options::default()
    };
    let survey = Survey::from_json(json)?;
    if let Some(computed) = survey.attributes().iter().find(|one| one.has_recipe()) {
        return Err(Error::UnknownSurvey(format!("attribute {:?} has a recipe, and this library has no log", computed.name)));
    }
    Device::open(survey, store, &required)
}

/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_open(options: *const COptions, error: *mut CError) -> *mut Device {
    // SAFETY: as for this function.
    let device = unsafe { told(open(options), error) };
    device.map_or(std::ptr::null_mut(), |device| Box::into_raw(Box::new(device)))
}

/// # Safety
/// `device` is null or comes from `ldp_open`, and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_close(device: *mut Device) {
    if !device.is_null() {
        // SAFETY: the pointer comes from `Box::into_raw`.
        drop(unsafe { Box::from_raw(device) });
    }
}

/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_question(device: *const Device, text: *mut c_char, bytes: usize) -> usize {
    // SAFETY: as for this function.
    let question = unsafe { opened(device) }.map_or(String::new(), Device::question);
    if !text.is_null() && bytes > 0 {
        let mut cut = question.len().min(bytes - 1);
        while !question.is_char_boundary(cut) {
            cut -= 1;
        }
        // SAFETY: `text` points to `bytes` bytes, more than `cut`.
        let place = unsafe { std::slice::from_raw_parts_mut(text.cast::<u8>(), cut + 1) };
        place[..cut].copy_from_slice(&question.as_bytes()[..cut]);
        place[cut] = 0;
    }
    question.len()
}

/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_to_ask(device: *mut Device, error: *mut CError) -> c_int {
    // SAFETY: as for this function.
    unsafe { told(opened(device).and_then(Device::to_ask), error) }.map_or(-1, |names| names.len() as c_int)
}

/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_give_consent(device: *mut Device, error: *mut CError) -> c_int {
    // SAFETY: as for this function.
    unsafe { told(opened(device).and_then(|device| device.give_consent(&[])), error) }.map_or(-1, |()| 0)
}

/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_withdraw_consent(device: *mut Device, error: *mut CError) -> c_int {
    // SAFETY: as for this function.
    unsafe { told(opened(device).and_then(|device| device.withdraw_consent(&[])), error) }.map_or(-1, |()| 0)
}

/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_leaves(device: *mut Device, key: *const c_char, error: *mut CError) -> c_int {
    // SAFETY: as for this function.
    unsafe { told(opened(device).and_then(|device| device.leaves(required("key", key)?)), error) }.map_or(-1, c_int::from)
}

/// Reads the values of an attribute as the caller gives them.
///
/// # Safety
/// `values` is null or points to `count` texts.
unsafe fn given(values: *const *const c_char, count: usize) -> Result<Vec<Value>> {
    if values.is_null() && count > 0 {
        return Err(Error::Value("values must not be NULL".into()));
    }
    // SAFETY: `values` points to `count` texts.
    (0..count).map(|i| unsafe { required("value", *values.add(i)) }.map(Value::from)).collect()
}

/// One value, or the list of values of a pair or of a question with several answers.
fn joined(device: &Device, attribute: &str, mut values: Vec<Value>) -> Value {
    let found = device.survey().attributes().iter().find(|one| one.name == attribute);
    let list = found.is_some_and(|one| one.takes_a_list());
    if list || values.len() != 1 { Value::List(values) } else { values.remove(0) }
}

/// # Safety
/// As for `ldp_answer`.
unsafe fn answer(device: *const Device, attribute: *const c_char, values: *const *const c_char, count: usize) -> Result<bool> {
    // SAFETY: as for this function.
    let (device, attribute, values) = unsafe { (opened(device)?, required("attribute", attribute)?, given(values, count)?) };
    Ok(device.report(attribute, joined(device, attribute, values), None)?.is_some())
}

/// # Safety
/// As for `ldp_preview`.
unsafe fn preview<'a>(
    device: *const Device,
    attribute: *const c_char,
    values: *const *const c_char,
    count: usize,
) -> Result<Preview<'a>> {
    // SAFETY: as for this function.
    let (device, name, values) = unsafe { (opened(device)?, required("attribute", attribute)?, given(values, count)?) };
    let parts = device.survey().attributes().iter().find(|one| one.name == name).and_then(|one| one.pair());
    let shown = match (parts, values.as_slice()) {
        (Some([first, second]), [one, two]) => device.preview(&[(first, one.clone()), (second, two.clone())], None)?,
        _ => device.preview(&[(name, joined(device, name, values))], None)?,
    };
    Ok(shown.into_iter().find(|one| one.attribute == name).expect("a preview of each given attribute"))
}

/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_answer(
    device: *mut Device,
    attribute: *const c_char,
    values: *const *const c_char,
    count: usize,
    error: *mut CError,
) -> c_int {
    // SAFETY: as for this function.
    let made = unsafe { told(answer(device, attribute, values, count), error) };
    made.map_or(-1, c_int::from)
}

fn text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("no zero byte")
}

/// # Safety
/// The pointers are as the header says, and `visit` is a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_waiting(
    device: *mut Device,
    visit: Option<extern "C" fn(*const CReport, *mut c_void)>,
    context: *mut c_void,
    error: *mut CError,
) -> c_int {
    // SAFETY: as for this function.
    let waiting = unsafe { told(opened(device).and_then(Device::waiting), error) };
    let Some(waiting) = waiting else { return -1 };
    if let Some(visit) = visit {
        for report in &waiting {
            let (attribute, key) = (text(&report.attribute), text(&report.key));
            let (envelope, envelope_bytes) = (report.envelope.as_ptr(), report.envelope.len());
            let (attribute, key) = (attribute.as_ptr(), key.as_ptr());
            visit(&CReport { attribute, step: report.step, envelope, envelope_bytes, key }, context);
        }
    }
    waiting.len() as c_int
}

/// # Safety
/// The pointers are as the header says, and `visit` is a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_preview(
    device: *mut Device,
    attribute: *const c_char,
    values: *const *const c_char,
    count: usize,
    visit: Option<extern "C" fn(*const CShown, *mut c_void)>,
    context: *mut c_void,
    error: *mut CError,
) -> c_int {
    // SAFETY: as for this function.
    let Some(shown) = (unsafe { told(preview(device, attribute, values, count), error) }) else { return -1 };
    if let Some(visit) = visit {
        let (attribute, words, silence) = (text(&shown.attribute), text(&shown.to_string()), shown.silence.map(Silence::text));
        let silence = silence.map(text);
        let envelope = shown.envelope.as_deref();
        let view = CShown {
            attribute: attribute.as_ptr(),
            step: shown.step,
            envelope: envelope.map_or(std::ptr::null(), <[u8]>::as_ptr),
            envelope_bytes: envelope.map_or(0, <[u8]>::len),
            silence: silence.as_ref().map_or(std::ptr::null(), |silence| silence.as_ptr()),
            example: shown.example,
            text: words.as_ptr(),
        };
        visit(&view, context);
    }
    c_int::from(shown.silence.is_none())
}

/// # Safety
/// The pointers are as the header says, and `visit` is a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_journal(
    device: *mut Device,
    visit: Option<extern "C" fn(*const CLeft, *mut c_void)>,
    context: *mut c_void,
    error: *mut CError,
) -> c_int {
    // SAFETY: as for this function.
    let journal = unsafe { told(opened(device).and_then(Device::journal), error) };
    let Some(journal) = journal else { return -1 };
    if let Some(visit) = visit {
        for left in &journal {
            let name = text(&left.attribute);
            let (at_ms, step, local, attribute) = (left.at_ms, left.step, left.local, name.as_ptr());
            let (envelope, envelope_bytes) = (left.envelope.as_ptr(), left.envelope.len());
            visit(&CLeft { at_ms, attribute, step, envelope, envelope_bytes, local }, context);
        }
    }
    journal.len() as c_int
}

/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_read_answer(
    status: u16,
    retry_after: *const c_char,
    date: *const c_char,
    body: *const c_char,
    body_bytes: usize,
) -> Verdict {
    // SAFETY: `body` is null or points to `body_bytes` bytes, and the texts end with a zero byte.
    let (retry_after, date, body) = unsafe {
        let body = if body.is_null() { &[] } else { std::slice::from_raw_parts(body.cast::<u8>(), body_bytes) };
        (optional("Retry-After", retry_after), optional("Date", date), body)
    };
    let read = Answer::read(status, retry_after.ok().flatten(), date.ok().flatten(), body);
    Verdict { last: read.counts.is_some(), counts: read.counts == Some(true), retry_after_s: read.retry_after }
}

/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_settle(device: *mut Device, key: *const c_char, error: *mut CError) -> c_int {
    // SAFETY: as for this function.
    unsafe { told(opened(device).and_then(|device| device.settle(required("key", key)?)), error) }.map_or(-1, |()| 0)
}

/// # Safety
/// The pointers are as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldp_forget(device: *mut Device, confirm: *const c_char, error: *mut CError) -> c_int {
    // SAFETY: as for this function.
    unsafe { told(opened(device).and_then(|device| device.forget(required("confirm", confirm)?)), error) }.map_or(-1, |()| 0)
}
