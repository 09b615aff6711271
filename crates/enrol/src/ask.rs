//! What a site asks others.

use std::{collections::BTreeSet, fmt, time::Duration};

use gradvine::{
    config::ConfigError,
    net::{Keypair, Multiaddr, NoReply, PeerId, Proxy, ask},
};

use crate::{
    acts::fingerprint,
    book::{Book, now},
    desk::{Told, used_by},
    document::{Invitation, Member, Version},
    follows::check_history,
    notes::News,
    site::Site,
    ticket::Ticket,
    wire::{Question, Reply},
};

/// How long one question may take.
const WITHIN: Duration = Duration::from_secs(20);

/// How long an exchange with another member may take: the next member waits meanwhile.
const EXCHANGE: Duration = Duration::from_secs(8);

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// Nobody is there: later somebody may be.
    Unreached(String),
    /// The other site does not let this one in: later it may.
    Unknown,
    /// The site with this PeerId has joined with the ticket.
    Used(String),
    /// The other site refuses, or what it says is wrong.
    Refused(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Unreached(why) | NoAnswer::Refused(why) => f.write_str(why),
            NoAnswer::Unknown => f.write_str("it does not let this site in"),
            NoAnswer::Used(peer) => f.write_str(&used_by(peer)),
        }
    }
}

fn refused(why: impl Into<String>) -> NoAnswer {
    NoAnswer::Refused(why.into())
}

fn question(
    caller: (&Keypair, Option<&Proxy>),
    (peer, addresses): (&str, &[String]),
    question: &Question,
    within: Duration,
) -> Result<Reply, NoAnswer> {
    let peer: PeerId = peer.parse().map_err(|_| refused(format!("{peer} is no PeerId")))?;
    let addresses: Vec<Multiaddr> = addresses.iter().filter_map(|one| one.parse().ok()).collect();
    let bytes = question.to_bytes().map_err(refused)?;
    let reply = ask(caller, (peer, &addresses), &bytes, within).map_err(|why| match why {
        NoReply::Unknown => NoAnswer::Unknown,
        why => NoAnswer::Unreached(why.to_string()),
    })?;
    match serde_json::from_slice(&reply) {
        Ok(Reply::Refused(why)) => Err(refused(why)),
        Ok(reply) => Ok(reply),
        Err(_) => {
            Err(refused("it answers as another version of gradvine: both sites need the same one"))
        }
    }
}

/// Shows the run to which a ticket invites; asks through the proxy if there is one.
///
/// # Errors
/// If the ticket is no good, or nobody answers.
pub fn look(ticket: &Ticket, proxy: Option<&Proxy>) -> Result<Vec<Version>, NoAnswer> {
    if ticket.expires <= now() {
        return Err(refused(format!(
            "the ticket for {} has expired: ask for a new one",
            ticket.site
        )));
    }
    let to = (ticket.peer.as_str(), ticket.addresses.as_slice());
    match question((&ticket.key(), proxy), to, &Question::Look, WITHIN)? {
        Reply::Run(history) => checked(ticket, history).map_err(NoAnswer::Refused),
        Reply::Joined(peer) => Err(NoAnswer::Used(peer)),
        _ => Err(refused("it gave no run")),
    }
}

/// The history, if it is that of the ticket.
fn checked(ticket: &Ticket, history: Vec<Version>) -> Result<Vec<Version>, String> {
    check_history(&history)?;
    let run = &history.last().expect("it has a version").run;
    if run.id != ticket.run {
        return Err(format!("the ticket is for another run than {}", run.name));
    }
    match run.members.iter().any(|member| member.peer == ticket.peer) {
        true => Ok(history),
        false => Err("who has invited is no member of the run any more".into()),
    }
}

/// How far a site that joins is.
#[derive(Debug)]
pub enum Joining {
    /// It is a member of this run.
    Joined(Vec<Version>),
    /// It waits for approval: its fingerprint.
    Waits(String),
}

/// The invitation with this ticket, in a run that the ticket has shown.
///
/// # Errors
/// If the run has none.
pub fn invitation(ticket: &Ticket, history: &[Version]) -> Result<Invitation, NoAnswer> {
    let run = history.last().map(|version| &version.run);
    let one = run.and_then(|run| run.invitation(&ticket.peer().to_string()));
    one.cloned().ok_or_else(|| refused("the run does not know the ticket"))
}

