//! A site's folder: its node file and key, and its book.
//!
//! | file | holds |
//! |---|---|
//! | `node.toml` | the node file, which the site's user may change |
//! | `node.key` | the key, which never leaves the site |
//! | `run.json` | the run, what others have told, and who asks to join |
//!
//! Commands and the program that runs change `run.json` one at a time, under a lock, and replace
//! it as a whole.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use gradvine::{
    config::ConfigError,
    data::write_atomically,
    experiment::Experiment,
    net::{Keypair, Proxy, caller, identity},
    run::NodeFile,
};
use serde::Deserialize;

use crate::{
    book::Book,
    document::{FORMAT, Member, Run, Version},
    follows::check_history,
    sign::Accept,
};

/// The names of a site's files.
const NODE: &str = "node.toml";
const BOOK: &str = "run.json";
const LOCK: &str = "run.lock";

/// How long a command waits for another one that changes the book.
const LOCKED: Duration = Duration::from_secs(20);

/// Between two attempts to lock.
const AGAIN: Duration = Duration::from_millis(5);

/// A site's folder.
pub struct Site {
    /// The folder that holds its files.
    pub folder: PathBuf,
    /// The key of its node.
    pub key: Keypair,
    /// The key with which it asks other sites.
    pub caller: Keypair,
    /// Through which proxy it asks them.
    pub proxy: Option<Proxy>,
    /// What its node file lets nobody change: sections and keys of the experiment, `topology` and
    /// `sites`.
    pub forbid: Vec<String>,
}

/// What of a book tells its format.
#[derive(Deserialize)]
struct Formatted {
    #[serde(default)]
    format: u32,
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_lowercase() || c == '_'
}

/// Checks that these are sections or keys that the run has.
pub(crate) fn check_names(names: &[String], run: &Run) -> Result<(), ConfigError> {
    for name in names.iter().filter(|name| *name != "topology" && *name != "sites") {
        let parts: Vec<&str> = name.split('.').collect();
        let is_word = |part: &&str| !part.is_empty() && part.chars().all(is_of_key);
        // A text is a wrong value of most keys: only an unknown one matters here.
        let (set, unknown) = match parts.as_slice() {
            [section] => (format!("{section}.x=\"\""), "no such section"),
            _ => (format!("{name}=\"\""), "unknown field"),
        };
        let tried = Experiment::parse(&run.experiment, &[set]);
        let why = tried.err().map_or(String::new(), |error| error.to_string());
        let is_plain = parts.len() <= 2 && parts.iter().all(is_word);
        if !is_plain || why.contains(unknown) || why.contains("no such section") {
            let problem = "the run has no such section or key: expected some, such as \"data\" or \
                           \"optimizer.step\", or \"topology\" or \"sites\"";
            return Err(ConfigError::new("forbid", name, problem));
        }
    }
    Ok(())
}

/// Opens a file that is locked, for its owner alone: who can open it can lock it.
///
/// # Errors
/// If it cannot be made.
pub fn lock_file(path: &Path) -> std::io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    // One of an earlier version may be open to others.
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Reads the book of a site from the bytes of its file.
///
/// # Errors
/// If it is damaged, or of another format.
pub fn read_book(bytes: &[u8]) -> Result<Book, String> {
    let damaged = |error: serde_json::Error| format!("it is damaged: {error}");
    let format = serde_json::from_slice::<Formatted>(bytes).map_err(damaged)?.format;
    if format != FORMAT {
        return Err(format!(
            "it has format {format} of signed runs, and this program has {FORMAT}: finish the run \
             with the version of gradvine that has made it, or make a new one with its experiment \
             (gradvine init NAME --from run/experiment.toml)"
        ));
    }
    let book: Book = serde_json::from_slice(bytes).map_err(damaged)?;
    match book.history.is_empty() {
        true => Err("it is damaged: it has no version of the run".into()),
        false => Ok(book),
    }
}

