//! `gradvine export`: an ONNX file is decoded here by the field numbers of `onnx.proto`, and its
//! operators are computed in `f64`, without code of the crate that wrote it. The outputs must be
//! those of `gradvine predict`. A test of the Python package opens such files with onnxruntime.

use std::{collections::BTreeMap, fs, path::Path};

use gradvine::data::{self, Options};
use predicates::str::contains;

use crate::command::{self, folder, gradvine, within};

/// A message of protocol buffers: numbers of fields with their values, in order.
pub(crate) struct Message<'a>(Vec<(u64, Value<'a>)>);

#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Number(u64),
    /// A text, a message, or a number of fixed width.
    Bytes(&'a [u8]),
}

impl<'a> Message<'a> {
    pub(crate) fn read(mut bytes: &'a [u8]) -> Message<'a> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = match key & 7 {
                0 => Value::Number(varint(&mut bytes)),
                kind @ (1 | 2 | 5) => {
                    let fixed = if kind == 1 { 8 } else { 4 };
                    let length = if kind == 2 { varint(&mut bytes) as usize } else { fixed };
                    let (value, rest) = bytes.split_at(length);
                    bytes = rest;
                    Value::Bytes(value)
                }
                kind => panic!("kind {kind} of field {}", key >> 3),
            };
            fields.push((key >> 3, value));
        }
        Message(fields)
    }

    pub(crate) fn all(&self, field: u64) -> impl Iterator<Item = Value<'a>> {
        self.0.iter().filter(move |(number, _)| *number == field).map(|(_, value)| *value)
    }

    pub(crate) fn messages(&self, field: u64) -> Vec<Message<'a>> {
        self.all(field).map(|value| Message::read(value.bytes())).collect()
    }

    pub(crate) fn texts(&self, field: u64) -> Vec<String> {
        self.all(field).map(|value| String::from_utf8(value.bytes().to_vec()).unwrap()).collect()
    }

    pub(crate) fn numbers(&self, field: u64) -> Vec<u64> {
        self.all(field).map(Value::number).collect()
    }

    /// The only value of a field.
    pub(crate) fn text(&self, field: u64) -> String {
        let [text] = self.texts(field).try_into().unwrap();
        text
    }

    pub(crate) fn number(&self, field: u64) -> u64 {
        let [number] = self.numbers(field).try_into().unwrap();
        number
    }
}

impl<'a> Value<'a> {
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            Value::Number(number) => panic!("the number {number}"),
        }
    }

    pub(crate) fn number(self) -> u64 {
        match self {
            Value::Number(number) => number,
            Value::Bytes(bytes) => panic!("{} bytes", bytes.len()),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        number |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return number;
        }
    }
    panic!("a number of more than 64 bits")
}

/// Rows, columns, numbers.
#[derive(Clone, Debug)]
struct Matrix(usize, usize, Vec<f64>);

impl Matrix {
    fn at(&self, row: usize, column: usize) -> f64 {
        // A vector stands for each row.
        self.2[if self.0 == 1 { column } else { row * self.1 + column }]
    }

    fn of(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f64) -> Matrix {
        let numbers = (0..rows * columns).map(|i| value(i / columns, i % columns)).collect();
        Matrix(rows, columns, numbers)
    }

    /// `TensorProto`: dims = 1, data_type = 2 (1: f32, 7: i64, 11: f64), raw_data = 9.
    fn read(tensor: &Message<'_>) -> Matrix {
        let dims: Vec<usize> =
            tensor.numbers(1).into_iter().map(|extent| extent as usize).collect();
        let (rows, columns) = match dims[..] {
            [columns] => (1, columns),
            [rows, columns] => (rows, columns),
            _ => panic!("{dims:?}"),
        };
        let [raw] = tensor.all(9).map(Value::bytes).collect::<Vec<_>>().try_into().unwrap();
        let numbers: Vec<f64> = match tensor.number(2) {
            1 => raw.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
            7 => raw.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
            11 => raw.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
            kind => panic!("data type {kind}"),
        };
        assert_eq!(numbers.len(), rows * columns);
        Matrix(rows, columns, numbers)
    }
}

