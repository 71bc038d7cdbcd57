//! A life of a device that ends at every change of its disk, by a kill or a power cut: after the next start there is no second
//! memo, no second report of a step, no second key, and no lost answer to the question of consent.
//!
//! The programs of these lives run under `cuts/power_cut.c`, on Linux. `LIFE_PROGRAM` names the program of another language, which
//! reads lines as `devices/c/example/driver.c` does.
#![cfg(target_os = "linux")]

use ldpstream_device::{
    Activity, Budget, Device, Options, Request, Response, Result, Sender, Store, Survey, Transport, Wallet, Way,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

const NOW: u64 = 4_000_000_000; // all lives are at one step

/// Tells the parent what happened: the world outside of the program.
fn say(text: &str) {
    std::io::stdout().write_all(format!("\n{text}\n").as_bytes()).unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// ---- the program whose life ends

struct Outside;

impl Transport for Outside {
    fn post(&self, request: &Request<'_>) -> std::result::Result<Response, String> {
        let key = request.headers.iter().find(|(name, _)| *name == "Idempotency-Key").unwrap().1;
        say(&format!("post {key} {}", hex(request.body)));
        Ok(Response { status: 202, body: b"{\"accepted\":1}".to_vec(), ..Response::default() })
    }
}

fn live(folder: &Path, kind: &str, withdraws: bool) -> Result<()> {
    let (store, options) = (Store::file(folder.join("a")), Options::default());
    let survey = Survey::from_json(&fs::read(folder.join("survey.json")).unwrap())?;
    let device = if kind == "wallet" {
        let budget = Budget { per_window: Some(1e9), window_s: Some(3600), for_ever: None };
        Wallet::open(store, budget, false)?.device(survey, &options)?
    } else {
        Device::open(survey, store, &options)?
    };
    let asked = device.to_ask()?.len();
    say(&format!("asks {asked}"));
    if asked > 0 {
        device.give_consent(&[])?;
        say("consented");
    }
    if withdraws {
        let withdrawn = device.withdraw_consent(&[]);
        say(&format!("waits {}", device.waiting().map_or(0, |waiting| waiting.len())));
        withdrawn?;
        say("withdrawn");
    }
    for attribute in device.survey().attributes() {
        if let Some(envelope) = device.report(&attribute.name, 0, None)? {
            say(&format!("made {} {}", attribute.name, hex(&envelope)));
        }
    }
    Sender::with(&device, Way::Direct("http://gateway.example".into()), None, Box::new(Outside))?.run(|_| true)?;
    device.journal()?.iter().for_each(|left| say(&format!("left {}", hex(&left.envelope))));
    if kind == "log" {
        Activity::open(Store::file(folder.join("log")))?.seen()?;
        say("seen");
    }
    Ok(())
}

/// The test binary calls itself with this one test, and a life in its environment.
#[test]
fn life() {
    let Some(folder) = std::env::var_os("LIFE_FOLDER") else { return };
    let kind = std::env::var("LIFE").unwrap();
    if let Err(error) = live(Path::new(&folder), &kind, kind == "withdraw") {
        say(&format!("error {}", error.name()));
    }
}

// ---- the parent

static FOLDERS: AtomicUsize = AtomicUsize::new(0);

struct Person(PathBuf);

impl Drop for Person {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn new_folder() -> Person {
    let number = FOLDERS.fetch_add(1, Ordering::SeqCst);
    let path = std::env::temp_dir().join(format!("ldpstream-cuts-{}-{number}", std::process::id()));
    fs::create_dir(&path).unwrap();
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/landed/format_1/survey.json"), path.join("survey.json")).unwrap();
    Person(path)
}

/// The compiled `power_cut.c`.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("ldpstream-power-cut-{}.so", std::process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuts/power_cut.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-Wall", "-Werror", "-shared", "-fPIC", "-O1", "-o"]).arg(&path).arg(source).arg("-ldl");
        assert!(compiler.status().unwrap().success());
        path
    })
}

/// What a program told before its end.
#[derive(Default)]
struct Told {
    lines: Vec<String>,
    killed: bool,
}

impl Told {
    fn has(&self, line: &str) -> bool {
        self.lines.iter().any(|one| one == line)
    }

    fn of(&self, verb: &str) -> impl Iterator<Item = (&str, &str)> {
        let rest = self.lines.iter().filter_map(move |line| line.strip_prefix(verb)?.strip_prefix(' '));
        rest.map(|rest| rest.split_once(' ').unwrap_or((rest, "")))
    }
}

