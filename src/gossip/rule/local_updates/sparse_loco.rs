//! SparseLoCo: local steps, then the mean of their compressed changes; the memory of what was not
//! sent takes the place of DiLoCo's outer momentum.
//!
//! Sarfi, Therien, Lidin, Belilovsky: Communication Efficient LLM Pre-training with SparseLoCo
//! (2025). The paper's abstract and summaries of its algorithm were at hand, not the paper.
//!
//! A coordinate waits in the memory until its sum is among the largest, and is then sent whole: it
//! moves by many rounds' changes at once, as with momentum. With beta = alpha = 1 this is EF-SGD on
//! the changes.
//!
//! DIFFERENCE: C is any compressor that is a contraction; the authors' is `chunked-top-k`.
//! DIFFERENCE: all-to-all, as the authors' all-gather, or a server that sends the dense mean back.
//! With neighbours only, `choco` with the same compressor remembers what was not sent as the
//! difference between a model and its replicas.
//! State: e_i; the mean on nodes that add.

use crate::gossip::rule::{centralized::ef_sgd::EfSgd, prelude::*};

/// The constant `collective` of this rule and of `streaming-diloco`.
pub(super) const COLLECTIVE: (&str, &str) = (
    "collective",
    "\"all-to-all\" (default where all links exist; everybody adds up) or \"server\" (node 0: up, \
     then the dense mean down)",
);

pub(crate) const ENTRY: Entry = Entry {
    name: "sparse-loco",
    summary: "H local steps, then the mean of everybody's compressed changes, with a memory that \
              decays in place of an outer momentum",
    paper: "Sarfi et al. 2025, Communication Efficient LLM Pre-training with SparseLoCo",
    update: "u_i = x - y_i, y_i = x after H local steps;\n\
             e_i = beta e_i + u_i;\n\
             D_i = C(e_i);\n\
             e_i = e_i - D_i;\n\
             x' = x - alpha (1/n) sum_i D_i;\n\
             e_i = 0 at first",
    state: "the error memory e_i; the mean, where it is formed",
    sends: "all-to-all: D_i to all; server: D_i up and the mean, dense, down",
    conditions: "a contraction (nominal delta > 0); all links, or a server with links to all",
    constants: &[
        (
            "decay",
            "beta, what is kept of the memory in a round; default 0.95, the authors'; 1 forgets \
             nothing",
        ),
        ("outer_step", "alpha; default 1, the mean change as it is"),
        COLLECTIVE,
    ],
    compresses: true,
    home: "star",
    prepare,
    ..Entry::BLANK
};

params! {
    decay: f64 = 0.95,
    outer_step: f64 = 1.0,
    collective: Option<Kind> = None,
}

/// The pattern of a rule whose vectors are cheap to send to all and dear to send back.
pub(super) fn choose(
    rule: &str,
    wish: Option<Kind>,
    setting: &Setting<'_>,
) -> Result<(Kind, Pattern), ConfigError> {
    let is_complete = || Pattern::AllToAll.missing(setting.topology).is_none();
    let wish = wish.or_else(|| is_complete().then_some(Kind::AllToAll));
    Pattern::choose(rule, wish, None, &[Kind::Server, Kind::AllToAll], setting.topology)
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let decay = params.decay;
    if !(0.0..=1.0).contains(&decay) {
        return Err(ConfigError::new("rule.decay", decay, "expected a number from 0 to 1"));
    }
    params.decay = nine_digits(decay);
    params.outer_step = nine_digits(positive("rule.outer_step", params.outer_step)?);
    let (decay, step) = (params.decay as f32, params.outer_step as f32);
    let (kind, pattern) = choose(ENTRY.name, params.collective, setting)?;
    params.collective = Some(kind);
    let warnings = setting.require_contraction(ENTRY.name)?;
    let (nodes, format) = (setting.topology.nodes(), setting.compressed());
    let frames = vec![format.clone(), setting.dense()];
    let plan = Collective::after_gradient(pattern, nodes, frames);
    Ok(ENTRY.prepared(&params, plan, warnings, move |node, x| {
        let gather = Gather::new(pattern, nodes, node, format.clone(), x.len());
        EfSgd::rule(gather, decay, step, x.len())
    }))
}
