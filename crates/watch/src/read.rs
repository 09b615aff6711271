//! A network as a node has written it to its run folder, or as it serves it.

use std::{
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use gradvine::{
    config::ConfigError,
    run::{NodeFile, STATUS_FILE},
};
use gradvine_page::{Network, VERSION};

#[cfg(not(feature = "page"))]
use super::closed::ask;
#[cfg(feature = "page")]
use super::request::ask;
use super::token::Token;

/// Why nothing is known of a run.
#[derive(Debug)]
pub enum Unread {
    /// A file or an argument is wrong.
    Config(ConfigError),
    /// The node has not run yet, does not answer, or answers with something else.
    Nothing(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::Config(error) => error.fmt(f),
            Unread::Nothing(text) => f.write_str(text),
        }
    }
}

/// Reads what a node knows: `of` is its file, its run folder, or the address of its page, with
/// the token that this asks for.
///
/// # Errors
/// If the file or the answer is missing, or cannot be read.
pub fn read(of: &str, token: Option<&Token>) -> Result<Network, Unread> {
    let path = Path::new(of);
    if path.is_dir() {
        return from_folder(path, path);
    }
    if path.is_file() {
        let file = NodeFile::load(path).map_err(Unread::Config)?;
        return from_folder(&file.out, path);
    }
    let address = of.strip_prefix("http://").unwrap_or(of).trim_end_matches('/');
    match address.parse::<SocketAddr>() {
        Ok(_) => {}
        Err(_) if is_name_with_port(address) => {}
        Err(_) => {
            let problem = "expected a node file, a run folder, or an address such as \
                           127.0.0.1:9470";
            return Err(Unread::Config(ConfigError::new("NODE", of, problem)));
        }
    }
    let text = ask(address, token).map_err(Unread::Nothing)?;
    parse(&text).map_err(|problem| Unread::Nothing(format!("{address}: {problem}")))
}

fn is_name_with_port(text: &str) -> bool {
    let host = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    text.rsplit_once(':').is_some_and(|(name, port)| {
        !name.is_empty() && name.chars().all(host) && port.parse::<u16>().is_ok()
    })
}

fn from_folder(folder: &Path, named: &Path) -> Result<Network, Unread> {
    let path: PathBuf = folder.join(STATUS_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Unread::Nothing(format!(
                "{}: the node has not run yet: there is no {}",
                named.display(),
                path.display()
            )));
        }
        Err(error) => return Err(Unread::Nothing(format!("{}: {error}", path.display()))),
    };
    parse(&text).map_err(|problem| Unread::Nothing(format!("{}: {problem}", path.display())))
}

fn parse(text: &str) -> Result<Network, String> {
    #[derive(serde::Deserialize)]
    struct Version {
        version: u32,
    }
    let found: Version =
        serde_json::from_str(text).map_err(|error| format!("not the status of a run: {error}"))?;
    if found.version != VERSION {
        return Err(format!(
            "version {} of the status of a run, and this program reads version {VERSION}: use the \
             same release of gradvine",
            found.version
        ));
    }
    serde_json::from_str(text).map_err(|error| format!("not the status of a run: {error}"))
}
