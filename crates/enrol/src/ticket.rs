//! A ticket: what one site needs to join a run, in one line.
//!
//! `gv1`, then letters and digits (base 32) of the values below and their checksum. The secret is
//! the seed of a key. The inviter knows its PeerId, and lets in who proves that key: nothing that
//! could be replayed crosses the network, and guesses fail in the handshake.

use std::{fmt, str::FromStr};

use data_encoding::BASE32_NOPAD;
use gradvine::net::{Keypair, PeerId, of_seed};
use serde::{Deserialize, Serialize};

/// The first letters of a ticket.
const PREFIX: &str = "gv1";

/// The most characters that are read.
const LONGEST: usize = 4096;

/// What one site needs to join a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The id of the run.
    pub run: String,
    /// The name of the run.
    pub title: String,
    /// The name of the site that is invited.
    pub site: String,
    /// The PeerId of the site that invites.
    pub peer: String,
    /// The addresses of that site.
    pub addresses: Vec<String>,
    /// Until when it can be used, in seconds since 1970.
    pub expires: u64,
    /// The seed of the ticket's key.
    pub secret: [u8; 32],
}

impl Ticket {
    /// The key that the ticket's secret is the seed of.
    pub fn key(&self) -> Keypair {
        of_seed(self.secret).expect("32 bytes are the seed of a key")
    }

    /// The PeerId of that key, by which the inviter knows the ticket.
    pub fn peer(&self) -> PeerId {
        self.key().public().to_peer_id()
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = bincode::serde::encode_to_vec(self, bincode::config::standard())
            .map_err(|_| fmt::Error)?;
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        write!(f, "{PREFIX}{}", BASE32_NOPAD.encode(&bytes).to_lowercase())
    }
}

impl FromStr for Ticket {
    type Err = String;

    fn from_str(text: &str) -> Result<Ticket, String> {
        let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        let Some(rest) = text.strip_prefix(PREFIX) else {
            return Err(format!(
                "this is no ticket: it begins with {PREFIX}, as `gradvine invite` prints it"
            ));
        };
        let altered = "this ticket is not complete, or was altered: copy the whole line";
        if rest.len() > LONGEST {
            return Err(altered.into());
        }
        let bytes = BASE32_NOPAD.decode(rest.to_uppercase().as_bytes());
        let bytes = bytes.map_err(|_| altered.to_string())?;
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or(altered)?;
        if crc32c::crc32c(body).to_le_bytes() != *sum {
            return Err(altered.into());
        }
        let limited = bincode::config::standard().with_limit::<LONGEST>();
        match bincode::serde::decode_from_slice(body, limited) {
            Ok((ticket, read)) if read == body.len() => Ok(ticket),
            _ => Err("this ticket is of another version of gradvine".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        Ticket {
            run: "0123456789abcdef".into(),
            title: "hospitals".into(),
            site: "lyon".into(),
            peer: of_seed([7; 32]).unwrap().public().to_peer_id().to_string(),
            addresses: vec!["/dns4/berlin.example.org/tcp/4001".into()],
            expires: 1_800_000_000,
            secret: [9; 32],
        }
    }

    #[test]
    fn a_ticket_is_one_line_that_reads_back() {
        let line = ticket().to_string();
        assert!(line.starts_with("gv1") && line.chars().all(|c| c.is_ascii_alphanumeric()));
        assert_eq!(line.parse(), Ok(ticket()));
        // As a mail program breaks and capitalises it.
        let (a, b) = line[3..].split_at(40);
        assert_eq!(format!("gv1{}\n {b}", a.to_uppercase()).parse(), Ok(ticket()));
    }

    #[test]
    fn every_altered_character_and_every_cut_is_noticed() {
        let line = ticket().to_string();
        for at in 3..line.len() {
            let mut other = line.clone().into_bytes();
            other[at] = if other[at] == b'a' { b'b' } else { b'a' };
            let other = String::from_utf8(other).unwrap();
            assert!(other.parse::<Ticket>().is_err(), "character {at}");
            assert!(line[..at].parse::<Ticket>().is_err(), "cut at {at}");
        }
        assert!("gv2abc".parse::<Ticket>().unwrap_err().contains("no ticket"));
        assert!(format!("gv1{}", "a".repeat(5000)).parse::<Ticket>().is_err());
    }
}
