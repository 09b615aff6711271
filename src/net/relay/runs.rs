//! The sites of a run that a relay serves, as the document of the run lists them.

use std::{fs, path::Path};

use libp2p::PeerId;
use litemap::LiteMap;
use serde::Deserialize;

use crate::config::ConfigError;

/// What of `run.json` a relay needs.
#[derive(Deserialize)]
struct Book {
    history: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    run: Run,
}

#[derive(Deserialize)]
struct Run {
    members: Vec<Member>,
    invitations: Vec<Invitation>,
}

#[derive(Deserialize)]
struct Member {
    name: String,
    peer: String,
    caller: String,
}

#[derive(Deserialize)]
struct Invitation {
    site: String,
    ticket: String,
}

/// The PeerIds of a run, with the names of their sites: of members their nodes and those with which
/// they ask, and of tickets. A ticket stays, as its bearer asks with it whether it was admitted.
///
/// # Errors
/// If the file cannot be read, or is none of a run.
pub(super) fn sites(path: &Path) -> Result<LiteMap<PeerId, String>, ConfigError> {
    let wrong = |problem: String| ConfigError::at("relay.runs", problem).within(path.display());
    let bytes = fs::read(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let book: Book = serde_json::from_slice(&bytes)
        .map_err(|error| wrong(format!("this is no run of `gradvine init`: {error}")))?;
    let newest = book.history.last().into_iter().flat_map(|version| &version.run.members);
    let members = newest.flat_map(|one| [(&one.peer, &one.name), (&one.caller, &one.name)]);
    let invited = book.history.iter().flat_map(|version| &version.run.invitations);
    let all = members.chain(invited.map(|one| (&one.ticket, &one.site)));
    Ok(all.filter_map(|(peer, name)| Some((peer.parse().ok()?, name.clone()))).collect())
}
