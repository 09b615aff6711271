//! The division of rows among the nodes of a run in one process: one source is split, or each node
//! has a source of its own, as in a deployment.

use std::sync::Arc;

use super::{
    rows::{join, options},
    shard::{Shared, class_counts, evaluate},
};
use crate::{
    config::ConfigError,
    data::{self, Dataset, Options, SYNTHETIC, Split, Synthetic, Target, Task},
    experiment::{DataParams, Experiment, SplitKind},
    learn::Model,
    mixing::{NodeInfo, Topology},
    run::{DataRecord, results::record::Score},
    units::NodeId,
};

/// The rows of all nodes.
pub(crate) struct Division {
    /// Each node's rows to train on.
    pub shards: Vec<Arc<Shared>>,
    /// The rows that no node trains on.
    pub tests: TestRows,
    /// The names of the classes, if there are classes.
    pub classes: Vec<String>,
    pub inputs: usize,
    /// The number of classes, or of values to predict.
    pub outputs: usize,
    /// Where the rows are from.
    pub origin: Origin,
    /// What their readers have assumed or noticed and a user should know.
    pub remarks: Vec<String>,
}

/// Where the rows of a run are from.
pub(crate) enum Origin {
    /// One source, and the positions of the rows in it that are trained on.
    One(Arc<Dataset>, Vec<usize>),
    /// A source for each node, recorded.
    Each(DataRecord),
}

/// The test rows of a run, as they were read until the run begins.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TestRows {
    /// No rows were kept for tests.
    None,
    /// All nodes test on the same.
    Same(Arc<Shared>),
    /// Each node has its own, or none.
    Own(Vec<Option<Arc<Shared>>>),
}

