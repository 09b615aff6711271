//! A trained model in a file: safetensors, so that Python opens it too.
//!
//! ```text
//! 8 bytes   N, little-endian
//! N bytes   JSON: {"__metadata__": {...}, "layer0.weight": {"dtype": "F32", "shape": [64, 256], "data_offsets": [0, 65536]}, ...}, spaces
//! 4 d bytes the flat vector, little-endian f32
//! ```
//!
//! The metadata holds text only, as the format demands: `gradvine.format` ("1"), `gradvine.kind`,
//! `gradvine.task`, `gradvine.inputs`, `gradvine.outputs`, `gradvine.hidden` and
//! `gradvine.classes` (JSON arrays), `gradvine.bias`; if columns had names, `gradvine.columns` and
//! `gradvine.targets` (JSON arrays); with a schema `gradvine.schema` (a JSON array of tables, as in
//! an experiment) and `gradvine.fills` (a JSON array: what missing values become whose schema says
//! mean or median); with scaling `gradvine.mean` and `gradvine.deviation` (JSON
//! arrays of `f64` in shortest round-trip form); with scaled targets `gradvine.target_mean` and
//! `gradvine.target_deviation` (likewise): a prediction is the network's output times the
//! deviation, plus the mean. Every other key is the caller's. The same model gives the same bytes:
//! keys have a fixed order.

use std::{collections::BTreeMap, fs::File, io::Read, path::Path};

use safetensors::{Dtype, SafeTensors, tensor::Metadata};
use serde_json::{Map, Value, json};

use super::{KINDS, Model, ModelError, ModelParams, Tensor};
use crate::{
    config::ConfigError,
    data::{
        Columns, Dataset, Options, Preprocessing, Scale, Schema, Task, are_named, write_atomically,
    },
    inputs, vector,
};

/// The maximum length of a header: there are at most a few hundred tensors, and scaling takes some
/// 50 bytes per input.
const MAX_HEADER: u64 = 64 << 20;

/// The prefix of this program's own keys.
const PREFIX: &str = "gradvine.";

/// A model with all that prediction needs, as a file holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedModel {
    /// The kind of model and its sizes.
    pub model: Model,
    /// The parameters of all tensors, one after the other.
    pub x: Vec<f32>,
    /// What was done with the features before training.
    pub preprocessing: Preprocessing,
    /// The names of the classes; empty if they are unknown or the model predicts numbers.
    pub classes: Vec<String>,
    /// The names of the columns that the model was trained on, if they are known.
    pub columns: Option<Columns>,
    /// The columns of the files that the model reads, if it was trained with a schema.
    pub schema: Option<Schema>,
    /// Further texts of the writer, such as the run and the round. No key starts with `gradvine.`.
    pub extra: BTreeMap<String, String>,
}

impl SavedModel {
    /// Prepares the features as in training: fills in missing values, and scales.
    ///
    /// # Errors
    /// If there are more or fewer features, or a scaled one is beyond `f32`.
    pub fn prepare(&self, data: &mut Dataset) -> Result<(), ModelError> {
        Ok(self.preprocessing.apply(data)?)
    }

    /// The names of the outputs: of the classes, or of the columns that are predicted. Those
    /// without a name are classes `0`, `1`, ..., and numbers `y0`, `y1`, ....
    pub fn output_names(&self) -> Vec<String> {
        let outputs = self.model.shape().outputs;
        if self.model.task() == Task::Classification {
            let name = |class: usize| self.classes.get(class).cloned();
            return (0..outputs).map(|class| name(class).unwrap_or(class.to_string())).collect();
        }
        let targets = self.columns.as_ref().map(|columns| &columns.targets);
        match targets.filter(|targets| targets.len() == outputs) {
            Some(targets) => targets.clone(),
            None => (0..outputs).map(|output| format!("y{output}")).collect(),
        }
    }

    /// How to read rows for this model: its columns by name, its classes, its number of features.
    /// `more` has the caller's own options.
    pub fn reading(&self, more: Options) -> Options {
        let (task, shape) = (self.model.task(), self.model.shape());
        Options {
            columns: self.columns.clone(),
            schema: self.schema.as_ref().map(|schema| schema.counted_as(schema)),
            by_position: true,
            class_names: Some(self.classes.clone()).filter(|names| are_named(names)),
            task,
            inputs: Some(shape.inputs),
            classes: Some(shape.outputs).filter(|_| task == Task::Classification),
            ..more
        }
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// If a part does not fit the model, or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ModelError> {
        let metadata = self.metadata().map_err(|error| error.within(path.display()))?;
        write_file(path, metadata, self.model.tensors(), &self.x)
    }

