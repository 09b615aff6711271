//! What can be wrong with a topology.

use std::io;

use super::{
    MatrixError,
    family::{self, Families},
};
use crate::config::{ConfigError, Fault, typed_error};

/// What is wrong with a topology, its file, or a key that describes it. `value` is the wrong value;
/// `problem` says what is wrong with it and what is accepted.
///
/// It prints as a [`ConfigError`] and converts to one, whose [`cause`](ConfigError::cause) it is.
///
/// ```
/// use gradvine::mixing::{FileFormat, Topology, TopologyError};
///
/// let error = Topology::from_text("a,b\nc,c", FileFormat::Csv, "net.csv").unwrap_err();
/// assert_eq!(error.file(), Some("net.csv"));
/// let TopologyError::Link { line, ends: Some(ends), .. } = error.kind() else {
///     panic!("{error}")
/// };
/// assert_eq!((*line, ends), (Some(2), &["c".to_string(), "c".to_string()]));
/// ```
#[derive(Debug)]
#[allow(missing_docs, reason = "a variant's text explains its fields")]
#[non_exhaustive]
pub enum TopologyError {
    /// A key of a configuration or of a TOML file, or an argument.
    Config(ConfigError),
    /// Something in a file, which is named by its path or by what stands for it.
    InFile { file: Box<str>, error: Box<TopologyError> },
    /// A file cannot be read; if it was `opened`, not as text.
    Unreadable { opened: bool, error: io::Error },
    /// A file cannot be written.
    Unwritable(io::Error),
    /// The syntax of a line, which is counted from 1, and of an element in it; or, without a line,
    /// the format of the whole file.
    Syntax { line: Option<u32>, element: Option<String>, value: Option<String>, problem: String },
    /// The number of `nodes` or `links`, or the size of a `file`; `None` if it is not known.
    Size { of: &'static str, found: Option<usize>, problem: String },
    /// None of the `families` has this name; `line` is that of a TOML file.
    UnknownFamily { line: Option<u32>, name: String, families: Families },
    /// An argument of a family; `key` is `family` if it is their number, `topology` of a spec.
    Family { key: &'static str, value: Option<String>, problem: String },
    /// The end of a link is no node; `value` is its name in quotes.
    UnknownNode { line: u32, key: &'static str, value: String, problem: String },
    /// The `name`, `peer` or `addresses` of a node, which is named by its number if its name is
    /// wrong.
    Node { node: String, key: &'static str, value: String, problem: String },
    /// A link with its line, its ends and the key of a value, as far as they are known.
    Link {
        line: Option<u32>,
        ends: Option<[String; 2]>,
        key: Option<&'static str>,
        value: Option<String>,
        problem: String,
    },
    /// The matrix of the weights. The names are those of the nodes in the error, in its order.
    Matrix { error: MatrixError, names: Vec<String> },
}

typed_error!(TopologyError);

impl TopologyError {
    /// The syntax of a line, or the format of a file.
    pub(super) fn syntax(line: impl Into<Option<u32>>, problem: impl Into<String>) -> Self {
        let (line, problem) = (line.into(), problem.into());
        Self::Syntax { line, element: None, value: None, problem }
    }

    /// More nodes or links than a topology may have.
    pub(super) fn too_many(of: &'static str, most: usize) -> Self {
        Self::Size { of, found: None, problem: format!("there are more than {most} {of}") }
    }

    /// What it prints as where the user has written a spec such as `ring:8`: a wrong family is a
    /// wrong `spec` at this `place`.
    ///
    /// ```
    /// use gradvine::mixing::Topology;
    ///
    /// let error = Topology::parse("torus:3", 0).unwrap_err().of_spec("--topology", "torus:3");
    /// assert!(error.to_string().starts_with("--topology = \"torus:3\": torus takes rows"));
    /// ```
    pub fn of_spec(self, place: &str, spec: &str) -> ConfigError {
        let is_of_spec = matches!(self, Self::Family { .. } | Self::UnknownFamily { .. });
        let error = ConfigError::from(self);
        if is_of_spec { error.with_value(format!("\"{spec}\"")).with_place(place) } else { error }
    }

    fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Unreadable { error, .. } | Self::Unwritable(error) => Some(error),
            Self::InFile { error, .. } => error.io_error(),
            _ => None,
        }
    }

    /// The error in the form of keys, which it prints as.
    fn details(&self) -> ConfigError {
        let numbered = |line: &Option<u32>| line.map(|line| format!("line {line}"));
        match self {
            Self::Config(error) => error.clone(),
            Self::InFile { file, error } => error.details().within(file),
            Self::Unreadable { opened, error } => {
                let how = if *opened { " as text" } else { "" };
                let error = ConfigError::at("file", format!("cannot be read{how}: {error}"));
                error.with_fault(Fault::Unreadable)
            }
            Self::Unwritable(error) => {
                ConfigError::at("file", format!("cannot be written: {error}"))
            }
            Self::Syntax { line, element, value, problem } => {
                let parts = [numbered(line).or(Some("file".into())), element.clone()];
                let place = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
                ConfigError::of(place, value.as_ref(), problem)
            }
            Self::Size { of, found, problem } => ConfigError::of(*of, *found, problem),
            Self::UnknownFamily { line, name, families } => {
                unknown_family(numbered(line), name, families)
            }
            Self::Family { key, value, problem } => ConfigError::of(*key, value.as_ref(), problem),
            Self::UnknownNode { line, key, value, problem } => {
                ConfigError::new(format!("line {line}, {key}"), value, problem)
            }
            Self::Node { node, key, value, problem } => {
                ConfigError::new(format!("node {node}: {key}"), value, problem)
            }
            Self::Link { line, ends, key, value, problem } => {
                let link = ends.as_ref().map(|[a, b]| format!("link {a} - {b}"));
                let parts: Vec<String> = numbered(line).into_iter().chain(link).collect();
                let place = if parts.is_empty() { "link".into() } else { parts.join(", ") };
                let key = key.map(|key| format!(": {key}")).unwrap_or_default();
                ConfigError::of(place + &key, value.as_ref(), problem)
            }
            Self::Matrix { error, names } => of_matrix(error, names),
        }
    }
}

fn unknown_family(line: Option<String>, name: &str, families: Families) -> ConfigError {
    let names = families.names();
    let (place, problem) = match line {
        Some(line) => {
            let names = names.join(", ");
            (line + ", family", format!("one of {names}, {}", family::CUSTOM))
        }
        None => {
            let all = families.iter().map(family::example);
            let all = all.collect::<Vec<_>>().join(", ");
            ("topology".into(), format!("a file (.toml, .graphml, .dot, .csv) or one of {all}"))
        }
    };
    ConfigError::new(place, format!("\"{name}\""), format!("expected {problem}"))
        .with_accepted(names)
}

/// The error of a matrix with the names of its nodes.
fn of_matrix(error: &MatrixError, names: &[String]) -> ConfigError {
    match (error, names) {
        (MatrixError::Weight { weight, .. }, [a, b]) => ConfigError::new(
            format!("link {a} - {b}: weight"),
            weight,
            "expected a finite number above 0 (below 0 only with allow_negative = true; a link \
             that carries nothing is left out)",
        ),
        (MatrixError::Own { own, .. }, [node]) => ConfigError::new(
            format!("node {node}: own weight"),
            format!("{own:.9}"),
            "its links weigh more than 1 together: make them lighter, or set allow_negative = true",
        ),
        (MatrixError::Disconnected { .. }, [a, b]) => ConfigError::at(
            "links",
            format!(
                "no path joins {a} and {b}: rho = 1, and they would never agree; add a link \
                 between their parts"
            ),
        ),
        (MatrixError::NoGap { rho, eigenvalue }, _) => ConfigError::new(
            "rho",
            rho,
            format!(
                "disagreement would never shrink: W has the eigenvalue {eigenvalue} beside its 1; \
                 use weights = \"metropolis\" or \"lazy-metropolis\""
            ),
        ),
        _ => ConfigError::at("links", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::mixing::{FileFormat, Topology};

    #[test]
    fn fields_have_what_is_wrong() {
        let of = |text: &str, format| Topology::from_text(text, format, "net").unwrap_err();
        let error =
            of("family = 'custom'\nnodes = 2\n[[link]]\nbetween = [0, 7]", FileFormat::Toml);
        let TopologyError::UnknownNode { line, value, .. } = error.kind() else {
            panic!("{error}")
        };
        assert_eq!((*line, &value[..]), (3, "\"7\""));
        let error = of("# nodes,a,b,c\na,b", FileFormat::Csv);
        let TopologyError::Matrix { error: MatrixError::Disconnected { .. }, names } = error.kind()
        else {
            panic!("{error}")
        };
        assert_eq!(names[..], ["a", "c"]);
    }

    #[test]
    fn the_error_of_a_key_keeps_the_typed_one() {
        let text = "family = 'ring'\nnodes = 0";
        let error = Topology::from_text(text, FileFormat::Toml, "net").map(|_| ()).unwrap_err();
        let error = ConfigError::from(error);
        assert_eq!(error.to_string(), "net: line 2, nodes = 0: ring: expected 1 or more");
        let source = error.cause::<TopologyError>();
        assert!(matches!(source, Some(TopologyError::Family { key: "nodes", .. })), "{source:?}");
    }

    #[test]
    fn the_error_of_the_system_is_the_source() {
        let error = Topology::load("lost.csv".as_ref()).unwrap_err();
        let of = |error: &dyn Error| Some(error.source()?.downcast_ref::<io::Error>()?.kind());
        assert_eq!(of(&error), Some(io::ErrorKind::NotFound), "{error:?}");
        assert_eq!(of(&ConfigError::from(error)), Some(io::ErrorKind::NotFound));
    }

    #[test]
    fn weights_that_are_too_large_to_compute_with_are_refused() {
        for weight in ["1e100", "1e155", "1e300", "1.7e308"] {
            let mut text =
                "family = 'custom'\nnodes = 5\nweights = 'given'\nallow_negative = true\n"
                    .to_string();
            for i in 0..5 {
                let j = (i + 1) % 5;
                text += &format!("[[link]]\nbetween = [{i}, {j}]\nweight = {weight}\n");
            }
            let error =
                Topology::from_text(&text, FileFormat::Toml, "net").unwrap_err().to_string();
            assert!(error.starts_with("net: rho = "), "{error}");
        }
    }
}
