//! The arguments of the command.

use crate::runs::run_args::{self, RunArgs};

/// The default of `--rounds`: at a third of a second each, a quarter of a minute.
pub(super) const ROUNDS: u64 = 40;

/// The arguments of `gradvine lab`
#[derive(clap::Args, Debug)]
#[command(
    mut_arg("no_baseline", |arg| arg.hide(true)),
    mut_arg("rounds", |arg| arg.help("Number of rounds [default: 40, not the experiment's]")),
    mut_arg("out", |arg| arg.help("Keep the nodes' run directories here, with lab.json [default: \
                                   none are kept]")),
    mut_arg("json", |arg| arg.help("Print lab.json on standard output, and nothing else there")),
    after_help = "\
Examples:
  gradvine lab --topology topologies/four-regions.toml
  gradvine lab my.toml --topology topologies/four-regions.toml --transport quic --rounds 100
  gradvine lab --topology topologies/four-regions.toml --congestion cubic --set model.hidden=[13500]
  gradvine lab --topology path:2 --set network.latency_ms=70 --set network.bandwidth_mbps=20 \
  --set network.loss=0.001
  gradvine lab --topology topologies/four-regions.toml --cut london-tokyo@5s+3s

It starts one unmodified `gradvine node` process per node, each in a network namespace of its own,
and carries their packets over links with the latencies and rates of the topology file, or else of
[network]: queues, latency, jitter and loss act on each IP packet. Then it prints the predicted, the
simulated and the measured times. Linux only; needs root, /dev/net/tun and `ip` (iproute2).
docs/laboratory.md explains the figures."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Transport between nodes [default: the experiment's run.transport]
    #[arg(long, value_name = "NAME", value_parser = ["tcp", "quic"])]
    pub(super) transport: Option<String>,
    /// TCP's congestion controller, if the kernel has it: cubic, bbr, reno [default: the system's];
    /// run.congestion in the experiment overrides it
    #[arg(long, value_name = "NAME")]
    pub(super) congestion: Option<String>,
    /// Rounds to leave out of the figures, while TCP finds its window
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = run_args::from_0)]
    pub(super) warm: u64,
    /// Cut a link for some time, in seconds after the start of the nodes; may be repeated
    #[arg(long, value_name = "NODE-NODE@BEGIN+FOR")]
    pub(super) cut: Vec<String>,
    /// Let packets overtake each other if there is jitter
    #[arg(long)]
    pub(super) reorder: bool,
    /// A kernel setting of every node's namespace, such as net.ipv4.tcp_slow_start_after_idle=0;
    /// may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) sysctl: Vec<String>,
}
