//! Proposals for a next version, and the answers to them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    document::Run,
    sign::{Accept, Refusal, id},
};

/// A version that is proposed, with the answers so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// The version.
    pub run: Run,
    /// The member that proposes it.
    pub by: String,
    /// The members that accept it, its author's among them.
    pub accepts: BTreeMap<String, Accept>,
    /// The members that decline it.
    pub declines: BTreeMap<String, Refusal>,
}

/// Answers to a proposal that the other site knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replies {
    /// The digest of the proposed version.
    pub version: String,
    /// The member that proposes it.
    pub by: String,
    /// As in [`Proposal`].
    pub accepts: BTreeMap<String, Accept>,
    /// As in [`Proposal`].
    pub declines: BTreeMap<String, Refusal>,
}

/// The name under which sites list a proposed version.
pub(crate) fn proposal_id(version: &str, by: &str) -> String {
    id("proposal", &[version, "\0", by].concat().into_bytes())
}

impl Replies {
    /// Drops answers that are not signed by a member.
    fn checked(mut self, current: &Run) -> Replies {
        let version = self.version.clone();
        self.accepts.retain(|name, accept| current.has_accepted(name, &version, accept));
        self.declines.retain(|name, refusal| current.has_declined(name, &version, refusal));
        self
    }

    /// The names under which sites list what they know.
    pub(crate) fn ids(&self) -> impl Iterator<Item = String> + '_ {
        let of =
            |kind: &str, name: &str| id(kind, &[&self.version, "\0", name].concat().into_bytes());
        let accepts = self.accepts.keys().map(move |name| of("accept", name));
        accepts.chain(self.declines.keys().map(move |name| of("decline", name)))
    }
}

impl Proposal {
    /// Whether enough have accepted it.
    pub fn is_adopted(&self, current: &Run) -> bool {
        let (voters, need) = current.voters(&self.run);
        voters.iter().filter(|one| self.accepts.contains_key(&one.name)).count() >= need
    }

    /// Whether so many have declined it that it can never be adopted.
    pub fn is_rejected(&self, current: &Run) -> bool {
        current.is_rejected(&self.run, &self.declines)
    }

    /// Whether sites accept it by themselves: it admits sites that were invited by consent, or its
    /// author leaves.
    pub fn is_automatic(&self, current: &Run) -> bool {
        !self.run.admissions.is_empty() || self.run.removes(current, &self.by)
    }

    /// The name under which sites list the version itself.
    pub(crate) fn id(&self) -> String {
        proposal_id(&self.run.digest(), &self.by)
    }

    /// The answers that have none of these names.
    pub(crate) fn replies(&self, is_new: impl Fn(&str) -> bool) -> Replies {
        let version = self.run.digest();
        let (by, empty) = (self.by.clone(), BTreeMap::new);
        let none = Replies { version, by, accepts: empty(), declines: BTreeMap::new() };
        let mut new = none.clone();
        for (name, accept) in &self.accepts {
            let one = Replies { accepts: [(name.clone(), accept.clone())].into(), ..none.clone() };
            if one.ids().any(|id| is_new(&id)) {
                new.accepts.extend(one.accepts);
            }
        }
        for (name, refusal) in &self.declines {
            let one =
                Replies { declines: [(name.clone(), refusal.clone())].into(), ..none.clone() };
            if one.ids().any(|id| is_new(&id)) {
                new.declines.extend(one.declines);
            }
        }
        new
    }

    /// Takes over answers that members have signed. Whether there are new ones.
    pub(crate) fn hear(&mut self, replies: Replies, current: &Run) -> bool {
        let count = |one: &Proposal| (one.accepts.len(), one.declines.len());
        let before = count(self);
        let replies = replies.checked(current);
        for (name, accept) in replies.accepts {
            self.accepts.entry(name).or_insert(accept);
        }
        for (name, refusal) in replies.declines {
            self.declines.entry(name).or_insert(refusal);
        }
        count(self) != before
    }

    /// The proposal with the answers that members have signed.
    ///
    /// # Errors
    /// If the version may not follow, is dated in the future, or its author has not signed it.
    pub(crate) fn checked(self, current: &Run, latest: u64) -> Result<Proposal, String> {
        self.run.follows(Some(current))?;
        if self.run.time > latest {
            return Err("it is dated in the future".into());
        }
        let replies = self.replies(|_| true).checked(current);
        match replies.accepts.contains_key(&self.by) {
            true => {
                let Replies { accepts, declines, .. } = replies;
                Ok(Proposal { accepts, declines, ..self })
            }
            false => Err("its author has not signed it".into()),
        }
    }
}
