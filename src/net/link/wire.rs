//! The wire format of a link beside frames: messages of the control stream, and the envelope of the
//! bulk stream.
//!
//! ```text
//! control   length u32 | message (bincode, fixed integers)   both ways, at most 1 MiB + 4 KiB each
//! bulk      length u64 | sequence u64 | frame                one stream a direction
//! ```
//! On a new connection the first frame continues at the byte that the receiver's hello names.
//! All numbers are little-endian. A length is compared with its limit before memory is reserved.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use serde::{Deserialize, Serialize};

use crate::{
    cluster::{members::assembly::News, message::Origin, statements::Batch},
    gossip::frame::ENVELOPE,
    status::Passed,
};

/// The longest canonical text of a section.
pub(crate) const TEXT_LIMIT: usize = 1 << 20;

pub(crate) const MESSAGE_LIMIT: usize = TEXT_LIMIT + 4096;

/// A message of the control stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The first message of each side.
    Hello(Hello),
    /// The canonical text of a section that differs.
    Text(Section, String),
    /// This many frames have arrived whole.
    Ack(u64),
    /// A sign of life without further content.
    Heartbeat,
    /// Nothing more will come; `None` if the run is over, else the reason why this node leaves.
    Goodbye(Option<Reason>),
    /// What the sender knows while members are chosen.
    Chooses(News),
    /// Instead of a hello: the sender only examines the link (`gradvine doctor`).
    Probe,
    /// What nodes say to all others, with their signatures.
    Statements(Batch),
    /// Two programs run with the receiver's key. Instead of a hello it refuses the receiver.
    Rival(Rival),
    /// The answer to it over a link that is up.
    Runs(Runs),
    /// What nodes say about themselves.
    Status(Vec<Passed>),
}

/// Another program that runs with the receiver's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rival {
    /// Where it is, and which of the two stays.
    pub text: String,
    /// Its random number.
    pub program: u64,
    /// What it has signed about the receiver, if the sender has that: without it the receiver does
    /// not believe the sender.
    pub proof: Vec<u8>,
}

/// A program signs that it runs, for another one with its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// The random number of the other one.
    pub other: u64,
    /// The signature of [`super::hello::RunCard::runs`].
    pub signature: Vec<u8>,
}

/// Why a node leaves a run: the first failure that it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The number of the node that failed.
    pub node: u32,
    /// What has happened there, in words.
    pub text: String,
    /// Whether that node only leaves.
    pub leaves: bool,
}

/// The id of no membership: the node takes part in the choice of members.
pub(crate) const ASSEMBLY: u64 = u64::MAX;

/// The sections on which two nodes must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Section {
    /// Nodes and links with their weights.
    Topology,
    /// Rule, compressor, optimizer, seed, rounds.
    Experiment,
    /// Kind, shape and initial parameters.
    Model,
}

impl std::fmt::Display for Section {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Section::Topology => "topology",
            Section::Experiment => "experiment",
            Section::Model => "model",
        })
    }
}

/// The first message: the identity of a node and the digests of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The protocol version, [`crate::net::VERSION`].
    pub(crate) version: u32,
    /// The name of the run, `run.id`.
    pub(crate) run: String,
    /// This node's number in the topology.
    pub(crate) node: u32,
    /// SHA-256 of each section's canonical text, in the order of [`Section`].
    pub(crate) digests: [[u8; 32]; 3],
    /// The dimension d of the model.
    pub(crate) parameters: u64,
    /// Hash of the arithmetic self-test.
    pub(crate) arithmetic: u64,
    /// The number of the other's last frame that this node has.
    pub(crate) received: u64,
    /// The bytes of the next one that have arrived: the sender continues after them.
    pub(crate) partial: u64,
    /// A random number of this node's running program.
    pub(crate) incarnation: u64,
    /// That of the other's program with which this end has a session; 0 before the first.
    pub(crate) known: u64,
    /// The id of its membership; the greatest number while members are chosen.
    pub(crate) membership: u64,
    /// Which node was the first to go back to a checkpoint, or to choose members, as it says.
    pub(crate) because: Option<Origin>,
    /// A random number of the process in which it runs, over all attempts.
    pub program: u64,
    /// For how long that has run, in milliseconds.
    pub(crate) age: u64,
}

