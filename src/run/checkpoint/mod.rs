//! Checkpoints: the state of one node after some rounds, in files that survive the loss of the
//! process and of power.
//!
//! ```text
//! RUN/checkpoints/NODE/run.json                       what the checkpoints belong to
//! RUN/checkpoints/NODE/begun                          empty: the run has begun
//! RUN/checkpoints/NODE/membership.json                the membership that the node adopted last
//! RUN/checkpoints/NODE/round-000000000120.safetensors
//! ```

mod file;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

pub use self::file::Checkpoint;
use crate::{
    config::{ConfigError, differences},
    data::{Disk, FileSystem, replace_file},
    digest,
    drive::{Change, Membership},
    gossip::plan,
    run::{Design, directory::CHECKPOINTS},
    units::NodeId,
};

const RUN: &str = "run.json";
const BEGUN: &str = "begun";
pub(super) const MEMBERSHIP: &str = "membership.json";
const PREFIX: &str = "round-";
const SUFFIX: &str = ".safetensors";

/// The sections of a run whose checkpoints are in a folder.
#[derive(Serialize, Deserialize)]
struct Identity {
    /// The node's number and name.
    node: u32,
    name: String,
    /// The canonical texts of topology, experiment and model.
    sections: [String; 3],
    /// How often the program was started again.
    restarts: u64,
}

/// The checkpoints of one node.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// How often one is written.
    pub(crate) every: Every,
    /// Rounds after which none is needed: the run is over.
    pub(crate) last: Option<u64>,
    /// Whether the node has been part of this run before.
    pub(crate) used: bool,
    /// How often the program was started again.
    pub(crate) restarts: u64,
    /// The results that this node has, if any: then it looks for the others only for a moment.
    pub(crate) results: Option<Written>,
}

/// Results that a node has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Identifies them: [`digest::short`] of the mean.
    pub(crate) number: u64,
    /// The last change of the members, if there was one.
    last: Option<Change>,
}

impl Written {
    /// Those with this mean and history.
    pub(crate) fn of(mean: &[f32], history: &[Change]) -> Written {
        Written { number: digest::short(mean), last: history.last().cloned() }
    }

    /// Whether these members of a run with so many nodes have formed them.
    pub(crate) fn is_of(&self, membership: &Membership, nodes: usize) -> bool {
        match &self.last {
            Some(last) => (&last.members, &last.cut) == (&membership.members, &membership.cut),
            None => membership.is_whole(nodes),
        }
    }
}

/// How often a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Every {
    /// After this many rounds each.
    Rounds(u64),
    /// After this time.
    Time(Duration),
    /// Never: a run that is disturbed begins anew.
    Never,
}

impl Every {
    /// How often the nodes of a run write one: never if something is always in flight.
    pub(crate) fn of(design: &Design) -> Every {
        let params = &design.experiment.checkpoint;
        match params.every_rounds {
            _ if !plan::can_pause(&*design.rule.plan) => Every::Never,
            Some(rounds) => Every::Rounds(rounds),
            None if params.every_s > 0.0 => Every::Time(Duration::from_secs_f64(params.every_s)),
            None => Every::Never,
        }
    }
}

/// Describes the first difference of two canonical texts.
fn difference(saved: &str, now: &str) -> String {
    let all = differences(saved, now);
    let Some((key, saved, now)) = all.first() else { return "the order of its lines".into() };
    let word = |value: &Option<&str>| match value {
        Some(value) => value.chars().take(120).collect(),
        None => "absent".to_string(),
    };
    format!("{key} = {} in the checkpoints, {} now", word(saved), word(now))
}

impl Checkpoints {
    /// The checkpoints in the folder of a run, which may have none yet.
    ///
    /// # Errors
    /// If they belong to another node or another run, or the folder cannot be written.
    pub(crate) fn open(
        run: &Path,
        every: Every,
        place: (NodeId, &str),
        sections: &[String; 3],
    ) -> Result<Checkpoints, ConfigError> {
        Checkpoints::open_on(Arc::new(FileSystem), run, every, place, sections)
    }

