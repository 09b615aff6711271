//! The picture for documents: the graph on the left, its spectrum on the right.

use std::fmt::Write as _;

use gradvine::{
    mixing::{LinkInfo, Topology},
    units::NodeId,
};
use quick_xml::escape::escape;

use crate::{
    sheet::{Anchor, BLUE, Extent, FAINT, GREY, INK, Point, RED, Sheet, Word, width},
    text::short,
};

use super::{Layout, chart, figure, histogram, range};

/// Width and height of the wide page, in pixels.
const PAGE: Point = (980.0, 600.0);
/// The square of the graph: its middle and half its side.
const MIDDLE: Point = (290.0, 320.0);
const HALF: f64 = 228.0;
/// Above this many nodes or links they are not drawn one by one.
const MAX_NODES: usize = 512;
const MAX_LINKS: usize = 8_192;
/// Up to this many links show their weight as a word; up to the second number, if the weights
/// differ.
const MAX_WORDS: usize = 16;
const MAX_DIFFERENT: usize = 40;
/// The maximum length of a written name, in characters.
const MAX_NAME: usize = 18;
/// How far the links around a torus curve out, in steps of its grid.
const BOW: f64 = 0.45;
/// The attributes of a word over links.
const HALO: &str =
    "paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"3.5\" stroke-linejoin=\"round\"";

/// The topology as an SVG: nodes with their names, links as wide as their weights, and beside them
/// all eigenvalues with rho and the gap. Peer, weight, latency and bandwidth show when the pointer
/// rests on a node or link. Above 512 nodes or 8,192 links the degrees are drawn instead.
///
/// ```
/// let ring = gradvine::mixing::Topology::parse("ring:8", 0)?;
/// let picture = gradvine_report::topology::svg(&ring);
/// assert!(picture.starts_with("<svg") && picture.contains("gap 0.1953"));
/// # Ok::<(), gradvine::mixing::TopologyError>(())
/// ```
pub fn svg(topology: &Topology) -> String {
    compose(topology).finish()
}

fn compose(topology: &Topology) -> Sheet {
    let mut sheet = Sheet::new(PAGE, &title(topology));
    heading(topology, &mut sheet);
    chart::spectrum(topology, &mut sheet);
    graph(topology, &mut sheet);
    sheet
}

fn title(topology: &Topology) -> String {
    format!("topology {} and the spectrum of its mixing matrix", topology.name())
}

fn graph(topology: &Topology, sheet: &mut Sheet) {
    if topology.nodes() <= MAX_NODES && topology.links() <= MAX_LINKS {
        Graph::new(topology).draw(sheet);
    } else {
        bars(topology, sheet);
    }
}

fn heading(topology: &Topology, sheet: &mut Sheet) {
    let title = Word::new((24.0, 30.0), Anchor::Start, short(topology.name(), 48)).sized(20.0);
    sheet.write(&Word { bold: true, ..title });
    let spectrum = topology.spectrum();
    let count = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let mut text = format!(
        "{}, {}, {} weights",
        count(topology.nodes(), "node"),
        count(topology.links(), "link"),
        topology.weights()
    );
    let _ = write!(text, "; rho {}, gap {}", figure(spectrum.rho), figure(spectrum.gap));
    if let Some(rounds) = spectrum.mixing_time() {
        let least = if spectrum.converged { "" } else { "at least " };
        let _ = write!(
            text,
            "; disagreement falls to 1/100 in {least}{}",
            count(rounds as usize, "round")
        );
    }
    sheet.write(&Word::new((24.0, 56.0), Anchor::Start, text).coloured(FAINT));
    sheet.write(
        &Word::new((24.0, PAGE.1 - 16.0), Anchor::Start, weights_in_words(topology))
            .sized(11.0)
            .coloured(FAINT),
    );
}

