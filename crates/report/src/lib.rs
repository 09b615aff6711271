//! How results look: pictures, pages and tables of runs, figures of topologies.
#![forbid(unsafe_code)]

mod banner;
pub mod chart;
mod command_line;
mod description;
pub mod interval;
mod members;
mod next_steps;
mod page;
mod sheet;
mod summary;
mod text;
pub mod topology;

pub use banner::banner;
pub use command_line::{command_line, program_name};
pub use description::{description_json, description_table};
pub use members::{members_json, members_text};
pub use next_steps::NextSteps;
pub use page::{Loaded, Page, Picture, check_named_once, check_replaceable, page};
pub use summary::{node_table, table};
pub use text::{aligned, fitted, loss, number, on_a_line, wrapped};
