//! NumPy's archive of arrays (`numpy.savez`, `numpy.savez_compressed`): a ZIP file of NPY files.

use std::io::Read;

use flate2::bufread::DeflateDecoder;
use rawzip::{CompressionMethod, ZipArchive, ZipArchiveEntryWayfinder};

use super::npy;
use crate::{
    config::ConfigError,
    data::{
        DataError,
        dataset::Dataset,
        file::inflate,
        format::{Content, Format},
        options::Options,
    },
};

/// The format, by the first bytes of an archive with at least one file.
pub(crate) const FORMAT: Format = Format {
    name: "npz",
    file: "an NPZ file",
    endings: &[".npz"],
    magics: &[b"PK\x03\x04"],
    content: Content::Archive(dataset),
};

/// Names of arrays of features.
const FEATURES: [&str; 4] = ["x", "X", "features", "data"];
/// Names of arrays of targets.
const TARGETS: [&str; 3] = ["y", "labels", "target"];

/// Features and targets from the arrays of one file.
fn dataset(name: &str, bytes: &[u8], options: &Options) -> Result<Dataset, DataError> {
    let Arrays { features, targets } = read(bytes, options).map_err(|error| error.of(name))?;
    let place = |array: &Array| format!("{name}, array {}", array.name);
    let rows = npy::read(&features.bytes).map_err(|error| error.within(place(&features)))?;
    let Some(targets) = &targets else {
        return rows.table(name, options).map_err(|error| error.of(&place(&features)));
    };
    // It has named the array.
    let options = Options { target: None, ..options.clone() };
    let labels = npy::read(&targets.bytes).map_err(|error| error.within(place(targets)))?;
    rows.with_targets(name, &labels, &place(targets), &options)
        .map_err(|error| error.of(&place(&features)))
}

/// The arrays of a dataset, as NPY files.
#[derive(Debug, PartialEq)]
struct Arrays {
    pub features: Array,
    /// `None`: the targets are in columns of the features.
    pub targets: Option<Array>,
}

/// An array with its name.
#[derive(Debug, PartialEq)]
struct Array {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Reads the arrays of features and of targets.
///
/// # Errors
/// If the archive is damaged, it is not clear which arrays these are, or one inflates to more than
/// a plausible file or than the memory allows.
fn read(bytes: &[u8], options: &Options) -> Result<Arrays, DataError> {
    let members = members(bytes)?;
    let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    let (features, targets) = choose(&names, options.target.as_deref(), options.bare)?;
    let array = |name: &str| -> Result<Array, DataError> {
        let mut found = members.iter().filter(|member| member.name == name);
        let member = found.next().expect("the name is that of a member");
        if found.next().is_some() {
            let problem = "is in the file twice; arrays of different names are read";
            return Err(DataError::format(format!("array {name}"), problem));
        }
        let bytes = inflated(bytes, member)?;
        Ok(Array { name: name.to_string(), bytes })
    };
    Ok(Arrays { features: array(features)?, targets: targets.map(array).transpose()? })
}

/// An array in an archive.
struct Member {
    /// Its file's name without `.npy`.
    name: String,
    is_encrypted: bool,
    method: CompressionMethod,
    place: ZipArchiveEntryWayfinder,
}

/// The arrays of an archive, in the order of its directory.
fn members(bytes: &[u8]) -> Result<Vec<Member>, DataError> {
    let archive = ZipArchive::from_slice(bytes).map_err(damaged)?;
    let (mut entries, mut members) = (archive.entries(), Vec::new());
    while let Some(entry) = entries.next_entry().map_err(damaged)? {
        let path = entry.file_path();
        let path = String::from_utf8_lossy(path.as_ref());
        let Some(name) = path.strip_suffix(".npy").map(String::from) else { continue };
        let (method, place) = (entry.compression_method(), entry.wayfinder());
        let is_encrypted = entry.flags().is_encrypted();
        members.push(Member { name, is_encrypted, method, place });
    }
    Ok(members)
}

/// The names of the array of features and of that of targets, if there is one; `bare` rows need
/// none.
fn choose<'a>(
    names: &'a [String],
    target: Option<&str>,
    bare: bool,
) -> Result<(&'a str, Option<&'a str>), DataError> {
    let all = || names.join(", ");
    let among = |known: &[&str]| {
        let mut found = names.iter().filter(|name| known.contains(&name.as_str()));
        found.next().filter(|_| found.next().is_none()).map(String::as_str)
    };
    if let [only] = names
        && target.is_none_or(|target| target != only)
    {
        return Ok((only, None));
    }
    if bare
        && target.is_none()
        && !names.iter().any(|name| TARGETS.contains(&name.as_str()))
        && let Some(features) = among(&FEATURES)
    {
        return Ok((features, None));
    }
    let targets = match target {
        Some(target) => match names.iter().find(|name| *name == target) {
            Some(name) if names.len() > 1 => name.as_str(),
            Some(_) => {
                let problem = "the only array of the file: another one, of features, is needed";
                return Err(ConfigError::new("data.target", target, problem).into());
            }
            None => {
                let problem = format!("no such array: the file has {}", all());
                return Err(ConfigError::new("data.target", target, problem).into());
            }
        },
        None => among(&TARGETS).ok_or_else(|| match names {
            [] => DataError::structure("arrays", "the file has none: expected features and labels"),
            _ => unclear("labels", &TARGETS, &all(), "; or name it as data.target"),
        })?,
    };
    let mut others = names.iter().filter(|name| *name != targets);
    let only = others.next().filter(|_| others.next().is_none()).map(String::as_str);
    let features = only.or_else(|| among(&FEATURES)).filter(|name| *name != targets);
    features
        .map(|features| (features, Some(targets)))
        .ok_or_else(|| unclear("features", &FEATURES, &all(), ""))
}

