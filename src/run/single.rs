//! A run with one node in this process: its own file, its own key, and a topology that names the
//! others.

use std::{path::Path, sync::Arc};

use sha2::{Digest, Sha256};

use super::{
    Agreed, DataRecord, Needs, RowConstants,
    design::{
        resolved::{Design, weighting_of_files},
        warm_start,
    },
    node_file::NodeFile,
    results::record::Score,
    shards::{
        division::nothing_tested,
        rows::{options, target_names},
        shard::{ShardLearner, Shared, class_counts, evaluate},
    },
    whole::gradients_take,
};
use crate::{
    config::ConfigError,
    data::{self, Columns, Dataset, Options},
    digest,
    drive::{Learner, NodeSpec},
    experiment::Experiment,
    gossip::tree::Readers,
    learn::{Init, Model, read_scale},
    mixing::Topology,
    units::NodeId,
};

/// The initial values of a node that gives them to all.
///
/// # Errors
/// If the file names some and the experiment does not ask this node for them.
fn own_init(
    file: &NodeFile,
    experiment: &Experiment,
    topology: &Topology,
    node: NodeId,
) -> Result<Option<Init>, ConfigError> {
    let Some(init) = &file.init else { return Ok(None) };
    let name = &topology.node(node).name;
    if experiment.model.init != Some(Init::From(name.clone())) {
        let problem = format!(
            "expected only if the experiment says model.init = \"from:{name}\": then all nodes \
             start from this node's values"
        );
        return Err(ConfigError::new("node.init", format!("\"{init}\""), problem));
    }
    let init = match std::path::absolute(init) {
        Ok(path) if path.is_file() => path.display().to_string(),
        _ => init.clone(),
    };
    let init = Init::from(init);
    if let Init::From(_) = init {
        let problem = "expected this node's own values: `zeros`, `seeded` or a safetensors file";
        return Err(ConfigError::new("node.init", format!("\"{}\"", String::from(init)), problem));
    }
    Ok(Some(init))
}

/// Warns if the model that this node gives to all was trained on features of another scale than the
/// one that the nodes will compute.
fn scale_warning(experiment: &Experiment) -> Option<String> {
    let Some(Init::File(path)) = &experiment.own_init else { return None };
    let computed = experiment.data.standardize && experiment.data.scale.is_none();
    (computed && read_scale(Path::new(path)).is_some()).then(|| {
        format!(
            "node.init = \"{path}\": this model has a feature scale, and the nodes compute another \
             one from their rows; give data.scale in the experiment to keep it"
        )
    })
}

/// The names of columns as nodes compare them: all of them, or of a wide table the first ones and a
/// hash of all.
fn agreed_names(columns: &Columns) -> Vec<(String, String)> {
    const SHOWN: usize = 8;
    let value = |names: &[String]| {
        let all = format!("{names:?}");
        if all.len() <= 300 {
            return all;
        }
        let first = &names[..names.len().min(SHOWN)];
        let hash = digest::hex(&Sha256::digest(all.as_bytes())[..8]);
        format!("{first:?} and more: {} columns, SHA-256 of all names {hash}", names.len())
    };
    [("data.columns", &columns.features), ("data.target", &columns.targets)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(key, names)| (key.to_string(), value(names)))
        .collect()
}

/// The rows of a node's file to train on, those to test on, and what is read.
fn read_rows(
    file: &NodeFile,
    data: &str,
    experiment: &Experiment,
) -> Result<(Dataset, Option<Dataset>, DataRecord), ConfigError> {
    let options = options(experiment)?;
    let load = |key: &str, source: &str, options: &Options| {
        data::load(source, options).map_err(ConfigError::from).map_err(|error| match error.key() {
            Some("data.source") => error.with_place(format!("node.{key}")),
            _ => error,
        })
    };
    let all = load("data", data, &options)?;
    Ok(match &file.test {
        Some(test) => {
            // By the same names, whatever their order in this file.
            let columns = all.columns.clone();
            let by_position = experiment.data.columns.is_none();
            let by_position = by_position && experiment.data.schema.is_none();
            let options = Options { columns, by_position, ..options };
            let test = load("test", test, &options)?;
            let read = DataRecord::apart(&all, &test);
            (all, Some(test), read)
        }
        None => {
            let (share, seed) = (experiment.data.test_share, experiment.run.seed);
            let (train, test) = data::split_test(&all, share, seed)?;
            let rest = (!test.is_empty()).then(|| all.select(&test));
            (all.select(&train), rest, DataRecord::split(&all, share, seed))
        }
    })
}

