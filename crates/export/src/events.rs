//! TensorBoard's event files: the messages that scalars need, with the field numbers of
//! `event.proto` and `summary.proto`.
//!
//! A scalar is a `simple_value`, an `f32`, which every reader of such files accepts.

use gradvine::run::Metric;
use prost::Message;

use crate::{curves::Curves, records};

/// The name of a node's event file. TensorBoard looks for `tfevents` in it; the number is usually
/// the time at which a program began to write, and here always the same, so that a second export
/// takes the place of the first.
pub(crate) const FILE: &str = "events.out.tfevents.0000000000.gradvine";

/// Which version of the format a file has.
const VERSION: &str = "brain.Event:2";

#[derive(Clone, PartialEq, Message)]
struct Event {
    /// In seconds since 1970.
    #[prost(double, optional, tag = "1")]
    wall_time: Option<f64>,
    #[prost(int64, optional, tag = "2")]
    step: Option<i64>,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

/// `Summary.Value`.
#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, optional, tag = "1")]
    tag: Option<String>,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// The event file of a node.
pub(crate) fn write(curves: &Curves, node: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let version = Event {
        wall_time: Some(curves.start_s),
        file_version: Some(VERSION.into()),
        ..Event::default()
    };
    records::append(&mut file, &version.encode_to_vec());
    for metric in curves.metrics.iter().filter(|metric| metric.node == node) {
        let event = Event {
            wall_time: Some(curves.start_s + metric.time_s),
            step: Some(i64::try_from(metric.round).unwrap_or(i64::MAX)),
            summary: Some(Summary { value: values(metric) }),
            file_version: None,
        };
        records::append(&mut file, &event.encode_to_vec());
    }
    file
}

/// The values of an evaluation that are known.
fn values(metric: &Metric) -> Vec<Value> {
    let known = [
        ("train/loss", metric.train_loss),
        ("test/loss", metric.test_loss),
        ("test/accuracy", metric.test_accuracy),
        ("consensus", metric.consensus),
        ("bytes/payload", Some(metric.bytes_payload as f64)),
        ("bytes/wire", Some(metric.bytes_wire as f64)),
        ("bytes/dense", Some(metric.bytes_dense as f64)),
        ("time/computing_s", Some(metric.computing_s)),
    ];
    let known = known.into_iter().filter_map(|(tag, value)| Some((tag.to_string(), value?)));
    let own = metric.measures.iter().map(|(name, value)| (format!("measures/{name}"), *value));
    let value = |(tag, value)| Value { tag: Some(tag), simple_value: Some(value as f32) };
    known.chain(own).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_is_that_of_tensorflow() {
        let version =
            Event { wall_time: Some(0.0), file_version: Some(VERSION.into()), ..Event::default() };
        let mut bytes = vec![9, 0, 0, 0, 0, 0, 0, 0, 0, 26, 13];
        bytes.extend_from_slice(b"brain.Event:2");
        assert_eq!(version.encode_to_vec(), bytes);
    }
}
