//! Streaming DiLoCo: a fragment of the model in each round, whose mean change is compressed, comes
//! while training continues, and is blended into the model.
//!
//! Douillard, Donchev, Rush, Kale, Charles, Garrett, Teston, Lacey, McIlroy, Shen, Ramé, Szlam,
//! Ranzato, Barham: Streaming DiLoCo with overlapping communication (2025), Algorithm 2. The
//! paper's abstract and summaries of it were at hand, and the conditions of a public
//! implementation (torchft).
//!
//! Fragment p of round t is t mod P: every fragment is sent once in P rounds, so H of the paper is
//! P times `optimizer.local_steps`. Its part of the outer model th, which is the same on all nodes
//! to the bit, takes an outer Nesterov step when the mean lands; the node's own model moves only
//! (1 - alpha) of the way to it. With P = 1, delay 0 and alpha 0 this is DiLoCo.
//!
//! DIFFERENCE: tau is a whole number of rounds, below P (so that a fragment lands before it is sent
//! again). DIFFERENCE: fragments are ranges of the vector of as equal a length as possible, in
//! turn; the paper takes every P-th layer. DIFFERENCE: the paper sends floats of 4 bits (E3M0);
//! here C is any compressor (`min-max` with 4 bits has an unbiased error), or none. State: th, m,
//! the sums in flight.

use super::sparse_loco;
use crate::{
    compress::Class,
    gossip::{collective::Fragments, rule::prelude::*},
};

pub(crate) const ENTRY: Entry = Entry {
    name: "streaming-diloco",
    summary: "H local steps inside, an outer Nesterov step on one fragment of the model in turn, \
              while training continues",
    paper: "Douillard et al. 2025, Streaming DiLoCo with overlapping communication, Algorithm 2",
    update: "x_i -= u_i;  p = t mod P;  D_i = th_p - x_i,p;  send C(D_i)\n\
             tau rounds later:  D = (1/n) sum_i C(D_i);  m_p' = mu m_p + D\n\
             th_p' = th_p - outer_step (D + mu m_p');  x_i,p' = alpha x_i,p + (1 - alpha) th_p'",
    state: "the outer model th, the outer momentum m, the means in flight",
    sends: "C of d / P numbers; all-to-all: to all; server: up, and the mean, dense, down",
    conditions: "an unbiased C or one of small error (nothing remembers what is lost); tau < P; \
                 all links, or a server with links to all",
    constants: &[
        sparse_loco::COLLECTIVE,
        ("fragments", "P, from 1 to 1000, at most d; default 4"),
        ("delay", "tau, in rounds, from 0, below P; default 1, or 0 if P is 1"),
        ("keep", "alpha, the share of the own model, from 0, below 1; 0.5 (default: the paper's)"),
        ("outer_step", "0.7 (default: DiLoCo's)"),
        ("outer_momentum", "mu, 0.9 (default: DiLoCo's); from 0, below 1"),
    ],
    compresses: true,
    home: "star",
    prepare,
    ..Entry::BLANK
};

