//! The store: what processes, crashes, clocks and broken files do to a device.

use ldpstream_device::{Activity, Budget, ConsentMode, Device, Error, Options, Random, Result, Store, Survey, Wallet};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static FOLDERS: AtomicUsize = AtomicUsize::new(0);

/// An empty folder of a test, which ends with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let number = FOLDERS.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("ldpstream-store-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A survey whose first question is memoized, from the vectors.
fn survey() -> Survey {
    let folder = std::env::var("VECTORS").unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors").into());
    let lives: serde_json::Value = serde_json::from_slice(&fs::read(format!("{folder}/devices.json")).unwrap()).unwrap();
    let life = lives.as_array().unwrap().iter().find(|life| life["survey"]["name"] == "rest").expect("the survey `rest`");
    Survey::from_json(life["survey"].to_string().as_bytes()).unwrap()
}

fn simulated() -> Options {
    Options { consent: ConsentMode::Simulated, ..Options::default() }
}

fn open(store: Store) -> Result<Device> {
    Device::open(survey(), store, &simulated())
}

/// Reports the first value at a step of the device's phase, from the given step on.
fn reported(device: &Device, from: u64) -> (u64, Vec<u8>) {
    let name = device.survey().attributes()[0].name.clone();
    (from..from + 1000).find_map(|step| Some((step, device.report(&name, 0, Some(step)).unwrap()?))).expect("a report")
}