fn weights_in_words(topology: &Topology) -> String {
    let between = |values: &mut dyn Iterator<Item = f64>| {
        let (least, greatest) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        if greatest - least < 1e-12 {
            figure(least)
        } else {
            format!("{} to {}", figure(least), figure(greatest))
        }
    };
    let own =
        between(&mut (0..topology.nodes()).map(|i| topology.matrix().self_weight(NodeId::from(i))));
    if topology.links() == 0 {
        return format!("a node keeps {own}");
    }
    let links = between(
        &mut topology.edges().filter_map(|(a, b)| topology.link(a, b)).map(|link| link.weight),
    );
    format!("a link weighs {links}, a node keeps {own}")
}

/// The path of a link on the page.
#[derive(Clone, Copy)]
enum Way {
    Straight(Point, Point),
    /// Around the other nodes of a row or column, with two control points.
    Around(Point, Point, Point, Point),
}

impl Way {
    /// The point after this share of the path.
    fn at(self, share: f64) -> Point {
        let (t, s) = (share, 1.0 - share);
        let mix = |a: f64, b: f64, c: f64, d: f64| {
            s * s * s * a + 3.0 * s * t * (s * b + t * c) + t * t * t * d
        };
        match self {
            Way::Straight(p, q) => (s * p.0 + t * q.0, s * p.1 + t * q.1),
            Way::Around(p, a, b, q) => (mix(p.0, a.0, b.0, q.0), mix(p.1, a.1, b.1, q.1)),
        }
    }

    fn path(self) -> String {
        match self {
            Way::Straight(p, q) => format!("M{:.1} {:.1}L{:.1} {:.1}", p.0, p.1, q.0, q.1),
            Way::Around(p, a, b, q) => {
                format!(
                    "M{:.1} {:.1}C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}",
                    p.0, p.1, a.0, a.1, b.0, b.1, q.0, q.1
                )
            }
        }
    }
}

struct Graph<'a> {
    topology: &'a Topology,
    layout: Layout,
    places: Vec<Point>,
    names: Vec<String>,
    /// The distance of the two nearest nodes, and the radius of a node.
    near: f64,
    radius: f64,
}

