//! Topologies as users see them: the shipped files, exact spectra, weights that mix, and errors
//! with their remedies.

use std::{
    collections::BTreeSet,
    f64::consts::TAU,
    path::{Path, PathBuf},
};

use gradvine::{
    mixing::{
        FileFormat, Graph, MAX_LANCZOS_STEPS, Method, MixingMatrix, Spectrum, Topology, Weights,
    },
    units::NodeId,
};
use gradvine_report::topology::{draw, svg};
use proptest::prelude::*;

fn of(spec: &str) -> Topology {
    Topology::parse(spec, 0).unwrap()
}

fn refusal(text: &str, format: FileFormat) -> String {
    Topology::from_text(text, format, "net").expect_err(text).to_string()
}

// ------------------------------------------------------------------------------------------
// shipped files

/// File, nodes, links, gap, rounds to 1/100, diameter: from the closed forms, by hand; of the
/// groups from a plain power iteration.
const SHIPPED: [(&str, usize, usize, f64, u64, usize); 12] = [
    ("complete-8", 8, 28, 1.0, 1, 1),
    ("exponential-16", 16, 56, 0.5, 7, 2),
    ("four-regions", 4, 4, 2.0 / 3.0, 5, 2),
    ("four-regions-all", 4, 6, 1.0, 1, 1),
    ("four-regions-path", 4, 3, 0.195_262_145_876, 22, 3),
    ("groups-2x4", 8, 11, 0.070_849_737_787, 63, 3),
    ("hypercube-8", 8, 12, 0.5, 7, 3),
    ("ring-16", 16, 16, 0.050_746_978_326, 89, 8),
    ("ring-4", 4, 4, 2.0 / 3.0, 5, 2),
    ("ring-8", 8, 8, 0.195_262_145_876, 22, 4),
    ("star-8", 8, 7, 0.125, 35, 2),
    ("torus-4x4", 16, 32, 0.4, 10, 4),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../topologies")
}

#[test]
fn shipped_files_are_these_and_mix_as_they_should() {
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| FileFormat::of(path).is_some())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_string())
        .collect();
    assert_eq!(found, SHIPPED.iter().map(|row| row.0.to_string()).collect());
    for (name, nodes, links, gap, rounds, diameter) in SHIPPED {
        let path = folder().join(format!("{name}.toml"));
        assert!(
            std::fs::read_to_string(&path).unwrap().starts_with("# "),
            "{name} does not say what it is"
        );
        let topology = Topology::load(&path).unwrap();
        assert_eq!((topology.name(), topology.nodes(), topology.links()), (name, nodes, links));
        let found = topology.spectrum().gap;
        assert!((found - gap).abs() < 1e-10, "{name}: {found}");
        assert_eq!(
            (topology.spectrum().mixing_time(), topology.diameter()),
            (Some(rounds), diameter),
            "{name}"
        );
    }
}

#[test]
fn shipped_files_survive_every_format() {
    for (name, ..) in SHIPPED {
        let topology = Topology::load(&folder().join(format!("{name}.toml"))).unwrap();
        for format in FileFormat::ALL {
            let text = topology.to_text(format);
            let again = Topology::from_text(&text, format, "copy").unwrap();
            assert_eq!(again, topology, "{name} in {format}:\n{text}");
            assert_eq!(again.canonical(), topology.canonical());
            assert_eq!(again.to_text(format), text, "{name} in {format} is not stable");
        }
    }
}

#[test]
fn four_regions_have_their_links() {
    let topology = Topology::load(&folder().join("four-regions.toml")).unwrap();
    for (a, b, round_trip, rate) in [
        ("ohio", "california", 35.0, 63.0),
        ("london", "ohio", 140.0, 23.0),
        ("california", "tokyo", 183.0, 17.0),
        ("tokyo", "london", 277.0, 13.0),
    ] {
        let link = topology.link(topology.find(a).unwrap(), topology.find(b).unwrap()).unwrap();
        assert_eq!(
            (link.latency_ms, link.bandwidth_mbps),
            (Some(round_trip / 2.0), Some(rate)),
            "{a} - {b}"
        );
    }
}

