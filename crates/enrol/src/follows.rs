//! Which version may follow which, and whose consent it needs.
//!
//! * **Before the run has started** the founder alone makes versions. They invite and admit sites,
//!   and nothing else: a site that joins knows that the experiment stays as it has seen it.
//! * **Once it has started** a version does one of three things: it admits sites, it removes one
//!   site, or it changes settings and invitations. It needs the consent of more than half of the
//!   members of the version before, or of all, as that version states. Where all must agree, a
//!   member that is removed, or whose key is replaced, is not asked; but never do fewer than more
//!   than half decide.
//!
//! Why at most one version has a number, if all members keep the rule: a member accepts a second
//! version of one number only once enough have declined the first to make its acceptance
//! impossible, and whoever has declined one never accepts it. Two sets of more than half have a
//! member in common. With its acceptance a member shows who has declined the first one. So two
//! versions with one number name who has broken the rule, and nobody else.

use std::collections::{BTreeMap, BTreeSet};

use gradvine::experiment::Experiment;

use crate::{
    document::{Admission, Consent, FORMAT, Invitation, MOST_SITES, Member, Run, Version},
    sign::{About, Accept, Declined, Refusal, is_signed},
    text::{LONGEST_KEY, Names, check_member, check_name, check_peer, check_text},
};

/// Families whose graphs have any number of nodes.
pub const FAMILIES: [&str; 5] = ["ring", "complete", "path", "star", "exponential"];

/// The most bytes of an experiment, and of a topology.
const LONGEST_FILE: usize = 1 << 20;

/// The longest time that a ticket is good for, in seconds: a year.
const LONGEST_TICKET: u64 = 366 * 86_400;

/// The most proposals for one version that a member may have accepted, and that were declined.
pub(crate) const MOST_GIVEN_UP: usize = 64;

/// What the bearer of a ticket and the inviter sign, to admit a site.
pub(crate) fn words_of_admission(run: &str, invitation: &Invitation, member: &Member) -> Vec<u8> {
    let words = (run, invitation.version, &invitation.ticket, member);
    serde_json::to_vec(&words).expect("texts serialise")
}

impl Run {
    /// The members whose consent counts for `next`, and how many must give it.
    pub fn voters(&self, next: &Run) -> (Vec<&Member>, usize) {
        if !self.started {
            return (self.member(&self.founder).into_iter().collect(), 1);
        }
        let most = self.members.len() / 2 + 1;
        let keeps = |member: &&Member| {
            next.members.iter().any(|one| one.name == member.name && one.peer == member.peer)
        };
        match self.consent {
            Consent::Majority => (self.members.iter().collect(), most),
            Consent::All => {
                let voters: Vec<&Member> = self.members.iter().filter(keeps).collect();
                let need = voters.len().max(most);
                (voters, need)
            }
        }
    }

    /// Whether this member accepts this version, and members have declined what it shows.
    pub(crate) fn has_accepted(&self, name: &str, version: &str, accept: &Accept) -> bool {
        let given_up = &accept.instead_of;
        let names: BTreeSet<&str> = given_up.iter().map(|one| one.version.as_str()).collect();
        let is_shown = |one: &Declined| {
            let is_its = |(by, why): (&String, _)| self.has_declined(by, &one.version, why);
            !one.declines.is_empty() && one.declines.iter().all(is_its)
        };
        names.len() == given_up.len()
            && names.len() <= MOST_GIVEN_UP
            && !names.contains(version)
            && self.member(name).is_some_and(|member| accept.is_by(&member.peer, version))
            && given_up.iter().all(is_shown)
    }

    /// Whether this member declines this version.
    pub(crate) fn has_declined(&self, name: &str, version: &str, refusal: &Refusal) -> bool {
        let member = self.member(name).filter(|_| check_text(&refusal.reason).is_ok());
        member.is_some_and(|member| refusal.is_by(&member.peer, version))
    }