/// The least number of rows of a node unless the experiment says another one.
const MINIMUM_ROWS: u64 = 10;

/// Checks that the sums over a node's rows, which all other nodes see, are of enough rows.
///
/// # Errors
/// If the node has fewer rows than `run.minimum_rows`.
fn check_count(rows: usize, data: &str, experiment: &Experiment) -> Result<(), ConfigError> {
    let least = experiment.run.minimum_rows.unwrap_or(MINIMUM_ROWS);
    if rows as u64 >= least {
        return Ok(());
    }
    let problem = format!(
        "has {rows} rows to train on, fewer than run.minimum_rows = {least}: the other nodes see \
         sums over them, and the sums of few rows show those rows; this node sends nothing. \
         Expected at least {least} rows, or a lower run.minimum_rows in this node's experiment file"
    );
    Err(ConfigError::new("node.data", format!("\"{data}\""), problem))
}

/// The inputs and outputs of the model, which a node's own rows do not show.
fn sizes(file: &NodeFile, experiment: &Experiment) -> Result<(usize, usize), ConfigError> {
    let need = |key: &str, value: Option<usize>| {
        let problem = "a node has only its own rows, so the experiment must state it (a run \
                       directory's experiment.toml does)";
        value.ok_or_else(|| {
            ConfigError::at(format!("model.{key}"), problem).within(file.experiment.display())
        })
    };
    let named = experiment.data.classes.as_ref().map(Vec::len);
    let schema = experiment.data.schema.as_ref().map(|schema| {
        schema.check()?;
        schema.width()
    });
    let schema = schema.transpose()?;
    Ok((
        need("inputs", experiment.model.inputs.or(schema))?,
        need("outputs", experiment.model.outputs.or(named))?,
    ))
}

/// The names of columns that all nodes must have.
fn agreed_columns(train: &Dataset, schema: bool) -> Vec<(String, String)> {
    match (&train.columns, schema) {
        // The schema is part of the experiment.
        (Some(columns), true) => agreed_names(&Columns { features: Vec::new(), ..columns.clone() }),
        (Some(columns), false) => agreed_names(columns),
        (None, _) => Vec::new(),
    }
}

/// What the readers of the rows remark, each once.
fn remarks_of(design: &Design, train: &Dataset, test: Option<&Dataset>) -> Vec<String> {
    let mut remarks = train.remarks.clone();
    let of_tests = test.into_iter().flat_map(|test| &test.remarks);
    let new = of_tests.filter(|remark| !train.remarks.contains(remark));
    remarks.extend(new.cloned());
    let named = design.experiment.data.classes.as_deref();
    remarks.extend(named.and_then(data::similar_classes));
    remarks.extend(test.and_then(|test| DataRecord::tested_before(&design.experiment, test)));
    remarks.extend(data::on_both_sides(std::iter::once(train), test.into_iter()));
    remarks
}