impl Graph<'_> {
    fn new(topology: &Topology) -> Graph<'_> {
        let layout = Layout::of(topology);
        let ids = || (0..topology.nodes()).map(NodeId::from);
        let names: Vec<String> = ids().map(|id| short(&topology.node(id).name, MAX_NAME)).collect();
        let longest = names.iter().map(|name| width(name, 11.0)).fold(0.0, f64::max);
        // Names beside the nodes of a circle need room on both sides.
        let half = match layout {
            Layout::Circle | Layout::Hub => HALF - (longest - 24.0).clamp(0.0, 100.0),
            Layout::Cube(_) => HALF - (longest / 2.0 - 12.0).clamp(0.0, 60.0),
            // So that the curves at the rim stay inside.
            Layout::Grid(rows, columns) => HALF / (1.0 + BOW / (rows.max(columns) - 1) as f64),
        };
        let place = |(x, y): Point| (MIDDLE.0 + half * x, MIDDLE.1 + half * y);
        let places: Vec<Point> = layout.places(topology.nodes()).into_iter().map(place).collect();
        let near = nearest(&places);
        let radius = (0.3 * near).clamp(3.0, 17.0);
        Graph { topology, layout, places, names, near, radius }
    }

    fn draw(&self, sheet: &mut Sheet) {
        let ways: Vec<Way> = self.topology.edges().map(|(a, b)| self.way(a, b)).collect();
        let links: Vec<LinkInfo> =
            self.topology.edges().filter_map(|(a, b)| self.topology.link(a, b)).copied().collect();
        let heaviest = links.iter().map(|link| link.weight.abs()).fold(0.0, f64::max);
        let fine = (100.0 / links.len().max(1) as f64).clamp(0.12, 1.0);
        for (((a, b), link), way) in self.topology.edges().zip(&links).zip(&ways) {
            let stroke = fine * (1.0 + 2.5 * link.weight.abs() / heaviest);
            let (colour, dashes) =
                if link.weight < 0.0 { (RED, " stroke-dasharray=\"6 4\"") } else { (GREY, "") };
            let title = format!(
                "{} - {}: {}",
                self.topology.node(a).name,
                self.topology.node(b).name,
                describe(link, "weight ")
            );
            sheet.raw(format_args!(
                "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" \
                 stroke-width=\"{stroke:.2}\"{dashes}><title>{}</title></path>",
                way.path(),
                escape(title.as_str())
            ));
        }
        for (i, &place) in self.places.iter().enumerate() {
            let node = self.topology.node(NodeId::from(i));
            let peer = node.peer.as_ref().map_or_else(String::new, |peer| format!(" ({peer})"));
            let own = figure(self.topology.matrix().self_weight(NodeId::from(i)));
            let title = format!("{}{peer}: keeps {own}", node.name);
            sheet.raw(format_args!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{:.1}\" fill=\"{BLUE}\" stroke=\"#ffffff\" \
                 stroke-width=\"{:.1}\"><title>{}</title></circle>",
                place.0,
                place.1,
                self.radius,
                (self.radius / 6.0).min(2.0),
                escape(title.as_str())
            ));
            sheet.taken.push(Extent::around(place, self.radius));
        }
        self.write_names(&ways, sheet);
        self.write_weights(&links, &ways, sheet);
    }

    /// Links that go around a torus are curved, so that they do not cover the others.
    fn way(&self, a: NodeId, b: NodeId) -> Way {
        let (p, q) = (self.places[a.index()], self.places[b.index()]);
        let Layout::Grid(_, columns) = self.layout else { return Way::Straight(p, q) };
        let bow = BOW * self.near;
        let out = 0.6 * self.near;
        let across = b.index() - a.index() < columns;
        if across && q.0 - p.0 > 1.5 * self.near {
            Way::Around(p, (p.0 + out, p.1 - bow), (q.0 - out, q.1 - bow), q)
        } else if !across && q.1 - p.1 > 1.5 * self.near {
            Way::Around(p, (p.0 - bow, p.1 + out), (q.0 - bow, q.1 - out), q)
        } else {
            Way::Straight(p, q)
        }
    }

    /// Inside the nodes if they fit there, else beside them; on a crowded circle along its rays.
    fn write_names(&self, ways: &[Way], sheet: &mut Sheet) {
        let longest = self.names.iter().map(|name| width(name, 1.0)).fold(0.0, f64::max);
        let inside = (1.75 * self.radius / longest).min(12.0);
        if inside >= 8.5 {
            for (name, &place) in self.names.iter().zip(&self.places) {
                sheet.letters(
                    &Word::new(place, Anchor::Middle, name).sized(inside).coloured("#ffffff"),
                    "",
                );
            }
        } else if matches!(self.layout, Layout::Circle | Layout::Hub) && 11.0 * longest > self.near
        {
            self.write_rays(sheet);
        } else {
            self.write_beside(ways, sheet);
        }
    }

    fn write_rays(&self, sheet: &mut Sheet) {
        let size = (0.85 * self.near).min(11.0);
        if size < 4.0 {
            return; // the pointer still finds the names
        }
        for (name, &(x, y)) in self.names.iter().zip(&self.places) {
            let (dx, dy) = (x - MIDDLE.0, y - MIDDLE.1);
            let length = dx.hypot(dy);
            if length < 1.0 {
                // The hub.
                sheet.letters(
                    &Word::new((x, y + self.radius + size), Anchor::Middle, name).sized(size),
                    HALO,
                );
                continue;
            }
            let reach = (length + self.radius + 4.0) / length;
            let at = (MIDDLE.0 + reach * dx, MIDDLE.1 + reach * dy);
            let (anchor, turned) =
                if dx < -1e-9 { (Anchor::End, 180.0) } else { (Anchor::Start, 0.0) };
            let angle = dy.atan2(dx).to_degrees() + turned;
            let turn = format!("transform=\"rotate({angle:.1} {:.1} {:.1})\"", at.0, at.1);
            sheet.letters(&Word::new(at, anchor, name).sized(size), &turn);
        }
    }

    /// Writes each name at a free position: outwards first, then around the node.
    fn write_beside(&self, ways: &[Way], sheet: &mut Sheet) {
        let size = (0.6 * self.near).clamp(8.0, 12.0);
        for (name, &(x, y)) in self.names.iter().zip(&self.places) {
            let outwards = if (x - MIDDLE.0).hypot(y - MIDDLE.1) < 1.0 {
                90.0
            } else {
                (y - MIDDLE.1).atan2(x - MIDDLE.0).to_degrees()
            };
            let words =
                [0.0, 25.0, -25.0, 50.0, -50.0, 80.0, -80.0, 115.0, -115.0, 150.0, -150.0, 180.0]
                    .map(|turn| {
                        let (sine, cosine) = f64::to_radians(outwards + turn).sin_cos();
                        let anchor = match cosine {
                            c if c > 0.35 => Anchor::Start,
                            c if c < -0.35 => Anchor::End,
                            _ => Anchor::Middle,
                        };
                        let reach = self.radius + 5.0;
                        Word::new(
                            (x + reach * cosine, y + (reach + size / 2.0) * sine),
                            anchor,
                            name,
                        )
                        .sized(size)
                    });
            place(&words, ways, sheet);
        }
    }

    fn write_weights(&self, links: &[LinkInfo], ways: &[Way], sheet: &mut Sheet) {
        let uniform = self.topology.matrix().constant().is_some();
        if links.len() > MAX_DIFFERENT || (uniform && links.len() > MAX_WORDS) {
            return;
        }
        for (link, &way) in links.iter().zip(ways) {
            let shares = [0.5, 0.42, 0.58, 0.35, 0.65, 0.28, 0.72, 0.2, 0.8];
            let words = shares.map(|share| {
                Word::new(way.at(share), Anchor::Middle, describe(link, ""))
                    .sized(10.5)
                    .coloured(INK)
            });
            let others: Vec<Way> = ways
                .iter()
                .filter(|other| other.at(0.0) != way.at(0.0) || other.at(1.0) != way.at(1.0))
                .copied()
                .collect();
            place(&words, &others, sheet);
        }
    }
}

