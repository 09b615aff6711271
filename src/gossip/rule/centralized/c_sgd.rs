//! C-SGD: centralized, synchronous stochastic gradient descent; one model, the same on all nodes.
//!
//! The mean is formed by a [collective](crate::gossip::collective): a parameter server (Li et al.
//! 2014, Scaling Distributed Machine Learning with the Parameter Server; node 0 serves and also
//! works), ring all-reduce (Patarasu, Yuan 2009, Bandwidth Optimal All-reduce Algorithms for
//! Clusters of Workstations), all-to-all, or rings in groups with a server between them. Every node
//! ends with the same bits. State: x and the sum; all-to-all one vector more.
//!
//! With `layers = true` backpropagation waits for no exchange (Zhang, Zheng, Xu, Dai, Ho, Liang,
//! Hu, Wei, Xie, Xing 2017, Poseidon: An Efficient Communication Architecture for Distributed Deep
//! Learning on GPU Clusters, section 3.1, wait-free backpropagation; Shi, Chu, Li 2019, MG-WFBP:
//! Efficient Data Communication for Distributed Synchronous SGD Algorithms). Layers l = L, ..., 1
//! in the order in which their gradients are complete, each in its own flight:
//!
//! ```text
//! u_i(l) = lr g_i(l);   sum_i u_i(l) in flight while g_i(l - 1), ..., g_i(1) are computed;   x'(l) = x(l) - (1/n) sum_i u_i(l)
//! ```
//! The numbers are those of the whole sum. With server and all-to-all they are equal to the bit;
//! rings add in another order, because each layer is cut into its own chunks. With local steps only
//! the last step's gradient comes by layers; with a batch of several blocks of rows only the last
//! block's. State: one vector more, because the update is still written while layers are sent.
//! DIFFERENCE: the choice between a server and factors of the gradient for each layer (Poseidon's
//! hybrid communication) and the merging of small layers by measured times (MG-WFBP, Algorithm 1)
//! are not implemented: what is sent must not depend on clocks. A layer is a matrix with its
//! biases; of more than 200 some share a flight.

use std::ops::Range;

use crate::gossip::{
    collective::{Layered, layers},
    rule::{
        prelude::*,
        summed::{Mean, Summed},
    },
};

/// The constant `collective` of every rule with an exact mean.
pub(crate) const COLLECTIVE: (&str, &str) = (
    "collective",
    "\"ring\", \"server\" (node 0), \"all-to-all\" or \"hybrid\" (with `group`); default the \
     first of ring, server, all-to-all whose links exist",
);

pub(crate) const GROUP: (&str, &str) =
    ("group", "nodes of a group; required by collective = \"hybrid\", a divisor of n");

pub(crate) const ALL: &[Kind] = &[Kind::Ring, Kind::Server, Kind::AllToAll, Kind::Hybrid];

pub(crate) const ENTRY: Entry = Entry {
    name: "c-sgd",
    summary: "centralized SGD: one model, the exact mean gradient by a server or an all-reduce",
    paper: "Li et al. 2014, Scaling Distributed Machine Learning with the Parameter Server; \
            Patarasu and Yuan 2009, Bandwidth Optimal All-reduce Algorithms",
    update: "x' = x - lr (1/n) sum_i g_i(x)",
    state: "the sum; with layers the update beside it",
    sends: "server: d numbers up and d down; ring: 2 (n - 1)/n d numbers in 2 (n - 1) exchanges; \
            all-to-all: d numbers; with layers as many, in messages for each layer",
    conditions: "the links of the collective; the weights of W play no part",
    constants: &[
        COLLECTIVE,
        GROUP,
        (
            "layers",
            "true: each layer's sum leaves while the gradient of the layers before it is \
             computed; default false: more messages pay only where links are slow",
        ),
    ],
    home: "ring",
    prepare,
    ..Entry::BLANK
};

params! {
    struct OwnParams {
        collective: Option<Kind> = None,
        group: Option<usize> = None,
        layers: bool = false,
    }
}

params! {
    /// The constants of every rule with an exact mean.
    pub(crate) struct Params {
        pub(crate) collective: Option<Kind> = None,
        pub(crate) group: Option<usize> = None,
    }
}

