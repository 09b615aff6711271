//! D-PSGD: mix with the neighbours, then step along the node's own gradient.
//!
//! Lian, Zhang, Zhang, Hsieh, Zhang, Liu: Can Decentralized Algorithms Outperform Centralized
//! Algorithms? (2017), Algorithm 1. Two orders are in use under this name, `atc` and `cta`; they
//! are different sequences.
//!
//! On a schedule W is the matrix W_t of the round: no state of earlier rounds depends on the
//! neighbours, so they may change. State: x, one accumulator; cta keeps the update apart while
//! frames are added (one vector more).

use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "d-psgd",
    summary: "mix whole models with the neighbours, step along the own gradient",
    paper: "Lian et al. 2017, Can Decentralized Algorithms Outperform Centralized Algorithms?, \
            Algorithm 1",
    update: "cta (Algorithm 1: combine, adapt):  x_i' = sum_j W_ij x_j - lr g_i(x_i)\n\
             atc (adapt, combine):  z_i  = x_i - lr g_i(x_i);  x_i' = sum_j W_ij z_j",
    state: "none",
    sends: "the whole model, 4 d bytes",
    conditions: "rho < 1; a constant step leaves a floor of about lr^2 zeta^2 / (1 - rho)^2 on \
                 heterogeneous data",
    constants: &[(
        "order",
        "\"atc\" (default: with W = 11'/n it is centralized SGD) or \"cta\" (the paper's; gossip \
         overlaps the gradient)",
    )],
    follows_schedules: true,
    prepare,
    ..Entry::BLANK
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    #[default]
    Atc,
    Cta,
}

params! {
    order: Order = Order::default(),
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let params: Params = config::read("rule", table)?;
    let schedule = Arc::clone(setting.schedule);
    let order = params.order;
    let plan = match order {
        Order::Atc => Gossip::after_gradient(setting.topology, setting.dense()),
        Order::Cta => Gossip::around_gradient(setting.topology, setting.dense()),
    };
    Ok(Prepared {
        plan: Arc::new(plan.following(&schedule)),
        resolved: config::resolved("d-psgd", &params),
        warnings: Vec::new(),
        relaxation: 1.0,
        least_neighbours: 0,
        spawn: Arc::new(move |node, x| {
            let rows = Rows::of(&schedule, node);
            match order {
                Order::Atc => Box::new(Atc { rows }),
                Order::Cta => Box::new(Cta { rows, acc: vec![0.0; x.len()] }),
            }
        }),
    })
}

struct Atc {
    rows: Rows,
}

impl Party for Atc {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.x)
    }

    fn target<'a>(&'a mut self, local: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        Some((self.rows.at(at.round).weight(from), &mut local.update))
    }
}

impl Rule for Atc {
    fn gradient(&mut self, local: &mut Local, round: Round, _: f32) {
        // x_i' is sent, and W_ii x_i' starts the sum over received frames: one pass.
        vector::subtract_and_scale(self.rows.at(round).own, &mut local.update, &mut local.x);
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        std::mem::swap(&mut local.x, &mut local.update);
    }

    fn state(&mut self, _: &mut dyn Visitor) {}
}

struct Cta {
    rows: Rows,
    acc: Vec<f32>,
}

impl Party for Cta {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.x)
    }

    fn sent(&mut self, local: &mut Local, at: &At, _: Option<NodeId>, _: &Payload<'_>) {
        vector::scaled(self.rows.at(at.round).own, &local.x, &mut self.acc);
    }

    fn target<'a>(&'a mut self, _: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        Some((self.rows.at(at.round).weight(from), &mut self.acc))
    }
}

impl Rule for Cta {
    fn gradient(&mut self, _: &mut Local, _: Round, _: f32) {}

    fn land(&mut self, local: &mut Local, _: &At) {
        vector::subtract(&local.update, &mut self.acc);
        std::mem::swap(&mut local.x, &mut self.acc);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.scratch(self.acc.len());
    }
}