/// Writes the first of these words that is free, preferring one that no link crosses; none if all
/// would overlap.
fn place(words: &[Word], ways: &[Way], sheet: &mut Sheet) {
    let crossed = |word: &Word| {
        let extent = word.extent();
        ways.iter().any(|way| (1..60).any(|step| extent.holds(way.at(f64::from(step) / 60.0))))
    };
    let free: Vec<&Word> = words.iter().filter(|word| sheet.free(&word.extent())).collect();
    if let Some(word) = free.iter().find(|word| !crossed(word)).or(free.first()) {
        let extent = word.extent();
        sheet.taken.push(extent);
        sheet.raw(format_args!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#ffffff\" \
             fill-opacity=\"0.85\"/>",
            extent.left,
            extent.top,
            extent.right - extent.left,
            extent.bottom - extent.top
        ));
        sheet.letters(word, "");
    }
}

fn describe(link: &LinkInfo, weight: &str) -> String {
    let mut text = format!("{weight}{}", figure(link.weight));
    if let Some(latency) = link.latency_ms {
        let _ = write!(text, ", {} ms", figure(latency));
    }
    if let Some(bandwidth) = link.bandwidth_mbps {
        let _ = write!(text, ", {} Mbit/s", figure(bandwidth));
    }
    text
}