    /// Whether so many have declined `next` that it can never be adopted.
    pub(crate) fn is_rejected(&self, next: &Run, declines: &BTreeMap<String, Refusal>) -> bool {
        let (voters, need) = self.voters(next);
        voters.iter().filter(|one| !declines.contains_key(&one.name)).count() < need
    }

    /// The members that have broken the rule, of two versions after this one. They have accepted
    /// both, and do not show that one of them was declined; or they are shown to have declined one
    /// that they have accepted. There is one at least, if both versions have their consent.
    pub(crate) fn culprits(&self, two: [&Version; 2]) -> Vec<String> {
        let both = two.map(|one| (one, one.run.digest()));
        let [one, other] = &both;
        let pairs = [(one, other), (other, one)];
        let has_signed_two = |name: &String| {
            let gives_up = |((kept, _), (left, digest)): &(&(&Version, _), &(&Version, String))| {
                let shown = kept.signatures[name].instead_of.iter();
                shown
                    .filter(|one| one.version == *digest)
                    .any(|one| self.is_rejected(&left.run, &one.declines))
            };
            two.iter().all(|one| one.signatures.contains_key(name)) && !pairs.iter().any(gives_up)
        };
        let has_turned = |name: &String| {
            pairs.iter().any(|((kept, _), (left, digest))| {
                let mut shown = kept.signatures.values().flat_map(|one| &one.instead_of);
                left.signatures.contains_key(name)
                    && shown.any(|one| one.version == *digest && one.declines.contains_key(name))
            })
        };
        let names = self.members.iter().map(|member| &member.name);
        names.filter(|name| has_signed_two(name) || has_turned(name)).cloned().collect()
    }

    /// Whether this removes this site.
    pub fn removes(&self, before: &Run, site: &str) -> bool {
        before.member(site).is_some() && self.member(site).is_none()
    }