impl Site {
    /// The site in this folder.
    ///
    /// # Errors
    /// If it has no node file or no run, or a file is wrong.
    pub fn open(folder: &Path) -> Result<Site, ConfigError> {
        let file = NodeFile::load(&folder.join(NODE))?;
        let mut site = Site::with(folder, identity::load(&file.key)?, file.proxy.as_deref())?;
        let book = site.book()?;
        check_history(&book.history).map_err(|why| site.wrong(why))?;
        check_names(&file.forbid, book.run())
            .map_err(|error| error.within(site.node().display()))?;
        site.forbid = file.forbid;
        Ok(site)
    }

    /// A site in this folder with this key, behind this proxy.
    ///
    /// # Errors
    /// If the key is not of Ed25519, or the proxy is no URL of one.
    pub fn with(folder: &Path, key: Keypair, proxy: Option<&str>) -> Result<Site, ConfigError> {
        let proxy = proxy.map(|text| Proxy::parse("node.proxy", text)).transpose()?;
        Ok(Site { folder: folder.into(), caller: caller(&key)?, key, proxy, forbid: Vec::new() })
    }

    /// Its node file.
    pub fn node(&self) -> PathBuf {
        self.folder.join(NODE)
    }

    /// The PeerId of its node.
    pub fn peer(&self) -> String {
        self.key.public().to_peer_id().to_string()
    }

    /// Whether the folder has a run.
    pub fn has_run(folder: &Path) -> bool {
        folder.join(BOOK).exists()
    }

    pub(crate) fn wrong(&self, why: impl Into<String>) -> ConfigError {
        ConfigError::at("run", why).within(self.folder.join(BOOK).display())
    }

    /// This site as a member of this name, at these addresses.
    pub fn member(&self, name: &str, addresses: Vec<String>) -> Member {
        let caller = self.caller.public().to_peer_id().to_string();
        Member { name: name.into(), peer: self.peer(), caller, addresses }
    }

    /// Reads the book.
    ///
    /// # Errors
    /// If there is none, or it is damaged.
    pub fn book(&self) -> Result<Book, ConfigError> {
        let path = self.folder.join(BOOK);
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => self.wrong(
                "there is no run here: `gradvine init` makes one, `gradvine join TICKET` joins one",
            ),
            _ => self.wrong(format!("cannot be read: {error}")),
        })?;
        read_book(&bytes).map_err(|why| self.wrong(why))
    }

    /// Writes a first book.
    ///
    /// # Errors
    /// If there is one, or it cannot be written.
    pub fn begin(&self, book: &Book) -> Result<(), ConfigError> {
        let _lock = self.lock()?;
        if Site::has_run(&self.folder) {
            return Err(self.wrong("there is a run in this folder: name another folder (--dir)"));
        }
        self.write(book)
    }

    /// Changes the book, under its lock. It is written if `change` succeeds and changes it.
    ///
    /// # Errors
    /// Those of `change`, or if the book cannot be read or written.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&mut Book) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        let _lock = self.lock()?;
        let mut book = self.book()?;
        let before = book.clone();
        let result = change(&mut book)?;
        if book != before {
            self.write(&book)?;
        }
        Ok(result)
    }

    fn lock(&self) -> Result<File, ConfigError> {
        let path = self.folder.join(LOCK);
        let wrong = |error: String| ConfigError::at("run", error).within(path.display());
        let failed = |error: std::io::Error| wrong(format!("cannot be locked: {error}"));
        let file = lock_file(&path).map_err(failed)?;
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if since.elapsed() >= LOCKED => {
                    let seconds = LOCKED.as_secs();
                    return Err(wrong(format!("another program has held it for {seconds} s")));
                }
                Err(TryLockError::WouldBlock) => thread::sleep(AGAIN),
            }
        }
    }

    fn write(&self, book: &Book) -> Result<(), ConfigError> {
        let text =
            serde_json::to_string_pretty(book).map_err(|error| self.wrong(error.to_string()));
        write_atomically(&self.folder.join(BOOK), &[text?.as_bytes(), b"\n"])
            .map_err(|error| self.wrong(format!("cannot be written: {error}")))
    }

    /// This version with the signature of this site.
    pub fn sign(&self, site: &str, run: Run) -> Version {
        let accept = Accept::new(&self.key, &run.digest(), Vec::new());
        Version { run, signatures: BTreeMap::from([(site.to_string(), accept)]) }
    }
}
