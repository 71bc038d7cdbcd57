//! The test vectors of `devices/vectors`: the same bits as every other device.

use crate::consent::ConsentMode;
use crate::device::{Device, Options, Silence};
use crate::encoding::envelope::seal;
use crate::encoding::hex;
use crate::error::{Error, Result};
use crate::mechanism::draws::{Draws, Random};
use crate::mechanism::field::Field;
use crate::store::Store;
use crate::store::state::Budget;
use crate::survey::value::Value;
use crate::survey::{RawParameters, Survey};
use crate::wallet::Wallet;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Reads a file of vectors, and says how many cases it has.
fn cases<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let folder = std::env::var("VECTORS").unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors").into());
    let text = std::fs::read(format!("{folder}/{name}.json")).expect("a file of vectors");
    let cases: Vec<T> = serde_json::from_slice(&text).expect("vectors of the documented form");
    println!("{} {name}", cases.len());
    cases
}

/// Gives the listed bytes, which several devices may share; more are an error.
#[derive(Clone)]
struct Listed(Arc<Mutex<Vec<u8>>>);

impl Listed {
    fn new(digits: &str) -> Listed {
        Listed(Arc::new(Mutex::new(hex::decode(digits).expect("hexadecimal digits"))))
    }

    fn left(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Random for Listed {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        let mut bytes = self.0.lock().unwrap();
        if bytes.len() < buffer.len() {
            return Err(Error::Random("the vector has no more bytes".into()));
        }
        let rest = bytes.split_off(buffer.len());
        buffer.copy_from_slice(&bytes);
        *bytes = rest;
        Ok(())
    }
}

fn value(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::String(text) => Value::Text(text.clone()),
        serde_json::Value::Number(number) => Value::Number(number.as_f64().unwrap()),
        serde_json::Value::Array(values) => Value::List(values.iter().map(value).collect()),
        other => panic!("no value: {other}"),
    }
}

#[derive(Deserialize)]
struct Formats {
    envelope: u32,
    canonical: u32,
}

#[test]
fn formats() {
    let [Formats { envelope: 1, canonical: 3 }] = cases("formats")[..] else { panic!("other formats") };
}

#[derive(Deserialize)]
struct Named {
    canonical: String,
    fingerprint: Option<String>,
    pin: Option<String>,
    #[serde(default)]
    mechanisms: Vec<Vec<RawParameters>>,
}

/// The surveys of the vectors by fingerprint.
fn surveys() -> BTreeMap<String, Survey> {
    let mut found = BTreeMap::new();
    for case in cases::<Named>("parameters") {
        let survey = Survey::checked("vector".into(), case.canonical, case.mechanisms, Vec::new()).unwrap();
        found.insert(hex::encode(&survey.fingerprint), survey);
    }
    found
}

#[test]
fn names_of_surveys() {
    let known = surveys();
    for case in cases::<Named>("surveys") {
        let survey = &known[case.fingerprint.as_ref().unwrap()];
        assert_eq!((Some(&survey.pin), &survey.canonical), (case.pin.as_ref(), &case.canonical));
    }
}

#[derive(Deserialize)]
struct Forged {
    fault: String,
    check: u32,
    survey: serde_json::Value,
}

#[test]
fn forged_surveys() {
    for case in cases::<Forged>("forged") {
        let refused = Survey::from_json(case.survey.to_string().as_bytes());
        let named = matches!(refused, Err(Error::UnsafeSurvey(_) | Error::UnknownSurvey(_)));
        assert!(named, "{} (check {}): {refused:?}", case.fault, case.check);
    }
}

#[derive(Deserialize)]
struct Values {
    fingerprint: String,
    attribute: String,
    cases: Vec<(serde_json::Value, Option<u64>)>,
}

#[test]
fn indices_of_values() {
    let known = surveys();
    for case in cases::<Values>("values") {
        let survey = &known[&case.fingerprint];
        let attribute = &survey.text.attribute[survey.place(&case.attribute).unwrap()];
        for (given, index) in case.cases {
            let found = attribute.index(&value(&given));
            assert_eq!(found.as_ref().ok(), index.as_ref(), "{} {given}: {found:?}", case.attribute);
        }
    }
}

#[derive(Deserialize)]
struct Hashes {
    g: u64,
    k: u64,
    functions: u64,
    digits: u64,
    stride: u64,
    field: Field,
    cases: Vec<(u64, u64, u64)>,
}

