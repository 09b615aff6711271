//! The imports of most rules.

pub(super) use std::sync::Arc;

pub(super) use serde::{Deserialize, Serialize};

pub(super) use super::{
    constants::{self, nine_digits, positive, whole},
    entry::{Entry, Parts, Prepared, Rule, SameModel, Setting, visit_all},
    mix::{Held, Row, Rows, sum_at, sum_into, unscaled},
    replicas::Replicas,
    steps,
};
pub(super) use crate::{
    compress::{Entries, Format, NonFinite, Payload},
    config::{self, ConfigError, params},
    gossip::{
        collective::{Collective, Gather, Kind, Pattern, Sum, Union},
        party::{Answers, Copies, Encoded, Local, Party, Received, Target, Writer},
        plan::{At, Gossip, Meeting, Plan, Step},
    },
    state::Visitor,
    units::{NodeId, Round},
    vector,
};
