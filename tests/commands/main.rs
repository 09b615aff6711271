//! The `gradvine` command as users run it.

#[path = "../common/command.rs"]
mod command;

mod bad_files;
mod breaks;
mod card;
mod cases;
mod census;
mod compare;
mod deployment;
mod doctor;
mod documents;
mod early_stop;
mod export;
mod export_curves;
mod faults;
mod inputs;
mod interrupts;
mod judging;
mod members;
mod no_room;
mod on_event;
mod output;
mod page;
mod picture;
mod plan;
mod predict;
mod proxies;
mod refusals;
mod report;
mod report_pictures;
mod report_quality;
mod restarts;
mod run_folder;
mod runs;
mod schema;
mod sites;
mod strangers;
mod terminal;
mod together;
mod warnings;
mod watching;
