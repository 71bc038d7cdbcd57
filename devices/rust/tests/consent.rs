//! Consent: nothing is drawn, kept or sent before it is given, and nothing more after it is withdrawn.

use ldpstream_device::{
    Budget, Consent, ConsentMode, Device, Options, Random, Result, Sender, Silence, Store, Survey, Wallet, Way,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that a device draws.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl Random for Counting {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.0.fetch_add(buffer.len(), Ordering::SeqCst);
        ldpstream_device::SystemRandom.fill(buffer)
    }
}

/// A survey of the vectors with several attributes under spl, the first of them memoized.
fn survey(words: serde_json::Value) -> Survey {
    let folder = std::env::var("VECTORS").unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors").into());
    let text = std::fs::read(format!("{folder}/devices.json")).unwrap();
    let lives: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let life = lives.as_array().unwrap().iter().find(|life| life["survey"]["name"] == "rest").unwrap();
    let mut document = life["survey"].clone();
    document["words"] = words;
    Survey::from_json(document.to_string().as_bytes()).unwrap()
}

fn purpose(text: &str, retention_steps: u64) -> serde_json::Value {
    serde_json::json!({"purpose": text, "owner": "A team", "retention_steps": retention_steps})
}

struct Person {
    store: Store,
    random: Counting,
}

impl Person {
    fn new() -> Person {
        Person { store: Store::memory(), random: Counting::default() }
    }

    fn device(&self, mode: ConsentMode, words: serde_json::Value) -> Device {
        let options = Options { consent: mode, ..Options::default() };
        Device::open_with(survey(words), self.store.clone(), &options, Box::new(self.random.clone())).unwrap()
    }

    fn asked(&self) -> Device {
        self.device(ConsentMode::Asked, purpose("To know more", 30))
    }

    fn drawn(&self) -> usize {
        self.random.0.load(Ordering::SeqCst)
    }
}

fn name(device: &Device, a: usize) -> String {
    device.survey().attributes()[a].name.clone()
}

#[test]
fn before_consent_nothing_is_drawn_kept_or_sent() {
    let person = Person::new();
    let device = person.asked();
    let first = name(&device, 0);
    assert_eq!(device.consent().unwrap(), Consent::Unknown);
    assert_eq!(device.to_ask().unwrap().len(), device.survey().attributes().len());
    assert_eq!(device.report(&first, 0, Some(3)).unwrap(), None);
    assert_eq!(device.silence(&first, Some(3)).unwrap(), Some(Silence::ConsentUnknown));
    assert_eq!((device.waiting().unwrap(), device.journal().unwrap(), person.drawn()), (vec![], vec![], 0));
    assert!(device.question().contains("Purpose: To know more\nAsked by: A team\n"));
    let shown = device.preview(&[(&first, 0.into())], Some(3)).unwrap();
    assert!(shown[0].example && shown[0].silence == Some(Silence::ConsentUnknown), "{}", shown[0]);
    assert!(person.asked().to_ask().unwrap().len() > 1 && device.waiting().unwrap().is_empty());
}

#[test]
fn a_withdrawal_ends_sending_also_for_another_object_and_a_new_consent_starts_afresh() {
    let person = Person::new();
    let (device, other) = (person.asked(), person.asked());
    device.give_consent(&[]).unwrap();
    let (first, step) = (name(&device, 0), 3);
    let envelope = device.report(&first, 0, Some(step)).unwrap().unwrap();
    let waiting = other.waiting().unwrap();
    assert_eq!(waiting[0].envelope, envelope);
    device.withdraw_consent(&[]).unwrap();
    assert!(!other.leaves(&waiting[0].key).unwrap()); // a report on its way in another process
    other.settle(&waiting[0].key).unwrap();
    for one in [&device, &other, &person.asked()] {
        assert_eq!((one.waiting().unwrap(), one.journal().unwrap()), (vec![], vec![]));
        assert_eq!(one.consent().unwrap(), Consent::Withdrawn);
        assert!(one.to_ask().unwrap().is_empty());
    }
    other.give_consent(&[]).unwrap();
    assert!(device.report(&first, 0, Some(step)).unwrap().is_some());
    device.withdraw_consent(&[]).unwrap();
    device.forget(&device.survey().name.clone()).unwrap(); // also the withdrawal
    assert_eq!(other.consent().unwrap(), Consent::Unknown);
}

