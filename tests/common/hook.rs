//! A rule around another, which looks at what passes or plants a bug.

use std::sync::{Arc, Mutex};

use gradvine::{
    compress::Payload,
    drive::NodeSpec,
    gossip::{
        party::{Answers, Copies, Encoded, Local, Party, Received, Writer},
        plan::At,
        rule::{Parts, Prepared, Rule, Visitor},
    },
    units::{NodeId, Round},
};

use crate::Run;

/// Called before the inner rule is.
pub trait Hook: Send {
    fn point(&mut self) {}
    fn gradient(&mut self, _local: &Local, _round: Round, _step: f32) {}
    fn outgoing(&mut self, _at: &At) {}
    /// Whether the inner rule sees its own frame.
    fn sent(&mut self, _at: &At, _own: &Payload<'_>) -> bool {
        true
    }
    /// How many times the inner rule takes the frame.
    fn received(&mut self, _at: &At, _from: NodeId) -> usize {
        1
    }
    fn called(&mut self, _from: NodeId) {}
    fn answer(&mut self, _from: NodeId) {}
}

pub struct Hooked<H> {
    pub inner: Box<dyn Rule>,
    pub hook: H,
}

impl<H: Hook> Party for Hooked<H> {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        self.hook.outgoing(at);
        self.inner.outgoing(local, at, out)
    }

    fn sent(&mut self, local: &mut Local, at: &At, to: Option<NodeId>, own: &Payload<'_>) {
        if self.hook.sent(at, own) {
            self.inner.sent(local, at, to, own);
        }
    }

    fn received(&mut self, local: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        for _ in 0..self.hook.received(at, from) {
            self.inner.received(local, at, from, p)?;
        }
        Ok(())
    }

    fn close(&mut self, local: &mut Local, at: &At) {
        self.inner.close(local, at);
    }

    fn copies(&self) -> Option<&dyn Copies> {
        self.inner.copies()
    }

    fn answers(&mut self) -> Option<&mut dyn Answers> {
        self.inner.answers()?;
        Some(self)
    }
}

impl<H: Hook> Answers for Hooked<H> {
    fn called(&mut self, local: &mut Local, at: &At, from: NodeId, ask: &Payload<'_>) {
        self.hook.called(from);
        self.inner.answers().unwrap().called(local, at, from, ask);
    }

    fn answer(
        &mut self,
        local: &mut Local,
        at: &At,
        ask: &Payload<'_>,
        out: &mut Writer<'_>,
    ) -> Encoded {
        self.hook.answer(out.receiver().unwrap());
        self.inner.answers().unwrap().answer(local, at, ask, out)
    }
}

impl<H: Hook> Rule for Hooked<H> {
    fn point(&mut self, local: &mut Local) {
        self.hook.point();
        self.inner.point(local);
    }

    fn gradient(&mut self, local: &mut Local, round: Round, step: f32) {
        self.hook.gradient(local, round, step);
        self.inner.gradient(local, round, step);
    }

    fn land(&mut self, local: &mut Local, at: &At) {
        self.inner.land(local, at);
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
}

/// What rules were asked to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told {
    /// The model of this node was lent for a gradient.
    Point(usize),
    /// Its update arrived.
    Gradient(usize),
    /// It sent its model to a neighbour.
    Outgoing(usize),
    /// The call of this node came.
    Called(usize),
    /// It was answered.
    Answer { by: usize, caller: usize },
    /// It took an answer.
    Received(usize),
}

/// Writes down what a rule is asked to do.
struct Recorder {
    node: usize,
    told: Arc<Mutex<Vec<Told>>>,
}

impl Recorder {
    fn note(&self, told: Told) {
        self.told.lock().unwrap().push(told);
    }
}

impl Hook for Recorder {
    fn point(&mut self) {
        self.note(Told::Point(self.node));
    }

    fn gradient(&mut self, _local: &Local, _round: Round, _step: f32) {
        self.note(Told::Gradient(self.node));
    }

    fn outgoing(&mut self, _at: &At) {
        self.note(Told::Outgoing(self.node));
    }

    fn received(&mut self, _at: &At, _from: NodeId) -> usize {
        self.note(Told::Received(self.node));
        1
    }

    fn called(&mut self, from: NodeId) {
        self.note(Told::Called(from.index()));
    }

    fn answer(&mut self, from: NodeId) {
        self.note(Told::Answer { by: self.node, caller: from.index() });
    }
}

/// Runs these nodes, and writes down what their rules are asked to do, in its order.
pub fn recorded<T>(run: &Run, play: impl FnOnce(Vec<NodeSpec>) -> T) -> (T, Vec<Told>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let specs = run.specs_with(|node, inner| {
        let hook = Recorder { node: node.index(), told: Arc::clone(&told) };
        Box::new(Hooked { inner, hook })
    });
    let played = play(specs);
    let told = told.lock().unwrap().clone();
    (played, told)
}

/// A rule with its model, for tests that call it without an engine.
pub struct Alone {
    pub rule: Box<dyn Rule>,
    pub local: Local,
}

impl Alone {
    /// The rule of each node of a run, at its start.
    pub fn all(run: &Run, prepared: &Prepared) -> Vec<Alone> {
        let alone = |node: usize| Alone {
            rule: (prepared.spawn)(NodeId::from(node), &run.start(node)),
            local: Local::new(run.start(node)),
        };
        (0..run.nodes()).map(alone).collect()
    }

    pub fn model(&self) -> Vec<f32> {
        let mut x = vec![0.0; self.local.update.len()];
        self.rule.model(&self.local, &mut x);
        x
    }
}
