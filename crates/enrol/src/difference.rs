//! What a version changes, as people read it: its own words say what its author likes.

use std::collections::BTreeSet;

use gradvine::{experiment::Experiment, printable::shorten};
use toml::{Table, Value};

use crate::{
    document::{Consent, Invitation, Run},
    text::shown,
};

/// The most characters of a value that are shown.
const LONGEST: usize = 1000;

/// The values that differ between two tables: their paths, what they were and what they are.
pub(crate) fn differences(
    one: &Table,
    other: &Table,
) -> Vec<(String, Option<Value>, Option<Value>)> {
    let mut all = Vec::new();
    compare("", Some(&Value::Table(one.clone())), Some(&Value::Table(other.clone())), &mut all);
    all
}

fn compare(
    path: &str,
    one: Option<&Value>,
    other: Option<&Value>,
    all: &mut Vec<(String, Option<Value>, Option<Value>)>,
) {
    match (one, other) {
        (Some(Value::Table(one)), Some(Value::Table(other))) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                compare(&path, one.get(key), other.get(key), all);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            for at in 0..one.len().max(other.len()) {
                compare(&format!("{path}[{at}]"), one.get(at), other.get(at), all);
            }
        }
        (one, other) if one == other => {}
        (one, other) => all.push((path.into(), one.cloned(), other.cloned())),
    }
}

/// The experiment with all its values, also those that its text leaves out.
fn table(run: &Run) -> Table {
    let whole = Experiment::parse(&run.experiment, &[]).map(|one| one.to_toml());
    toml::from_str(&whole.unwrap_or_default()).unwrap_or_default()
}

fn value(value: Option<&Value>) -> String {
    let text = value.map_or("(not set)".into(), Value::to_string);
    shorten(&shown(&text), LONGEST).into_owned()
}

fn consent(run: &Run) -> &'static str {
    match run.consent {
        Consent::Majority => "more than half",
        Consent::All => "all",
    }
}

impl Run {
    /// The keys of the experiment that differ from those of `before`, `topology` if that differs,
    /// and `sites` if other sites or keys take part.
    pub fn changed_from(&self, before: &Run) -> Vec<String> {
        let mut changed = Vec::new();
        if self.experiment != before.experiment {
            let key = |path: String| path.split('[').next().unwrap_or_default().to_string();
            let all = differences(&table(before), &table(self));
            changed.extend(all.into_iter().map(|(path, ..)| key(path)));
            changed.dedup();
        }
        if self.topology != before.topology {
            changed.push("topology".into());
        }
        if self.nodes() != before.nodes() {
            changed.push("sites".into());
        }
        changed
    }

    /// What differs from `before`, a line each: settings, sites with their keys and addresses,
    /// invitations, the topology.
    pub fn difference(&self, before: &Run) -> Vec<String> {
        let mut lines = Vec::new();
        if self.started != before.started {
            lines.push(format!("training begins with {} sites", self.members.len()));
        }
        if self.consent != before.consent {
            let (old, new) = (consent(before), consent(self));
            lines.push(format!("who must agree to changes: {old} -> {new}"));
        }
        if self.wire != before.wire {
            lines.push(format!("wire format: {} -> {}", before.wire, self.wire));
        }
        for (path, old, new) in differences(&table(before), &table(self)) {
            lines.push(format!(
                "{}: {} -> {}",
                shown(&path),
                value(old.as_ref()),
                value(new.as_ref())
            ));
        }
        if self.experiment != before.experiment && lines.is_empty() {
            lines.push("the text of the experiment, and none of its values".into());
        }
        self.sites_that_differ(before, &mut lines);
        self.invitations_that_differ(before, &mut lines);
        self.lines_of_topology(before, &mut lines);
        lines
    }

    fn sites_that_differ(&self, before: &Run, lines: &mut Vec<String>) {
        for gone in before.members.iter().filter(|one| self.member(&one.name).is_none()) {
            lines.push(format!("site {} is removed", gone.name));
        }
        for member in &self.members {
            let (name, at) = (&member.name, member.addresses.join(", "));
            match before.member(name) {
                None => {
                    lines.push(format!("site {name} joins, with the key {}, at {at}", member.peer));
                }
                Some(old) if old.peer != member.peer || old.caller != member.caller => {
                    lines.push(format!(
                        "site {name} gets the key {} in place of {}, at {at}",
                        member.peer, old.peer
                    ));
                }
                Some(old) if old.addresses != member.addresses => {
                    lines.push(format!("site {name} is reached at {at}"));
                }
                Some(_) => {}
            }
        }
    }

    fn invitations_that_differ(&self, before: &Run, lines: &mut Vec<String>) {
        let is_new = |run: &Run, one: &Invitation| !run.invitations.contains(one);
        for one in before.invitations.iter().filter(|one| is_new(self, one)) {
            lines.push(format!("the invitation of {} by {} ends", one.site, one.by));
        }
        for one in self.invitations.iter().filter(|one| is_new(before, one)) {
            let hours = one.expires.saturating_sub(self.time).div_ceil(3600);
            let of = if self.member(&one.site).is_some() { "a next key of " } else { "" };
            lines.push(format!("{} invites {of}{}, for {hours} h", one.by, one.site));
        }
    }

    fn lines_of_topology(&self, before: &Run, lines: &mut Vec<String>) {
        if self.topology == before.topology {
            return;
        }
        let text = |run: &Run| run.topology.lines().map(String::from).collect::<Vec<_>>();
        let (old, new) = (text(before), text(self));
        lines.push("the topology:".into());
        let line =
            |sign: char, line: &String| format!("  {sign} {}", shorten(&shown(line), LONGEST));
        lines.extend(old.iter().filter(|one| !new.contains(one)).map(|one| line('-', one)));
        lines.extend(new.iter().filter(|one| !old.contains(one)).map(|one| line('+', one)));
    }
}