impl TestRows {
    /// The test rows of a node, if it has any.
    pub fn of(&self, node: NodeId) -> Option<&Arc<Shared>> {
        match self {
            TestRows::None => None,
            TestRows::Same(rows) => Some(rows),
            TestRows::Own(rows) => rows[node.index()].as_ref(),
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Shared>> {
        let (same, own) = match self {
            TestRows::None => (None, &[][..]),
            TestRows::Same(rows) => (Some(rows), &[][..]),
            TestRows::Own(rows) => (None, rows.as_slice()),
        };
        same.into_iter().chain(own.iter().flatten())
    }

    /// The number of test rows, each counted once.
    pub fn rows(&self) -> usize {
        self.all().map(|rows| rows.raw().rows()).sum()
    }

    /// Scores a model on all of them; `None` without any, or before the run has started.
    pub(crate) fn score(&self, model: &Model, x: &[f32]) -> Option<Score> {
        let scores: Option<Vec<Score>> =
            self.all().map(|rows| Some(evaluate(model, x, &*rows.ready()?).into())).collect();
        Score::merged(&scores?)
    }
}

/// A remark on rows of which none is held out, if some should be.
pub(crate) fn nothing_tested(experiment: &Experiment) -> Option<String> {
    let share = experiment.data.test_share;
    (share > 0.0).then(|| {
        format!("data.test_share = {share}: less than a row is held out, so nothing is tested")
    })
}

impl Division {
    /// Reads the rows of an experiment and divides them. What the data decides is written into the
    /// experiment: constants of synthetic rows, the names of classes.
    ///
    /// # Errors
    /// If a source cannot be read or does not fit the others, or the division is impossible.
    pub(crate) fn read(experiment: &mut Experiment, nodes: usize) -> Result<Division, ConfigError> {
        let mut division = match &experiment.data.sources {
            Some(sources) => {
                let sources = sources.clone();
                refuse_contradictions(experiment)?;
                of_each(experiment, &sources, nodes)?
            }
            None => of_one(experiment, nodes)?,
        };
        if experiment.data.classes.is_none() && data::are_named(&division.classes) {
            // So that nodes which read this experiment number their classes alike.
            experiment.data.classes = Some(division.classes.clone());
        }
        division.remarks.extend(data::similar_classes(&division.classes));
        if matches!(division.tests, TestRows::None) {
            division.remarks.extend(nothing_tested(experiment));
        }
        if experiment.model.outputs.is_none() {
            division.remarks.extend(division.without_class_0());
        }
        Ok(division)
    }

    /// A remark if the labels of all nodes are numbers from 1 on.
    fn without_class_0(&self) -> Option<String> {
        let mut counts = vec![0; self.outputs];
        for rows in self.shards.iter().chain(self.tests.all()) {
            for (sum, rows) in counts.iter_mut().zip(class_counts(rows.raw())) {
                *sum += rows;
            }
        }
        let most = counts.len().saturating_sub(1);
        let is_numbered = !self.classes.is_empty() && !data::are_named(&self.classes);
        let is_without = is_numbered && counts.first() == Some(&0) && counts.get(1) > Some(&0);
        let list = match most {
            1..=3 => (1..=most).map(|class| format!("\"{class}\"")).collect::<Vec<_>>().join(", "),
            _ => format!("\"1\", ..., \"{most}\""),
        };
        is_without.then(|| {
            format!(
                "the labels are 1 to {most}, so the model has a class 0 without rows; data.classes \
                 = [{list}] makes the labels names"
            )
        })
    }

    fn new(shards: Vec<Dataset>, tests: TestRows, origin: Origin) -> Division {
        let first = &shards[0];
        let (inputs, outputs, classes) =
            (first.inputs(), first.outputs(), first.class_names().to_vec());
        let shards = shards.into_iter().map(Shared::new).collect();
        Division { shards, tests, classes, inputs, outputs, origin, remarks: Vec::new() }
    }
}

impl Origin {
    /// The rows of all nodes to train on: as they are in their source, or one node's after another.
    pub(crate) fn pooled(&self, shards: &[Arc<Shared>]) -> Dataset {
        match self {
            Origin::One(all, train) => all.select(train),
            Origin::Each(_) => join(&shards.iter().map(|shard| &**shard.raw()).collect::<Vec<_>>()),
        }
    }
}

/// Divides the rows of one source among all nodes.
fn of_one(experiment: &mut Experiment, nodes: usize) -> Result<Division, ConfigError> {
    let source = data::beside(&experiment.folder, &experiment.data.source);
    complete_schema(experiment, &[source])?;
    let options = Options { number_classes: true, ..options(experiment)? };
    let (seed, drawn) = (experiment.run.seed, synthetic(experiment)?);
    let data = &experiment.data;
    let all = match drawn {
        Some(drawn) => drawn.draw(nodes, seed)?,
        None => data::load(&data::beside(&experiment.folder, &data.source), &options)?,
    };
    let split = split(experiment)?;
    let (train, test) = data::split_test(&all, data.test_share, seed)?;
    let rows = match &data.sizes {
        Some(sizes) => {
            check_count("data.sizes", sizes.len(), nodes)?;
            data::sized_shards(&all, &train, sizes, split, seed)?
        }
        None => data::shards(&all, &train, nodes, split, seed)?,
    };
    let shards = rows.iter().map(|rows| all.select(rows)).collect();
    let tests = match test.is_empty() {
        true => TestRows::None,
        false => TestRows::Same(Shared::new(all.select(&test))),
    };
    let remarks = all.remarks.clone();
    let division = Division::new(shards, tests, Origin::One(Arc::new(all), train));
    Ok(Division { remarks, ..division })
}

/// Lists the values of categories in the schema of the experiment, so that nodes which read this
/// experiment have the same features.
fn complete_schema(experiment: &mut Experiment, sources: &[String]) -> Result<(), ConfigError> {
    let options = options(experiment)?;
    match &mut experiment.data.schema {
        Some(schema) if experiment.data.source != SYNTHETIC => {
            Ok(data::complete(schema, sources, &options)?)
        }
        _ => Ok(()),
    }
}

/// A source for each node, of which each has its test rows, as `gradvine node` takes them.
fn of_each(
    experiment: &mut Experiment,
    sources: &[String],
    nodes: usize,
) -> Result<Division, ConfigError> {
    check_count("data.sources", sources.len(), nodes)?;
    let beside: Vec<String> =
        sources.iter().map(|source| data::beside(&experiment.folder, source)).collect();
    complete_schema(experiment, &beside)?;
    let options = Options { number_classes: true, ..options(experiment)? };
    let (mut all, mut remarks): (Vec<Dataset>, Vec<String>) = Default::default();
    for (node, source) in sources.iter().enumerate() {
        let place = place(node);
        if source == SYNTHETIC {
            let problem = "synthetic rows are one source for all nodes: use data.source";
            return Err(ConfigError::new(place, format!("\"{source}\""), problem));
        }
        let read = data::load(&data::beside(&experiment.folder, source), &options);
        let read = read.map_err(ConfigError::from).map_err(|error| match error.key() {
            Some("data.source") => error.with_place(&place),
            _ => error,
        })?;
        if let Some(same) = all.iter().position(|other| have_same_rows(&read, other)) {
            let (place, same) = (&place, self::place(same));
            remarks.push(format!(
                "{place} = \"{source}\": has the rows of {same}, which are trained on twice"
            ));
        }
        if let Some(first) = all.first() {
            check_like(&read, first)
                .map_err(|problem| ConfigError::new(place, format!("\"{source}\""), problem))?;
        }
        all.push(read);
    }
    unite_classes(&mut all, experiment.model.outputs)?;
    let (share, seed) = (experiment.data.test_share, experiment.run.seed);
    let (mut shards, mut tests, mut read) = (Vec::new(), Vec::new(), DataRecord::default());
    for rows in &all {
        // Those about the schema are the same for all sources.
        let new = rows.remarks.iter().filter(|remark| !remarks.contains(remark));
        remarks.extend(new.cloned().collect::<Vec<_>>());
    }
    for (node, all) in all.into_iter().enumerate() {
        let (train, test) = data::split_test(&all, share, seed).map_err(|error| {
            let mut error = ConfigError::from(error);
            error.problem += &format!(" (in {}, node {node})", all.name);
            error
        })?;
        read.add_split(&all, share, seed);
        tests.push((!test.is_empty()).then(|| Shared::new(all.select(&test))));
        shards.push(all.select(&train));
    }
    let tests = match tests.iter().any(Option::is_some) {
        true => TestRows::Own(tests),
        false => TestRows::None,
    };
    Ok(Division { remarks, ..Division::new(shards, tests, Origin::Each(read)) })
}

fn have_same_rows(one: &Dataset, other: &Dataset) -> bool {
    one.features == other.features && one.target == other.target
}

fn place(node: usize) -> String {
    format!("data.sources[{node}]")
}

/// Checks that a list has an entry for each node.
fn check_count(key: &str, count: usize, nodes: usize) -> Result<(), ConfigError> {
    if count == nodes {
        return Ok(());
    }
    let problem = format!("the topology has {nodes} nodes: expected one entry for each");
    Err(ConfigError::new(key, format!("a list of {count}"), problem))
}

/// Refuses keys that describe the division of one source.
fn refuse_contradictions(experiment: &Experiment) -> Result<(), ConfigError> {
    let data = &experiment.data;
    let split = (data.split != SplitKind::Iid).then(|| words(data.split));
    let keys = [
        ("split", split),
        ("alpha", data.alpha.map(|alpha| alpha.to_string())),
        ("sizes", data.sizes.as_ref().map(|sizes| format!("{sizes:?}"))),
    ];
    for (key, value) in keys {
        if let Some(value) = value {
            let problem = "with data.sources each node has a source of its own, and none is \
                           divided: leave the key out";
            return Err(ConfigError::new(format!("data.{key}"), value, problem));
        }
    }
    if let Some(labels) = &data.labels {
        let problem = "one file of labels does not belong to several sources: leave the key out; \
                       NAME-labels.npy beside NAME.npy is found";
        return Err(ConfigError::new("data.labels", format!("\"{labels}\""), problem));
    }
    // Constants of synthetic rows have no meaning.
    synthetic(&mut experiment.clone()).map(drop)
}

fn words(split: SplitKind) -> String {
    serde_json::to_string(&split).unwrap_or_default()
}

/// Checks that rows of another source have the same columns, as nodes do when they meet.
fn check_like(rows: &Dataset, first: &Dataset) -> Result<(), String> {
    let (inputs, expected) = (rows.inputs(), first.inputs());
    if inputs != expected {
        return Err(format!("{inputs} features, but the first source has {expected}"));
    }
    let (columns, others) = match (&rows.columns, &first.columns) {
        (Some(columns), Some(others)) => (columns, others),
        (None, None) => return Ok(()),
        (Some(_), None) => {
            return Err("its columns have names, those of the first have none".into());
        }
        (None, Some(_)) => return Err("its columns have no names, those of the first have".into()),
    };
    let all = |columns: &data::Columns| [&columns.features[..], &columns.targets[..]].concat();
    let (columns, others) = (all(columns), all(others));
    match columns.iter().zip(&others).find(|(here, there)| here != there) {
        None if columns.len() == others.len() => Ok(()),
        None => Err("other targets than the first source".into()),
        Some((here, there)) => Err(format!(
            "a column {here:?} where the first source has {there:?}; with data.columns and \
             data.target sources may have their columns in any order"
        )),
    }
}

/// Gives all sources the same classes: those of all of them, sorted, if they have names; else as
/// many as the largest label needs.
fn unite_classes(all: &mut [Dataset], outputs: Option<usize>) -> Result<(), ConfigError> {
    let first = all[0].class_names().to_vec();
    if all.iter().all(|rows| rows.class_names() == first) {
        return Ok(());
    }
    let are_named = |rows: &Dataset| data::are_named(rows.class_names());
    if let Some(node) = (1..all.len()).find(|&node| are_named(&all[node]) != are_named(&all[0])) {
        let problem = "the labels of some sources are text and those of others are numbers: name \
                       the classes in data.classes";
        return Err(ConfigError::new(place(node), format!("\"{}\"", all[node].name), problem));
    }
    let mut names: Vec<String> = match are_named(&all[0]) {
        true => all.iter().flat_map(found_names).cloned().collect(),
        false => Vec::new(),
    };
    names.sort();
    names.dedup();
    let most = all.iter().map(Dataset::outputs).max().unwrap_or(0);
    let count = outputs.unwrap_or(if names.is_empty() { most } else { names.len() });
    if names.len() > count {
        let problem = format!("the sources name {} classes", names.len());
        return Err(ConfigError::new("model.outputs", count, problem));
    }
    names.extend((names.len()..count).map(|class| class.to_string()));
    for rows in all {
        let Target::Classes { labels, names: own } = &mut rows.target else { continue };
        let position = |name: &String| names.iter().position(|other| other == name).unwrap_or(0);
        let positions: Vec<u32> = own.iter().map(|name| position(name) as u32).collect();
        labels.iter_mut().for_each(|label| *label = positions[*label as usize]);
        own.clone_from(&names);
    }
    Ok(())
}

/// The names of classes that a source gives, without the numbers of further ones.
fn found_names(rows: &Dataset) -> impl Iterator<Item = &String> {
    let (names, labels) = (rows.class_names(), rows.labels().unwrap_or_default());
    let mut used = vec![false; names.len()];
    labels.iter().for_each(|&label| used[label as usize] = true);
    let is_found =
        move |(class, name): &(usize, &String)| used[*class] || **name != class.to_string();
    names.iter().enumerate().filter(is_found).map(|(_, name)| name)
}

/// Refuses lists with an entry for each node on a topology whose nodes are numbered, but in another
/// order, as an edge list that begins with the link of node 2 has them.
///
/// # Errors
/// The order of the nodes, and how to choose another one.
pub(crate) fn check_order(data: &DataParams, topology: &Topology) -> Result<(), ConfigError> {
    let key = match (&data.sources, &data.sizes) {
        (Some(_), _) => "data.sources",
        (None, Some(_)) => "data.sizes",
        (None, None) => return Ok(()),
    };
    let names = (0..topology.nodes()).map(|node| topology.node(NodeId::from(node)).name.as_str());
    let numbers: Option<Vec<u64>> = names.map(|name| name.parse().ok()).collect();
    let Some(numbers) = numbers.filter(|numbers| !numbers.is_sorted()) else { return Ok(()) };
    let shown = |numbers: &[u64]| {
        let first: Vec<String> = numbers.iter().take(20).map(u64::to_string).collect();
        first.join(",")
    };
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    let problem = format!(
        "has an entry for each node, and the topology has its nodes in the order {}: list the \
         nodes in the order of their numbers, in an edge list by a first line `# nodes,{}`",
        shown(&numbers),
        shown(&sorted)
    );
    Err(ConfigError::at(key, problem))
}

/// Names nodes that have only their numbers by the files of their rows, if these are names.
pub(crate) fn name_by_sources(topology: Topology, sources: &[String]) -> Topology {
    let is_number = |(node, info): (usize, &NodeInfo)| info.name == node.to_string();
    let infos = (0..topology.nodes()).map(|node| topology.node(NodeId::from(node)));
    if infos.len() != sources.len() || !infos.clone().enumerate().all(is_number) {
        return topology;
    }
    let named = infos
        .zip(sources)
        .map(|(info, source)| NodeInfo { name: stem(source).to_string(), ..info.clone() });
    let named = named.collect();
    topology.clone().with_nodes(named).unwrap_or(topology)
}

/// `oslo` of `sites/oslo.csv.gz` and of `sites/oslo/`.
fn stem(source: &str) -> &str {
    let name = source.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(name);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// The synthetic data to draw, with all defaults written into the experiment; `None` if rows come
/// from a file.
fn synthetic(experiment: &mut Experiment) -> Result<Option<Synthetic>, ConfigError> {
    let task = experiment.model.task()?;
    let data = &mut experiment.data;
    if data.source != SYNTHETIC {
        let keys = [
            ("rows", data.rows.map(|x| x.to_string())),
            ("features", data.features.map(|x| x.to_string())),
            ("noise", data.noise.map(|x| x.to_string())),
            ("heterogeneity", data.heterogeneity.map(|x| x.to_string())),
        ];
        return match keys.into_iter().find_map(|(key, value)| Some((key, value?))) {
            Some((key, value)) => Err(ConfigError::new(
                format!("data.{key}"),
                value,
                "only source = \"synthetic\" has this key",
            )),
            None => Ok(None),
        };
    }
    let named = [("columns", data.columns.is_some()), ("schema", data.schema.is_some())];
    if let Some((key, _)) = named.into_iter().find(|(_, given)| *given) {
        let problem = "only CSV files with a header, Parquet and Arrow files name their columns: \
                       leave the key out";
        return Err(ConfigError::at(format!("data.{key}"), problem));
    }
    if task != Task::Regression {
        let problem = "synthetic rows have numbers as targets: expected \"least-squares\", or \
                       \"mlp\" with task = \"regression\"";
        return Err(ConfigError::new(
            "model.kind",
            format!("\"{}\"", experiment.model.kind),
            problem,
        ));
    }
    let drawn = Synthetic {
        rows: *data.rows.get_or_insert(2048),
        features: *data.features.get_or_insert(64),
        noise: *data.noise.get_or_insert(0.1),
        heterogeneity: *data.heterogeneity.get_or_insert(0.0),
    };
    if drawn.heterogeneity != 0.0 && (data.split != SplitKind::Contiguous || data.test_share != 0.0)
    {
        let problem = "each node's rows are a block with its own optimum: set split \
                       = \"contiguous\" and test_share = 0";
        return Err(ConfigError::new("data.heterogeneity", drawn.heterogeneity, problem));
    }
    if drawn.heterogeneity != 0.0 && data.sizes.is_some() {
        let problem = "each node's rows are a block with its own optimum, and blocks have the same \
                       size: leave data.sizes out";
        return Err(ConfigError::new("data.heterogeneity", drawn.heterogeneity, problem));
    }
    Ok(Some(drawn))
}

fn split(experiment: &Experiment) -> Result<Split, ConfigError> {
    let data = &experiment.data;
    match (data.split, data.alpha) {
        (SplitKind::Dirichlet, Some(alpha)) if alpha.is_finite() && alpha > 0.0 => {
            Ok(Split::Dirichlet { alpha })
        }
        (SplitKind::Dirichlet, Some(alpha)) => {
            Err(ConfigError::new("data.alpha", alpha, "expected a number above 0"))
        }
        (SplitKind::Dirichlet, None) => Err(ConfigError::at(
            "data.alpha",
            "a dirichlet split needs it: 0.1 is very uneven, 100 nearly even",
        )),
        (_, Some(alpha)) => {
            Err(ConfigError::new("data.alpha", alpha, "only a dirichlet split has an alpha"))
        }
        (SplitKind::Iid, None) => Ok(Split::Iid),
        (SplitKind::Contiguous, None) => Ok(Split::Contiguous),
        (SplitKind::ByLabel, None) => Ok(Split::ByLabel),
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use ndarray::Array2;

    use super::*;
    use crate::mixing::FileFormat;

    fn labelled(labels: &[u32], names: &[&str]) -> Dataset {
        let features = Array2::from_shape_fn((labels.len(), 1), |(row, _)| row as f32);
        let names = names.iter().map(ToString::to_string).collect();
        Dataset::new("a", features, Target::Classes { labels: labels.to_vec(), names }).unwrap()
    }

    #[test]
    fn a_node_is_named_by_its_file() {
        for (source, name) in [
            ("oslo.csv", "oslo"),
            ("/a/b/oslo.csv.gz", "oslo"),
            ("sites/oslo/", "oslo"),
            ("C:\\sites\\oslo.npy", "oslo"),
            ("site.1.csv", "site.1"),
            ("digits", "digits"),
        ] {
            assert_eq!(stem(source), name);
        }
        let named = |topology: &str, sources: &[&str]| {
            let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
            let topology = name_by_sources(Topology::parse(topology, 1).unwrap(), &sources);
            let names = (0..topology.nodes()).map(|node| topology.node(NodeId::from(node)));
            names.map(|node| node.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(named("path:2", &["a.csv", "b.csv"]), ["a", "b"]);
        assert_eq!(named("path:2", &["a.csv", "x/a.csv"]), ["0", "1"], "not unique");
        assert_eq!(named("path:2", &["a.csv", ".csv"]), ["0", "1"], "no name");
        assert_eq!(named("path:3", &["a.csv", "b.csv"]), ["0", "1", "2"], "refused later");
    }

    #[test]
    fn numbered_nodes_have_the_order_of_their_numbers() {
        let of = |text: &str| Topology::from_text(text, FileFormat::Csv, "a.csv").unwrap();
        let data = |sources: bool| DataParams {
            sources: sources.then(Vec::new),
            sizes: (!sources).then(Vec::new),
            ..DataParams::default()
        };
        for by_sources in [true, false] {
            let error = check_order(&data(by_sources), &of("2,0\n0,1\n")).unwrap_err().to_string();
            assert!(error.contains("in the order 2,0,1: list") && error.contains("# nodes,0,1,2"));
        }
        check_order(&data(true), &of("# nodes,0,1,2\n2,0\n0,1\n")).unwrap();
        check_order(&data(true), &of("b,a\na,c\n")).unwrap();
        check_order(&DataParams::default(), &of("2,0\n0,1\n")).unwrap();
    }

    #[test]
    fn rows_read_twice_and_too_few_to_test_are_remarked() {
        let folder = tempfile::tempdir().unwrap();
        for (name, from) in [("a.csv", 0), ("b.csv", 1), ("c.csv", 0)] {
            let rows: String = (from..from + 9).map(|i| format!("{i}.5,{}\n", i % 2)).collect();
            std::fs::write(folder.path().join(name), rows).unwrap();
        }
        let remarks = |sources: &str| {
            let text = format!(
                "[data]\nsources = {sources}\ntest_share = 0.01\n[model]\nkind = \"softmax\"\n\
                 [rule]\nkind = \"d-psgd\"\n[topology]\nfile = \"path:2\"\n"
            );
            let mut experiment = Experiment::parse(&text, &[]).unwrap();
            experiment.folder = folder.path().into();
            Division::read(&mut experiment, 2).unwrap().remarks
        };
        let few = "data.test_share = 0.01: less than a row is held out, so nothing is tested";
        assert_eq!(remarks("[\"a.csv\", \"b.csv\"]"), [few]);
        let twice = "data.sources[1] = \"c.csv\": has the rows of data.sources[0], which are \
                     trained on twice";
        assert_eq!(remarks("[\"a.csv\", \"c.csv\"]"), [twice, few]);
    }

    #[test]
    fn classes_of_several_sources_are_numbered_alike() {
        let mut all = [
            labelled(&[0, 1, 0], &["no", "yes"]),
            // With numbers for classes that this source does not have.
            labelled(&[0, 0], &["maybe", "1", "2"]),
        ];
        unite_classes(&mut all, Some(3)).unwrap();
        let names = ["maybe", "no", "yes"];
        assert_eq!(
            (all[0].class_names(), all[0].labels()),
            (&names.map(String::from)[..], Some(&[1, 2, 1][..]))
        );
        assert_eq!(
            (all[1].class_names(), all[1].labels()),
            (&names.map(String::from)[..], Some(&[0, 0][..]))
        );
        let mut fewer = [labelled(&[0, 1], &["no", "yes"]), labelled(&[0], &["maybe"])];
        let error = unite_classes(&mut fewer, Some(2)).unwrap_err().to_string();
        assert_eq!(error, "model.outputs = 2: the sources name 3 classes");
        let mut numbers = [labelled(&[0, 1], &["0", "1"]), labelled(&[2], &["0", "1", "2"])];
        unite_classes(&mut numbers, None).unwrap();
        assert_eq!(numbers[0].outputs(), 3);
        let mut mixed = [labelled(&[0, 1], &["0", "1"]), labelled(&[0], &["no"])];
        assert!(unite_classes(&mut mixed, None).unwrap_err().to_string().contains("are numbers"));
    }

    #[test]
    fn rows_are_joined_in_the_order_of_nodes() {
        let (a, b) = (labelled(&[1, 0], &["0", "1"]), labelled(&[1], &["0", "1"]));
        let all = join(&[&a, &b]);
        assert_eq!(
            (all.labels(), &all.features),
            (Some(&[1, 0, 1][..]), &array![[0.0], [1.0], [0.0]])
        );
        let values = Dataset::new("a", array![[1.0f32]], Target::Values(array![[7.0f32]])).unwrap();
        let all = join(&[&values, &values]);
        assert_eq!(all.target, Target::Values(array![[7.0], [7.0]]));
    }
}