    /// Checks the version itself. What is as in the version before was checked there.
    fn check(&self, before: Option<&Run>) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!("it has format {}, and this program has {FORMAT}", self.format));
        }
        self.check_texts()?;
        self.check_sites()?;
        if self.member(&self.founder).is_none() && !self.started {
            return Err("its founder is no member".into());
        }
        if before.is_none_or(|before| self.experiment != before.experiment) {
            let experiment = Experiment::parse(&self.experiment, &[]);
            experiment.map_err(|error| format!("its experiment: {error}"))?;
        }
        if before.is_some_and(|before| self.trains_as(before)) {
            return Ok(());
        }
        let text = |error: gradvine::config::ConfigError| error.to_string();
        match self.started {
            true => self.network(&BTreeMap::new()).map(drop).map_err(text),
            false => self.places().map(drop).map_err(text),
        }
    }

    fn check_texts(&self) -> Result<(), String> {
        check_name(&self.name)?;
        check_name(&self.founder)?;
        check_text(&self.change).map_err(|why| format!("its change: {why}"))?;
        let reason = self.reason.as_deref().unwrap_or_default();
        check_text(reason).map_err(|why| format!("its reason: {why}"))?;
        let is_id = |text: &str| {
            text.len() <= LONGEST_KEY && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        if !is_id(&self.id) || !self.previous.as_deref().is_none_or(is_id) {
            return Err("its id, or the digest of the version before, is none".into());
        }
        if self.experiment.len().max(self.topology.len()) > LONGEST_FILE {
            return Err(format!(
                "its experiment or its topology has more than {LONGEST_FILE} bytes"
            ));
        }
        if !self.topology.contains('\n') && !FAMILIES.contains(&self.topology.as_str()) {
            let (all, other) = (FAMILIES.join(", "), crate::text::shown(&self.topology));
            return Err(format!("its topology {other}: expected a topology file, or one of {all}"));
        }
        Ok(())
    }

    fn check_sites(&self) -> Result<(), String> {
        if self.members.len() + self.invitations.len() > 2 * MOST_SITES {
            return Err(format!("at most {MOST_SITES} sites are accepted"));
        }
        let (mut names, mut keys) = (Names::default(), BTreeSet::new());
        for member in &self.members {
            check_member(member)?;
            names.add(&member.name)?;
            for key in [&member.peer, &member.caller] {
                if !keys.insert(key) {
                    return Err(format!("{}: its key is that of another member", member.name));
                }
            }
        }
        let mut count = self.members.len();
        let mut invited = Names::default();
        for invitation in &self.invitations {
            check_name(&invitation.by)?;
            check_peer(&invitation.ticket)?;
            invited.add(&invitation.site)?;
            // An invitation for a member is for its next key.
            if self.member(&invitation.site).is_none() {
                names.add(&invitation.site)?;
                count += 1;
            }
            if !keys.insert(&invitation.ticket) {
                return Err("two sites have the same ticket".into());
            }
        }
        match count > MOST_SITES {
            true => Err(format!("{count} sites, and at most {MOST_SITES} are accepted")),
            false => Ok(()),
        }
    }

    /// Checks that this may follow `before`, whoever has signed it.
    ///
    /// # Errors
    /// What may not change, or is wrong.
    pub fn follows(&self, before: Option<&Run>) -> Result<(), String> {
        self.check(before)?;
        let Some(before) = before else {
            let is_first = self.number == 1 && self.previous.is_none() && !self.started;
            let alone = self.members.len() == 1 && self.invitations.is_empty();
            return match is_first && alone && self.admissions.is_empty() {
                true => Ok(()),
                false => Err("its first version does not begin a run".into()),
            };
        };
        if self.number != before.number + 1 || self.previous != Some(before.digest()) {
            let (number, before) = (self.number, before.number);
            return Err(format!("version {number} does not continue version {before}"));
        }
        if (&self.id, &self.name, &self.founder) != (&before.id, &before.name, &before.founder) {
            return Err("it is another run".into());
        }
        if before.started && !self.started {
            return Err("a run that has started stays so".into());
        }
        if self.time < before.time {
            return Err("it is dated before the version that it continues".into());
        }
        self.check_members(before)?;
        self.check_invitations(before)?;
        if self.started && !before.started {
            let mut expected = before.clone();
            (expected.started, expected.invitations) = (true, Vec::new());
            return match self.is_like(expected) && self.members.len() == self.sites {
                true => Ok(()),
                false => Err("training begins with another number of sites, or another run".into()),
            };
        }
        match before.started || self.has_settings_of(before) {
            true if self.sites == before.sites => Ok(()),
            _ => Err("its settings may not change before it has started".into()),
        }
    }

    /// Whether this is that run, whoever has made it, when and why.
    fn is_like(&self, other: Run) -> bool {
        let Run { number, previous, time, change, reason, admissions, .. } = self.clone();
        *self == Run { number, previous, time, change, reason, admissions, ..other }
    }

    fn has_settings_of(&self, before: &Run) -> bool {
        let settings = |run: &Run| (run.experiment.clone(), run.topology.clone());
        settings(self) == settings(before)
            && (self.consent, self.wire, self.sites) == (before.consent, before.wire, before.sites)
    }

    /// Members stay as they are, but for one that is removed, or for those that are admitted.
    fn check_members(&self, before: &Run) -> Result<(), String> {
        let mut gone = before.members.iter().filter(|one| self.member(&one.name).is_none());
        if let Some(first) = gone.next() {
            if !before.started {
                return Err(format!("{} may not be removed before it has started", first.name));
            }
            if self.members.len() < 2 {
                return Err("a run needs two sites".into());
            }
            let mut expected = before.clone();
            expected.remove(&first.name).map_err(|error| error.to_string())?;
            return match gone.next().is_none() && self.is_like(expected) {
                true if self.admissions.is_empty() => Ok(()),
                _ => Err("a version removes one site, and changes nothing else".into()),
            };
        }
        let joined = self.members.iter().filter(|one| !before.members.contains(one));
        let joined: Vec<&Member> = joined.collect();
        for member in &joined {
            self.check_admission(before, member)?;
        }
        let mut expected = before.clone();
        joined.iter().for_each(|member| expected.admit((*member).clone()));
        if self.members != expected.members || self.admissions.len() != joined.len() {
            return Err("its members have another order, or are admitted twice".into());
        }
        match joined.is_empty() || self.is_like(expected) {
            true => Ok(()),
            false => Err("a version that admits sites changes nothing else".into()),
        }
    }

    /// The version before has an invitation for each new member, and for each new key. The bearer
    /// of the ticket and the inviter have signed these keys, and the ticket has not expired.
    fn check_admission(&self, before: &Run, member: &Member) -> Result<(), String> {
        let name = &member.name;
        let invitation = before.invitations.iter().find(|one| one.site == *name);
        let invitation = invitation.ok_or_else(|| format!("{name} was not invited"))?;
        if invitation.expires <= self.time {
            return Err(format!("the ticket of {name} had expired"));
        }
        let words = words_of_admission(&before.id, invitation, member);
        let is_for = |one: &&Admission| one.site == *name && one.ticket == invitation.ticket;
        let admission = self.admissions.iter().find(is_for);
        let bearer = |one: &Admission| is_signed(&one.ticket, About::Joins, &words, &one.bearer);
        if !admission.is_some_and(bearer) {
            return Err(format!("{name} is not admitted by the key of its ticket"));
        }
        let by = before.member(&invitation.by).ok_or_else(|| {
            format!("{name} was invited by {}, which is no member any more", invitation.by)
        })?;
        let approved = |one: &Admission| is_signed(&by.peer, About::Admits, &words, &one.approval);
        match admission.is_some_and(approved) {
            true => Ok(()),
            false => Err(format!("{name} is not admitted by {}, which has invited it", by.name)),
        }
    }

    /// Invitations stay as they are, end, or are new.
    fn check_invitations(&self, before: &Run) -> Result<(), String> {
        for one in self.invitations.iter().filter(|one| !before.invitations.contains(one)) {
            let site = &one.site;
            if one.version != self.number || before.member(&one.by).is_none() {
                return Err(format!("the invitation of {site} is altered, or by no member"));
            }
            if before.invitation(&one.ticket).is_some() {
                return Err(format!("the ticket of {site} was another one's"));
            }
            if one.expires <= self.time || one.expires > self.time + LONGEST_TICKET {
                return Err(format!("the ticket of {site} is good for no time, or for too long"));
            }
        }
        Ok(())
    }
}