/// It is not clear which array is meant.
fn unclear(what: &str, known: &[&str], all: &str, more: &str) -> DataError {
    let problem = format!(
        "it is not clear which array holds the {what}: the file has {all}; expected one of the \
         name {}{more}",
        known.join(" or ")
    );
    DataError::structure("arrays", problem)
}

/// The bytes of an array in an archive, which must have the length and the CRC that it says.
fn inflated(archive: &[u8], member: &Member) -> Result<Vec<u8>, DataError> {
    let Member { name, is_encrypted, method, place } = member;
    if *is_encrypted {
        let problem = "is encrypted; arrays without a password are read";
        return Err(DataError::format(format!("array {name}"), problem));
    }
    let archive = ZipArchive::from_slice(archive).map_err(damaged)?;
    let entry = archive.get_entry(*place).map_err(damaged)?;
    let compressed = entry.data().len() as u64;
    let reader: Box<dyn Read> = match *method {
        CompressionMethod::STORE => Box::new(entry.verifying_reader(entry.data())),
        CompressionMethod::DEFLATE => {
            Box::new(entry.verifying_reader(DeflateDecoder::new(entry.data())))
        }
        other => {
            let problem = format!(
                "is compressed by method {}; those of numpy are read (0, stored, and 8, deflated)",
                other.as_u16()
            );
            return Err(DataError::format(format!("array {name}"), problem));
        }
    };
    inflate::member(reader, npy::length, compressed).map_err(|error| match error {
        DataError::Unreadable(error) => {
            DataError::format(format!("array {name}, cannot be read"), error.to_string())
        }
        DataError::Limit { place, found, most, problem } => {
            DataError::Limit { place: format!("array {name}, {place}"), found, most, problem }
        }
        error => error,
    })
}

fn damaged(error: rawzip::Error) -> DataError {
    DataError::format("archive", format!("is not a ZIP file that can be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str], target: Option<&str>) -> Result<(String, Option<String>), String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        choose(&names, target, false)
            .map(|(features, targets)| (features.into(), targets.map(String::from)))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn arrays_are_chosen_by_their_names() {
        let pair = |features: &str, targets: &str| Ok((features.into(), Some(targets.into())));
        assert_eq!(chosen(&["x", "y"], None), pair("x", "y"));
        assert_eq!(chosen(&["labels", "images"], None), pair("images", "labels"));
        assert_eq!(chosen(&["when", "target", "X"], None), pair("X", "target"));
        assert_eq!(chosen(&["x", "kind"], Some("kind")), pair("x", "kind"));
        assert_eq!(chosen(&["kind", "y", "data"], Some("kind")), pair("data", "kind"));
        assert_eq!(chosen(&["y", "x"], Some("x")), pair("y", "x"));
        // One array has its targets in a column.
        assert_eq!(chosen(&["table"], None), Ok(("table".into(), None)));
        assert_eq!(chosen(&["table"], Some("0")), Ok(("table".into(), None)));
    }

    #[test]
    fn rows_for_prediction_need_no_labels() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (alone, both) = (names(&["ids", "x"]), names(&["x", "y"]));
        assert_eq!(choose(&alone, None, true).unwrap(), ("x", None));
        assert!(choose(&alone, None, false).is_err());
        assert_eq!(choose(&both, None, true).unwrap(), ("x", Some("y")));
        assert_eq!(choose(&alone, Some("ids"), true).unwrap(), ("x", Some("ids")));
        assert!(choose(&names(&["ids", "rows"]), None, true).is_err());
    }

    #[test]
    fn a_choice_that_is_not_clear_is_refused_with_the_arrays() {
        for (names, target, problem) in [
            (
                &["a", "b"][..],
                None,
                "arrays: it is not clear which array holds the labels: the file has a, b; expected \
                 one of the name y or labels or target; or name it as data.target",
            ),
            (
                &["a", "b", "y"],
                None,
                "arrays: it is not clear which array holds the features: the file has a, b, y; \
                 expected one of the name x or X or features or data",
            ),
            (&["x", "X", "y"], None, "arrays: it is not clear which array holds the features"),
            (&["x", "y", "labels"], None, "arrays: it is not clear which array holds the labels"),
            (&["x", "y"], Some("z"), "data.target = z: no such array: the file has x, y"),
            (&["y"], Some("y"), "data.target = y: the only array of the file"),
            (&[], None, "arrays: the file has none: expected features and labels"),
        ] {
            let error = chosen(names, target).unwrap_err();
            assert!(error.starts_with(problem), "{names:?}: {error}");
        }
    }
}
