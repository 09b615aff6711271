//! The node's files, its data, and the space for the run.

use std::{io, path::Path};

use gradvine::{
    experiment::Experiment,
    mixing::Topology,
    net::{Place, check_checkpoints, check_deployment, identity},
    node::check_on_event,
    run::{NodeFile, RunDirectory, SavedFiles, Single, Space},
    units::{Bytes, NodeId},
};
use gradvine_watch::Page;

use crate::{Finding, Report};

/// What the files of a node say.
pub(crate) struct Examined {
    pub place: Place,
    pub experiment: Experiment,
    /// The node, if its experiment and data fit together.
    pub single: Option<Single>,
}

/// Reads all files; `None` if they name no node.
pub(crate) fn examine(path: &Path, report: &mut Report) -> Option<Examined> {
    let mut note = |finding: Finding| report.findings.push(finding);
    let file = match NodeFile::load(path) {
        Ok(file) => file,
        Err(error) => {
            note(Finding::wrong("node file", &error));
            return None;
        }
    };
    note(Finding::ok("node file", path.display().to_string()));
    match Page::open(&file.status) {
        Ok(None) => {}
        Ok(Some(page)) => note(Finding::ok("page", format!("http://{}/", page.address()))),
        Err(error) => note(Finding::wrong("page", &error.within(path.display()))),
    }
    match check_on_event(&file) {
        Ok(None) => {}
        Ok(Some(program)) => note(Finding::ok("on_event", program.display().to_string())),
        Err(error) => note(Finding::wrong("on_event", &error.within(path.display()))),
    }
    // Each file is read even if another is wrong.
    let key = identity::load(&file.key).map_err(|error| note(Finding::wrong("key", &error))).ok();
    if let Some(key) = &key {
        let peer = key.public().to_peer_id();
        note(Finding::ok("key", format!("PeerId {peer}")));
    }
    let topology = match Topology::load(&file.topology) {
        Ok(topology) => {
            let (nodes, links) = (topology.nodes(), topology.links());
            let text = format!("{}: {nodes} nodes, {links} links", topology.name());
            let fault = check_deployment(&topology).err();
            note(match fault.clone() {
                None => Finding::ok("topology", text),
                Some(error) => Finding::wrong("topology", &error.within(file.topology.display())),
            });
            Some((topology, fault))
        }
        Err(error) => {
            note(Finding::wrong("topology", &error));
            None
        }
    };
    let experiment = Experiment::load(&file.experiment, &[])
        .map_err(|error| note(Finding::wrong("experiment", &error)))
        .ok();
    let (key, (topology, fault), experiment) = (key?, topology?, experiment?);
    let place = Place::new(key, &file.listen, &topology)
        .and_then(|place| place.with_upnp(file.upnp))
        .and_then(|place| place.with_proxy(file.proxy.as_deref()));
    let place = match place {
        Ok(place) => place.with_security(file.security),
        Err(error) => {
            // The message says which of the two files is meant. The topology's faults are noted.
            if fault.as_ref() != Some(&error) {
                note(Finding::wrong("place", &error));
            }
            return None;
        }
    };
    for warning in place.warnings() {
        let remedy = "correct `listen` in the node file, or this node's addresses in the topology";
        note(Finding::warning("listen", warning, remedy));
    }
    let name = topology.node(place.node).name.clone();
    let single = judge_rows(&file, (&experiment, &topology), place.node, &mut note);
    judge_folder(&file, single.as_ref(), place.node, &mut note);
    report.node = Some(name);
    Some(Examined { place, experiment, single })
}

/// The node's own rows, as the experiment reads them.
fn judge_rows(
    file: &NodeFile,
    (experiment, topology): (&Experiment, &Topology),
    node: NodeId,
    note: &mut dyn FnMut(Finding),
) -> Option<Single> {
    if file.data.is_some() {
        match Single::new(file, experiment.clone(), topology.clone(), node) {
            Ok(single) => {
                note(Finding::ok("experiment", single_text(&single)));
                note(Finding::ok("data", format!("{} rows to train on", single.rows)));
                if let Some(warning) = &single.warning {
                    note(Finding::warning("init", warning, "see data.scale in docs/experiment.md"));
                }
                for remark in &single.remarks {
                    note(Finding::warning("data", remark, "see docs/data.md"));
                }
                for warning in &single.design.rule.warnings {
                    note(Finding::warning(
                        "rule",
                        warning,
                        "`gradvine rules` shows its conditions",
                    ));
                }
                Some(single)
            }
            Err(error) => {
                note(Finding::wrong("experiment and data", &error));
                None
            }
        }
    } else {
        let text = "the node file names no data: a program must bring its own objective";
        note(Finding::warning("data", text, "name the rows (`data`) if `gradvine node` will run"));
        None
    }
}

/// The run directory and its disk.
fn judge_folder(
    file: &NodeFile,
    single: Option<&Single>,
    node: NodeId,
    note: &mut dyn FnMut(Finding),
) {
    if RunDirectory::can_go_on(&file.out) {
        let text = format!("{} holds a run: if it is this one, it continues", file.out.display());
        note(match single {
            Some(single) => match single
                .read
                .clone()
                .resumed(&file.out)
                .and_then(|_| check_checkpoints(&file.out, &single.design, node))
            {
                Ok(()) => Finding::ok("out", text),
                Err(error) => Finding::wrong("out", &error),
            },
            None => Finding::ok("out", text),
        });
    } else if RunDirectory::is_taken(&file.out) {
        let text = format!("{} holds a run already", file.out.display());
        note(Finding::error("out", text, "name another folder in `out`, or remove this one"));
    }
    if let Err(error) = writable(&file.out) {
        let text = format!("{} cannot be written: {error}", file.out.display());
        note(Finding::error("out", text, "name a folder that this user may write in `out`"));
    } else if let Some(single) = single {
        let space = Space::of(&single.design, SavedFiles::One);
        match space.check(&file.out) {
            Ok(None) => note(Finding::ok("disk", format!("the run needs {}", Bytes(space.all)))),
            Ok(Some(warning)) => {
                note(Finding::warning(
                    "disk",
                    warning,
                    "free space, or name another disk in `out`",
                ));
            }
            Err(error) => note(Finding::wrong("disk", &error)),
        }
    }
}

fn single_text(single: &Single) -> String {
    let design = &single.design;
    let (rule, compressor) = (design.rule_name(), design.compressor.name());
    let rounds = design.experiment.run.rounds;
    format!("{rule} with {compressor}, {} parameters, {rounds} rounds", design.parameters())
}

/// Whether a folder that exists, or the nearest one above it, can be written: by a file that is
/// removed again.
fn writable(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let Some(there) = path.ancestors().find(|path| path.exists()) else { return Ok(()) };
    let trial = there.join(format!(".gradvine-doctor-{}", std::process::id()));
    gradvine::files::create(&trial)?;
    std::fs::remove_file(&trial)
}