/// Computes one operator; `attribute` are its whole numbers.
fn compute(operator: &str, inputs: &[&Matrix], attributes: &BTreeMap<String, u64>) -> Matrix {
    let (rows, columns) = (inputs[0].0, inputs[0].1);
    let a = inputs[0];
    match (operator, &inputs[1..]) {
        ("Cast", []) => match attributes["to"] {
            1 => Matrix::of(rows, columns, |r, c| f64::from(a.at(r, c) as f32)),
            11 => a.clone(),
            kind => panic!("data type {kind}"),
        },
        ("IsNaN", []) => Matrix::of(rows, columns, |r, c| f64::from(u8::from(a.at(r, c).is_nan()))),
        ("Where", [b, d]) => {
            Matrix::of(
                rows,
                columns,
                |r, c| if a.at(r, c) == 1.0 { b.at(0, c) } else { d.at(r, c) },
            )
        }
        ("ReduceSum", [b]) => {
            assert_eq!((&b.2[..], attributes["keepdims"]), (&[1.0][..], 0));
            Matrix::of(rows, 1, |r, _| (0..columns).map(|c| a.at(r, c)).sum())
        }
        ("Mul", [b]) => Matrix::of(rows, columns, |r, c| a.at(r, c) * b.at(0, c)),
        ("Add", [b]) => Matrix::of(rows, columns, |r, c| a.at(r, c) + b.at(0, c)),
        ("Sub", [b]) => Matrix::of(rows, columns, |r, c| a.at(r, c) - b.at(0, c)),
        ("Div", [b]) => Matrix::of(rows, columns, |r, c| a.at(r, c) / b.at(0, c)),
        ("Gemm", [b, bias @ ..]) => Matrix::of(rows, b.1, |r, c| {
            let sum: f64 = (0..columns).map(|k| a.at(r, k) * b.at(k, c)).sum();
            sum + bias.first().map_or(0.0, |bias| bias.at(0, c))
        }),
        ("Relu", []) => Matrix::of(rows, columns, |r, c| a.at(r, c).max(0.0)),
        ("Softmax", []) => {
            assert_eq!(attributes["axis"], 1);
            let sum = |r| (0..columns).map(|c| a.at(r, c).exp()).sum::<f64>();
            Matrix::of(rows, columns, |r, c| a.at(r, c).exp() / sum(r))
        }
        ("ArgMax", []) => {
            let [axis, keep, last] = ["axis", "keepdims", "select_last_index"];
            assert_eq!([axis, keep, last].map(|key| attributes[key]), [1, 0, 0]);
            let first =
                |r| (0..columns).rev().max_by(|&b, &c| a.at(r, b).total_cmp(&a.at(r, c))).unwrap();
            Matrix::of(rows, 1, |r, _| first(r) as f64)
        }
        _ => panic!("{operator} of {} inputs", inputs.len()),
    }
}

struct Exported {
    bytes: Vec<u8>,
}

