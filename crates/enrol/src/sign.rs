//! Signatures of sites: which key signed which words.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use gradvine::net::{Keypair, PeerId, identity::verify};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The kinds of statements: a signature of one kind is none of another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    /// A version of the run, which the signer accepts.
    Accepts,
    /// A version of the run, which the signer declines.
    Declines,
    /// The keys of a site that joins: by its own key, and by that of its ticket.
    Joins,
    /// The same, which the member that has invited it approves.
    Admits,
    /// The addresses of the signer.
    Addresses,
    /// The end of a stage at the signer.
    Ends,
    /// One of two versions with one number, with which the signer goes on.
    Settles,
}

fn words(about: About, bytes: &[u8]) -> Vec<u8> {
    [format!("gradvine {about:?}\0").as_bytes(), bytes].concat()
}

/// The signature of these bytes, in hexadecimal digits.
pub(crate) fn sign(key: &Keypair, about: About, bytes: &[u8]) -> String {
    HEXLOWER.encode(&key.sign(&words(about, bytes)).expect("an Ed25519 key signs"))
}

/// Whether the owner of this PeerId has signed these bytes.
pub(crate) fn is_signed(peer: &str, about: About, bytes: &[u8], signature: &str) -> bool {
    let Ok(signature) = HEXLOWER.decode(signature.as_bytes()) else { return false };
    peer.parse::<PeerId>().is_ok_and(|peer| verify(&peer, &words(about, bytes), &signature))
}

/// The SHA-256 of these bytes, in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// A short name of these bytes, of a kind.
pub(crate) fn id(kind: &str, bytes: &[u8]) -> String {
    let mut text = digest(&[kind.as_bytes(), b"\0", bytes].concat());
    text.truncate(16);
    text
}

/// That a member accepts a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accept {
    /// The proposals for the same version that it had accepted before. It shows that they were
    /// declined, so that nobody takes it for one that signs two versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instead_of: Vec<Declined>,
    /// Signed by the member.
    pub signature: String,
}

/// A proposal that was declined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declined {
    /// The digest of the proposed version.
    pub version: String,
    /// The members that have declined it.
    pub declines: BTreeMap<String, Refusal>,
}

/// Why a member declines a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// For people.
    pub reason: String,
    /// Signed by the member.
    pub signature: String,
}

impl Accept {
    fn words(version: &str, instead_of: &[Declined]) -> Vec<u8> {
        serde_json::to_vec(&(version, instead_of)).expect("texts serialise")
    }

    /// Signed with the key of the member, for the version with this digest.
    pub(crate) fn new(key: &Keypair, version: &str, instead_of: Vec<Declined>) -> Accept {
        let signature = sign(key, About::Accepts, &Accept::words(version, &instead_of));
        Accept { instead_of, signature }
    }

    /// Whether the owner of this PeerId has signed it.
    pub(crate) fn is_by(&self, peer: &str, version: &str) -> bool {
        let words = Accept::words(version, &self.instead_of);
        is_signed(peer, About::Accepts, &words, &self.signature)
    }
}

impl Refusal {
    fn words(version: &str, reason: &str) -> Vec<u8> {
        [version.as_bytes(), b"\0", reason.as_bytes()].concat()
    }

    /// Signed with the key of the member, for the version with this digest.
    pub(crate) fn new(key: &Keypair, version: &str, reason: String) -> Refusal {
        let signature = sign(key, About::Declines, &Refusal::words(version, &reason));
        Refusal { reason, signature }
    }

    /// Whether the owner of this PeerId has signed it.
    pub(crate) fn is_by(&self, peer: &str, version: &str) -> bool {
        let words = Refusal::words(version, &self.reason);
        is_signed(peer, About::Declines, &words, &self.signature)
    }
}
