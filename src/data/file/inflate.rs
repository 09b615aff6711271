//! Decompresses gzip files block by block, so that a file that is too large is refused before all
//! of it is in memory.

use std::{
    io::{self, BufReader, ErrorKind, Read},
    sync::Arc,
};

use flate2::bufread::MultiGzDecoder;

use super::input::{Count, MAX_FILE_BYTES, error_of};
use crate::{data::DataError, memory};

/// Reads the length of a file from its first bytes; `None` if it cannot be counted.
pub(crate) type Length = fn(&[u8]) -> Result<Option<usize>, DataError>;

/// A compressed file may always grow to this length.
const ALWAYS: u64 = 64 << 20;
/// Beyond that, it may grow to this many times the compressed bytes read so far: MNIST's images
/// inflate 5 times, mostly-zero tables some 50 times, a bomb 1,000 times.
const TIMES: u64 = 200;

/// The number of bytes inflated at once.
const BLOCK: usize = 1 << 16;
/// The header of any array ends within this many bytes.
pub(crate) const HEADER_ENDS: usize = (1 << 16) + 12;

/// A limit for inflated bytes.
struct Bound {
    /// The maximum number of bytes.
    most: u64,
    /// The origin of the limit, for messages.
    because: String,
}

impl Bound {
    fn largest() -> Bound {
        Bound { most: MAX_FILE_BYTES, because: "the largest file that is read".into() }
    }
}

/// The first bytes of a gzip stream.
pub(crate) const MAGIC: &[u8] = &[0x1F, 0x8B];

/// The most bytes that a file inflates to, of which this many compressed bytes were read.
pub fn plausible_size(read: u64) -> u64 {
    ALWAYS + TIMES * read
}

/// Checks that a file whose first bytes are `head` is compressed if its name says so.
pub(crate) fn check_name(name: &str, head: &[u8]) -> Result<(), DataError> {
    if name.to_ascii_lowercase().ends_with(".gz") && !head.starts_with(MAGIC) {
        let problem =
            "not gzip-compressed, as its name says: a .gz file starts with the bytes 1f 8b";
        return Err(DataError::format("byte 0", problem));
    }
    Ok(())
}

/// The contents of a gzip stream (one or several members). Reading fails where it is damaged, and
/// where it inflates to more than a plausible file. The errors are those of this module.
pub(crate) struct Inflate<R> {
    decoder: MultiGzDecoder<BufReader<R>>,
    count: Arc<Count>,
    inflated: u64,
}

impl<R: Read> Inflate<R> {
    /// `count` counts the compressed bytes.
    pub(crate) fn new(source: R, count: Arc<Count>) -> Inflate<R> {
        let decoder = MultiGzDecoder::new(BufReader::with_capacity(BLOCK, source));
        Inflate { decoder, count, inflated: 0 }
    }
}

impl<R: Read> Read for Inflate<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(BLOCK);
        let length = self.decoder.read(&mut buffer[..length]).map_err(|error| {
            if error.kind() == ErrorKind::Interrupted
                || error.get_ref().is_some_and(|inner| inner.is::<DataError>())
            {
                return error;
            }
            let place = format!("after {} uncompressed bytes", self.inflated);
            let problem = format!("the gzip stream is damaged or cut short: {error}");
            io::Error::other(DataError::format(place, problem))
        })?;
        self.inflated += length as u64;
        let read = self.count.read() - self.decoder.get_ref().buffer().len() as u64;
        let plausible = plausible_size(read);
        if self.inflated > plausible {
            let of = self.count.total.map(|total| format!(" of {total}")).unwrap_or_default();
            let problem = format!(
                "the first {read}{of} compressed bytes inflate to more than {plausible}: \
                 {ALWAYS} and \
                 {TIMES} for each compressed byte are accepted; uncompress the file if it is meant"
            );
            let (place, found) = ("size".into(), None);
            let error = DataError::Limit { place, found, most: plausible, problem };
            return Err(io::Error::other(error));
        }
        check(self.inflated, &Bound::largest()).map_err(io::Error::other)?;
        Ok(length)
    }
}

