//! The run as a site knows it: its history, what sites have told, who asks to join.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use gradvine::net::PeerId;
use serde::{Deserialize, Serialize};

use crate::{
    document::{FORMAT, Invitation, Member, Run, Version},
    notes::{Choice, News, Notes},
};

/// The most digests that a site lists of its history.
const MOST_LISTED: usize = 32;

/// Seconds since 1970.
pub fn now() -> u64 {
    #[cfg(test)]
    if let Some(now) = crate::tests::CLOCK.get() {
        return now;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A site that asks to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Who asks.
    pub member: Member,
    /// The PeerId of its ticket.
    pub ticket: String,
    /// The signature of the ticket's key for the site's keys.
    pub bearer: String,
    /// Whether it may join: its user has read the right fingerprint aloud, or none is needed.
    pub approved: bool,
}

/// A stage that the node of this site has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// The number of the version that the stage begins with.
    pub stage: u64,
    /// The digest of that version.
    pub begins: String,
    /// The rounds of the stages before it.
    pub rounds_before: u64,
}

/// Another version of a number that this history has: both have the consent that they need.
/// Members have broken the rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conflict {
    /// The number of the two versions.
    pub number: u64,
    /// These have, and have no say in which one counts.
    pub culprits: Vec<String>,
    /// The other version, and those that continue it.
    pub rival: Vec<Version>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (names, number) = (self.culprits.join(", "), self.number);
        write!(
            f,
            "{names} signed what contradicts itself: the run has two versions with the number \
             {number}"
        )
    }
}

/// When a site proposes again what it proposes by itself, and others have declined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// The number of the version that was proposed.
    pub number: u64,
    /// How often.
    pub tries: u32,
    /// How many looks at the book this site lets pass.
    pub pause: u32,
}

/// The run as a site knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Book {
    /// The format of this file.
    pub format: u32,
    /// The name of this site.
    pub site: String,
    /// The PeerId of its node: a member of its name with another one is not this site.
    pub peer: String,
    /// All versions of the run, the first one first. There is at least one.
    pub history: Vec<Version>,
    /// What sites have told.
    #[serde(default)]
    pub notes: Notes,
    /// The sites that ask this one to join.
    #[serde(default)]
    pub requests: Vec<Request>,
    /// The open tickets of this site that are used, and by which PeerId.
    #[serde(default)]
    pub used: BTreeMap<String, String>,
    /// The tickets of this site that need no approval.
    #[serde(default)]
    pub automatic: BTreeSet<String>,
    /// The addresses that its user has given; none if it finds them itself.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// The digests of the versions that this site's user has declined, or its node file.
    #[serde(default)]
    pub declined: BTreeSet<String>,
    /// The stages that its node has begun. The files of the last one are in the node's run
    /// directory.
    #[serde(default)]
    pub training: Vec<Training>,
    /// What this site proposes again.
    #[serde(default)]
    pub retry: Retry,
    /// The history of another site that contradicts this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<Conflict>,
    /// Contradictions that have ended, by their numbers. The first one of a member that has broken
    /// the rule holds the version that lost.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settled: BTreeMap<u64, Conflict>,
}