#[test]
fn hashes() {
    for case in cases::<Hashes>("hashes") {
        assert!(case.field.has(case.g) && !case.field.has(case.g * case.g));
        assert!(crate::mechanism::field::is_power(case.g, case.digits, case.functions));
        for (a, v, symbol) in case.cases {
            assert_eq!(case.field.hash(a, v, case.k, case.g, case.digits, case.stride), symbol);
        }
    }
}

#[derive(Deserialize)]
struct DrawsOf {
    parameters: serde_json::Value,
    cases: Vec<Draw>,
}

#[derive(Deserialize)]
struct Draw {
    value: u64,
    function: Option<u64>,
    random: String,
    memo: Option<String>,
    report: String,
}

#[test]
fn draws() {
    for case in cases::<DrawsOf>("draws") {
        let p = RawParameters::unchecked(&case.parameters);
        for draw in case.cases {
            let random = Listed::new(&draw.random);
            let mut source = random.clone();
            let mut draws = Draws(&mut source);
            let report = if p.memoized() {
                let function = draw.function.unwrap_or(0);
                let memo = p.first(&mut draws, p.memo_key(draw.value, function), function).unwrap();
                assert_eq!(Some(hex::encode(&memo)), draw.memo, "{} {}", case.parameters, draw.random);
                p.second(&mut draws, &memo)
            } else {
                p.once(&mut draws, draw.value)
            };
            assert_eq!(hex::encode(&report.unwrap()), draw.report, "{} {}", case.parameters, draw.random);
            assert_eq!(random.left(), 0);
        }
    }
}

#[derive(Deserialize)]
struct Envelope {
    fingerprint: String,
    attribute: u64,
    level: u64,
    step: u64,
    cohort: Option<u64>,
    rows: String,
    n: u64,
    envelope: String,
}

#[test]
fn envelopes() {
    for case in cases::<Envelope>("envelopes") {
        let fingerprint = hex::decode(&case.fingerprint).unwrap().try_into().unwrap();
        let rows = hex::decode(&case.rows).unwrap();
        let sealed = seal(&fingerprint, case.attribute, case.level, case.step, case.n, case.cohort, &rows);
        assert_eq!(hex::encode(&sealed), case.envelope);
    }
}

#[derive(Deserialize)]
struct Life {
    survey: serde_json::Value,
    levels: BTreeMap<String, String>,
    random: String,
    calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    attribute: String,
    value: serde_json::Value,
    step: u64,
    cohort: Option<String>,
    settle: bool,
    envelope: serde_json::Value,
    key: Option<String>,
    due_ms: Option<i64>,
}

/// Lives a whole life: each call opens the device anew, as after a restart.
fn live(life: &Life) {
    let survey = Survey::from_json(life.survey.to_string().as_bytes()).unwrap();
    let (random, store) = (Listed::new(&life.random), Store::memory());
    let open = |cohort: &Option<String>| {
        let options = Options {
            levels: life.levels.clone(),
            cohort: cohort.clone(),
            consent: ConsentMode::Simulated,
            ..Options::default()
        };
        Device::with(survey.clone(), store.clone(), &options, Box::new(random.clone()), crate::device::now_ms, false).unwrap()
    };
    for call in &life.calls {
        let device = open(&call.cohort);
        let result = device.report(&call.attribute, value(&call.value), Some(call.step));
        let waits = device.waiting().unwrap().into_iter().find(|one| one.attribute == call.attribute && one.step == call.step);
        let json = match &result {
            Ok(None) => serde_json::Value::Null,
            Ok(Some(envelope)) => hex::encode(envelope).into(),
            Err(error) => serde_json::json!({ "error": error.name() }),
        };
        assert_eq!(json, call.envelope, "step {} of {}", call.step, call.attribute);
        let waits = waits.filter(|_| matches!(result, Ok(Some(_))));
        assert_eq!(waits.as_ref().map(|one| &one.key), call.key.as_ref());
        if survey.text.relay.is_some() {
            assert_eq!(waits.as_ref().map(|one| one.due_ms), call.due_ms);
        }
        if let Some(report) = waits.filter(|_| call.settle) {
            device.settle(&report.key).unwrap();
        }
    }
    assert_eq!(random.left(), 0);
}

#[test]
fn devices() {
    cases::<Life>("devices").iter().for_each(live);
}

#[cfg(feature = "relay")]
#[test]
fn relay_lives() {
    cases::<Life>("relay_lives").iter().for_each(live);
}