impl Exported {
    /// `ModelProto`: ir_version = 1, graph = 7, opset_import = 8 (version = 2).
    fn graph(&self) -> Message<'_> {
        let model = Message::read(&self.bytes);
        assert_eq!(model.number(1), 8);
        assert_eq!(model.messages(8)[0].number(2), 17);
        model.messages(7).remove(0)
    }

    /// `metadata_props` = 14: key = 1, value = 2.
    fn metadata(&self) -> BTreeMap<String, String> {
        let entries = Message::read(&self.bytes).messages(14);
        entries.iter().map(|entry| (entry.text(1), entry.text(2))).collect()
    }

    /// The names and types of inputs (11) or outputs (12) of the graph, as
    /// `name: type [rows, width]`. `ValueInfoProto`: name = 1, type = 2 (tensor_type = 1: elem_type
    /// = 1, shape = 2: dim = 1: dim_value = 1, dim_param = 2).
    fn values(&self, field: u64) -> Vec<String> {
        let describe = |value: &Message<'_>| {
            let tensor = value.messages(2)[0].messages(1).remove(0);
            let dims = tensor.messages(2)[0].messages(1);
            let extent = |dim: &Message<'_>| match dim.numbers(1)[..] {
                [extent] => extent.to_string(),
                _ => dim.text(2),
            };
            let dims: Vec<String> = dims.iter().map(extent).collect();
            format!("{}: {} [{}]", value.text(1), tensor.number(1), dims.join(", "))
        };
        self.graph().messages(field).iter().map(describe).collect()
    }

    /// The values of all names for these features. `GraphProto`: node = 1, initializer = 5.
    /// `NodeProto`: input = 1, output = 2, op_type = 4, attribute = 5. `AttributeProto`: name = 1,
    /// i = 3, type = 20 (2: a whole number). `TensorProto`: name = 8.
    fn run(&self, features: Matrix) -> BTreeMap<String, Matrix> {
        let graph = self.graph();
        let mut values: BTreeMap<String, Matrix> = BTreeMap::new();
        values.insert("features".into(), features);
        for tensor in graph.messages(5) {
            values.insert(tensor.text(8), Matrix::read(&tensor));
        }
        for node in graph.messages(1) {
            let attributes = node.messages(5);
            assert!(attributes.iter().all(|attribute| attribute.number(20) == 2));
            let attributes = attributes.iter().map(|one| (one.text(1), one.number(3))).collect();
            let inputs: Vec<&Matrix> = node.texts(1).iter().map(|name| &values[name]).collect();
            let output = compute(&node.text(4), &inputs, &attributes);
            values.insert(node.text(2), output);
        }
        values
    }
}

fn export(folder: &Path, model: &str, words: &str) -> Exported {
    within(folder, &["export", model, "--to", "onnx", "--out", "model.onnx"])
        .success()
        .stdout(format!("model.onnx: {words}\n"));
    Exported { bytes: fs::read(folder.join("model.onnx")).unwrap() }
}

fn simulate(folder: &Path, out: &str, settings: &[&str]) {
    command::simulate(folder, out, &["--topology", "path:3", "--rounds", "30"], settings).success();
}

/// The cells of the lines of `gradvine predict`, without the row's number.
fn predicted(folder: &Path, model: &str, rows: &str) -> Vec<Vec<String>> {
    let output = within(folder, &["predict", model, rows]).success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    text.lines().skip(1).map(|line| line.split(',').skip(1).map(String::from).collect()).collect()
}

/// The features of rows, as they are in the data.
fn features(source: &str, options: &Options) -> Matrix {
    let data = data::load(source, options).unwrap();
    let (rows, columns) = data.features.dim();
    Matrix::of(rows, columns, |r, c| f64::from(data.features[[r, c]]))
}

