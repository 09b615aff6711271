//! Answers neighbours that examine their links, before the run begins.
//!
//! The neighbour runs a node that waits for the run to begin, or examines its own links at the same
//! time. On a stream of its own the examining end asks for one of three things:
//!
//! | request | answer |
//! |---|---|
//! | `t`, then any number of bytes one at a time | for each: what the neighbour runs (one byte), its clock in nanoseconds since 1970 |
//! | `u`, then bytes until the stream is closed | how many they were, and the nanoseconds between the first and the last |
//! | `d`, then milliseconds (4 bytes) | bytes for so long, then the stream is closed |

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::{PeerId, Stream, StreamProtocol};
use libp2p_stream::IncomingStreams;
use tokio::{task::JoinSet, time::timeout};

use super::VERSION;

/// The longest time that a neighbour may ask for bytes.
const LONGEST: Duration = Duration::from_secs(30);

/// The number of requests that are answered at the same time.
const MOST_REQUESTS: usize = 8;

/// The bytes of one write.
pub(super) const CHUNK: usize = 64 << 10;

/// The number of round trips that are measured.
pub(super) const TRIPS: usize = 11;

/// The time limit of one step: a dial, a stream, an answer.
pub(super) const STEP: Duration = Duration::from_secs(10);

/// The command that runs at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counterpart {
    /// A node that waits for the run to begin.
    Node,
    /// An examination of its own links.
    Probe,
}

/// Answers neighbours until the host closes. `may`: whether requests are answered now.
pub(super) async fn serve(
    mut incoming: IncomingStreams,
    counterpart: Counterpart,
    served: Served,
    may: impl Fn() -> bool,
) {
    let mut answers = JoinSet::new();
    loop {
        tokio::select! {
            stream = incoming.next() => {
                let Some((peer, stream)) = stream else { return };
                if may() && answers.len() < MOST_REQUESTS {
                    let served = served.clone();
                    answers.spawn(async move {
                        let _ = timeout(2 * LONGEST, answer(stream, counterpart)).await.map(
                            |asked| if asked.is_ok_and(|asked| asked == b'd') { served.add(peer) },
                        );
                    });
                }
            }
            Some(_) = answers.join_next() => {}
        }
    }
}

/// The peers that have been sent what they asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Served(Arc<Mutex<BTreeSet<PeerId>>>);

impl Served {
    fn add(&self, peer: PeerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(peer);
    }

    pub(super) fn has(&self, peer: &PeerId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(peer)
    }
}

/// The protocol of an examination.
pub(super) fn probe_protocol() -> StreamProtocol {
    StreamProtocol::try_from_owned(format!("/gradvine/{VERSION}/probe"))
        .expect("it starts with a slash")
}

/// Answers one request and returns its kind.
async fn answer(mut stream: Stream, counterpart: Counterpart) -> std::io::Result<u8> {
    let mut request = [0; 1];
    stream.read_exact(&mut request).await?;
    let asked = request[0];
    match asked {
        b't' => {
            let mut one = [0; 1];
            for _ in 0..2 * TRIPS {
                if stream.read(&mut one).await? == 0 {
                    break;
                }
                let mut bytes = [0; 9];
                bytes[0] = u8::from(counterpart == Counterpart::Probe);
                bytes[1..].copy_from_slice(&clock().to_le_bytes());
                stream.write_all(&bytes).await?;
                stream.flush().await?;
            }
        }
        b'u' => {
            let (mut count, mut first) = (0u64, None);
            let mut chunk = vec![0; CHUNK];
            let mut last = Instant::now();
            loop {
                let read = stream.read(&mut chunk).await?;
                if read == 0 {
                    break;
                }
                last = Instant::now();
                if first.is_none() {
                    // What came with the first byte says nothing about the rate.
                    first = Some(last);
                } else {
                    count += read as u64;
                }
            }
            let nanos = first.map_or(0, |first| (last - first).as_nanos() as u64);
            stream.write_all(&[count.to_le_bytes(), nanos.to_le_bytes()].concat()).await?;
            stream.flush().await?;
        }
        b'd' => {
            let mut millis = [0; 4];
            stream.read_exact(&mut millis).await?;
            let long = Duration::from_millis(u64::from(u32::from_le_bytes(millis))).min(LONGEST);
            send_for(&mut stream, long).await?;
        }
        _ => {}
    }
    stream.close().await?;
    // The last bytes have arrived once the other end closes the stream too.
    let _ = timeout(STEP, stream.read(&mut request)).await;
    Ok(asked)
}

pub(super) async fn send_for(stream: &mut Stream, long: Duration) -> std::io::Result<()> {
    // Bytes that no layer can compress.
    let chunk: Vec<u8> =
        (0..CHUNK as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let begin = Instant::now();
    while begin.elapsed() < long {
        stream.write_all(&chunk).await?;
    }
    stream.flush().await
}

/// Nanoseconds since 1970.
pub(super) fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
