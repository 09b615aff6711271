//! Deep Gradient Compression: sparse updates whose momentum is corrected, masked and warmed up.
//!
//! Lin, Han, Mao, Wang, Dally: Deep Gradient Compression: Reducing the Communication Bandwidth for
//! Distributed Training (2018), sections 3.2 and 3.3.
//!
//! Warm-up: in the first `warm_up` rounds the densities are 0.25, 0.0625, 0.015625 and 0.004, each
//! for a quarter of them, and never below the final one. With k = d and masking, u is always g:
//! C-SGD without momentum (Nesterov: with step (1 + m) lr); without masking, C-SGD with momentum.
//! Entries are sent as in [`top-k-all-gather`](super), and are added in ascending order of nodes.
//!
//! DIFFERENCE: u and v hold lr g, not g, because a rule receives lr g; this is the same while the
//! step is constant. When it decays, unsent entries keep their old weight. DIFFERENCE: the
//! densities of the warm-up are stated in rounds: the paper has one per epoch, which a rule does
//! not know. State: x, u_k, v_k; the sum, on nodes that form it.

use super::{gathering, top_k_all_gather};
use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "dgc",
    summary: "centralized SGD on everybody's largest entries, with momentum correction and masking",
    paper: "Lin et al. 2018, Deep Gradient Compression, sections 3.2 and 3.3",
    update: "g_k *= min(1, c N^{-1/2} / |g_k|)   local clipping, c the threshold for the sum\n\
             u_k = m u_k + g_k;\n\
             v_k = v_k + u_k   momentum correction; at first u_k = v_k = 0\n\
             Nesterov:  u_k = m (u_k + g_k);  v_k = v_k + u_k + g_k\n\
             send the k greatest |v_k|, then v_k = 0 and u_k = 0 there (momentum factor masking)\n\
             w' = w - lr (1/N) sum_k sent_k",
    state: "u_k, v_k, the update; the sum, where it is formed",
    sends: "all-to-all: k entries to all; server: k entries up, the union of all, up to min(d, n \
            k) entries, down",
    conditions: "a server with links to all, or all links; the momentum is the rule's: \
                 optimizer.momentum beside it is refused",
    constants: &[
        top_k_all_gather::COLLECTIVE,
        ("k", "how many entries after the warm-up; instead of fraction"),
        (
            "fraction",
            "which part of the vector, above 0, at most 1; default 0.001 (Lin et al. 2018), at \
             least one entry",
        ),
        ("momentum", "m, from 0 to below 1; default 0.9 (Lin et al. 2018)"),
        ("nesterov", "false (default); true: Nesterov's momentum"),
        ("masking", "true (default); false: u_k is kept where entries are sent"),
        (
            "clip",
            "c, the most that the norm of the sum of the gradients should be; default 0: no \
             clipping",
        ),
        (
            "warm_up",
            "rounds in which the density falls; default 0: none (the paper: those of 4 epochs)",
        ),
    ],
    home: "star",
    own_momentum: true,
    needs_step: true,
    prepare,
    ..Entry::BLANK
};

/// Densities of the warm-up.
const DENSITIES: [f64; 4] = [0.25, 0.0625, 0.015_625, 0.004];

params! {
    collective: Option<Kind> = None,
    k: Option<i64> = None,
    fraction: Option<f64> = None,
    momentum: f64 = 0.9,
    nesterov: bool = false,
    masking: bool = true,
    clip: f64 = 0.0,
    warm_up: i64 = 0,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let (nodes, len) = (setting.topology.nodes(), setting.parameters);
    let k = constants::entries(params.k, &mut params.fraction, 0.001, len)?;
    let momentum = constants::momentum(params.momentum)?;
    if params.clip != 0.0 {
        positive("rule.clip", params.clip)?;
    }
    let Ok(warm_up) = u64::try_from(params.warm_up) else {
        return Err(ConfigError::new(
            "rule.warm_up",
            params.warm_up,
            "expected a whole number from 0",
        ));
    };
    let pattern = gathering::choose(ENTRY.name, &mut params.collective, setting)?;
    let densities = Densities {
        warm_up,
        stages: DENSITIES.map(|density| ((density * len as f64).round() as usize).max(k)),
        k,
    };
    let most = densities.of(Round(0));
    let sparse = |most: usize| Format::Sparse { len, most };
    let formats = vec![sparse(most), sparse(most.saturating_mul(nodes).min(len))];
    let (nesterov, masking) = (params.nesterov, params.masking);
    let clip = params.clip / (nodes as f64).sqrt();
    let plan = Collective::after_gradient(pattern, nodes, formats);
    Ok(ENTRY.prepared(&params, plan, Vec::new(), move |node, x| {
        let zeros = vec![0.0; x.len()];
        let (own, union) = (Entries::default(), Union::new(pattern, nodes, node, x.len()));
        let (u, v) = (zeros.clone(), zeros);
        Dgc { momentum, nesterov, masking, clip, densities, union, own, u, v }
    }))
}

/// The number of entries sent in a round.
#[derive(Clone, Copy)]
struct Densities {
    warm_up: u64,
    stages: [usize; DENSITIES.len()],
    k: usize,
}

impl Densities {
    fn of(&self, round: Round) -> usize {
        let stage =
            |stages: usize| u128::from(round.0) * stages as u128 / u128::from(self.warm_up.max(1));
        if round.0 < self.warm_up { self.stages[stage(self.stages.len()) as usize] } else { self.k }
    }
}

struct Dgc {
    /// m.
    momentum: f32,
    nesterov: bool,
    masking: bool,
    /// c N^{-1/2}; 0 for none.
    clip: f64,
    densities: Densities,
    u: Vec<f32>,
    v: Vec<f32>,
    own: Entries,
    union: Union,
}

impl Party for Dgc {
    fn outgoing(&mut self, _: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        if at.exchange > 0 {
            return out.entries(self.union.total());
        }
        self.own.select(&self.v, self.densities.of(at.round))?;
        out.entries(&self.own)
    }

    fn sent(&mut self, _: &mut Local, at: &At, _: Option<NodeId>, own: &Payload<'_>) {
        if at.exchange > 0 {
            return;
        }
        for &index in &self.own.indices {
            self.v[index as usize] = 0.0;
            if self.masking {
                self.u[index as usize] = 0.0;
            }
        }
        self.union.sent(own);
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        self.union.received(at, from, p);
        Ok(())
    }

    fn close(&mut self, _: &mut Local, at: &At) {
        self.union.close(at);
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&SameModel)
    }
}

impl Rule for Dgc {
    fn gradient(&mut self, local: &mut Local, _: Round, step: f32) {
        let mut weight = 1.0;
        if self.clip > 0.0 {
            let (norm, most) =
                (vector::norm_squared(&local.update).sqrt(), self.clip * f64::from(step));
            if norm > most {
                weight = (most / norm) as f32;
            }
        }
        let m = self.momentum;
        for ((u, v), g) in self.u.iter_mut().zip(&mut self.v).zip(&local.update) {
            let g = weight * g;
            if self.nesterov {
                *u = m * (*u + g);
                *v += *u + g;
            } else {
                *u = m * *u + g;
                *v += *u;
            }
        }
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        self.union.apply(&mut local.x);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("u", &mut self.u);
        visitor.vector("v", &mut self.v);
        visitor.scratch(self.union.scratch());
    }
}
