//! The exact mean of all models in the middle of a run, with `run.mean_every`: after every
//! so many rounds the models travel up the spanning tree and their mean down again, as
//! at the end. The rounds are not changed by it; each takes the time of the tree's exchanges more.

use super::{
    super::{
        plan::{flights, is_asynchronous},
        tree::{Averaging, MEAN, Mean, Readers, TreePlan},
    },
    prelude::*,
};
use crate::mixing::Topology;

impl Prepared {
    /// The same rule, with the mean of all models of this many numbers after every `every` rounds.
    /// It withstands so many wrong models, if any; models have no signatures here.
    ///
    /// # Errors
    /// If nodes are in rounds of their own.
    pub(crate) fn with_means(
        self,
        every: u64,
        topology: &Topology,
        numbers: usize,
        liars: Option<usize>,
    ) -> Result<Prepared, ConfigError> {
        if is_asynchronous(&*self.plan) {
            let problem = "the nodes of this rule are in rounds of their own: there is no round \
                           after which all models could be averaged";
            return Err(ConfigError::new("run.mean_every", every, problem));
        }
        let inner = self.spawn;
        let averaging = Averaging { liars, ..Averaging::of_all(topology.nodes()) };
        let tree = TreePlan::models(topology, MEAN, numbers, &averaging, Readers::Root);
        let tree = Arc::new(tree);
        let flight = flights(&*self.plan).last().map_or(0, |last| last + 1);
        let mut steps = self.plan.steps().to_vec();
        steps.extend([Step::Launch(flight), Step::Land { flight, lag: 0 }]);
        let plan = WithMeans { inner: self.plan, tree: Arc::clone(&tree), flight, steps, every };
        let spawn = move |node: NodeId, x: &[f32]| -> Box<dyn Rule> {
            Box::new(FormsMeans {
                inner: inner(node, x),
                tree: Arc::clone(&tree),
                flight,
                every,
                node,
                averaging: averaging.clone(),
                numbers,
                forming: None,
                mean: None,
            })
        };
        Ok(Prepared {
            plan: Arc::new(plan),
            spawn: Arc::new(spawn),
            resolved: self.resolved,
            warnings: self.warnings,
            relaxation: self.relaxation,
            least_neighbours: self.least_neighbours,
        })
    }
}

/// A plan with one more flight, at the end of each round: empty unless a mean is due.
struct WithMeans {
    inner: Arc<dyn Plan>,
    tree: Arc<TreePlan>,
    flight: u8,
    steps: Vec<Step>,
    every: u64,
}

/// Whether a mean is formed at the end of this round.
fn is_due(round: Round, every: u64) -> bool {
    (round.0 + 1).is_multiple_of(every)
}

impl Plan for WithMeans {
    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn exchanges(&self, flight: u8) -> u16 {
        if flight == self.flight {
            self.tree.exchanges(flight)
        } else {
            self.inner.exchanges(flight)
        }
    }

    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting) {
        if at.flight != self.flight {
            self.inner.meet(node, at, out);
        } else if is_due(at.round, self.every) {
            self.tree.meet(node, at, out);
        }
    }

    fn format(&self, at: &At, from: NodeId) -> &Format {
        if at.flight == self.flight {
            self.tree.format(at, from)
        } else {
            self.inner.format(at, from)
        }
    }

    fn is_compared(&self, flight: u8) -> bool {
        flight != self.flight && self.inner.is_compared(flight)
    }

    fn parts(&self) -> &[usize] {
        self.inner.parts()
    }

    fn period(&self) -> u64 {
        // Of the meetings of the rule.
        self.inner.period()
    }

    fn follows_schedule(&self) -> bool {
        self.inner.follows_schedule()
    }
}

struct FormsMeans {
    inner: Box<dyn Rule>,
    tree: Arc<TreePlan>,
    flight: u8,
    every: u64,
    node: NodeId,
    averaging: Averaging,
    numbers: usize,
    forming: Option<Mean>,
    mean: Option<Vec<f32>>,
}

impl FormsMeans {
    /// The mean that is being formed; it begins with this node's own model.
    fn forming(&mut self, local: &Local) -> &mut Mean {
        let FormsMeans { inner, tree, node, averaging, numbers, forming, .. } = self;
        forming.get_or_insert_with(|| {
            let mut own = vec![0.0; *numbers];
            inner.model(local, &mut own);
            Mean::new(tree, averaging, *node, *numbers, Some(&own))
        })
    }
}

impl Party for FormsMeans {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        if at.flight != self.flight {
            return self.inner.outgoing(local, at, out);
        }
        self.forming(local).outgoing(&mut Local::default(), at, out)
    }

    fn sent(&mut self, local: &mut Local, at: &At, to: Option<NodeId>, own: &Payload<'_>) {
        if at.flight != self.flight {
            self.inner.sent(local, at, to, own);
        }
    }

    fn target<'a>(&'a mut self, local: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        if at.flight == self.flight { None } else { self.inner.target(local, at, from) }
    }

    fn received(&mut self, local: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        if at.flight != self.flight {
            return self.inner.received(local, at, from, p);
        }
        self.forming(local).received(&mut Local::default(), at, from, p)
    }

    fn close(&mut self, local: &mut Local, at: &At) {
        if at.flight != self.flight {
            self.inner.close(local, at);
        } else if is_due(at.round, self.every) {
            self.forming(local).close(&mut Local::default(), at);
        }
    }

    fn copies(&self) -> Option<&dyn Copies> {
        self.inner.copies()
    }
}

impl Rule for FormsMeans {
    fn point(&mut self, local: &mut Local) {
        self.inner.point(local);
    }

    fn gradient(&mut self, local: &mut Local, round: Round, step: f32) {
        self.inner.gradient(local, round, step);
    }

    fn land(&mut self, local: &mut Local, at: &At) {
        if at.flight != self.flight {
            self.inner.land(local, at);
        } else if is_due(at.round, self.every) {
            self.forming(local);
            self.mean = self.forming.take().map(Mean::into_mean);
        }
    }

    fn model(&self, local: &Local, out: &mut [f32]) {
        self.inner.model(local, out);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        self.inner.state(visitor);
    }

    fn parts(&mut self) -> Option<&mut dyn Parts> {
        self.inner.parts()
    }

    fn take_mean(&mut self) -> Option<Vec<f32>> {
        self.mean.take()
    }
}
