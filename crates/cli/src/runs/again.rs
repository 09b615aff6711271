//! A run whose members changed, repeated in the simulator.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use gradvine::{
    drive::Observer,
    faults::repeat,
    run::{Driven, Finished, Session, Summary, Whole, difference, history_of},
};
use gradvine_terminal::{Exit, Interrupt, run_session, warnings};

use super::{outcome, run_args::RunArgs};

/// Repeats a run that ended after so many rounds, and whose members may have changed, and compares
/// the digests. Returns its run directory.
pub(super) fn run_again(
    args: &RunArgs,
    expected: &Summary,
    path: &Path,
    interrupt: &Interrupt,
) -> Result<PathBuf, Exit> {
    let whole = args.whole()?;
    let history = history_of(expected, &whole.design);
    let history = history.map_err(|error| error.within(path.display()))?;
    let session = Session::new(Arc::clone(&whole), args.directory(&whole)?, warnings());
    let session = session.without_baseline();
    let drive = |whole: &Whole, watch: &mut dyn Observer, _: &Path| {
        let mut story = repeat(whole, &history, Some(expected.rounds), watch)?;
        story.take_results(&whole.design.topology).map(Driven::from)
    };
    let finished = run_session(session, interrupt, args.speaks(), true, drive)?;
    let Finished { summary, tree_bytes, directory, .. } = &finished;
    match outcome::show(args, &whole, directory, summary, *tree_bytes, "simulate") {
        // It is as complete as the run that it repeats.
        Ok(()) | Err(Exit::Short(_)) => {}
        Err(error) => return Err(error),
    }
    finished.check_complete()?;
    match difference(summary, expected, path) {
        None => Ok(finished.directory),
        Some(why) => Err(Exit::Disagrees(why)),
    }
}
