//! The picture of a topology for the terminal.

use std::fmt::Write as _;

use gradvine::{mixing::Topology, units::NodeId};

use crate::text::short;

use super::{Layout, canvas::Canvas, histogram, range};

/// The maximum number of nodes whose links are drawn one by one.
const MAX_DRAWN: usize = 16;
/// The maximum number of columns and rows of a drawn grid.
const MAX_GRID: (usize, usize) = (12, 12);
/// The maximum length of a name in a picture, in characters.
const MAX_NAME: usize = 14;
/// Dots along a side of the adjacency matrix.
const MATRIX: usize = 64;
/// Rows of the histogram of degrees, and the length of its longest bar.
const ROWS: usize = 12;
const BAR: usize = 40;

/// A topology in a few lines of text, at most 80 columns wide: up to 16 nodes with names and links
/// (a grid up to 12 x 12), above that the histogram of degrees, and the adjacency matrix as dots.
///
/// ```
/// let torus = gradvine::mixing::Topology::parse("torus:2x3", 0)?;
/// let picture = gradvine_report::topology::draw(&torus);
/// assert!(picture.contains("· 0 ─── 1 ─── 2 ·"));
/// # Ok::<(), gradvine::mixing::TopologyError>(())
/// ```
pub fn draw(topology: &Topology) -> String {
    let lines = match Layout::of(topology) {
        Layout::Grid(rows, columns)
            if rows <= MAX_GRID.1 && columns <= MAX_GRID.0 && cell(topology) * columns <= 76 =>
        {
            grid(topology, rows, columns)
        }
        layout if topology.nodes() <= MAX_DRAWN => links(topology, layout),
        _ => summary(topology),
    };
    lines.into_iter().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

/// Nodes and links in Braille.
fn links(topology: &Topology, layout: Layout) -> Vec<String> {
    let nodes = topology.nodes();
    if nodes == 1 {
        return vec![topology.node(NodeId(0)).name.clone()];
    }
    let names: Vec<String> = names(topology, MAX_NAME);
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(1);
    let rows = if nodes <= 8 { 17 } else { 25 };
    // A character is about twice as high as wide.
    let columns = 2 * rows + longest + 1;
    let mut canvas = Canvas::new(columns, rows);
    let half = ((columns - longest - 3) as f64, 2.0 * (rows - 1) as f64);
    let places: Vec<(f64, f64)> = layout.places(nodes);
    let middle = (columns as f64 - 1.0, 2.0 * rows as f64 - 1.0);
    let at = |node: NodeId| {
        let (x, y) = places[node.index()];
        (middle.0 + half.0 * x, middle.1 + half.1 * y)
    };
    topology.edges().for_each(|(a, b)| canvas.line(at(a), at(b)));
    for (i, name) in names.iter().enumerate() {
        let (x, y) = at(NodeId::from(i));
        canvas.write((x / 2.0).round() as usize, ((y / 4.0) as usize).min(rows - 1), name);
    }
    let lines = canvas.lines();
    let blank = |line: &&String| line.is_empty();
    let (above, below) =
        (lines.iter().take_while(blank).count(), lines.iter().rev().take_while(blank).count());
    lines[above..lines.len() - below].to_vec()
}

/// Draws a torus: dots at the rim lead to the opposite side.
fn grid(topology: &Topology, rows: usize, columns: usize) -> Vec<String> {
    let names = names(topology, MAX_NAME);
    let wide = cell(topology) - 5;
    let (around, over) = (columns > 2, rows > 2);
    let margin = if around { "· " } else { "" };
    let verticals = |sign: &str| {
        let column = format!("{sign:^wide$}");
        let indent = " ".repeat(margin.chars().count());
        format!("{indent}{}", vec![column; columns].join("     "))
    };
    let mut lines = Vec::new();
    lines.extend(over.then(|| verticals("·")));
    for row in 0..rows {
        if row > 0 {
            lines.push(verticals("│"));
        }
        let cells = names[row * columns..][..columns].iter().map(|name| format!("{name:^wide$}"));
        let end = if around { " ·" } else { "" };
        lines.push(format!("{margin}{}{end}", cells.collect::<Vec<_>>().join(" ─── ")));
    }
    lines.extend(over.then(|| verticals("·")));
    if around || over {
        lines.push(String::new());
        lines.push("A dot leads around to the other side.".into());
    }
    lines
}

/// The width of a grid's cell: the longest name and the link to the next.
fn cell(topology: &Topology) -> usize {
    names(topology, MAX_NAME).iter().map(|name| name.chars().count()).max().unwrap_or(1) + 5
}

fn names(topology: &Topology, most: usize) -> Vec<String> {
    (0..topology.nodes()).map(|i| short(&topology.node(NodeId::from(i)).name, most)).collect()
}

/// Summarises a graph that is too large to draw: degrees, and the adjacency matrix.
fn summary(topology: &Topology) -> Vec<String> {
    let mut lines = Vec::new();
    let histogram = histogram(topology, ROWS);
    if let [(least, greatest, nodes)] = histogram[..] {
        lines.push(format!("degree {}: all {nodes} nodes", range(least, greatest)));
    } else {
        let most = histogram.iter().map(|row| row.2).max().unwrap_or(1);
        let widest = histogram.iter().map(|row| range(row.0, row.1).len()).max().unwrap_or(1);
        lines.push("nodes of each degree:".into());
        for (least, greatest, nodes) in histogram {
            let bar = "█".repeat((BAR * nodes).div_ceil(most));
            lines.push(format!("  {:>widest$}  {bar} {nodes}", range(least, greatest)));
        }
    }
    lines.push(String::new());
    lines.extend(matrix(topology));
    lines
}

/// A dot for each link, or for each block of the matrix with a link.
fn matrix(topology: &Topology) -> Vec<String> {
    let nodes = topology.nodes();
    let block = nodes.div_ceil(MATRIX);
    let side = nodes.div_ceil(block);
    let mut canvas = Canvas::new(side.div_ceil(2), side.div_ceil(4));
    for (a, b) in topology.edges() {
        let (a, b) = (a.index() / block, b.index() / block);
        canvas.dot(a, b);
        canvas.dot(b, a);
    }
    let mut heading = String::from("adjacency matrix");
    if block > 1 {
        let _ = write!(heading, ", a dot for {block} x {block} entries");
    }
    let body = canvas.lines();
    let width = side.div_ceil(2);
    let rim = |left: char, right: char| format!("  {left}{}{right}", "─".repeat(width));
    let rows =
        body.iter().map(|line| format!("  │{line}{}│", " ".repeat(width - line.chars().count())));
    std::iter::once(heading).chain([rim('┌', '┐')]).chain(rows).chain([rim('└', '┘')]).collect()
}
