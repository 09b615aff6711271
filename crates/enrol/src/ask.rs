//! What a site asks others.

use std::{fmt, time::Duration};

use gradvine::{
    config::ConfigError,
    net::{Keypair, Multiaddr, NoReply, PeerId, Proxy, ask},
};

use crate::{
    book::{Site, now},
    desk::{Question, Reply},
    document::{Member, Version, check_history},
    notes::Notes,
    ticket::Ticket,
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
    /// The other site refuses, or what it says is wrong.
    Refused(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Unreached(why) | NoAnswer::Refused(why) => f.write_str(why),
            NoAnswer::Unknown => f.write_str("it does not let this site in"),
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
    let bytes = serde_json::to_vec(question).map_err(|error| refused(error.to_string()))?;
    let reply = ask(caller, (peer, &addresses), &bytes, within).map_err(|why| match why {
        NoReply::Unknown => NoAnswer::Unknown,
        why => NoAnswer::Unreached(why.to_string()),
    })?;
    match serde_json::from_slice(&reply) {
        Ok(Reply::Refused(why)) => Err(refused(why)),
        Ok(reply) => Ok(reply),
        Err(_) => Err(refused("it answers as another version of gradvine")),
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

/// Asks to join with a ticket. It may be asked again and again.
///
/// # Errors
/// If the ticket is no good, the inviter refuses, or nobody answers.
pub fn join(site: &Site, ticket: &Ticket, member: &Member) -> Result<Joining, NoAnswer> {
    let to = (ticket.peer.as_str(), ticket.addresses.as_slice());
    let signature = site.sign_request(&ticket.run, &ticket.peer().to_string(), member);
    let ask = Question::Join { member: member.clone(), signature };
    let history = match question((&ticket.key(), site.proxy.as_ref()), to, &ask, WITHIN)? {
        Reply::Waits(fingerprint) => {
            // Without approval it is a member already.
            match look(ticket, site.proxy.as_ref())? {
                history if is_in(&history, member) => history,
                _ => return Ok(Joining::Waits(fingerprint)),
            }
        }
        Reply::Run(history) => checked(ticket, history).map_err(NoAnswer::Refused)?,
        _ => return Err(refused("it gave no answer")),
    };
    Ok(Joining::Joined(history))
}

fn is_in(history: &[Version], member: &Member) -> bool {
    let newest = history.last();
    newest.is_some_and(|version| version.run.members.iter().any(|one| one.peer == member.peer))
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

/// Exchanges the run and all notes with another member. Returns the notes that it was told.
///
/// # Errors
/// If it does not answer, or its run contradicts this one.
pub fn sync(site: &Site, member: &Member, addresses: &[String]) -> Result<Notes, NoAnswer> {
    let text = |error: ConfigError| refused(error.to_string());
    let book = site.book().map_err(text)?;
    let (run, number, digest) = (book.run().id.clone(), book.run().number, book.run().digest());
    let ask = Question::Sync { run, number, digest, notes: book.notes.clone() };
    let own = book.me().map(|me| book.addresses_of(me)).unwrap_or_default();
    let addresses: Vec<String> = addresses.iter().map(|one| at_our_relay(one, own)).collect();
    let caller = (&site.caller, site.proxy.as_ref());
    let reply = question(caller, (&member.peer, &addresses), &ask, EXCHANGE)?;
    let Reply::Sync { versions, notes } = reply else {
        return Err(refused("it gave no answer"));
    };
    let result = site.change(|book| {
        let extended = book.extend(versions);
        book.learn(notes);
        site.tend(book)?;
        // A contradiction is kept in the book.
        Ok(extended)
    });
    result.map_err(text)?.map(|_| book.notes).map_err(NoAnswer::Refused)
}
