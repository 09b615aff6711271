//! Who takes part: the choice of members (`choosing`, `assembly`), who has said what (`keys`), what
//! neighbours may cost (`setbacks`), and those that are refused (`ban`).

pub(crate) mod assembly;
pub(crate) mod ban;
pub(crate) mod choosing;
pub(crate) mod keys;
pub(crate) mod setbacks;
