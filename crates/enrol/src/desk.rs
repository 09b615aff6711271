//! What a site answers to others: to members the run and all notes, to the bearer of a ticket the
//! run that it is invited to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use gradvine::{
    config::ConfigError,
    net::{Answers, PeerId},
};

use crate::{
    book::{Access, Book, Request},
    document::Member,
    follows::words_of_admission,
    notes::News,
    sign::{About, is_signed},
    site::Site,
    text::check_member,
    wire::{Question, Reply},
};

/// The most sites that ask to join at a time.
const MOST_REQUESTS: usize = 64;

/// Which notes other sites have. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl Told {
    /// The site of this name has the notes of these names.
    pub fn note(&self, site: &str, known: BTreeSet<String>) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(site.into(), known);
    }

    /// Whether all other sites know how this one has ended its stage.
    pub fn all(&self, book: &Book) -> bool {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = book.notes.ends.iter().find(|end| end.site == book.site);
        let mut others = book.run().members.iter().filter(|member| member.name != book.site);
        own.is_none_or(|own| {
            let id = own.id();
            others.all(|other| told.get(&other.name).is_some_and(|known| known.contains(&id)))
        })
    }
}

/// The answers of this site. `told` hears who gets them.
pub fn answers(site: &Arc<Site>, told: &Told) -> Answers {
    let (site, told) = (Arc::clone(site), told.clone());
    Answers::new(Arc::new(move |caller, bytes| {
        let reply = answer(&site, &told, caller, bytes);
        let reply = reply.unwrap_or_else(|error| Reply::Refused(error.to_string()));
        serde_json::to_vec(&reply).unwrap_or_default()
    }))
}

pub(crate) fn answer(
    site: &Site,
    told: &Told,
    caller: PeerId,
    bytes: &[u8],
) -> Result<Reply, ConfigError> {
    let question = match Question::of_bytes(bytes) {
        Ok(question) => question,
        Err(why) => return Ok(Reply::Refused(why)),
    };
    site.change(|book| Ok(reply(site, book, told, caller, question)))
}

/// What this site answers to a caller that the gate has let in.
pub(crate) fn reply(
    site: &Site,
    book: &mut Book,
    told: &Told,
    caller: PeerId,
    question: Question,
) -> Reply {
    let caller = caller.to_string();
    let reply = match question {
        Question::Sync { run, digests, known } => {
            sync(book, told, &caller, &run, (&digests, known))
        }
        Question::Tell { run, news } => hear(site, book, &caller, &run, news),
        Question::Look => look(book, &caller),
        Question::Join { member, signature, bearer } => {
            join(site, book, &caller, member, (&signature, bearer))
        }
    };
    reply.unwrap_or_else(Reply::Refused)
}

fn look(book: &Book, ticket: &str) -> Result<Reply, String> {
    match book.access(ticket) {
        Access::Open(_) => Ok(Reply::Run(book.history.clone())),
        Access::Joined(peer) => Ok(Reply::Joined(peer.into())),
        Access::Closed(why) => Err(why),
    }
}

/// Why a ticket is good for no other key.
pub(crate) fn used_by(peer: &str) -> String {
    format!(
        "this ticket was used already, by the site with the PeerId {peer}: if that is not you, \
         tell who has invited you"
    )
}

fn join(
    site: &Site,
    book: &mut Book,
    ticket: &str,
    member: Member,
    (signature, bearer): (&str, String),
) -> Result<Reply, String> {
    let invitation = match book.access(ticket) {
        Access::Open(invitation) => invitation.clone(),
        Access::Joined(peer) if peer == member.peer => return Ok(Reply::Joined(peer.into())),
        Access::Joined(peer) => return Err(used_by(peer)),
        Access::Closed(why) => return Err(why),
    };
    check_member(&member)?;
    if let Some(other) = book.used.get(ticket).filter(|other| **other != member.peer) {
        return Err(used_by(other));
    }
    if member.name != invitation.site {
        let name = &invitation.site;
        return Err(format!("the ticket is for the name {name}, not {}", member.name));
    }
    let words = words_of_admission(&book.run().id, &invitation, &member);
    if !is_signed(&member.peer, About::Joins, &words, signature) {
        return Err("the request is not signed by the key of its site".into());
    }
    if !is_signed(ticket, About::Joins, &words, &bearer) {
        return Err("the request is not signed by the key of its ticket".into());
    }
    let known = book.requests.iter().find(|one| one.ticket == ticket);
    if known.is_none_or(|known| known.member != member) {
        if book.requests.len() >= MOST_REQUESTS {
            return Err("too many sites ask to join: try again later".into());
        }
        book.used.insert(ticket.into(), member.peer.clone());
        book.requests.retain(|one| one.ticket != ticket);
        let ticket = ticket.to_string();
        book.requests.push(Request { member, ticket, bearer, approved: false });
    }
    site.tend(book);
    match book.access(ticket) {
        Access::Joined(peer) => Ok(Reply::Joined(peer.into())),
        _ => Ok(Reply::Waits),
    }
}

fn in_another(book: &Book) -> String {
    format!("this site is in another run, {}", book.run().name)
}

fn sync(
    book: &Book,
    told: &Told,
    caller: &str,
    run: &str,
    (digests, known): (&[String], Vec<String>),
) -> Result<Reply, String> {
    if book.run().id != run {
        return Err(in_another(book));
    }
    let Some(name) = book.run().caller(caller).map(|member| &member.name) else {
        // It hears that it was removed, and nothing later.
        let history = book.until_removed(caller).ok_or("you are no member of this run")?;
        let versions = book.after(history, digests).to_vec();
        return Ok(Reply::Sync { versions, news: News::default(), lacks: Vec::new() });
    };
    let (mut known, own): (BTreeSet<String>, _) = (known.into_iter().collect(), book.notes.known());
    let news = book.notes.news(|id| !known.contains(id));
    let lacks = known.difference(&own).cloned().collect();
    known.extend(news.ends.iter().map(|end| end.id()));
    told.note(name, known);
    let mut versions = book.after(&book.history, digests).to_vec();
    // All must hear of a contradiction, as more than half of them end it.
    versions.extend(book.conflict.iter().flat_map(|conflict| conflict.rival.clone()));
    Ok(Reply::Sync { versions, news, lacks })
}

fn hear(
    site: &Site,
    book: &mut Book,
    caller: &str,
    run: &str,
    news: News,
) -> Result<Reply, String> {
    if book.run().id != run {
        return Err(in_another(book));
    }
    if book.run().caller(caller).is_none() {
        return Err("you are no member of this run".into());
    }
    book.learn(news);
    site.tend(book);
    Ok(Reply::Heard)
}