#[derive(Deserialize)]
struct Ledger {
    parameters: serde_json::Value,
    t: u64,
    eps_t: f64,
    any_values: f64,
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * b.abs()
}

#[test]
fn losses() {
    for case in cases::<Ledger>("ledger") {
        let p = RawParameters::unchecked(&case.parameters);
        assert!(close(p.eps_t(case.t), case.eps_t), "{} t = {}: {}", case.parameters, case.t, p.eps_t(case.t));
        assert!(close(case.t as f64 * p.any_values(), case.any_values), "{} t = {}", case.parameters, case.t);
    }
}

#[derive(Deserialize)]
struct ClaimCase {
    fingerprint: String,
    levels: Vec<usize>,
    window_s: Option<u64>,
    losses: Vec<f64>,
    per_window: Option<f64>,
    for_ever: Option<f64>,
}

#[test]
fn claims() {
    let known = surveys();
    for case in cases::<ClaimCase>("claims") {
        let claim = known[&case.fingerprint].claim(&case.levels, case.window_s);
        assert!(claim.losses.iter().zip(&case.losses).all(|(&a, &b)| close(a, b)));
        assert!(close(claim.per_window, case.per_window.unwrap_or(f64::INFINITY)));
        assert!(close(claim.for_ever, case.for_ever.unwrap_or(f64::INFINITY)));
    }
}

#[derive(Deserialize)]
struct WalletLife {
    limits: Budget,
    random: String,
    calls: Vec<WalletCall>,
}

#[derive(Deserialize)]
struct WalletCall {
    now_ms: i64,
    call: String,
    fingerprint: String,
    attribute: Option<String>,
    value: Option<serde_json::Value>,
    step: Option<u64>,
    error: Option<String>,
    envelope: Option<String>,
    spent: f64,
    charged_per_window: Option<f64>,
    charged_for_ever: Option<f64>,
}

static NOW_MS: AtomicI64 = AtomicI64::new(0);

fn vector_ms() -> i64 {
    NOW_MS.load(Ordering::SeqCst)
}

#[test]
fn wallets() {
    let known = surveys();
    for life in cases::<WalletLife>("wallets") {
        let random = Listed::new(&life.random);
        let wallet = Wallet::with(Store::memory(), life.limits, false, vector_ms).unwrap();
        for call in life.calls {
            NOW_MS.store(call.now_ms, Ordering::SeqCst);
            let open = |expect_enrolled| {
                let options = Options { expect_enrolled, consent: ConsentMode::Simulated, ..Options::default() };
                wallet.device_with(known[&call.fingerprint].clone(), &options, Box::new(random.clone()))
            };
            let result = match call.call.as_str() {
                "join" => open(false).map(|_| None),
                "leave" => open(true).and_then(|device| device.forget("vector")).map(|()| None),
                _ => open(true).and_then(|device| {
                    let (attribute, given) = (call.attribute.as_ref().unwrap(), value(call.value.as_ref().unwrap()));
                    device.report(attribute, given, call.step)
                }),
            };
            let name =
                result.as_ref().err().map(|error| if error.name() == "StoreCleared" { "ValueError" } else { error.name() });
            assert_eq!(name, call.error.as_deref(), "{} {}: {result:?}", call.call, call.fingerprint);
            assert_eq!(result.ok().flatten().map(|envelope| hex::encode(&envelope)), call.envelope);
            let spent = wallet.spent().unwrap();
            assert!(close(spent.spent, call.spent), "{} {}", spent.spent, call.spent);
            assert!(close(spent.charged_per_window, call.charged_per_window.unwrap_or(f64::INFINITY)));
            assert!(close(spent.charged_for_ever, call.charged_for_ever.unwrap_or(f64::INFINITY)));
        }
        assert_eq!(random.left(), 0);
    }
}

#[cfg(feature = "signed")]
#[derive(Deserialize)]
struct Signed {
    case: String,
    canonical: String,
    pin: String,
    signature: Option<crate::survey::Signature>,
    signed_by: Vec<String>,
    accepted: bool,
}

#[cfg(feature = "signed")]
#[test]
fn signatures() {
    let known = surveys();
    let by_pin: BTreeMap<&str, &Survey> = known.values().map(|survey| (survey.pin.as_str(), survey)).collect();
    for case in cases::<Signed>("signatures") {
        let mut survey =
            by_pin.get(case.pin.as_str()).map_or_else(|| known.values().next().unwrap().clone(), |one| (*one).clone());
        (survey.pin, survey.canonical) = (case.pin, case.canonical);
        survey.signatures = case.signature.into_iter().collect();
        let accepted = crate::survey::signatures::require(&survey, &case.signed_by, &[]).is_ok();
        assert_eq!(accepted, case.accepted, "{}", case.case);
    }
}