    /// Reads a file that [`SavedModel::write`] wrote, or one with the same tensors and metadata.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, is not from this program, or its tensors are not the
    /// model's.
    pub fn read(path: &Path) -> Result<SavedModel, ModelError> {
        SavedModel::from_bytes(&read_file(path)?).map_err(|error| error.within(path.display()))
    }

    /// Reads only the metadata of such a file: `x` is empty.
    ///
    /// # Errors
    /// As [`SavedModel::read`], except for the tensors.
    pub(crate) fn read_metadata(path: &Path) -> Result<SavedModel, ModelError> {
        let keys = read_keys(path).ok_or_else(|| damaged("the file has no header"));
        keys.and_then(|keys| keys.saved(Vec::new())).map_err(|error| error.within(path.display()))
    }

    /// Decodes a model from the bytes of a file.
    ///
    /// # Errors
    /// As [`SavedModel::read`].
    pub fn from_bytes(bytes: &[u8]) -> Result<SavedModel, ModelError> {
        if let Some(length) = bytes.first_chunk::<8>().map(|length| u64::from_le_bytes(*length))
            && length > MAX_HEADER
        {
            let problem = format!("a header of {length} bytes: at most {MAX_HEADER} are accepted");
            return Err(damaged(problem));
        }
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let keys = Keys::of(&metadata);
        let model = keys.model()?;
        let x = read_x(&file, model.tensors(), bytes.len())?;
        let (found, needed, kind) = (file.len(), model.tensors().len(), model.kind().name());
        ModelError::same("tensors", found, needed, || {
            format!("{found} tensors, but {kind} has {needed}")
        })?;
        keys.saved(x)
    }

    /// Checks that the parts fit together.
    fn check(&self) -> Result<(), ModelError> {
        let (found, d) = (self.x.len(), self.model.parameters());
        ModelError::same("x", found, d, || format!("{found} parameters, but {d} are needed"))?;
        self.check_metadata()
    }

    fn check_metadata(&self) -> Result<(), ModelError> {
        let shape = self.model.shape();
        if let Some(scale) = &self.preprocessing.scale {
            scale.check("data.scale", shape.inputs)?;
        }
        if let Some(scale) = &self.preprocessing.targets {
            scale.check("data.target_scale", shape.outputs)?;
        }
        let mut agreed = 0;
        if let Some(schema) = &self.schema {
            schema.check()?;
            let (width, inputs) = (schema.width()?, shape.inputs);
            ModelError::same("schema", width, inputs, || {
                format!("{width} features for {inputs} inputs")
            })?;
            agreed = schema.agreed().len();
        }
        let fills = &self.preprocessing.fills;
        let found = fills.len();
        if found != agreed || fills.iter().any(|fill| !fill.is_finite()) {
            let problem = format!("{found} numbers: {agreed} finite ones are needed");
            return Err(ModelError::Count { of: "fills", found, needed: agreed, problem });
        }
        if !self.classes.is_empty() {
            let (found, outputs) = (self.classes.len(), shape.outputs);
            ModelError::same("classes", found, outputs, || {
                format!("{found} names for {outputs} outputs")
            })?;
        }
        if let Some(columns) = &self.columns {
            let (found, inputs) = (columns.features.len(), shape.inputs);
            ModelError::same("columns", found, inputs, || {
                format!("{found} names for {inputs} inputs")
            })?;
        }
        if let Some(key) = self.extra.keys().find(|key| key.starts_with(PREFIX)) {
            let problem = format!("keys that start with {PREFIX} are this program's own");
            return Err(ConfigError::at(key, problem).into());
        }
        Ok(())
    }

