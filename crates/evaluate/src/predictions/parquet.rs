//! Predictions as a Parquet file: the columns of the CSV table, one row group.

use std::sync::Arc;

use gradvine::learn::most_probable;
use parquet::{
    basic::{Compression, LogicalType, Repetition, Type as Physical},
    data_type::{ByteArray, ByteArrayType, FloatType, Int64Type},
    errors::{ParquetError, Result},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::types::Type,
};

use super::Predictions;

/// A column with its values.
enum Column {
    Texts(Vec<ByteArray>),
    Numbers(Vec<f32>),
    Rows(Vec<i64>),
}

/// The bytes of the file.
pub(super) fn to_bytes(table: &Predictions) -> Result<Vec<u8>> {
    let columns = columns(table)?;
    let fields = columns.iter().map(|(name, column)| field(name, column).map(Arc::new));
    let fields = fields.collect::<Result<_>>()?;
    let schema = Type::group_type_builder("predictions").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for (_, column) in &columns {
        let Some(mut writer) = group.next_column()? else {
            return Err(ParquetError::General("a column is missing".into()));
        };
        match column {
            Column::Texts(texts) => {
                writer.typed::<ByteArrayType>().write_batch(texts, None, None)?;
            }
            Column::Numbers(numbers) => {
                writer.typed::<FloatType>().write_batch(numbers, None, None)?;
            }
            Column::Rows(rows) => {
                writer.typed::<Int64Type>().write_batch(rows, None, None)?;
            }
        }
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

fn columns(table: &Predictions) -> Result<Vec<(String, Column)>> {
    let text = |text: &str| ByteArray::from(text);
    let mut columns = vec![match &table.identifiers {
        Some(all) => {
            let texts = all.texts.iter().map(|one| text(one)).collect();
            (table.first().to_string(), Column::Texts(texts))
        }
        None => {
            let rows = i64::try_from(table.values.nrows())
                .map_err(|_| ParquetError::General("too many rows".into()))?;
            (table.first().to_string(), Column::Rows((0..rows).collect()))
        }
    }];
    if table.are_classes {
        let rows = table.values.outer_iter();
        let classes = rows.map(|row| text(&table.names[most_probable(row).0])).collect();
        columns.push(("prediction".into(), Column::Texts(classes)));
    }
    for (name, values) in table.names.iter().zip(table.values.columns()) {
        columns.push((table.head(name), Column::Numbers(values.to_vec())));
    }
    Ok(columns)
}

fn field(name: &str, column: &Column) -> Result<Type> {
    let (physical, logical) = match column {
        Column::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Column::Numbers(_) => (Physical::FLOAT, None),
        Column::Rows(_) => (Physical::INT64, None),
    };
    Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(logical)
        .build()
}

#[cfg(test)]
mod tests {
    use gradvine::data::{Identifiers, Options, Target, Task, parse};
    use ndarray::array;

    use super::*;

    #[test]
    fn a_file_of_predictions_is_read_back() {
        gradvine_tables::register();
        let table = Predictions {
            identifiers: Some(Identifiers {
                name: Some("patient".into()),
                texts: vec!["a, b".into(), "c".into()],
            }),
            are_classes: true,
            are_named: true,
            names: vec!["healthy".into(), "sick".into()],
            values: array![[0.25f32, 0.75], [0.875, 0.125]],
        };
        let bytes = to_bytes(&table).unwrap();
        let options = Options {
            target: Some("prediction".into()),
            class_names: Some(table.names.clone()),
            identifier: Some("patient".into()),
            ..Options::default()
        };
        let back = parse("predictions.parquet", &bytes, None, &options).unwrap();
        assert_eq!(back.features, table.values);
        assert_eq!(back.columns.unwrap().features, ["p(healthy)", "p(sick)"]);
        let Target::Classes { labels, .. } = back.target else { panic!("classes") };
        assert_eq!(labels, [1, 0]);
        assert_eq!(back.identifiers, table.identifiers);

        let numbers = Predictions {
            identifiers: None,
            are_classes: false,
            names: vec!["price".into(), "rent".into()],
            ..table
        };
        let bytes = to_bytes(&numbers).unwrap();
        let options = Options {
            target: Some("price,rent".into()),
            task: Task::Regression,
            ..Options::default()
        };
        let back = parse("predictions.parquet", &bytes, None, &options).unwrap();
        assert_eq!(back.target, Target::Values(numbers.values));
        assert_eq!(
            (back.columns.unwrap().features, back.features),
            (vec!["row".into()], array![[0.0], [1.0]])
        );
    }
}
