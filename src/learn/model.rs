//! An architecture with known sizes.

use std::{path::Path, sync::Arc};

use ndarray::{Array2, ArrayView2, Axis, Slice};
use serde::{Deserialize, Serialize};

use super::{
    BLOCK_ROWS, Evaluation, Init, KINDS, Kind, Learner, ModelError, ModelShape, Objective, Tensor,
    read_tensors, supervised,
};
use crate::{
    config::{self, ConfigError},
    data::{Dataset, Scale, Task},
    rng::{Purpose, Stream},
    vector,
};

/// The maximum number of parameters of a model: positions within a vector are 32 bits wide in
/// frames.
pub const MAX_PARAMETERS: usize = u32::MAX as usize;

/// More hidden layers than this are refused as a mistake.
const MAX_LAYERS: usize = 64;

/// `[model]`: what is trained, and where it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelParams {
    /// The kind of model. Default: `softmax`, because it is convex and fits both embedded sets.
    pub kind: String,
    /// Whether it predicts classes or numbers.
    ///
    /// Accepts: `"classification"` (`softmax`, `mlp`) or `"regression"` (`least-squares`, `mlp`).
    /// Default: the only one that the kind can learn; with `kind = "mlp"` `"classification"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// The widths of the hidden layers. Each ends with a ReLU, max(0, x); there is no dropout and
    /// no normalisation. In a regression the numbers after a last hidden layer of more than 16
    /// units, H, are multiplied by sqrt(16 / H) (docs/data.md).
    ///
    /// Accepts: a list of up to 64 whole numbers, each from 1; only with `kind = "mlp"`. The model
    /// has at most 4294967295 parameters. Default: `[256]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<Vec<usize>>,
    /// Whether each layer adds a vector.
    pub bias: bool,
    /// The initial parameters: zeros, numbers from the run's seed, a model that was trained before,
    /// or those of one node, which all nodes get before round 0.
    ///
    /// Accepts: `"zeros"` (not with `kind = "mlp"`), `"seeded"`, the path of a safetensors file
    /// with the model's tensors, or `"from:NODE"`. Default: `"zeros"`; with `kind = "mlp"`
    /// `"seeded"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<Init>,
    /// The SHA-256 of the initial parameters, such as `mean_digest` in the summary.json of a run:
    /// nodes refuse others. A stage of a run of sites that continues another one has it.
    ///
    /// Accepts: 64 hexadecimal digits; only with `init = "from:NODE"` or a file. Default: not
    /// compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_digest: Option<String>,
    /// Features of a row. Required for `gradvine node`, which sees only its own rows, unless
    /// `data.schema` lists them.
    ///
    /// Accepts: a whole number from 1; where the data is seen, as many as a row of it has. Default:
    /// taken from the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<usize>,
    /// Classes, or numbers to be predicted. Required for `gradvine node`, which sees only its own
    /// rows.
    ///
    /// Accepts: a whole number from 1; of classes at most 65536 and at least as many as the data
    /// has, of numbers as many as the data has. Default: taken from the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<usize>,
}

impl Default for ModelParams {
    fn default() -> Self {
        ModelParams {
            kind: "softmax".into(),
            task: None,
            hidden: None,
            bias: true,
            init: None,
            init_digest: None,
            inputs: None,
            outputs: None,
        }
    }
}

impl ModelParams {
    /// Reads the section `[model]`.
    ///
    /// # Errors
    /// If a key is unknown or of the wrong type.
    pub(crate) fn read(table: &toml::Table) -> Result<ModelParams, ConfigError> {
        if let Some(toml::Value::Integer(width)) = table.get("hidden") {
            let problem = format!("expected a list in square brackets: [{width}]");
            return Err(ConfigError::new("model.hidden", width, problem));
        }
        match table.get("kind") {
            None | Some(toml::Value::String(_)) => config::read("model", table),
            Some(other) => {
                Err(ConfigError::new("model.kind", other, "expected the name of a model in quotes"))
            }
        }
    }

