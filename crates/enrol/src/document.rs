//! The run: one document that all its sites sign, with its history.
//!
//! A version holds the whole state of the run, and the digest of the version before. So one digest
//! names the run with its history, and two sites with the same digest have the same run.
//!
//! * **Before it has started** the founder alone makes versions. They add invitations and members,
//!   and nothing else: a site that joins knows that the experiment stays as it has seen it.
//! * **Once it has started** each version needs the consent of the members of the version before:
//!   of more than half, or of all, as the run states. Where all must agree, a member that the
//!   version removes, or whose key it replaces, is not asked.
//!
//! Why at most one version has a number, if more than half of the members keep the rule: a member
//! accepts a second version of one number only once enough have declined the first to make its
//! acceptance impossible, and whoever has declined one never accepts it. Two sets of more than half
//! have a member in common.

use std::collections::{BTreeMap, BTreeSet};

use gradvine::{
    config::ConfigError,
    experiment::Experiment,
    mixing::{NodeInfo, Topology},
    units::NodeId,
};
use serde::{Deserialize, Serialize};

use crate::sign::{About, digest, is_signed};

/// The most members and open invitations of a run.
pub const MOST_SITES: usize = 256;

/// The most addresses of a site, and the most bytes of one.
pub(crate) const MOST_ADDRESSES: usize = 16;
pub(crate) const LONGEST_ADDRESS: usize = 256;

/// Who must agree to a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Consent {
    /// More than half of the members.
    #[default]
    Majority,
    /// All members.
    All,
}

/// A site of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name, which is that of its node.
    pub name: String,
    /// The PeerId of its node.
    pub peer: String,
    /// The PeerId with which it asks other sites.
    pub caller: String,
    /// Its addresses when it joined; it may announce others.
    pub addresses: Vec<String>,
}

/// A site that is invited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    /// The name that the site will have.
    pub site: String,
    /// The PeerId of the ticket's key.
    pub ticket: String,
    /// Until when the ticket can be used, in seconds since 1970.
    pub expires: u64,
    /// The member that invites: its user approves the site.
    pub by: String,
}

/// The state of a run after a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Random; all versions of a run have the same.
    pub id: String,
    /// Its name, for people.
    pub name: String,
    /// The number of the version, from 1.
    pub number: u64,
    /// The digest of the version before.
    pub previous: Option<String>,
    /// When it was made, in seconds since 1970.
    pub time: u64,
    /// What it changes, in one sentence.
    pub change: String,
    /// Why, if its author says so.
    pub reason: Option<String>,
    /// The version of the wire format that all nodes have.
    pub wire: u32,
    /// Who must agree to changes.
    pub consent: Consent,
    /// The member that made the run.
    pub founder: String,
    /// With how many sites training begins.
    pub sites: usize,
    /// Whether training may begin. From then on changes need consent.
    pub started: bool,
    /// A family such as `ring`, or the text of a topology file that names all sites.
    pub topology: String,
    /// The text of the experiment file.
    pub experiment: String,
    /// The sites, in the order of their numbers.
    pub members: Vec<Member>,
    /// The sites that are invited and have not joined.
    pub invitations: Vec<Invitation>,
}

/// A version, with the signatures that make it valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// The state of the run.
    pub run: Run,
    /// Of each member that has accepted it, the signature.
    pub signatures: BTreeMap<String, String>,
}

/// The paths of the values that differ between two tables.
fn differences(place: &str, one: &toml::Table, other: &toml::Table, all: &mut Vec<String>) {
    let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    for key in keys {
        let path = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
        match (one.get(key), other.get(key)) {
            (Some(toml::Value::Table(one)), Some(toml::Value::Table(other))) => {
                differences(&path, one, other, all);
            }
            (one, other) if one == other => {}
            _ => all.push(path),
        }
    }
}

impl Run {
    /// The digest of this version, and so of all versions before it: 64 hexadecimal digits.
    pub fn digest(&self) -> String {
        digest(&serde_json::to_vec(self).expect("a run serialises"))
    }

