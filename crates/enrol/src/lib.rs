//! How sites come together in a run: tickets, the signed run, and changes by consent.
//!
//! | file | does |
//! |---|---|
//! | `ticket` | what one site needs to join, in one line |
//! | `document` | the run: versions, whose digests and signatures make a history |
//! | `follows` | which version may follow which, and whose consent it needs |
//! | `difference` | what a version changes, in words |
//! | `proposal`, `ends` | proposals with their answers, and how stages have ended |
//! | `notes` | what sites tell each other, with limits |
//! | `text` | names, texts and addresses that are accepted |
//! | `sign` | which key signed which words |
//! | `book` | the run as a site knows it |
//! | `site` | a site's folder, and the lock of its book |
//! | `acts` | what a site does with its book |
//! | `wire` | questions and answers of sites |
//! | `desk`, `ask` | what a site answers to others, and what it asks them |
//! | `stage` | the files of a node for a stage of training |
#![forbid(unsafe_code)]

mod acts;
mod ask;
mod book;
mod desk;
mod difference;
mod document;
mod ends;
mod follows;
mod notes;
mod proposal;
mod sign;
mod site;
mod stage;
#[cfg(test)]
mod tests;
mod text;
mod ticket;
mod wire;

pub use acts::{Newest, fingerprint};
pub use ask::{Joining, NoAnswer, invitation, join, joined, look, sync};
pub use book::{Book, Conflict, Request, Training, now};
pub use desk::{Told, answers};
pub use document::{Admission, Consent, FORMAT, Invitation, MOST_SITES, Member, Run, Version};
pub use ends::{Constants, StageEnd};
pub use follows::{FAMILIES, check_history};
pub use notes::{Announcement, Choice, News, Notes};
pub use proposal::{Proposal, Replies};
pub use sign::{Accept, Declined, Refusal};
pub use site::{Site, lock_file, read_book};
pub use stage::{FirstModel, NotYet, Stage, is_current, newest_of, write_files};
pub use text::{check_name, check_text};
pub use ticket::Ticket;