    /// Whether the model predicts numbers and is trained on scaled ones.
    pub(crate) fn scales_targets(&self) -> bool {
        kind(&self.kind).is_ok_and(Kind::scales_targets)
            && self.task().is_ok_and(|task| task == Task::Regression)
    }

    /// Whether the model predicts classes or numbers: needed before the data is read.
    ///
    /// # Errors
    /// If there is no such kind, or it cannot learn the task.
    pub fn task(&self) -> Result<Task, ModelError> {
        let kind = kind(&self.kind)?;
        let Some(task) = self.task else { return Ok(kind.tasks()[0]) };
        if kind.tasks().contains(&task) {
            return Ok(task);
        }
        let can = |kind: &&&dyn Kind| kind.tasks().contains(&task);
        let others: Vec<String> =
            KINDS.iter().filter(can).map(|kind| format!("\"{}\"", kind.name())).collect();
        let problem = format!(
            "{} cannot learn it: leave the key out, or use kind = {}",
            kind.name(),
            others.join(" or ")
        );
        Err(ConfigError::new("model.task", format!("\"{}\"", task.name()), problem).into())
    }
}

fn kind(name: &str) -> Result<&'static dyn Kind, ConfigError> {
    KINDS.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        let names = KINDS.map(Kind::name);
        let problem =
            format!("no such model; accepted: {}{}", names.join(", "), config::hint(name, names));
        ConfigError::new("model.kind", format!("\"{name}\""), problem).with_accepted(names)
    })
}

/// An architecture: the meaning of the flat vector, and its computations.
#[derive(Clone, Debug)]
pub struct Model {
    kind: &'static dyn Kind,
    shape: ModelShape,
    tensors: Vec<Tensor>,
    parameters: usize,
    /// The scale of the predicted numbers, if it is trained on scaled ones.
    targets: Option<Arc<Scale>>,
}

impl PartialEq for Model {
    fn eq(&self, other: &Model) -> bool {
        self.kind.name() == other.kind.name() && self.shape == other.shape
    }
}

impl Model {
    /// The model of `params`. `inputs` and `outputs` come from the data, if this node has all of
    /// it; else `params` must have them.
    ///
    /// # Errors
    /// If the kind is unknown or cannot learn the task; if a size is missing, zero, contradicts the
    /// data, or makes more than [`MAX_PARAMETERS`]; if hidden layers are given to a kind that has
    /// none, or zeros to one that cannot leave them.
    pub fn resolve(
        params: &ModelParams,
        inputs: Option<usize>,
        outputs: Option<usize>,
    ) -> Result<Model, ModelError> {
        let kind = kind(&params.kind)?;
        let wrong = |hidden: &[usize], problem: String| {
            Err(ConfigError::new("model.hidden", format!("{hidden:?}"), problem).into())
        };
        let hidden = match (&params.hidden, kind.default_hidden()) {
            (Some(hidden), None) => {
                let problem = format!(
                    "{} has no hidden layers: leave the key out, or use kind = \"mlp\"",
                    kind.name()
                );
                return wrong(hidden, problem);
            }
            (Some(hidden), Some(_)) => hidden.clone(),
            (None, default) => default.unwrap_or_default().to_vec(),
        };
        if hidden.len() > MAX_LAYERS || hidden.contains(&0) {
            let problem = format!("up to {MAX_LAYERS} widths, each from 1, are accepted");
            return wrong(&hidden, problem);
        }
        check_init(kind, params.init.as_ref())?;
        let shape = ModelShape {
            task: params.task()?,
            inputs: size("model.inputs", params.inputs, inputs)?,
            outputs: size("model.outputs", params.outputs, outputs)?,
            hidden,
            bias: params.bias,
        };
        let tensors = kind.tensors(&shape);
        let parameters = count_elements(&tensors)
            .filter(|&parameters| parameters <= MAX_PARAMETERS)
            .ok_or_else(|| {
                let sizes = format!("{} -> {:?} -> {}", shape.inputs, shape.hidden, shape.outputs);
                let problem = format!("at most {MAX_PARAMETERS} parameters are accepted");
                ConfigError::new("model", sizes, problem)
            })?;
        Ok(Model { kind, shape, tensors, parameters, targets: None })
    }