/// Errors of a stream: it ended, or its bytes are invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The stream failed or ended.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A message or frame that is longer than allowed.
    #[error("a {what} of {length} bytes: at most {limit} are accepted")]
    Long {
        /// Either `control message` or `frame`.
        what: &'static str,
        /// The length that the sender has announced.
        length: u64,
        /// The greatest length that is accepted.
        limit: usize,
    },
    /// The bytes do not decode.
    #[error("a control message that does not decode: {0}")]
    Malformed(String),
    /// A frame that continues with another length than it began with.
    #[error("a frame of {found} bytes, which had {before} bytes when it began")]
    Continued {
        /// The length that is announced now.
        found: usize,
        /// The length announced on the connection before.
        before: usize,
    },
    /// A gap or a repetition.
    #[error("frame number {found} instead of {expected}")]
    Sequence {
        /// The number that the sender has announced.
        found: u64,
        /// The number that is next in order.
        expected: u64,
    },
}

fn layout() -> Configuration<LittleEndian, Fixint, Limit<MESSAGE_LIMIT>> {
    bincode::config::standard().with_fixed_int_encoding().with_limit::<MESSAGE_LIMIT>()
}

/// Encodes a message, length first.
///
/// # Panics
/// If it does not encode. Texts must be cut before, with `hello::sentence`.
pub fn encode(message: &Message) -> Vec<u8> {
    let body = bincode::serde::encode_to_vec(message, layout()).expect("a control message encodes");
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// Decodes a message from its bytes, without the length.
///
/// # Errors
/// If the bytes do not decode, or some are left over.
pub fn decode(bytes: &[u8]) -> Result<Message, WireError> {
    let (message, used) = bincode::serde::decode_from_slice(bytes, layout())
        .map_err(|error| WireError::Malformed(error.to_string()))?;
    if used != bytes.len() {
        return Err(WireError::Malformed(format!("{} bytes are left over", bytes.len() - used)));
    }
    Ok(message)
}

pub(crate) async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &Message,
) -> std::io::Result<()> {
    stream.write_all(&encode(message)).await?;
    stream.flush().await
}

pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Message, WireError> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_LIMIT {
        return Err(WireError::Long {
            what: "control message",
            length: length as u64,
            limit: MESSAGE_LIMIT,
        });
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    decode(&bytes)
}

/// The bytes before a frame: its number and length.
pub(crate) fn envelope(length: usize, sequence: u64) -> [u8; ENVELOPE] {
    let mut bytes = [0; ENVELOPE];
    bytes[..8].copy_from_slice(&(length as u64).to_le_bytes());
    bytes[8..].copy_from_slice(&sequence.to_le_bytes());
    bytes
}

