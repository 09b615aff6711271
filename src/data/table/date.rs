//! Dates as days since 1970-01-01.

use time::{
    Date, Duration, OffsetDateTime, PrimitiveDateTime, format_description::well_known::Iso8601,
    macros::datetime,
};

use super::cell::Cell;

/// Seconds of a day, and those by which a time may be rounded.
const SECONDS_A_DAY: f64 = 86_400.0;
const HELD_TO_S: f64 = 1.0;

/// A date as days since 1970-01-01; a time without a zone is in UTC.
pub(crate) fn date(cell: Cell<'_>) -> Option<f64> {
    let Cell::Text(text) = cell else { return None };
    days(text)
}

/// The same of a text.
pub(crate) fn days(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    // The parser also accepts weeks and days of the year, which tables rarely mean.
    let dashes = text.get(4..5) == Some("-") && text.get(7..8) == Some("-");
    if !dashes || text.len() > 40 {
        return None;
    }
    let epoch = datetime!(1970-01-01 0:00 UTC);
    if text.len() == 10 {
        let date = Date::parse(text, &Iso8601::DATE).ok()?;
        return Some((date - epoch.date()).whole_days() as f64);
    }
    // A blank between date and time, as spreadsheets write it.
    let joined = text.replacen(' ', "T", 1);
    // The parser accepts zones up to 25:59; those of the world are from -12:00 to +14:00.
    let moment = OffsetDateTime::parse(&joined, &Iso8601::DATE_TIME_OFFSET)
        .or_else(|_| {
            PrimitiveDateTime::parse(&joined, &Iso8601::DATE_TIME)
                .map(PrimitiveDateTime::assume_utc)
        })
        .ok()
        .filter(|moment| moment.offset().whole_hours().abs() < 24)?;
    Some((moment - epoch).as_seconds_f64() / SECONDS_A_DAY)
}

/// Whether an `f32` of these days since 1970-01-01 is the same time, to the second.
pub(crate) fn is_held(days: f64) -> bool {
    (f64::from(days as f32) - days).abs() * SECONDS_A_DAY <= HELD_TO_S
}

/// The date, such as `2024-05-17`, on which a time in days since 1970-01-01 is.
pub(crate) fn day_of(days: f64) -> Option<String> {
    let date =
        datetime!(1970-01-01 0:00 UTC).checked_add(Duration::days(days.floor() as i64))?.date();
    let (year, month, day) = date.to_calendar_date();
    (0..=9999).contains(&year).then(|| format!("{year:04}-{:02}-{day:02}", u8::from(month)))
}