    fn metadata(&self) -> Result<Map<String, Value>, ModelError> {
        self.check()?;
        let shape = self.model.shape();
        let mut metadata = Map::new();
        let mut own = |key: &str, value: String| {
            metadata.insert(format!("{PREFIX}{key}"), Value::String(value))
        };
        own("format", "1".into());
        own("kind", self.model.kind().name().into());
        own("task", self.model.task().name().into());
        own("inputs", shape.inputs.to_string());
        own("outputs", shape.outputs.to_string());
        own("hidden", json!(shape.hidden).to_string());
        own("bias", shape.bias.to_string());
        own("classes", json!(self.classes).to_string());
        if let Some(columns) = &self.columns {
            own("columns", json!(columns.features).to_string());
            own("targets", json!(columns.targets).to_string());
        }
        if let Some(schema) = &self.schema {
            own("schema", json!(schema).to_string());
        }
        if !self.preprocessing.fills.is_empty() {
            own("fills", numbers(self.preprocessing.fills.iter().map(|fill| f64::from(*fill))));
        }
        if let Some(scale) = &self.preprocessing.scale {
            own("mean", numbers(scale.mean.iter().copied()));
            own("deviation", numbers(scale.deviation.iter().copied()));
        }
        if let Some(scale) = &self.preprocessing.targets {
            own("target_mean", numbers(scale.mean.iter().copied()));
            own("target_deviation", numbers(scale.deviation.iter().copied()));
        }
        metadata.extend(
            self.extra.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))),
        );
        Ok(metadata)
    }
}

/// Writes a flat vector as tensors, completely or not at all, with texts that any reader of the
/// format shows. No key starts with `gradvine.`.
///
/// # Errors
/// If `tensors` and `x` differ in length, or the file cannot be written.
pub(crate) fn write_tensors(
    path: &Path,
    tensors: &[Tensor],
    x: &[f32],
    extra: &BTreeMap<String, String>,
) -> Result<(), ModelError> {
    let (found, total) = (x.len(), tensors.iter().map(Tensor::len).sum());
    ModelError::same("x", found, total, || {
        format!("{found} numbers, but the tensors hold {total}")
    })
    .map_err(|error| error.within(path.display()))?;
    let text = |(key, value): (&String, &String)| (key.clone(), Value::String(value.clone()));
    write_file(path, extra.iter().map(text).collect(), tensors, x)
}

/// Reads a flat vector of these tensors from a safetensors file, which may contain more. Its
/// metadata is ignored.
///
/// # Errors
/// If the file cannot be read or is damaged, or a tensor is missing, of another shape, or not F32.
pub fn read_tensors(path: &Path, tensors: &[Tensor]) -> Result<Vec<f32>, ModelError> {
    tensors_of(&read_file(path)?, tensors).map_err(|error| error.within(path.display()))
}

/// The same from the bytes of a file.
pub(crate) fn tensors_of(bytes: &[u8], tensors: &[Tensor]) -> Result<Vec<f32>, ModelError> {
    let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
    read_x(&file, tensors, bytes.len())
}

/// The feature scale in a model file's metadata; the tensors are not read. `None` if there is none,
/// or the file is no model file.
pub(crate) fn read_scale(path: &Path) -> Option<Scale> {
    read_keys(path)?.scale("").ok()?
}

/// The scale of this many predicted numbers in a model file's metadata; mean 0 and deviation 1 if
/// the model was trained on numbers as they are. `None` if the file is no model file.
pub(crate) fn read_target_scale(path: &Path, outputs: usize) -> Option<Scale> {
    let keys = read_keys(path)?;
    keys.own("format")?;
    let plain = || Scale { mean: vec![0.0; outputs], deviation: vec![1.0; outputs] };
    Some(keys.scale("target_").ok()?.unwrap_or_else(plain))
}

/// The metadata of a file; `None` if it has none that can be read.
fn read_keys(path: &Path) -> Option<Keys> {
    let mut file = File::open(path).ok()?;
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    let mut header = Vec::new();
    file.take(length.min(MAX_HEADER)).read_to_end(&mut header).ok()?;
    let header: Value = serde_json::from_slice(&header).ok()?;
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_string()));
    Some(Keys(header.get("__metadata__")?.as_object()?.iter().filter_map(text).collect()))
}

/// The error of a file that is no safetensors file, or not a whole one.
fn damaged(problem: impl ToString) -> ModelError {
    ModelError::Format { part: "safetensors", problem: problem.to_string() }
}

