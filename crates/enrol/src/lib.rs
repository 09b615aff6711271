//! How sites come together in a run: tickets, the signed run, and changes by consent.
//!
//! | file | does |
//! |---|---|
//! | `ticket` | what one site needs to join, in one line |
//! | `document` | the run: versions, whose digests and signatures make a history |
//! | `notes` | what sites tell each other: addresses, proposals and answers, ends of stages |
//! | `sign` | which key signed which words |
//! | `book` | what a site keeps on its disk |
//! | `desk` | what a site answers to others |
//! | `ask` | what a site asks others |
//! | `stage` | the files of a node for a stage of training |
#![forbid(unsafe_code)]

mod ask;
mod book;
mod desk;
mod document;
mod notes;
mod sign;
mod stage;
#[cfg(test)]
mod tests;
mod ticket;

pub use ask::{Joining, NoAnswer, join, look, sync};
pub use book::{Book, Newest, Site, fingerprint, now};
pub use desk::{Told, answers};
pub use document::{
    Consent, Invitation, MOST_SITES, Member, Run, Version, check_history, check_name,
};
pub use notes::{Announcement, Notes, Proposal, StageEnd};
pub use stage::{FirstModel, NotYet, Stage, newest_of, write_files};
pub use ticket::Ticket;
