//! What sites tell each other beside the versions of the run: addresses, proposals with their
//! answers, and how stages have ended. Each is signed, and the newest counts; a site keeps what is
//! of its run and passes it on.

use std::collections::BTreeMap;

use gradvine::net::Keypair;
use serde::{Deserialize, Serialize};

use crate::{
    document::{LONGEST_ADDRESS, MOST_ADDRESSES, Run, Version},
    sign::{About, is_signed, sign},
};

/// The most bytes of the reason of an answer.
const LONGEST_REASON: usize = 500;

/// Where a site is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Announcement {
    /// The id of the run.
    pub run: String,
    /// The site that says so.
    pub site: String,
    /// A later one has a greater number: milliseconds since 1970 at the site.
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

    /// The announcement, signed.
    #[must_use]
    pub(crate) fn signed(self, key: &Keypair) -> Announcement {
        Announcement { signature: sign(key, About::Addresses, &self.words()), ..self }
    }

    fn is_valid(&self, run: &Run) -> bool {
        let Some(member) = run.member(&self.site) else { return false };
        self.run == run.id
            && self.addresses.len() <= MOST_ADDRESSES
            && self.addresses.iter().all(|one| one.len() <= LONGEST_ADDRESS)
            && is_signed(&member.peer, About::Addresses, &self.words(), &self.signature)
    }
}

/// How a stage of training has ended at a site, and what a next stage takes from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageEnd {
    /// The id of the run.
    pub run: String,
    /// The site that says so.
    pub site: String,
    /// The number of the version that the stage began with.
    pub stage: u64,
    /// The rounds of all stages so far.
    pub rounds: u64,
    /// The stage of its newest model; none if no rounds were done yet.
    pub model: Option<u64>,
    /// Whether that is the mean of all sites. Otherwise the stage was cut off, as a site was gone,
    /// and it is this site's own.
    pub mean: bool,
    /// The digest of the model.
    pub digest: String,
    /// Settings of the experiment that the model needs, such as the scale of its features.
    pub settings: Vec<String>,
    /// Signed by the site.
    pub signature: String,
}

impl StageEnd {
    fn words(&self) -> Vec<u8> {
        let model = (self.model, self.mean, &self.digest, &self.settings);
        let words = (&self.run, &self.site, self.stage, self.rounds, model);
        serde_json::to_vec(&words).expect("texts serialise")
    }

    /// Whether two sites have the same results.
    pub(crate) fn is_like(&self, other: &StageEnd) -> bool {
        let of = |end: &StageEnd| {
            (end.stage, end.rounds, end.model, end.mean, end.digest.clone(), end.settings.clone())
        };
        of(self) == of(other)
    }

    /// The record, signed.
    #[must_use]
    pub(crate) fn signed(self, key: &Keypair) -> StageEnd {
        StageEnd { signature: sign(key, About::Ends, &self.words()), ..self }
    }

    /// Whether one of the run's members of any version has signed it.
    fn is_valid(&self, history: &[Version]) -> bool {
        let begins = history.iter().find(|version| version.run.number == self.stage);
        begins.and_then(|version| version.run.member(&self.site)).is_some_and(|member| {
            history.iter().all(|version| version.run.id == self.run)
                && is_signed(&member.peer, About::Ends, &self.words(), &self.signature)
        })
    }
}

/// Why a member declines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// For people.
    pub reason: String,
    /// Signed by the member.
    pub signature: String,
}

/// A version that is proposed, with the answers so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// The version.
    pub run: Run,
    /// The member that proposes it.
    pub by: String,
    /// The signatures of the members that accept it, its author's among them.
    pub accepts: BTreeMap<String, String>,
    /// The members that decline it.
    pub declines: BTreeMap<String, Refusal>,
}

impl Proposal {
    /// Whether enough have accepted it.
    pub fn is_adopted(&self, current: &Run) -> bool {
        let (voters, need) = current.voters(&self.run);
        voters.iter().filter(|one| self.accepts.contains_key(&one.name)).count() >= need
    }

    /// Whether so many have declined it that it can never be adopted.
    pub fn is_rejected(&self, current: &Run) -> bool {
        let (voters, need) = current.voters(&self.run);
        let open = voters.iter().filter(|one| !self.declines.contains_key(&one.name));
        open.count() < need
    }

    /// What a member that declines signs.
    pub(crate) fn words_of_refusal(&self, reason: &str) -> Vec<u8> {
        [self.run.digest().as_bytes(), b"\0", reason.as_bytes()].concat()
    }

