//! Where a device keeps its state: one file, which processes and threads may share.

pub(crate) mod state;

use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SQLITE: &[u8] = b"SQLite format 3\0";
const PAUSE: Duration = Duration::from_millis(5);

/// A store keeps one text durably. A transaction replaces it as a whole or not at all. Clones are one store.
#[derive(Clone)]
pub struct Store(Kind);

#[derive(Clone)]
enum Kind {
    Memory(Arc<Mutex<Vec<u8>>>),
    File { path: PathBuf, wait: Duration },
}

impl std::fmt::Debug for Store {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "<Store {}>", self.place())
    }
}

impl Store {
    /// A store that ends with its last clone: for tests.
    pub fn memory() -> Store {
        Store(Kind::Memory(Arc::default()))
    }

    /// The file of one person. Beside it stand `PATH.lock`, and during a change `PATH.new`.
    ///
    /// Do not derive the name from the survey's name: a renamed survey would get a new file and a fresh budget.
    pub fn file(path: impl Into<PathBuf>) -> Store {
        Store(Kind::File { path: path.into(), wait: Duration::from_secs(30) })
    }

    /// Sets how long a call waits for another process that holds the file; 30 s otherwise.
    pub fn waiting(self, wait: Duration) -> Store {
        match self.0 {
            Kind::File { path, .. } => Store(Kind::File { path, wait }),
            memory => Store(memory),
        }
    }

    pub(crate) fn place(&self) -> String {
        match &self.0 {
            Kind::Memory(_) => "memory".into(),
            Kind::File { path, .. } => path.display().to_string(),
        }
    }

    /// Runs a transaction on the store's document, or on nothing: an error or an unchanged document writes nothing.
    pub(crate) fn transaction<D: Document, T>(&self, run: impl FnOnce(&mut Option<D>) -> Result<T>) -> Result<T> {
        match &self.0 {
            Kind::Memory(text) => {
                let mut text = text.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                let mut document = read(&text, "memory")?;
                let result = run(&mut document)?;
                *text = written(&document);
                Ok(result)
            }
            Kind::File { path, wait } => {
                let _held = hold(path, *wait)?;
                let before = load(path)?;
                let mut document = read(&before, &path.display().to_string())?;
                let result = run(&mut document)?;
                let after = written(&document);
                if after != before {
                    save(path, &after)?;
                }
                Ok(result)
            }
        }
    }
}

/// What a store keeps.
pub(crate) trait Document: Serialize + DeserializeOwned {
    /// What the text of the store is.
    const KIND: &'static str;
    /// The latest format of the text.
    const FORMAT: u32;
}

#[derive(Serialize)]
struct Framed<'a, D> {
    kind: &'a str,
    format: u32,
    content: &'a D,
}

#[derive(Deserialize)]
struct Head {
    kind: String,
    format: u32,
}

#[derive(Deserialize)]
struct Content<D> {
    content: D,
}

/// Reads a store's text; nothing for an empty store.
fn read<D: Document>(text: &[u8], place: &str) -> Result<Option<D>> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.starts_with(SQLITE) {
        return Err(Error::Store(format!("{place}: the file of a device in Python, which keeps another format")));
    }
    let damaged = |_| Error::Store(format!("{place}: the file is damaged"));
    let head: Head = serde_json::from_slice(text).map_err(damaged)?;
    if head.kind != D::KIND {
        return Err(Error::Store(format!("{place}: the file of {}, expected that of {}", head.kind, D::KIND)));
    }
    if head.format > D::FORMAT {
        return Err(Error::Store(format!("{place}: the file has the later format {}, expected {}", head.format, D::FORMAT)));
    }
    let read: Content<D> = serde_json::from_slice(text).map_err(damaged)?;
    Ok(Some(read.content))
}

fn written<D: Document>(document: &Option<D>) -> Vec<u8> {
    let framed = document.as_ref().map(|content| Framed { kind: D::KIND, format: D::FORMAT, content });
    framed.map_or_else(Vec::new, |framed| serde_json::to_vec(&framed).expect("only texts, numbers and lists"))
}

/// Another file beside the store's file.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Error::StoreFull(text),
        _ => Error::Store(text),
    }
}

/// Holds the lock file until the returned file is dropped.
fn hold(path: &Path, wait: Duration) -> Result<File> {
    let name = beside(path, ".lock");
    let lock = private().open(&name).map_err(|error| failed(&name, &error))?;
    let begun = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if begun.elapsed() < wait => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::StoreHeld(format!("{}: another process holds the store", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(failed(&name, &error)),
        }
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn load(path: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(mut file) => file.read_to_end(&mut text).map(|_| text).map_err(|error| failed(path, &error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(text),
        Err(error) => Err(failed(path, &error)),
    }
}

/// Writes a new file, flushes it, puts it in the old file's place and flushes the folder.
fn save(path: &Path, text: &[u8]) -> Result<()> {
    let fresh = beside(path, ".new");
    let write = || -> std::io::Result<()> {
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {} // the rest of a crash may have other rights
        }
        let mut file = private().create_new(true).open(&fresh)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)?;
        #[cfg(unix)]
        File::open(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(())
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&fresh); // a part of the new text
        failed(path, &error)
    })
}