/// The distance of the two nearest points; a large number for a single point.
fn nearest(places: &[Point]) -> f64 {
    let apart = |(i, p): (usize, &Point)| {
        places[..i].iter().map(|q| (p.0 - q.0).hypot(p.1 - q.1)).fold(f64::INFINITY, f64::min)
    };
    places.iter().enumerate().map(apart).fold(200.0, f64::min)
}

/// Draws a histogram of degrees in place of a graph that is too large.
fn bars(topology: &Topology, sheet: &mut Sheet) {
    sheet.write(&Word {
        bold: true,
        ..Word::new((60.0, 96.0), Anchor::Start, "Nodes of each degree").sized(13.0)
    });
    let rows = histogram(topology, 16);
    let most = rows.iter().map(|row| row.2).max().unwrap_or(1);
    for (i, &(least, greatest, nodes)) in rows.iter().enumerate() {
        let y = 132.0 + 26.0 * i as f64;
        let long = (320.0 * nodes as f64 / most as f64).max(1.0);
        sheet.write(&Word::new((100.0, y), Anchor::End, range(least, greatest)).coloured(FAINT));
        sheet.raw(format_args!(
            "<rect x=\"110\" y=\"{:.1}\" width=\"{long:.1}\" height=\"16\" fill=\"{BLUE}\"/>",
            y - 8.0
        ));
        sheet.write(&Word::new((118.0 + long, y), Anchor::Start, nodes.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use quick_xml::{Reader, events::Event};

    use super::*;

    fn well_formed(text: &str) {
        let mut reader = Reader::from_str(text);
        reader.config_mut().check_end_names = true;
        let mut depth = 0;
        loop {
            match reader.read_event().unwrap() {
                Event::Start(_) => depth += 1,
                Event::End(_) => depth -= 1,
                Event::Eof => break,
                _ => {}
            }
        }
        assert_eq!(depth, 0);
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn no_word_lies_on_another_or_on_a_node() {
        let specs = "ring:1 ring:2 ring:4 ring:8 ring:16 ring:64 path:5 torus:2x4 torus:4x4 \
                     torus:8x8 torus:3x16 complete:8 complete:64 \
                     star:8 star:64 hypercube:4 hypercube:8 hypercube:16 hypercube:32 \
                     hypercube:64 exponential:16 random-regular:16:4";
        for spec in specs.split_whitespace() {
            let sheet = compose(&Topology::parse(spec, 0).unwrap());
            for (i, a) in sheet.taken.iter().enumerate() {
                assert!(
                    a.left >= 0.0 && a.right <= PAGE.0 && a.top >= 0.0 && a.bottom <= PAGE.1,
                    "{spec}: {a:?}"
                );
                for b in &sheet.taken[..i] {
                    let apart = a.left >= b.right
                        || b.left >= a.right
                        || a.top >= b.bottom
                        || b.top >= a.bottom;
                    assert!(apart, "{spec}: {a:?} {b:?}");
                }
            }
            well_formed(&sheet.finish());
        }
    }

    #[test]
    fn every_small_link_has_its_weight() {
        for spec in ["ring:4", "ring:8", "ring:16", "star:8", "hypercube:8", "path:9"] {
            let topology = Topology::parse(spec, 0).unwrap();
            let picture = svg(&topology);
            let words = picture.matches(">0.").count() - picture.matches(">0.5<").count();
            assert!(words >= topology.links(), "{spec}: {words} of {}", topology.links());
        }
    }

    #[test]
    fn names_are_escaped() {
        let text = "source,target,weight\n<a&b>,c]]>,0.4\n";
        let topology = Topology::from_text(text, gradvine::mixing::FileFormat::Csv, "odd").unwrap();
        let picture = svg(&topology);
        assert!(picture.contains("&lt;a&amp;b&gt;"));
        well_formed(&picture);
    }

    #[test]
    fn large_graphs_are_summed_up() {
        let picture = svg(&Topology::parse("torus:40x40", 0).unwrap());
        assert!(picture.contains("Nodes of each degree") && picture.len() < 20_000);
    }
}