    /// The same model with this scale of the predicted numbers: its parameters are those of scaled
    /// ones, its losses and predictions have the units of the data. It has as many numbers as the
    /// model has outputs.
    #[must_use]
    pub fn with_targets(self, targets: Option<Scale>) -> Model {
        Model { targets: targets.map(Arc::new), ..self }
    }

    /// The scale of the predicted numbers of a model that is trained on some of this mean and
    /// deviation.
    #[must_use]
    pub(crate) fn target_scale(&self, mut data: Scale) -> Scale {
        let factor = libm::sqrt(self.kind.damping(&self.shape));
        data.deviation.iter_mut().for_each(|deviation| *deviation *= factor);
        data
    }

    pub(super) fn learner(&self) -> Box<dyn Learner> {
        self.kind.learner(&self.shape, self.targets.as_deref())
    }

    /// The initial parameters x_0, the same on every node; `None` for the kind's default. Paths are
    /// relative to `folder`.
    ///
    /// # Errors
    /// If the file of [`Init::File`] cannot be read or does not hold this model's tensors.
    pub fn initial(
        &self,
        init: Option<&Init>,
        folder: &Path,
        seed: u64,
    ) -> Result<Vec<f32>, ModelError> {
        check_init(self.kind, init)?;
        let mut x = vec![0.0; self.parameters];
        match init.unwrap_or(&self.kind.default_init()) {
            // Of a node that gets its values from another.
            Init::Zeros | Init::From(_) => {}
            Init::Seeded => {
                self.kind.initial(&self.shape, Stream::new(seed, Purpose::Init), &mut x);
            }
            Init::File(name) => {
                let path = folder.join(name);
                if !path.is_file() {
                    let found = if path.is_dir() {
                        "a folder: name a model file in it, such as model-mean.safetensors"
                    } else {
                        "no such file"
                    };
                    let problem = format!(
                        "{found}; expected `zeros`, `seeded`, `from:` and a node's name, or a \
                         safetensors file with this model's tensors{}",
                        config::hint(name, ["zeros", "seeded"])
                    );
                    let error = ConfigError::new("model.init", format!("\"{name}\""), problem);
                    return Err(error.into());
                }
                x = read_tensors(&path, &self.tensors)?;
                if let Some(number) = vector::first_non_finite(&x) {
                    let error = ModelError::NonFinite { number, value: x[number] };
                    return Err(error.within(path.display()));
                }
            }
        }
        Ok(x)
    }

    /// The mean loss over these rows as a function of x.
    ///
    /// # Errors
    /// If the data does not have this model's sizes or task.
    pub fn objective(&self, data: Arc<Dataset>) -> Result<Box<dyn Objective>, ModelError> {
        self.check(&data)?;
        let learner = self.learner();
        Ok(Box::new(supervised::Supervised::new(learner, self.tensors.clone(), data)))
    }

    /// The loss, and for classes the accuracy, on these rows.
    ///
    /// # Errors
    /// If the data or `x` does not have this model's sizes.
    pub fn evaluate(&self, x: &[f32], data: &Dataset) -> Result<Evaluation, ModelError> {
        self.check(data)?;
        self.check_parameters(x)?;
        Ok(supervised::evaluate(&mut *self.learner(), x, data))
    }

    /// Probabilities of the classes, or the predicted numbers, for rows x inputs features: rows x
    /// outputs.
    ///
    /// # Errors
    /// If the features or `x` do not have this model's sizes.
    pub fn predict(
        &self,
        x: &[f32],
        features: ArrayView2<'_, f32>,
    ) -> Result<Array2<f32>, ModelError> {
        self.check_inputs(features.ncols())?;
        self.check_parameters(x)?;
        let mut learner = self.learner();
        let mut out = Array2::zeros((features.nrows(), self.shape.outputs));
        for start in (0..features.nrows()).step_by(BLOCK_ROWS) {
            let rows = Slice::from(start..(start + BLOCK_ROWS).min(features.nrows()));
            learner.predict(
                x,
                features.slice_axis(Axis(0), rows),
                out.slice_axis_mut(Axis(0), rows),
            );
        }
        Ok(out)
    }

