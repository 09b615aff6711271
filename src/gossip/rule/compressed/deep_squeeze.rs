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
//! t rounds late, and the next gradients are computed while it is in flight, as the delayed update
//! does with centralized SGD:
//!
//! ```text
//! x_i(n+1) = z_i(n) + eta sum_j W_ij (c_j(n-t) - c_i(n-t))
//! ```
//! Both ends of a link use values of one round, so the mean still moves by -lr mean g. Along an
//! eigenvector of W the disagreement follows z(n+1) = z(n) - a z(n-t), a = eta (1 - l), which
//! decays if and only if 0 < a < 2 cos(t pi / (2 t + 1)) (Levin and May 1976, A note on
//! difference-delay equations): eta must fall with t. With the compressor `identity` it is D-PSGD
//! (`atc`, gossip step eta) with late mixing. State: t + 1 vectors more. Rules with copies of
//! neighbours (DCD, CHOCO) and rules whose proof needs the differences of one round (D2, gradient
//! tracking, BEER) have no delay: with a late landing they are other algorithms, and no proof shows
//! that these are sound. On a schedule the bound is not known either.

use crate::gossip::rule::prelude::*;

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

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    #[serde(skip_serializing_if = "Option::is_none")]
    eta: Option<f64>,
    delay: i64,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let mut warnings = setting.require_contraction("deep-squeeze")?;
    let delay = whole("rule.delay", params.delay, 0, 1000)? as u32;
    let limit = if delay > 0 { limit(delay, setting)? } else { f64::INFINITY };
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
        let zeros = vec![0.0; x.len()];
        let late = vec![zeros.clone(); if delay > 0 { delay as usize + 1 } else { 0 }];
        DeepSqueeze { rows: Rows::of(&schedule, node), eta: eta as f32, error: zeros, late }
    };
    Ok(ENTRY.prepared(&params, plan, warnings, rule).relaxed_by(eta))
}

/// The eta below which disagreement decays on a static topology, if C loses nothing: 2 cos(t pi /
/// (2 t + 1)) / (1 - l_n).
///
/// # Errors
/// If the topology follows a schedule.
fn limit(delay: u32, setting: &Setting<'_>) -> Result<f64, ConfigError> {
    if !setting.schedule.is_static() {
        let problem = format!(
            "how small eta must be for late landings is known for one W only, and the schedule \
             is \"{}\": use 0, or topology.schedule = \"static\"",
            setting.schedule.name()
        );
        return Err(ConfigError::new("rule.delay", delay, problem));
    }
    let t = f64::from(delay);
    // A single node has no disagreement.
    let away = (1.0 - setting.topology.spectrum().lambda_n).max(f64::MIN_POSITIVE);
    Ok(2.0 * libm::cos(t * std::f64::consts::PI / (2.0 * t + 1.0)) / away)
}

struct DeepSqueeze {
    rows: Rows,
    eta: f32,
    /// d, and v between the gradient and the exchange.
    error: Vec<f32>,
    /// The mixing that lands later; that of round n at n mod (t + 1).
    late: Vec<Vec<f32>>,
}

impl DeepSqueeze {
    /// The vector that sums the frames of a round: x, or one that lands later.
    fn mixed<'a>(&'a mut self, local: &'a mut Local, round: Round) -> &'a mut Vec<f32> {
        match self.late.len() as u64 {
            0 => &mut local.x,
            flights => &mut self.late[(round.0 % flights) as usize],
        }
    }
}

impl Party for DeepSqueeze {
    fn outgoing(&mut self, _: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&self.error)
    }

    fn sent(&mut self, local: &mut Local, at: &At, _: Option<NodeId>, own: &Payload<'_>) {
        own.add_into(-1.0, &mut self.error);
        let off_diagonal = self.rows.at(at.round).off_diagonal();
        own.add_into(-self.eta * off_diagonal, self.mixed(local, at.round));
    }

    fn target<'a>(&'a mut self, local: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        if self.late.is_empty() {
            // The sum is the model itself.
            return None;
        }
        let weight = self.eta * self.rows.at(at.round).weight(from);
        Some((weight, self.mixed(local, at.round)))
    }

    fn received(&mut self, local: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        let weight = self.rows.at(at.round).weight(from);
        p.add_into(self.eta * weight, self.mixed(local, at.round));
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

    fn land(&mut self, local: &mut Local, at: &At) {
        if self.late.is_empty() {
            return;
        }
        let flights = self.late.len() as u64;
        let late = &mut self.late[(at.round.0 % flights) as usize];
        for (x, late) in local.x.iter_mut().zip(late) {
            *x += std::mem::take(late);
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("d", &mut self.error);
        visit_all(visitor, "late", &mut self.late);
    }
}