/// What may be done with a ticket.
pub(crate) enum Access<'a> {
    /// Its bearer sees the run, and may ask to join.
    Open(&'a Invitation),
    /// The site with this PeerId has joined with it.
    Joined(&'a str),
    /// Nothing, and why.
    Closed(String),
}

impl Book {
    /// The book of a site with this PeerId, which begins with this history.
    pub fn new(site: impl Into<String>, peer: String, history: Vec<Version>) -> Book {
        Book {
            format: FORMAT,
            site: site.into(),
            peer,
            history,
            notes: Notes::default(),
            requests: Vec::new(),
            used: BTreeMap::new(),
            automatic: BTreeSet::new(),
            addresses: Vec::new(),
            declined: BTreeSet::new(),
            training: Vec::new(),
            retry: Retry::default(),
            conflict: None,
            settled: BTreeMap::new(),
        }
    }

    /// The newest version of the run.
    pub fn run(&self) -> &Run {
        &self.history.last().expect("a history has a version").run
    }

    /// This site, while it is a member.
    pub fn me(&self) -> Option<&Member> {
        self.run().member(&self.site).filter(|member| member.peer == self.peer)
    }

    /// Whether this site founded the run, and alone decides before it begins.
    pub fn decides(&self) -> bool {
        !self.run().started && self.run().founder == self.site
    }

    /// The addresses of a member: as it has announced them, or as it joined with.
    pub fn addresses_of<'a>(&'a self, member: &'a Member) -> &'a [String] {
        let announced = self.notes.announcements.iter().find(|one| one.site == member.name);
        announced.map_or(&member.addresses, |one| &one.addresses)
    }

    /// What the bearer of this ticket of this site may do. A ticket that was replaced, or whose
    /// inviter has withdrawn it, is good for nothing; with one whose key has joined nobody reads
    /// the run.
    pub(crate) fn access(&self, ticket: &str) -> Access<'_> {
        let joined = self.history.iter().find_map(|version| {
            let admission = version.run.admissions.iter().find(|one| one.ticket == ticket)?;
            version.run.member(&admission.site)
        });
        if let Some(member) = joined {
            return Access::Joined(&member.peer);
        }
        let ours = self.run().invitation(ticket).filter(|one| one.by == self.site);
        match ours {
            Some(one) if one.expires > now() => Access::Open(one),
            Some(one) => Access::Closed(format!(
                "the ticket for {} has expired: ask {} for a new one (gradvine invite)",
                one.site, one.by
            )),
            None => Access::Closed("this ticket is not, or no longer, one of this run".into()),
        }
    }

    /// Who may ask this site: its members, those that were removed (to hear that they were), and
    /// the bearers of its tickets.
    pub fn callers(&self) -> BTreeSet<PeerId> {
        let members = self.history.iter().flat_map(|version| &version.run.members);
        let members = members.map(|member| &member.caller);
        let ours = |one: &&Invitation| one.by == self.site;
        let invited = self.run().invitations.iter().filter(ours).map(|one| &one.ticket);
        // They hear that the ticket is used, until it expires.
        let before = self.history.iter().flat_map(|version| &version.run.invitations);
        let before = before.filter(ours).filter(|one| one.expires > now()).map(|one| &one.ticket);
        let used = before.filter(|ticket| matches!(self.access(ticket), Access::Joined(_)));
        members.chain(invited).chain(used).filter_map(|peer| peer.parse().ok()).collect()
    }

    /// Forgets who asks with tickets that are no longer open.
    pub(crate) fn close_tickets(&mut self) {
        let open: BTreeSet<String> = (self.run().invitations.iter())
            .filter(|one| matches!(self.access(&one.ticket), Access::Open(_)))
            .map(|one| one.ticket.clone())
            .collect();
        self.requests.retain(|one| open.contains(&one.ticket));
        self.used.retain(|ticket, _| open.contains(ticket));
        let own = self.notes.proposals.iter().filter(|one| one.by == self.site);
        let pending = own.flat_map(|one| &one.run.invitations).map(|one| one.ticket.clone());
        let pending: BTreeSet<String> = pending.chain(open).collect();
        self.automatic.retain(|ticket| pending.contains(ticket));
    }

    /// The digest of the version at this place of the history.
    fn digest_at(&self, at: usize) -> String {
        let named = self.history.get(at + 1).and_then(|next| next.run.previous.clone());
        named.unwrap_or_else(|| self.history[at].run.digest())
    }

    /// The digests of the newest versions, the last one last; with a contradiction of those before
    /// it, as the signatures that others have of later versions may end it.
    pub(crate) fn digests(&self) -> Vec<String> {
        let is_agreed = |one: &&Version| {
            self.conflict.as_ref().is_none_or(|conflict| one.run.number < conflict.number)
        };
        let end = self.history.iter().take_while(is_agreed).count();
        (end.saturating_sub(MOST_LISTED)..end).map(|at| self.digest_at(at)).collect()
    }

    /// The versions of this part of the history after the newest one that is listed: all, if none
    /// is.
    pub(crate) fn after<'a>(&self, history: &'a [Version], listed: &[String]) -> &'a [Version] {
        let known = (0..history.len()).rev().find(|at| listed.contains(&self.digest_at(*at)));
        &history[known.map_or(0, |at| at + 1)..]
    }

    /// Continues the history with versions of another site. Whether there is a new one.
    ///
    /// # Errors
    /// If a version is wrong, or contradicts one that is known: then the book notes it.
    pub fn extend(&mut self, versions: Vec<Version>) -> Result<bool, String> {
        let before = self.run().number;
        let mut result = Ok(());
        // Its history, and a rival of it, if it has met one.
        let follows =
            |one: &Version, next: &Version| one.run.number.checked_add(1) == Some(next.run.number);
        for part in versions.chunk_by(follows) {
            result = result.and(self.continue_with(part));
        }
        result.map(|()| self.run().number > before)
    }

    fn continue_with(&mut self, versions: &[Version]) -> Result<(), String> {
        let mut new = 0;
        for version in versions {
            let place = self.history.iter().position(|known| known.run == version.run);
            let Some(place) = place else { break };
            self.add_signatures(place, version);
            new += 1;
        }
        let next = self.run().number + 1;
        match versions.get(new) {
            Some(version) if version.run.number != next => self.contradicts(&versions[new..]),
            Some(_) => {
                let mut follows = Ok(());
                for version in &versions[new..] {
                    follows = version.check(Some(self.run()));
                    if follows.is_err() {
                        break;
                    }
                    self.history.push(version.clone());
                }
                self.tidy();
                self.settle();
                follows
            }
            None => {
                self.settle();
                Ok(())
            }
        }
    }

    /// Takes over the signatures of a known version: they choose it, and those before it.
    fn add_signatures(&mut self, place: usize, version: &Version) {
        let Some(before) = place.checked_sub(1).map(|at| &self.history[at].run) else { return };
        let known = &self.history[place].signatures;
        if version.signatures.keys().any(|name| !known.contains_key(name))
            && version.check(Some(before)).is_ok()
        {
            self.history[place].add_signatures(version);
        }
    }

    /// Forgets what is not of the newest version.
    fn tidy(&mut self) {
        self.notes.prune(&self.history);
        self.close_tickets();
    }

    /// Another site has other versions from here on.
    fn contradicts(&mut self, rival: &[Version]) -> Result<(), String> {
        let number = rival[0].run.number;
        let place = self.place_of(number);
        // Anybody may invent a version, and a whole other run; only signatures contradict.
        let Some(place) = place.filter(|place| *place > 0) else {
            return Err(format!("its version {number} is of another run, or of no history"));
        };
        let first = &self.history[place - 1].run;
        let mut before = first;
        let mut valid = Vec::new();
        for version in rival {
            match version.check(Some(before)) {
                Ok(()) => valid.push(version.clone()),
                Err(why) if valid.is_empty() => return Err(why),
                Err(_) => break,
            }
            before = &version.run;
        }
        let culprits = first.culprits([&self.history[place], &valid[0]]);
        let mut new = Conflict { number, culprits, rival: valid };
        let known = self.conflict.as_ref().map(|known| &known.rival[..]).unwrap_or_default();
        let both = new.rival.iter_mut().zip(known);
        both.take_while(|(new, known)| new.run == known.run)
            .for_each(|(new, known)| new.add_signatures(known));
        if self.winner(&new) == Some(self.digest_at(place)) {
            self.keep_proof(new);
            return Ok(());
        }
        let is_newer = self.conflict.as_ref().is_none_or(|known| {
            let is_same = known.rival[0].run == new.rival[0].run;
            known.number > number
                || is_same && known.rival.len() <= new.rival.len()
                || self.winner(&new) == Some(new.rival[0].run.digest())
        });
        if is_newer {
            self.conflict = Some(new);
        }
        self.settle();
        self.conflict.as_ref().map_or(Ok(()), |conflict| Err(conflict.to_string()))
    }

    /// Keeps a contradiction that has ended, with its proof if there is no other one.
    fn keep_proof(&mut self, mut conflict: Conflict) {
        let is_known = |name| self.settled.values().any(|one| one.culprits.contains(name));
        let is_new = !conflict.culprits.iter().all(is_known);
        conflict.rival.truncate(usize::from(is_new));
        self.settled.entry(conflict.number).or_insert(conflict);
    }

    /// The place in the history of the version with this number.
    fn place_of(&self, number: u64) -> Option<usize> {
        self.history.iter().position(|one| one.run.number == number)
    }

    /// Of two versions with this number the one that this site has chosen, if it has signed a later
    /// one of its history.
    pub(crate) fn chosen_by_signing(&self, number: u64) -> Option<String> {
        let place = self.place_of(number)?;
        has_signed(&self.history[place + 1..], self.me()?).then(|| self.digest_at(place))
    }

    /// The digest of the version with which more than half go on, of the members that are so still
    /// and have broken no rule: those that have chosen it, or have signed a version after it and
    /// none after the other one.
    fn winner(&self, conflict: &Conflict) -> Option<String> {
        let before = self.history.iter().find(|one| one.run.number + 1 == conflict.number)?;
        let votes = |member: &&Member| {
            let now = self.run().member(&member.name);
            now.is_some_and(|now| now.peer == member.peer)
                && !conflict.culprits.contains(&member.name)
        };
        let voters: Vec<&Member> = before.run.members.iter().filter(votes).collect();
        let place = self.place_of(conflict.number)?;
        let (ours, theirs) = (self.digest_at(place), conflict.rival[0].run.digest());
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in &voters {
            let is_its = |one: &&Choice| one.number == conflict.number && one.site == member.name;
            let both = [&self.history[place + 1..], &conflict.rival[1..]];
            let both = both.map(|later| has_signed(later, member));
            let vote = match (self.notes.choices.iter().find(is_its), both) {
                (Some(choice), _) => &choice.digest,
                (None, [true, false]) => &ours,
                (None, [false, true]) => &theirs,
                (None, _) => continue,
            };
            *votes.entry(vote).or_default() += 1;
        }
        let most = votes.into_iter().find(|(_, count)| 2 * count > voters.len());
        most.map(|(digest, _)| digest.to_string())
    }

    /// Ends a contradiction once enough members have chosen a version.
    pub(crate) fn settle(&mut self) {
        let Some(mut conflict) = self.conflict.clone() else { return };
        let Some(winner) = self.winner(&conflict) else { return };
        let Some(place) = self.place_of(conflict.number) else { return };
        if winner == conflict.rival[0].run.digest() {
            let ours = self.history.split_off(place);
            self.history.extend(std::mem::replace(&mut conflict.rival, ours));
            self.tidy();
        } else if winner != self.digest_at(place) {
            return;
        }
        self.conflict = None;
        self.keep_proof(conflict);
    }

    /// The contradictions that have ended, and whose members are still in the run.
    pub fn proofs(&self) -> impl Iterator<Item = &Conflict> {
        let is_member = |name: &String| self.run().member(name).is_some();
        self.settled
            .values()
            .filter(move |one| !one.rival.is_empty() && one.culprits.iter().any(is_member))
    }

    /// Takes over what is new and signed in the notes of another site.
    pub fn learn(&mut self, news: News) {
        self.notes.merge(news, &self.history, now());
        self.settle();
    }

    /// The history up to the version that removed this caller, if it was a member.
    pub(crate) fn until_removed(&self, caller: &str) -> Option<&[Version]> {
        let was = self.history.iter().rposition(|version| version.run.caller(caller).is_some())?;
        self.history.get(..was + 2)
    }

    /// The version with which the present stage of training begins.
    pub fn stage(&self) -> Option<&Run> {
        newest_stage(&self.history)
    }

    /// The version with which the stage before this one began.
    pub fn stage_before(&self, stage: u64) -> Option<&Run> {
        let end = self.history.iter().position(|version| version.run.number == stage)?;
        newest_stage(&self.history[..end])
    }

    /// The version with which this stage of its node begins, if it is one of the history.
    pub fn begun(&self, training: &Training) -> Option<&Run> {
        let at = self.history.iter().position(|one| one.run.number == training.stage)?;
        (self.digest_at(at) == training.begins).then(|| &self.history[at].run)
    }

    /// The newest stage that its node has begun, that is over, and of which this site has not said
    /// how it has ended.
    pub fn unsaid(&self) -> Option<&Training> {
        let now = self.stage().map(|run| run.number);
        let is_over = |one: &&Training| self.begun(one).is_some_and(|run| Some(run.number) != now);
        let newest = self.training.iter().rev().find(is_over)?;
        let mut said = self.notes.ends.iter().filter(|end| end.site == self.site);
        said.all(|end| end.stage < newest.stage).then_some(newest)
    }
}

/// Whether this member, with this key, has signed one of these versions.
fn has_signed(versions: &[Version], member: &Member) -> bool {
    versions.iter().any(|one| {
        let same = one.run.member(&member.name).filter(|now| now.peer == member.peer);
        same.is_some() && one.signatures.contains_key(&member.name)
    })
}

/// The version with which the newest stage of this history begins.
fn newest_stage(history: &[Version]) -> Option<&Run> {
    let mut versions = history.iter().rev().map(|version| &version.run);
    let newest = versions.next().filter(|run| run.started)?;
    Some(versions.take_while(|run| run.trains_as(newest)).last().unwrap_or(newest))
}
