//! The bytes of a file as a stream that is counted, for observers and limits.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{data::DataError, inputs};

/// The largest accepted file, in bytes: 8 GiB, which as `f32` exceeds one node's memory in most
/// cases.
pub const MAX_FILE_BYTES: u64 = 8 << 30;

/// How far the reading of a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// The file's path, as messages have it.
    pub name: String,
    /// Bytes that were read, as they are in the file.
    pub read: u64,
    /// Bytes of the file; `None` of a pipe.
    pub total: Option<u64>,
    /// Whether the file is read or given up.
    pub ended: bool,
}

type Observer = Box<dyn Fn(&Reading) + Send + Sync>;

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// The bytes between two calls of an observer.
const EVERY: u64 = 1 << 20;

/// Calls `observer` while [`load`](crate::data::load) reads a file, about once a MiB, and once when
/// it is read, on the thread that reads. The first observer of a program stays.
pub fn observe_reading(observer: impl Fn(&Reading) + Send + Sync + 'static) {
    let _ = OBSERVER.set(Box::new(observer));
}

/// The bytes that were read, and those that there are if that is known.
#[derive(Debug)]
pub(crate) struct Count {
    read: AtomicU64,
    pub total: Option<u64>,
}

impl Count {
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The part that was read, from 0 to 1.
    pub(crate) fn share(&self) -> Option<f64> {
        Some(self.read() as f64 / self.total? as f64)
    }
}

/// A stream that counts its bytes, tells the observer and ends with an error beyond
/// [`MAX_FILE_BYTES`].
pub(crate) struct Counted<R> {
    source: R,
    name: String,
    count: Arc<Count>,
    reported: u64,
}

impl<R: Read> Counted<R> {
    pub(crate) fn new(source: R, name: &str, total: Option<u64>) -> Counted<R> {
        let count = Arc::new(Count { read: AtomicU64::new(0), total });
        Counted { source, name: name.to_string(), count, reported: 0 }
    }

    pub(crate) fn count(&self) -> Arc<Count> {
        Arc::clone(&self.count)
    }
}

impl<R> Counted<R> {
    fn report(&self, ended: bool) {
        if let Some(observer) = OBSERVER.get() {
            let (read, total) = (self.count.read(), self.count.total);
            observer(&Reading { name: self.name.clone(), read, total, ended });
        }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        let read = self.count.read.fetch_add(length as u64, Ordering::Relaxed) + length as u64;
        if read > MAX_FILE_BYTES {
            return Err(io::Error::other(DataError::too_large("size", read, MAX_FILE_BYTES)));
        }
        if read >= self.reported + EVERY {
            self.reported = read;
            self.report(false);
        }
        Ok(length)
    }
}

impl<R> Drop for Counted<R> {
    fn drop(&mut self) {
        if self.reported > 0 {
            self.report(true);
        }
    }
}

/// The error of a stream in this module's words.
pub(crate) fn error_of(error: io::Error) -> DataError {
    error.downcast().unwrap_or_else(DataError::Unreadable)
}

/// The first bytes of a stream, at most `length`, and the whole stream.
pub(crate) fn peek<R: Read>(mut source: R, length: u64) -> Result<(Vec<u8>, impl Read), DataError> {
    let mut head = Vec::new();
    source.by_ref().take(length).read_to_end(&mut head).map_err(error_of)?;
    Ok((head.clone(), io::Cursor::new(head).chain(source)))
}

/// Opens a file; its length if it has one, as pipes have not.
pub(crate) fn open(path: &Path) -> Result<(File, Option<u64>), DataError> {
    let file = inputs::open(path).map_err(DataError::Unreadable)?;
    let metadata = file.metadata().map_err(DataError::Unreadable)?;
    if metadata.is_dir() {
        return Err(unreadable("a folder, but a file is needed"));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(DataError::too_large("size", metadata.len(), MAX_FILE_BYTES));
    }
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

pub(crate) fn unreadable(problem: &str) -> DataError {
    DataError::Unreadable(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_counted_and_bounded() {
        let counted = Counted::new(&[7u8; 100][..], "a", Some(100));
        let count = counted.count();
        let (head, mut whole) = peek(counted, 10).unwrap();
        assert_eq!((head, count.read(), count.share()), (vec![7; 10], 10, Some(0.1)));
        let mut all = Vec::new();
        whole.read_to_end(&mut all).unwrap();
        assert_eq!((all, count.read()), (vec![7; 100], 100));

        let endless = Counted::new(io::repeat(0), "b", None);
        endless.count.read.store(MAX_FILE_BYTES - 5, Ordering::Relaxed);
        let Err(error) = peek(endless, 10) else { panic!("more than the limit") };
        assert!(error.to_string().starts_with("size = 8589934597: at most "), "{error}");
        let DataError::Limit { found, most, .. } = error else { panic!("{error}") };
        assert_eq!((found, most), (Some(MAX_FILE_BYTES + 5), MAX_FILE_BYTES));
    }
}