impl Params {
    pub(crate) fn choose(
        &mut self,
        rule: &str,
        setting: &Setting<'_>,
    ) -> Result<Pattern, ConfigError> {
        let (kind, pattern) =
            Pattern::choose(rule, self.collective, self.group, ALL, setting.topology)?;
        self.collective = Some(kind);
        Ok(pattern)
    }
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: OwnParams = config::read("rule", table)?;
    let mut chosen = Params { collective: params.collective, group: params.group };
    let pattern = chosen.choose(ENTRY.name, setting)?;
    params.collective = chosen.collective;
    let nodes = setting.topology.nodes();
    if params.layers {
        return Ok(by_layers(pattern, &params, setting));
    }
    let plan = Collective::sum(pattern, nodes, setting.parameters, 0, 1);
    Ok(ENTRY.prepared(&params, plan, Vec::new(), move |node, x| Summed {
        mean: CSgd,
        sum: Sum::of_updates(pattern, nodes, node, x.len()),
    }))
}

fn by_layers(pattern: Pattern, params: &OwnParams, setting: &Setting<'_>) -> Prepared {
    let nodes = setting.topology.nodes();
    let layers = layers(setting.shapes);
    assert_eq!(layers[0].end, setting.parameters, "the shapes are those of the model's tensors");
    let alone = "rule.layers: this model has one layer, so that nothing is sent while its \
                 gradient is computed";
    let plan: Arc<dyn Plan> = Arc::new(Layered::sum(pattern, nodes, &layers));
    Prepared {
        plan,
        resolved: config::resolved(ENTRY.name, params),
        warnings: if layers.len() == 1 { vec![alone.into()] } else { Vec::new() },
        relaxation: 1.0,
        least_neighbours: 0,
        spawn: Arc::new(move |node, _| {
            let layer = |range: &Range<usize>| Layer {
                range: range.clone(),
                sum: Sum::new(pattern, nodes, node, range.len()),
            };
            Box::new(ByLayers { layers: layers.iter().map(layer).collect() })
        }),
    }
}

struct CSgd;

impl Mean for CSgd {
    const SAME_MODEL: bool = true;

    fn land(&mut self, local: &mut Local, sum: &mut Sum) {
        vector::subtract(sum.mean(), &mut local.x);
        std::mem::swap(&mut local.update, sum.start());
    }
}

struct Layer {
    /// The layer's range in x.
    range: Range<usize>,
    sum: Sum,
}

/// C-SGD with a flight for each layer.
struct ByLayers {
    /// The last one first.
    layers: Vec<Layer>,
}

impl ByLayers {
    fn layer(&mut self, at: &At) -> &mut Layer {
        &mut self.layers[usize::from(at.flight)]
    }
}

impl Party for ByLayers {
    fn outgoing(&mut self, _: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        let Layer { range, sum } = self.layer(at);
        sum.outgoing(at.exchange, out)
            .map_err(|error| NonFinite { index: range.start + error.index, ..error })
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        self.layer(at).sum.received(at.exchange, from, p);
        Ok(())
    }

    fn close(&mut self, _: &mut Local, at: &At) {
        self.layer(at).sum.close(at.exchange);
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&SameModel)
    }
}

impl Parts for ByLayers {
    fn lend(&mut self, part: u8) -> Vec<f32> {
        std::mem::take(self.layers[usize::from(part)].sum.start())
    }

    fn take(&mut self, _: Round, part: u8, values: Vec<f32>) {
        *self.layers[usize::from(part)].sum.start() = values;
    }
}

impl Rule for ByLayers {
    fn gradient(&mut self, _: &mut Local, _: Round, _: f32) {}

    /// Changes nothing before all layers have arrived: until then frames carry digests of the x at
    /// which they were computed.
    fn land(&mut self, local: &mut Local, at: &At) {
        if usize::from(at.flight) + 1 == self.layers.len() {
            for Layer { range, sum } in &self.layers {
                vector::subtract(sum.mean(), &mut local.x[range.clone()]);
            }
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.scratch(self.layers.iter().map(|layer| layer.sum.scratch()).sum());
    }

    fn parts(&mut self) -> Option<&mut dyn Parts> {
        Some(self)
    }
}
