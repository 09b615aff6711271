//! Trained models as ONNX graphs, for programs that know nothing of this one: version 8 of the
//! intermediate representation, operators of set 17.
//!
//! ```text
//! features [rows, inputs], f32: numbers as they are in the data, NaN where there is none
//!   -> IsNaN, Where                                           if the schema accepts missing values
//!   -> Cast to f64, Sub mean, Div deviation, Cast to f32      if the model has a scale
//!   -> Gemm, Relu, Gemm, ...                                  one Gemm a layer
//!   -> Softmax -> probabilities [rows, classes], f32
//!              -> ArgMax -> label [rows], i64                 of classes; -1 without probabilities
//!   -> Cast to f64, Mul deviation, Add mean, Cast to f32      if the targets were scaled
//!   -> values [rows, outputs], f32                            of numbers
//! ```
//!
//! A NaN is a cell without a value: it becomes what the schema and the nodes of the run have
//! decided. Where the schema refuses such a cell, the row's probabilities or values are NaN, and
//! its label is -1. The scale is applied in `f64` as in training, so that the layers get the same
//! bits. The metadata has the texts of the model file: `gradvine.kind`, `gradvine.task`,
//! `gradvine.classes`, `gradvine.columns` and `gradvine.targets` (JSON arrays), and
//! `gradvine.version` and `gradvine.digest`.
//! The format: <https://github.com/onnx/onnx/blob/main/docs/IR.md>.
#![forbid(unsafe_code)]

mod graph;
mod proto;

use std::path::{Path, PathBuf};

use gradvine::{
    config::ConfigError,
    data::{Kind, Task, check_output, write_atomically},
    digest,
    learn::SavedModel,
};
use prost::Message;
use serde_json::json;

use graph::Graph;
use proto::{DOUBLE, FLOAT, INT64, ModelProto, OperatorSetIdProto, StringStringEntryProto};

/// The version of the intermediate representation.
const IR_VERSION: i64 = 8;

/// The version of the set of operators.
const OPERATORS: i64 = 17;

/// No message of protocol buffers is longer.
const LONGEST: usize = i32::MAX as usize;

/// The name of the graph's input.
pub const FEATURES: &str = "features";

/// Writes a model file as an ONNX file: `out`, or the same name ending in `.onnx`. Returns its
/// path, and its inputs and outputs with their shapes as text.
///
/// # Errors
/// As [`export`]; if the model cannot be read or the file cannot be written; if `out` is the model
/// itself, with the place `--out`.
pub fn convert(model: &Path, out: Option<&Path>) -> Result<(PathBuf, String), ConfigError> {
    let saved = SavedModel::read(model)?;
    let out = out.map_or_else(|| model.with_extension("onnx"), Path::to_path_buf);
    let bytes = export(&saved).map_err(|error| error.within(model.display()))?;
    check_output("--out", &out, Kind::Onnx)?;
    write_atomically(&out, &[&bytes])?;
    let shape = saved.model.shape();
    let outputs = match saved.model.task() {
        Task::Classification => format!("label [rows], probabilities [rows, {}]", shape.outputs),
        _ => format!("values [rows, {}]", shape.outputs),
    };
    Ok((out, format!("{FEATURES} [rows, {}] -> {outputs}", shape.inputs)))
}

/// The bytes of an ONNX file with this model.
///
/// # Errors
/// If the kind of model has no graph here, or the file would be longer than 2 GiB.
pub fn export(saved: &SavedModel) -> Result<Vec<u8>, ConfigError> {
    if 4 * saved.x.len() > LONGEST {
        return Err(too_long(saved.x.len()));
    }
    let shape = saved.model.shape();
    let mut graph = Graph::default();
    graph.input(FEATURES, FLOAT, shape.inputs, &about_features(saved));
    let filled = fill(&mut graph, saved);
    let scaled = scale(&mut graph, saved, filled);
    match saved.model.task() {
        Task::Classification => {
            let scores = layers(&mut graph, saved, scaled, "scores")?;
            graph.apply("Softmax", &[&scores], "probabilities", &[("axis", 1)]);
            // Of equal probabilities the first class counts.
            let first = [("axis", 1), ("keepdims", 0), ("select_last_index", 0)];
            graph.apply("ArgMax", &["probabilities"], "class", &first);
            // ArgMax is 0 where all are NaN; their sum is NaN, too.
            graph.wholes("axes", &[1]);
            graph.wholes("none", &[-1]);
            graph.apply("ReduceSum", &["probabilities", "axes"], "total", &[("keepdims", 0)]);
            let unknown = graph.apply("IsNaN", &["total"], "unknown", &[]);
            graph.apply("Where", &[&unknown, "none", "class"], "label", &[]);
            let about = "The position of the most probable class; -1 if a value is missing that \
                         the model needs.";
            graph.output("label", INT64, None, about);
            let about = "The probability of each class.";
            graph.output("probabilities", FLOAT, Some(shape.outputs), about);
        }
        Task::Regression => {
            let last = saved.preprocessing.targets.as_ref().map_or("values", |_| "values.scaled");
            layers(&mut graph, saved, scaled, last)?;
            unscale(&mut graph, saved, last);
            graph.output("values", FLOAT, Some(shape.outputs), "The predicted numbers.");
        }
        _ => return Err(unknown(saved)),
    }
    let model = ModelProto {
        ir_version: Some(IR_VERSION),
        producer_name: Some("gradvine".into()),
        producer_version: Some(env!("CARGO_PKG_VERSION").into()),
        doc_string: Some(saved.model.kind().summary().into()),
        graph: Some(graph.finish(saved.model.kind().name())),
        opset_import: vec![OperatorSetIdProto {
            domain: Some(String::new()),
            version: Some(OPERATORS),
        }],
        metadata_props: metadata(saved),
    };
    if model.encoded_len() > LONGEST {
        return Err(too_long(saved.x.len()));
    }
    Ok(model.encode_to_vec())
}