params! {
    collective: Option<Kind> = None,
    fragments: i64 = 4,
    delay: Option<i64> = None,
    keep: f64 = 0.5,
    outer_step: f64 = 0.7,
    outer_momentum: f64 = 0.9,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let (kind, pattern) = sparse_loco::choose(ENTRY.name, params.collective, setting)?;
    params.collective = Some(kind);
    let most = 1000.min(setting.parameters.max(1) as i64);
    let fragments = whole("rule.fragments", params.fragments, 1, most)? as usize;
    let delay = params.delay.unwrap_or(1.min(params.fragments - 1));
    let delay = whole("rule.delay", delay, 0, params.fragments - 1)? as u32;
    params.delay = Some(i64::from(delay));
    let keep = constants::below_one("rule.keep", params.keep)?;
    params.outer_step = nine_digits(positive("rule.outer_step", params.outer_step)?);
    let momentum = constants::below_one("rule.outer_momentum", params.outer_momentum)?;
    let mut warnings = Vec::new();
    let d = setting.parameters;
    if let Class::Contraction { delta } = setting.compressor.class(d.div_ceil(fragments))
        && delta < 1.0
        && setting.nominal_delta < 0.9
    {
        warnings.push(format!(
            "`{}` is biased and loses {:.0} % of a usual vector: {} does not remember what is \
             lost; sparse-loco does",
            setting.compressor.name(),
            100.0 * (1.0 - setting.nominal_delta),
            ENTRY.name
        ));
    }
    let nodes = setting.topology.nodes();
    let is_plain = setting.compressor.is_plain();
    let formats = |len| {
        let compressed = Format::Compressed { by: Arc::clone(setting.compressor), len };
        [if is_plain { Format::Floats(len) } else { compressed }, Format::Floats(len)]
    };
    let formats = [formats(d.div_ceil(fragments)), formats(d / fragments)];
    let fragmented = Fragments { len: d, count: fragments };
    let plan = Collective::of_fragments(pattern, nodes, fragmented, formats, delay);
    let step = params.outer_step as f32;
    Ok(ENTRY.prepared(&params, plan, warnings, move |node, x| {
        let sum = || Sum::new(pattern, nodes, node, d.div_ceil(fragments));
        StreamingDiLoCo {
            fragments: fragmented,
            is_plain,
            keep,
            step,
            momentum,
            outer: x.to_vec(),
            m: vec![0.0; d],
            sums: (0..=delay).map(|_| sum()).collect(),
        }
    }))
}

struct StreamingDiLoCo {
    fragments: Fragments,
    /// Whether changes are sent as they are.
    is_plain: bool,
    keep: f32,
    step: f32,
    momentum: f32,
    /// th.
    outer: Vec<f32>,
    m: Vec<f32>,
    /// The sums in flight; that of round t at t mod their number.
    sums: Vec<Sum>,
}

impl StreamingDiLoCo {
    /// The place of a round's sum.
    fn place(&self, round: Round) -> usize {
        (round.0 % self.sums.len() as u64) as usize
    }

    fn sum(&mut self, round: Round) -> &mut Sum {
        let place = self.place(round);
        &mut self.sums[place]
    }
}

impl Party for StreamingDiLoCo {
    fn outgoing(&mut self, _: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        let start = self.fragments.at(at.round).start;
        let sent = self.sum(at.round).outgoing(at.exchange, out);
        sent.map_err(|error| NonFinite { index: start + error.index, ..error })
    }

    fn sent(&mut self, _: &mut Local, at: &At, _: Option<NodeId>, own: &Payload<'_>) {
        // The node's own part of the mean has lost what the others did not get.
        if !self.is_plain && at.exchange == 0 {
            own.write_into(self.sum(at.round).start());
        }
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        self.sum(at.round).received(at.exchange, from, p);
        Ok(())
    }

    fn close(&mut self, _: &mut Local, at: &At) {
        self.sum(at.round).close(at.exchange);
    }
}

impl Rule for StreamingDiLoCo {
    fn gradient(&mut self, local: &mut Local, round: Round, _: f32) {
        vector::subtract(&local.update, &mut local.x);
        let (range, place) = (self.fragments.at(round), self.place(round));
        let both = self.outer[range.clone()].iter().zip(&local.x[range]);
        self.sums[place].start_with(both.map(|(outer, x)| outer - x));
    }

    fn land(&mut self, local: &mut Local, at: &At) {
        let (range, place) = (self.fragments.at(at.round), self.place(at.round));
        let mean = self.sums[place].mean();
        let (outer, m) = (&mut self.outer[range.clone()], &mut self.m[range.clone()]);
        for (((x, outer), m), d) in local.x[range].iter_mut().zip(outer).zip(m).zip(mean) {
            *m = self.momentum * *m + d;
            *outer -= self.step * (d + self.momentum * *m);
            *x = self.keep * *x + (1.0 - self.keep) * *outer;
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("th", &mut self.outer);
        visitor.vector("m", &mut self.m);
        self.sums.iter_mut().for_each(|sum| sum.state(visitor));
    }
}