#[test]
fn a_restart_keeps_the_report_its_key_and_the_memo() {
    let folder = Folder::new();
    let (step, envelope) = reported(&open(Store::file(folder.file("a"))).unwrap(), 0);
    let waiting = open(Store::file(folder.file("a"))).unwrap().waiting().unwrap();
    fs::write(folder.file("a.new"), "half a file of a crash").unwrap(); // others may read it
    let again = open(Store::file(folder.file("a"))).unwrap();
    assert_eq!(again.report(&waiting[0].attribute, 1, Some(step)).unwrap(), Some(envelope));
    assert_eq!(again.waiting().unwrap(), waiting);
    again.settle(&waiting[0].key).unwrap();
    assert_eq!(again.waiting().unwrap(), []);
    #[cfg(unix)]
    for name in ["a", "a.lock"] {
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(folder.file(name)).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn threads_that_share_a_file_are_one_device() {
    let folder = Folder::new();
    let path = folder.file("a");
    let made: BTreeSet<(u64, Vec<u8>)> = std::thread::scope(|scope| {
        let run = || reported(&open(Store::file(&path)).unwrap(), 0);
        let all: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(made.len(), 1);
}

#[test]
fn a_held_file_is_an_error_and_loses_nothing() {
    let folder = Folder::new();
    let path = folder.file("a");
    let (step, envelope) = reported(&open(Store::file(&path)).unwrap(), 0);
    let lock = fs::File::create(folder.file("a.lock")).unwrap();
    lock.lock().unwrap();
    let held = open(Store::file(&path).waiting(Duration::ZERO));
    assert!(matches!(held, Err(Error::StoreHeld(_))), "{held:?}");
    drop(lock);
    let patient = Store::file(&path).waiting(Duration::MAX);
    assert_eq!(reported(&open(patient).unwrap(), step), (step, envelope));
}

#[test]
fn damaged_later_and_other_files_are_errors_and_stay() {
    let folder = Folder::new();
    let path = folder.file("a");
    open(Store::file(&path)).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let wrong = [
        ("\"format\":1", "\"format\":2"),
        ("\"level\":0", "\"level\":9"),
        ("\"memos\":{", "\"memos\":{\"7\":{\"row\":\"\",\"reports\":1}"),
    ];
    let changed = wrong.map(|(from, to)| text.replacen(from, to, 1));
    for broken in [text[..text.len() / 2].to_owned(), "[]".into()].into_iter().chain(changed) {
        fs::write(&path, &broken).unwrap();
        let refused = open(Store::file(&path));
        assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), broken);
    }
    fs::write(&path, b"SQLite format 3\0").unwrap();
    let python = open(Store::file(&path)).unwrap_err().to_string();
    assert!(python.ends_with("the file of a device in Python, which keeps another format"), "{python}");
    Activity::open(Store::file(folder.file("log"))).unwrap().seen().unwrap();
    let other = open(Store::file(folder.file("log")));
    assert!(matches!(other, Err(Error::Store(_))), "{other:?}");
}

/// The files in `landed/format_N` were written by the crate while N was the latest format. They never change.
#[test]
fn files_of_each_format_keep_their_reports_memos_answers_and_limits() {
    let landed = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/landed/format_1"));
    let folder = Folder::new();
    for name in ["person.device", "person.wallet", "usage.activity"] {
        fs::copy(landed.join(name), folder.file(name)).unwrap();
    }
    let text = |name| fs::read_to_string(folder.file(name)).unwrap();
    let survey = || Survey::from_json(&fs::read(landed.join("survey.json")).unwrap()).unwrap();
    let device = Device::open(survey(), Store::file(folder.file("person.device")), &Options::default()).unwrap();
    let waiting = device.waiting().unwrap();
    assert_eq!((waiting.len(), waiting[0].step, waiting[0].key.as_str()), (1, 74_414_293, "bOk1cG-uBo6j-yUNCip6dw"));
    assert_eq!((device.to_ask().unwrap().len(), device.journal().unwrap().len()), (0, 2));
    device.report("latency", 0, Some(waiting[0].step + 1)).unwrap().unwrap();
    assert!(text("person.device").contains(r#""memos":{"2":{"row":"0400","reports":2}}"#));
    let budget = Budget { per_window: Some(1e9), window_s: Some(3600), for_ever: None };
    let wallet = Wallet::open(Store::file(folder.file("person.wallet")), budget, true).unwrap();
    let device = wallet.device(survey(), &Options { expect_enrolled: true, ..Options::default() }).unwrap();
    device.report("latency", 0, Some(waiting[0].step + 1)).unwrap().unwrap();
    assert!(text("person.wallet").contains(r#""memos":{"2":{"row":"0400","reports":2}}"#));
    assert!((7.5..9.0).contains(&wallet.spent().unwrap().spent)); // two reports of latency, one of colour
    Activity::open(Store::file(folder.file("usage.activity"))).unwrap().seen().unwrap();
    assert!(text("usage.activity").contains(r#""46296":{"":[1,0]}"#));
}

#[test]
fn a_cleared_store_is_an_error_for_a_device_that_had_enrolled() {
    let folder = Folder::new();
    let path = folder.file("a");
    let device = open(Store::file(&path)).unwrap();
    fs::remove_file(&path).unwrap();
    let name = device.survey().attributes()[0].name.clone();
    assert!(matches!(device.report(&name, 0, Some(1)), Err(Error::StoreCleared(_))));
    let options = Options { expect_enrolled: true, ..simulated() };
    assert!(matches!(Device::open(survey(), Store::file(&path), &options), Err(Error::StoreCleared(_))));
    assert!(!path.exists());
}

#[test]
fn forgetting_needs_the_name_and_erases_the_file() {
    let folder = Folder::new();
    let path = folder.file("a");
    let device = open(Store::file(&path)).unwrap();
    reported(&device, 0);
    assert!(matches!(device.forget("another"), Err(Error::Value(_))));
    assert_eq!(device.waiting().unwrap().len(), 1);
    device.forget(&device.survey().name.clone()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
    assert!(matches!(device.waiting(), Err(Error::StoreCleared(_))));
}

/// A generator of different bytes that fails after some of them, as a crash in the middle of a call.
struct Failing(usize);

impl Random for Failing {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.0 = self.0.checked_sub(buffer.len()).ok_or_else(|| Error::Random("the test ends here".into()))?;
        let left = self.0;
        for (place, byte) in buffer.iter_mut().enumerate() {
            *byte = ((left * 31 + place) * 167 % 251) as u8;
        }
        Ok(())
    }
}

#[test]
fn a_call_that_fails_in_the_middle_changes_nothing() {
    let mut opened = 0;
    for bytes in 0..60 {
        let folder = Folder::new();
        let store = Store::file(folder.file("a"));
        let before = |path| fs::read(path).unwrap_or_default();
        let device = Device::open_with(survey(), store.clone(), &simulated(), Box::new(Failing(bytes)));
        let Ok(device) = device else {
            assert_eq!(before(folder.file("a")), b"");
            continue;
        };
        opened += 1;
        let (kept, name) = (before(folder.file("a")), device.survey().attributes()[0].name.clone());
        let failed = (0..1000).any(|step| device.report(&name, 0, Some(step)).is_err());
        let waiting = device.waiting().unwrap().len();
        assert!(failed);
        assert_eq!(before(folder.file("a")) == kept, waiting == 0);
    }
    assert!(opened > 0, "no device began");
}
