//! Signatures of sites: which key signed which words.

use data_encoding::HEXLOWER;
use gradvine::net::{Keypair, PeerId, identity::verify};
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
