//! Naive compression: D-PSGD on compressed models. It does not converge, and is here to show this.
//!
//! Tang, Gan, Zhang, Zhang, Liu: Communication Compression for Decentralized Training (2018),
//! section 1 and figure 1 show it as the counterexample.
//!
//! The compression error is proportional to |x|, which does not vanish, so no step size makes it
//! converge. State: as D-PSGD cta.

use crate::gossip::rule::{decentralized::d_psgd::Cta, prelude::*};

pub(crate) const ENTRY: Entry = Entry {
    name: "naive",
    summary: "D-PSGD on compressed models; stalls at a level that no step size removes (a \
              negative control)",
    paper: "Tang et al. 2018, Communication Compression for Decentralized Training, figure 1",
    update: "x_i' = sum_j W_ij C(x_j) - lr g_i(x_i)   (j = i included)",
    state: "none",
    sends: "C(x_i)",
    conditions: "none under which it converges, unless C is exact",
    compresses: true,
    follows_schedules: true,
    prepare,
    ..Entry::BLANK
};

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let schedule = Arc::clone(setting.schedule);
    let mut warnings = Vec::new();
    if !setting.is_exact() {
        warnings.push(
            "naive compression stalls at a level that no step size removes; dcd, deep-squeeze and \
             choco do not"
                .to_string(),
        );
    }
    let plan = Gossip::around_gradient(setting.topology, setting.compressed());
    ENTRY.without_constants(table, plan.following(&schedule), warnings, move |node, x| {
        Cta::compressed(&schedule, node, x.len())
    })
}