/// A life of a person's program: its kind, and how and at which change the disk ends.
fn program(person: &Person, kind: &str, cut: &str, at: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "life", "--nocapture"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(driver) = std::env::var_os("LIFE_PROGRAM") {
        let withdraws = if kind == "withdraw" { "withdraw\n" } else { "" };
        let lines = format!(
            "device\tsurvey.json\ta\tasked\nconsent\n{withdraws}answer\tlatency\t0\nanswer\tcolour\tred\nsend\njournal\n"
        );
        let input = person.0.join(format!("{kind}.lines"));
        fs::write(&input, lines).unwrap();
        let output = (Stdio::from(fs::File::open(input).unwrap()), Stdio::piped(), Stdio::piped());
        command = Command::new(driver);
        command.current_dir(&person.0).stdin(output.0).stdout(output.1).stderr(output.2);
    }
    command.env("LIFE", kind).env("LIFE_FOLDER", &person.0).env("LD_PRELOAD", library());
    command.env("CLOCK_S", NOW.to_string()).env("CUT", cut).env("CUT_AT", at.to_string()).env("CI", "").env("DO_NOT_TRACK", "");
    command
}

fn told(output: &Output) -> Told {
    let killed = std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(9);
    assert!(killed || output.status.success(), "{output:?}");
    Told { lines: String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect(), killed }
}

fn run(person: &Person, kind: &str, cut: &str, at: usize) -> Told {
    told(&program(person, kind, cut, at).output().unwrap())
}

fn text(person: &Person) -> String {
    fs::read_to_string(person.0.join("a")).unwrap_or_default()
}

/// The memos in the store, by attribute and memo key.
fn memos(person: &Person) -> BTreeMap<(usize, String), String> {
    let document: serde_json::Value = serde_json::from_str(&text(person)).unwrap_or_default();
    let attributes = document["content"]["surveys"][0]["attributes"].as_array().cloned().unwrap_or_default();
    let rows = |(a, one): (usize, &serde_json::Value)| {
        let memos = one["memos"].as_object().cloned().unwrap_or_default();
        memos.into_iter().map(move |(key, memo)| ((a, key), memo["row"].to_string())).collect::<Vec<_>>()
    };
    attributes.iter().enumerate().flat_map(rows).collect()
}

/// Tells what is wrong after lives of one person, the last of which nothing cut.
fn fault(lives: &[&Told]) -> Option<String> {
    let mut made: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for life in lives {
        life.of("made").for_each(|(attribute, envelope)| _ = made.entry(attribute).or_default().insert(envelope));
        life.of("post").for_each(|(key, envelope)| _ = keys.entry(envelope).or_default().insert(key));
    }
    let (last, before) = lives.split_last().expect("a life");
    let journal: BTreeSet<&str> = last.of("left").map(|(envelope, _)| envelope).collect();
    let single = made.values().chain(keys.values()).all(|one| one.len() == 1);
    let known: BTreeSet<&str> = made.values().flatten().copied().collect();
    let finds = [
        (!single, "two reports of a step, or two keys of a report"),
        (last.lines.iter().any(|line| line.starts_with("error")), "the store cannot be used"),
        (keys.keys().any(|posted| !known.contains(posted)), "a report of another life"),
        (keys.keys().any(|posted| !journal.contains(posted)), "a report that left is not in the journal"),
        (before.iter().any(|life| life.has("consented")) && last.has("consented"), "a lost consent"),
    ];
    finds
        .into_iter()
        .find(|(found, _)| *found)
        .map(|(_, name)| format!("{name}: {:?}", lives.iter().map(|one| &one.lines).collect::<Vec<_>>()))
}

fn withdrawn(life: &Told) -> bool {
    life.has("asks 0") && life.of("made").count() + life.of("post").count() == 0
}

/// Cuts a life at each change, lets the next one finish, and tells the first fault and the number of changes.
fn cut_everywhere(kind: &str, cut: &str) -> (Option<String>, usize) {
    for at in 1.. {
        let person = new_folder();
        let first = run(&person, kind, cut, at);
        let (kept, durable) = (memos(&person), text(&person));
        if first.of("made").any(|(_, envelope)| !durable.contains(envelope)) {
            return (Some(format!("change {at}: a report without a store")), at);
        }
        let last = run(&person, kind, "", 0);
        let after = memos(&person);
        if kept.iter().any(|(key, row)| after.get(key) != Some(row)) {
            return (Some(format!("change {at}: another memo")), at);
        }
        if let Some(fault) = fault(&[&first, &last]) {
            return (Some(format!("change {at}: {fault}")), at);
        }
        if kind == "log" && first.has("seen") {
            let log = fs::read_to_string(person.0.join("log")).unwrap();
            assert!(log.contains("[2,0]"), "change {at}: lost use, {log}");
        }
        if !first.killed {
            assert_eq!((first.of("post").count(), last.of("post").count()), (2, 0));
            return (None, at - 1);
        }
    }
    unreachable!("a life has an end")
}

fn own_program() -> bool {
    std::env::var_os("LIFE_PROGRAM").is_none()
}

