//! `gradvine plan`

use gradvine::run::Needs;
use gradvine_plan::{Plan, Request};
use gradvine_terminal::{Exit, output_width, print_either};

use super::run_args::Selection;

/// The arguments of `gradvine plan`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine plan --topology topologies/four-regions.toml --set network.compute=measured
  gradvine plan my.toml --set network.preset=4g --compressors min-max:bits=4,top-k:fraction=0.01
  gradvine plan my.toml --topologies ring:8,hypercube:8 --local-steps 1,4,16
  gradvine plan my.toml --rules d-psgd,choco,local-sgd,c-sgd
  gradvine plan --topology topologies/four-regions.toml --links topologies/four-regions-all.toml

Latencies and bandwidths come from the topology file's links, the rest from the experiment's \
                        [network].
Pairs of nodes without a link of their own are as the file of --links says; without one they are \
                        joined
by the way of least latency over known links. Candidates are ordered by the time of the run (as many
gradients as the experiment asks for), as many times longer as a round of their W, times the rule's
gamma where it has one, falls short of agreement between all nodes; how many rounds a target takes
is the data's to say: see compare.")]
pub(crate) struct Args {
    #[command(flatten)]
    select: Selection,
    /// Topologies to look at, on the same nodes [default: the families that fit]
    #[arg(long, value_name = "SPEC,...", value_delimiter = ',')]
    topologies: Vec<String>,
    /// A topology file on the same nodes that says what links between other pairs are like
    #[arg(long, value_name = "FILE")]
    links: Option<String>,
    /// Rules to look at, with constants after colons [default: the experiment's]
    #[arg(long, value_name = "NAME[:KEY=VALUE],...")]
    rules: Option<String>,
    /// Compressors to look at, where the rule compresses [default: identity and min-max of 8, 4 and
    /// 2 bits]
    #[arg(long, value_name = "NAME[:KEY=VALUE],...")]
    compressors: Option<String>,
    /// Gradients of a round to look at
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', default_values_t = [1, 4])]
    local_steps: Vec<u32>,
    /// Only the experiment itself, no candidates
    #[arg(long)]
    alone: bool,
    /// Leave out what the data says (L, sigma, zeta): it computes gradients on all rows
    #[arg(long)]
    no_data: bool,
    /// Print the plan as JSON on standard output, and nothing else there
    #[arg(long)]
    json: bool,
    /// No warnings: only the plan and errors
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let whole = args.select.whole(args.quiet, |_| ())?;
    if !args.no_data {
        let needs = Needs::plan(&whole);
        needs.check(&whole.design, "measuring the data", "leave it out (--no-data), ")?;
    }
    let request = Request {
        topologies: args.topologies.clone(),
        links: args.links.clone(),
        rules: args.rules.clone(),
        compressors: args.compressors.clone(),
        local_steps: args.local_steps.clone(),
        alone: args.alone,
        measures_data: !args.no_data,
    };
    let named = args.select.selection();
    let plan = Plan::of(&whole, &request, &|sets| named.read(sets))?;
    Ok(print_either(args.json, || plan.json(), || plan.text(output_width()))?)
}
