//! Writes the calls of many devices for `python -m devices.conformance`, or posts one report of each device to a gateway.
//!
//!     cargo run --example life -- SURVEY.json --calls CALLS.jsonl --seed 7
//!     cargo run --example life -- SURVEY.json --histories HISTORIES.jsonl --answers ANSWERS.jsonl
//!     cargo run --example life -- SURVEY.json --gateway http://127.0.0.1:8080 --devices 200

use ldpstream_device::{
    Activity, Attribute, ConsentMode, Device, Error, Options, Random, Result, Sender, Store, Survey, SystemRandom, Value, Way,
};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A generator for tests: SHA-256 of the seed and a counter.
struct Seeded {
    seed: String,
    blocks: u64,
    rest: Vec<u8>,
}

impl Random for Seeded {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        while self.rest.len() < buffer.len() {
            self.rest.extend(Sha256::digest(format!("{} {}", self.seed, self.blocks)));
            self.blocks += 1;
        }
        let rest = self.rest.split_off(buffer.len());
        buffer.copy_from_slice(&self.rest);
        self.rest = rest;
        Ok(())
    }
}

struct Plan {
    survey: Survey,
    document: Json, // the canonical text
    seed: Option<String>,
    forgets: bool,
}

impl Plan {
    fn random(&self, device: usize, opening: usize) -> Box<dyn Random + Send> {
        match &self.seed {
            None => Box::new(SystemRandom),
            Some(seed) => Box::new(Seeded { seed: format!("{seed} {device} {opening}"), blocks: 0, rest: Vec::new() }),
        }
    }

    fn attribute(&self, a: usize) -> &Json {
        &self.document["attribute"][a]
    }

    fn named(&self, name: &Json) -> usize {
        self.survey.attributes().iter().position(|one| Some(one.name.as_str()) == name.as_str()).expect("an attribute")
    }

    /// The number of values, without dummies.
    fn k(&self, a: usize) -> usize {
        let attribute = self.attribute(a);
        if let Some(pair) = attribute["pair"].as_array() {
            return pair.iter().map(|name| self.k(self.named(name))).product();
        }
        let listed = attribute["values"].as_array().map(Vec::len);
        let bins = attribute["bins"].as_array().map(|bins| bins.len() - 1);
        listed.or(bins).unwrap_or_else(|| attribute["size"].as_u64().expect("a size") as usize)
    }

    /// The i-th value: as its index, and as the device gets it.
    fn value(&self, a: usize, i: usize) -> (Json, Value) {
        let (attribute, k) = (self.attribute(a), self.k(a));
        if let Some(choices) = attribute["choices"].as_u64() {
            let set: Vec<usize> = (0..k).filter(|v| i >> v & 1 == 1).take(choices as usize).collect();
            let values = set.iter().map(|&v| Value::Number(v as f64)).collect();
            return (json!(set), Value::List(values));
        }
        let index = i % k;
        if let Some(pair) = attribute["pair"].as_array() {
            let (first, second) = (self.named(&pair[0]), self.named(&pair[1]));
            let both = vec![self.value(first, index / self.k(second)).1, self.value(second, index % self.k(second)).1];
            return (json!(index), Value::List(both));
        }
        let number = attribute["bins"].as_array().map_or(index as f64, |bins| bins[index].as_f64().expect("a number"));
        (json!(index), Value::Number(number))
    }

    /// The options of a device: all levels and cohorts occur about equally often.
    fn options(&self, mut number: usize) -> Options {
        let mut options = Options { consent: ConsentMode::Simulated, ..Options::default() };
        if let Some(cohorts) = self.document["cohort"]["values"].as_array() {
            options.cohort = cohorts[number % cohorts.len()].as_str().map(str::to_owned);
        }
        for (a, attribute) in self.survey.attributes().iter().enumerate() {
            let levels = self.attribute(a)["level"].as_array().expect("levels");
            let name = levels[number % levels.len()]["name"].as_str().expect("a name");
            options.levels.insert(attribute.name.clone(), name.to_owned());
            number /= levels.len();
        }
        options
    }