#[test]
fn pictures_name_every_node() {
    for (name, ..) in SHIPPED {
        let topology = Topology::load(&folder().join(format!("{name}.toml"))).unwrap();
        let (text, picture) = (draw(&topology), svg(&topology));
        let words: BTreeSet<&str> = text.split_whitespace().collect();
        for i in 0..topology.nodes() {
            let node = &topology.node(NodeId::from(i)).name;
            assert!(words.contains(node.as_str()), "{name}: {node} is missing\n{text}");
            assert!(picture.contains(&format!(">{node}</text>")), "{name}: {node} is missing");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{name} is wide\n{text}");
    }
}

// ------------------------------------------------------------------------------------------
// exact spectra

/// Compares all eigenvalues, by every method that gives them, with `exact` (any order).
fn same_spectrum(spec: &str, mut exact: Vec<f64>) {
    exact.sort_by(|a, b| b.total_cmp(a));
    let topology = of(spec);
    let ways = [topology.spectrum().clone(), Spectrum::dense(topology.matrix())];
    assert_eq!((ways[0].method, ways[1].method), (Method::ClosedForm, Method::Dense), "{spec}");
    for found in &ways {
        let values = found.eigenvalues.as_ref().unwrap();
        assert_eq!(values.len(), exact.len(), "{spec}");
        for (a, b) in values.iter().zip(&exact) {
            assert!((a - b).abs() < 1e-10, "{spec}, {}: {a} for {b}", found.method);
        }
    }
    let (lambda_2, lambda_n) = (exact[1], exact[exact.len() - 1]);
    for found in ways.iter().chain([&Spectrum::lanczos(topology.matrix(), MAX_LANCZOS_STEPS)]) {
        assert!(found.converged, "{spec}");
        assert!(
            (found.lambda_2 - lambda_2).abs() < 1e-9,
            "{spec}, {}: {}",
            found.method,
            found.lambda_2
        );
        assert!(
            (found.lambda_n - lambda_n).abs() < 1e-9,
            "{spec}, {}: {}",
            found.method,
            found.lambda_n
        );
        assert!(
            (found.rho - lambda_2.abs().max(lambda_n.abs())).abs() < 1e-9,
            "{spec}, {}",
            found.method
        );
    }
}

/// `2 cos(2 pi k / n)`, the adjacency eigenvalue of a ring.
fn wave(k: usize, n: usize) -> f64 {
    2.0 * (TAU * k as f64 / n as f64).cos()
}

#[test]
fn rings() {
    for n in [3, 4, 5, 8, 16, 33, 64] {
        same_spectrum(&format!("ring:{n}"), (0..n).map(|k| (1.0 + wave(k, n)) / 3.0).collect());
    }
}

#[test]
fn tori() {
    for (rows, columns) in [(3, 3), (4, 4), (3, 7), (6, 6)] {
        let pairs = (0..rows).flat_map(|j| {
            (0..columns).map(move |k| (1.0 + wave(j, rows) + wave(k, columns)) / 5.0)
        });
        same_spectrum(&format!("torus:{rows}x{columns}"), pairs.collect());
    }
}

#[test]
fn complete_graphs_agree_in_one_round() {
    for n in [2, 3, 8, 20] {
        same_spectrum(
            &format!("complete:{n}"),
            (0..n).map(|k| f64::from(u8::from(k == 0))).collect(),
        );
    }
}

#[test]
fn stars() {
    for n in [3, 8, 21] {
        let others = (2..n).map(|_| 1.0 - 1.0 / n as f64);
        same_spectrum(&format!("star:{n}"), others.chain([1.0, 0.0]).collect());
    }
}

#[test]
fn hypercubes() {
    for d in 1..7u32 {
        let of_node = |v: u32| 1.0 - f64::from(2 * v.count_ones()) / f64::from(d + 1);
        same_spectrum(&format!("hypercube:{}", 1 << d), (0..1 << d).map(of_node).collect());
    }
}

#[test]
fn lanczos_converges_to_the_closed_form_or_reports_failure() {
    let mut outcomes = BTreeSet::new();
    for n in [10, 100, 1_000, 5_000] {
        let topology = of(&format!("ring:{n}"));
        for steps in [5, 50, 500, 2_500] {
            let (found, exact) = (Spectrum::lanczos(topology.matrix(), steps), topology.spectrum());
            outcomes.insert(found.converged);
            if found.converged {
                assert!(
                    (found.gap / exact.gap - 1.0).abs() < 1e-5,
                    "ring:{n}, {steps} steps: {}",
                    found.gap
                );
            } else {
                assert!(
                    found.rho < exact.rho && found.residual.unwrap() > 0.0,
                    "ring:{n}, {steps} steps"
                );
            }
        }
    }
    assert_eq!(outcomes.len(), 2, "both must occur");
}

#[test]
fn a_ring_of_100_000_is_beyond_lanczos() {
    let topology = of("ring:100000");
    assert_eq!(topology.spectrum().method, Method::ClosedForm);
    assert!((topology.spectrum().gap - 1.315_947e-9).abs() < 1e-15);
    // As many steps as `show` would take: bench `spectrum`. A tenth of them shows the same.
    let found = Spectrum::lanczos(topology.matrix(), MAX_LANCZOS_STEPS / 10);
    assert!(!found.converged && found.gap > 10.0 * topology.spectrum().gap);
}

#[test]
#[ignore = "slow"]
fn a_torus_of_100_000_is_not() {
    let topology = of("torus:316x316");
    let found = Spectrum::lanczos(topology.matrix(), MAX_LANCZOS_STEPS);
    let exact = topology.spectrum().gap;
    let near = (found.gap / exact - 1.0).abs() < 1e-5;
    assert!(found.converged && near, "{} {exact}", found.gap);
    assert!((exact - (2.0 - wave(1, 316)) / 5.0).abs() < 1e-15);
}

// ------------------------------------------------------------------------------------------
// weights

/// A connected graph: a random tree and further links.
fn graphs() -> impl Strategy<Value = (usize, Vec<(u32, u32)>)> {
    (2usize..14).prop_flat_map(|n| {
        let tree: Vec<_> =
            (1..n as u32).map(|i| (0..i).prop_map(move |parent| (parent, i))).collect();
        let more = prop::collection::vec((0..n as u32, 0..n as u32), 0..2 * n);
        (Just(n), tree, more)
            .prop_map(|(n, tree, more)| (n, tree.into_iter().chain(more).collect()))
    })
}

/// The graph as a custom file.
fn custom((nodes, links): &(usize, Vec<(u32, u32)>), weights: Weights) -> String {
    let mut text = format!(
        "family = 'custom'\nnodes = {nodes}\nweights = '{weights}'\nallow_negative = true\n"
    );
    for (a, b) in links.iter().filter(|(a, b)| a != b) {
        text += &format!("[[link]]\nbetween = [{a}, {b}]\n");
    }
    text
}

fn built(graph: &(usize, Vec<(u32, u32)>), weights: Weights) -> Result<Topology, String> {
    Topology::from_text(&custom(graph, weights), FileFormat::Toml, "graph")
        .map_err(|error| error.to_string())
}

fn doubly_stochastic(matrix: &MixingMatrix) -> Result<(), TestCaseError> {
    let rows = matrix.dense();
    for (i, row) in rows.iter().enumerate() {
        prop_assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12, "row {} of {:?}", i, rows);
        prop_assert!(
            (rows.iter().map(|row| row[i]).sum::<f64>() - 1.0).abs() < 1e-12,
            "column {}",
            i
        );
        for (j, &w) in row.iter().enumerate() {
            prop_assert_eq!(w, rows[j][i]);
            let linked = matrix.graph().link_index(NodeId::from(i), NodeId::from(j)).is_some();
            prop_assert!(i == j || linked == (w != 0.0), "{} {}", i, j);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_kind_of_weights_is_doubly_stochastic_and_mixes(graph in graphs()) {
        for &weights in &Weights::ALL[..4] {
            let topology = match built(&graph, weights) {
                Ok(topology) => topology,
                // The one refusal there may be: a regular bipartite graph has lambda_n = -1.
                Err(error) => {
                    prop_assert_eq!(weights, Weights::MaxDegree, "{}", error);
                    prop_assert!(error.contains("eigenvalue -1"), "{}", error);
                    let metropolis = built(&graph, Weights::Metropolis).unwrap();
                    let degrees: BTreeSet<usize> = metropolis.graph().degrees().collect();
                    prop_assert!(metropolis.graph().bipartite() && degrees.len() == 1, "{}", error);
                    continue;
                }
            };
            doubly_stochastic(topology.matrix())?;
            let spectrum = topology.spectrum();
            prop_assert!(spectrum.rho < 1.0, "{}: {}", weights, spectrum.rho);
            // No entry is above 1.
            let least = topology.matrix().dense().into_iter().flatten().fold(1.0, f64::min);
            prop_assert!(least >= 0.0 || weights == Weights::BestConstant, "{}", least);
            prop_assert!(spectrum.lambda_n > -1e-12 || weights != Weights::LazyMetropolis);
        }
    }

    #[test]
    fn lazy_is_half_way_to_the_identity(graph in graphs()) {
        let full = built(&graph, Weights::Metropolis).unwrap().matrix().dense();
        let lazy = built(&graph, Weights::LazyMetropolis).unwrap().matrix().dense();
        for (i, (full, lazy)) in full.iter().zip(&lazy).enumerate() {
            for (j, (w, half)) in full.iter().zip(lazy).enumerate() {
                prop_assert!((half - 0.5 * (w + f64::from(u8::from(i == j)))).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn no_constant_is_better_than_the_best(
        graph in graphs(),
        factor in prop_oneof![0.2..0.98, 1.02..1.8],
    ) {
        let best = built(&graph, Weights::BestConstant).unwrap();
        let a = best.matrix().constant().unwrap();
        let other = vec![factor * a; best.links()];
        // A constant that is too large does not mix at all, so it is no better either.
        if let Ok(matrix) = MixingMatrix::new(best.graph().clone(), &other, true) {
            let rho = Spectrum::dense(&matrix).rho;
            prop_assert!(rho > best.spectrum().rho, "{} with {}: {} against \
                {}", factor, a, rho, best.spectrum().rho);
        }
    }

    #[test]
    fn any_graph_with_any_weights_survives_every_format(
        graph in graphs(),
        weights in prop::sample::select(&Weights::ALL[..4]),
    ) {
        if let Ok(topology) = built(&graph, weights) {
            for format in FileFormat::ALL {
                let copy = Topology::from_text(&topology.to_text(format), format, "copy").unwrap();
                prop_assert_eq!(&copy, &topology);
            }
        }
    }
}

#[test]
fn the_best_constant_of_a_ring_of_eight() {
    let topology = Topology::parse_with("ring:8", Some(Weights::BestConstant), 0).unwrap();
    let laplacian = |k: usize| 2.0 - wave(k, 8);
    let exact = 2.0 / (laplacian(1) + laplacian(4));
    assert!((topology.matrix().constant().unwrap() - exact).abs() < 1e-9);
    assert!((topology.spectrum().rho - (1.0 - exact * laplacian(1))).abs() < 1e-8);
    assert!(topology.spectrum().rho < of("ring:8").spectrum().rho);
}

#[test]
fn graphs_drawn_with_one_seed_are_one_graph() {
    let draw = |seed| Topology::parse("random-regular:16:4", seed).unwrap();
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
    assert_eq!(draw(7), Topology::parse("random-regular:16:4:7", 99).unwrap());
}

// ------------------------------------------------------------------------------------------
// errors

#[test]
fn an_even_ring_with_max_degree_weights_never_mixes() {
    let error =
        Topology::parse_with("ring:8", Some(Weights::MaxDegree), 0).unwrap_err().to_string();
    for part in ["rho = 1", "eigenvalue -1", "use weights = \"metropolis\" or \"lazy-metropolis\""]
    {
        assert!(error.contains(part), "{part:?} is missing in: {error}");
    }
    // An odd ring does, and so does an even one with a small weight at every node.
    assert!(Topology::parse_with("ring:9", Some(Weights::MaxDegree), 0).is_ok());
    assert!(Topology::parse_with("ring:8", Some(Weights::Metropolis), 0).is_ok());
}

/// A custom graph of three nodes with these lines appended.
fn three(weights: &str, links: &str) -> String {
    let nodes =
        ["london", "ohio", "tokyo"].map(|name| format!("[[node]]\nname = \"{name}\"\n")).concat();
    format!("family = \"custom\"\nweights = \"{weights}\"\n{nodes}{links}")
}

fn link(a: &str, b: &str, more: &str) -> String {
    format!("[[link]]\nbetween = [\"{a}\", \"{b}\"]\n{more}\n")
}

#[test]
fn errors_of_links_name_place_value_and_remedy() {
    let (a, b) = (link("london", "ohio", "weight = 0.3"), link("ohio", "tokyo", "weight = 0.3"));
    let plain = link("london", "ohio", "");
    for (text, parts) in [
        (
            three("metropolis", &(plain.clone() + &link("ohio", "paris", ""))),
            &["net: line 12, link.between = \"paris\"", "no such node", "london, ohio, tokyo"][..],
        ),
        (
            three("metropolis", &(plain.clone() + &link("ohio", "ohio", ""))),
            &["net: line 12, link ohio - ohio", "own weight", "remove the link"],
        ),
        (
            three("metropolis", &plain),
            &["net: links", "no path joins london and tokyo", "rho = 1", "add a link"],
        ),
        (
            three("given", &(a.clone() + &link("ohio", "tokyo", "weight = -0.1"))),
            &["net: link ohio - tokyo: weight = -0.1", "above 0", "allow_negative = true"],
        ),
        (
            three("given", &(a.clone() + &link("ohio", "tokyo", "weight = 0.0"))),
            &["link ohio - tokyo: weight = 0", "above 0", "left out"],
        ),
        (
            three("given", &(a.clone() + &link("ohio", "tokyo", "weight = inf"))),
            &["link ohio - tokyo: weight = inf", "finite"],
        ),
        (
            three("given", &(a.clone() + &link("ohio", "tokyo", "weight = 0.8"))),
            &["net: node ohio: own weight = -0.1", "more than 1 together", "lighter"],
        ),
        (
            three("given", &(a.clone() + &link("ohio", "tokyo", ""))),
            &["net: link ohio - tokyo", "has no weight", "every link needs `weight`"],
        ),
        (
            three("given", &(a.clone() + &b + &link("tokyo", "ohio", "weight = 0.4"))),
            &["line 15, link tokyo - ohio: weight = 0.4", "given 0.3 before", "W is symmetric"],
        ),
        (
            three("metropolis", &(plain.clone() + &b)),
            &[
                "net: line 12, link.weight = 0.3",
                "weights = \"metropolis\" computes it",
                "weights = \"given\"",
            ],
        ),
        (
            three("metropolis", &link("london", "ohio", "latency_ms = -1.0")),
            &["line 9, link london - ohio: latency_ms = -1", "0 or more"],
        ),
        (
            three("metropolis", &link("london", "ohio", "bandwidth_mbps = 0.0")),
            &["link london - ohio: bandwidth_mbps = 0", "above 0"],
        ),
        (
            three("metropolis", &link("london", "ohio", "bandwith_mbps = 3.0")),
            &["line 11", "`bandwith_mbps`", "`bandwidth_mbps`"],
        ),
    ] {
        let error = refusal(&text, FileFormat::Toml);
        for part in parts {
            assert!(error.contains(part), "{part:?} is missing in: {error}\n{text}");
        }
    }
}

#[test]
fn errors_of_toml_keys_name_line_value_and_accepted_ones() {
    for (text, parts) in [
        ("family = 'ring'\nnodez = 8", &["net: line 2", "`nodez`", "`nodes`"][..]),
        ("family = 'ring'\nnodes = 'eight'", &["line 2", "string \"eight\""]),
        ("family = 'ring'\nnodes = 0", &["line 2, nodes = 0", "1 or more"]),
        ("family = 'ring'", &["nodes", "is missing", "family \"ring\" takes nodes"]),
        ("nodes = 8", &["family", "is missing", "ring, path, torus", "custom"]),
        (
            "name = 'x'\nfamily = 'rinq'\nnodes = 8",
            &["line 2, family = \"rinq\"", "ring, path, torus", "custom"],
        ),
        ("family = 'torus'\nrows = 4", &["columns", "is missing", "rows, columns"]),
        (
            "family = 'ring'\nnodes = 4\nrows = 2",
            &["line 3, rows = 2", "family \"ring\" takes nodes"],
        ),
        (
            "family = 'hypercube'\nnodes = 12",
            &["line 2, nodes = 12", "power of two, such as 8 or 16"],
        ),
        (
            "family = 'random-regular'\nnodes = 9\ndegree = 3",
            &["line 3, degree = 3", "odd number of links"],
        ),
        (
            "family = 'ring'\nnodes = 4\nweights = 'uniform'",
            &["line 3, weights = \"uniform\"", "metropolis, max-degree"],
        ),
        (
            "family = 'ring'\nnodes = 4\n[[node]]\nname = 'a'",
            &["line 2, nodes = 4", "1 [[node]] tables", "name every node, or none"],
        ),
        (
            "family = 'ring'\nnodes = 2\n[[node]]\nname = 'a'\n[[node]]\nname = 'a'",
            &["node 1: name = a", "node 0 has this name too"],
        ),
        ("family = 'ring'\n[[node]]\nname = 'a/b'", &["node 0: name = \"a/b\"", "no slash"]),
        (
            "family = 'ring'\nnodes = 4\n[[link]]\nbetween = [0, 2]",
            &["line 3, link 0 - 2", "ring:4 has no such link", "custom"],
        ),
        (
            "family = 'ring'\n[[node]]\nname = 'a'\naddresses = ['203.0.113.7:4001']",
            &["node a: addresses = 203.0.113.7:4001", "multiaddress", "/ip4/"],
        ),
        ("family = 'custom'\nnodes = 3", &["link", "is missing", "[[link]]"]),
        ("family = 'ring'\nnodes = 99999999", &["line 2, nodes = 99999999", "too many", "limits"]),
        ("family = ring", &["line 1"]),
        ("", &["family", "is missing"]),
    ] {
        let error = refusal(text, FileFormat::Toml);
        assert!(error.starts_with("net: "), "{error}");
        for part in parts {
            assert!(error.contains(part), "{part:?} is missing in: {error}\n{text}");
        }
    }
}

#[test]
fn errors_of_the_other_formats_name_the_line() {
    use FileFormat::{Csv, Dot, GraphMl};
    let graphml = |body: &str| {
        format!(
            "<graphml>\n<graph edgedefault=\"undirected\">\n<node \
             id=\"a\"/>\n{body}\n</graph>\n</graphml>"
        )
    };
    for (format, text, parts) in [
        (
            Csv,
            "a,b,0.3\nb,a,0.4".to_string(),
            &["net: line 2, link b - a: weight = 0.4", "given 0.3 before"][..],
        ),
        (Csv, "a,b,0.3\nb,c,much".into(), &["line 2: weight = \"much\"", "expected a number"]),
        (Csv, "a,b,0.3\nb".into(), &["line 2", "target is missing"]),
        (
            Csv,
            "source,target,Latency\na,b,9".into(),
            &["line 1, attribute = Latency", "latency_ms"],
        ),
        (Dot, "graph { a -- b [bandwidth=9]; }".into(), &["bandwidth", "bandwidth_mbps"]),
        (GraphMl, graphml("<node id=\"a\"/>"), &["line 4, <node> = a", "given twice"]),
        (Csv, "a,b\nc,d".into(), &["no path joins a and c", "rho = 1"]),
        (Csv, "a,b,-0.3".into(), &["link a - b: weight = -0.3", "above 0"]),
        (Csv, "a,a,0.3".into(), &["line 1, link a - a", "remove the link"]),
        (Csv, String::new(), &["there is no link", "source,target"]),
        (Dot, "graph {\n a -- b;\n c;\n}".into(), &["no path joins a and c"]),
        (
            Dot,
            "graph {\n a -- b [weight=x];\n}".into(),
            &["line 2: weight = \"x\"", "expected a number"],
        ),
        (Dot, "graph {\n a -- ;\n}".into(), &["line 2", "';'", "expected a name"]),
        (Dot, "graph {\n a -- b".into(), &["line 2", "end of the file"]),
        (Dot, "tree {}".into(), &["line 1", "\"tree\"", "graph or digraph"]),
        (
            GraphMl,
            graphml("<edge source=\"a\" target=\"b\"/>"),
            &["line 4, edge = \"b\"", "no such node"],
        ),
        (GraphMl, graphml("<edge source=\"a\"/>"), &["line 4, <edge>", "target is missing"]),
        (GraphMl, graphml("<node id=\"b\">"), &["line 5", "not well-formed"]),
        (GraphMl, graphml("<hyperedge/>"), &["line 4", "two ends"]),
        (GraphMl, "<!DOCTYPE x []>\n<graphml/>".into(), &["line 1", "not accepted"]),
        (GraphMl, "<graphml/>".into(), &["0 graphs", "one <graph>"]),
    ] {
        let error = refusal(&text, format);
        assert!(error.starts_with("net: "), "{error}");
        for part in parts {
            assert!(error.contains(part), "{part:?} is missing in: {error}\n{text}");
        }
    }
}

#[test]
fn files_without_a_topology_are_refused() {
    for (spec, parts) in [
        ("no/such/file.toml", &["no/such/file.toml", "cannot be read"][..]),
        ("ring", &["ring", "takes nodes", "ring:8"]),
        ("ring:x", &["ring:x", "expected numbers", "ring:8"]),
        ("moebius:8", &["\"moebius\"", ".toml, .graphml, .dot, .csv", "ring:8", "torus:4x4"]),
        ("torus:1048576x1048576", &["too many", "limits"]),
    ] {
        let error = Topology::parse(spec, 0).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{part:?} is missing in: {error}");
        }
    }
    let error = of("ring:4").write(Path::new("ring.png")).unwrap_err().to_string();
    assert!(
        error.contains("ring.png") && error.contains(".toml, .graphml, .dot, .gv or .csv"),
        "{error}"
    );
}

#[test]
fn negative_weights_are_accepted_if_allowed() {
    // The hub of a star with the best constant has a negative own weight.
    let error =
        Topology::parse_with("star:8", Some(Weights::BestConstant), 0).unwrap_err().to_string();
    assert!(
        error.contains("node 0: own weight = -0.5") && error.contains("allow_negative = true"),
        "{error}"
    );
    let text = "family = 'star'\nnodes = 8\nweights = 'best-constant'\nallow_negative = true";
    let star = Topology::from_text(text, FileFormat::Toml, "net").unwrap();
    // lambda(L) = 1 and 8: a = 2 / 9 and rho = 7 / 9.
    assert!((star.spectrum().rho - 7.0 / 9.0).abs() < 1e-8);
    let graph = Graph::new(3, [(0, 1), (1, 2)]).unwrap();
    assert!(MixingMatrix::new(graph.clone(), &[-0.1, 0.4], false).is_err());
    assert!(
        MixingMatrix::new(graph, &[-0.1, 0.4], true).is_err(),
        "lambda_2 > 1 never mixes, allowed or not"
    );
}

#[test]
fn a_family_with_weights_of_its_own_is_written_whole() {
    let links = |weights: [f64; 4]| {
        let table = |(i, weight): (usize, &f64)| {
            format!("[[link]]\nbetween = [{i}, {}]\nweight = {weight}\n", (i + 1) % 4)
        };
        weights.iter().enumerate().map(table).collect::<String>()
    };
    let text =
        format!("family = 'ring'\nnodes = 4\nweights = 'given'\n{}", links([0.1, 0.2, 0.3, 0.4]));
    let topology = Topology::from_text(&text, FileFormat::Toml, "net").unwrap();
    let again = Topology::from_text(&topology.to_toml(), FileFormat::Toml, "net").unwrap();
    assert_eq!(again.matrix().dense(), topology.matrix().dense());
}

#[test]
fn a_matrix_that_never_mixes_is_refused_with_its_eigenvalue() {
    // Laplacian eigenvalues of a star of five: 0, 1, 1, 1, 5; so W has 0.6 and -1 besides 1.
    let star = Graph::new(5, (1..5).map(|leaf| (0, leaf))).unwrap();
    let error = MixingMatrix::new(star, &[0.4; 4], true).unwrap_err().to_string();
    assert!(error.contains("-1") && !error.contains("0.6"), "{error}");
}
