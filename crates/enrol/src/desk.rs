//! What a site answers to others: to members the run and all notes, to the bearer of a ticket the
//! run that it is invited to.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use gradvine::{
    config::ConfigError,
    net::{Answers, PeerId},
};
use serde::{Deserialize, Serialize};

use crate::{
    book::{Book, Request, Site, fingerprint, now, words_of_request},
    document::{Member, Version, check_member},
    notes::{Notes, StageEnd},
    sign::{About, is_signed},
};

/// The most sites that ask to join at a time.
const MOST_REQUESTS: usize = 64;

/// What a site asks another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// The bearer of a ticket wants to see the run.
    Look,
    /// The bearer of a ticket wants to join.
    Join { member: Member, signature: String },
    /// A member tells what it knows, and wants to know what is new.
    Sync { run: String, number: u64, digest: String, notes: Notes },
}

/// What it gets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The whole history.
    Run(Vec<Version>),
    /// It waits for approval, with this fingerprint.
    Waits(String),
    /// The versions after the one that was named (that one too), and all notes.
    Sync { versions: Vec<Version>, notes: Notes },
    /// Why there is no answer.
    Refused(String),
}

/// Which sites have been told how stages have ended. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<Mutex<BTreeMap<String, Vec<StageEnd>>>>);

impl Told {
    /// The site of this name knows these notes.
    pub fn note(&self, site: &str, notes: &Notes) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(site.into(), notes.ends.clone());
    }

    /// Whether all other sites know how this one has ended its stage.
    pub fn all(&self, book: &Book) -> bool {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = book.notes.ends.iter().find(|end| end.site == book.site);
        let others = book.run().members.iter().filter(|member| member.name != book.site);
        own.is_none_or(|own| {
            let mut others = others.map(|member| told.get(&member.name));
            others.all(|told| told.is_some_and(|told| told.contains(own)))
        })
    }
}

/// The answers of this site. `told` hears who gets them.
pub fn answers(site: &Arc<Site>, told: &Told) -> Answers {
    let (site, told) = (Arc::clone(site), told.clone());
    Answers::new(Arc::new(move |caller, bytes| {
        let reply = answer(&site, caller, bytes);
        if let (Ok(Reply::Sync { notes, .. }), Ok(book)) = (&reply, site.book())
            && let Some(member) = book.run().caller(&caller.to_string())
        {
            told.note(&member.name, notes);
        }
        let reply = reply.unwrap_or_else(|error| Reply::Refused(error.to_string()));
        serde_json::to_vec(&reply).unwrap_or_default()
    }))
}

pub(crate) fn answer(site: &Site, caller: PeerId, bytes: &[u8]) -> Result<Reply, ConfigError> {
    let Ok(question) = serde_json::from_slice(bytes) else {
        return Ok(Reply::Refused("the question is of another version of gradvine".into()));
    };
    let caller = caller.to_string();
    site.change(|book| {
        let reply = match question {
            Question::Sync { run, number, digest, notes } => {
                sync(site, book, &caller, (&run, number, &digest), notes)
            }
            Question::Look => ticket(book, &caller).map(|_| Reply::Run(book.history.clone())),
            Question::Join { member, signature } => join(site, book, &caller, member, &signature),
        };
        Ok(reply.unwrap_or_else(Reply::Refused))
    })
}

/// The name for which this ticket is.
fn ticket(book: &Book, ticket: &str) -> Result<String, String> {
    let is_open = book.run().invitation(ticket).is_some() || book.used.contains_key(ticket);
    match book.invitation(ticket).filter(|_| is_open) {
        Some(one) if one.expires > now() => Ok(one.site.clone()),
        Some(one) => Err(format!(
            "the ticket for {} has expired: ask {} for a new one (gradvine invite)",
            one.site, one.by
        )),
        None => Err("this ticket is not, or no longer, one of this run".into()),
    }
}

fn join(
    site: &Site,
    book: &mut Book,
    ticket_peer: &str,
    member: Member,
    signature: &str,
) -> Result<Reply, String> {
    let name = ticket(book, ticket_peer)?;
    check_member(&member)?;
    if let Some(other) = book.used.get(ticket_peer).filter(|other| **other != member.peer) {
        return Err(format!(
            "this ticket was used already, by the site with the PeerId {other}: if that is not \
             you, tell who has invited you"
        ));
    }
    let run = book.run();
    let words = words_of_request(&run.id, ticket_peer, &member);
    if !is_signed(&member.peer, About::Joins, &words, signature) {
        return Err("the request is not signed by the key of its site".into());
    }
    if run.members.iter().any(|one| one.peer == member.peer) {
        return Ok(Reply::Run(book.history.clone()));
    }
    if member.name != name {
        return Err(format!("the ticket is for the name {name}, not {}", member.name));
    }
    if book.requests.len() >= MOST_REQUESTS {
        return Err("too many sites ask to join: try again later".into());
    }
    let print = fingerprint(&run.id, ticket_peer, &member.peer);
    book.used.insert(ticket_peer.into(), member.peer.clone());
    book.requests.retain(|one| one.ticket != ticket_peer);
    book.requests.push(Request { member, ticket: ticket_peer.into() });
    site.tend(book).map_err(|error| error.to_string())?;
    Ok(Reply::Waits(print))
}

fn sync(
    site: &Site,
    book: &mut Book,
    caller: &str,
    (run, number, digest): (&str, u64, &str),
    notes: Notes,
) -> Result<Reply, String> {
    if book.run().id != run {
        return Err(format!("this site is in another run, {}", book.run().name));
    }
    if book.run().caller(caller).is_none() {
        // It hears that it was removed, and nothing later.
        let history = book.until_removed(caller).ok_or("you are no member of this run")?;
        let from = (number as usize).saturating_sub(1);
        let versions = history.get(from..).unwrap_or_default().to_vec();
        return Ok(Reply::Sync { versions, notes: Notes::default() });
    }
    book.learn(notes);
    site.tend(book).map_err(|error| error.to_string())?;
    let newest = book.run();
    let is_known = number == newest.number && newest.digest() == digest;
    let from = (number as usize).saturating_sub(1);
    let versions = match is_known {
        true => Vec::new(),
        false => book.history.get(from..).unwrap_or_default().to_vec(),
    };
    Ok(Reply::Sync { versions, notes: book.notes.clone() })
}
