//! The collective of rules that gather one compressed vector of every node.

use crate::gossip::rule::prelude::*;

params! {
    /// The constants of such a rule that has no others.
    pub(super) struct Params {
        pub(super) collective: Option<Kind> = None,
    }
}

/// The pattern that `collective` asks for, or the first of a server and all-to-all whose links
/// exist; `collective` then names it.
pub(super) fn choose(
    rule: &str,
    collective: &mut Option<Kind>,
    setting: &Setting<'_>,
) -> Result<Pattern, ConfigError> {
    let allowed = &[Kind::Server, Kind::AllToAll];
    let (kind, pattern) = Pattern::choose(rule, *collective, None, allowed, setting.topology)?;
    *collective = Some(kind);
    Ok(pattern)
}
