//! gTop-k S-SGD: the global top-k of all nodes' gradients, found by a tree of merges.
//!
//! Shi, Wang, Zhao, Tang, Wang, Huang, Chu: A Distributed Synchronous SGD Algorithm with Global
//! Top-k Sparsification for Low Bandwidth Networks (2019).
//!
//! A binomial tree to node 0 and back: ceil(log2 P) exchanges of at most k entries each way; no
//! node sends more than once upwards. S is the same on all nodes to the bit. For P = 1 and 2 it is
//! the top-k of sum s_i. For more nodes S lacks entries that were dropped in an inner merge, and
//! which these are depends on the order of the nodes.
//!
//! DIFFERENCE: `residual = "conserving"`, the default, is ours. The authors' rule, `"published"`,
//! loses an entry of i that was dropped on its way if the same index arrived from another part of
//! the tree: i assumes that its entry was applied. It is exact for P <= 2. With `"conserving"` the
//! node that drops an entry keeps it. This needs no extra message, and then sum acc = S + sum e for
//! any P.
//!
//! DIFFERENCE: any number of nodes (a node without a partner skips a level); a power of two is not
//! needed. The memory holds lr g: when the step decays, stored errors keep their old weight. State:
//! x, e_i, a few lists of k entries.

use crate::gossip::{collective::levels, rule::prelude::*};

pub(crate) const ENTRY: Entry = Entry {
    name: "g-top-k",
    summary: "centralized SGD on the global top-k, merged up a tree and sent down again",
    paper: "Shi et al. 2019, A Distributed Synchronous SGD Algorithm with Global Top-k \
            Sparsification for Low Bandwidth Networks",
    update: "acc_i = lr g_i + e_i;\n\
             s_i = top_k(acc_i);\n\
             S = merges of the s_i up a tree, a T b = top_k(a + b);\n\
             x' = x - (1/P) S;\n\
             e_i = 0 at first\n\
             conserving:  e_i = acc_i - s_i + what the merges that i performed dropped\n\
             published:   e_i = acc_i, but 0 where s_i has an entry and S has one",
    state: "the residual e_i, the update",
    sends: "at most k entries up once, and S to at most log2 P others, in 2 ceil(log2 P) exchanges",
    conditions: "the links of a binomial tree (complete:n, hypercube:n); residual = \"published\" \
                 loses gradient for more than 2 nodes",
    constants: &[
        ("k", "how many entries; instead of fraction"),
        (
            "fraction",
            "which part of the vector, above 0, at most 1; default 0.001 (Shi et al. 2019), at \
             least one entry",
        ),
        (
            "residual",
            "\"conserving\" (default): who drops an entry keeps it; \"published\": the authors' \
             rule",
        ),
    ],
    home: "complete",
    prepare,
    ..Entry::BLANK
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Residual {
    #[default]
    Conserving,
    Published,
}

params! {
    k: Option<i64> = None,
    fraction: Option<f64> = None,
    residual: Residual = Residual::default(),
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let (topology, len) = (setting.topology, setting.parameters);
    let k = constants::entries(params.k, &mut params.fraction, 0.001, len)?;
    if let Some((a, b)) = Pattern::Tree.missing(topology) {
        let (name, a, b) = (topology.name(), &topology.node(a).name, &topology.node(b).name);
        let problem = format!(
            "`{name}` has no link {a} - {b}; g-top-k merges up a binomial tree, in which node i \
             meets i - 2^r for the lowest set bit r of i: use \
             complete:n or hypercube:n"
        );
        return Err(ConfigError::at("rule", problem));
    }
    let (nodes, published) = (topology.nodes(), params.residual == Residual::Published);
    let format = Format::Sparse { len, most: k };
    let plan = Collective::after_gradient(Pattern::Tree, nodes, vec![format]);
    Ok(ENTRY.prepared(&params, plan, Vec::new(), move |_, x| {
        let zeros = vec![0.0; x.len()];
        let [merged, theirs, sum, own] =
            [const { Entries { indices: Vec::new(), values: Vec::new() } }; 4];
        let (wrong, residual) = (None, zeros);
        GTopK { k, nodes, published, residual, merged, theirs, sum, own, wrong }
    }))
}

struct GTopK {
    k: usize,
    /// P.
    nodes: usize,
    published: bool,
    /// e_i.
    residual: Vec<f32>,
    /// s_i, then what has been merged with it, then S.
    merged: Entries,
    theirs: Entries,
    sum: Entries,
    /// s_i, kept for the published rule only.
    own: Entries,
    /// The error if s_i could not be selected.
    wrong: Option<NonFinite>,
}

impl Party for GTopK {
    fn outgoing(&mut self, _: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        self.wrong.map_or(Ok(()), Err)?;
        out.entries(&self.merged)
    }

    fn received(&mut self, local: &mut Local, at: &At, _: NodeId, p: &Payload<'_>) -> Received {
        let theirs = &mut self.theirs;
        theirs.clear();
        p.entries(local.x.len(), &mut |index, value| theirs.push(index, value));
        if usize::from(at.exchange) >= levels(self.nodes) {
            std::mem::swap(&mut self.merged, theirs);
            return Ok(());
        }
        self.sum.sum(&self.merged, theirs);
        let (residual, published) = (&mut self.residual, self.published);
        self.sum.keep(self.k, |index, dropped| {
            if !published {
                residual[index as usize] += dropped;
            }
        });
        std::mem::swap(&mut self.merged, &mut self.sum);
        Ok(())
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&SameModel)
    }
}

impl Rule for GTopK {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        vector::axpy(1.0, &local.update, &mut self.residual);
        self.wrong = self.merged.select(&self.residual, self.k).err();
        for (index, _) in self.merged.iter() {
            self.residual[index as usize] = 0.0;
        }
        if self.published {
            self.own.clone_from(&self.merged);
        }
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        if let Some(NonFinite { index, value }) = self.wrong {
            // A single node encodes nothing, so no error was reported yet: x gets the value.
            local.x[index] = value;
        }
        self.merged.add_into(-1.0 / self.nodes as f32, &mut local.x);
        if self.published {
            let mut applied = self.merged.indices.iter().copied().peekable();
            for (index, value) in self.own.iter() {
                while applied.next_if(|applied| *applied < index).is_some() {}
                if applied.peek() != Some(&index) {
                    self.residual[index as usize] = value;
                }
            }
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("e_i", &mut self.residual);
    }
}
