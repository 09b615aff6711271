//! A run with all nodes in this process, on a terminal.

use std::{cell::RefCell, path::Path};

use gradvine::{
    drive::{Observer, RunError},
    run::{Driven, EndError, Finished, Session, SessionEvent, Whole},
};

use super::{Display, Interrupt};

/// Runs a session: shows its progress, if `speaks` is set, and stops it at Ctrl-C. With
/// `simulated`, it shows virtual time. `drive` is that of [`Session::run`].
///
/// # Errors
/// As [`Session::run`].
pub fn run_session(
    session: Session,
    interrupt: &Interrupt,
    speaks: bool,
    simulated: bool,
    drive: impl FnOnce(&Whole, &mut dyn Observer, &Path) -> Result<Driven, RunError>,
) -> Result<Finished, EndError> {
    interrupt.otherwise_write(session.recorder(), session.directory());
    let rounds = session.whole().design.experiment.run.rounds;
    let display = RefCell::new(Display::new(rounds, speaks, simulated, interrupt));
    let mut show = |event: SessionEvent<'_>| match event {
        SessionEvent::Progress(progress) => display.borrow_mut().show(progress),
        SessionEvent::Resumed { rounds } if speaks => {
            note!("the run continues after round {rounds}");
        }
        _ => {}
    };
    // The results take a while: the bar ends before.
    let drive = |whole: &Whole, observer: &mut dyn Observer, folder: &Path| {
        let driven = drive(whole, observer, folder);
        display.borrow().finish();
        driven
    };
    session.run(&mut show, &|| interrupt.is_set(), drive)
}
