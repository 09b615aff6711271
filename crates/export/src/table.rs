//! Evaluations as one table: a row per node and evaluation.
//!
//! Lines end in CR LF, and cells are quoted where they have to be (RFC 4180). Numbers have as many
//! digits as give the same bits again. A cell without a value is empty.

use csv::{Terminator, WriterBuilder};

use crate::curves::Curves;

/// The columns that every table has, with the names of `metrics.jsonl`; the name of the node has
/// the place of its number.
const COLUMNS: [&str; 11] = [
    "round",
    "node",
    "time_s",
    "computing_s",
    "train_loss",
    "test_loss",
    "test_accuracy",
    "consensus",
    "bytes_payload",
    "bytes_wire",
    "bytes_dense",
];

/// The text of a table. After the columns of all runs, each measure of the program has one,
/// `measures.NAME`, in ascending order.
pub(crate) fn write(curves: &Curves) -> Vec<u8> {
    let measures = curves.measures();
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
    let own = measures.iter().map(|name| format!("measures.{name}"));
    let mut rows = vec![COLUMNS.map(String::from).into_iter().chain(own).collect::<Vec<_>>()];
    rows.extend(curves.metrics.iter().map(|metric| {
        let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let cells = [
            metric.round.to_string(),
            curves.name(metric.node).to_string(),
            metric.time_s.to_string(),
            metric.computing_s.to_string(),
            number(metric.train_loss),
            number(metric.test_loss),
            number(metric.test_accuracy),
            number(metric.consensus),
            metric.bytes_payload.to_string(),
            metric.bytes_wire.to_string(),
            metric.bytes_dense.to_string(),
        ];
        let own = measures.iter().map(|name| number(metric.measures.get(*name).copied()));
        cells.into_iter().chain(own).collect()
    }));
    for row in rows {
        writer.write_record(row).expect("a Vec takes any bytes, and all rows are as long");
    }
    writer.into_inner().expect("a Vec takes any bytes")
}
