//! What sites tell each other beside the versions of the run: addresses, proposals with their
//! answers, how stages have ended, and how a contradiction ends. Each is signed; a site keeps what
//! is of its run and passes it on.
//!
//! Two sites list what they know by short names, and send each other what is new. Every field has
//! a limit, and so has a message: the shortest notes go first, so that long ones of one member do
//! not keep the others' back.

use std::collections::{BTreeMap, BTreeSet};

use gradvine::net::Keypair;
use serde::{Deserialize, Serialize};

use crate::{
    document::{Run, Version},
    ends::StageEnd,
    proposal::{Proposal, Replies, proposal_id},
    sign::{About, id, is_signed, sign},
    text::check_addresses,
};

/// The most bytes of notes in a message, unless one note alone is longer.
const LONGEST_NEWS: usize = 1 << 19;

/// The most proposals of one member for one version, before those that were rejected give way.
const MOST_OF_ONE: usize = 16;

/// The most of them that nobody else has accepted, and that may still be adopted.
const MOST_UNHEARD: usize = 2;

/// The most names of notes that a site has refused.
const MOST_REFUSED: usize = 1024;

/// How far ahead a clock may be, in seconds: a day.
pub(crate) const AHEAD: u64 = 86_400;

/// Where a site is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Announcement {
    /// The id of the run.
    pub run: String,
    /// The site that says so.
    pub site: String,
    /// A later one has a greater number: milliseconds since 1970 at the site, or one more than the
    /// number before.
    pub number: u64,
    /// Its addresses, in the order in which they are tried.
    pub addresses: Vec<String>,
    /// Signed by the site.
    pub signature: String,
}

impl Announcement {
    fn words(&self) -> Vec<u8> {
        let words = (&self.run, &self.site, self.number, &self.addresses);
        serde_json::to_vec(&words).expect("texts serialise")
    }

    fn id(&self) -> String {
        id("addresses", &self.words())
    }

    /// The announcement, signed.
    #[must_use]
    pub(crate) fn signed(self, key: &Keypair) -> Announcement {
        Announcement { signature: sign(key, About::Addresses, &self.words()), ..self }
    }

    /// Whether its number is none of the future: a clock that was ahead must not count for ever.
    pub(crate) fn is_timely(&self, now: u64) -> bool {
        self.number <= (now + AHEAD) * 1000
    }

    fn is_valid(&self, run: &Run) -> bool {
        let Some(member) = run.member(&self.site) else { return false };
        self.run == run.id
            && check_addresses(&self.addresses).is_ok()
            && is_signed(&member.peer, About::Addresses, &self.words(), &self.signature)
    }
}

/// With which of two versions of one number a site goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The id of the run.
    pub run: String,
    /// The site that says so.
    pub site: String,
    /// The number of the versions.
    pub number: u64,
    /// The digest of the one that counts.
    pub digest: String,
    /// When it was chosen, in seconds since 1970: the last choice counts.
    pub time: u64,
    /// Signed by the site.
    pub signature: String,
}

impl Choice {
    fn words(&self) -> Vec<u8> {
        let words = (&self.run, &self.site, self.number, &self.digest, self.time);
        serde_json::to_vec(&words).expect("texts serialise")
    }

    fn id(&self) -> String {
        id("choice", &self.words())
    }

    /// The choice, signed.
    #[must_use]
    pub(crate) fn signed(self, key: &Keypair) -> Choice {
        Choice { signature: sign(key, About::Settles, &self.words()), ..self }
    }

    /// Whether a member of the version before those two has signed it.
    fn is_valid(&self, history: &[Version], now: u64) -> bool {
        let before = history.iter().find(|one| one.run.number + 1 == self.number);
        let member = before.filter(|one| one.run.id == self.run);
        let member = member.and_then(|one| one.run.member(&self.site));
        member.is_some_and(|member| {
            self.time <= now + AHEAD
                && self.digest.len() == 64
                && is_signed(&member.peer, About::Settles, &self.words(), &self.signature)
        })
    }
}

/// All notes of a run that a site knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Notes {
    /// The newest announcement of each site.
    pub announcements: Vec<Announcement>,
    /// How stages have ended: of each site the newest.
    pub ends: Vec<StageEnd>,
    /// How contradictions end: of each site and number the newest.
    pub choices: Vec<Choice>,
    /// The proposals for the next version.
    pub proposals: Vec<Proposal>,
    /// The names of notes that count for nothing here, so that they are not sent again.
    pub refused: BTreeSet<String>,
    /// How many proposals for the next version this site has heard of each member.
    pub tries: BTreeMap<String, usize>,
}

