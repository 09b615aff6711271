//! The results of a run on standard output.

use std::path::Path;

use gradvine::run::{Summary, Whole};
use gradvine_report::{NextSteps, program_name, table};
use gradvine_terminal::{Exit, output_width, print_json, print_results};

use super::run_args::RunArgs;

/// Prints a summary as JSON, as a table, or not at all, depending on the arguments. `tree_bytes`:
/// those that formed the mean, or 0. A run that fell short ends the command with an error.
pub(super) fn show(
    args: &RunArgs,
    whole: &Whole,
    folder: &Path,
    summary: &Summary,
    tree_bytes: u64,
    command: &str,
) -> Result<(), Exit> {
    if args.json {
        print_json(summary)?;
    }
    if args.speaks() {
        let steps = NextSteps {
            whole,
            summary,
            folder,
            simulated: command == "simulate",
            from_file: args.select.experiment.is_some(),
            again_with: &|set| args.select.again(command, Some(set)),
            program: &program_name(std::env::args().next()),
        };
        // A run that is repeated writes its summary alone.
        let next = match folder.join("model-mean.safetensors").exists() {
            true => steps.text() + "\n",
            false => String::new(),
        };
        let table = table(summary, tree_bytes, output_width());
        let folder = folder.display();
        print_results(&format!("{table}\nrun directory    {folder}\n{next}"));
    }
    let experiment = &whole.design.experiment;
    if command == "simulate" && !experiment.network.absent.is_empty() {
        // Nodes were away as the experiment says.
        return Ok(());
    }
    Ok(summary.check_participation(&experiment.run)?)
}