#[test]
fn a_kill_at_any_change_makes_no_second_memo_report_or_key() {
    for kind in ["log", "wallet"].iter().take(if own_program() { 2 } else { 1 }) {
        let (fault, changes) = cut_everywhere(kind, "kill");
        assert_eq!(fault, None);
        assert!(changes > 50, "{changes}");
        println!("{changes} kills of {kind}");
    }
}

#[test]
fn a_power_cut_at_any_change_makes_no_second_memo_report_or_key() {
    assert_eq!(cut_everywhere("log", "power").0, None);
    let (fault, _) = cut_everywhere("log", "liar"); // the control: a disk that syncs nothing
    assert!(fault.is_some());
}

#[test]
fn a_withdrawal_that_the_device_confirmed_survives_every_cut() {
    for cut in ["kill", "power"] {
        for at in 1.. {
            let person = new_folder();
            let used = run(&person, "use", "", 0);
            let cut_off = run(&person, "withdraw", cut, at);
            assert!(cut_off.of("waits").all(|(number, _)| number == "0"));
            let last = run(&person, "use", "", 0);
            let erased = !text(&person).contains(used.of("made").next().unwrap().1);
            assert!(!cut_off.has("withdrawn") || (withdrawn(&last) && erased));
            assert!(withdrawn(&last) || fault(&[&used, &cut_off, &last]).is_none(), "{cut} {at}");
            if !cut_off.killed {
                break;
            }
        }
    }
}

#[test]
fn a_full_or_read_only_disk_is_one_error_and_loses_nothing() {
    for (cut, name) in [("full", "error StoreFull"), ("readonly", "error StoreError")] {
        for at in 1.. {
            let person = new_folder();
            let first = run(&person, "use", cut, at);
            let last = run(&person, "use", "", 0);
            assert_eq!(fault(&[&first, &last]), None, "{cut} {at}");
            if !first.lines.iter().any(|line| line.starts_with("error")) {
                break;
            }
            assert!(first.has(name) && first.of("error").count() == 1, "{:?}", first.lines);
        }
        for at in 1.. {
            let person = new_folder();
            let used = run(&person, "use", "", 0);
            let refused = run(&person, "withdraw", cut, at);
            if refused.has("withdrawn") {
                break;
            }
            let silent = refused.of("waits").all(|(number, _)| number == "0");
            assert!(refused.has(name) && silent, "{cut} {at}: {:?}", refused.lines);
            let last = run(&person, "use", "", 0);
            assert!(withdrawn(&last) || fault(&[&used, &last]).is_none(), "{cut} {at}"); // it is kept, or it is not
        }
    }
}

#[test]
fn processes_at_once_are_one_device_also_if_one_is_killed() {
    for at in (1..60).step_by(4) {
        let person = new_folder();
        let children: Vec<_> = [at, 0, at + 2].map(|at| program(&person, "use", "kill", at).spawn().unwrap()).into();
        let lives: Vec<Told> = children.into_iter().map(|child| told(&child.wait_with_output().unwrap())).collect();
        let last = run(&person, "use", "", 0);
        let all: Vec<&Told> = lives.iter().chain([&last]).collect();
        assert_eq!(fault(&all), None);
        assert_eq!(memos(&person).keys().map(|(a, _)| a).collect::<BTreeSet<_>>().len(), memos(&person).len());
    }
}

#[test]
fn a_wrong_clock_makes_no_second_report_and_no_damage() {
    let person = new_folder();
    let at = |seconds: &str| told(&program(&person, "use", "", 0).env("CLOCK_S", seconds).output().unwrap());
    let now = at("1790000000");
    assert_eq!(now.of("post").count(), 2);
    let early = at("0"); // 1970: before the survey
    assert_eq!((early.of("made").count(), early.of("post").count(), early.of("error").count()), (0, 0, 0));
    let later = at("4102444800"); // 2100
    assert_eq!(later.of("post").count(), 2);
    let again = at("1790000000");
    assert_eq!((again.of("post").count(), again.of("made").collect::<Vec<_>>()), (0, now.of("made").collect()));
    let next = at("1790100000");
    assert_eq!((next.of("post").count(), next.lines.iter().any(|line| line.starts_with("error"))), (2, false));
}

#[test]
fn a_file_above_the_limit_of_the_process_is_a_full_store() {
    if !own_program() {
        return;
    }
    let person = new_folder();
    let program = program(&person, "use", "", 0);
    let shell = "trap '' XFSZ; ulimit -f 1; exec \"$0\" --exact life --nocapture"; // blocks of 512 or 1024 bytes
    let mut limited = Command::new("sh");
    limited
        .args(["-c", shell])
        .arg(program.get_program())
        .envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let first = told(&limited.output().unwrap());
    assert!(first.has("error StoreFull"), "{:?}", first.lines);
    assert_eq!(fault(&[&first, &run(&person, "use", "", 0)]), None);
}
