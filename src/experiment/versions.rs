//! The versions of a signed run of sites, of which a run can be a stage.

use serde::{Deserialize, Serialize};

/// A version of the signed run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunVersion {
    /// Its number, from 1.
    pub number: u64,
    /// What it changes, in one sentence.
    pub change: String,
    /// Its digest, which names all versions before it, too.
    pub digest: String,
}
