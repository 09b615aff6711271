//! What can be wrong with a model.

use std::io;

use crate::{
    config::{ConfigError, Fault, typed_error},
    data::DataError,
};

/// What is wrong with a model, its file, or a key that describes it. `value` is the wrong value;
/// `problem` says what is wrong with it and what is accepted.
///
/// It prints as a [`ConfigError`] and converts to one, whose [`cause`](ConfigError::cause) it is.
///
/// ```
/// use gradvine::learn::{ModelError, SavedModel};
///
/// let error = SavedModel::from_bytes(b"no model").unwrap_err();
/// assert!(matches!(error, ModelError::Format { part: "safetensors", .. }));
/// let error = SavedModel::read("lost.safetensors".as_ref()).unwrap_err();
/// let ModelError::Unreadable(cause) = error.kind() else { panic!("{error}") };
/// assert_eq!(cause.kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Debug)]
#[allow(missing_docs, reason = "a variant's text explains its fields")]
#[non_exhaustive]
pub enum ModelError {
    /// A key of a configuration, or an argument.
    Config(ConfigError),
    /// An error of the data, of the preprocessing or of the schema, or a file that cannot be
    /// written.
    Data(Box<DataError>),
    /// Something in a file, which is named by its path.
    InFile { file: Box<str>, error: Box<ModelError> },
    /// A file cannot be read.
    Unreadable(io::Error),
    /// A file has more bytes than are accepted.
    TooLarge { bytes: u64, most: u64 },
    /// A file is damaged or in another format (`safetensors`), or its `metadata` has no room.
    Format { part: &'static str, problem: String },
    /// A key of a file's metadata is missing (`value` is then `None`), or its value is wrong.
    Metadata { key: String, value: Option<String>, problem: String },
    /// A tensor is missing, or has another type or shape.
    Tensor { name: String, found: Option<String>, needed: String },
    /// The number of parameters (`x` or `model`), `tensors`, `columns`, `classes` or `fills`, or of
    /// the features of a `schema`.
    Count { of: &'static str, found: usize, needed: usize, problem: String },
    /// This number of the tensors, counted from 0, is not finite.
    NonFinite { number: usize, value: f32 },
    /// The output for a row is not a finite number.
    Diverged { row: usize, output: f32 },
}

typed_error!(ModelError);

impl From<DataError> for ModelError {
    fn from(error: DataError) -> ModelError {
        match error {
            DataError::Config(error) => error.into(),
            DataError::InFile { file, error } => {
                ModelError::InFile { file, error: Box::new((*error).into()) }
            }
            error => ModelError::Data(Box::new(error)),
        }
    }
}

impl ModelError {
    /// Checks that there are as many as needed.
    pub(super) fn same(
        of: &'static str,
        found: usize,
        needed: usize,
        problem: impl FnOnce() -> String,
    ) -> Result<(), Self> {
        if found == needed {
            return Ok(());
        }
        Err(Self::Count { of, found, needed, problem: problem() })
    }

    fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Unreadable(error) => Some(error),
            Self::Data(error) => error.io_error(),
            Self::InFile { error, .. } => error.io_error(),
            _ => None,
        }
    }

    /// The error in the form of keys, which it prints as.
    fn details(&self) -> ConfigError {
        match self {
            Self::Config(error) => error.clone(),
            Self::Data(error) => error.details(),
            Self::InFile { file, error } => error.details().within(file),
            Self::Unreadable(error) => {
                ConfigError::at("cannot be read", error.to_string()).with_fault(Fault::Unreadable)
            }
            Self::TooLarge { bytes, most } => {
                ConfigError::new("size", bytes, format!("at most {most} bytes are accepted"))
            }
            Self::Format { part, problem } => ConfigError::at(*part, problem),
            Self::Metadata { key, value, problem } => {
                ConfigError::of(format!("metadata {key}"), value.as_ref(), problem)
            }
            Self::Tensor { name, found, needed } => {
                let missing = found.is_none();
                let problem = if missing { "missing" } else { &format!("{needed} is needed") };
                ConfigError::of(format!("tensor {name}"), found.as_ref(), problem)
            }
            Self::Count { of, problem, .. } => ConfigError::at(*of, problem),
            Self::NonFinite { number, value } => {
                let place = format!("number {number} of the tensors");
                ConfigError::new(place, value, "a finite number is needed")
            }
            Self::Diverged { row, output } => {
                let value = format!("output {output} for row {row}");
                let problem = "is not a finite number: the training diverged";
                ConfigError::new("the model", value, problem)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::{SavedModel, Tensor, read_tensors, write_tensors};

    #[test]
    fn fields_have_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let tensors = |extent| [Tensor::new("w", &[extent])];
        write_tensors(&path, &tensors(2), &[1.0, 2.0], &Default::default()).unwrap();
        let error = read_tensors(&path, &tensors(3)).unwrap_err();
        let ModelError::Tensor { name, found, needed } = error.kind() else { panic!("{error}") };
        assert_eq!((&name[..], found.as_deref(), &needed[..]), ("w", Some("[2]"), "[3]"));

        let error = ConfigError::from(SavedModel::read(&path).unwrap_err());
        assert!(error.to_string().contains(": metadata gradvine.format: missing"), "{error}");
        let source = error.cause::<ModelError>();
        let Some(ModelError::Metadata { key, value: None, .. }) = source.map(ModelError::kind)
        else {
            panic!("{source:?}")
        };
        assert_eq!(key, "gradvine.format");
    }
}