/// Asks to join with a ticket. It may be asked again and again. The fingerprint is computed here:
/// what the other site says has no part in it, but for the key that it has proved.
///
/// # Errors
/// If the ticket is no good, the inviter refuses, or nobody answers.
pub fn join(
    site: &Site,
    (ticket, invitation): (&Ticket, &Invitation),
    member: &Member,
) -> Result<Joining, NoAnswer> {
    let to = (ticket.peer.as_str(), ticket.addresses.as_slice());
    let key = ticket.key();
    let (signature, bearer) = site.sign_request((&ticket.run, &key), invitation, member);
    let ask = Question::Join { member: member.clone(), signature, bearer };
    match question((&key, site.proxy.as_ref()), to, &ask, WITHIN)? {
        // The handshake has proved the PeerId of the ticket.
        Reply::Waits => Ok(Joining::Waits(fingerprint(
            &ticket.run,
            &ticket.peer().to_string(),
            &ticket.peer,
            member,
        ))),
        Reply::Joined(peer) if peer == member.peer => joined(site, ticket).map(Joining::Joined),
        Reply::Joined(peer) => Err(NoAnswer::Used(peer)),
        _ => Err(refused("it gave no answer")),
    }
}

/// The run, for a site that has joined it: it asks as a member.
///
/// # Errors
/// If the inviter refuses, or nobody answers.
pub fn joined(site: &Site, ticket: &Ticket) -> Result<Vec<Version>, NoAnswer> {
    let to = (ticket.peer.as_str(), ticket.addresses.as_slice());
    let (run, digests, known) = (ticket.run.clone(), Vec::new(), Vec::new());
    let ask = Question::Sync { run, digests, known };
    let caller = (&site.caller, site.proxy.as_ref());
    let Reply::Sync { versions, .. } = question(caller, to, &ask, WITHIN)? else {
        return Err(refused("it gave no run"));
    };
    let history = checked(ticket, versions).map_err(NoAnswer::Refused)?;
    let newest = history.last().map(|version| &version.run);
    match newest.is_some_and(|run| run.members.iter().any(|one| one.peer == site.peer())) {
        true => Ok(history),
        false => Err(refused("this site is no member of the run any more")),
    }
}

/// The address, or this site's own one at the same relay: the relay may have moved, and the other
/// site says where it is now only once it is reached.
fn at_our_relay(address: &str, own: &[String]) -> String {
    let relay = |address: &str| {
        address
            .find("/p2p/")
            .map(|at| address[at..].to_string())
            .filter(|rest| rest.ends_with("/p2p-circuit"))
    };
    let same = own.iter().find(|own| relay(address).is_some() && relay(own) == relay(address));
    same.map_or(address, String::as_str).to_string()
}

/// The question with which a site begins an exchange.
pub(crate) fn exchange(book: &Book) -> Question {
    let run = book.run().id.clone();
    let known = book.notes.known().into_iter().collect();
    Question::Sync { run, digests: book.digests(), known }
}

/// Takes over what another member has answered in an exchange. Returns what that one lacks, and
/// whether the histories agree.
pub(crate) fn take(
    site: &Site,
    book: &mut Book,
    (versions, news, lacks): (Vec<Version>, News, &[String]),
) -> (News, Result<bool, String>) {
    let extended = book.extend(versions);
    book.learn(news);
    site.tend(book);
    let lacks: BTreeSet<&str> = lacks.iter().map(String::as_str).collect();
    // A contradiction is kept in the book.
    (book.notes.news(|id| lacks.contains(id)), extended)
}

/// Exchanges the run and the notes that are new with another member. `told` hears what that one
/// knows.
///
/// # Errors
/// If it does not answer, or its run contradicts this one.
pub fn sync(
    site: &Site,
    member: &Member,
    addresses: &[String],
    told: &Told,
) -> Result<(), NoAnswer> {
    let text = |error: ConfigError| refused(error.to_string());
    let book = site.book().map_err(text)?;
    let own = book.me().map(|me| book.addresses_of(me)).unwrap_or_default();
    let addresses: Vec<String> = addresses.iter().map(|one| at_our_relay(one, own)).collect();
    let (caller, to) =
        ((&site.caller, site.proxy.as_ref()), (member.peer.as_str(), &addresses[..]));
    let mut known = book.notes.known();
    let Reply::Sync { versions, news, lacks } = question(caller, to, &exchange(&book), EXCHANGE)?
    else {
        return Err(refused("it gave no answer"));
    };
    known.retain(|id| !lacks.contains(id));
    let taken = site.change(|book| Ok(take(site, book, (versions, news, &lacks))));
    let (news, extended) = taken.map_err(text)?;
    if !news.is_empty() {
        let ends: Vec<String> = news.ends.iter().map(|end| end.id()).collect();
        let tell = Question::Tell { run: book.run().id.clone(), news };
        question(caller, to, &tell, EXCHANGE)?;
        known.extend(ends);
    }
    told.note(&member.name, known);
    extended.map(drop).map_err(NoAnswer::Refused)
}
