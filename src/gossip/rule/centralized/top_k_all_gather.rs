//! Sparse all-gather: every node sends its largest entries to all and keeps the rest for later.
//!
//! Stich, Cordonnier, Jaggi: Sparsified SGD with Memory (2018), Algorithm 2; Aji, Heafield: Sparse
//! Communication for Distributed Gradient Descent (2017). The baseline of gTop-k and of sketches
//! ("local top-k").
//!
//! The update is that of EF-SGD; the messages differ. `all-to-all`: the entries of each node to
//! all, 2 k numbers n - 1 times. `server`: entries up, and the union of all down, up to min(d, n k)
//! entries, which grows with the number of workers until nothing is saved. Entries are added in
//! ascending order of nodes, so both ways give the same bits. The memory holds lr g: when the step
//! decays, stored errors keep their old weight. State: x, e_i; the sum, on nodes that form it.

use super::gathering;
use crate::{
    compress::{self, COMPRESSORS},
    gossip::rule::prelude::*,
};

/// The constant `collective` of every rule that gathers entries.
pub(super) const COLLECTIVE: (&str, &str) = (
    "collective",
    "\"server\" (node 0, which sends the union down) or \"all-to-all\"; default the first of them \
     whose links exist",
);

pub(crate) const ENTRY: Entry = Entry {
    name: "top-k-all-gather",
    summary: "centralized SGD on everybody's largest entries (local top-k), with error memory",
    paper: "Stich et al. 2018, Sparsified SGD with Memory, Algorithm 2; Aji and Heafield 2017, \
            Sparse Communication for Distributed Gradient Descent",
    update: "p_i = lr g_i + e_i;\n\
             D_i = top_k(p_i);\n\
             e_i = p_i - D_i;\n\
             x' = x - (1/n) sum_i D_i;\n\
             e_i = 0 at first",
    state: "the error memory e_i, the update; the sum, where it is formed",
    sends: "all-to-all: k entries to all; server: k entries up, the union of all, up to min(d, n \
            k) entries, down",
    conditions: "a sparse compressor (such as top-k, random-k) that is a contraction; a server \
                 with links to all, or all links",
    constants: &[COLLECTIVE],
    compresses: true,
    home: "star",
    prepare,
    ..Entry::BLANK
};

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: gathering::Params = config::read("rule", table)?;
    let Some(k) = setting.compressor.most_entries(setting.parameters) else {
        return Err(ConfigError::new(
            "compressor.kind",
            format!("\"{}\"", setting.compressor.name()),
            format!(
                "top-k-all-gather adds up entries of sparse vectors: use one of {}, or the rule \
                 ef-sgd for any compressor",
                sparse_compressors(setting.parameters)
            ),
        ));
    };
    let pattern = gathering::choose(ENTRY.name, &mut params.collective, setting)?;
    let warnings = setting.require_contraction(ENTRY.name)?;
    let (nodes, len) = (setting.topology.nodes(), setting.parameters);
    let down = Format::Sparse { len, most: k.saturating_mul(nodes).min(len) };
    let plan = Collective::after_gradient(pattern, nodes, vec![setting.compressed(), down]);
    Ok(ENTRY.prepared(&params, plan, warnings, move |node, x| {
        let union = Union::new(pattern, nodes, node, x.len());
        TopKAllGather { union, error: vec![0.0; x.len()] }
    }))
}

/// The names of compressors that send entries at their defaults, for an error.
fn sparse_compressors(len: usize) -> String {
    let sends_entries = |entry: &&compress::Entry| {
        let built = (entry.build)(&toml::Table::new());
        built.is_ok_and(|built| built.compressor.most_entries(len).is_some())
    };
    let names = COMPRESSORS.iter().filter(sends_entries).map(|entry| entry.name);
    names.collect::<Vec<_>>().join(", ")
}

struct TopKAllGather {
    union: Union,
    /// e_i, and p_i while it is compressed.
    error: Vec<f32>,
}

impl Party for TopKAllGather {
    fn outgoing(&mut self, _: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        if at.exchange == 0 { out.vector(&self.error) } else { out.entries(self.union.total()) }
    }

    fn sent(&mut self, _: &mut Local, at: &At, _: Option<NodeId>, own: &Payload<'_>) {
        if at.exchange == 0 {
            own.add_into(-1.0, &mut self.error);
            self.union.sent(own);
        }
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

impl Rule for TopKAllGather {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        vector::axpy(1.0, &local.update, &mut self.error);
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        self.union.apply(&mut local.x);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("e_i", &mut self.error);
        visitor.scratch(self.union.scratch());
    }
}
