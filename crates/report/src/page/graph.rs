//! The figures of topologies.

use std::fmt::Write as _;

use super::words::{grouped, number, short};
use gradvine::{mixing::Topology, run::Run};
use gradvine_page::{Block, Cell, Table};

/// The number of eigenvalues in the table behind a picture.
const MOST_EIGENVALUES: usize = 200;
/// The diameter of larger graphs without a closed form is not computed.
const SEARCHED: usize = 2_000;

/// The figures of a run's topology.
pub(super) fn blocks(run: &Run) -> Vec<Block> {
    let mut blocks = vec![Block::Table(table(&run.topology))];
    if let Some(summary) = &run.summary
        && let Some(schedule) = &summary.schedule
    {
        let text = format!(
            "The run follows the schedule {schedule}: of a round's links only some are used, and \
             disagreement shrinks by {:.4} a round.",
            summary.rho
        );
        blocks.push(Block::Text { text });
    }
    blocks
}

/// What distinguishes topologies: not the peers and addresses of their nodes.
pub(super) fn content(topology: &Topology) -> String {
    let mut text = format!("{} {}\n", topology.name(), topology.weights());
    for node in 0..topology.nodes() {
        let _ = writeln!(text, "{}", topology.node(node.into()).name);
    }
    for (a, b) in topology.edges() {
        let _ = writeln!(text, "{a} {b} {:?}", topology.link(a, b));
    }
    text
}

fn table(topology: &Topology) -> Table {
    let spectrum = topology.spectrum();
    let degrees = || topology.graph().degrees();
    let (least, most) = (degrees().min().unwrap_or(0), degrees().max().unwrap_or(0));
    let closed = topology.shape().and_then(gradvine::mixing::FamilyMember::diameter);
    let diameter = closed.or_else(|| (topology.nodes() <= SEARCHED).then(|| topology.diameter()));
    let doubt = if spectrum.converged { "" } else { " (not converged)" };
    let mut rows = vec![
        ("nodes".to_string(), grouped(topology.nodes() as u64)),
        ("links".into(), grouped(topology.links() as u64)),
        (
            "links of a node".into(),
            if least == most { least.to_string() } else { format!("{least} to {most}") },
        ),
        ("weights".into(), topology.weights().to_string()),
        ("rho".into(), number(spectrum.rho) + doubt),
        ("gap".into(), number(spectrum.gap) + doubt),
        (
            "mixing time, rounds to 1/100".into(),
            spectrum.mixing_time().map_or("never".into(), grouped),
        ),
        (
            "diameter".into(),
            diameter.map_or("not computed".into(), |diameter| grouped(diameter as u64)),
        ),
        ("lambda 2".into(), number(spectrum.lambda_2)),
        ("lambda n".into(), number(spectrum.lambda_n)),
    ];
    let known = spectrum.eigenvalues.as_deref().unwrap_or_default();
    for (index, value) in known.iter().enumerate().take(MOST_EIGENVALUES) {
        rows.push((format!("eigenvalue {}", index + 1), number(*value)));
    }
    let left_out = match known.len() {
        0 => "Not all eigenvalues of so many nodes are computed.".into(),
        all if all > MOST_EIGENVALUES => {
            format!("{MOST_EIGENVALUES} of {} eigenvalues are shown.", grouped(all as u64))
        }
        _ => String::new(),
    };
    Table {
        caption: format!("{} and its spectrum", short(topology.name(), 60)),
        head: vec!["figure".into(), "value".into()],
        rows: rows
            .into_iter()
            .map(|(name, value)| vec![Cell::Name(name), Cell::Figure(value)])
            .collect(),
        left_out,
    }
}
