//! Writes a node's checkpoints beside training: a thread of its own writes the files, while the
//! node continues.

use std::{
    sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError},
    thread::JoinHandle,
    time::Instant,
};

use crate::{
    cluster::event::Event,
    run::{Checkpoint, Checkpoints, checkpoint::Every},
    threads,
};

/// Writes the checkpoints of one node.
pub(super) struct Saver {
    checkpoints: Checkpoints,
    writer: Writer,
}

enum Writer {
    /// On a thread of its own.
    Beside {
        queue: SyncSender<Checkpoint>,
        thread: JoinHandle<()>,
    },
    /// On this thread, where the system refuses another one.
    Here {
        failing: bool,
    },
    Finished,
}

impl Saver {
    /// For a node that reports durable checkpoints to `own`.
    pub(super) fn new(checkpoints: Checkpoints, own: Sender<Event>) -> Saver {
        let (queue, waiting) = mpsc::sync_channel(1);
        let disk = checkpoints.clone();
        let writer = match threads::spawn("gradvine-saver", move || write(&disk, &own, waiting)) {
            Ok(thread) => Writer::Beside { queue, thread },
            Err(error) => {
                tracing::warn!("checkpoints are written between rounds: {error}");
                Writer::Here { failing: false }
            }
        };
        Saver { checkpoints, writer }
    }

    /// Writes a checkpoint. With a fixed number of rounds it waits while another one is written.
    /// Returns the event if it is durable at once.
    pub(super) fn save(&mut self, checkpoint: Checkpoint) -> Option<Event> {
        let rounds = checkpoint.snapshot.rounds.0;
        match (self.checkpoints.every, &mut self.writer) {
            (Every::Never, _) | (_, Writer::Finished) => None,
            (_, Writer::Here { failing }) => {
                write_one(&self.checkpoints, &checkpoint, failing).then_some(Event::Durable(rounds))
            }
            (Every::Rounds(_) | Every::Once(_), Writer::Beside { queue, .. }) => {
                let _ = queue.send(checkpoint);
                None
            }
            (Every::Time(_), Writer::Beside { queue, .. }) => {
                if let Err(TrySendError::Full(_)) = queue.try_send(checkpoint) {
                    tracing::warn!(
                        "no checkpoint of round {rounds}: the one before is still being written"
                    );
                }
                None
            }
        }
    }

    /// Waits until all checkpoints are written.
    fn finish(&mut self) {
        if let Writer::Beside { queue, thread } =
            std::mem::replace(&mut self.writer, Writer::Finished)
        {
            drop(queue);
            let _ = thread.join();
        }
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Writes one checkpoint after the other.
fn write(checkpoints: &Checkpoints, own: &Sender<Event>, queue: Receiver<Checkpoint>) {
    let mut failing = false;
    for checkpoint in queue {
        if write_one(checkpoints, &checkpoint, &mut failing) {
            let _ = own.send(Event::Durable(checkpoint.snapshot.rounds.0));
        }
    }
}

/// Writes a checkpoint. Returns whether the disk has it.
fn write_one(checkpoints: &Checkpoints, checkpoint: &Checkpoint, failing: &mut bool) -> bool {
    let rounds = checkpoint.snapshot.rounds.0;
    let started = Instant::now();
    match checkpoints.write(checkpoint) {
        Ok(()) => {
            let seconds = started.elapsed().as_secs_f64();
            tracing::info!("checkpoint of round {rounds}, written in {seconds:.2} s");
            *failing = false;
            return true;
        }
        // Once, until it succeeds again: the disk may be full for a long time.
        Err(error) if !std::mem::replace(failing, true) => tracing::warn!("{error}"),
        Err(_) => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        run::checkpoint::Owner,
        units::{NodeId, Round},
    };

    /// The folder of the checkpoints is gone, and comes back: a checkpoint is reported exactly if
    /// the disk has it.
    #[test]
    fn a_checkpoint_is_reported_once_the_disk_has_it() {
        let run = tempfile::tempdir().unwrap();
        let sections = ["a".into(), "b".into(), "c".into()];
        let owner = Owner::of(("run", 1), (NodeId(0), "rome".into()), &sections);
        let all = Checkpoints::open(run.path(), Every::Rounds(1), owner, &sections).unwrap();
        let (own, events) = mpsc::channel();
        let mut saver = Saver::new(all.clone(), own);
        let folder = run.path().join("checkpoints/rome");
        let mut save = |rounds: u64| {
            let mut checkpoint = Checkpoint::default();
            checkpoint.snapshot.rounds = Round(rounds);
            assert!(saver.save(checkpoint).is_none(), "a thread of its own writes it");
        };
        let away = run.path().join("away");
        std::fs::rename(&folder, &away).unwrap();
        save(1);
        // It is sent once the first one has been tried.
        save(2);
        save(3);
        std::fs::rename(&away, &folder).unwrap();
        save(4);
        save(5);
        drop(saver);
        let reported: Vec<u64> = events
            .iter()
            .map(|event| match event {
                Event::Durable(rounds) => rounds,
                other => panic!("{other:?}"),
            })
            .collect();
        let on_disk: Vec<u64> =
            all.available().unwrap().0.into_iter().map(|(_, rounds, _)| rounds).collect();
        assert_eq!(reported, on_disk);
        assert!(!reported.contains(&1) && reported.contains(&5), "{reported:?}");
    }
}