    /// Writes all calls. A device keeps its value for half of the steps, changes it, and returns to it at the last step. Each
    /// device has two runs, with fresh stores. Every second device repeats each call after a restart. A device that forgets loses
    /// its store after each step.
    fn live(&self, devices: usize, steps: u64, out: &mut dyn Write) -> Result<()> {
        for run in 0..devices {
            let (number, mut store) = (run / 2, Store::memory());
            let options = self.options(number);
            for step in 0..steps {
                if self.forgets {
                    store = Store::memory();
                }
                let change = usize::from(step >= steps / 2 && step < steps - 1);
                for repeat in 0..1 + number % 2 {
                    let opening = 2 * step as usize + repeat;
                    let random = self.random(run, opening);
                    let device = Device::open_with(self.survey.clone(), store.clone(), &options, random)?;
                    for a in 0..self.survey.attributes().len() {
                        let line = self.call(&device, a, number, number + change, step, run % 2, &options)?;
                        writeln!(out, "{line}").expect("the file of calls");
                    }
                }
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // a line of calls has these columns
    fn call(
        &self,
        device: &Device,
        a: usize,
        number: usize,
        v: usize,
        step: u64,
        run: usize,
        options: &Options,
    ) -> Result<Json> {
        let attribute: &Attribute = &self.survey.attributes()[a];
        let (index, value) = self.value(a, v);
        let envelope = device.report(&attribute.name, value, Some(step))?;
        let waiting = device.waiting()?;
        let key = waiting.iter().find(|one| one.attribute == attribute.name && one.step == step).map(|one| &one.key);
        let hex = envelope.as_ref().map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let mut line = json!({"device": number, "attribute": attribute.name, "value": index, "step": step,
            "envelope": hex, "level": options.levels[&attribute.name], "run": run});
        if let (Some(key), Some(_)) = (key, envelope) {
            line["key"] = json!(key);
        }
        if let Some(cohort) = &options.cohort {
            line["cohort"] = json!(cohort);
        }
        Ok(line)
    }

    /// Posts the present step's reports of all devices, all devices at once.
    fn post(&self, devices: usize, gateway: &str) -> Result<()> {
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..devices)
                .map(|number| {
                    scope.spawn(move || -> Result<()> {
                        let (options, random) = (self.options(number), self.random(number, 0));
                        let device = Device::open_with(self.survey.clone(), Store::memory(), &options, random)?;
                        for a in 0..self.survey.attributes().len() {
                            device.report(&self.survey.attributes()[a].name, self.value(a, number).1, None)?;
                        }
                        let wait = |time: Duration| {
                            std::thread::sleep(time);
                            true
                        };
                        Sender::new(&device, Way::Direct(gateway.into()), None)?.run(wait)
                    })
                })
                .collect();
            all.into_iter().try_for_each(|one| one.join().expect("no panic"))
        })
    }
}

static NOW_MS: AtomicI64 = AtomicI64::new(0); // the clock of the logs

/// Makes the calls of each history on a log of its own, and answers the questions.
fn answer(survey: &Survey, histories: &str, out: &mut impl Write) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let clock = || NOW_MS.load(Ordering::SeqCst);
    let (mut device, mut log) = (Json::Null, Activity::open_with(Store::memory(), clock)?);
    for text in histories.lines() {
        let mut line: Json = serde_json::from_str(text)?;
        if line["device"] != device {
            (device, log) = (line["device"].clone(), Activity::open_with(Store::memory(), clock)?);
        }
        NOW_MS.store(line["ms"].as_i64().unwrap_or(0), Ordering::SeqCst);
        match (line["step"].as_u64(), line["event"].as_str(), line["seconds"].as_f64()) {
            (Some(step), ..) => {
                let number = |value| match value {
                    Value::Number(number) => json!(number), // null if it is infinite
                    _ => unreachable!("a recipe gives numbers"),
                };
                let values = log.values(survey, step)?.into_iter().map(|(name, value)| (name, number(value)));
                line["values"] = Json::Object(values.collect());
            }
            (_, Some(event), Some(seconds)) => log.took(event, seconds)?,
            (_, Some(event), None) => log.used(event)?,
            _ => log.seen()?,
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| arguments.iter().position(|one| one == name).and_then(|place| arguments.get(place + 1)).cloned();
    let path = arguments.get(1).ok_or_else(|| Error::Value("the first argument is the file of the device survey".into()))?;
    let survey = Survey::from_json(&std::fs::read(path)?)?;
    let document = serde_json::from_str(&survey.canonical)?;
    let forgets = arguments.iter().any(|one| one == "--forget"); // a fault, as a control of the check
    let plan = Plan { survey, document, seed: option("--seed"), forgets };
    let devices = option("--devices").map_or(Ok(5000), |text| text.parse())?;
    if let Some(histories) = option("--histories") {
        let file = option("--answers").ok_or_else(|| Error::Value("give --answers FILE".into()))?;
        answer(&plan.survey, &std::fs::read_to_string(histories)?, &mut std::fs::File::create(file)?)?;
    } else if let Some(gateway) = option("--gateway") {
        plan.post(devices, &gateway)?;
    } else {
        let file = option("--calls").ok_or_else(|| Error::Value("give --calls FILE or --gateway URL".into()))?;
        let mut out = std::io::BufWriter::new(std::fs::File::create(file)?);
        plan.live(devices, option("--steps").map_or(Ok(6), |text| text.parse())?, &mut out)?;
        out.flush()?;
    }
    Ok(())
}