    /// The member of this name.
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    /// The member that asks with this PeerId.
    pub fn caller(&self, caller: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.caller == caller)
    }

    /// The invitation with this ticket.
    pub fn invitation(&self, ticket: &str) -> Option<&Invitation> {
        self.invitations.iter().find(|invitation| invitation.ticket == ticket)
    }

    /// The invitations that can still be used.
    pub fn open_invitations(&self, now: u64) -> impl Iterator<Item = &Invitation> {
        self.invitations.iter().filter(move |invitation| invitation.expires > now)
    }

    /// The next version, without its change.
    pub fn next(&self, now: u64, change: String, reason: Option<String>) -> Run {
        let (number, previous) = (self.number + 1, Some(self.digest()));
        Run { number, previous, time: now, change, reason, ..self.clone() }
    }

    /// Whether training differs between the two: then a new stage begins.
    pub fn trains_as(&self, other: &Run) -> bool {
        self.started == other.started
            && self.experiment == other.experiment
            && self.topology == other.topology
            && self.nodes() == other.nodes()
    }

    /// The names and keys of its nodes.
    fn nodes(&self) -> Vec<(&str, &str)> {
        self.members.iter().map(|one| (one.name.as_str(), one.peer.as_str())).collect()
    }

    /// The keys of the experiment that differ from those of `before`, `topology` if that differs,
    /// and `sites` if other sites or keys take part.
    pub fn changed_from(&self, before: &Run) -> Vec<String> {
        let mut changed = Vec::new();
        if self.experiment != before.experiment {
            let table = |run: &Run| {
                let normal = Experiment::parse(&run.experiment, &[]).map(|one| one.to_toml());
                toml::from_str::<toml::Table>(&normal.unwrap_or_default()).unwrap_or_default()
            };
            differences("", &table(before), &table(self), &mut changed);
        }
        if self.topology != before.topology {
            changed.push("topology".into());
        }
        if self.nodes() != before.nodes() {
            changed.push("sites".into());
        }
        changed
    }

    /// The members whose consent counts for `next`, and how many must give it.
    pub fn voters(&self, next: &Run) -> (Vec<&Member>, usize) {
        if !self.started {
            return (self.member(&self.founder).into_iter().collect(), 1);
        }
        let keeps = |member: &&Member| {
            next.members.iter().any(|one| one.name == member.name && one.peer == member.peer)
        };
        match self.consent {
            Consent::Majority => (self.members.iter().collect(), self.members.len() / 2 + 1),
            Consent::All => {
                let voters: Vec<&Member> = self.members.iter().filter(keeps).collect();
                let need = voters.len();
                (voters, need)
            }
        }
    }

    /// The topology of its sites, with these addresses in place of those in the document.
    ///
    /// # Errors
    /// If it does not fit the sites.
    pub fn network(&self, moved: &BTreeMap<String, Vec<String>>) -> Result<Topology, ConfigError> {
        let info = |member: &Member| NodeInfo {
            peer: Some(member.peer.clone()),
            addresses: moved.get(&member.name).unwrap_or(&member.addresses).clone(),
            ..NodeInfo::named(member.name.clone())
        };
        if !self.topology.contains('\n') {
            let spec = format!("{}:{}", self.topology, self.members.len());
            let nodes = self.members.iter().map(info).collect();
            return Ok(Topology::parse(&spec, 0)?.with_nodes(nodes)?.with_name(&self.name)?);
        }
        let topology = places(&self.topology)?;
        let node = |number: usize| {
            let name = &topology.node(NodeId::from(number)).name;
            self.member(name).map(info).ok_or_else(|| {
                ConfigError::at("topology", format!("its node {name} is no site of the run yet"))
            })
        };
        let nodes = (0..topology.nodes()).map(node).collect::<Result<Vec<_>, _>>()?;
        Ok(topology.with_nodes(nodes)?)
    }

    /// The names that sites may have, if the topology lists them.
    ///
    /// # Errors
    /// If the text is no topology.
    pub fn places(&self) -> Result<Option<Vec<String>>, ConfigError> {
        if !self.topology.contains('\n') {
            return Ok(None);
        }
        let topology = places(&self.topology)?;
        let name = |number: usize| topology.node(NodeId::from(number)).name.clone();
        Ok(Some((0..topology.nodes()).map(name).collect()))
    }

    /// Checks what does not depend on other versions.
    fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        let mut keys = BTreeSet::new();
        for member in &self.members {
            check_member(member)?;
            if !names.insert(&member.name) {
                return Err(format!("two members have the name {}", member.name));
            }
            for key in [&member.peer, &member.caller] {
                if key.parse::<gradvine::net::PeerId>().is_err() {
                    return Err(format!("{}: {key} is no PeerId", member.name));
                }
                if !keys.insert(key) {
                    return Err(format!("{}: its key is that of another member", member.name));
                }
            }
        }
        let mut invited = BTreeSet::new();
        for invitation in &self.invitations {
            check_name(&invitation.site)?;
            // One for a member is for its next key.
            names.insert(&invitation.site);
            if !invited.insert(&invitation.site) {
                return Err(format!("{} is invited twice", invitation.site));
            }
            if !keys.insert(&invitation.ticket) {
                return Err("two sites have the same ticket".into());
            }
        }
        if names.len() > MOST_SITES {
            return Err(format!("{} sites, and at most {MOST_SITES} are accepted", names.len()));
        }
        if self.member(&self.founder).is_none() && !self.started {
            return Err("its founder is no member".into());
        }
        let experiment = Experiment::parse(&self.experiment, &[]);
        experiment.map_err(|error| format!("its experiment: {error}"))?;
        match self.started {
            true => self.network(&BTreeMap::new()).map(drop).map_err(|error| error.to_string()),
            false => self.places().map(drop).map_err(|error| error.to_string()),
        }
    }

    /// Checks that this may follow `before`, whoever has signed it.
    ///
    /// # Errors
    /// What may not change, or is wrong.
    pub fn follows(&self, before: Option<&Run>) -> Result<(), String> {
        self.check()?;
        let Some(before) = before else {
            let is_first = self.number == 1 && self.previous.is_none() && !self.started;
            let alone = self.members.len() == 1 && self.invitations.is_empty();
            return match is_first && alone {
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
        let fixed = |run: &Run| (run.experiment.clone(), run.topology.clone(), run.consent);
        if !before.started && (fixed(self) != fixed(before) || self.sites != before.sites) {
            return Err("its settings may not change before it has started".into());
        }
        if !before.started {
            let mut before = before.members.iter();
            if let Some(gone) = before.find(|member| self.member(&member.name).is_none()) {
                return Err(format!("{} may not be removed before it has started", gone.name));
            }
        }
        // The version before has an invitation for each new member, and for each new key.
        for member in self.members.iter().filter(|member| !before.has(member)) {
            if !before.invitations.iter().any(|one| one.site == member.name) {
                return Err(format!("{} was not invited", member.name));
            }
        }
        Ok(())
    }

    /// Whether this only removes this site.
    pub fn only_removes(&self, before: &Run, site: &str) -> bool {
        let mut other = before.clone();
        other.members.retain(|member| member.name != site);
        other.members.len() + 1 == before.members.len()
            && self.trains_as(&other)
            && self.invitations == before.invitations
            && self.consent == before.consent
    }

    /// Whether this only admits sites that the version before has invited: new ones, or members
    /// with new keys.
    pub fn only_admits(&self, before: &Run) -> bool {
        let joined = self.members.iter().filter(|member| !before.has(member));
        let mut admitted = before.clone();
        joined.for_each(|member| admitted.admit(member.clone()));
        let Run { number, previous, time, change, reason, .. } = self.clone();
        *self == Run { number, previous, time, change, reason, ..admitted }
    }

    /// Takes in a site that was invited under this name, in place of a member that has it.
    pub fn admit(&mut self, member: Member) {
        self.invitations.retain(|one| one.site != member.name);
        match self.members.iter_mut().find(|one| one.name == member.name) {
            Some(one) => *one = member,
            None => self.members.push(member),
        }
    }

    /// Whether this site is a member, with these keys.
    fn has(&self, member: &Member) -> bool {
        let keys = |one: &Member| (one.name.clone(), one.peer.clone(), one.caller.clone());
        self.members.iter().any(|one| keys(one) == keys(member))
    }
}

/// A topology that lists its sites.
fn places(text: &str) -> Result<Topology, ConfigError> {
    Ok(Topology::from_text(text, gradvine::mixing::FileFormat::Toml, "run")?)
}

/// Checks the name of a site.
///
/// # Errors
/// What is accepted.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        return Err(format!(
            "{name:?} is no name of a site: expected 1 to 64 letters, digits, \"-\" and \"_\""
        ));
    }
    Ok(())
}

/// Checks the name of a site, and its addresses: at most 16, each of at most 256 bytes.
pub(crate) fn check_member(member: &Member) -> Result<(), String> {
    check_name(&member.name)?;
    let addresses = &member.addresses;
    if addresses.len() > MOST_ADDRESSES || addresses.iter().any(|one| one.len() > LONGEST_ADDRESS) {
        return Err(format!(
            "{}: more than {MOST_ADDRESSES} addresses, or one of more than {LONGEST_ADDRESS} bytes",
            member.name
        ));
    }
    Ok(())
}

impl Version {
    /// Checks the signatures.
    ///
    /// # Errors
    /// Whose consent is missing.
    pub fn check(&self, before: Option<&Run>) -> Result<(), String> {
        self.run.follows(before)?;
        let (voters, need) = match before {
            Some(before) => before.voters(&self.run),
            None => (self.run.members.iter().collect(), 1),
        };
        let digest = self.run.digest();
        let has = |member: &&&Member| {
            let signature = self.signatures.get(&member.name);
            signature.is_some_and(|signature| {
                is_signed(&member.peer, About::Accepts, digest.as_bytes(), signature)
            })
        };
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
