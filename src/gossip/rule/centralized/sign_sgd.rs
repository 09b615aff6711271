//! signSGD with majority vote: one bit per number each way, without error memory.
//!
//! Bernstein, Wang, Azizzadenesheli, Anandkumar: signSGD: Compressed Optimisation for Non-Convex
//! Problems (2018), Algorithm 3; Bernstein, Zhao, Azizzadenesheli, Anandkumar: signSGD with
//! Majority Vote is Communication Efficient and Fault Tolerant (2019), Algorithm 1.
//!
//! With momentum in the optimizer it is Signum. sign(0) = +1, in votes and in the count: one bit
//! cannot represent zero, and a tie of an even number of nodes is a step down. It converges only to
//! within about lr sqrt(d), and with heterogeneous data not to the minimum: a majority is not a
//! mean. State: the votes, on nodes that count.

use super::{
    compressed_c_sgd,
    gathering::{self, Gathered, Gathers},
};
use crate::{compress, gossip::rule::prelude::*};

pub(crate) const ENTRY: Entry = Entry {
    name: "sign-sgd",
    summary: "signs of the gradients up, the sign of their majority down",
    paper: "Bernstein et al. 2018, signSGD: Compressed Optimisation for Non-Convex Problems, \
            Algorithm 3",
    update: "x' = x - lr sign(sum_i sign(g_i))",
    state: "the votes, where they are counted",
    sends: "d bits up and d bits down; all-to-all: d bits to all",
    conditions: "a server with links to all, or all links; a small step, 0.002 to 0.005 where \
                 that of C-SGD is 0.2, because each number moves by a whole step whatever its \
                 gradient; biased where the nodes' data differ",
    constants: &[compressed_c_sgd::COLLECTIVE],
    home: "star",
    step_advice: Some((MOST_STEP, SUITS)),
    needs_step: true,
    counts_nodes: true,
    prepare,
    ..Entry::BLANK
};

/// Larger steps give a warning: a model's parameters are of the order of 0.1, and some gradients
/// always have the wrong sign.
const MOST_STEP: f64 = 0.01;

/// Results of the default experiment on a star with a cosine schedule: 74% at a step of 0.2, 90 at
/// 0.02, 92 at 0.01, 94 from 0.005 to 0.001.
const SUITS: &str =
    "steps from 0.002 to 0.005 suit the default experiment, whose accuracy falls to 74% at 0.2";

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: gathering::Params = config::read("rule", table)?;
    let pattern = gathering::choose(ENTRY.name, &mut params.collective, setting)?;
    // The scale of a vector of +1 and -1 is 1, so the payload is the signs, after four bytes.
    let signs = toml::Table::from_iter([
        ("kind".to_string(), toml::Value::from("sign")),
        ("bucket".to_string(), toml::Value::from(0)),
    ]);
    let format =
        Format::Compressed { by: compress::build(&signs)?.compressor, len: setting.parameters };
    let nodes = setting.topology.nodes();
    let plan = Collective::after_gradient(pattern, nodes, vec![format.clone()]);
    Ok(ENTRY.prepared(&params, plan, Vec::new(), move |node, x| {
        let gather = Gather::sum(pattern, node, format.clone(), x.len());
        Gathered { rule: SignSgd { step: 0.0 }, gather }
    }))
}

struct SignSgd {
    /// lr of this round.
    step: f32,
}

/// +1 or -1 for each number; +1 for zeros of either sign.
fn to_signs(v: &mut [f32]) {
    for v in v {
        *v = if *v < 0.0 { -1.0 } else { 1.0 };
    }
}

impl Gathers for SignSgd {
    fn gradient(&mut self, _: &mut Local, step: f32) {
        self.step = step;
    }

    fn vector<'a>(&'a mut self, local: &'a mut Local) -> Result<&'a [f32], NonFinite> {
        if let Some(wrong) = NonFinite::first_in(&local.update) {
            return Err(wrong);
        }
        to_signs(&mut local.update);
        Ok(&local.update)
    }

    fn direct(&self, votes: &mut [f32]) {
        to_signs(votes);
    }

    fn step(&self) -> f32 {
        self.step
    }
}
