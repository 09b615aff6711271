//! The name that a user probably meant.

/// `; did you mean ...?` with the accepted name nearest to `name`; empty if none is near.
///
/// ```
/// use gradvine::config::hint;
/// assert_eq!(hint("gama", ["gamma", "order"]), "; did you mean `gamma`?");
/// assert_eq!(hint("zstandard", ["sign", "top-k"]), "");
/// ```
pub fn hint<'a>(name: &str, accepted: impl IntoIterator<Item = &'a str>) -> String {
    let lower = name.to_lowercase();
    let nearest =
        accepted.into_iter().map(|other| (strsim::osa_distance(&lower, other), other)).min();
    match nearest {
        Some((distance, other))
            if distance <= 1.max(other.chars().count() / 3) && distance < other.chars().count() =>
        {
            format!("; did you mean `{other}`?")
        }
        _ => String::new(),
    }
}
