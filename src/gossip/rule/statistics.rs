//! Statistics beside the parameters, such as the running means and variances of normalisation
//! layers: nodes average them plainly, whatever the rule does with the parameters.
//!
//! A rule may move a model farther than any node has (an outer momentum, a memory of what was not
//! sent), and compressors round. Moved like this, a running variance becomes negative. So the rule
//! gets the parameters only; the statistics s have a flight of their own, in `f32`:
//!
//! ```text
//! s_i' = W_ii (s_i - u_i) + sum_j W_ij s_j
//! ```
//!
//! with s_j as node j has sent them: after its update, or before it if the frames of the rule are
//! in flight while the gradient is computed, so that a round takes no longer. Both are weighted
//! means of nodes' own statistics, and stay within their range.
//!
//! They stay local during the rounds if nodes are in rounds of their own (there is no round to
//! average them in), and if the rule is a defence against Byzantine nodes, which a plain average is
//! not. The mean of all models at the end has the mean of the statistics in any case.

use std::collections::BTreeMap;

use super::prelude::*;
use crate::{
    gossip::plan::{flights, is_asynchronous, lag},
    mixing::Schedule,
};

impl Prepared {
    /// The same rule for models with this many statistics behind the parameters. A rule that
    /// `defends` does not average them in its rounds.
    pub(crate) fn beside_statistics(
        self,
        statistics: usize,
        schedule: &Arc<Schedule>,
        defends: bool,
    ) -> Prepared {
        if statistics == 0 {
            return self;
        }
        let (asynchronous, inner) = (is_asynchronous(&*self.plan), self.spawn);
        let flight = flights(&*self.plan).last().map_or(0, |last| last + 1);
        let is_local = defends || asynchronous;
        let mut warnings = self.warnings;
        if is_local {
            let why = if asynchronous {
                "the nodes of this rule are in rounds of their own"
            } else {
                "a plain average is no defence against faulty nodes"
            };
            warnings.push(format!(
                "buffers: each node keeps its own until the end of the rounds, when they are \
                 averaged: {why}"
            ));
        }
        let plan: Arc<dyn Plan> = if is_local {
            self.plan
        } else {
            Arc::new(Beside::new(self.plan, flight, schedule, Format::Floats(statistics)))
        };
        let schedule = Arc::clone(schedule);
        let spawn = move |node: NodeId, x: &[f32]| -> Box<dyn Rule> {
            let (parameters, own) = x.split_at(x.len() - statistics);
            Box::new(WithStatistics {
                inner: inner(node, parameters),
                parameters: parameters.len(),
                own: own.to_vec(),
                flight: (!is_local).then_some(flight),
                rows: Rows::of(&schedule, node),
                arriving: BTreeMap::new(),
                started: false,
            })
        };
        Prepared { plan, warnings, spawn: Arc::new(spawn), ..self }
    }
}

/// A plan with one more flight, of the statistics.
struct Beside {
    inner: Arc<dyn Plan>,
    flight: u8,
    steps: Vec<Step>,
    schedule: Arc<Schedule>,
    format: Format,
}

impl Beside {
    fn new(inner: Arc<dyn Plan>, flight: u8, schedule: &Arc<Schedule>, format: Format) -> Beside {
        let mut steps = inner.steps().to_vec();
        let late = lag(&*inner) as u32;
        let place = |wanted: Step| steps.iter().rposition(|&step| step == wanted);
        let gradient = place(Step::Gradient).unwrap_or(0);
        let is_launch = |step: &Step| matches!(step, Step::Launch(_));
        let overlaps = late > 0 || steps[..gradient].iter().any(is_launch);
        let launch = if overlaps { 0 } else { place(Step::Join).map_or(0, |join| join + 1) };
        steps.insert(launch, Step::Launch(flight));
        steps.push(Step::Land { flight, lag: late });
        Beside { inner, flight, steps, schedule: Arc::clone(schedule), format }
    }
}

impl Plan for Beside {
    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn exchanges(&self, flight: u8) -> u16 {
        if flight == self.flight { 1 } else { self.inner.exchanges(flight) }
    }

    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting) {
        if at.flight != self.flight {
            return self.inner.meet(node, at, out);
        }
        let turn = self.schedule.turn(at.round, node);
        out.send.extend_from_slice(turn.to);
        out.wait.extend_from_slice(turn.from);
        out.shared = true;
    }

    fn format(&self, at: &At, from: NodeId) -> &Format {
        if at.flight == self.flight { &self.format } else { self.inner.format(at, from) }
    }

    fn is_compared(&self, flight: u8) -> bool {
        flight != self.flight && self.inner.is_compared(flight)
    }

    fn calls(&self, flight: u8) -> bool {
        flight != self.flight && self.inner.calls(flight)
    }

    fn parts(&self) -> &[usize] {
        self.inner.parts()
    }

    fn bound(&self) -> Option<u64> {
        self.inner.bound()
    }

    fn period(&self) -> u64 {
        // Either the rule follows the schedule, or the schedule is static.
        self.inner.period().max(self.schedule.period())
    }

    fn follows_schedule(&self) -> bool {
        self.inner.follows_schedule()
    }
}

