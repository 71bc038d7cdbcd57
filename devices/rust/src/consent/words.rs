//! Words for the person: the question that a program shows, and the parts of a report. They are the words of every device.
//!
//! A chance is that of a guesser who at first considers all answers equally likely. It follows from the losses, and holds even if
//! the answers to the other questions are hints.

use crate::survey::claims::Made;
use crate::survey::{Attribute, Survey};

const DRAWN: &str = "Your device sends a random answer. Your true answer only changes the chances of the draw.";
const NOT_PROTECTED: &str = "Not protected: that you take part, when you send or stay silent, and the question, level and group of a report. \
                             If an answer changes, or your storage is deleted, reports can reveal more.";
const STOP: &str = "You can stop at any time. Then this device sends nothing more, and erases what it keeps. \
                    Reports that it sent stay in the histograms.";
const SAME: &str = "the same for all participants";
const BLIND: Made = (0.0, 1.0); // no report
const UNITS: [(u64, &str); 3] = [(86_400, "day"), (3600, "hour"), (60, "minute")];

/// The text by which a program asks for consent, one sentence or two a line.
pub(crate) fn question(survey: &Survey, levels: &[usize]) -> String {
    let (words, every) = (&survey.words, survey.losses(levels));
    let one: Vec<Made> = levels.iter().enumerate().map(|(a, &level)| survey.loss_of_a_report(a, level)).collect();
    let named = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let stated = |text: Option<String>| text.unwrap_or_else(|| "not stated.".into());
    let asked_by: Vec<String> = [&words.owner, &words.contact].into_iter().filter_map(named).collect();
    let names: Vec<&str> = survey.attributes().iter().map(|attribute| attribute.name.as_str()).collect();
    let mut lines = vec![named(&words.title).unwrap_or_else(|| survey.name.clone())];
    lines.extend(named(&words.description));
    lines.push(format!("Purpose: {}", stated(named(&words.purpose))));
    lines.push(format!("Asked by: {}", stated((!asked_by.is_empty()).then(|| asked_by.join(", ")))));
    lines.push(format!("Questions: {}.", names.join(", ")));
    lines.push(DRAWN.into());
    for attribute in survey.attributes() {
        let (blind, step, all) =
            (people(survey, attribute, &[BLIND]), people(survey, attribute, &one), people(survey, attribute, &every));
        let guess = guess(attribute);
        lines.push(format!(
            "A {guess} is right for at most {blind} without a report, {step} with the reports of one step, \
             and {all} with all reports while your answers stay the same."
        ));
    }
    lines.push(NOT_PROTECTED.into());
    if let Some(seconds) = words.kept_s(survey.text.step_seconds as u64) {
        lines.push(format!("Kept: the service shows the histograms for {}. Copies can stay longer.", duration(seconds)));
    }
    lines.push(STOP.into());
    lines.iter().map(|line| shown(line)).collect::<Vec<_>>().join("\n")
}

/// A text without control characters, and without those that reverse the text after them: a gateway could write over other lines.
pub(crate) fn shown(text: &str) -> String {
    let reverses = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.replace(|c: char| c.is_control() || reverses(c), " ")
}

/// The parts of an envelope of the survey, each with what it can reveal. Together, the parts are the envelope.
pub(crate) fn explained(survey: &Survey, envelope: &[u8]) -> Vec<(Vec<u8>, String)> {
    let parts = split(envelope);
    let numbers: Vec<u64> = parts.iter().map(|part| unsigned(part)).collect();
    let (asked, level, step) = (&survey.text.attribute[numbers[2] as usize], numbers[3] as usize, numbers[4]);
    let one = survey.loss_of_a_report(numbers[2] as usize, level);
    let chosen = &asked.level[level].name;
    let mut said = vec![
        format!("the version of the form: {SAME}"),
        format!("that you take part in {}: {SAME}", survey.name),
        format!("the question: {}", asked.name),
        if asked.level.len() > 1 { format!("the level that you chose: {chosen}") } else { format!("the level: {SAME}") },
        format!("the time: step {step}, of {}", duration(survey.text.step_seconds as u64)),
        format!("the number of reports: {SAME}"),
    ];
    if let Some(cohort) = &survey.text.cohort {
        said.push(format!("your device's group: {}", cohort.values[numbers[6] as usize]));
    }
    let (with, without) = (people(survey, asked, &[one]), people(survey, asked, &[BLIND]));
    said.push(format!("a random answer: a {} is right for at most {with}, without it {without}", guess(asked)));
    let form = (envelope[..1].to_vec(), format!("the form: {SAME}"));
    let said = said.iter().map(|line| shown(line));
    std::iter::once(form).chain(parts.into_iter().map(<[u8]>::to_vec).zip(said)).collect()
}

/// The elements of an envelope, each in its msgpack form.
fn split(envelope: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut rest) = (Vec::new(), &envelope[1..]);
    while let Some(&kind) = rest.first() {
        let size = match kind {
            0xcc => 2,
            0xcd => 3,
            0xce => 5,
            0xcf => 9,
            0xc4 => 2 + usize::from(rest[1]),
            0xc5 => 3 + usize::from(u16::from_be_bytes([rest[1], rest[2]])),
            0xc6 => rest.len(),
            _ => 1,
        };
        let (part, after) = rest.split_at(size);
        parts.push(part);
        rest = after;
    }
    parts
}

fn unsigned(part: &[u8]) -> u64 {
    let bytes = if part.len() == 1 { part } else { &part[1..] };
    bytes.iter().fold(0, |sum, &byte| sum.wrapping_shl(8) | u64::from(byte))
}

fn guess(attribute: &Attribute) -> String {
    let name = &attribute.name;
    if attribute.choices.is_some() {
        format!("guess whether {name} has a value (yes and no are equally likely at first)")
    } else {
        format!("guess of {name} (all answers are equally likely at first)")
    }
}

/// A bound of the chance of a right guess, rounded up to a number of people.
fn people(survey: &Survey, attribute: &Attribute, made: &[Made]) -> String {
    let k = if attribute.choices.is_some() { 2 } else { attribute.k().unwrap_or(u64::MAX) };
    let people = (100.0 * survey.guess_bound(k, made) - 1e-9).ceil();
    if people < 100.0 { format!("{people} of 100") } else { "no useful limit".into() }
}

/// A time, rounded up to its largest unit that occurs twice.
pub(crate) fn duration(seconds: u64) -> String {
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| seconds >= 2 * unit).unwrap_or((1, "second"));
    let n = seconds.div_ceil(unit);
    format!("{n} {name}{}", if n == 1 { "" } else { "s" })
}
