//! A command-line program that counts its own use.
//!
//!     count SURVEY.json FOLDER ask                 shows the question; then `yes` or `no` keeps the answer
//!     count SURVEY.json FOLDER run GATEWAY         records the use with consent, and sends what waits; `run local` sends nothing
//!     count SURVEY.json FOLDER preview             shows what would leave now, after a use
//!     count SURVEY.json FOLDER journal             shows what left
//!
//! The survey has attributes with a recipe only, so that the device computes all values from the log of use.

use ldpstream_device::{Activity, Consent, Device, Error, Left, Options, Result, Sender, Store, Survey, Way};
use std::path::Path;
use std::time::Duration;

fn read(survey: &Path) -> Result<Survey> {
    let text = std::fs::read(survey).map_err(|error| Error::Value(format!("{}: {error}", survey.display())))?;
    Survey::from_json(&text)
}

fn shown(left: &Left) -> String {
    let place = if left.local { "stayed here" } else { "left" };
    format!("{} of step {}: {} bytes {place}", left.attribute, left.step, left.envelope.len())
}

fn count(survey: &str, folder: &str, command: &str, gateway: Option<&str>) -> Result<()> {
    let folder = Path::new(folder);
    let device = Device::open(read(Path::new(survey))?, Store::file(folder.join("answers.device")), &Options::default())?;
    let activity = Activity::open(Store::file(folder.join("usage.activity")))?;
    match command {
        "ask" => println!("{}", device.question()),
        "yes" => device.give_consent(&[])?,
        "no" => {
            device.withdraw_consent(&[])?;
            activity.forget()?;
        }
        "run" => {
            if device.consent()? == Consent::Given {
                activity.seen()?;
            }
            activity.answer(&device, &[])?;
            let way = match gateway {
                Some("local") => Way::Local,
                Some(url) => Way::Direct(url.to_owned()),
                None => return Err(Error::Value("run needs the gateway's URL, or local".into())),
            };
            Sender::new(&device, way, None)?.run(|time: Duration| {
                std::thread::sleep(time);
                true
            })?;
        }
        "preview" => {
            let shown = activity.preview(&device, &[])?;
            shown.iter().for_each(|one| println!("{one}"));
            if shown.is_empty() {
                println!("Nothing would leave: the log has no use of this step.");
            }
        }
        "journal" => device.journal()?.iter().for_each(|left| println!("{}", shown(left))),
        other => return Err(Error::Value(format!("the command must be ask, yes, no, run, preview or journal, got {other:?}"))),
    }
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.as_slice() {
        [survey, folder, command, rest @ ..] => count(survey, folder, command, rest.first().map(String::as_str)),
        _ => Err(Error::Value("give SURVEY.json FOLDER COMMAND".into())),
    };
    if let Err(error) = done {
        eprintln!("count: {error}");
        std::process::exit(2);
    }
}
