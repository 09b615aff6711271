//! Topologies: drawn, with their spectrum, and their figures in a table.

use std::fmt::Write as _;

use super::{
    Figure,
    markup::{Cell, Table, count, grouped, number, short},
};
use crate::topology;
use gradvine::{mixing::Topology, run::Run};

/// The number of eigenvalues in the table behind a picture.
const MOST_EIGENVALUES: usize = 200;
/// The diameter of larger graphs without a closed form is not computed.
const SEARCHED: usize = 2_000;
/// The maximum number of pictures of topologies on a page.
const MOST_DRAWN: usize = 24;

/// Each topology once, in the order of the runs, and the number of those not drawn.
pub(super) fn figures(runs: &[Run]) -> (Vec<Figure>, usize) {
    let mut different: Vec<(String, Vec<&Run>)> = Vec::new();
    for run in runs {
        let text = content(&run.topology);
        match different.iter_mut().find(|(known, _)| *known == text) {
            Some((_, users)) => users.push(run),
            None => different.push((text, vec![run])),
        }
    }
    let figures = different
        .iter()
        .take(MOST_DRAWN)
        .enumerate()
        .map(|(index, (_, users))| figure(users, index + 1));
    (figures.collect(), different.len().saturating_sub(MOST_DRAWN))
}

/// The content of a topology's picture: without the peers and addresses of its nodes.
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

fn figure(users: &[&Run], number: usize) -> Figure {
    let topology = &users[0].topology;
    let names: Vec<&str> = users.iter().take(8).map(|run| run.name.as_str()).collect();
    let more = if users.len() > names.len() {
        format!(" and {} more", users.len() - names.len())
    } else {
        String::new()
    };
    let mut caption = format!("Of {}{more}. Links are as wide as their weights.", names.join(", "));
    for summary in users.iter().filter_map(|run| run.summary.as_ref()).take(1) {
        if let Some(schedule) = &summary.schedule {
            caption += &format!(
                " The runs follow the schedule {schedule}: of a round's links only some are used, \
                 and disagreement shrinks by {:.4} a round.",
                summary.rho
            );
        }
    }
    Figure {
        id: format!("topology-{number}"),
        title: format!("{} and the spectrum of its mixing matrix", short(topology.name(), 60)),
        caption,
        svg: described(&topology::svg(topology), &in_words(topology)),
        still: String::new(),
        narrow: Some(described(&topology::narrow_svg(topology), &in_words(topology))),
        table: table(topology),
    }
}

/// The picture with a description after its title.
fn described(svg: &str, words: &str) -> String {
    let words = super::markup::text(words);
    svg.replacen("</title>\n", &format!("</title>\n<desc>{words}</desc>\n"), 1)
}

fn in_words(topology: &Topology) -> String {
    let spectrum = topology.spectrum();
    let time = spectrum.mixing_time().map_or_else(String::new, |rounds| {
        format!("; disagreement falls to a hundredth in {}", count(rounds as usize, "round"))
    });
    format!(
        "{}, {}, rho {}, gap {}{time}.",
        count(topology.nodes(), "node"),
        count(topology.links(), "link"),
        number(spectrum.rho),
        number(spectrum.gap)
    )
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