/// One node's part of a run.
///
/// ```
/// use gradvine::{prelude::*, run::{NodeFile, Single}, units::NodeId};
///
/// // A node has only its own rows, so the experiment states the width of the model.
/// let settings = ["run.rounds=10", "model.inputs=64", "model.outputs=10"];
/// let experiment = Experiment::default_with(&settings.map(String::from))?;
/// let file = NodeFile { data: Some("digits".into()), ..NodeFile::default() };
/// let topology = Topology::parse("ring:4", 1)?;
/// let single = Single::new(&file, experiment, topology, NodeId(2))?;
/// assert_eq!((single.design.topology.nodes(), single.node), (4, NodeId(2)));
/// assert_eq!(single.classes.len(), 10);
/// assert!(single.spec.is_some()); // its core and learner, for a driver
/// # Ok::<(), ConfigError>(())
/// ```
#[non_exhaustive]
pub struct Single {
    /// The design that all nodes share.
    pub design: Arc<Design>,
    /// The model, with its sizes from the data or the experiment.
    pub model: Model,
    /// The node's number in the topology.
    pub node: NodeId,
    /// Its core and learner, until the driver takes them.
    pub spec: Option<NodeSpec>,
    /// Rows that this node trains on.
    pub rows: u64,
    /// The number of each class among them, if there are classes.
    pub class_rows: Vec<u64>,
    /// Class names, if there are classes.
    pub classes: Vec<String>,
    /// What the nodes have agreed on, such as the scale; set when the run begins.
    pub agreed: Agreed<RowConstants>,
    /// The rows that were read.
    pub read: DataRecord,
    /// The rows that this node trains on.
    train: Arc<Shared>,
    /// The rows that this node tests on, if it has any.
    pub test: Option<Arc<Shared>>,
    /// What the user should know about the node's initial values.
    pub warning: Option<String>,
    /// What the user should know about the node's rows. It is in no summary, because that is the
    /// same at all nodes.
    pub remarks: Vec<String>,
}

impl Single {
    /// The names of the columns of the node's rows, if they are known.
    pub(super) fn columns(&self) -> Option<&Columns> {
        self.train.raw().columns.as_ref()
    }

    /// Loads the node's own data and resolves the experiment on the given topology.
    ///
    /// # Errors
    /// If any file or value of it is wrong.
    pub fn new(
        file: &NodeFile,
        experiment: Experiment,
        topology: Topology,
        node: NodeId,
    ) -> Result<Single, ConfigError> {
        Single::checked(file, experiment.clone(), topology, node)
            .map_err(|error| experiment.blame(error))
    }

    fn checked(
        file: &NodeFile,
        mut experiment: Experiment,
        topology: Topology,
        node: NodeId,
    ) -> Result<Single, ConfigError> {
        let (inputs, outputs) = sizes(file, &experiment)?;
        let Some(data) = &file.data else {
            let problem = "is missing: name this node's rows, such as data = \"london.csv\"";
            return Err(ConfigError::at("node.data", problem));
        };
        experiment.data.source.clone_from(data);
        // They describe a rehearsal of this run in one place.
        (experiment.data.sources, experiment.data.sizes) = (None, None);
        let weighting = weighting_of_files(&experiment);
        experiment.data.weighting.get_or_insert(weighting);
        experiment.own_init = own_init(file, &experiment, &topology, node)?;
        warm_start::keep_fills(&mut experiment);
        let (train, test, read) = read_rows(file, data, &experiment)?;
        check_count(train.rows(), data, &experiment)?;
        let classes = train.class_names().to_vec();
        let design = warm_start::check(&experiment, &train)
            .and_then(|()| Design::new(experiment, Arc::new(topology), inputs, outputs));
        let design = design.map_err(|error| match error.key() {
            Some("model.init") if file.init.is_some() => error.with_place("node.init"),
            _ => error,
        })?;
        let agreed = agreed_columns(&train, design.experiment.data.schema.is_some());
        let mut remarks = remarks_of(&design, &train, test.as_ref());
        remarks.extend(test.is_none().then(|| nothing_tested(&design.experiment)).flatten());
        let warning = scale_warning(&design.experiment);
        let targets = target_names(&train);
        let read = read.with_initial(&design.experiment);
        let design = Arc::new(Design { agreed, targets, ..design });
        let rows = std::iter::once(&train).chain(&test);
        let model = design.table_model()?;
        Needs::alone(&design, node, rows).check(&design, "this node", "")?;
        let agreed = Agreed::default();
        let test = test.map(Shared::new);
        let train = Shared::training(Shared::new(train), &design.experiment.run)?;
        let (rows, class_rows) = (train.raw().rows() as u64, class_counts(train.raw()));
        let mut learner = ShardLearner::new(
            Arc::clone(&design),
            model.clone(),
            node,
            Arc::clone(&train),
            test.clone(),
            agreed.clone(),
        );
        let config = design.node(node, learner.setup(), Readers::Everyone);
        Ok(Single {
            design,
            model,
            node,
            spec: Some(NodeSpec { config, learner: Box::new(learner) }),
            rows,
            class_rows,
            classes,
            agreed,
            read,
            train,
            test,
            warning,
            remarks,
        })
    }