/// All bytes of an inflated file that is not text.
///
/// # Errors
/// If they are damaged, or more than the format's header announces (by `length`), than the memory
/// allows, or than a plausible file inflates to.
pub(crate) fn whole(inflate: impl Read, length: Option<Length>) -> Result<Vec<u8>, DataError> {
    within(inflate, length, memory_bound())
}

/// All bytes of an array in an archive, which are so many bytes there.
///
/// # Errors
/// As [`whole`].
pub(crate) fn member(
    inflate: impl Read,
    length: Length,
    compressed: u64,
) -> Result<Vec<u8>, DataError> {
    let (bound, most) = (memory_bound(), plausible_size(compressed));
    let because = || {
        format!(
            "{ALWAYS} and {TIMES} for each of {compressed} compressed bytes; uncompress the file \
             if it is meant"
        )
    };
    let bound = if most < bound.most { Bound { most, because: because() } } else { bound };
    within(inflate, Some(length), bound)
}

/// The bytes and their numbers must fit into memory together.
fn memory_bound() -> Bound {
    match memory::available().map(|available| available / 2).filter(|half| *half < MAX_FILE_BYTES) {
        Some(most) => Bound { most, because: "half of the memory that is available".into() },
        None => Bound::largest(),
    }
}

fn within(
    mut inflate: impl Read,
    mut length: Option<Length>,
    mut bound: Bound,
) -> Result<Vec<u8>, DataError> {
    let (mut inflated, mut block) = (Vec::new(), vec![0; BLOCK]);
    loop {
        let read = match inflate.read(&mut block) {
            Ok(0) => return Ok(inflated),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error_of(error)),
        };
        inflated.extend_from_slice(&block[..read]);
        if inflated.len() > HEADER_ENDS
            && let Some(length) = length.take()
        {
            // The format's reader reports the problem.
            let Ok(length) = length(&inflated) else { return Ok(inflated) };
            let most = length.map_or(u64::MAX, |length| length as u64);
            check(most, &bound)?;
            bound = Bound { most, because: "which its header announces".into() };
        }
        check(inflated.len() as u64, &bound)?;
    }
}

