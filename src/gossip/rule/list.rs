//! Every rule by name, and a rule prepared from its section of a file. To add a rule: a file and a
//! line of [`RULES`].

use super::{Entry, Prepared, Setting, centralized, compressed, decentralized, local_updates};
use crate::{
    config::{self, ConfigError},
    gossip::plan,
    mixing::schedule,
    registry::Registry,
};

/// All rules, in the order of the documentation.
pub static RULES: Registry<Entry> = Registry::new(
    "rule",
    &[
        decentralized::d_psgd::ENTRY,
        compressed::naive::ENTRY,
        compressed::dcd::ENTRY,
        compressed::ecd::ENTRY,
        compressed::deep_squeeze::ENTRY,
        compressed::choco::ENTRY,
        compressed::choco_edge::ENTRY,
        decentralized::d2::ENTRY,
        decentralized::gradient_tracking::ENTRY,
        decentralized::pairwise::AD_PSGD,
        decentralized::pairwise::SWARM,
        compressed::beer::ENTRY,
        compressed::moniqua::ENTRY,
        compressed::power_gossip::ENTRY,
        centralized::c_sgd::ENTRY,
        centralized::compressed_c_sgd::ENTRY,
        centralized::sign_sgd::ENTRY,
        centralized::ef_sgd::ENTRY,
        centralized::double_squeeze::ENTRY,
        centralized::g_top_k::ENTRY,
        centralized::top_k_all_gather::ENTRY,
        centralized::dgc::ENTRY,
        centralized::sketched_sgd::ENTRY,
        centralized::delayed::ENTRY,
        centralized::stale_synchronous::ENTRY,
        local_updates::local_sgd::ENTRY,
        local_updates::diloco::ENTRY,
        local_updates::streaming_diloco::ENTRY,
        local_updates::sparse_loco::ENTRY,
        local_updates::noloco::ENTRY,
        local_updates::gasloc::ENTRY,
        local_updates::compressed_gasloc::ENTRY,
        decentralized::qg_dsgdm::ENTRY,
        compressed::compressed_qg_dsgdm::ENTRY,
        decentralized::sgp::ENTRY,
        decentralized::clipped_gossip::ENTRY,
        centralized::trimmed_mean::ENTRY,
    ],
);

/// Finds a rule by name.
///
/// # Errors
/// If there is none; the names that exist are listed.
pub fn find(name: &str) -> Result<&'static Entry, ConfigError> {
    RULES.find(name).ok_or_else(|| RULES.unknown("rule.kind", name))
}

/// The entry of a `[rule]` table, if its kind is known.
pub(crate) fn of(rules: &Registry<Entry>, table: &toml::Table) -> Option<&'static Entry> {
    table.get("kind").and_then(toml::Value::as_str).and_then(|kind| rules.find(kind))
}

/// Prepares the rule of a `[rule]` table and checks that its plan fits the topology.
///
/// # Errors
/// If the kind or a constant is wrong, or the combination cannot work.
pub fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    prepare_in(&RULES, table, setting)
}

/// As [`prepare`], with these rules.
pub(crate) fn prepare_in(
    rules: &Registry<Entry>,
    table: &toml::Table,
    setting: &Setting<'_>,
) -> Result<Prepared, ConfigError> {
    let kind = match table.get("kind") {
        None => {
            return Err(ConfigError::at("rule.kind", "which rule? `gradvine rules` lists them"));
        }
        Some(toml::Value::String(kind)) => kind,
        Some(other) => {
            return Err(ConfigError::new(
                "rule.kind",
                other,
                "expected the name of a rule in quotes",
            ));
        }
    };
    let entry = rules.find(kind).ok_or_else(|| rules.unknown("rule.kind", kind))?;
    if !entry.compresses && !setting.compressor.is_plain() {
        return Err(ConfigError::new(
            "compressor.kind",
            format!("\"{}\"", setting.compressor.name()),
            format!(
                "{kind} takes no compressor (it sends whole vectors, or codes and entries of its \
                 own): use kind = \"identity\", or a rule that compresses ({})",
                names_of(rules, |entry| entry.compresses)
            ),
        ));
    }
    let prepared = (entry.prepare)(&config::without_kind(table), setting)?;
    if !setting.schedule.is_static() && !prepared.plan.follows_schedule() {
        return Err(ConfigError::new(
            "topology.schedule",
            format!("\"{}\"", setting.schedule.name()),
            format!(
                "{kind} meets the same nodes in every round: its copies of neighbours would go \
                 stale, or its sums lack parts, where they meet now and \
                 then; use \"{}\", or a rule that keeps nothing of its neighbours ({})",
                schedule::STATIC,
                names_of(rules, |entry| entry.follows_schedules)
            ),
        ));
    }
    plan::check(&*prepared.plan, setting.topology)?;
    Ok(prepared)
}

/// The names of the rules for which `holds` is true, for an error.
fn names_of(rules: &Registry<Entry>, holds: impl Fn(&Entry) -> bool) -> String {
    let names = rules.iter().filter(|entry| holds(entry)).map(|entry| entry.name);
    names.collect::<Vec<_>>().join(", ")
}