#[test]
#[ignore = "slow"]
fn graphs_of_classes_predict_what_the_command_predicts() {
    let folder = folder();
    let path = folder.path();
    let rows = features("digits", &Options::default());
    for (out, settings) in [
        ("linear", &["model.kind=softmax"][..]),
        ("network", &["model.kind=mlp", "model.hidden=[12,9]"]),
        ("bare", &["model.kind=mlp", "model.bias=false", "data.standardize=false"]),
    ] {
        simulate(path, out, &[settings, &["data.source=digits"]].concat());
        let words = "features [rows, 64] -> label [rows], probabilities [rows, 10]";
        let exported = export(path, out, words);
        assert_eq!(exported.values(11), ["features: 1 [rows, 64]"]);
        assert_eq!(exported.values(12), ["label: 7 [rows]", "probabilities: 1 [rows, 10]"]);
        let values = exported.run(rows.clone());
        let (label, probabilities) = (&values["label"], &values["probabilities"]);
        let lines = predicted(path, out, "digits");
        assert_eq!(lines.len(), 1797);
        let mut different = 0;
        for (row, line) in lines.iter().enumerate() {
            let shares: Vec<f64> = line[1..].iter().map(|p| p.parse().unwrap()).collect();
            for (class, share) in shares.iter().enumerate() {
                let found = probabilities.at(row, class);
                assert!((found - share).abs() < 1e-5, "{out}: row {row}: {found}, not {share}");
            }
            // Only classes of almost equal probability may change places.
            let class = label.2[row] as usize;
            let best = shares.iter().copied().fold(0.0, f64::max);
            assert!(best - shares[class] < 1e-5, "{out}: row {row}: {class}, not {}", line[0]);
            different += usize::from(class.to_string() != line[0]);
        }
        assert!(different < 5, "{out}: {different} labels differ");
        let metadata = exported.metadata();
        assert_eq!(metadata["gradvine.classes"], r#"["0","1","2","3","4","5","6","7","8","9"]"#);
        let summary = command::json(&path.join(out).join("summary.json"));
        assert_eq!(metadata["gradvine.digest"], summary["mean_digest"].as_str().unwrap());
        assert_eq!(metadata["gradvine.version"], env!("CARGO_PKG_VERSION"));
        // A wrong weight does not go unnoticed.
        let wrong = exported.run(Matrix::of(rows.0, 64, |r, c| rows.at(r, (c + 1) % 64)));
        let far = |row: &usize| {
            (wrong["probabilities"].at(*row, 0) - values["probabilities"].at(*row, 0)).abs() > 1e-3
        };
        assert!((0..rows.0).filter(far).count() > 900, "{out}");
    }
}

#[test]
fn graphs_of_numbers_predict_what_the_command_predicts() {
    let folder = folder();
    let path = folder.path();
    let row = |i: usize| {
        let (x, y) = ((i * 7 % 23) as f64, (i * 5 % 17) as f64 / 100.0);
        format!("{x},{y},{},{}\n", x * x / 50.0, 30.0 * y - x)
    };
    let text = "x,y,price,days\n".to_string() + &(0..90).map(row).collect::<String>();
    fs::write(path.join("rows.csv"), text).unwrap();
    let common = ["data.source=rows.csv", "data.target=price,days", "data.split=iid"];
    for (out, settings) in [
        ("linear", &["model.kind=least-squares"][..]),
        ("network", &["model.kind=mlp", "model.task=regression", "optimizer.step=0.01"]),
    ] {
        simulate(path, out, &[settings, &common].concat());
        let words = "features [rows, 2] -> values [rows, 2]";
        let exported = export(path, &format!("{out}/model-mean.safetensors"), words);
        assert_eq!(exported.values(12), ["values: 1 [rows, 2]"]);
        let options = Options {
            target: Some("price,days".into()),
            task: data::Task::Regression,
            ..Options::default()
        };
        let source = path.join("rows.csv");
        let values = exported.run(features(source.to_str().unwrap(), &options));
        for (row, line) in predicted(path, out, "rows.csv").iter().enumerate() {
            for (output, value) in line.iter().enumerate() {
                let (found, value) =
                    (values["values"].at(row, output), value.parse::<f64>().unwrap());
                assert!((found - value).abs() < 1e-5 * value.abs().max(1.0), "{out}: row {row}");
            }
        }
        let metadata = exported.metadata();
        assert_eq!(metadata["gradvine.columns"], r#"["x","y"]"#);
        assert_eq!(metadata["gradvine.targets"], r#"["price","days"]"#);
        assert_eq!(metadata["gradvine.task"], "regression");
    }
}

#[test]
fn cells_without_a_value_are_filled_in_the_graph_as_by_the_command() {
    let folder = folder();
    let path = folder.path();
    let cell = |row: usize, every: usize, text: String| {
        if row.is_multiple_of(every) { String::new() } else { text }
    };
    let numbers = |row: usize| [((row * 7) % 23) as f64 - 4.0, ((row * 5) % 17) as f64 * 100.0];
    let mut text = "age,dose,ward,state\n".to_string();
    for row in 0..90 {
        let [age, dose] = numbers(row);
        let (age, dose) = (cell(row, 5, age.to_string()), cell(row, 7, dose.to_string()));
        let ward = cell(row, 6, ["north", "south"][row % 2].into());
        let state = if (row * 7) % 23 + row % 3 > 12 { "ill" } else { "well" };
        text += &format!("{age},{dose},{ward},{state}\n");
    }
    fs::write(path.join("rows.csv"), text).unwrap();
    let schema = r#"data.schema=[{name="age",kind="number",missing="mean"},
        {name="dose",kind="number",missing="median"},
        {name="ward",kind="category",values=["north","south"],missing="category"}]"#;
    let settings = ["data.source=rows.csv", "data.target=state", schema, "model.kind=softmax"];
    simulate(path, "run", &settings);
    let words = "features [rows, 5] -> label [rows], probabilities [rows, 2]";
    let exported = export(path, "run", words);
    let features = Matrix::of(90, 5, |row, column| match column {
        0 if row.is_multiple_of(5) => f64::NAN,
        1 if row.is_multiple_of(7) => f64::NAN,
        0 | 1 => numbers(row)[column],
        _ if row.is_multiple_of(6) => f64::NAN,
        4 => 0.0,
        _ => f64::from(u8::from(row % 2 == column - 2)),
    });
    let values = exported.run(features.clone());
    for (row, line) in predicted(path, "run", "rows.csv").iter().enumerate() {
        for class in 0..2 {
            let (found, share) =
                (values["probabilities"].at(row, class), line[1 + class].parse::<f64>().unwrap());
            assert!((found - share).abs() < 1e-5, "row {row}: {found}, not {share}");
        }
        let class = values["label"].2[row] as usize;
        assert_eq!(["ill", "well"][class], line[0], "row {row}");
    }
    // Without fills a cell without a value is refused by the command; the graph says so, too.
    let plain = ["data.source=breast-cancer", "model.kind=softmax"];
    simulate(path, "plain", &plain);
    let words = "features [rows, 30] -> label [rows], probabilities [rows, 2]";
    let values = export(path, "plain", words)
        .run(Matrix::of(2, 30, |row, column| if (row, column) == (1, 7) { f64::NAN } else { 1.0 }));
    assert!(values["label"].2[0] >= 0.0 && values["probabilities"].at(0, 0) >= 0.0);
    assert_eq!(values["label"].2[1], -1.0);
    assert!(values["probabilities"].at(1, 0).is_nan());
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let folder = folder();
    let path = folder.path();
    simulate(path, "run", &["data.source=breast-cancer", "model.kind=softmax"]);
    within(path, &["export", "run", "--format", "onnx"]).success();
    assert!(path.join("run/model-mean.onnx").exists());
    let refused = |arguments: &[&str], words: &'static str| {
        let mut command = gradvine();
        command.current_dir(path).arg("export").args(arguments);
        command.assert().code(2).stderr(contains(words));
    };
    refused(&["run"], "--to <FORMAT>");
    refused(&["run", "--format", "pmml"], "[possible values: onnx, csv, tensorboard]");
    refused(&["no.safetensors", "--format", "onnx"], "no.safetensors: cannot be read");
    refused(
        &["run", "--to", "onnx", "--out", "no/model.onnx"],
        "error: no/model.onnx: cannot be written",
    );
    let model = "run/model-mean.safetensors";
    refused(&[model, "--to", "onnx", "--out", model], "is read by this command");
    fs::write(path.join("other.safetensors"), [2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']).unwrap();
    refused(&["other.safetensors", "--format", "onnx"], "not a model of this program");
}
