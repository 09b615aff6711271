//! The run: one document that all its sites sign, with its history.
//!
//! A version holds the whole state of the run, and the digest of the version before. So one digest
//! names the run with its history, and two sites with the same digest have the same run. What may
//! follow a version is in `follows`.

use std::collections::BTreeMap;

use gradvine::{
    config::ConfigError,
    mixing::{FileFormat, NodeInfo, Topology},
    units::NodeId,
};
use serde::{Deserialize, Serialize};

use crate::sign::{Accept, digest};

/// The format of signed runs, of the books of sites and of what sites exchange.
pub const FORMAT: u32 = 2;

/// The most members and open invitations of a run.
pub const MOST_SITES: usize = 256;

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
    /// The number of the version that invites the site.
    pub version: u64,
    /// Until when the ticket can be used, in seconds since 1970.
    pub expires: u64,
    /// The member that invites: its user approves the site.
    pub by: String,
}

/// Why a version may admit a site: the bearer of the ticket and the member that has invited it
/// have signed the site's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// The name of the site.
    pub site: String,
    /// The PeerId of the ticket's key.
    pub ticket: String,
    /// The signature of the ticket's key.
    pub bearer: String,
    /// The signature of the member that has invited the site.
    pub approval: String,
}

/// The state of a run after a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The format of this document.
    pub format: u32,
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
    /// Of each site that this version admits, why it may.
    pub admissions: Vec<Admission>,
}

/// A version, with the signatures that make it valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// The state of the run.
    pub run: Run,
    /// The members that have accepted it.
    pub signatures: BTreeMap<String, Accept>,
}

impl Version {
    /// Adds the signatures of the same version that another site has.
    pub(crate) fn add_signatures(&mut self, other: &Version) {
        for (name, accept) in &other.signatures {
            self.signatures.entry(name.clone()).or_insert_with(|| accept.clone());
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

    /// The next version, without its change. Its time is no earlier than that of this one.
    pub fn next(&self, now: u64, change: String, reason: Option<String>) -> Run {
        let (number, previous) = (self.number + 1, Some(self.digest()));
        let time = now.max(self.time);
        let admissions = Vec::new();
        Run { number, previous, time, change, reason, admissions, ..self.clone() }
    }

    /// Takes in a site that was invited under this name, in place of a member that has it.
    pub fn admit(&mut self, member: Member) {
        self.invitations.retain(|one| one.site != member.name);
        match self.members.iter_mut().find(|one| one.name == member.name) {
            Some(one) => *one = member,
            None => self.members.push(member),
        }
    }

    /// Takes out a site, with its node in a topology file, and with the invitations that are by it
    /// or for its next key.
    ///
    /// # Errors
    /// If the topology does not hold together without it.
    pub fn remove(&mut self, name: &str) -> Result<(), ConfigError> {
        self.members.retain(|member| member.name != name);
        self.invitations.retain(|one| one.by != name && one.site != name);
        if !self.topology.contains('\n') {
            return Ok(());
        }
        let topology = listed(&self.topology)?;
        let Some(gone) = topology.find(name) else { return Ok(()) };
        let left = (0..topology.nodes()).map(NodeId::from).filter(|node| *node != gone);
        let left: Vec<NodeId> = left.collect();
        self.topology = topology.restricted(&left, &[])?.to_text(FileFormat::Toml);
        Ok(())
    }

    /// Whether training is the same in both: then no new stage begins.
    pub fn trains_as(&self, other: &Run) -> bool {
        self.started == other.started
            && self.experiment == other.experiment
            && self.topology == other.topology
            && self.nodes() == other.nodes()
    }

    /// The names and keys of its nodes.
    pub(crate) fn nodes(&self) -> Vec<(&str, &str)> {
        self.members.iter().map(|one| (one.name.as_str(), one.peer.as_str())).collect()
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
        let topology = listed(&self.topology)?;
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
        let topology = listed(&self.topology)?;
        let name = |number: usize| topology.node(NodeId::from(number)).name.clone();
        Ok(Some((0..topology.nodes()).map(name).collect()))
    }
}

/// A topology that lists its sites.
fn listed(text: &str) -> Result<Topology, ConfigError> {
    let topology = Topology::from_text(text, FileFormat::Toml, "run")?;
    match topology.nodes() > MOST_SITES {
        true => Err(ConfigError::new("topology", topology.nodes(), "more nodes than sites may be")),
        false => Ok(topology),
    }
}