/// A rule on the parameters, and the statistics behind them. `local` has both from
/// [`Rule::point`] to [`Rule::gradient`], and otherwise the parameters only.
struct WithStatistics {
    inner: Box<dyn Rule>,
    parameters: usize,
    /// s_i.
    own: Vec<f32>,
    /// The flight of the statistics; `None` if they stay local.
    flight: Option<u8>,
    rows: Rows,
    /// sum_j W_ij s_j of the rounds that are in flight.
    arriving: BTreeMap<Round, Vec<f32>>,
    started: bool,
}

impl WithStatistics {
    /// Takes the statistics off the initial model.
    fn begin(&mut self, local: &mut Local) {
        if !std::mem::replace(&mut self.started, true) {
            self.take_off(local);
        }
    }

    fn take_off(&self, local: &mut Local) {
        local.x.truncate(self.parameters);
        local.update.truncate(self.parameters);
    }

    fn is_own(&self, at: &At) -> bool {
        self.flight == Some(at.flight)
    }
}

impl Party for WithStatistics {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        self.begin(local);
        if self.is_own(at) { out.vector(&self.own) } else { self.inner.outgoing(local, at, out) }
    }

    fn sent(&mut self, local: &mut Local, at: &At, to: Option<NodeId>, own: &Payload<'_>) {
        if !self.is_own(at) {
            self.inner.sent(local, at, to, own);
        }
    }

    fn target<'a>(&'a mut self, local: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        if !self.is_own(at) {
            return self.inner.target(local, at, from);
        }
        let weight = self.rows.at(at.round).weight(from);
        let sum = self.arriving.entry(at.round).or_insert_with(|| vec![0.0; self.own.len()]);
        Some((weight, sum))
    }

    fn received(&mut self, local: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        if !self.is_own(at) {
            return self.inner.received(local, at, from, p);
        }
        let (weight, sum) = self.target(local, at, from).expect("statistics have a target");
        p.add_into(weight, sum);
        Ok(())
    }

    fn close(&mut self, local: &mut Local, at: &At) {
        if !self.is_own(at) {
            self.inner.close(local, at);
        }
    }

    fn copies(&self) -> Option<&dyn Copies> {
        self.inner.copies()
    }

    fn answers(&mut self) -> Option<&mut dyn Answers> {
        self.inner.answers()
    }
}

impl Rule for WithStatistics {
    fn point(&mut self, local: &mut Local) {
        self.begin(local);
        self.inner.point(local);
        local.x.reserve_exact(self.own.len());
        local.x.extend_from_slice(&self.own);
        local.update.resize(local.x.len(), 0.0);
    }

    fn gradient(&mut self, local: &mut Local, round: Round, step: f32) {
        vector::subtract(&local.update[self.parameters..], &mut self.own);
        self.take_off(local);
        self.inner.gradient(local, round, step);
    }

    fn land(&mut self, local: &mut Local, at: &At) {
        if !self.is_own(at) {
            return self.inner.land(local, at);
        }
        let weight = self.rows.at(at.round).own;
        vector::scale(weight, &mut self.own);
        if let Some(sum) = self.arriving.remove(&at.round) {
            vector::axpy(1.0, &sum, &mut self.own);
        }
    }

    fn model(&self, local: &Local, out: &mut [f32]) {
        let (parameters, own) = out.split_at_mut(self.parameters);
        own.copy_from_slice(&self.own);
        if self.started {
            return self.inner.model(local, parameters);
        }
        let mut local = local.clone();
        self.take_off(&mut local);
        self.inner.model(&local, parameters);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        self.inner.state(visitor);
        visitor.vector("statistics", &mut self.own);
        visitor.scratch(self.arriving.values().map(Vec::len).sum());
    }

    fn parts(&mut self) -> Option<&mut dyn Parts> {
        self.inner.parts().is_some().then_some(self)
    }
}

impl Parts for WithStatistics {
    fn lend(&mut self, part: u8) -> Vec<f32> {
        let mut values = self.inner.parts().expect(PARTS).lend(part);
        if part == 0 {
            values.resize(values.len() + self.own.len(), 0.0);
        }
        values
    }

    fn take(&mut self, round: Round, part: u8, mut values: Vec<f32>) {
        if part == 0 {
            values.truncate(values.len() - self.own.len());
        }
        self.inner.parts().expect(PARTS).take(round, part, values);
    }
}

const PARTS: &str = "a rule whose plan has parts takes them";
