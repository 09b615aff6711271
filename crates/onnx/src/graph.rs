//! A graph under construction: operators in the order in which they run.

use crate::proto::{
    AttributeProto, DOUBLE, Dimension, FLOAT, GraphProto, INT, INT64, NodeProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// Operators and constants; every value has a name.
#[derive(Default)]
pub(crate) struct Graph(GraphProto);

impl Graph {
    /// Adds an operator with one output, and returns the output's name.
    pub(crate) fn apply(
        &mut self,
        operator: &str,
        inputs: &[&str],
        output: &str,
        attributes: &[(&str, i64)],
    ) -> String {
        let attribute = |&(name, value): &(&str, i64)| AttributeProto {
            name: Some(name.into()),
            i: Some(value),
            r#type: Some(INT),
        };
        self.0.node.push(NodeProto {
            input: inputs.iter().map(ToString::to_string).collect(),
            output: vec![output.into()],
            name: Some(format!("{operator} {output}")),
            op_type: Some(operator.into()),
            attribute: attributes.iter().map(attribute).collect(),
        });
        output.into()
    }

    /// Adds a constant of `f32`, row-major.
    pub(crate) fn floats(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name, shape, FLOAT, bytes);
    }

    /// Adds a constant vector of `f64`.
    pub(crate) fn doubles(&mut self, name: &str, values: &[f64]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name, &[values.len()], DOUBLE, bytes);
    }

    /// Adds a constant vector of whole numbers.
    pub(crate) fn wholes(&mut self, name: &str, values: &[i64]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name, &[values.len()], INT64, bytes);
    }

    fn constant(&mut self, name: &str, shape: &[usize], data_type: i32, bytes: Vec<u8>) {
        self.0.initializer.push(TensorProto {
            dims: shape.iter().map(|&extent| extent as i64).collect(),
            data_type: Some(data_type),
            name: Some(name.into()),
            raw_data: Some(bytes),
        });
    }

    /// Declares an input of the graph: rows of this width.
    pub(crate) fn input(&mut self, name: &str, element: i32, width: usize, about: &str) {
        self.0.input.push(rows_of(name, element, Some(width), about));
    }

    /// Declares an output of the graph: rows of this width, or one number a row.
    pub(crate) fn output(&mut self, name: &str, element: i32, width: Option<usize>, about: &str) {
        self.0.output.push(rows_of(name, element, width, about));
    }

    /// The graph, under this name.
    pub(crate) fn finish(self, name: &str) -> GraphProto {
        GraphProto { name: Some(name.into()), ..self.0 }
    }
}

fn rows_of(name: &str, element: i32, width: Option<usize>, about: &str) -> ValueInfoProto {
    let rows = Dimension { dim_value: None, dim_param: Some("rows".into()) };
    let width = width.map(|width| Dimension { dim_value: Some(width as i64), dim_param: None });
    let shape = TensorShapeProto { dim: [rows].into_iter().chain(width).collect() };
    let tensor = TensorTypeProto { elem_type: Some(element), shape: Some(shape) };
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto { tensor_type: Some(tensor) }),
        doc_string: Some(about.into()),
    }
}