/// Puts what the schema says in the place of NaN; returns the name of the result.
fn fill(graph: &mut Graph, saved: &SavedModel) -> String {
    let fills = &saved.preprocessing.fills;
    let schema = saved.schema.as_ref().map(|schema| schema.filled(fills).of_missing());
    let fills = schema.unwrap_or_default();
    if fills.iter().all(Option::is_none) {
        return FEATURES.into();
    }
    let fills: Vec<f32> = fills.into_iter().map(|fill| fill.unwrap_or(f32::NAN)).collect();
    graph.floats("fills", &[fills.len()], &fills);
    let missing = graph.apply("IsNaN", &[FEATURES], "features.missing", &[]);
    graph.apply("Where", &[&missing, "fills", FEATURES], "features.filled", &[])
}

/// Scales the features; returns the name of the result.
fn scale(graph: &mut Graph, saved: &SavedModel, features: String) -> String {
    let Some(scale) = &saved.preprocessing.scale else { return features };
    graph.doubles("mean", &scale.mean);
    graph.doubles("deviation", &scale.deviation);
    let wide = graph.apply("Cast", &[&features], "features.f64", &[("to", DOUBLE.into())]);
    let centred = graph.apply("Sub", &[&wide, "mean"], "features.centred", &[]);
    let scaled = graph.apply("Div", &[&centred, "deviation"], "features.scaled", &[]);
    graph.apply("Cast", &[&scaled], "features.f32", &[("to", FLOAT.into())])
}

/// Gives the predicted numbers the units of the data, if the model was trained on scaled ones.
fn unscale(graph: &mut Graph, saved: &SavedModel, scaled: &str) {
    let Some(scale) = &saved.preprocessing.targets else { return };
    graph.doubles("target_deviation", &scale.deviation);
    graph.doubles("target_mean", &scale.mean);
    let wide = graph.apply("Cast", &[scaled], "values.f64", &[("to", DOUBLE.into())]);
    let product = graph.apply("Mul", &[&wide, "target_deviation"], "values.product", &[]);
    let sum = graph.apply("Add", &[&product, "target_mean"], "values.sum", &[]);
    graph.apply("Cast", &[&sum], "values", &[("to", FLOAT.into())]);
}

/// The dense layers, with ReLU between them; the last one's output gets this name.
fn layers(
    graph: &mut Graph,
    saved: &SavedModel,
    mut value: String,
    last: &str,
) -> Result<String, ConfigError> {
    let (model, shape) = (&saved.model, saved.model.shape());
    if !matches!(model.kind().name(), "least-squares" | "softmax" | "mlp") {
        return Err(unknown(saved));
    }
    let layers = shape.hidden.len() + 1;
    let (mut tensors, mut rest) = (model.tensors().iter(), &saved.x[..]);
    let mut constant = |graph: &mut Graph| {
        let tensor = tensors.next().expect("a layer has a weight, and a bias if all have one");
        let (values, after) = rest.split_at(tensor.len());
        rest = after;
        graph.floats(&tensor.name, &tensor.shape, values);
        tensor.name.as_str()
    };
    for layer in 0..layers {
        let weight = constant(graph);
        let mut inputs = vec![value.as_str(), weight];
        if shape.bias {
            inputs.push(constant(graph));
        }
        let output = if layer + 1 == layers { last.into() } else { format!("layer{layer}") };
        let sum = graph.apply("Gemm", &inputs, &output, &[]);
        value = if layer + 1 == layers {
            sum
        } else {
            graph.apply("Relu", &[&sum], &format!("{sum}.relu"), &[])
        };
    }
    Ok(value)
}

fn about_features(saved: &SavedModel) -> String {
    match &saved.columns {
        Some(columns) if saved.schema.is_some() => format!(
            "The features {}, which gradvine.schema makes of the columns of a file; NaN where a \
             cell has no value.",
            columns.features.join(", ")
        ),
        Some(columns) => format!("The columns {}.", columns.features.join(", ")),
        None => "The features of a row, in the order of the training data.".into(),
    }
}

fn metadata(saved: &SavedModel) -> Vec<StringStringEntryProto> {
    let mut texts = vec![
        ("kind", saved.model.kind().name().into()),
        ("task", saved.model.task().name().into()),
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("digest", digest::of_model(&saved.x)),
    ];
    if !saved.classes.is_empty() {
        texts.push(("classes", json!(saved.classes).to_string()));
    }
    if let Some(columns) = &saved.columns {
        texts.push(("columns", json!(columns.features).to_string()));
        texts.push(("targets", json!(columns.targets).to_string()));
    }
    if let Some(schema) = &saved.schema {
        texts.push(("schema", json!(schema.filled(&saved.preprocessing.fills)).to_string()));
    }
    let entry = |(key, value)| StringStringEntryProto {
        key: Some(format!("gradvine.{key}")),
        value: Some(value),
    };
    texts.into_iter().map(entry).collect()
}

fn unknown(saved: &SavedModel) -> ConfigError {
    let problem = "has no ONNX graph: least-squares, softmax and mlp have one";
    ConfigError::new("model.kind", saved.model.kind().name(), problem)
}

fn too_long(parameters: usize) -> ConfigError {
    let problem = "an ONNX file has at most 2 GiB, about 536 million parameters";
    ConfigError::new("parameters", parameters, problem)
}
