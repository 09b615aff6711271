//! Names, texts and addresses in signed documents: what is accepted of them.

use std::collections::BTreeSet;

use gradvine::{net::Multiaddr, printable::Printable};

use crate::document::Member;

/// The most addresses of a site, and the most bytes of one.
pub(crate) const MOST_ADDRESSES: usize = 16;
pub(crate) const LONGEST_ADDRESS: usize = 256;

/// The most bytes of a sentence for people: a change, a reason.
pub(crate) const LONGEST_TEXT: usize = 500;

/// The most bytes of a PeerId, a digest or a signature in letters.
pub(crate) const LONGEST_KEY: usize = 128;

/// Checks the name of a site or of a run. Letters of other scripts look like these, and some are
/// invisible.
///
/// # Errors
/// What is accepted.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        return Err(format!(
            "{name:?} is no name of a site: expected 1 to 64 of the letters a to z, capital or \
             not, digits, \"-\" and \"_\""
        ));
    }
    Ok(())
}

/// The names of sites: two that differ in capital letters only are one.
#[derive(Default)]
pub(crate) struct Names(BTreeSet<String>);

impl Names {
    /// Adds a name; an error if it is none, or one that is known.
    pub(crate) fn add(&mut self, name: &str) -> Result<(), String> {
        check_name(name)?;
        match self.0.insert(name.to_ascii_lowercase()) {
            true => Ok(()),
            false => Err(format!("two sites have the name {name}, or it differs in capitals only")),
        }
    }
}

/// Checks a sentence for people: one line of text that a terminal shows as it is.
///
/// # Errors
/// What is accepted.
pub fn check_text(text: &str) -> Result<(), String> {
    if text.len() > LONGEST_TEXT {
        return Err(format!("a text of {} bytes, and at most {LONGEST_TEXT} are", text.len()));
    }
    match shown(text) == text {
        true => Ok(()),
        false => Err(format!("expected one line of printable text, not {text:?}")),
    }
}

/// The text in one line, as a terminal shows it.
pub(crate) fn shown(text: &str) -> String {
    Printable(text).to_string().replace('\n', "\\n").replace('\t', "\\t")
}

/// Checks the addresses of a site.
pub(crate) fn check_addresses(addresses: &[String]) -> Result<(), String> {
    if addresses.len() > MOST_ADDRESSES {
        return Err(format!("{} addresses, and at most {MOST_ADDRESSES} are", addresses.len()));
    }
    for one in addresses {
        if one.len() > LONGEST_ADDRESS {
            return Err(format!("an address of more than {LONGEST_ADDRESS} bytes"));
        }
        if shown(one) != *one || one.parse::<Multiaddr>().is_err() {
            return Err(format!("{one:?} is no multiaddress"));
        }
    }
    Ok(())
}

/// Checks the name of a site, and its addresses.
pub(crate) fn check_member(member: &Member) -> Result<(), String> {
    check_name(&member.name)?;
    for key in [&member.peer, &member.caller] {
        check_peer(key).map_err(|why| format!("{}: {why}", member.name))?;
    }
    check_addresses(&member.addresses).map_err(|why| format!("{}: {why}", member.name))
}

/// Checks a PeerId: it is written as programs write it.
pub(crate) fn check_peer(text: &str) -> Result<(), String> {
    let peer = Some(text).filter(|text| text.len() <= LONGEST_KEY);
    match peer.and_then(|text| text.parse::<gradvine::net::PeerId>().ok()) {
        Some(peer) if peer.to_string() == text => Ok(()),
        _ => Err(format!("{:?} is no PeerId", &text[..text.len().min(60)])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_plain_letters_and_no_twins() {
        for name in ["lyon", "Lyon-2", "a_b", &"x".repeat(64)] {
            check_name(name).unwrap();
        }
        // A letter of another script, one without ink, a joiner, a full-width letter.
        for name in ["", "a b", "l\u{443}on", "lyon\u{3164}", "ly\u{200d}on", "\u{ff4c}yon", "a\n"]
        {
            assert!(check_name(name).unwrap_err().contains("no name of a site"), "{name:?}");
        }
        let mut names = Names::default();
        names.add("lyon").unwrap();
        names.add("rome").unwrap();
        assert!(names.add("LYON").unwrap_err().contains("capitals"));
    }

    #[test]
    fn texts_are_one_printable_line() {
        check_text("the loss jumps, \"again\"; d\u{e9}j\u{e0} \u{65e5}").unwrap();
        for text in ["a\nversion 9 of the run: b", "\u{1b}[2J", "a\u{202e}b", "a\tb", "\u{200b}"] {
            assert!(check_text(text).unwrap_err().contains("printable"), "{text:?}");
        }
        assert!(check_text(&"x".repeat(501)).is_err());
    }
}