#[cfg(feature = "relay")]
#[derive(Deserialize)]
struct RelayRequest {
    gateway: String,
    keys: String,
    gateway_private: String,
    token: Option<String>,
    envelope: String,
    key: String,
    message: String,
    capsule: String,
    answer: String,
    status: u16,
    retry_after: Option<u64>,
}

/// The device's private key of a vector cannot be given to the library: the gateway's key opens the vector's capsule and ours.
#[cfg(feature = "relay")]
#[test]
fn relay_requests() {
    use crate::send::relay::{Exchange, Relay, RelayWay, head};
    use hpke::{Deserializable, Kem, OpModeR, aead::AesGcm128, kdf::HkdfSha256, kem::X25519HkdfSha256, setup_receiver};
    let life = &cases::<Life>("relay_lives")[0];
    let survey = Survey::from_json(life.survey.to_string().as_bytes()).unwrap();
    for case in cases::<RelayRequest>("relay_requests") {
        let relay = Relay::new("https://relay.example", &case.gateway, &case.keys).unwrap();
        let way = RelayWay::new(relay.clone(), &survey, case.token);
        let message = way.message(&hex::decode(&case.envelope).unwrap(), &case.key);
        assert_eq!(hex::encode(&message), case.message);
        let private = hex::decode(&case.gateway_private).unwrap();
        let private = <X25519HkdfSha256 as Kem>::PrivateKey::from_bytes(&private).unwrap();
        let (ours, _) = relay.seal(&message).unwrap();
        for capsule in [hex::decode(&case.capsule).unwrap(), ours] {
            let (given, rest) = capsule.split_at(7);
            let (encapsulated, sealed) = rest.split_at(32);
            assert_eq!(given, head(capsule[0]));
            let info = [b"message/bhttp request\0", given].concat();
            let key = <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(encapsulated).unwrap();
            let opened = setup_receiver::<AesGcm128, HkdfSha256, X25519HkdfSha256>(&OpModeR::Base, &private, &key, &info);
            let mut context = opened.unwrap();
            assert_eq!(context.open(sealed, b"").unwrap(), message);
            if hex::encode(&capsule) == case.capsule {
                let mut secret = [0; 16];
                context.export(b"message/bhttp response", &mut secret).unwrap();
                let exchange = Exchange::new(encapsulated.to_vec(), secret);
                let (status, told, _) = exchange.open(&hex::decode(&case.answer).unwrap()).unwrap();
                assert_eq!((status, told.map(|told| told.parse().unwrap())), (case.status, case.retry_after));
                assert!(exchange.open(&[0; 64]).is_none());
            }
        }
    }
}

#[derive(Deserialize)]
struct History {
    survey: serde_json::Value,
    calls: Vec<(i64, String, Option<f64>)>,
    steps: Vec<StepOf>,
}

#[derive(Deserialize)]
struct StepOf {
    step: u64,
    indices: BTreeMap<String, u64>,
}

