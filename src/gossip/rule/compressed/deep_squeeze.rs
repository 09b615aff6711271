//! DeepSqueeze: error-compensated compression of the model.
//!
//! Tang, Lian, Qiu, Yuan, Zhang, Zhang, Liu: DeepSqueeze: Decentralization Meets Error-Compensated
//! Compression (2019), Algorithm 1.
//!
//! DIFFERENCE to widely shown slides: they print d' = C(v) - v and add it, which doubles the
//! missing mass instead of restoring it. There are no copies of neighbours: on a schedule W is the
//! matrix W_t of the round, and a node without neighbours in a round still compresses. State: x and
//! d, for any degree; any x_0. The mean moves by -lr mean g for any C. The error does not vanish
//! with the step (C is applied to the model), so the consensus distance has a floor that grows with
//! eta.
//!
//! **`delay` = t, our extension** (DIFFERENCE; 0 is the paper's rule): the mixing of a round lands
//! t rounds late ([`Late`]). With the compressor `identity` it is D-PSGD (`atc`, gossip step eta)
//! with late mixing.

use crate::gossip::rule::{
    late::{self, Additive, Late},
    prelude::*,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "deep-squeeze",
    summary: "send the compressed model plus what was lost before; no copies of neighbours",
    paper: "Tang et al. 2019, DeepSqueeze: Decentralization Meets Error-Compensated Compression, \
            Algorithm 1",
    update: "z_i  = x_i - lr g_i(x_i)\n\
             v_i  = z_i + d_i   d_0 = 0\n\
             c_i  = C(v_i);  d_i' = v_i - c_i\n\
             x_i' = z_i + eta sum_j W_ij (c_j - c_i)",
    state: "one error memory",
    sends: "c_i",
    conditions: "a contraction (nominal delta > 0); eta below delta / max_i sum_{j != i} |W_ij| \
                 is stable for random-k (1.5 delta on a ring), below about 2.5 k / d for top-k; \
                 the noise, and with it the distance of the nodes' models from their mean, grows \
                 with eta and with 1 / delta: under top-k and random-k the mean model is the \
                 result; with a delay t eta (1 - l_n) < 2 cos(t pi / (2 t + 1)) as well",
    constants: &[
        (
            "eta",
            "averaging step; default F / 2 x nominal delta (if C sends the k greatest entries: at \
             most F x 2.8 k / d), F = min(0.7, 1 / (2 max_i sum_{j != i} |W_ij|)): a quarter to a \
             half of the limit of stability; 1 where C is exact; with a delay at most half of its \
             limit",
        ),
        (
            "delay",
            "rounds after which what is mixed lands, 0 to 1000; default 0, the paper's; more is \
             our extension",
        ),
    ],
    compresses: true,
    follows_schedules: true,
    prepare,
    ..Entry::BLANK
};

params! {
    eta: Option<f64> = None,
    delay: i64 = 0,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let mut warnings = setting.require_contraction("deep-squeeze")?;
    let delay = whole("rule.delay", params.delay, 0, 1000)? as u32;
    let limit = late::limit(delay, setting)?.unwrap_or(f64::INFINITY);
    let eta = nine_digits(positive(
        "rule.eta",
        params.eta.unwrap_or_else(|| (limit / 2.0).min(steps::of_models(setting))),
    )?);
    params.eta = Some(eta);
    if eta >= limit {
        let problem = format!(
            "what lands {delay} rounds late makes the nodes swing apart unless eta (1 - l_n) < 2 \
             cos(t pi / (2 t + 1)): on `{}` eta must be below {limit:.6}; \
             leave it out for half of that, or set run.allow_unstable = true to watch it fail",
            setting.topology.name()
        );
        if !setting.allow_unstable {
            return Err(ConfigError::new("rule.eta", eta, problem));
        }
        warnings.push(problem);
    }
    let schedule = Arc::clone(setting.schedule);
    let plan = Gossip::after_gradient(setting.topology, setting.compressed());
    let plan = plan.landing_late(delay).following(&schedule);
    let rule = move |node, x: &[f32]| {
        let (rows, error) = (Rows::of(&schedule, node), vec![0.0; x.len()]);
        DeepSqueeze { rows, eta: eta as f32, error }
    };
    let prepared = if delay == 0 {
        ENTRY.prepared(&params, plan, warnings, rule)
    } else {
        let late = move |node, x: &[f32]| Late::new(rule(node, x), delay, x.len());
        ENTRY.prepared(&params, plan, warnings, late)
    };
    Ok(prepared.relaxed_by(eta))
}

struct DeepSqueeze {
    rows: Rows,
    eta: f32,
    /// d, and v between the gradient and the exchange.
    error: Vec<f32>,
}

impl Additive for DeepSqueeze {
    fn weight(&mut self, at: &At, from: NodeId) -> f32 {
        self.eta * self.rows.at(at.round).weight(from)
    }
}

impl Party for DeepSqueeze {
    fn outgoing(&mut self, _: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&self.error)
    }

    fn sent(&mut self, local: &mut Local, at: &At, _: Option<NodeId>, own: &Payload<'_>) {
        own.add_into(-1.0, &mut self.error);
        own.add_into(-self.eta * self.rows.at(at.round).off_diagonal(), &mut local.x);
    }

    fn received(&mut self, local: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        p.add_into(self.weight(at, from), &mut local.x);
        Ok(())
    }
}

impl Rule for DeepSqueeze {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        for ((x, error), update) in local.x.iter_mut().zip(&mut self.error).zip(&local.update) {
            *x -= update;
            *error += *x;
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("d", &mut self.error);
    }
}