/// The notes of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct News {
    /// Addresses.
    pub announcements: Vec<Announcement>,
    /// Ends of stages.
    pub ends: Vec<StageEnd>,
    /// Ends of contradictions.
    pub choices: Vec<Choice>,
    /// Proposals that the other site does not know.
    pub proposals: Vec<Proposal>,
    /// Answers to proposals that it knows.
    pub replies: Vec<Replies>,
}

impl News {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        *self == News::default()
    }

    fn add(&mut self, other: News) {
        self.announcements.extend(other.announcements);
        self.ends.extend(other.ends);
        self.choices.extend(other.choices);
        self.proposals.extend(other.proposals);
        self.replies.extend(other.replies);
    }
}

impl Notes {
    /// The announced addresses, by the names of sites.
    pub fn addresses(&self) -> BTreeMap<String, Vec<String>> {
        let of = |one: &Announcement| (one.site.clone(), one.addresses.clone());
        self.announcements.iter().map(of).collect()
    }

    /// How the stage that this version begins has ended at this site, as far as it is known.
    pub fn end_of(&self, stage: &Run, site: &str) -> Option<&StageEnd> {
        self.ends.iter().find(|end| end.stage == stage.number && end.site == site)
    }

    /// The names of all notes that this site knows, or has refused.
    pub fn known(&self) -> BTreeSet<String> {
        let replies = self.proposals.iter().flat_map(|one| {
            let replies = one.replies(|_| true);
            replies.ids().collect::<Vec<_>>()
        });
        (self.announcements.iter().map(Announcement::id))
            .chain(self.ends.iter().map(StageEnd::id))
            .chain(self.choices.iter().map(Choice::id))
            .chain(self.proposals.iter().map(Proposal::id))
            .chain(replies)
            .chain(self.refused.iter().cloned())
            .collect()
    }

    /// The notes whose names `is_new` accepts, as many as a message takes, the shortest first.
    pub(crate) fn news(&self, is_new: impl Fn(&str) -> bool) -> News {
        let none = News::default;
        let mut all = Vec::new();
        for one in self.announcements.iter().filter(|one| is_new(&one.id())) {
            all.push(News { announcements: vec![one.clone()], ..none() });
        }
        for one in self.ends.iter().filter(|one| is_new(&one.id())) {
            all.push(News { ends: vec![one.clone()], ..none() });
        }
        for one in self.choices.iter().filter(|one| is_new(&one.id())) {
            all.push(News { choices: vec![one.clone()], ..none() });
        }
        for one in &self.proposals {
            let replies = one.replies(&is_new);
            if is_new(&one.id()) {
                all.push(News { proposals: vec![one.clone()], ..none() });
            } else if !replies.accepts.is_empty() || !replies.declines.is_empty() {
                all.push(News { replies: vec![replies], ..none() });
            }
        }
        let length = |one: &News| serde_json::to_vec(one).map_or(usize::MAX, |bytes| bytes.len());
        let mut all: Vec<(usize, News)> = all.into_iter().map(|one| (length(&one), one)).collect();
        all.sort_by_key(|(length, _)| *length);
        let (mut news, mut total) = (News::default(), 0usize);
        for (length, one) in all {
            total = total.saturating_add(length);
            if total > LONGEST_NEWS && !news.is_empty() {
                break;
            }
            news.add(one);
        }
        news
    }

    /// Takes over what is new and signed in the notes of another site.
    pub fn merge(&mut self, news: News, history: &[Version], now: u64) {
        let Some(current) = history.last().map(|version| &version.run) else { return };
        for one in news.announcements {
            let id = one.id();
            let counts = self.announce(one, current, now);
            self.note(id, counts);
        }
        for one in news.ends {
            let id = one.id();
            let counts = self.end(one, history);
            self.note(id, counts);
        }
        for one in news.choices {
            let id = one.id();
            let counts = self.choose(one, history, now);
            self.note(id, counts);
        }
        for one in news.proposals {
            let id = one.id();
            let counts = self.propose(one, current, now + AHEAD);
            self.note(id, counts);
        }
        for one in news.replies {
            let is_of =
                |known: &&mut Proposal| known.by == one.by && known.run.digest() == one.version;
            if let Some(known) = self.proposals.iter_mut().find(is_of) {
                known.hear(one, current);
            } else if one.accepts.keys().any(|name| *name != one.by) {
                // One that was refused while only its author had signed it counts now.
                self.refused.remove(&proposal_id(&one.version, &one.by));
            }
        }
    }