fn read_file(path: &Path) -> Result<Vec<u8>, ModelError> {
    let fail = |error| ModelError::Unreadable(error).within(path.display());
    let file = inputs::open(path).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    let limit = 8 + MAX_HEADER + 4 * super::MAX_PARAMETERS as u64;
    if length > limit {
        return Err(ModelError::TooLarge { bytes: length, most: limit }.within(path.display()));
    }
    let mut bytes = Vec::new();
    let _ = bytes.try_reserve_exact(usize::try_from(length).unwrap_or(0));
    file.take(limit + 1).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

fn read_x(
    file: &SafeTensors<'_>,
    tensors: &[Tensor],
    bytes: usize,
) -> Result<Vec<f32>, ModelError> {
    let total: usize = tensors.iter().map(Tensor::len).sum();
    // A shorter file is refused below: it must not make this program allocate memory before.
    let mut x = Vec::with_capacity(if total <= bytes / 4 { total } else { 0 });
    for tensor in tensors {
        let wrong = |found, needed| {
            let name = tensor.name.clone();
            ModelError::Tensor { name, found, needed }
        };
        let shape = format!("{:?}", tensor.shape);
        let view = file.tensor(&tensor.name).map_err(|_| wrong(None, shape.clone()))?;
        if view.dtype() != Dtype::F32 {
            return Err(wrong(Some(format!("{:?}", view.dtype())), "F32".into()));
        }
        if view.shape() != tensor.shape {
            return Err(wrong(Some(format!("{:?}", view.shape())), shape));
        }
        x.extend(view.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
    }
    Ok(x)
}

fn write_file(
    path: &Path,
    metadata: Map<String, Value>,
    tensors: &[Tensor],
    x: &[f32],
) -> Result<(), ModelError> {
    let shapes = tensors.iter().map(|tensor| (tensor.name.as_str(), &tensor.shape[..]));
    let header = write_header(metadata, shapes);
    if header.len() as u64 > MAX_HEADER {
        let problem = format!("{} bytes: at most {MAX_HEADER} are accepted", header.len());
        return Err(ModelError::Format { part: "metadata", problem }.within(path.display()));
    }
    let mut data = Vec::with_capacity(4 * x.len());
    vector::write_floats(x, &mut data);
    Ok(write_atomically(path, &[&header, &data])?)
}

/// The beginning of a safetensors file with these F32 tensors, whose values follow in this order:
/// its length and the header.
pub(crate) fn write_header<'a>(
    metadata: Map<String, Value>,
    tensors: impl Iterator<Item = (&'a str, &'a [usize])>,
) -> Vec<u8> {
    let mut header = Map::new();
    header.insert("__metadata__".into(), Value::Object(metadata));
    let mut offset = 0;
    for (name, shape) in tensors {
        let end = offset + 4 * shape.iter().product::<usize>();
        let tensor = json!({"dtype": "F32", "shape": shape, "data_offsets": [offset, end]});
        header.insert(name.into(), tensor);
        offset = end;
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    // The data starts at a multiple of eight bytes, so that it can be mapped.
    text.resize(text.len().next_multiple_of(8), b' ');
    [&(text.len() as u64).to_le_bytes()[..], &text].concat()
}

/// A JSON array of `f64` in shortest round-trip form.
fn numbers(values: impl Iterator<Item = f64>) -> String {
    let texts: Vec<String> = values.map(|value| format!("{value:?}")).collect();
    format!("[{}]", texts.join(","))
}

/// The metadata of a file.
struct Keys(BTreeMap<String, String>);

impl Keys {
    fn of(metadata: &Metadata) -> Keys {
        let keys = metadata.metadata().iter().flatten();
        Keys(keys.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// The model with these parameters; its tensors are not compared.
    fn saved(self, x: Vec<f32>) -> Result<SavedModel, ModelError> {
        let model = self.model()?;
        let fills = self.floats("fills")?.unwrap_or_default();
        let targets = self.scale("target_")?;
        if let Some(scale) = &targets {
            scale.check("gradvine.target", model.shape().outputs)?;
        }
        let saved = SavedModel {
            model: model.with_targets(targets.clone()),
            x,
            preprocessing: Preprocessing {
                fills: fills.into_iter().map(|fill| fill as f32).collect(),
                scale: self.scale("")?,
                targets,
            },
            schema: self.json("schema")?,
            classes: self.json("classes")?.unwrap_or_default(),
            columns: self.columns()?,
            extra: self.0.into_iter().filter(|(key, _)| !key.starts_with(PREFIX)).collect(),
        };
        saved.check_metadata()?;
        Ok(saved)
    }

    fn model(&self) -> Result<Model, ModelError> {
        let format = self.own("format").ok_or_else(|| {
            let kinds = KINDS.map(super::Kind::name).join(", ");
            missing("format", &format!("missing: not a model of this program (kinds: {kinds})"))
        })?;
        if format != "1" {
            return Err(self.bad("format", "1 is accepted"));
        }
        let hidden: Vec<usize> = self.json("hidden")?.unwrap_or_default();
        let kind = self.needed("kind")?;
        let may_hide =
            KINDS.iter().any(|known| known.name() == kind && known.default_hidden().is_some());
        let params = ModelParams {
            kind: kind.to_string(),
            task: self.task()?,
            hidden: Some(hidden).filter(|hidden| may_hide || !hidden.is_empty()),
            bias: self
                .needed("bias")?
                .parse()
                .map_err(|_| self.bad("bias", "true or false is accepted"))?,
            init: None,
            init_digest: None,
            inputs: Some(self.size("inputs")?),
            outputs: Some(self.size("outputs")?),
        };
        Model::resolve(&params, None, None)
    }

    /// Files of before there was a choice have no task.
    fn task(&self) -> Result<Option<Task>, ModelError> {
        let Some(name) = self.own("task") else { return Ok(None) };
        let task = [Task::Classification, Task::Regression].into_iter().find(|t| t.name() == name);
        task.map(Some)
            .ok_or_else(|| self.bad("task", "\"classification\" or \"regression\" is accepted"))
    }

    /// The scale whose keys begin so.
    fn scale(&self, begin: &str) -> Result<Option<Scale>, ModelError> {
        let part = |name: &str| self.floats(&format!("{begin}{name}"));
        match (part("mean")?, part("deviation")?) {
            (None, None) => Ok(None),
            (Some(mean), Some(deviation)) => Ok(Some(Scale { mean, deviation })),
            _ => {
                let key = format!("{begin}mean and {PREFIX}{begin}deviation");
                Err(missing(&key, "both or neither are needed"))
            }
        }
    }

    fn columns(&self) -> Result<Option<Columns>, ModelError> {
        let Some(features) = self.json("columns")? else { return Ok(None) };
        Ok(Some(Columns { features, targets: self.json("targets")?.unwrap_or_default() }))
    }

    fn own(&self, key: &str) -> Option<&str> {
        self.0.get(&format!("{PREFIX}{key}")).map(String::as_str)
    }

    fn needed(&self, key: &str) -> Result<&str, ModelError> {
        self.own(key).ok_or_else(|| missing(key, "missing"))
    }

    fn size(&self, key: &str) -> Result<usize, ModelError> {
        self.needed(key)?.parse().map_err(|_| self.bad(key, "a whole number is needed"))
    }

    fn json<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ModelError> {
        self.own(key)
            .map(|text| {
                serde_json::from_slice(text.as_bytes())
                    .map_err(|error| self.bad(key, &error.to_string()))
            })
            .transpose()
    }

    /// Not by `serde_json`, whose floats may be off by the last bit.
    fn floats(&self, key: &str) -> Result<Option<Vec<f64>>, ModelError> {
        let Some(text) = self.own(key) else { return Ok(None) };
        let inside = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let numbers = inside.map(|inside| {
            inside.split(',').map(|number| number.trim().parse()).collect::<Result<_, _>>()
        });
        match numbers {
            Some(Ok(numbers)) => Ok(Some(numbers)),
            _ => Err(self.bad(key, "a JSON array of numbers is needed")),
        }
    }

    fn bad(&self, key: &str, problem: &str) -> ModelError {
        let value = self.own(key).unwrap_or_default().chars().take(60).collect();
        let (key, problem) = (format!("{PREFIX}{key}"), problem.into());
        ModelError::Metadata { key, value: Some(value), problem }
    }
}

/// The error of a key of the metadata without a value.
fn missing(key: &str, problem: &str) -> ModelError {
    ModelError::Metadata { key: format!("{PREFIX}{key}"), value: None, problem: problem.into() }
}