thread_local! {
    static CALL_MS: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

#[test]
fn recipes() {
    for case in cases::<History>("recipes") {
        let survey = Survey::from_json(case.survey.to_string().as_bytes()).unwrap();
        let activity = crate::activity::Activity::with(Store::memory(), || CALL_MS.get(), false).unwrap();
        for (now_ms, event, seconds) in case.calls {
            CALL_MS.set(now_ms);
            match (event.as_str(), seconds) {
                ("", _) => activity.seen().unwrap(),
                (event, None) => activity.used(event).unwrap(),
                (event, Some(seconds)) => activity.took(event, seconds).unwrap(),
            }
        }
        for step in case.steps {
            let values = activity.log().unwrap().values(&survey, step.step);
            let index =
                |(name, value)| (String::clone(name), survey.text.attribute[survey.place(name).unwrap()].index(value).unwrap());
            assert_eq!(values.iter().map(index).collect::<BTreeMap<_, _>>(), step.indices, "step {}", step.step);
        }
    }
}

#[derive(Deserialize)]
struct WordsOf {
    survey: serde_json::Value,
    question: String,
    parts: Vec<Vec<(String, String)>>,
}

#[test]
fn words() {
    for case in cases::<WordsOf>("words") {
        let survey = Survey::from_json(case.survey.to_string().as_bytes()).unwrap();
        let levels = vec![0; survey.attributes().len()];
        assert_eq!(crate::consent::words::question(&survey, &levels), case.question);
        for parts in case.parts {
            let envelope = hex::decode(&parts.iter().map(|(digits, _)| digits.as_str()).collect::<String>()).unwrap();
            let found = crate::consent::words::explained(&survey, &envelope);
            assert_eq!(found.into_iter().map(|(data, said)| (hex::encode(&data), said)).collect::<Vec<_>>(), parts);
        }
    }
}

/// The places of all numbers, texts and lists of a document.
fn places(json: &serde_json::Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match json {
        serde_json::Value::Array(all) => all.iter().enumerate().for_each(|(i, one)| places(one, &format!("{at}/{i}"), found)),
        serde_json::Value::Object(all) => all.iter().for_each(|(key, one)| places(one, &format!("{at}/{key}"), found)),
        _ => {}
    }
}

/// What a hostile server may write anywhere, also into the canonical text: a panic would end the program of a person.
#[test]
fn mutated_surveys() {
    let wrong = serde_json::json!([0, 1, i64::MAX, i64::MIN, u64::MAX, 0.5, 1e300, "", "00", null, [], {}]);
    let life = &cases::<Life>("relay_lives")[0];
    let mut document = life.survey.clone();
    document["canonical"] = serde_json::from_str(document["canonical"].as_str().unwrap()).unwrap();
    let mut found = Vec::new();
    document.as_object().unwrap().iter().for_each(|(key, one)| places(one, &format!("/{key}"), &mut found));
    let (mut refused, mut accepted) = (0, 0);
    for (place, value) in found.iter().flat_map(|place| wrong.as_array().unwrap().iter().map(move |value| (place, value))) {
        for everywhere in [false, true] {
            let key = if everywhere { &place[place.rfind('/').unwrap()..] } else { place };
            let mut mutated = document.clone();
            for other in found.iter().filter(|other| other.ends_with(key)) {
                if let Some(there) = mutated.pointer_mut(other) {
                    *there = value.clone();
                }
            }
            let canonical = mutated["canonical"].to_string();
            mutated["fingerprint"] = hex::encode(&Sha256::digest(canonical.as_bytes())[..8]).into();
            mutated["canonical"] = canonical.into();
            if let Ok(survey) = Survey::from_json(mutated.to_string().as_bytes()) {
                accepted += 1;
                use_of(survey, life);
            } else {
                refused += 1;
            }
        }
    }
    assert!(refused > 1000 && accepted > 100, "{refused} {accepted}");
}

fn use_of(survey: Survey, life: &Life) {
    let cohort = survey.text.cohort.as_ref().and_then(|cohort| cohort.values.first().cloned());
    let options = Options { cohort, consent: ConsentMode::Simulated, ..Options::default() };
    let Ok(device) = Device::open(survey, Store::memory(), &options) else { return };
    assert!(device.question().len() > 100);
    for call in life.calls.iter().take(2) {
        for step in [Some(call.step), None, Some(1 << 62)] {
            let _ = device.report(&call.attribute, value(&call.value), step);
            let _ = device.preview(&[(&call.attribute, value(&call.value))], step).map(|all| format!("{}", all[0]));
        }
        let _ = device.spent(&call.attribute);
    }
    for report in device.waiting().expect("a store that can be read") {
        device.leaves(&report.key).unwrap();
        device.settle(&report.key).unwrap();
    }
    device.withdraw_consent(&[]).unwrap();
}

#[test]
fn a_survey_that_has_not_begun() {
    let case = &cases::<WordsOf>("words")[0];
    let survey = Survey::from_json(case.survey.to_string().as_bytes()).unwrap();
    let name = survey.attributes()[0].name.clone();
    let options = Options { consent: ConsentMode::Simulated, cohort: Some("other".into()), ..Options::default() };
    let device = Device::with(survey, Store::memory(), &options, Box::new(crate::SystemRandom), || 0, false).unwrap();
    assert_eq!(device.report(&name, 0, None).unwrap(), None);
    assert_eq!(device.silence(&name, None).unwrap(), Some(Silence::SurveyNotBegun));
    let shown = device.preview(&[(&name, 0.into())], None).unwrap();
    assert_eq!((shown[0].silence, shown[0].envelope.is_some()), (Some(Silence::SurveyNotBegun), false));
    assert!(device.report(&name, 0, Some(1 << 63)).is_err());
}