    /// Notes what counts for nothing.
    fn note(&mut self, id: String, counts: bool) {
        if counts {
            return;
        }
        if self.refused.len() >= MOST_REFUSED {
            self.refused.clear();
        }
        self.refused.insert(id);
    }

    fn announce(&mut self, one: Announcement, current: &Run, now: u64) -> bool {
        if !one.is_timely(now) {
            // It may be so later.
            return true;
        }
        let mut known = self.announcements.iter().filter(|known| known.site == one.site);
        let is_older = known.any(|known| known.is_timely(now) && known.number >= one.number);
        if is_older || !one.is_valid(current) {
            return false;
        }
        self.announcements.retain(|known| known.site != one.site);
        self.announcements.push(one);
        self.announcements.sort_by(|a, b| a.site.cmp(&b.site));
        true
    }

    /// Of two ends of one stage that a site has signed all sites retain the same one.
    fn end(&mut self, one: StageEnd, history: &[Version]) -> bool {
        let known = self.ends.iter().find(|end| end.site == one.site);
        let order = |end: &StageEnd| (end.stage, std::cmp::Reverse(end.id()));
        if known.is_some_and(|known| order(known) >= order(&one)) || !one.is_valid(history) {
            return false;
        }
        self.ends.retain(|end| end.site != one.site);
        self.ends.push(one);
        self.ends.sort_by(|a, b| a.site.cmp(&b.site));
        true
    }

    fn choose(&mut self, one: Choice, history: &[Version], now: u64) -> bool {
        let is_same = |known: &Choice| known.site == one.site && known.number == one.number;
        let known = self.choices.iter().find(|known| is_same(known));
        // Of two at one time all sites retain the same one.
        let order = |one: &Choice| (one.time, one.digest.clone());
        if known.is_some_and(|known| order(known) >= order(&one)) || !one.is_valid(history, now) {
            return false;
        }
        self.choices.retain(|known| !is_same(known));
        self.choices.push(one);
        self.choices.sort_by(|a, b| (a.number, &a.site).cmp(&(b.number, &b.site)));
        true
    }

    /// Takes over a proposal. A member may sign several; those that another member has accepted
    /// must be known to all, so that they can be declined.
    fn propose(&mut self, one: Proposal, current: &Run, latest: u64) -> bool {
        let is_same = |known: &&mut Proposal| known.by == one.by && known.run == one.run;
        if let Some(known) = self.proposals.iter_mut().find(is_same) {
            known.hear(one.replies(|_| true), current);
            return true;
        }
        let Ok(one) = one.checked(current, latest) else { return false };
        let of_it = || self.proposals.iter().filter(|known| known.by == one.by);
        let unheard = |one: &&Proposal| one.accepts.len() == 1 && !one.is_rejected(current);
        if unheard(&&one) && of_it().filter(unheard).count() >= MOST_UNHEARD {
            return false;
        }
        if of_it().count() >= MOST_OF_ONE {
            // Whoever still waits for a rejected one tells this site of it again. Those that others
            // have accepted stay: these show later that it was declined.
            let gives_way = |known: &Proposal| {
                known.by == one.by && known.accepts.len() == 1 && known.is_rejected(current)
            };
            if let Some(at) = self.proposals.iter().position(gives_way) {
                self.refused.insert(self.proposals[at].id());
                self.proposals.remove(at);
            }
        }
        *self.tries.entry(one.by.clone()).or_default() += 1;
        self.proposals.push(one);
        true
    }

    /// Whether this member has proposed so often for one version that nothing of it is accepted
    /// without a user any more.
    pub(crate) fn is_persistent(&self, by: &str) -> bool {
        self.tries.get(by).is_some_and(|tries| *tries > MOST_OF_ONE)
    }

    /// The proposal that has enough consent, as a version.
    pub fn adopted(&self, current: &Run) -> Option<Version> {
        let one = self.proposals.iter().find(|one| one.is_adopted(current))?;
        Some(Version { run: one.run.clone(), signatures: one.accepts.clone() })
    }

    /// Forgets what is not of the newest version or of its members.
    pub fn prune(&mut self, history: &[Version]) {
        let Some(current) = history.last().map(|version| &version.run) else { return };
        let continues = |one: &Proposal| one.run.previous == Some(current.digest());
        self.proposals.retain(|one| one.run.number == current.number + 1 && continues(one));
        // A member with a new key is elsewhere.
        self.announcements.retain(|one| one.is_valid(current));
        self.ends.retain(|end| end.is_of(history));
        self.refused.clear();
        self.tries.clear();
    }
}