    /// Drops answers that are not signed by a member; an error if nothing is left to keep.
    fn checked(mut self, current: &Run) -> Result<Proposal, String> {
        self.run.follows(Some(current))?;
        let digest = self.run.digest();
        let member = |name: &str| current.member(name).map(|member| member.peer.as_str());
        self.accepts.retain(|name, signature| {
            member(name)
                .is_some_and(|peer| is_signed(peer, About::Accepts, digest.as_bytes(), signature))
        });
        let proposal = self.clone();
        self.declines.retain(|name, refusal| {
            let words = proposal.words_of_refusal(&refusal.reason);
            refusal.reason.len() <= LONGEST_REASON
                && member(name).is_some_and(|peer| {
                    is_signed(peer, About::Declines, &words, &refusal.signature)
                })
        });
        match self.accepts.contains_key(&self.by) {
            true => Ok(self),
            false => Err(format!("its author {} has not signed it", self.by)),
        }
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
    /// The proposals for the next version: of each member at most one.
    pub proposals: Vec<Proposal>,
}

impl Notes {
    /// The announced addresses, by the names of sites.
    pub fn addresses(&self) -> BTreeMap<String, Vec<String>> {
        let of = |one: &Announcement| (one.site.clone(), one.addresses.clone());
        self.announcements.iter().map(of).collect()
    }

    /// How this stage has ended at this site, as far as it is known.
    pub fn end_of(&self, stage: u64, site: &str) -> Option<&StageEnd> {
        self.ends.iter().find(|end| end.stage == stage && end.site == site)
    }

    /// Takes over what is new and signed in the notes of another site. Whether anything changes.
    pub fn merge(&mut self, other: Notes, history: &[Version]) -> bool {
        let Some(current) = history.last().map(|version| &version.run) else { return false };
        let mut changes = false;
        for one in other.announcements {
            changes |= self.announce(one, current);
        }
        for one in other.ends {
            let known = self.ends.iter().find(|end| end.site == one.site);
            if known.is_none_or(|end| end.stage < one.stage) && one.is_valid(history) {
                self.ends.retain(|end| end.site != one.site);
                self.ends.push(one);
                changes = true;
            }
        }
        for one in other.proposals {
            changes |= self.answer(one, current);
        }
        changes
    }

    fn announce(&mut self, one: Announcement, current: &Run) -> bool {
        let known = self.announcements.iter().find(|known| known.site == one.site);
        if known.is_some_and(|known| known.number >= one.number) || !one.is_valid(current) {
            return false;
        }
        self.announcements.retain(|known| known.site != one.site);
        self.announcements.push(one);
        self.announcements.sort_by(|a, b| a.site.cmp(&b.site));
        true
    }

    /// Takes over a proposal, or the answers to it.
    fn answer(&mut self, one: Proposal, current: &Run) -> bool {
        let known = self.proposals.iter_mut().find(|known| known.run == one.run);
        if let Some(known) = known {
            let known_answers = |one: &Proposal| (one.accepts.len(), one.declines.len());
            let before = known_answers(known);
            if let Ok(checked) = one.checked(current) {
                for (name, signature) in checked.accepts {
                    known.accepts.entry(name).or_insert(signature);
                }
                for (name, refusal) in checked.declines {
                    known.declines.entry(name).or_insert(refusal);
                }
            }
            return known_answers(known) != before;
        }
        let Ok(one) = one.checked(current) else { return false };
        // A member's next proposal of this number counts once its first one has failed.
        let earlier = self.proposals.iter().position(|known| known.by == one.by);
        match earlier {
            Some(at) if !self.proposals[at].is_rejected(current) => false,
            Some(at) => {
                self.proposals[at] = one;
                true
            }
            None => {
                self.proposals.push(one);
                true
            }
        }
    }

    /// The proposal that has enough consent, as a version. Proposals of earlier numbers go.
    pub fn adopted(&mut self, current: &Run) -> Option<Version> {
        let at = self.proposals.iter().position(|one| one.is_adopted(current))?;
        let Proposal { run, accepts: signatures, .. } = self.proposals.swap_remove(at);
        self.proposals.clear();
        Some(Version { run, signatures })
    }

    /// Forgets what is not of the newest version.
    pub fn prune(&mut self, current: &Run) {
        self.proposals.retain(|one| one.run.number == current.number + 1);
        // A member with a new key is elsewhere.
        self.announcements.retain(|one| one.is_valid(current));
    }
}
