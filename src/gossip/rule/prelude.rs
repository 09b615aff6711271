//! The imports of most rules.

pub(super) use std::sync::Arc;

pub(super) use serde::{Deserialize, Serialize};

pub(super) use super::{
    Entry, Parts, Prepared, Rule, SameModel, Setting, Visitor,
    mix::{Held, Row, Rows, sum_at, sum_into, unscaled},
    nine_digits, positive,
    replicas::Replicas,
    steps, visit_all, whole,
};
pub(super) use crate::{
    compress::{Entries, Format, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        collective::{Collective, Gather, Kind, Pattern, Sum, Union},
        party::{Answers, Copies, Encoded, Local, Party, Received, Target, Writer},
        plan::{At, Gossip, Meeting, Plan, Step},
    },
    units::{NodeId, Round},
    vector,
};