    /// Seconds of a round's gradients on this machine: the median of some tries.
    ///
    /// # Errors
    /// If the rows do not fit the model, or memory is too small.
    pub fn gradients_take(&self) -> Result<f64, ConfigError> {
        gradients_take(&self.design, &self.model, &self.train)
    }

    /// Scores a model on this node's test rows; `None` without test rows, or before the run has
    /// begun.
    pub fn score(&self, x: &[f32]) -> Option<Score> {
        let test = self.test.as_ref()?.ready()?;
        let targets = self.agreed.get()?.preprocessing.targets.clone();
        Some(evaluate(&self.model.clone().with_targets(targets), x, &test).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_too_few_rows_says_that_it_tests_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let rows: String = (0..9).map(|i| format!("{i}.5,{}\n", i % 2)).collect();
        std::fs::write(&path, rows).unwrap();
        let said = |share: f64| {
            let share = format!("data.test_share={share}");
            let few = "run.minimum_rows=1";
            let sets = ["model.kind=softmax", "model.inputs=1", "model.outputs=2", few, &share];
            let experiment = Experiment::default_with(&sets.map(String::from)).unwrap();
            let file = NodeFile { data: Some(path.display().to_string()), ..NodeFile::default() };
            let topology = Topology::parse("ring:4", 1).unwrap();
            Single::new(&file, experiment, topology, NodeId(2)).unwrap().remarks
        };
        let few = "data.test_share = 0.01: less than a row is held out, so nothing is tested";
        assert_eq!([said(0.0), said(0.01), said(0.5)], [vec![], vec![few.to_string()], vec![]]);
    }

    #[test]
    fn a_node_whose_rows_its_sums_would_show_does_not_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let starts = |rows: usize, sets: &[&str]| {
            let rows: String = (0..rows).map(|i| format!("{i}.5,{}\n", i % 2)).collect();
            std::fs::write(&path, rows).unwrap();
            let given = ["model.kind=softmax", "model.inputs=1", "model.outputs=2"];
            let sets: Vec<String> = given.iter().chain(sets).map(ToString::to_string).collect();
            let experiment = Experiment::default_with(&sets).unwrap();
            let file = NodeFile { data: Some(path.display().to_string()), ..NodeFile::default() };
            let topology = Topology::parse("ring:4", 1).unwrap();
            let single = Single::new(&file, experiment, topology, NodeId(2));
            single.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let all = "data.test_share=0";
        assert_eq!(starts(10, &[all]), "");
        let text = starts(9, &[all]);
        assert!(text.starts_with("node.data") && text.contains("has 9 rows to train on"), "{text}");
        // Rows to test on do not count.
        assert!(starts(10, &["data.test_share=0.2"]).contains("has 8 rows to train on"));
        assert!(starts(1, &[all, "run.minimum_rows=2"]).contains("run.minimum_rows = 2"));
        assert_eq!(starts(2, &[all, "run.minimum_rows=2"]), "");
        assert!(starts(2, &[all, "run.minimum_rows=0"]).contains("expected"));
    }
}