    /// Checks that this model can learn from, or be tested on, this data. A shard may lack classes,
    /// never have more.
    ///
    /// # Errors
    /// If it cannot; the message names both sizes.
    pub(crate) fn check(&self, data: &Dataset) -> Result<(), ConfigError> {
        let outputs = data.outputs();
        if data.task() != self.task() {
            let (needs, has) = match self.task() {
                Task::Classification => ("classes", "numbers"),
                Task::Regression => ("numbers", "classes"),
            };
            let problem =
                format!("predicts {needs}, but {} holds {has} to be predicted", data.name);
            return Err(match self.kind.tasks() {
                [_] => ConfigError::new("model.kind", self.kind.name(), problem),
                _ => ConfigError::new("model.task", self.task().name(), problem),
            });
        }
        let fits = match self.task() {
            Task::Classification => outputs <= self.shape.outputs,
            Task::Regression => outputs == self.shape.outputs,
        };
        if !fits {
            let problem = format!("{} has {outputs}", data.name);
            return Err(ConfigError::new("model.outputs", self.shape.outputs, problem));
        }
        self.check_inputs(data.inputs()).map_err(|error| error.within(&data.name))
    }

    /// The kind that `model.kind` names.
    pub fn kind(&self) -> &'static dyn Kind {
        self.kind
    }

    /// Whether it predicts classes or numbers.
    pub fn task(&self) -> Task {
        self.shape.task
    }

    /// Its sizes, and what it predicts.
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The tensors of the flat vector, in their order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// d, the length of the flat vector.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    fn check_inputs(&self, inputs: usize) -> Result<(), ConfigError> {
        if inputs == self.shape.inputs {
            return Ok(());
        }
        Err(ConfigError::new(
            "model.inputs",
            self.shape.inputs,
            format!("the data has {inputs} features per row"),
        ))
    }

    fn check_parameters(&self, x: &[f32]) -> Result<(), ModelError> {
        let (found, needed) = (x.len(), self.parameters);
        let problem = || format!("{found} parameters, but {needed} are needed");
        ModelError::same("model", found, needed, problem)
    }
}

fn size(place: &str, given: Option<usize>, seen: Option<usize>) -> Result<usize, ConfigError> {
    match (given, seen) {
        (Some(given), Some(seen)) if given != seen => Err(ConfigError::new(
            place,
            given,
            format!("the data has {seen}: leave the key out or make them agree"),
        )),
        (Some(0), _) | (None, Some(0)) => Err(ConfigError::new(place, 0, "at least 1 is needed")),
        (Some(size), _) | (None, Some(size)) => Ok(size),
        (None, None) => {
            Err(ConfigError::at(place, "missing: needed if a node has only its own rows"))
        }
    }
}

/// Refuses initial values from which the model cannot learn.
fn check_init(kind: &dyn Kind, init: Option<&Init>) -> Result<(), ConfigError> {
    if init != Some(&Init::Zeros) || kind.default_init() == Init::Zeros {
        return Ok(());
    }
    let problem = format!(
        "{} cannot leave zero, because its gradient vanishes there: \"seeded\" is accepted",
        kind.name()
    );
    Err(ConfigError::new("model.init", "zeros", problem))
}

/// The number of elements of these tensors; `None` if it cannot be counted.
pub(crate) fn count_elements(tensors: &[Tensor]) -> Option<usize> {
    tensors.iter().try_fold(0usize, |total, tensor| {
        let len = tensor.shape.iter().try_fold(1usize, |len, &extent| len.checked_mul(extent))?;
        total.checked_add(len)
    })
}