    /// The same on another disk.
    ///
    /// # Errors
    /// As `Checkpoints::open`.
    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        run: &Path,
        every: Every,
        (node, name): (NodeId, &str),
        sections: &[String; 3],
    ) -> Result<Checkpoints, ConfigError> {
        let folder = run.join(CHECKPOINTS).join(name);
        let wrong = |error: io::Error| {
            ConfigError::new("checkpoints", folder.display(), format!("cannot be used: {error}"))
        };
        let foreign = |what: String| {
            ConfigError::new(
                "checkpoints",
                folder.display(),
                format!(
                    "belong to another run: {what}; give the files of that run to go on with it, \
                     name another run directory, or begin anew with --fresh"
                ),
            )
        };
        disk.create_folder(&folder).map_err(wrong)?;
        for name in disk.names(&folder).map_err(wrong)? {
            // A program that was killed was writing it. One that stays takes space only.
            if name.ends_with(".part") {
                let _ = disk.remove_file(&folder.join(name));
            }
        }
        let path = folder.join(RUN);
        // The files of a run that never began may be corrected.
        let begun = disk.exists(&folder.join(BEGUN));
        let before = match disk.read(&path) {
            Ok(_) if !begun => None,
            Ok(bytes) => {
                let saved: Identity = serde_json::from_slice(&bytes)
                    .map_err(|error| foreign(format!("{RUN} cannot be read: {error}")))?;
                if (saved.node, saved.name.as_str()) != (node.0, name) {
                    return Err(foreign(format!("they are those of node {}", saved.name)));
                }
                let names = ["topology", "experiment", "model"];
                for ((saved, now), name) in saved.sections.iter().zip(sections).zip(names) {
                    if saved != now {
                        return Err(foreign(format!("{name}: {}", difference(saved, now))));
                    }
                }
                Some(saved.restarts)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(wrong(error)),
        };
        let (used, restarts) = (before.is_some(), before.map_or(0, |before| before + 1));
        let (name, sections) = (name.into(), sections.clone());
        let identity = Identity { node: node.0, name, sections, restarts };
        let text = serde_json::to_vec(&identity).map_err(|error| wrong(error.into()))?;
        replace_file(&*disk, &path, &mut |file| file.write_all(&text))?;
        Ok(Checkpoints { disk, folder, every, last: None, used, restarts, results: None })
    }

    /// The checkpoints of all nodes of a run in one process, whose `sections` are these. The last
    /// round needs none.
    ///
    /// # Errors
    /// As `Checkpoints::open`.
    pub fn of_all(
        design: &Design,
        run: &Path,
        sections: &[String; 3],
    ) -> Result<Vec<Checkpoints>, ConfigError> {
        let last = Some(design.experiment.run.rounds);
        let one = |node: usize| {
            let name = &design.topology.node(NodeId::from(node)).name;
            let place = (NodeId::from(node), name.as_str());
            let all = Checkpoints::open(run, Every::of(design), place, sections)?;
            Ok(Checkpoints { last, ..all })
        };
        (0..design.topology.nodes()).map(one).collect()
    }

    /// The membership that the node has adopted last, if it has adopted any.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn membership(&self) -> Result<Option<Membership>, ConfigError> {
        let path = self.folder.join(MEMBERSHIP);
        let wrong = |problem: String| ConfigError::at("membership", problem).within(path.display());
        match self.disk.read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|error| wrong(error.to_string()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(wrong(format!("cannot be read: {error}"))),
        }
    }

    /// Records the membership that the node adopts; it is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn adopt(&self, membership: &Membership) -> Result<(), ConfigError> {
        let text = serde_json::to_vec(membership).expect("a membership serialises to JSON");
        let path = self.folder.join(MEMBERSHIP);
        Ok(replace_file(&*self.disk, &path, &mut |file| file.write_all(&text))?)
    }

    /// Records that the run has begun.
    pub(crate) fn begin(&self) {
        // Without it a node that is started again waits for a shorter time.
        let _ = self.disk.write(&self.folder.join(BEGUN), &mut |_| Ok(()));
    }

    /// Whether the run has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.disk.exists(&self.folder.join(BEGUN))
    }

    fn path(&self, rounds: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{rounds:012}{SUFFIX}"))
    }

    /// The rounds of which there are files, ascending.
    fn rounds(&self) -> Vec<u64> {
        let round = |name: String| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok();
        let names = self.disk.names(&self.folder).unwrap_or_default();
        let mut rounds: Vec<u64> = names.into_iter().filter_map(round).collect();
        rounds.sort_unstable();
        rounds
    }

    /// The memberships and rounds of the checkpoints that can be used, ascending, and the newest of
    /// them. A checkpoint that cannot be used is reported.
    pub(crate) fn available(&self) -> (Vec<(u64, u64)>, Option<Checkpoint>) {
        let (mut all, mut newest) = (Vec::new(), None);
        for round in self.rounds() {
            match self.load(round) {
                Ok(checkpoint) => {
                    let place = (checkpoint.membership, round);
                    if all.iter().all(|other| place > *other) {
                        newest = Some(checkpoint);
                    }
                    all.push(place);
                }
                Err(error) => tracing::warn!("{error}; an earlier one is used"),
            }
        }
        all.sort_unstable();
        (all, newest)
    }

    /// Reads the checkpoint after this many rounds.
    ///
    /// # Errors
    /// If it cannot be used.
    pub(crate) fn load(&self, rounds: u64) -> Result<Checkpoint, ConfigError> {
        let path = self.path(rounds);
        Checkpoint::read(&*self.disk, &path, rounds).map_err(|problem| {
            ConfigError::at("checkpoint", format!("cannot be used: {problem}"))
                .within(path.display())
        })
    }

    /// Writes a checkpoint; it is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written; those before it are unchanged.
    pub(crate) fn write(&self, checkpoint: &Checkpoint) -> Result<(), ConfigError> {
        checkpoint.write(&*self.disk, &self.path(checkpoint.snapshot.rounds.0))
    }

    /// Removes the checkpoints of other rounds than `kept` says.
    pub(crate) fn retain(&self, kept: impl Fn(u64) -> bool) {
        for round in self.rounds().into_iter().filter(|round| !kept(*round)) {
            // One that stays takes space only.
            let _ = self.disk.remove_file(&self.path(round));
        }
    }

    /// The rounds of the newest file; 0 if there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.rounds().last().copied().unwrap_or(0)
    }

    /// Whether there is no file of a checkpoint.
    pub(crate) fn is_empty(&self) -> bool {
        self.rounds().is_empty()
    }

    /// Removes all of them with their folder, as far as possible.
    pub(crate) fn remove(&self) {
        for name in self.disk.names(&self.folder).unwrap_or_default() {
            let _ = self.disk.remove_file(&self.folder.join(name));
        }
        let _ = self.disk.remove_folder(&self.folder);
        if let Some(parent) = self.folder.parent() {
            // Others may have theirs there: then it stays.
            let _ = self.disk.remove_folder(parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        gossip::{LinkTraffic, Traffic, snapshot::Snapshot},
        state::State,
        units::{Round, Time},
    };

    fn sections() -> [String; 3] {
        ["nodes = 2".into(), "run.seed = 1\nrun.rounds = 9".into(), "model.kind = mlp".into()]
    }

    fn open(folder: &Path, sections: &[String; 3]) -> Result<Checkpoints, ConfigError> {
        Checkpoints::open(folder, Every::Rounds(3), (NodeId(1), "rome"), sections)
    }

    fn checkpoint(rounds: u64) -> Checkpoint {
        let state = |names: &[&str]| State {
            vectors: names.iter().map(|name| (name.to_string(), vec![f32::NAN, -0.0])).collect(),
            numbers: vec![("weight".into(), 0.1), ("mass".into(), -0.0)],
        };
        Checkpoint {
            snapshot: Snapshot {
                rounds: Round(rounds),
                x: vec![1.5, -2.0, 1e-45],
                model: Some(vec![0.5]),
                rule: state(&["copy", "copy", "error"]),
                traffic: Traffic { payload: 1, wire: 2, dense: 3, tree: 4 },
                links: vec![LinkTraffic { to: NodeId(0), payload: 5, wire: 6 }],
                growth: [0.1, 1e300, 3.0],
            },
            learner: state(&["momentum"]),
            setup: vec![0, 255],
            time: Time(7),
            computing: Time(8),
            membership: 7,
            common: 3,
            history: vec![Change {
                id: 7,
                round: Round(2),
                members: vec![NodeId(1)],
                cut: vec![(NodeId(0), NodeId(1))],
                models: Vec::new(),
            }],
        }
    }

    /// Equal to the bit: NaN is not equal to itself.
    fn text(checkpoint: &Checkpoint) -> String {
        format!("{checkpoint:?}")
    }

    #[test]
    fn a_checkpoint_comes_back_to_the_bit_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        for rounds in [3, 6, 9] {
            all.write(&checkpoint(rounds)).unwrap();
        }
        let (rounds, newest) = all.available();
        assert_eq!(
            (rounds, newest.map(|newest| newest.common)),
            (vec![(7, 3), (7, 6), (7, 9)], Some(3))
        );
        assert_eq!(text(&all.load(6).unwrap()), text(&checkpoint(6)));
        all.retain(|round| round >= 6);
        assert_eq!(open(folder.path(), &sections()).unwrap().available().0, [(7, 6), (7, 9)]);
        all.retain(|_| false);
        assert!(all.is_empty());
        all.remove();
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[test]
    fn what_a_killed_program_was_writing_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        all.write(&checkpoint(3)).unwrap();
        let part = all.folder.join("round-000000000006.safetensors.7.part");
        fs::write(&part, "half").unwrap();
        open(folder.path(), &sections()).unwrap();
        assert!(!part.exists());
        assert_eq!(all.rounds(), [3]);
    }

    #[test]
    fn a_damaged_checkpoint_is_refused_and_the_one_before_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        all.write(&checkpoint(3)).unwrap();
        all.write(&checkpoint(6)).unwrap();
        let whole = fs::read(all.path(6)).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(all.path(6), &bytes).unwrap();
            assert!(all.load(6).is_err(), "byte {at}");
            fs::write(all.path(6), &whole[..at]).unwrap();
            assert!(all.load(6).is_err(), "cut after {at} bytes");
        }
        assert_eq!(all.available().0, [(7, 3)]);
        fs::write(all.path(9), &whole).unwrap();
        let error = all.load(9).unwrap_err().to_string();
        assert!(error.contains("it is of round 6, not 9 as its name says"), "{error}");
    }

    #[test]
    fn a_checkpoint_of_another_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        checkpoint(3).write_as(2, &FileSystem, &all.path(3)).unwrap();
        let error = all.load(3).unwrap_err().to_string();
        assert!(error.contains("format 2, this program reads 1"), "{error}");
    }

    #[test]
    fn checkpoints_of_another_run_are_refused_with_the_difference() {
        let folder = tempfile::tempdir().unwrap();
        let mut others = sections();
        others[0] = "nodes = 3".into();
        open(folder.path(), &others).unwrap();
        // That run has not begun.
        let all = open(folder.path(), &sections()).unwrap();
        assert!(!all.used);
        all.begin();
        let again = open(folder.path(), &sections()).unwrap();
        assert_eq!((again.used, again.restarts), (true, 1));
        others = sections();
        others[1] = "run.seed = 1\nrun.rounds = 12".into();
        let error = open(folder.path(), &others).unwrap_err().to_string();
        let expected = "experiment: run.rounds = 9 in the checkpoints, 12 now";
        assert!(error.contains(expected), "{error}");
    }
}