#[test]
fn a_withdrawal_leaves_no_report_in_a_wallet() {
    let path = std::env::temp_dir().join(format!("ldpstream-wallet-{}", std::process::id()));
    let budget = Budget { per_window: Some(1e9), window_s: Some(3600), for_ever: None };
    let wallet = Wallet::open(Store::file(&path), budget, false).unwrap();
    let options = Options { consent: ConsentMode::Simulated, ..Options::default() };
    let device = wallet.device(survey(purpose("To know more", 30)), &options).unwrap();
    device.report(&name(&device, 0), 0, Some(device.survey().step_at(4e12 as i64) as u64)).unwrap().unwrap();
    let digits = device.survey().pin[..16].to_owned();
    assert!(device.leaves(&device.waiting().unwrap()[0].key).unwrap());
    let kept = |path| std::fs::read_to_string(path).unwrap().matches(&format!("c408{digits}")).count();
    assert_eq!(kept(&path), 2); // the report, and its copy in the journal
    device.withdraw_consent(&[]).unwrap();
    assert_eq!(kept(&path), 0);
    assert!(wallet.spent().unwrap().spent > 0.0);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn the_consent_to_one_attribute_can_be_withdrawn() {
    let person = Person::new();
    let device = person.asked();
    device.give_consent(&[]).unwrap();
    let (first, second, step) = (name(&device, 0), name(&device, 1), 3);
    let made = [&first, &second].map(|name| device.report(name, 0, Some(step)).unwrap());
    assert!(made.iter().all(Option::is_some));
    assert!(device.spent(&first).unwrap().eps_t.is_some());
    device.withdraw_consent(&[&first]).unwrap();
    assert_eq!(device.silence(&first, Some(step)).unwrap(), Some(Silence::ConsentWithdrawn));
    assert_eq!(device.waiting().unwrap().iter().map(|one| &one.attribute).collect::<Vec<_>>(), [&second]);
    device.give_consent(&[&first]).unwrap();
    assert!(device.report(&first, 0, Some(step)).is_err()); // the step got its report
    assert!(device.report(&first, 0, Some(step + 1)).unwrap().is_some());
    assert_eq!(device.spent(&first).unwrap().eps_t, None); // there were two memos
}

#[test]
fn other_terms_ask_again_and_shorter_storage_does_not() {
    let person = Person::new();
    person.asked().give_consent(&[]).unwrap();
    let terms = [("To know more", 30, 0), ("To know more", 7, 0), ("To know more", 31, 7), ("To sell more", 30, 7)];
    for (text, steps, asked) in terms {
        let device = person.device(ConsentMode::Asked, purpose(text, steps));
        assert_eq!(device.to_ask().unwrap().len(), asked, "{text} {steps}");
        assert_eq!(device.report(&name(&device, 0), 0, Some(3)).unwrap().is_some(), asked == 0);
    }
}

#[test]
fn the_journal_has_each_report_that_left_and_the_local_way_sends_nothing() {
    let person = Person::new();
    let device = person.device(ConsentMode::Simulated, purpose("To know more", 30));
    let envelope = device.report(&name(&device, 0), 0, Some(3)).unwrap().unwrap();
    let outcome = Sender::new(&device, Way::Local, None).unwrap().attempt().unwrap();
    assert_eq!((outcome.accepted, outcome.waiting), (1, 0));
    let journal = device.journal().unwrap();
    assert_eq!(journal.iter().map(|left| (&left.envelope, left.local)).collect::<Vec<_>>(), [(&envelope, true)]);
    let shown = device.preview(&[(&name(&device, 0), 1.into())], Some(3)).unwrap();
    assert!(!shown[0].example && shown[0].envelope == Some(envelope));
}