impl Version {
    /// Checks the version and its signatures. There are no others than those of members.
    ///
    /// # Errors
    /// Whose consent is missing, or what is wrong.
    pub fn check(&self, before: Option<&Run>) -> Result<(), String> {
        self.run.follows(before)?;
        let (voters, need) = match before {
            Some(before) => before.voters(&self.run),
            None => (self.run.members.iter().collect(), 1),
        };
        let digest = self.run.digest();
        let members = before.unwrap_or(&self.run);
        for (name, accept) in &self.signatures {
            if !members.has_accepted(name, &digest, accept) {
                let name = crate::text::shown(name);
                return Err(format!("version {}: no signature of {name}", self.run.number));
            }
        }
        let has = |member: &&&Member| self.signatures.contains_key(&member.name);
        let given = voters.iter().filter(has).count();
        match given >= need {
            true => Ok(()),
            false => Err(format!(
                "version {} has the consent of {given} of {} members, and needs {need}",
                self.run.number,
                voters.len()
            )),
        }
    }
}

/// Checks a whole history.
///
/// # Errors
/// The first version that is wrong, and why.
pub fn check_history(history: &[Version]) -> Result<(), String> {
    let mut before = None;
    for version in history {
        version.check(before).map_err(|why| format!("version {}: {why}", version.run.number))?;
        before = Some(&version.run);
    }
    before.map(drop).ok_or_else(|| "there is no version".into())
}