fn check(length: u64, bound: &Bound) -> Result<(), DataError> {
    if length <= bound.most {
        return Ok(());
    }
    let Bound { most, because } = bound;
    let problem = format!("uncompressed at least: at most {most} bytes are accepted, {because}");
    let (place, found) = ("size".into(), Some(length));
    Err(DataError::Limit { place, found, most: *most, problem })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::data::{
        array::{idx, npy},
        file::input::Counted,
        options::Options,
        parse,
    };

    const IDX: Option<Length> = Some(idx::length);
    const NPY: Option<Length> = Some(npy::length);

    /// [`super::within`] of compressed bytes.
    fn within(length: Option<Length>, bytes: &[u8], bound: Bound) -> Result<Vec<u8>, DataError> {
        let source = Counted::new(bytes, "a", Some(bytes.len() as u64));
        let count = source.count();
        super::within(Inflate::new(source, count), length, bound)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Zeros of 2 GiB after these bytes, in some 2 MB.
    fn bomb(start: &[u8]) -> Vec<u8> {
        // A stored block with the start, then the same compressed block of zeros repeatedly.
        let zeros = vec![b'0'; 64 << 20];
        let member = gzip(&zeros);
        let mut bytes = gzip(start);
        (0..32).for_each(|_| bytes.extend(&member));
        bytes
    }

    #[test]
    #[ignore = "slow"]
    fn compressed_bytes_are_bounded() {
        let bomb = gzip(&vec![b'0'; 100 << 20]);
        let error = parse("bomb.csv.gz", &bomb, None, &Options::default()).unwrap_err().to_string();
        assert!(
            error.starts_with("bomb.csv.gz: size: ") && error.contains("inflate to more than"),
            "{error}"
        );
        let whole = gzip(b"1,0\n2,1\n");
        assert_eq!(parse("a.csv.gz", &whole, None, &Options::default()).unwrap().rows(), 2);
        for cut in 2..whole.len() {
            let error = parse("a.csv.gz", &whole[..cut], None, &Options::default()).unwrap_err();
            assert!(matches!(error.kind(), DataError::Format { .. }), "{cut}: {error}");
        }
    }

    #[test]
    #[ignore = "slow"]
    fn a_bomb_is_refused_before_it_is_held() {
        let bomb = bomb(b"1,2,0\n");
        assert!(bomb.len() > 2_000_000);
        let bound = || Bound { most: MAX_FILE_BYTES, because: "of its size".into() };
        let error = within(None, &bomb, bound()).unwrap_err().to_string();
        let figures: Vec<u64> =
            error.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        // Of two million bytes less than a tenth was read, and inflated to less than 100 MB.
        let [read, all, limit, ..] = figures[..] else { panic!("{error}") };
        assert_eq!((all, limit), (bomb.len() as u64, ALWAYS + TIMES * read), "{error}");
        assert!(read < 200_000 && limit < 110_000_000, "{error}");
    }

    #[test]
    fn an_array_of_an_archive_is_bounded_by_its_bytes_there() {
        let header = |shape: &str| {
            let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
            [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat()
        };
        // 1 GiB of zeros, said to be a thousand bytes there.
        let (large, zeros) = (header("(1073741824,)"), || io::repeat(0).take(1 << 30));
        let error = member(large.chain(zeros()), npy::length, 1000).unwrap_err().to_string();
        assert!(error.starts_with("size = 1073741"), "{error}");
        assert!(
            error
                .contains("at most 67308864 bytes are accepted, 67108864 and 200 for each of 1000"),
            "{error}"
        );
        // More than the header says.
        let small = header("(70000,)");
        let error = member(small.chain(zeros()), npy::length, 1000).unwrap_err().to_string();
        assert!(error.ends_with("which its header announces"), "{error}");
        let whole = [&small[..], &[7; 70_000]].concat();
        assert_eq!(member(&whole[..], npy::length, 1000).unwrap(), whole);
    }

    #[test]
    #[ignore = "slow"]
    fn memory_and_headers_bound_the_inflated_bytes() {
        let small = Bound { most: 100_000, because: "half of the memory that is available".into() };
        let error = within(None, &bomb(b"1,2,0\n"), small).unwrap_err().to_string();
        let size = error.strip_prefix("size = ").and_then(|rest| rest.split_once(':')).unwrap();
        assert!(size.0.parse::<u64>().unwrap() < 100_000 + 2 * BLOCK as u64, "{error}");
        assert!(
            error.ends_with(
                "at most 100000 bytes are accepted, half of the memory that is available"
            )
        );
        let bound = || Bound { most: 1 << 30, because: "of its size".into() };
        // Two rows of 50,000: more follow than the header says.
        let idx =
            |rows: u32| [&[0, 0, 8, 2], &rows.to_be_bytes()[..], &50_000u32.to_be_bytes()].concat();
        let error = within(IDX, &bomb(&idx(2)), bound()).unwrap_err().to_string();
        assert!(
            error.ends_with("at most 100012 bytes are accepted, which its header announces"),
            "{error}"
        );
        // 4 * 10^9 rows: more than there is room for.
        let error = within(IDX, &bomb(&idx(4_000_000_000)), bound()).unwrap_err().to_string();
        assert!(
            error.starts_with("size = 200000000000012: ") && error.contains("1073741824 bytes"),
            "{error}"
        );
        let header = |shape: &str| {
            let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
            [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat()
        };
        let error = within(NPY, &bomb(&header("(3, 40000)")), bound()).unwrap_err().to_string();
        assert!(error.contains("which its header announces"), "{error}");
        // An invalid header ends the reading at once.
        let kept = within(NPY, &bomb(&header("(3, x)")), bound()).unwrap();
        assert!(kept.len() <= HEADER_ENDS + 2 * BLOCK);
        // A file of the announced length is read.
        let whole = [idx(2), vec![7; 100_000]].concat();
        assert_eq!(within(IDX, &gzip(&whole), bound()).unwrap(), whole);
    }
}
