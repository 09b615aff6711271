//! What sites ask each other and answer, as JSON.

use serde::{Deserialize, Serialize};

use crate::{
    document::{FORMAT, Member, Version},
    notes::News,
};

/// What a site asks another, with the format of these messages.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub format: u32,
    pub question: Question,
}

/// What a site asks another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// The bearer of a ticket wants to see the run.
    Look,
    /// The bearer of a ticket wants to join: the signatures of its own key, and of the ticket's.
    Join { member: Member, signature: String, bearer: String },
    /// A member wants to know what is new: it has versions with these digests, and these notes.
    Sync { run: String, digests: Vec<String>, known: Vec<String> },
    /// A member tells what the other one lacks.
    Tell { run: String, news: News },
}

/// What it gets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The whole history.
    Run(Vec<Version>),
    /// It waits for approval.
    Waits,
    /// The site with this PeerId has joined with the ticket, and reads the run as a member.
    Joined(String),
    /// The versions after the newest one that the other site has, the notes that it lacks, and the
    /// names of those that this site lacks.
    Sync { versions: Vec<Version>, news: News, lacks: Vec<String> },
    /// It has heard.
    Heard,
    /// Why there is no answer.
    Refused(String),
}

/// What tells the format of a message.
#[derive(Deserialize)]
struct Formatted {
    #[serde(default)]
    format: u32,
}

impl Question {
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, String> {
        #[derive(Serialize)]
        struct Asking<'a> {
            format: u32,
            question: &'a Question,
        }
        let asking = Asking { format: FORMAT, question: self };
        serde_json::to_vec(&asking).map_err(|error| error.to_string())
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Result<Question, String> {
        let other = |format: u32| {
            format!(
                "the question has format {format} of signed runs, and this site has {FORMAT}: both \
                 need the same version of gradvine"
            )
        };
        let asked: Result<Asked, _> = serde_json::from_slice(bytes);
        match asked {
            Ok(asked) if asked.format == FORMAT => Ok(asked.question),
            Ok(asked) => Err(other(asked.format)),
            Err(error) => match serde_json::from_slice::<Formatted>(bytes) {
                Ok(one) if one.format == FORMAT => Err(format!("the question is none: {error}")),
                Ok(one) => Err(other(one.format)),
                Err(_) => Err(other(1)),
            },
        }
    }
}
