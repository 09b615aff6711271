//! Key files: a node's Ed25519 key, which decides its PeerId. Readable by its owner only; a file
//! that others can read is refused.

use std::{fs, io::Write, path::Path};

use libp2p::{
    PeerId,
    identity::{Keypair, PublicKey},
};

use crate::{
    config::{ConfigError, Fault},
    inputs,
    net::link::programs,
};

/// The maximum length of a key file, in bytes.
const LONGEST: u64 = 4096;

/// Makes a new key and its file, which must not exist yet.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn create(path: &Path) -> Result<Keypair, ConfigError> {
    let key = Keypair::generate_ed25519();
    write(&key, path)?;
    Ok(key)
}

/// Writes a key into a new file that only its owner can read.
///
/// # Errors
/// If the file exists or cannot be written.
pub(crate) fn write(key: &Keypair, path: &Path) -> Result<(), ConfigError> {
    let wrong = |error: std::io::Error| {
        let problem = match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                "it exists already: a key is never overwritten; name another file".to_string()
            }
            _ => format!("cannot be written: {error}"),
        };
        ConfigError::at("key", problem).within(path.display())
    };
    let bytes =
        key.to_protobuf_encoding().map_err(|error| ConfigError::at("key", error.to_string()))?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(wrong)?;
    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(wrong)
}

/// Whether the owner of this PeerId has signed these bytes.
pub fn verify(peer: &PeerId, bytes: &[u8], signature: &[u8]) -> bool {
    let key = PublicKey::try_decode_protobuf(peer.as_ref().digest());
    key.is_ok_and(|key| key.verify(bytes, signature))
}

/// Reads a key file.
///
/// # Errors
/// If it is missing, holds no key, or others than its owner can read it.
pub fn load(path: &Path) -> Result<Keypair, ConfigError> {
    programs::begin();
    let wrong = |problem: String| ConfigError::at("key", problem).within(path.display());
    let unread = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            wrong("there is no such file; `gradvine identity new FILE` makes one".into())
                .with_fault(Fault::Unreadable)
        }
        _ => wrong(format!("cannot be read: {error}")).with_fault(Fault::Unreadable),
    };
    let meta = fs::metadata(path).map_err(unread)?;
    let foreign = |what: &str| {
        wrong(format!("this is not a key file ({what}); `gradvine identity new FILE` makes one"))
    };
    if !meta.is_file() || meta.len() > LONGEST {
        let what = if meta.is_file() { format!("{} bytes", meta.len()) } else { "no file".into() };
        return Err(foreign(&what));
    }
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o777;
        if mode & 0o077 != 0 {
            return Err(wrong(format!(
                "its mode is {mode:o}: others can read this key; expected 600 (`chmod 600 {}`)",
                path.display()
            )));
        }
    }
    let bytes = inputs::read(path).map_err(unread)?;
    if bytes.is_empty() {
        return Err(foreign("it is empty"));
    }
    // libp2p's own message names features of its build.
    let key = Keypair::from_protobuf_encoding(&bytes)
        .map_err(|_| foreign("expected an Ed25519 key in libp2p's encoding"))?;
    match key.to_protobuf_encoding() {
        Ok(whole) if whole == bytes => Ok(key),
        // The decoder passes over what follows, such as a second key.
        _ => Err(foreign("it has more than an Ed25519 key in libp2p's encoding")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.key");
        let key = create(&path).unwrap();
        assert_eq!(load(&path).unwrap().public().to_peer_id(), key.public().to_peer_id());
        assert!(create(&path).unwrap_err().to_string().contains("it exists already"));
    }

    #[test]
    fn bytes_behind_a_key_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.key");
        create(&path).unwrap();
        let key = fs::read(&path).unwrap();
        for more in [&b"\n"[..], &[0x08, 0x01], &key] {
            fs::write(&path, [&key, more].concat()).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains("this is not a key file"), "{more:?}: {error}");
        }
    }

    #[test]
    fn missing_open_and_wrong_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.key");
        let error = load(&path).unwrap_err().to_string();
        assert!(
            error.contains(
                "node.key: key: there is no such file; `gradvine identity new FILE` makes one"
            ),
            "{error}"
        );
        create(&path).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(
                error.contains("its mode is 644: others can read this key; expected 600"),
                "{error}"
            );
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        fs::write(&path, b"not a key").unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("this is not a key file"));
        // A key of type RSA, which has no bytes.
        for (bytes, what) in
            [(&b""[..], "(it is empty)"), (b"\x08\0\x12\0", "(expected an Ed25519 key")]
        {
            fs::write(&path, bytes).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains("cargo"), "{error}");
        }
        fs::write(&path, vec![0; 5000]).unwrap();
        assert!(
            load(&path).unwrap_err().to_string().contains("this is not a key file (5000 bytes)")
        );
    }
}
