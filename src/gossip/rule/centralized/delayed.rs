//! Delayed update with compensation: averages arrive t rounds late; until then each node applies
//! its own updates.
//!
//! Zhu, Lin, Lu, Wang, Han: Distributed Training Across the World (2019); Zhu, Lin, Lu, Lin, Han:
//! Delayed Gradient Averaging: Tolerate the Communication Latency for Federated Learning (2021),
//! Algorithm 1. u_i is the update (lr g_i) of one round, or the sum over `period` rounds
//! (temporally sparse).
//!
//! The mean of the models is that of SGD on the gradients as they are computed; x_i - x_j is the
//! difference of the last t rounds of i and j. With t = 0 it is C-SGD; with t = 0 and a period,
//! local SGD. After the last round everything in flight lands, so all nodes end with the same model
//! (up to the rounds of an unfinished period, which stay local). While frames of round n - t are in
//! flight, the next gradients are computed. A parameter server with bounded staleness, which passes
//! on newer updates as soon as they arrive, is the rule `stale-synchronous`; here every update of
//! others waits for its round, so that a run can be repeated.
//!
//! z, which all nodes have in common, changes by the means alone and is the same on all nodes to
//! the bit. x_i is z less the own updates that have not landed. It is recomputed from these after
//! every t + 1 landings, so that rounding errors of `f32` do not add up. State: x, z, the sums of
//! t + 1 rounds in flight and as many own updates (z and these only with compensation), and the sum
//! of a period. Gossip without copies of neighbours also tolerates a delay: see `deep_squeeze`.

use super::c_sgd;
use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "delayed",
    summary: "averages land t rounds late, over which each node continues with its own updates",
    paper: "Zhu et al. 2019, Distributed Training Across the World; Zhu et al. 2021, Delayed \
            Gradient Averaging, Algorithm 1",
    update: "compensated:  x_i -= u_i(n);\n\
             when the mean of round n - t lands:  x_i += u_i(n - t) - mean_k u_k(n - t)\n\
             stale:   when the mean of round n - t lands:  x_i -= mean_k u_k(n - t)",
    state: "t + 1 sums in the air, as many own updates, and what all nodes have in common",
    sends: "as c-sgd, once in `period` rounds; up to t + 1 flights in the air",
    conditions: "the links of the collective; on heterogeneous data a bias that grows with t; \
                 without compensation it diverges past t of about 1 / (lr L)",
    constants: &[
        c_sgd::COLLECTIVE,
        c_sgd::GROUP,
        (
            "delay",
            "t, in rounds, 0 to 1000; default 4: a tenth of the paper's largest, enough for a \
             round trip of four gradients",
        ),
        ("period", "rounds between two averages, from 1; default 1"),
        ("compensate", "true (default); false: stale averages only, without own progress"),
    ],
    home: "ring",
    needs_gradients: true,
    prepare,
    ..Entry::BLANK
};

params! {
    collective: Option<Kind> = None,
    group: Option<usize> = None,
    delay: i64 = 4,
    period: i64 = 1,
    compensate: bool = true,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let mut chosen = c_sgd::Params { collective: params.collective, group: params.group };
    let pattern = chosen.choose(ENTRY.name, setting)?;
    params.collective = chosen.collective;
    let delay = whole("rule.delay", params.delay, 0, 1000)? as u32;
    let period = whole("rule.period", params.period, 1, 1000)?;
    let (nodes, compensate) = (setting.topology.nodes(), params.compensate);
    let plan = Collective::sum(pattern, nodes, setting.parameters, delay, period);
    Ok(ENTRY.prepared(&params, plan, Vec::new(), move |node, x| {
        // The number of meetings among the delay + 1 rounds in flight.
        let flights = u64::from(delay) / period + 1;
        let sums = (0..flights).map(|_| Sum::new(pattern, nodes, node, x.len())).collect();
        let own = if compensate { flights as usize } else { 0 };
        let zeros = vec![0.0; x.len()];
        let gathered = if period > 1 { zeros.clone() } else { Vec::new() };
        let common = if compensate { x.to_vec() } else { Vec::new() };
        let own = vec![zeros; own];
        Delayed { period, compensate, common, sums, own, in_air: 0, landed: 0, gathered }
    }))
}

struct Delayed {
    period: u64,
    compensate: bool,
    /// z.
    common: Vec<f32>,
    /// The sums in flight; that of synchronisation s at s mod their number.
    sums: Vec<Sum>,
    /// u_i of these flights.
    own: Vec<Vec<f32>>,
    /// Flights launched and not landed.
    in_air: usize,
    landed: usize,
    /// The sum of the period's updates so far.
    gathered: Vec<f32>,
}

impl Delayed {
    /// The position of a round's flight; `None` if the nodes do not meet in it.
    fn place(&self, round: Round) -> Option<usize> {
        let done = round.0 + 1;
        done.is_multiple_of(self.period)
            .then(|| ((done / self.period - 1) % self.sums.len() as u64) as usize)
    }

    fn sum(&mut self, at: &At) -> &mut Sum {
        let place = self.place(at.round).expect("frames belong to rounds in which nodes meet");
        &mut self.sums[place]
    }
}

impl Party for Delayed {
    fn outgoing(&mut self, _: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        self.sum(at).outgoing(at.exchange, out)
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        self.sum(at).received(at.exchange, from, p);
        Ok(())
    }

    fn close(&mut self, _: &mut Local, at: &At) {
        if self.place(at.round).is_some() {
            self.sum(at).close(at.exchange);
        }
    }
}

impl Rule for Delayed {
    fn gradient(&mut self, local: &mut Local, round: Round, _: f32) {
        if self.compensate {
            vector::subtract(&local.update, &mut local.x);
        }
        if self.period > 1 {
            vector::axpy(1.0, &local.update, &mut self.gathered);
        }
        if let Some(place) = self.place(round) {
            self.in_air += 1;
            let own = if self.period > 1 { &mut self.gathered } else { &mut local.update };
            if self.compensate {
                self.own[place].copy_from_slice(own);
            }
            std::mem::swap(own, self.sums[place].start());
            if self.period > 1 {
                own.fill(0.0);
            }
        }
    }

    fn land(&mut self, local: &mut Local, at: &At) {
        let Some(place) = self.place(at.round) else { return };
        let mean = self.sums[place].mean();
        (self.in_air, self.landed) = (self.in_air - 1, self.landed + 1);
        if !self.compensate {
            return vector::subtract(mean, &mut local.x);
        }
        vector::subtract(mean, &mut self.common);
        let flights = self.sums.len();
        if self.in_air > 0 && !self.landed.is_multiple_of(flights) {
            for ((x, own), mean) in local.x.iter_mut().zip(&self.own[place]).zip(mean) {
                *x += own - mean;
            }
            return;
        }
        local.x.copy_from_slice(&self.common);
        for later in 1..=self.in_air {
            vector::subtract(&self.own[(place + later) % flights], &mut local.x);
        }
        if self.period > 1 {
            vector::subtract(&self.gathered, &mut local.x);
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("z", &mut self.common);
        visitor.vector("gathered", &mut self.gathered);
        visit_all(visitor, "u_i", &mut self.own);
        self.sums.iter_mut().for_each(|sum| sum.state(visitor));
        for (name, count) in [("in_air", &mut self.in_air), ("landed", &mut self.landed)] {
            let mut number = *count as f64;
            visitor.number(name, &mut number);
            *count = number as usize;
        }
    }
}
