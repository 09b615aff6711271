//! What only a report shows, in sections: tables, charts, notes and files. The page writes every
//! text as text, so none can become markup.

use serde::Serialize;

/// A section of the page.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Its anchor.
    pub id: &'static str,
    /// Its heading.
    pub title: String,
    /// What is in it, in order.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Block {
    /// A paragraph.
    Text {
        /// Its words.
        text: String,
    },
    /// A list of notes.
    Notes {
        /// Its lines.
        notes: Vec<Note>,
    },
    /// A table.
    Table(Table),
    /// A confusion matrix.
    Matrix(Matrix),
    /// A chart of one quantity over another.
    Chart(Chart),
    /// A text that the reader can open.
    File {
        /// Its name.
        title: String,
        /// Its content.
        text: String,
    },
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Good to know.
    Info,
    /// Figures may mislead without it.
    Warning,
    /// The run did not end well.
    Error,
}

/// A note.
#[derive(Clone, Debug, Serialize)]
pub struct Note {
    /// How much it matters.
    pub level: Level,
    /// What it is about.
    pub name: String,
    /// A sentence.
    pub text: String,
}

/// The content of a table's cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// Words, aligned left.
    Word(String),
    /// A figure, aligned right.
    Figure(String),
    /// The best figure of its column.
    Best(String),
    /// The name of the row.
    Name(String),
    /// No figure.
    Nothing,
}

/// A table: its columns, and the rows that are shown.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// The names of the columns.
    pub head: Vec<String>,
    /// The rows, each as long as `head`.
    pub rows: Vec<Vec<Cell>>,
    /// What is left out, in a sentence; empty if nothing is.
    pub left_out: String,
}

impl Table {
    /// A table from which nothing is left out.
    pub fn new(caption: impl Into<String>, head: &[&str], rows: Vec<Vec<Cell>>) -> Table {
        let head = head.iter().map(|name| (*name).to_string()).collect();
        Table { caption: caption.into(), head, rows, left_out: String::new() }
    }
}

/// Test rows by class and predicted class.
#[derive(Clone, Debug, Serialize)]
pub struct Matrix {
    /// What it shows.
    pub caption: String,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// Of each class, the rows that were taken for each class.
    pub rows: Vec<Vec<u64>>,
}

/// A chart of shares over shares, from 0 to 1.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// Its heading.
    pub title: String,
    /// What the axis across is.
    pub across: String,
    /// What the axis upwards is.
    pub upwards: String,
    /// How to read it.
    pub note: String,
    /// Its lines.
    pub curves: Vec<Curve>,
}

/// A line of a [`Chart`].
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Its points, from left to right: across, upwards.
    pub points: Vec<[f64; 2]>,
}
