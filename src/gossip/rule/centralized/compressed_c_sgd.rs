//! Compressed C-SGD: centralized SGD on compressed gradients, without error memory.
//!
//! Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD: Communication-Efficient SGD via Gradient
//! Quantization and Encoding (2017), Algorithm 1 (single); Tang, Yu, Lian, Zhang, Liu:
//! DoubleSqueeze (2019) discusses both as its predecessors. With `qsgd` this is QSGD, with
//! `ternary` TernGrad (Wen et al. 2017), with `one-bit` 1-bit SGD without its memory.
//!
//! Single: every node sends to every node (all-to-all), or a server sends the exact mean back.
//! Double: a server compresses the mean again. An unbiased C only adds noise; a biased one changes
//! the minimum, so it gives a warning. DIFFERENCE: C is applied to lr g_i rather than to g_i. This
//! is the same, up to the rounding of `f32`, for every C with C(a v) = a C(v), a > 0: all here but
//! f16, bf16 and truncate, which cut digits at powers of two. For bf16 and truncate the relative
//! error of each number has the same bound at any step, so the stated class holds for lr g_i as for
//! g_i; only the rounding of single numbers differs. f16 also loses numbers below 3e-8, and lr g_i
//! is sooner below that than g_i. With a step that is a power of two bf16 and truncate give the
//! same bits too. State: the mean, on nodes that add.

use super::gathering::{Gathered, Gathers};
use crate::{compress::Class, gossip::rule::prelude::*};

/// The constant `collective` of every rule that gathers compressed vectors.
pub(super) const COLLECTIVE: (&str, &str) = (
    "collective",
    "\"server\" (node 0: up, then down) or \"all-to-all\" (everybody adds up); default the first \
     whose links exist",
);

pub(crate) const ENTRY: Entry = Entry {
    name: "compressed-c-sgd",
    summary: "centralized SGD on compressed gradients, single or double, without error memory \
              (QSGD, TernGrad)",
    paper: "Alistarh et al. 2017, QSGD, Algorithm 1; Wen et al. 2017, TernGrad, Algorithm 1",
    update: "single:  x' = x - (1/n) sum_i C(u_i)   u_i = lr g_i\n\
             double:  x' = x - C((1/n) sum_i C(u_i))",
    state: "the mean, where it is formed",
    sends: "C(g_i) up; down the mean, dense (single) or compressed (double); all-to-all: C(g_i) \
            to all",
    conditions: "an unbiased C (a biased one stalls); a server with links to all, or all links",
    constants: &[
        COLLECTIVE,
        (
            "double",
            "false (default); true: the server compresses the mean again, which needs a server",
        ),
    ],
    compresses: true,
    home: "star",
    prepare,
    ..Entry::BLANK
};

params! {
    collective: Option<Kind> = None,
    double: bool = false,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let allowed: &[Kind] =
        if params.double { &[Kind::Server] } else { &[Kind::Server, Kind::AllToAll] };
    let name = if params.double { "compressed-c-sgd with double = true" } else { ENTRY.name };
    let (kind, pattern) =
        Pattern::choose(name, params.collective, None, allowed, setting.topology)?;
    params.collective = Some(kind);
    let mut warnings = Vec::new();
    if let Class::Contraction { delta } = setting.compressor.class(setting.parameters)
        && delta < 1.0
    {
        warnings.push(format!(
            "`{}` is biased: without error memory C-SGD then stalls away from the minimum; ef-sgd \
             and double-squeeze keep what is lost",
            setting.compressor.name()
        ));
    }
    let (nodes, format) = (setting.topology.nodes(), setting.compressed());
    let down = if params.double { setting.compressed() } else { setting.dense() };
    let plan = Collective::after_gradient(pattern, nodes, vec![format.clone(), down]);
    Ok(ENTRY.prepared(&params, plan, warnings, move |node, x| {
        let gather = Gather::new(pattern, nodes, node, format.clone(), x.len());
        Gathered { rule: CompressedCSgd, gather }
    }))
}

struct CompressedCSgd;

impl Gathers for CompressedCSgd {
    fn step(&self) -> f32 {
        1.0
    }
}
