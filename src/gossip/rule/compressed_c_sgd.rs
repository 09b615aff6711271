//! Compressed C-SGD: centralized SGD on compressed gradients, without memory of what was lost.
//!
//! Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD: Communication-Efficient SGD via Gradient
//! Quantization and Encoding (2017), Algorithm 1 (single); Tang, Yu, Lian, Zhang, Liu:
//! DoubleSqueeze (2019) discusses both as its predecessors. With `qsgd` this is QSGD, with
//! `ternary` TernGrad (Wen et al. 2017), with `one-bit` 1-bit SGD without its memory.
//!
//! ```text
//! single:  x' = x - (1/n) sum_i C(u_i)                u_i = lr g_i
//! double:  x' = x - C((1/n) sum_i C(u_i))
//! ```
//! Single: everybody sends to everybody (all-to-all), or a server sends the exact mean back.
//! Double: a server compresses it again. An unbiased C only adds noise; a biased one changes what
//! is minimised, which is why it warns. DIFFERENCE: C is applied to lr g_i rather than to g_i. The
//! same, up to the rounding of `f32`, for every C with C(a v) = a C(v), a > 0: all here but f16,
//! bf16 and truncate, which cut digits at powers of two. For bf16 and truncate the error of each
//! number stays below the same part of it, whatever the step, so the stated class holds for lr g_i
//! as for g_i; only which numbers are rounded by how much differs. f16 also loses numbers below
//! 3e-8, which lr g_i is sooner than g_i. With a step that is a power of two bf16 and truncate give
//! the same bits too. State: the mean, where this node adds up.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entry, Prepared, Rule, Setting};
use crate::{
    compress::{Class, Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        collective::{Collective, Gather, Kind, Pattern},
        party::{Party, Writer},
        plan::At,
    },
    units::{NodeId, Round},
};

/// What every rule that gathers compressed vectors says of its collective.
pub(super) const COLLECTIVE: (&str, &str) = (
    "collective",
    "\"server\" (node 0: up, then down) or \"all-to-all\" (everybody adds up); default the first \
     whose links exist",
);

pub(super) const ENTRY: Entry = Entry {
    name: "compressed-c-sgd",
    summary: "centralized SGD on compressed gradients, single or double, without error memory \
              (QSGD, TernGrad)",
    paper: "Alistarh et al. 2017, QSGD, Algorithm 1; Wen et al. 2017, TernGrad, Algorithm 1",
    update: "x' = x - lr (1/n) sum_i C(g_i); double: x' = x - lr C((1/n) sum_i C(g_i))",
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

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    #[serde(skip_serializing_if = "Option::is_none")]
    collective: Option<Kind>,
    double: bool,
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
    Ok(Prepared {
        plan: Arc::new(Collective::after_gradient(pattern, nodes, vec![format.clone(), down])),
        resolved: config::resolved(ENTRY.name, &params),
        warnings,
        spawn: Box::new(move |node, x| {
            let gather = Gather::new(pattern, nodes, node, format.clone(), x.len());
            Box::new(Compressed {
                all: pattern == Pattern::AllToAll,
                gather,
                spare: vec![0.0; x.len()],
                x,
            })
        }),
    })
}

struct Compressed {
    all: bool,
    x: Vec<f32>,
    gather: Gather,
    /// The update.
    spare: Vec<f32>,
}

impl Party for Compressed {
    fn outgoing(
        &mut self,
        at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        out.vector(if at.exchange == 0 { &self.spare } else { self.gather.mean() })
    }

    fn sent(&mut self, at: &At, _to: Option<NodeId>, own: &Payload<'_>) {
        if at.exchange == 0 {
            return self.gather.sent(own);
        }
        // The server takes the step that it tells the others.
        own.add_into(-1.0, &mut self.x);
        self.gather.mean().fill(0.0);
    }

    fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        if at.exchange == 0 {
            self.gather.received(from, payload);
        } else {
            payload.add_into(-1.0, &mut self.x);
        }
        Ok(())
    }

    fn land(&mut self, _at: &At) {
        if self.all {
            self.gather.apply(1.0, &mut self.x);
        }
    }

    fn replica(&self, _of: Option<NodeId>) -> Option<&[f32]> {
        Some(&self.x)
    }
}

impl Rule for Compressed {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, _round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        (self.x, self.spare) = (x, update);
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        2 + self.gather.vectors()
    }
}