/// The length of the frame after an envelope, once its number and length are valid.
///
/// # Errors
/// If the length exceeds the limit or the number is not the next one.
pub(crate) fn open_envelope(
    bytes: &[u8; ENVELOPE],
    due: u64,
    limit: usize,
) -> Result<usize, WireError> {
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let (length, found) = (word(0), word(8));
    if length > limit as u64 {
        return Err(WireError::Long { what: "frame", length, limit });
    }
    if found != due {
        return Err(WireError::Sequence { found, expected: due });
    }
    Ok(length as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        cluster::{
            begin::reports::Report,
            message::{CheckpointId, CheckpointSchedule},
            statements::{Links, Said, Shared, Statement},
        },
        units::NodeId,
    };

    fn hello() -> Hello {
        Hello {
            version: 1,
            run: "run".into(),
            node: 2,
            digests: [[1; 32], [2; 32], [3; 32]],
            parameters: 4,
            arithmetic: 5,
            received: 6,
            partial: 7,
            incarnation: 9,
            known: 10,
            membership: 11,
            because: Some(Origin { number: 14, ..Origin::default() }),
            program: 12,
            age: 13,
        }
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(encode(&Message::Heartbeat), [4, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(encode(&Message::Ack(1)), [12, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let mut expected = vec![0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        expected.extend(b"run");
        expected.extend([2, 0, 0, 0]);
        expected.extend([[1; 32], [2; 32], [3; 32]].concat());
        for word in [4u64, 5, 6, 7, 9, 10, 11] {
            expected.extend(word.to_le_bytes());
        }
        // That there is an origin, its node and number, no neighbour, no signature.
        expected.extend([1, 0, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0; 8]);
        for word in [12u64, 13] {
            expected.extend(word.to_le_bytes());
        }
        assert_eq!(encode(&Message::Hello(hello()))[4..], expected);
        assert_eq!(envelope(0x0102, 3), [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn messages_come_back() {
        let messages = [
            Message::Hello(hello()),
            Message::Text(Section::Model, "a = 1\n".into()),
            Message::Goodbye(Some(Reason { node: 3, text: "late".into(), leaves: true })),
            Message::Chooses(News::default()),
            Message::Rival(Rival { text: "of node a".into(), program: 4, proof: vec![5; 64] }),
            Message::Runs(Runs { other: 4, signature: vec![5; 64] }),
            Message::Status(vec![Passed {
                node: NodeId(2),
                age_ms: 3,
                record: vec![4; 5],
                signature: vec![6; 64],
            }]),
            Message::Statements(Batch {
                histories: vec![Vec::new()],
                statements: [
                    Said::Report(Report {
                        kept: vec![CheckpointId { membership: 1, rounds: 10, history: 7 }],
                        ..Report::default()
                    }),
                    Said::Links(Links { number: 2, attempts: vec![None, Some(3)] }),
                    Said::Begins(4),
                    Said::Initial([5; 16]),
                    Said::Shared(Shared { round: 16, flight: 1, fingerprint: [2; 16] }),
                    Said::Saved(7),
                    Said::Schedule(CheckpointSchedule { number: 1, next: 20 }),
                    Said::Written(9),
                ]
                .map(|said| Statement { node: NodeId(3), attempt: 8, said, signature: vec![6; 64] })
                .into(),
            }),
        ];
        for message in messages {
            assert_eq!(decode(&encode(&message)[4..]).unwrap(), message);
        }
    }

    #[test]
    fn a_length_beyond_the_limit_takes_no_memory() {
        let mut bytes = &u32::MAX.to_le_bytes()[..];
        let error = futures::executor::block_on(read(&mut bytes)).unwrap_err();
        assert!(
            error.to_string().contains("4294967295 bytes: at most 1052672 are accepted"),
            "{error}"
        );
        // A text that claims 2^61 bytes inside a short message.
        let mut text = encode(&Message::Text(Section::Model, String::new()))[4..].to_vec();
        text[8..16].copy_from_slice(&(1u64 << 61).to_le_bytes());
        assert!(matches!(decode(&text), Err(WireError::Malformed(_))));
    }

    #[test]
    fn envelopes_are_checked() {
        assert_eq!(open_envelope(&envelope(100, 7), 7, 100).unwrap(), 100);
        assert!(matches!(open_envelope(&envelope(101, 7), 7, 100), Err(WireError::Long { .. })));
        assert!(matches!(
            open_envelope(&envelope(100, 9), 7, 100),
            Err(WireError::Sequence { found: 9, expected: 7 })
        ));
        // A frame that comes twice.
        assert!(matches!(
            open_envelope(&envelope(100, 6), 7, 100),
            Err(WireError::Sequence { found: 6, expected: 7 })
        ));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
